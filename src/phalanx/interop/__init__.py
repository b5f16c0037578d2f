"""Other formats: Parquet trees and Delta tables, in and out, and tables of other Lance clients.

An export writes the rows of a snapshot in another format, an import makes a table of them. Nothing
below this package knows about it.
"""

from phalanx.interop import delta, parquet
from phalanx.interop.adoption import adopt
from phalanx.interop.upgrading import upgrade

__all__ = ["adopt", "delta", "parquet", "upgrade"]
