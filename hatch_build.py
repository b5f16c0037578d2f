"""Puts the Scala half of the bridge into the wheel: its sources, and the jar made of them.

The jar needs PySpark and Java. Where the build has none, as in pip's isolated environment, the
wheel holds the sources only, and they are compiled on first use. An editable install compiles
nothing: it runs from the checkout.
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
        sources = sorted((root / "jvm").glob("*.scala"))
        forced = build_data["force_include"]
        for source in sources:
            forced[str(source)] = f"phalanx/spark/jvm/{source.name}"
        sys.path.insert(0, str(root / "src"))
        try:
            import pyspark  # noqa: F401

            import phalanx.spark.jar as bridge
        except ImportError as missing:
            self.app.display_warning(
                f"{missing.name} is not installed here: the wheel is without the jar, which is "
                "compiled on first use"
            )
            return
        finally:
            sys.path.pop(0)
        bridge.check_spark()
        forced[str(bridge.compiled(sources))] = f"phalanx/spark/{bridge.shipped_name()}"
