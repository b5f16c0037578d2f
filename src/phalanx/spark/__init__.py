"""Phalanx in Spark: `session(warehouse=…)`, and then SQL and DataFrames.

This package is the Python half of the bridge; the Scala half, in `jvm/`, only translates.
"""

from typing import TYPE_CHECKING, Any

# The module `conf` first: importing it later would bind its name here, in place of the function.
import phalanx.spark.conf  # noqa: F401
from phalanx.spark.session import conf, session

if TYPE_CHECKING:
    from phalanx.spark.searching import search

__all__ = ["conf", "search", "session"]


def __getattr__(name: str) -> Any:
    """Load what searches on first use: most workers only read rows."""
    if name != "search":
        raise AttributeError(f"module 'phalanx.spark' has no attribute {name!r}")
    from phalanx.spark.searching import search

    return search
