"""Rows of the manifest, and facts about leaves, as typed values.

A row's metadata is a flat map of strings, as stock clients require. It is parsed and written here;
nothing above storage reads it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from phalanx.storage import names
from phalanx.storage.head import Head


@dataclass(frozen=True)
class LeafRow:
    """One leaf of a snapshot.

    `keys` are its partition values. `index` is its position in the snapshot's leaves, -1 for a new
    leaf. `read_version` is None if the newest version on main is read, as in weak tables.
    """

    index: int
    object_id: str
    location: str
    read_version: int | None
    spec_id: int
    keys: tuple[Any, ...]
    version_number: int
    row_count: int | None
    byte_count: int | None
    fragment_count: int | None

    @property
    def names(self) -> list[str]:
        """The names of the namespaces that it is in, without the spec's, outermost first."""
        return names.names_in(self.object_id)


class TimelineRow(NamedTuple):
    """One version in a leaf's timeline."""

    id: str
    read_version: int | None

    @property
    def leaf(self) -> str | None:
        """The id of the leaf; None if the row has no number."""
        parts = names.leaf_version(self.id)
        return None if parts is None else parts[0]


@dataclass(frozen=True)
class TransactionRecord:
    """One transaction of the table's history.

    A count is None if the transaction does not record it, for example because it changes no rows.
    """

    id: str
    sequence: int
    committed_at: dt.datetime
    operation: str | None = None
    rows_added: int | None = None
    rows_removed: int | None = None
    leaves: int | None = None
    #: How many rows of the manifest it removed, not counting timelines that maintenance expired.
    removals: int | None = None
    #: How many snapshots it expired.
    snapshots: int | None = None
    #: Ids of the stray rows that it took in or gave up.
    settled: tuple[str, ...] = ()
    #: Whether it set leaves to versions of an earlier snapshot: their rows are back, not new.
    restores: bool = False

    @property
    def may_remove_leaves(self) -> bool:
        """Whether it may have removed leaves, so that an earlier snapshot must be read again."""
        return self.removals != 0

    @property
    def may_move_rows(self) -> bool:
        """Whether rows may have moved from one leaf to another.

        An operation that is not known may do anything. Its counts do not tell: a rollback can bring
        a row to another leaf without any leaf having fewer rows.
        """
        stay = self.operation in _ROWS_STAY and not (self.rows_removed and self.rows_added)
        return not stay

    @property
    def looks_at_rows(self) -> bool:
        """Whether it may have deleted, changed or replaced rows that were there.

        Had other rows been there, it might have removed them, too.
        """
        return self.operation not in _ADDS_ONLY

    def to_metadata(self) -> dict[str, str]:
        texts: dict[str, str | None] = {
            "transaction_id": self.id,
            "operation": self.operation,
            "settled": " ".join(self.settled) or None,
            "restores": "true" if self.restores else None,
            **{key: _text(getattr(self, name)) for name, key in _COUNTS.items()},
            # Copies of typed columns, for repair.
            "sequence": str(self.sequence),
            "committed_at": self.committed_at.isoformat(),
        }
        return {key: text for key, text in texts.items() if text is not None}

    @staticmethod
    def of(
        head: Head,
        operation: str,
        settled: tuple[str, ...] = (),
        restores: bool = False,
        **counts: int,
    ) -> TransactionRecord:
        """The record of the transaction that writes a head."""
        return TransactionRecord(
            head.transaction_id,
            head.sequence,
            head.committed_at,
            operation,
            settled=settled,
            restores=restores,
            **counts,
        )

    @staticmethod
    def from_row(
        sequence: int, committed_at: dt.datetime, metadata: Mapping[str, str]
    ) -> TransactionRecord:
        counts = {name: _number(metadata.get(key)) for name, key in _COUNTS.items()}
        return TransactionRecord(
            metadata.get("transaction_id", ""),
            sequence,
            committed_at,
            metadata.get("operation"),
            settled=tuple(metadata.get("settled", "").split()),
            restores=metadata.get("restores") == "true",
            **counts,
        )


