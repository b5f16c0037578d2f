"""Phalanx in Spark: `session(warehouse=…)`, and then SQL and DataFrames.

This package is the Python half of the bridge; the Scala half, in `jvm/`, only translates.
"""

from phalanx.spark.session import conf, session

__all__ = ["conf", "session"]
