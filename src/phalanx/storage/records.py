"""What rows of the manifest say that are no leaves: transactions, tags and the epochs of streams.

A row's metadata is a flat map of strings, as stock clients demand. Here it is typed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TransactionRecord:
    """One transaction of the table's history.

    A count is None where the transaction does not say, as those that change no rows.
    """

    id: str
    sequence: int
    committed_at: dt.datetime
    operation: str | None = None
    rows_added: int | None = None
    rows_removed: int | None = None
    leaves: int | None = None
    #: How many rows of the manifest were removed with it, the leaves' timelines aside in upkeep.
    removals: int | None = None
    #: How many snapshots expired with it.
    snapshots: int | None = None

    @property
    def may_remove_leaves(self) -> bool:
        """Whether leaves may have left the table: a snapshot from before must be read again."""
        return self.removals != 0

    @property
    def may_move_rows(self) -> bool:
        """Whether rows may have moved from one leaf to another."""
        return self.operation == MOVES_ROWS or bool(self.rows_removed and self.rows_added)

    def to_metadata(self) -> dict[str, str]:
        texts: dict[str, str | None] = {
            "transaction_id": self.id,
            "operation": self.operation,
            **{key: _text(getattr(self, name)) for name, key in _COUNTS.items()},
            # Copies of typed columns, for repair.
            "sequence": str(self.sequence),
            "committed_at": self.committed_at.isoformat(),
        }
        return {key: text for key, text in texts.items() if text is not None}

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
            **counts,
        )


#: The operation that moves rows to other leaves, and changes none.
MOVES_ROWS = "rewrite"
#: The counts of a transaction, and what they are called in the metadata.
_COUNTS = {
    "rows_added": "rows_added",
    "rows_removed": "rows_removed",
    "leaves": "leaves",
    "removals": "rows_gone",
    "snapshots": "snapshots",
}


@dataclass(frozen=True)
class TagRecord:
    """A name that keeps a version of the table."""

    name: str
    version: int
    #: The version of the manifest that holds it.
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
    """The last epoch of a stream that has landed, and the version that it landed as."""

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
