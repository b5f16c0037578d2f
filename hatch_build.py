"""Puts the Scala half of the bridge into the wheel: its sources, and a jar for each minor of Spark.

A jar needs PySpark of its minor version and Java. `make wheel` installs them all; a build that has
only some, or none, as in pip's isolated environment, makes a wheel without the other jars, and they
are compiled on first use. An editable install compiles nothing: it runs from the checkout.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BridgeHook(BuildHookInterface):
    """Called by hatchling for each wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        jvm = root / "jvm"
        forced = build_data["force_include"]
        for source in sorted(jvm.rglob("*.scala")):
            forced[str(source)] = f"phalanx/spark/jvm/{source.relative_to(jvm).as_posix()}"
        sys.path[:0] = [str(root), str(root / "src")]
        try:
            import pyspark  # noqa: F401

            import phalanx.spark.jar as bridge
            import sparks
        except ImportError as missing:
            self.app.display_warning(
                f"{missing.name} is not installed here: the wheel is without the jars, which are "
                "compiled on first use"
            )
            return
        finally:
            del sys.path[:2]
        for minor in bridge.MINORS:
            package = sparks.package(minor)
            if package is None:
                self.app.display_warning(
                    f"PySpark {minor} is not installed here: the wheel is without the jar for it, "
                    "which is compiled on first use"
                )
                continue
            spark = bridge.Spark(sparks.version(package), package / "jars")
            forced[str(bridge.compiled(jvm, spark))] = f"phalanx/spark/{spark.shipped_name}"
