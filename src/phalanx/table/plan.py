"""Plans: which leaves a scan reads, which are pruned, and by which fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.model.bounds import bounded_columns
from phalanx.model.dialect import to_sql, to_text
from phalanx.model.indexes import SCALAR
from phalanx.model.predicates import EVERYTHING, Predicate, columns_of
from phalanx.model.pruning import Verdict, prune, pruning_fields
from phalanx.model.specs import PartitionSpec
from phalanx.model.spelling import shortened, shown_value
from phalanx.storage.leaf import open_leaf
from phalanx.storage.location import Location
from phalanx.storage.read_units import are_small
from phalanx.storage.records import LeafRow
from phalanx.table.format import count_text, size_text
from phalanx.table.html import plan_html
from phalanx.table.skipping import may_hold
from phalanx.transaction.snapshot import Snapshot

#: How many leaves `explain` lists by name.
_NAMED = 10


@dataclass(frozen=True)
class PlannedLeaf:
    """A leaf that a scan reads."""

    row: LeafRow
    #: The part of the filter that is left to check; None if every row matches.
    where: Predicate | None
    snapshot: Snapshot = dataclasses.field(repr=False, compare=False)

    @property
    def values(self) -> dict[str, Any]:
        """Partition values by field id, as Python values."""
        return values_of(self.snapshot, self.row)

    @property
    def location(self) -> Location:
        """The root of the table."""
        return self.snapshot.location

    @property
    def uri(self) -> str:
        return self.location.child(self.row.location)

    @property
    def version(self) -> int | None:
        """The Lance version to read; None for the newest version on main (weak tables)."""
        return self.row.read_version

    @property
    def rows(self) -> int | None:
        """Rows in the leaf before any filter; None if the manifest does not know."""
        return self.row.row_count

    @property
    def residual(self) -> str | None:
        """The part of the filter that is left to check, as SQL; None if every row matches."""
        return None if self.where is None else to_sql(self.where)

    def open(self) -> Any:
        """Open the leaf with plain Lance, at the version that the scan reads.

        Returns a `lance.LanceDataset`, which is for reading only: what is written through it is not
        part of the table. It has the columns that the leaf was last written with, and all of its
        rows, also those that do not match the filter. Raises CorruptTable if the version is gone.
        """
        return open_leaf(self.location, self.row.location, self.version)

    def __repr__(self) -> str:
        values = ", ".join(f"{k}={shortened(str(v))}" for k, v in self.values.items())
        return f"PlannedLeaf({values}, rows={self.rows}, residual={self.residual!r})"


class Plan:
    """The leaves of a snapshot that a predicate selects."""

    def __init__(self, snapshot: Snapshot, predicate: Predicate) -> None:
        self.snapshot, self.predicate = snapshot, predicate
        leaves, head = snapshot.leaves, snapshot.head
        self.total = len(leaves)
        maybe, always, verdicts = [], [], []
        for spec in sorted(head.specs, key=lambda spec: spec.id):
            low, high = leaves.range_of(spec.id)
            verdict = prune(predicate, spec, head.schema, leaves.columns_of(spec), high - low)
            verdicts.append((low, verdict))
            maybe.append(verdict.maybe)
            always.append(verdict.always)
        self._verdicts: list[tuple[int, Verdict]] = verdicts
        self.indices = np.flatnonzero(np.concatenate(maybe)) if maybe else np.zeros(0, np.int64)
        #: For each leaf of the snapshot, whether all of its rows match.
        self.certain = np.concatenate(always) if always else np.zeros(0, bool)

    @property
    def selected(self) -> int:
        """The number of leaves to read."""
        return len(self.indices)

    @property
    def pruned(self) -> int:
        """The number of leaves that cannot hold a matching row."""
        return self.total - self.selected

    @cached_property
    def to_read(self) -> Any:
        """The indices of the selected leaves that the bounds of their columns do not rule out."""
        return may_hold(self.snapshot, self.predicate, self.indices)

    @property
    def bounded_columns(self) -> str:
        """The columns whose bounds may rule out leaves."""
        return ", ".join(dict.fromkeys(c.path[0] for c in bounded_columns(self.predicate)))

    @property
    def rows(self) -> int | None:
        """Rows in the selected leaves before any filter; None if a count is unknown."""
        counts = self.snapshot.leaves.row_counts[self.indices]
        return None if bool(np.any(counts < 0)) else int(counts.sum())

    @property
    def bytes(self) -> int:
        """Bytes in the selected leaves; leaves of unknown size are left out."""
        counts = self.snapshot.leaves.byte_counts[self.indices]
        return int(counts[counts > 0].sum())

    @property
    def fragments(self) -> tuple[int, int] | None:
        """How many fragments are read, and how many there are; None if a count is unknown.

        A fragment is a data file, or several with different columns of the same rows.
        """
        counts = self.snapshot.leaves.fragment_counts
        if bool(np.any(counts < 0)):
            return None
        return int(counts[self.indices].sum()), int(counts.sum())

    @cached_property
    def leaves(self) -> Sequence[PlannedLeaf]:
        """The leaves to read, ordered by their partition values."""
        return [self._leaf(row) for row in self.snapshot.leaves.rows(self.indices)]

    def first_leaves(self, count: int) -> Iterator[PlannedLeaf]:
        """The first of the leaves to read."""
        return map(self._leaf, self.snapshot.leaves.rows(self.indices[:count]))

    def __repr__(self) -> str:
        return f"<plan: {self.selected:,} of {self.total:,} partitions, {self.pruned:,} pruned>"

    def _repr_html_(self) -> str:
        return plan_html(self)

    def residual(self, index: int) -> Predicate | None:
        """The part of the predicate that is left to check in a leaf; None if every row matches."""
        for low, verdict in reversed(self._verdicts):
            if index >= low:
                if verdict.always[index - low]:
                    return None
                residual = verdict.residuals[int(verdict.residual[index - low])]
                return None if residual == EVERYTHING else residual
        raise IndexError(index)

    def are_small(self, indices: Any) -> Any:
        """Which leaves are small, and read together with others.

        A leaf with an index on a column of the filter is read by itself, because the index is of
        no use for many leaves that are read as one.
        """
        leaves = self.snapshot.leaves
        rows = leaves.row_counts[indices]
        small = are_small(rows, leaves.byte_counts[indices])
        if self._indexed_rows is not None:
            small &= rows < self._indexed_rows
        return small

    @cached_property
    def _indexed_rows(self) -> int | None:
        """How many rows a leaf has, at least, that has an index for the filter; None for none."""
        head = self.snapshot.head
        if not head.indexes:
            return None
        used = {column.field_id for column in columns_of(self.predicate)}
        indexes = [i for i in head.indexes.values() if i.family == SCALAR and i.column_id in used]
        return min((index.min_rows for index in indexes), default=None)

    def _leaf(self, row: LeafRow) -> PlannedLeaf:
        return PlannedLeaf(row, self.residual(row.index), self.snapshot)

    def explain(self, columns: Sequence[str] | None = None) -> str:
        """The plan as text, for people."""
        head = self.snapshot.head
        lines = [f"scan of {self.snapshot.location.uri}, version {head.sequence}"]
        if columns is not None:
            lines.append(f"  columns     {', '.join(columns) or 'none'}")
        if self.predicate != EVERYTHING:
            lines.append(f"  where       {to_text(self.predicate)}")
        size = "an unknown number of rows"
        if self.rows is not None:
            size = f"{count_text(self.rows, 'row')}, {size_text(self.bytes)}"
        share = f"{self.pruned:,} pruned, {100 * self.pruned / max(1, self.total):.1f}%"
        lines.append(f"  partitions  {self.selected:,} of {self.total:,} ({share}), {size}")
        if self.fragments is not None:
            lines.append(f"  fragments   {self.fragments[0]:,} of {self.fragments[1]:,}")
        if self.predicate != EVERYTHING:
            lines.append(f"  pruned by   {self.pruned_by}")
            lines.append(f"  filter      {self._filter_summary()}")
            if len(self.to_read) < self.selected:
                skipped = count_text(self.selected - len(self.to_read), "partition")
                lines.append(f"  skipped     {skipped}, by the bounds of {self.bounded_columns}")
        for leaf in self.first_leaves(_NAMED):
            filter = "" if leaf.where is None else f"  filter: {to_text(leaf.where)}"
            count = "? rows" if leaf.rows is None else count_text(leaf.rows, "row")
            lines.append(f"    {self.short_name_of(leaf.row)}  {count}{filter}")
        if self.selected > _NAMED:
            lines.append(f"    … and {self.selected - _NAMED:,} more")
        return "\n".join(lines)

    @property
    def pruned_by(self) -> str:
        """The partition fields that leaves were pruned by, or why none was pruned."""
        used = {column.field_id for column in columns_of(self.predicate)}
        fields = [
            field.field_id
            for spec in self.snapshot.head.specs
            for field in spec.fields
            if used & set(field.source_ids)
        ]
        if not self.total:
            return "nothing: the table has no rows yet"
        if not self.pruned:
            return (
                "nothing: every partition can hold matching rows"
                if fields
                else "nothing: the filter says nothing about the partition fields"
            )
        return ", ".join(dict.fromkeys(self._pruning_fields())) or (
            "a filter that no row satisfies"
        )

    def _pruning_fields(self) -> Iterator[str]:
        """The ids of the fields that leaves of any spec were pruned by."""
        head, leaves = self.snapshot.head, self.snapshot.leaves
        specs = sorted(head.specs, key=lambda spec: spec.id)
        for spec, (_, verdict) in zip(specs, self._verdicts, strict=True):
            columns = leaves.columns_of(spec)
            for field in pruning_fields(self.predicate, spec, head.schema, columns, verdict):
                yield field.field_id

    def doubts(self, indices: Any, done: str) -> Iterator[str]:
        """A note for the report if leaves are `done` whole and not all of their rows may match."""
        doubtful = int((~self.certain[indices]).sum())
        if doubtful:
            yield (
                f"partition values do not decide {to_text(self.predicate)}: "
                f"{count_text(doubtful, 'leaf')} that may hold matching rows "
                f"{'is' if doubtful == 1 else 'are'} {done} whole"
            )

    def _filter_summary(self) -> str:
        certain = int(self.certain[self.indices].sum())
        if certain == self.selected:
            return "none left: partition values decide it"
        return f"left for {self.selected - certain:,} of {self.selected:,} partitions"

    def name_of(self, row: LeafRow) -> str:
        """The partition of a leaf, as text."""
        return partition_name(self.snapshot.leaves.specs[row.spec_id], row)

    def short_name_of(self, row: LeafRow) -> str:
        """The partition of a leaf as text, with long values shortened."""
        return partition_name(self.snapshot.leaves.specs[row.spec_id], row, shortened)


def partition_name(
    spec: PartitionSpec, row: LeafRow, shown: Callable[[str], str] = lambda text: text
) -> str:
    """The partition of a leaf as text; `shown` is applied to each value."""
    if not spec.fields:
        return "the whole table"
    return " / ".join(
        f"{field.field_id}={shown_value(key, field.result_type, shown)}"
        for field, key in zip(spec.fields, row.keys, strict=True)
    )


def values_of(snapshot: Snapshot, row: LeafRow) -> dict[str, Any]:
    """A leaf's partition values as Python values."""
    spec = snapshot.leaves.specs[row.spec_id]
    values = {}
    for field in spec.fields:
        column = snapshot.leaves.column(field.column_name)
        code = int(column.codes[row.index])
        values[field.field_id] = None if code < 0 else _python(column.values[code])
    return values


def _python(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):  # beyond the range of a Python date or datetime
        if pa.types.is_timestamp(scalar.type) and scalar.type.unit in ("s", "ms"):
            scalar = scalar.cast(pa.timestamp("us", scalar.type.tz))
        return scalar.value
