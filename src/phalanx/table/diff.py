"""What changed between two snapshots: leaves, columns, partitioning and properties.

Only the two manifests are read. A leaf counts as changed if its version is another one; its rows
need not be, as after `optimize`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.model.paths import join_path
from phalanx.model.schema import TableSchema
from phalanx.storage.leaf_index import LeafIndex
from phalanx.storage.records import LeafRow
from phalanx.table.format import count_text, size_text
from phalanx.table.plan import partition_name
from phalanx.transaction.snapshot import Snapshot

#: How many leaves the text lists by name.
_NAMED = 20


@dataclass(frozen=True)
class SnapshotSize:
    """How large a table was at a version. None where the manifest does not know."""

    version: int
    leaves: int
    rows: int | None
    bytes: int | None


@dataclass(frozen=True)
class LeafDifference:
    """A leaf that was added, removed or changed."""

    kind: str
    partition: str
    spec_id: int
    rows_before: int | None
    rows_after: int | None
    bytes_before: int | None
    bytes_after: int | None

    @property
    def rows(self) -> int | None:
        """How many more rows it has; None if that is unknown."""
        if self.rows_before is None or self.rows_after is None:
            return None
        return self.rows_after - self.rows_before


@dataclass(frozen=True)
class Difference:
    """The report of `diff`."""

    uri: str
    before: SnapshotSize
    after: SnapshotSize
    added: int
    removed: int
    changed: int
    #: Every leaf that differs, in the order of the partitions: removed, then changed, then added.
    leaves: tuple[LeafDifference, ...]
    #: One sentence for each difference of the columns.
    columns: tuple[str, ...]
    #: The partitioning of new rows before and after.
    partition_by_before: tuple[str, ...]
    partition_by_after: tuple[str, ...]
    #: Properties that differ, with their values before and after; None where it is not set.
    properties: Mapping[str, tuple[str | None, str | None]]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (
            self.leaves
            or self.columns
            or self.properties
            or self.partition_by_before != self.partition_by_after
        )

    def __str__(self) -> str:
        lines = [f"{self.uri}: version {self.before.version} to {self.after.version}"]
        if self.same:
            return f"{lines[0]}: nothing differs"
        lines.append(f"  rows        {_moved(self.before.rows, self.after.rows)}")
        lines.append(f"  size        {_moved(self.before.bytes, self.after.bytes, size_text)}")
        leaves = _moved(self.before.leaves, self.after.leaves)
        counts = f"{self.added:,} added, {self.removed:,} removed, {self.changed:,} changed"
        lines.append(f"  partitions  {leaves}: {counts}")
        if self.partition_by_before != self.partition_by_after:
            before, after = (
                ", ".join(fields) or "nothing"
                for fields in (self.partition_by_before, self.partition_by_after)
            )
            lines.append(f"  partitioned by  {before} -> {after}")
        lines += [f"  column      {text}" for text in self.columns]
        for name, (old, new) in self.properties.items():
            lines.append(f"  property    {name}: {old} -> {new}")
        for leaf in self.leaves[:_NAMED]:
            sign = {"added": "+", "removed": "-", "changed": "~"}[leaf.kind]
            lines.append(
                f"    {sign} {leaf.partition}  {_moved(leaf.rows_before, leaf.rows_after)}"
            )
        if len(self.leaves) > _NAMED:
            more = count_text(len(self.leaves) - _NAMED, "leaf")
            lines.append(f"    … and {more} more")
        return "\n".join(lines)


def _moved(before: int | None, after: int | None, shown: Any = "{:,}".format) -> str:
    texts = ["?" if number is None else shown(number) for number in (before, after)]
    return texts[0] if before == after else " -> ".join(texts)


def difference(before: Snapshot, after: Snapshot, most: int | None = None) -> Difference:
    """Compare two snapshots of the same table; at most `most` leaves of each kind are listed."""
    old, new = before.leaves, after.leaves
    known = pc.index_in(new.ids, pa.array(old.ids.to_pylist(), pa.string()))
    at = np.asarray(pc.fill_null(known, -1)).astype(np.int64)
    kept_new = np.flatnonzero(at >= 0)
    kept_old = at[kept_new]
    is_gone = np.ones(len(old), dtype=bool)
    is_gone[kept_old] = False
    same = _versions(old)[kept_old] == _versions(new)[kept_new]
    changed_old, changed_new = kept_old[~same], kept_new[~same]
    gone, added = np.flatnonzero(is_gone), np.flatnonzero(at < 0)
    leaves = [
        *_changes("removed", old, gone[:most], None, None),
        *_changes("changed", old, changed_old[:most], new, changed_new[:most]),
        *_changes("added", None, None, new, added[:most]),
    ]
    return Difference(
        after.location.uri,
        _size(before),
        _size(after),
        len(added),
        len(gone),
        len(changed_new),
        tuple(leaves),
        tuple(_columns(before.head.schema, after.head.schema)),
        tuple(before.head.spec.spell(before.head.schema)),
        tuple(after.head.spec.spell(after.head.schema)),
        _changed_values(before.head.properties, after.head.properties),
    )


def _changed_values(
    before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    values = {name: (before.get(name), after.get(name)) for name in sorted({*before, *after})}
    return {name: (old, new) for name, (old, new) in values.items() if old != new}


def _versions(leaves: LeafIndex) -> Any:
    return np.array(leaves.read_versions.to_pylist(), dtype=object)


def _size(snapshot: Snapshot) -> SnapshotSize:
    leaves = snapshot.leaves
    rows, sizes = leaves.row_counts, leaves.byte_counts
    return SnapshotSize(
        snapshot.sequence,
        len(leaves),
        None if bool((rows < 0).any()) else int(rows.sum()),
        None if bool((sizes < 0).any()) else int(sizes.sum()),
    )


def _changes(
    kind: str, old: LeafIndex | None, before: Any, new: LeafIndex | None, after: Any
) -> Iterator[LeafDifference]:
    """Leaves that differ; one that is not there before or after had, or has, nothing in it."""
    old_rows: list[LeafRow] = [] if old is None else old.rows(before)
    new_rows: list[LeafRow] = [] if new is None else new.rows(after)
    specs = {**({} if old is None else old.specs), **({} if new is None else new.specs)}
    for place, row in enumerate(new_rows or old_rows):
        was = old_rows[place] if old_rows else None
        now = new_rows[place] if new_rows else None
        yield LeafDifference(
            kind,
            partition_name(specs[row.spec_id], row),
            row.spec_id,
            0 if was is None else was.row_count,
            0 if now is None else now.row_count,
            0 if was is None else was.byte_count,
            0 if now is None else now.byte_count,
        )


def _columns(before: TableSchema, after: TableSchema) -> Iterator[str]:
    """What happened to columns, by their ids."""
    for id, column in before.columns.items():
        name, now = join_path(column.path), after.columns.get(id)
        if now is None:
            yield f"{name} was dropped"
            continue
        if now.path != column.path:
            yield f"{name} was renamed to {join_path(now.path)}"
        if now.type != column.type:
            yield f"{join_path(now.path)} has the type {now.type} instead of {column.type}"
        if now.nullable != column.nullable:
            may = "may" if now.nullable else "must not"
            yield f"{join_path(now.path)} {may} be NULL"
    for id, column in after.columns.items():
        if id not in before.columns:
            yield f"{join_path(column.path)} was added, as {column.type}"
