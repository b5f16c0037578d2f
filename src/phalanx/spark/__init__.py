"""Phalanx in Spark: `session(warehouse=…)`, and then SQL and DataFrames.

This package is the Python half of the bridge; the Scala half, in `jvm/`, only translates.
"""

# The module `conf` first: importing it later would bind its name here, in place of the function.
import phalanx.spark.conf  # noqa: F401
from phalanx.spark.session import conf, session

__all__ = ["conf", "session"]
