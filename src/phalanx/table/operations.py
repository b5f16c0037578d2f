"""The changes a user can make, each as an operation that a transaction can run again.

An operation keeps what it has worked out for each leaf. Run again on a newer snapshot, it uses
that where the rules of `phalanx.transaction.conflicts` allow, and works out the rest anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from phalanx.errors import ConflictError, InvalidInput, TableNotFound
from phalanx.model import expressions
from phalanx.model.domains import domain_of
from phalanx.model.parser import parse
from phalanx.model.predicates import (
    EVERYTHING,
    Predicate,
    Term,
    columns_of,
    conjoin,
    resolve_names,
    restrict,
)
from phalanx.model.schema import TableSchema
from phalanx.model.sets import ALL_VALUES, ValueSet
from phalanx.model.specs import PartitionSpec
from phalanx.storage.head import Head
from phalanx.storage.leaf import Leaf, LeafDelta
from phalanx.storage.leaf_index import LeafRow
from phalanx.storage.mapping import ROW_ID
from phalanx.table import ingest
from phalanx.table.partitioned_writer import BUFFER_BYTES, PartitionedWriter, WrittenLeaf
from phalanx.table.plan import Plan, PlannedLeaf
from phalanx.table.properties import check_properties
from phalanx.transaction.conflicts import same_rows, still_holds, took_rows_out
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot, Version
from phalanx.transaction.view import View, read_statistics

#: How many distinct keys of a merge are used to choose leaves one by one, not as a range.
_KEYS_BY_VALUE = 10_000


@dataclass
class Append:
    """Add rows."""

    name = "append"
    #: What the files were written for.
    head: Head
    written: Sequence[WrittenLeaf]

    def run(self, view: View) -> None:
        view.check_files(self.head.schema)
        spec = view.spec_like(self.head.spec)
        places = [view.place(spec, leaf.keys) for leaf in self.written]
        view.prefetch_statistics(places)
        for leaf, place in zip(self.written, places, strict=True):
            view.append(place, leaf.written, leaf.statistics)


@dataclass
class Overwrite:
    """Replace all rows, or those of the partitions that are written to."""

    name = "overwrite"
    #: What the files were written for.
    head: Head
    written: Sequence[WrittenLeaf]
    only_partitions: bool

    def run(self, view: View) -> None:
        view.check_files(self.head.schema)
        current, spec = view.current(), view.spec_like(self.head.spec)
        if self.only_partitions:
            if spec != view.head.spec:
                raise ConflictError(
                    f"the partitions of {view.base.location.uri} that are to be overwritten are "
                    "others by now: its spec was changed, try again"
                )
            for leaf in self.written:
                index = current.leaves.find(spec, leaf.keys)
                if index is not None:
                    view.remove(current.leaves.row(index))
        else:
            for row in current.leaves.rows():
                view.remove(row)
        reach("overwrite.removed")
        for leaf in self.written:
            view.append(view.place(spec, leaf.keys), leaf.written, leaf.statistics)


@dataclass
class _Kept:
    """What was worked out for one leaf at one version."""

    version: int | None
    delta: LeafDelta
    count: int
    #: Rows that the change puts back, here or in other leaves.
    outputs: Sequence[WrittenLeaf] = ()
    #: The spec that those were cut by.
    spec: PartitionSpec | None = None
    #: Whether rows were chosen whose fragments `delta` does not name: what was worked out then
    #: holds at this one version.
    only_here: bool = False


@dataclass
class _WhereMatches:
    """A change to the rows that match a predicate, leaf by leaf."""

    #: The schema that the predicate is of.
    schema: TableSchema
    where: Predicate
    isolation: str
    _kept: dict[str, _Kept] = field(default_factory=dict, kw_only=True)
    _seen: set[str] | None = field(default=None, kw_only=True)

    def _in_scope(self, view: View, leaves: Sequence[PlannedLeaf]) -> list[PlannedLeaf]:
        """Under snapshot isolation, leaves that have come since the first run are not looked at.

        Unless rows of the first run may be there now, because somebody has changed or moved them:
        then the change is worked out anew, on all that is there.
        """
        if view.rows_moved and self.isolation == "snapshot" and self._is_overtaken(view):
            self.isolation = "serializable"
        if self.isolation == "serializable":
            return list(leaves)
        if self._seen is None:
            self._seen = {leaf.row.object_id for leaf in leaves}
        return [leaf for leaf in leaves if leaf.row.object_id in self._seen]

    def _is_overtaken(self, view: View) -> bool:
        """Whether somebody has taken rows out of a leaf that this change takes rows out of."""
        snapshot, kept = view.current(), {id: k for id, k in self._kept.items() if k.count}
        now = leaves_by_id(snapshot, kept)
        return any(
            id not in now
            or took_rows_out(
                Leaf(snapshot.location, now[id].location, snapshot.head.schema),
                one.version,
                now[id].read_version,
            )
            for id, one in kept.items()
        )


@dataclass
class Delete(_WhereMatches):
    """Take out the rows that match a predicate."""

    name = "delete"
    deleted: int = 0

    def run(self, view: View) -> None:
        view.check_schema(self.schema)
        snapshot, before = view.current(), view.counts.removed
        leaves = self._in_scope(view, Plan(snapshot, self.where).leaves)
        found = list(view.pool.map(lambda leaf: self._work_out(snapshot, leaf), leaves))
        for leaf, kept in zip(leaves, found, strict=True):
            self._record(view, leaf, kept)
        self.deleted = view.counts.removed - before

    def _work_out(self, snapshot: Snapshot, leaf: PlannedLeaf) -> _Kept | None:
        """The change in one leaf; None where the whole leaf goes and nothing need be opened."""
        at = Leaf(snapshot.location, leaf.row.location, snapshot.head.schema)
        kept = self._kept.get(leaf.row.object_id)
        if leaf.where is None:
            return self._whole(at, leaf, kept) if self.isolation == "snapshot" else None
        version = at.newest() if leaf.version is None else leaf.version
        if kept is None or not _holds(at, kept, version, self.isolation):
            delta, count = at.delete(version, leaf.where)
            reach("delete.marked")
            kept = self._kept[leaf.row.object_id] = _Kept(version, delta, count)
        return kept

    def _whole(self, at: Leaf, leaf: PlannedLeaf, kept: _Kept | None) -> _Kept | None:
        """A leaf that matches whole, under snapshot isolation: as it was at the first run."""
        if kept is None:
            self._kept[leaf.row.object_id] = _Kept(leaf.version, LeafDelta(), leaf.rows or 0)
            return None
        if leaf.version is None or kept.version is None:
            return None
        if same_rows(at, kept.version, leaf.version):
            return None
        delta = LeafDelta(removed=at.fragment_ids(kept.version))
        if not still_holds(at, delta, kept.version, leaf.version, self.isolation):
            raise ConflictError(
                f"rows of {at.uri} that are to be deleted were changed by another transaction: "
                "nothing was deleted, try again"
            )
        return _Kept(leaf.version, delta, kept.count)

    def _record(self, view: View, leaf: PlannedLeaf, kept: _Kept | None) -> None:
        if kept is None or (kept.count and kept.count == leaf.row.row_count):
            view.remove(leaf.row)
        elif kept.count:
            _take_out(view, leaf, kept)


@dataclass
class Update(_WhereMatches):
    """Set columns of the rows that match a predicate; rows move where their partition does."""

    name = "update"
    assignments: Mapping[str, Term]
    updated: int = 0

    def run(self, view: View) -> None:
        view.check_schema(self.schema)
        snapshot = view.current()
        leaves = self._in_scope(view, Plan(snapshot, self.where).leaves)
        # One leaf after the other: each is itself read and written by several threads.
        found = [(leaf, self._work_out(snapshot, leaf, view)) for leaf in leaves]
        self.updated = 0
        for leaf, kept in found:
            self.updated += kept.count
            if kept.count and kept.count == leaf.row.row_count:
                view.remove(leaf.row)
            elif kept.count:
                _take_out(view, leaf, kept)
        for _, kept in found:
            for output in kept.outputs:
                place = view.place(snapshot.head.spec, output.keys)
                view.append(place, output.written, output.statistics)

    def _work_out(self, snapshot: Snapshot, leaf: PlannedLeaf, view: View) -> _Kept:
        at = Leaf(snapshot.location, leaf.row.location, snapshot.head.schema)
        version = at.newest() if leaf.version is None else leaf.version
        kept = self._kept.get(leaf.row.object_id)
        same_spec = kept is not None and kept.spec == snapshot.head.spec
        if kept is not None and same_spec and _holds(at, kept, version, self.isolation):
            return kept
        names = snapshot.head.schema.tagged.names
        batches = at.scan(version, names, leaf.where)
        assert isinstance(view.pool, ThreadPoolExecutor)
        writer = PartitionedWriter(snapshot, view.pool)
        outputs = writer.write(self._assigned(batches, snapshot))
        count = sum(output.rows for output in outputs)
        delta = LeafDelta()
        if count and (count != leaf.row.row_count or self.isolation == "snapshot"):
            delta, deleted = at.delete(version, leaf.where or EVERYTHING)
            assert deleted == count, (deleted, count)
        reach("update.worked-out")
        kept = _Kept(version, delta, count, outputs, snapshot.head.spec)
        kept.only_here = bool(count) and not delta.touched
        self._kept[leaf.row.object_id] = kept
        return kept

    def _assigned(
        self, batches: Iterable[pa.RecordBatch], snapshot: Snapshot
    ) -> Iterator[pa.Table]:
        for batch in batches:
            if not batch.num_rows:
                continue
            columns = {name: batch.column(name) for name in batch.schema.names}
            for name, term in self.assignments.items():
                arrays = {c.field_id: _source(batch, c.path) for c in columns_of(term)}
                columns[name] = expressions.evaluate(term, arrays, batch.num_rows, checked=True)
            yield ingest.conform(pa.table(columns), snapshot.head.schema.arrow)


def _source(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    from phalanx.model.schema import extract

    return extract(batch, path)


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
                _take_out(view, leaf, kept)
        for output in outputs:
            place = view.place(snapshot.head.spec, output.keys)
            view.append(place, output.written, output.statistics)

    def _work_out(self, snapshot: Snapshot, leaf: PlannedLeaf, keys: pa.Table) -> _Matched:
        at = Leaf(snapshot.location, leaf.row.location, snapshot.head.schema)
        version = at.newest() if leaf.version is None else leaf.version
        kept = self._kept.get(leaf.row.object_id)
        if kept is not None and _holds(at, kept, version, "serializable"):
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
class ChangeRows:
    """Take rows out by their ids, as somebody has read them in a snapshot, and add others."""

    name: str
    base: Snapshot
    #: Ids of rows by the id of their leaf.
    deleted: Mapping[str, Any]
    written: Sequence[WrittenLeaf]
    isolation: str
    _kept: dict[str, _Kept] = field(default_factory=dict)

    def run(self, view: View) -> None:
        view.check_schema(self.base.head.schema)
        current = view.current()
        before, now = leaves_by_id(self.base, self.deleted), leaves_by_id(current, self.deleted)
        for id, ids in self.deleted.items():
            was, row = before.get(id), now.get(id)
            if was is None or row is None or was.read_version is None or row.read_version is None:
                raise self._conflict(id)
            at = Leaf(current.location, row.location, current.head.schema)
            kept = self._kept.get(id)
            if kept is None:
                delta, count = at.delete_rows(was.read_version, ids)
                reach("change.marked")
                kept = self._kept[id] = _Kept(was.read_version, delta, count)
            if not still_holds(at, kept.delta, was.read_version, row.read_version, self.isolation):
                raise self._conflict(id)
            if kept.count == row.row_count:
                view.remove(row)
            elif kept.count:
                view.change(row, kept.delta.updated, sorted(kept.delta.removed), kept.count)
        spec = view.spec_like(self.base.head.spec)
        for leaf in self.written:
            place = view.place(spec, leaf.keys)
            view.append(place, leaf.written, leaf.statistics)

    def _conflict(self, leaf: str) -> ConflictError:
        return ConflictError(
            f"rows of {self.base.location.uri} that this {self.name} changes were changed by "
            f"another transaction (in the leaf {leaf}): nothing was changed, try again"
        )


def leaves_by_id(snapshot: Snapshot, ids: Iterable[str]) -> dict[str, LeafRow]:
    """Leaves by their ids."""
    wanted = set(ids)
    listed = snapshot.leaves.table.column("object_id").to_pylist()
    places = [at for at, id in enumerate(listed) if id in wanted]
    return {row.object_id: row for row in snapshot.leaves.rows(places)}


@dataclass
class Rollback:
    """Make an earlier snapshot the newest again."""

    name = "rollback"
    version: Version

    def run(self, view: View) -> None:
        view.base.refuse_weak("rolled back")
        target = view.base.find(self.version)
        leaves = target.leaves.under(view.head.specs)
        wanted = leaves.rows()
        stats = read_statistics(target, wanted)
        keep = {row.object_id for row in wanted}
        current = view.current()
        for row in current.leaves.rows():
            if row.object_id not in keep:
                view.remove(row)
        reach("rollback.removed")
        for row in wanted:
            place = view.place(leaves.specs[row.spec_id], row.keys)
            view.restore(place, row, stats.get(row.object_id, {}))
        # What has been handed out is never handed out again: only these two go back.
        view.change_head(schema=target.head.schema, spec_id=target.head.spec_id)


@dataclass
class Tag:
    """Give a version a name that keeps it."""

    name = "tag"
    tag: str
    version: Version | None

    def run(self, view: View) -> None:
        if not isinstance(self.tag, str) or not self.tag or len(self.tag) > 256:
            raise InvalidInput("a tag's name is a string of 1 to 256 characters")
        view.base.refuse_weak("tagged")
        if self.version is None:
            self.version = view.base.sequence
        target = view.base.find(self.version)
        existing = view.tags().get(self.tag)
        if existing is not None and int(existing["version"]) != target.sequence:
            raise InvalidInput(
                f"the tag {self.tag!r} is already at version {existing['version']}: drop it first"
            )
        described = {
            "name": self.tag,
            "version": str(target.sequence),
            "manifest_version": str(target.manifest.version),
        }
        view.add_tag(described)


@dataclass
class DropTag:
    """Take a name away; the version goes when it would have gone without it."""

    name = "tag"
    tag: str

    def run(self, view: View) -> None:
        if self.tag not in view.tags():
            raise TableNotFound(f"the table {view.base.location.uri} has no tag {self.tag!r}")
        view.drop_tag(self.tag)


@dataclass
class SetProperties:
    """Set properties of the table; None takes one away."""

    name = "properties"
    values: Mapping[str, str | None]

    def run(self, view: View) -> None:
        check_properties(self.values)
        merged = {**view.head.properties, **self.values}
        kept = {key: value for key, value in merged.items() if value is not None}
        view.change_head(properties=kept)


@dataclass
class _Matched(_Kept):
    numbers: frozenset[int] = frozenset()


def _take_out(view: View, leaf: PlannedLeaf, kept: _Kept) -> None:
    delta = kept.delta
    view.change(leaf.row, delta.updated, sorted(delta.removed), kept.count, kept.version)


def _holds(leaf: Leaf, kept: _Kept, version: int | None, isolation: str) -> bool:
    if kept.version is None or version is None:
        return False
    if kept.only_here:
        return kept.version == version
    return still_holds(leaf, kept.delta, kept.version, version, isolation)


def assignments_of(values: Mapping[str, str], snapshot: Snapshot) -> dict[str, Term]:
    """The terms of an update, checked against the schema."""
    if not isinstance(values, Mapping) or not values:
        raise InvalidInput('update takes what to set, such as {"status": "\'done\'"}')
    schema = snapshot.head.schema
    found = {}
    for name, text in values.items():
        if name not in schema.tagged.names:
            known = ", ".join(schema.tagged.names)
            raise InvalidInput(f"unknown column {name!r}: the table has {known}")
        if not isinstance(text, str):
            raise InvalidInput(f'{name!r} is set to SQL text, such as "\'x\'" or "n + 1"')
        term = resolve_names(parse(text), schema.column)
        expressions.refuse_volatile(term)
        given, wanted = expressions.type_of(term), schema.tagged.field(name).type
        if not ingest.fits(given, wanted):
            raise InvalidInput(f"column {name!r} is {wanted}, and {text} gives {given}: cast it")
        found[name] = term
    return found


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
