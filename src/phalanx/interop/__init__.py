"""Other formats: Parquet and Delta, in and out, trees and tables of other Lance clients.

An export writes the rows of a snapshot in another format, an import makes a table of them, and a
tree of Lance datasets becomes a table where it is. Nothing below this package knows about it.
"""

from phalanx.interop import delta, hive, parquet
from phalanx.interop.adoption import adopt
from phalanx.interop.upgrading import upgrade

__all__ = ["adopt", "delta", "hive", "parquet", "upgrade"]
