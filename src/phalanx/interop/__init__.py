"""Other formats: Parquet trees and Delta tables, in and out, and trees of Lance datasets.

An export writes the rows of a snapshot in another format, an import makes a table of them, and a
tree of Lance datasets becomes a table where it is. Nothing below this package knows about it.
"""

from phalanx.interop import delta, hive, parquet

__all__ = ["delta", "hive", "parquet"]
