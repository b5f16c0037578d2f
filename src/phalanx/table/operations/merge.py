"""Merge: update or delete the rows that have the key of a source row, insert the others.

The rows of the source choose leaves in one pass: where the key holds all columns that a spec
partitions by, each row leads to the one leaf that its partition values name; elsewhere the keys
prune. The key columns of the chosen leaves are read and joined with the source's by hash, many
leaves at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx import progress
from phalanx.errors import InvalidInput
from phalanx.model.domains import domain_of
from phalanx.model.predicates import Predicate, conjoin, restrict
from phalanx.model.schema import TableSchema
from phalanx.model.sets import ALL_VALUES, ValueSet
from phalanx.model.specs import PartitionSpec
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.mapping import ROW_ID
from phalanx.storage.records import LeafRow
from phalanx.table import ingest
from phalanx.table.defaults import Moment
from phalanx.table.ingest import PartialRows
from phalanx.table.operations.leaf_results import LeafResult, result_holds
from phalanx.table.partitioned_writer import BUFFER_BYTES, PartitionedWriter, WrittenLeaf, split
from phalanx.table.plan import Plan
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import View

#: Up to this many distinct keys, leaves are pruned by each key; beyond, by their range.
_KEYS_BY_VALUE = 10_000
#: Up to this many keys, and keys times leaves, Lance gets the keys as a filter. It parses them
#: once per leaf.
_FILTERED_KEYS, _FILTERED_TOTAL = 1_000, 100_000
#: The number of the table's rows that are joined with the source at a time, at least.
_PROBE_ROWS = 2_000_000
#: The number of leaves whose kept columns are read at a time.
_LEAVES_AHEAD = 16

Array = np.ndarray[Any, Any]


@dataclass
class Merge:
    """Update or delete the rows that have the key of a source row, insert the others.

    A source row that has all columns replaces the rows with its key. One that lacks columns changes
    each of them, and they keep their values in those columns. In new rows such columns take their
    default, or NULL.
    """

    name = "merge"
    #: The schema of the source.
    schema: TableSchema
    source: PartialRows
    on: Sequence[str]
    when_matched: str
    when_not_matched: str
    buffer_bytes: int = BUFFER_BYTES
    #: The time of the defaults.
    moment: Moment = field(default_factory=Moment.now)
    _kept: dict[str, _Matched] = field(default_factory=dict)
    _written: tuple[Any, Sequence[WrittenLeaf]] | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def run(self, view: View) -> None:
        view.check_schema(self.schema)
        snapshot = view.current()
        rows = self.source.rows
        keys = _numbered(rows.select(list(self.on)))
        leaves, where = self._choose(snapshot, keys)
        results = self._match(view, snapshot, leaves, keys, where)
        matched = np.zeros(rows.num_rows, dtype=bool)
        for result in results:
            matched[result.numbers] = True
        update = self.when_matched == "update"
        insert = self.when_not_matched == "insert"
        count = sum(result.count for result in results)
        self.updated = count if update else 0
        self.deleted = count if self.when_matched == "delete" else 0
        self.inserted = int((~matched).sum()) if insert else 0
        # Rows are written before others are taken out: writing can still refuse them.
        outputs = self._write(view, snapshot, leaves, results, matched)
        if self.when_matched != "ignore":
            self._take_out(view, snapshot, leaves, results)
        places = [view.place(snapshot.head.spec, output.keys) for output in outputs]
        view.prefetch_statistics(places)
        for place, output in zip(places, outputs, strict=True):
            view.append(place, output.written, output.statistics)

    # Matching

    def _choose(self, snapshot: Snapshot, keys: pa.Table) -> tuple[list[LeafRow], Predicate | None]:
        """The leaves that may hold a row with one of the keys, and a filter that finds these."""
        valid = keys.drop_null()
        if not valid.num_rows:
            return [], None
        near = _near(valid, self.on, snapshot)
        pruned, chosen = Plan(snapshot, near).indices, []
        for spec in snapshot.head.specs:
            low, high = snapshot.leaves.range_of(spec.id)
            inside = pruned[(pruned >= low) & (pruned < high)]
            if len(inside) > 1 and self._decides(spec, snapshot.head.schema):
                inside = np.intersect1d(inside, _leaves_of(snapshot, spec, valid))
            chosen.append(inside)
        leaves = snapshot.leaves.rows(np.concatenate(chosen)) if chosen else []
        few = valid.num_rows <= _FILTERED_KEYS
        return leaves, near if few and valid.num_rows * len(leaves) <= _FILTERED_TOTAL else None

    def _decides(self, spec: PartitionSpec, schema: TableSchema) -> bool:
        """Whether the key of a row says which leaf of a spec it is in."""
        sources = [column for field in spec.fields for column in field.sources(schema)]
        return all(column is not None and column.path[0] in self.on for column in sources)

    def _match(
        self,
        view: View,
        snapshot: Snapshot,
        leaves: Sequence[LeafRow],
        keys: pa.Table,
        where: Predicate | None,
    ) -> list[_Matched]:
        """For each leaf the rows that match. What holds from an earlier run is used again."""
        at = [Leaf.of(snapshot.location, snapshot.head, row) for row in leaves]
        versions = list(view.pool.map(_version, at, leaves))

        def known(number: int) -> _Matched | None:
            kept = self._kept.get(leaves[number].object_id)
            holds = kept is not None and result_holds(
                at[number], kept, versions[number], "serializable"
            )
            return kept if holds else None

        results = list(view.pool.map(known, range(len(leaves))))
        unknown = [number for number, result in enumerate(results) if result is None]
        # A leaf may say NOT NULL of a column that may be NULL by now.
        schema = keys.select(list(self.on)).schema.append(pa.field(ROW_ID, pa.uint64()))

        def scan(number: int) -> Iterator[pa.RecordBatch]:
            batches = at[number].scan(versions[number], list(self.on), where, row_ids=True)
            return (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches)

        def read(numbers: Sequence[int]) -> Iterator[tuple[Array, pa.Table]]:
            """Keys and row ids of leaves, with the number of the leaf for each row."""
            if len(numbers) == 1:
                for table in _gathered(scan(numbers[0]), schema, window):
                    yield np.full(table.num_rows, numbers[0]), table
                return
            tables = list(view.pool.map(lambda n: pa.Table.from_batches(scan(n), schema), numbers))
            yield np.repeat(numbers, [t.num_rows for t in tables]), pa.concat_tables(tables)

        window = max(_PROBE_ROWS, keys.num_rows)
        pairs: dict[int, list[tuple[Array, Array]]] = {number: [] for number in unknown}
        progress.begin(len(unknown), "leaves")
        for numbers in _windows(unknown, [row.row_count for row in leaves], window):
            for owners, table in read(numbers):
                for number, ids, places in _pairs(table, owners, keys, self.on):
                    pairs[number].append((ids, places))
            progress.advance(len(numbers))
        for number in unknown:
            ids = _concat([ids for ids, _ in pairs[number]], np.uint64)
            places = _concat([places for _, places in pairs[number]], np.int64)
            result = _Matched(versions[number], LeafDelta(), len(ids), ids=ids, numbers=places)
            result.only_here = bool(result.count)
            results[number] = self._kept[leaves[number].object_id] = result
        return [result for result in results if result is not None]

    # Writing

    def _write(
        self,
        view: View,
        snapshot: Snapshot,
        leaves: Sequence[LeafRow],
        results: Sequence[_Matched],
        matched: Array,
    ) -> Sequence[WrittenLeaf]:
        """The rows that go into the table, written once for each choice of them."""
        update, insert = self.when_matched == "update", self.when_not_matched == "insert"
        choice: tuple[Any, ...] = (snapshot.head.spec,)
        if not (update and insert and self.source.is_whole):
            choice += (matched.tobytes(),)
        if update and not self.source.is_whole:
            kept = zip(leaves, results, strict=True)
            choice += tuple((row.object_id, result.version) for row, result in kept if result.count)
        if self._written is None or self._written[0] != choice:
            assert isinstance(view.pool, ThreadPoolExecutor)
            tables = self._outputs(view, snapshot, leaves, results, matched)
            writer = PartitionedWriter(snapshot, view.pool, self.buffer_bytes)
            self._written = (choice, writer.write(tables))
        return self._written[1]

    def _outputs(
        self,
        view: View,
        snapshot: Snapshot,
        leaves: Sequence[LeafRow],
        results: Sequence[_Matched],
        matched: Array,
    ) -> Iterator[pa.Table]:
        """The rows that go into the table.

        Raises InvalidInput where a new row lacks a column that must not be NULL, or whose default
        only Spark knows.
        """
        schema = snapshot.head.schema.arrow
        update, insert = self.when_matched == "update", self.when_not_matched == "insert"
        whole = self.source.whole_rows()
        chosen = np.where(matched, update & whole, insert)
        # All of them first: a new row that is refused is refused before anything is written.
        if chosen.any():
            rows = self.source.new_rows(chosen, schema, self.moment)
            yield from list(ingest.chunks(rows, schema, moment=self.moment))
        if not update or whole.all():
            return
        missing = self.source.missing(schema.names)

        def updated(pair: tuple[LeafRow, _Matched]) -> pa.Table:
            row, result = pair
            partial = ~whole[result.numbers]
            leaf = Leaf.of(snapshot.location, snapshot.head, row)
            kept = leaf.take(result.version, result.ids[partial], missing)
            return self.source.over(kept, result.numbers[partial], schema)

        touched = [
            pair for pair in zip(leaves, results, strict=True) if not whole[pair[1].numbers].all()
        ]
        # A few leaves ahead: the columns that are kept may be large.
        for at in range(0, len(touched), _LEAVES_AHEAD):
            yield from view.pool.map(updated, touched[at : at + _LEAVES_AHEAD])

    def _take_out(
        self,
        view: View,
        snapshot: Snapshot,
        leaves: Sequence[LeafRow],
        results: Sequence[_Matched],
    ) -> None:
        touched = [pair for pair in zip(leaves, results, strict=True) if pair[1].count]

        def mark(pair: tuple[LeafRow, _Matched]) -> None:
            row, result = pair
            if result.count == row.row_count or result.marked:
                return
            leaf = Leaf.of(snapshot.location, snapshot.head, row)
            assert result.version is not None
            result.delta, deleted = leaf.delete_rows(result.version, result.ids)
            assert deleted == result.count, (deleted, result.count)
            result.marked = True
            reach("merge.marked")

        list(view.pool.map(mark, touched))
        view.prefetch_statistics_of([row for row, _ in touched])
        for row, result in touched:
            result.only_here = not result.delta.touched
            if result.count == row.row_count:
                view.remove([row])
            else:
                view.change(row, result.delta, result.count, result.version)


@dataclass
class _Matched(LeafResult):
    """The rows of one leaf that match: their ids, and the numbers of the source's rows."""

    ids: Array = field(default_factory=lambda: np.zeros(0, np.uint64))
    numbers: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    #: Whether `delta` says that they are deleted.
    marked: bool = False


