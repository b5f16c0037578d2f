"""What a user does with a table: create, open, append, scan, count, look at it."""

from phalanx.table.table import Table, create, open

__all__ = ["Table", "create", "open"]
