"""A Spark session for measurements, and queries that are run without keeping their rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from phalanx.spark import session


def spark(folder: Path, **more: str) -> Any:
    """A local session with the catalog `lake` in a folder."""
    conf = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.memory": "4g",
        "spark.local.dir": os.fspath(folder / "scratch"),
        **more,
    }
    found = session(folder / "lake", master="local[2]", conf=conf)
    found.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    return found


def drain(frame: Any) -> None:
    """Run a query and discard its rows."""
    frame.write.format("noop").mode("overwrite").save()