def check_merge(
    source: PartialRows, on: Sequence[str], matched: str, not_matched: str, snapshot: Snapshot
) -> None:
    """Refuse a merge that cannot be carried out as meant."""
    names = snapshot.head.schema.tagged.names
    if not isinstance(on, Sequence) or not on:
        raise InvalidInput("merge takes the key columns, such as on='id' or on=['a', 'b']")
    for name in on:
        if name not in names:
            raise InvalidInput(f"unknown column {name!r}: the table has {', '.join(names)}")
        type = snapshot.head.schema.column((name,)).type
        foreign = isinstance(type, pa.BaseExtensionType) or pa.types.is_duration(type)
        if not domain_of(type).ordered or pa.types.is_floating(type) or foreign:
            raise InvalidInput(f"column {name!r} of type {type} cannot be a key of a merge")
        if name in source.missing([name]):
            raise InvalidInput(f"the rows have no value for {name!r}, which is a key of the merge")
    if len(set(on)) < len(on):
        raise InvalidInput("merge has a key column twice")
    if matched not in ("update", "delete", "ignore"):
        raise InvalidInput(f"when_matched is 'update', 'delete' or 'ignore', not {matched!r}")
    if not_matched not in ("insert", "ignore"):
        raise InvalidInput(f"when_not_matched is 'insert' or 'ignore', not {not_matched!r}")
    valid = source.rows.select(list(on)).drop_null()
    groups = valid.group_by(list(on)).aggregate([([], "count_all")])
    if groups.num_rows < valid.num_rows:
        raise InvalidInput(
            f"several source rows have the same {', '.join(on)}: which one should win is not "
            "defined, so nothing was merged"
        )


