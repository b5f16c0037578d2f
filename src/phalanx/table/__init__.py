"""What a user does with a table: create, open, append, scan, count, look at it."""

from phalanx.table.table import Table, check, create, open, repair

__all__ = ["Table", "check", "create", "open", "repair"]
