"""Every error Phalanx raises on purpose, as one tree.

A message says what happened, to which table or column, and what to do about it, in one
sentence or two. Spark shows the same sentence to its users, so no message may hold a secret.
"""

from __future__ import annotations


class PhalanxError(Exception):
    """The root of the tree: catch this to catch everything Phalanx refuses."""


class InvalidInput(PhalanxError, ValueError):
    """What the caller gave does not fit: a value, a type, a schema, a spec, a filter."""


class TableNotFound(PhalanxError, FileNotFoundError):
    """There is no Phalanx table at that place (or no such version of it)."""


class TableExists(PhalanxError, FileExistsError):
    """A table is to be created where one exists already."""


class UnsupportedTable(PhalanxError):
    """The table needs a feature that this version of Phalanx does not have."""


class ConflictError(PhalanxError):
    """Another transaction changed the same rows first, and this one cannot be rebased."""


class CorruptTable(PhalanxError):
    """The table's own metadata contradicts itself: `check` says where, `repair` mends."""