def _numbered(keys: pa.Table) -> pa.Table:
    """The keys with the numbers of their rows in the last column."""
    name = _unique("number", keys.schema.names)
    return keys.append_column(name, pa.array(np.arange(keys.num_rows)))


def _unique(name: str, names: Sequence[str]) -> str:
    while name in names:
        name += "_"
    return name


def _near(keys: pa.Table, on: Sequence[str], snapshot: Snapshot) -> Predicate:
    """A predicate that every row with one of the keys satisfies, to choose leaves by."""
    parts = []
    for name in on:
        column = snapshot.head.schema.column((name,))
        domain = domain_of(column.type)
        distinct = keys.column(name).unique()
        if len(distinct) <= _KEYS_BY_VALUE:
            values = domain.points([domain.key(scalar) for scalar in distinct])
        else:
            keys_of_column = [domain.key(scalar) for scalar in _ends(distinct)]
            low, high = min(keys_of_column), max(keys_of_column)
            values = domain.clip(ValueSet.of([(low, domain.successor(high))]))
        parts.append(restrict(column, column.type, values & ALL_VALUES))
    return conjoin(parts)


def _ends(values: pa.Array) -> list[pa.Scalar]:
    """Values among which are the lowest and the highest; all of them for types without an order."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    try:
        ends = pc.min_max(values)
    except pa.ArrowNotImplementedError:
        return list(values)
    return [ends["min"], ends["max"]]


def _leaves_of(snapshot: Snapshot, spec: PartitionSpec, keys: pa.Table) -> Array:
    """The leaves of a spec that the partition values of keys name."""
    schema = snapshot.head.schema
    places = [snapshot.leaves.find_all(spec, values) for values, _ in split(keys, spec, schema)]
    return _concat(places, np.int64)


def _version(leaf: Leaf, row: LeafRow) -> int:
    return leaf.newest() if row.read_version is None else row.read_version


def _windows(
    numbers: Sequence[int], counts: Sequence[int | None], most: int
) -> Iterator[list[int]]:
    """Leaves in groups of so many rows at most; one whose size is not known is alone."""
    group: list[int] = []
    size = 0
    for number in numbers:
        count = counts[number]
        rows = most if count is None else count
        if group and size + rows > most:
            yield group
            group, size = [], 0
        group.append(number)
        size += rows
    if group:
        yield group


def _gathered(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, most: int
) -> Iterator[pa.Table]:
    """Batches as tables of about so many rows."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= most:
            yield pa.Table.from_batches(waiting, schema)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def _pairs(
    table: pa.Table, owners: Array, keys: pa.Table, on: Sequence[str]
) -> Iterator[tuple[int, Array, Array]]:
    """For each leaf the ids of rows that match, with the numbers of the source's rows."""
    owner = _unique("leaf", [*table.schema.names, *keys.schema.names])
    labelled = table.append_column(owner, pa.array(owners))
    pairs = labelled.join(keys, list(on), join_type="inner")
    ids, numbers, leaves = (
        np.asarray(pairs.column(name)) for name in (ROW_ID, keys.schema.names[-1], owner)
    )
    order = np.argsort(leaves, kind="stable")
    ids, numbers, leaves = ids[order], numbers[order], leaves[order]
    starts = np.flatnonzero(np.diff(leaves, prepend=-1))
    for start, end in itertools.pairwise([*starts, len(leaves)]):
        yield int(leaves[start]), ids[start:end], numbers[start:end]


def _concat(arrays: Sequence[Array], dtype: Any) -> Array:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)
