"""Partitioned Lance tables: one table, many leaves, one transaction across all of them.

>>> import phalanx, pyarrow as pa
>>> schema = pa.schema([("id", pa.int64()), ("country", pa.string())])
>>> table = phalanx.create("lake/people", schema, partition_by=["country"])  # doctest: +SKIP
"""

from phalanx.errors import (
    ConflictError,
    CorruptTable,
    InvalidInput,
    PhalanxError,
    TableExists,
    TableNotFound,
    UnsupportedTable,
)
from phalanx.model.specs import expr
from phalanx.table import Table, check, create, open, repair

__version__ = "0.1.0"

__all__ = [
    "ConflictError",
    "CorruptTable",
    "InvalidInput",
    "PhalanxError",
    "Table",
    "TableExists",
    "TableNotFound",
    "UnsupportedTable",
    "check",
    "create",
    "expr",
    "open",
    "repair",
]