#: The operation that moves rows to other leaves without changing them.
MOVES_ROWS = "rewrite"
#: The operations that add rows, or change none, and leave every row in its leaf.
_ROWS_ARE_KEPT = frozenset(
    {
        "create",
        "upgrade",
        "adopt",
        "append",
        "optimize",
        "vacuum",
        "expire",
        "tag",
        "properties",
        "make strong",
        "evolve partitioning",
        "add column",
        "rename column",
        "change type",
        "make nullable",
        "describe column",
        "move column",
        "reorder columns",
        "create index",
        "refresh indexes",
        "drop index",
    }
)
#: The operations that add rows, move them, or change none.
_ADDS_ONLY = _ROWS_ARE_KEPT | {MOVES_ROWS, "repair"}
#: The operations after which each row is in the leaf that it was in, or gone.
_ROWS_STAY = _ROWS_ARE_KEPT | {
    "delete",
    "drop partitions",
    "drop column",
    "set default",
    "add constraint",
    "drop constraint",
}
#: The counts of a transaction and their keys in the metadata.
_COUNTS = {
    "rows_added": "rows_added",
    "rows_removed": "rows_removed",
    "leaves": "leaves",
    "removals": "rows_gone",
    "snapshots": "snapshots",
}


@dataclass(frozen=True)
class TagRecord:
    """A name for a version of the table, which keeps the version from expiring."""

    name: str
    version: int
    #: The version of the manifest that holds the version of the table.
    manifest_version: int

    def to_metadata(self) -> dict[str, str]:
        return {key: str(value) for key, value in vars(self).items()}

    @staticmethod
    def from_metadata(metadata: Mapping[str, str]) -> TagRecord:
        return TagRecord(
            metadata["name"], int(metadata["version"]), int(metadata["manifest_version"])
        )


@dataclass(frozen=True)
class EpochRecord:
    """The last committed epoch of a stream, and the version of the table that it created."""

    query: str
    epoch: int
    version: int

    def to_metadata(self) -> dict[str, str]:
        return {key: str(value) for key, value in vars(self).items()}

    @staticmethod
    def from_metadata(metadata: Mapping[str, str]) -> EpochRecord:
        return EpochRecord(metadata["query"], int(metadata["epoch"]), int(metadata["version"]))


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


@dataclass(frozen=True)
class FragmentSize:
    """A fragment of a version of a leaf: what Lance's metadata says about it."""

    id: int
    #: Rows that are not deleted.
    rows: int
    bytes: int
    deletions: int = 0
    paths: frozenset[str] = frozenset()
    #: Whether an index covers its rows.
    indexed: bool = False

    @property
    def files(self) -> int:
        return max(1, len(self.paths))

    @property
    def live_bytes(self) -> int:
        """About how many bytes the rows would take without the deleted ones."""
        return self.bytes * self.rows // max(1, self.rows + self.deletions)

    def is_still(self, other: FragmentSize) -> bool:
        """Whether this fragment has the same rows as one of another version of the leaf.

        Columns may have been added or dropped in between, in separate files.
        """
        same = (self.id, self.rows, self.deletions) == (other.id, other.rows, other.deletions)
        return same and bool(self.paths & other.paths)


@dataclass(frozen=True)
class LeafChange:
    """What one commit did to a leaf."""

    #: The fragments that it changed or removed; None if they are unknown, or all of them.
    touched: frozenset[int] | None
    adds_rows: bool = False
    removes_rows: bool = False
    #: Whether it added or dropped indexes.
    changes_indexes: bool = False


class DataFileRow(NamedTuple):
    """A data file of a leaf, with the rows of the fragment that it belongs to."""

    path: str
    fragment: int
    rows: int
    deleted_rows: int
    bytes: int | None
