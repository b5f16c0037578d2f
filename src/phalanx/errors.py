"""Every error Phalanx raises on purpose, as one tree.

A message says what happened, to which table or column, and what to do about it, in one or two
sentences. Spark shows the same message to its users, so a message must not contain secrets.
"""

from __future__ import annotations


class PhalanxError(Exception):
    """The base class: catch it to catch every error that Phalanx raises on purpose."""


class InvalidInput(PhalanxError, ValueError):
    """An argument is invalid: a value, a type, a schema, a spec or a filter."""


class TableNotFound(PhalanxError, FileNotFoundError):
    """There is no Phalanx table at this location, or no such version of it."""


class TableExists(PhalanxError, FileExistsError):
    """A table cannot be created because one already exists at this location."""


class UnsupportedTable(PhalanxError):
    """The table needs a feature that this version of Phalanx does not have."""


class ConflictError(PhalanxError):
    """Another transaction changed the same rows first, and this one cannot be rebased."""


class StorageError(PhalanxError, OSError):
    """The file system or the object store failed: a full disk, missing rights, no connection."""


class CorruptTable(PhalanxError):
    """The table's metadata or files are damaged: `check` says where, `repair` fixes it."""
