"""Merge: match rows by key; update or delete those that are there, insert those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.domains import domain_of
from phalanx.model.predicates import (
    Predicate,
    conjoin,
    restrict,
)
from phalanx.model.schema import TableSchema
from phalanx.model.sets import ALL_VALUES, ValueSet
from phalanx.model.specs import PartitionSpec
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.mapping import ROW_ID
from phalanx.table import ingest
from phalanx.table.operations.leaf_results import (
    LeafResult,
    result_holds,
    take_out,
)
from phalanx.table.partitioned_writer import BUFFER_BYTES, PartitionedWriter, WrittenLeaf
from phalanx.table.plan import Plan, PlannedLeaf
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import View

#: How many distinct keys of a merge are used to choose leaves one by one, not as a range.
_KEYS_BY_VALUE = 10_000


@dataclass
class Merge:
    """Match rows by key: update or delete those that are there, insert those that are not."""

    name = "merge"
    #: The schema that the source has.
    schema: TableSchema
    source: pa.Table
    on: Sequence[str]
    when_matched: str
    when_not_matched: str
    buffer_bytes: int = BUFFER_BYTES
    _kept: dict[str, _Matched] = field(default_factory=dict)
    _written: tuple[Any, Sequence[WrittenLeaf]] | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def run(self, view: View) -> None:
        view.check_schema(self.schema)
        snapshot = view.current()
        keys = _numbered(self.source.select(list(self.on)))
        plan = Plan(snapshot, _near(keys, self.on, snapshot))
        found = list(view.pool.map(lambda leaf: self._work_out(snapshot, leaf, keys), plan.leaves))
        matched = frozenset(number for kept in found for number in kept.numbers)
        rows_matched = sum(kept.count for kept in found)
        update = self.when_matched == "update"
        insert = self.when_not_matched == "insert"
        # Rows are written before others are taken out: writing can still refuse them.
        outputs = self._outputs(view, snapshot, matched, update, insert)
        self.updated = rows_matched if update else 0
        self.deleted = rows_matched if self.when_matched == "delete" else 0
        self.inserted = self.source.num_rows - len(matched) if insert else 0
        for leaf, kept in zip(plan.leaves, found, strict=True):
            if self.when_matched == "ignore" or not kept.count:
                continue
            if kept.count == leaf.row.row_count:
                view.remove(leaf.row)
            else:
                take_out(view, leaf, kept)
        for output in outputs:
            place = view.place(snapshot.head.spec, output.keys)
            view.append(place, output.written, output.statistics)

    def _work_out(self, snapshot: Snapshot, leaf: PlannedLeaf, keys: pa.Table) -> _Matched:
        at = Leaf(snapshot.location, leaf.row.location, snapshot.head.schema)
        version = at.newest() if leaf.version is None else leaf.version
        kept = self._kept.get(leaf.row.object_id)
        if kept is not None and result_holds(at, kept, version, "serializable"):
            return kept
        # A leaf may say NOT NULL of a column that may be NULL by now.
        schema = keys.select(list(self.on)).schema.append(pa.field(ROW_ID, pa.uint64()))
        batches = [
            pa.RecordBatch.from_arrays(batch.columns, schema=schema)
            for batch in at.scan(version, list(self.on), leaf.where, row_ids=True)
        ]
        mine = pa.Table.from_batches(batches, schema=schema)
        pairs = mine.join(keys, list(self.on), join_type="inner")
        numbers = pairs.column(keys.schema.names[-1]).to_pylist()
        delta, count = LeafDelta(), len(numbers)
        if numbers and self.when_matched != "ignore" and count != leaf.row.row_count:
            delta, deleted = at.delete_rows(version, pairs.column(ROW_ID).to_numpy())
            assert deleted == count, (deleted, count)
            reach("merge.marked")
        kept = _Matched(version, delta, count, numbers=frozenset(numbers))
        kept.only_here = bool(count) and not delta.touched
        self._kept[leaf.row.object_id] = kept
        return kept

    def _outputs(
        self, view: View, snapshot: Snapshot, matched: frozenset[int], update: bool, insert: bool
    ) -> Sequence[WrittenLeaf]:
        """The source rows that go into the table, written once for each choice of them."""
        choice: tuple[PartitionSpec, tuple[int, ...] | None] = (snapshot.head.spec, None)
        if update and insert:
            chosen = self.source
        else:
            wanted = [
                number
                for number in range(self.source.num_rows)
                if (update if number in matched else insert)
            ]
            chosen = self.source.take(pa.array(wanted, pa.int64()))
            choice = (snapshot.head.spec, tuple(wanted))
        if self._written is None or self._written[0] != choice:
            assert isinstance(view.pool, ThreadPoolExecutor)
            writer = PartitionedWriter(snapshot, view.pool, self.buffer_bytes)
            tables = ingest.chunks(chosen, snapshot.head.schema.arrow)
            self._written = (choice, writer.write(tables))
        return self._written[1]


@dataclass
class _Matched(LeafResult):
    numbers: frozenset[int] = frozenset()


def check_merge(
    source: pa.Table, on: Sequence[str], matched: str, not_matched: str, snapshot: Snapshot
) -> None:
    """Refuse a merge that cannot be carried out as meant."""
    names = snapshot.head.schema.tagged.names
    if isinstance(on, str) or not isinstance(on, Sequence) or not on:
        raise InvalidInput("merge takes the key columns as a list, such as on=['id']")
    for name in on:
        if name not in names:
            raise InvalidInput(f"unknown column {name!r}: the table has {', '.join(names)}")
        type = snapshot.head.schema.column((name,)).type
        if not domain_of(type).ordered or pa.types.is_floating(type):
            raise InvalidInput(f"column {name!r} of type {type} cannot be a key of a merge")
    if len(set(on)) < len(on):
        raise InvalidInput("merge has a key column twice")
    if matched not in ("update", "delete", "ignore"):
        raise InvalidInput(f"when_matched is 'update', 'delete' or 'ignore', not {matched!r}")
    if not_matched not in ("insert", "ignore"):
        raise InvalidInput(f"when_not_matched is 'insert' or 'ignore', not {not_matched!r}")
    keys = source.select(list(on))
    valid = keys.drop_null()
    groups = valid.group_by(list(on)).aggregate([([], "count_all")])
    if groups.num_rows < valid.num_rows:
        raise InvalidInput(
            f"several source rows have the same {', '.join(on)}: which one should win is not "
            "defined, so nothing was merged"
        )


def _numbered(keys: pa.Table) -> pa.Table:
    """The keys with the numbers of their rows; rows with a NULL match nothing."""
    name = "number"
    while name in keys.schema.names:
        name += "_"
    return keys.append_column(name, pa.array(range(keys.num_rows), pa.int64()))


def _near(keys: pa.Table, on: Sequence[str], snapshot: Snapshot) -> Predicate:
    """A predicate that every row with one of the keys satisfies, to choose leaves by."""
    parts = []
    for name in on:
        column = snapshot.head.schema.column((name,))
        domain = domain_of(column.type)
        values = keys.column(name).drop_null().unique()
        found = [domain.key(scalar) for scalar in values]
        if not found:
            return conjoin([restrict(column, column.type, ValueSet())])
        if len(found) <= _KEYS_BY_VALUE:
            wanted = domain.points(found)
        else:
            wanted = domain.clip(ValueSet.of([(min(found), domain.successor(max(found)))]))
        parts.append(restrict(column, column.type, wanted & ALL_VALUES))
    return conjoin(parts)
