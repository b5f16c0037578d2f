"""What a user does with a table: create, open, append, scan, count, look at it."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.table.table import Table, check, create, open, repair

__all__ = ["Table", "check", "create", "open", "repair"]


def __getattr__(name: str) -> Any:
    """Load the whole with the first use of it: a planner needs less than half."""
    if name not in __all__:
        raise AttributeError(f"module 'phalanx.table' has no attribute {name!r}")
    return getattr(importlib.import_module("phalanx.table.table"), name)
