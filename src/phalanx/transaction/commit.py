"""Transactions: changes to any number of leaves that become visible together, or not at all.

Each leaf's change is committed detached; one swap on the manifest then makes all of them the
table's next snapshot. Whoever loses the swap looks at the new snapshot, commits the same files
on top of it, and tries again. Files that were written are never written twice.
"""

from __future__ import annotations

import datetime as dt
import logging
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from phalanx.errors import ConflictError, InvalidInput
from phalanx.model import statistics
from phalanx.model.specs import PartitionSpec
from phalanx.model.spelling import quote, value_text
from phalanx.model.statistics import Statistics
from phalanx.storage import names
from phalanx.storage.head import Head
from phalanx.storage.leaf import EMPTY_VERSION, Leaf, Written
from phalanx.storage.leaves import LeafRow
from phalanx.storage.location import Location
from phalanx.storage.manifest import (
    NAMESPACE,
    TABLE,
    TRANSACTION,
    VERSION,
    ManifestVersion,
    Rows,
    SwapLost,
    transaction_row,
)
from phalanx.transaction.snapshot import Snapshot

log = logging.getLogger("phalanx")

#: How long a transaction tries to win the swap before it gives up.
PATIENCE_SECONDS = 120.0


@dataclass
class LeafAppend:
    """Rows for one leaf, written as files that no version names yet."""

    place: Place
    written: list[Written]
    statistics: Statistics
    #: The version made on each base, so that a retry on the same base makes no other.
    committed: dict[int, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.written)

    def commit(self, location: Location, base: int) -> int:
        if base not in self.committed:
            leaf = Leaf(location, self.place.folder)
            self.committed[base] = leaf.append(self.written, base)
        return self.committed[base]


@dataclass(frozen=True)
class Place:
    """Where a leaf is, or will be: its values, its names and its folder."""

    spec: PartitionSpec
    keys: tuple[Any, ...]
    names: tuple[str, ...]
    folder: str
    #: The leaf as the snapshot has it; None for one that does not exist yet.
    row: LeafRow | None

    @property
    def leaf_id(self) -> str:
        return names.leaf_id(self.spec.id, self.names)

    def values(self) -> dict[str, Any]:
        return {f.field_id: key for f, key in zip(self.spec.fields, self.keys, strict=True)}

    def described(self) -> dict[str, str]:
        """The values as strings, for stock clients and for repair; NULL is left out."""
        return {
            f"partition.{f.field_id}": value_text(key, f.result_type)
            for f, key in zip(self.spec.fields, self.keys, strict=True)
            if key is not None
        }


def find_place(snapshot: Snapshot, spec: PartitionSpec, keys: tuple[Any, ...]) -> Place:
    """The place of the leaf with these values: the one that exists, or the one to be made.

    Existing namespaces are found by value, whatever they are called.
    """
    leaves = snapshot.leaves
    index = leaves.find(spec, keys)
    if index is not None:
        row = leaves.row(index)
        return Place(spec, keys, tuple(row.names), row.location, row)
    known: list[str] = []
    for depth in range(len(keys) - 1, 0, -1):
        parent = leaves.find(spec, keys[:depth])
        if parent is not None:
            known = leaves.row(parent).names[:depth]
            break
    types = [f.result_type for f in spec.fields]
    salt = snapshot.head.salt
    made = names.namespace_names(salt, spec.id, keys, types, known)
    folder = names.leaf_folder(salt, names.leaf_id(spec.id, made))
    return Place(spec, keys, tuple(made), folder, None)


