"""Partitioned Lance tables: one table, many leaves, one transaction across all of them.

>>> import phalanx, pyarrow as pa
>>> schema = pa.schema([("id", pa.int64()), ("country", pa.string())])
>>> table = phalanx.create("lake/people", schema, partition_by=["country"])  # doctest: +SKIP
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx import interop, model
    from phalanx.errors import (
        ConflictError,
        CorruptTable,
        InvalidInput,
        PhalanxError,
        StorageError,
        TableExists,
        TableNotFound,
        UnsupportedTable,
    )
    from phalanx.model.literals import lit
    from phalanx.model.specs import expr
    from phalanx.model.text import Boolean, Match, Phrase
    from phalanx.table.table import Table, check, create, exists, open, repair

#: The version of the package, which `pyproject.toml` takes from here.
__version__ = "0.2.0"

__all__ = [
    "Boolean",
    "ConflictError",
    "CorruptTable",
    "InvalidInput",
    "Match",
    "PhalanxError",
    "Phrase",
    "StorageError",
    "Table",
    "TableExists",
    "TableNotFound",
    "UnsupportedTable",
    "check",
    "create",
    "exists",
    "expr",
    "interop",
    "lit",
    "model",
    "open",
    "repair",
]

#: What the module of tables exports.
_TABLES = ("Table", "check", "create", "exists", "open", "repair")


def __getattr__(name: str) -> Any:
    """Load the library on first use, not on `import phalanx`.

    A Spark worker that has just started only reads rows and needs a small part of it.
    """
    if name not in __all__:
        if name.startswith("_"):
            raise AttributeError(f"module 'phalanx' has no attribute {name!r}", name=name)
        raise importlib.import_module("phalanx.table.words").unknown_function(name)
    if name == "interop":
        return importlib.import_module("phalanx.interop")
    table = importlib.import_module("phalanx.table.table")
    specs = importlib.import_module("phalanx.model.specs")
    errors = importlib.import_module("phalanx.errors")
    exports = {key: getattr(errors, key) for key in __all__ if hasattr(errors, key)}
    exports |= {key: getattr(table, key) for key in _TABLES}
    literals = importlib.import_module("phalanx.model.literals")
    text = importlib.import_module("phalanx.model.text")
    exports |= {key: getattr(text, key) for key in ("Boolean", "Match", "Phrase")}
    exports |= {"expr": specs.expr, "lit": literals.lit}
    exports |= {"model": importlib.import_module("phalanx.model")}
    globals().update(exports)
    return exports[name]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