class Transaction:
    """Changes that start from one snapshot and end as the next, or as nothing."""

    def __init__(self, base: Snapshot, operation: str, transaction_id: str | None = None) -> None:
        """Raises InvalidInput for an unusable id, UnsupportedTable where we must not write."""
        base.head.check_writable()
        if transaction_id is not None and (
            not isinstance(transaction_id, str) or not 0 < len(transaction_id) <= 512
        ):
            raise InvalidInput("a transaction_id is a string of 1 to 512 characters")
        self.base = base
        self.operation = operation
        self.id = transaction_id or uuid.uuid4().hex
        self.appends: list[LeafAppend] = []

    @property
    def location(self) -> Location:
        return self.base.location

    def landed(self, manifest: ManifestVersion | None = None) -> bool:
        """Whether a transaction with this id is part of the table already."""
        manifest = manifest or ManifestVersion(self.location)
        wanted = f"object_id = {quote(transaction_row(self.id))}"
        return bool(manifest.read(["object_id"], wanted).num_rows)

    def commit(self, pool: Executor) -> Snapshot:
        """Make the changes visible, and return the snapshot that has them.

        Raises ConflictError where they cannot be brought together with another's.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        snapshot = self.base
        attempt = 0
        while True:
            rows = self._rows(snapshot, pool)
            try:
                version = snapshot.manifest.swap(rows.to_table())
                return Snapshot(ManifestVersion(self.location, version))
            except SwapLost:
                attempt += 1
            except OSError:
                # The reply was lost, not necessarily the commit.
                latest = Snapshot.latest(self.location)
                if self.landed(latest.manifest):
                    return latest
                raise
            if time.monotonic() > deadline:
                raise ConflictError(
                    f"{self.operation} on {self.location.uri} lost to other transactions "
                    f"{attempt} times in {PATIENCE_SECONDS:.0f} seconds: nothing was written"
                )
            time.sleep(random.uniform(0, min(0.25, 0.004 * 2 ** min(attempt, 6))))
            snapshot = self._rebased(Snapshot.latest(self.location))
            if self.landed(snapshot.manifest):
                return snapshot

    def _rebased(self, newest: Snapshot) -> Snapshot:
        """Check that the changes still make sense on a newer snapshot."""
        if newest.head.table_id != self.base.head.table_id:
            raise ConflictError(f"the table {self.location.uri} was dropped and made again")
        if newest.head.schema != self.base.head.schema:
            raise ConflictError(
                f"the schema of {self.location.uri} was changed by another transaction: try again"
            )
        newest.head.check_writable()
        return newest

    def _rows(self, snapshot: Snapshot, pool: Executor) -> Rows:
        """The manifest rows of this transaction on top of a snapshot."""
        places = [
            find_place(snapshot, append.place.spec, append.place.keys) for append in self.appends
        ]
        bases = [EMPTY_VERSION if p.row is None else p.row.read_version or 0 for p in places]
        versions = list(
            pool.map(lambda i: self.appends[i].commit(self.location, bases[i]), range(len(places)))
        )
        head = snapshot.head.after(dt.datetime.now(dt.UTC))
        rows = Rows(head.specs)
        known = _statistics(snapshot, [p.row for p in places if p.row is not None])
        for append, place, version in zip(self.appends, places, versions, strict=True):
            _add_leaf(rows, append, place, version, known)
        rows.add_head(head)
        rows.add_transaction(self.id, head, self._described())
        return rows

    def _described(self) -> Mapping[str, str]:
        return {
            "operation": self.operation,
            "rows_added": str(sum(append.rows for append in self.appends)),
            "rows_removed": "0",
            "leaves": str(len(self.appends)),
        }


def _add_leaf(
    rows: Rows, append: LeafAppend, place: Place, version: int, known: Mapping[str, Statistics]
) -> None:
    """The rows of a leaf that has grown: its table row, its timeline, its namespaces if new."""
    before = place.row
    number = 1 if before is None else before.version_number + 1
    counts: dict[str, int | None] = {
        "row_count": append.rows,
        "byte_count": sum(part.bytes for part in append.written),
        "fragment_count": sum(len(part.fragments) for part in append.written),
    }
    stats = append.statistics
    if before is None:
        _add_namespaces(rows, place)
    else:
        counts = {
            name: None if getattr(before, name) is None else (count or 0) + getattr(before, name)
            for name, count in counts.items()
        }
        stats = statistics.merge(known.get(before.object_id, {}), stats)
    rows.add(
        place.leaf_id,
        TABLE,
        {**place.described(), "read_version": str(version)},
        place.values(),
        location=place.folder,
        read_version=version,
        spec_id=place.spec.id,
        version_number=number,
        column_stats=statistics.to_rows(stats),
        **counts,
    )
    rows.add(f"{place.leaf_id}${number}", VERSION, read_version=version)


def _add_namespaces(rows: Rows, place: Place) -> None:
    values = place.values()
    described = place.described()
    inherited: dict[str, Any] = {}
    for depth, spec_field in enumerate(place.spec.fields, start=1):
        inherited[spec_field.field_id] = values[spec_field.field_id]
        own = f"partition.{spec_field.field_id}"
        rows.add(
            names.object_id(place.spec.id, place.names[:depth]),
            NAMESPACE,
            {own: described[own]} if own in described else {},
            dict(inherited),
        )


def _statistics(snapshot: Snapshot, leaves: Sequence[LeafRow]) -> dict[str, Statistics]:
    """The statistics of some leaves, by object id."""
    found: dict[str, Statistics] = {}
    ids = [leaf.object_id for leaf in leaves]
    for start in range(0, len(ids), 1000):
        chosen = ", ".join(quote(id) for id in ids[start : start + 1000])
        table = snapshot.manifest.read(["object_id", "column_stats"], f"object_id IN ({chosen})")
        for row in table.to_pylist():
            found[row["object_id"]] = statistics.from_rows(
                row["column_stats"], snapshot.head.schema
            )
    return found


def first_rows(head: Head, transaction_id: str) -> Rows:
    """The rows of a table that has just been made."""
    rows = Rows(head.specs)
    for spec in head.specs:
        rows.add(spec.namespace, NAMESPACE, {"partition_spec": spec.dumps()})
    rows.add_head(head)
    described = {"operation": "create", "rows_added": "0", "rows_removed": "0", "leaves": "0"}
    rows.add_transaction(transaction_id, head, described)
    return rows


__all__ = ["TRANSACTION", "LeafAppend", "Place", "Transaction", "find_place", "first_rows"]
