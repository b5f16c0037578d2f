"""Indexes: one definition for a table, built leaf by leaf.

There are three steps, so that the second can run in other processes: `plan` makes a task for each
leaf that lacks something, `build` runs the task of one leaf and returns its new segments, and
`commit` adds the segments of many leaves, and the definition itself, in one transaction. No row
changes. Rows that are added or deleted meanwhile do not interfere; leaves that others compact or
index meanwhile are planned again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx import progress
from phalanx.errors import ConflictError, InvalidInput
from phalanx.model.indexes import SCALAR, VECTOR, IndexDefinition, define
from phalanx.model.schema import TableSchema, field_id
from phalanx.storage import index_models, leaf_indexes
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.leaf_indexes import Coverage
from phalanx.storage.location import Location
from phalanx.storage.main_branch import ForeignIndex, MainBranch
from phalanx.storage.records import LeafRow
from phalanx.table.filters import predicate_of
from phalanx.table.format import count_text
from phalanx.table.plan import Plan
from phalanx.transaction.commit import Transaction, durable_by_default
from phalanx.transaction.conflicts import index_still_holds
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import View

#: How many leaves are indexed at a time: Lance uses several threads for each.
BUILDERS = 4
#: How often leaves are planned in all, if other transactions keep changing them.
_ROUNDS = 4
#: Called with the number of leaves that are done, and of all; True for a bar on the terminal.


@dataclass(frozen=True)
class IndexTask:
    """The work in one leaf, with everything that another process needs to do it."""

    location: Location
    object_id: str
    folder: str
    version: int
    schema: TableSchema
    definitions: tuple[IndexDefinition, ...]
    rows: int


@dataclass(frozen=True)
class Indexed:
    """The new segments of one leaf. They are not visible until the commit."""

    task: IndexTask
    delta: LeafDelta
    #: The version of the leaf that has them; None if there was nothing to do after all.
    version: int | None


@dataclass
class IndexReport:
    """What was indexed."""

    #: The names of the indexes.
    indexes: tuple[str, ...]
    #: How many leaves got new segments.
    leaves: int = 0
    #: The version of the table that was committed last; None if nothing was to do.
    version: int | None = None
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        text = f"indexed {count_text(self.leaves, 'leaf')} for {', '.join(self.indexes) or 'none'}"
        return "\n".join([text, *(f"note: {note}" for note in self.notes)])


# What a user calls


def create_index(
    snapshot: Snapshot,
    column: str,
    kind: str,
    name: str | None = None,
    where: str | None = None,
    min_rows: int | None = None,
    **parameters: Any,
) -> IndexReport:
    """Define an index, and build it in the leaves that a filter selects.

    Raises InvalidInput if the column cannot be indexed in this way, the name is taken, or the table
    is weak.
    """
    newest = Snapshot.latest(snapshot.location, snapshot)
    definition = begin(newest, column, kind, name, where, min_rows, parameters)
    with ThreadPoolExecutor(BUILDERS) as pool:
        job = Indexing(newest.location, (definition.name,), definition)
        return job.run(newest, pool)


def refresh_indexes(
    snapshot: Snapshot,
    name: str | None = None,
    where: str | None = None,
    only: Collection[str] | None = None,
) -> IndexReport:
    """Build what indexes lack: rows that were added or moved since, and new leaves.

    With `only`, look at the leaves with these ids.
    """
    newest = Snapshot.latest(snapshot.location, snapshot)
    check_indexable(newest)
    names = tuple(newest.head.indexes) if name is None else (named(newest, name).name,)
    with ThreadPoolExecutor(BUILDERS) as pool:
        job = Indexing(newest.location, names, where=where)
        return job.run(newest, pool, only)


def drop_index(snapshot: Snapshot, name: str) -> None:
    """Drop an index. Raises InvalidInput if there is none with this name."""
    check_indexable(snapshot)
    with ThreadPoolExecutor(BUILDERS) as pool:
        _committed(Snapshot.latest(snapshot.location, snapshot), DropIndex(name), pool, time.time())


def take_over_index(snapshot: Snapshot, name: str) -> IndexReport:
    """Make an index that another client has created on a leaf an index of the table.

    It is built anew, in all leaves. Raises InvalidInput if no leaf has such an index.
    """
    check_indexable(snapshot)
    with ThreadPoolExecutor(BUILDERS) as pool:
        leaves = pool.map(lambda row: _foreign_index(snapshot, row, name), snapshot.leaves.rows())
        index = next((index for index in leaves if index is not None), None)
    column = None if index is None else snapshot.head.schema.name_of(index.column_id)
    if index is None or column is None:
        raise InvalidInput(
            f"no leaf of {snapshot.location.uri} has an index {name!r} of another client on main"
        )
    parameters: dict[str, Any] = {} if index.metric is None else {"metric": index.metric}
    return create_index(snapshot, column, index.kind, name, **parameters)


def _foreign_index(snapshot: Snapshot, row: LeafRow, name: str) -> ForeignIndex | None:
    indexes = MainBranch(snapshot.location, row.location).foreign_indexes()
    return next((index for index in indexes if index.name == name), None)


def indexes(snapshot: Snapshot) -> pa.Table:
    """The indexes of a snapshot, one row each. Every leaf is opened."""
    head, rows = snapshot.head, []
    with ThreadPoolExecutor(BUILDERS) as pool:
        for definition in head.indexes.values():
            leaves = _leaves(snapshot, definition)
            covers = list(pool.map(lambda row, d=definition: _coverage(snapshot, row, d), leaves))
            rows.append(
                {
                    "name": definition.name,
                    "column": head.schema.name_of(definition.column_id),
                    "kind": definition.kind.name,
                    "parameters": json.dumps(dict(definition.parameters)),
                    "where": definition.where,
                    "min_rows": definition.min_rows,
                    "leaves": len(leaves),
                    "leaves_indexed": sum(cover.indexed > 0 for cover in covers),
                    "leaves_behind": sum(cover.is_behind for cover in covers),
                    "rows_indexed": sum(cover.indexed for cover in covers),
                    "rows_unindexed": sum(cover.unindexed for cover in covers),
                }
            )
    return pa.Table.from_pylist(rows, INDEXES)


#: The columns of the list of indexes.
INDEXES = pa.schema(
    [
        ("name", pa.string()),
        ("column", pa.string()),
        ("kind", pa.string()),
        ("parameters", pa.string()),
        ("where", pa.string()),
        ("min_rows", pa.int64()),
        ("leaves", pa.int64()),
        ("leaves_indexed", pa.int64()),
        ("leaves_behind", pa.int64()),
        ("rows_indexed", pa.int64()),
        ("rows_unindexed", pa.int64()),
    ]
)


# Planning


def check_indexable(snapshot: Snapshot) -> None:
    """Raise InvalidInput for a weak table, UnsupportedTable for one that cannot be written to."""
    snapshot.check_writable()
    if snapshot.head.transactions == "weak":
        raise InvalidInput(
            f"the table {snapshot.location.uri} is weak, and indexes belong to snapshots, which it "
            "does not have: make_strong() it first"
        )


def named(snapshot: Snapshot, name: str) -> IndexDefinition:
    """The index with a name. Raises InvalidInput if there is none."""
    definition = snapshot.head.indexes.get(name)
    if definition is None:
        known = ", ".join(snapshot.head.indexes) or "none"
        raise InvalidInput(
            f"the table {snapshot.location.uri} has no index {name!r}: its indexes are {known}"
        )
    return definition


def begin(
    snapshot: Snapshot,
    column: str,
    kind: str,
    name: str | None,
    where: str | None,
    min_rows: int | None,
    parameters: Any,
) -> IndexDefinition:
    """The definition of a new index. Raises InvalidInput where it is not possible."""
    check_indexable(snapshot)
    schema = snapshot.head.schema
    if not isinstance(column, str) or column not in schema.tagged.names:
        known = ", ".join(schema.tagged.names)
        raise InvalidInput(f"there is no column {column!r} to index: the table has {known}")
    number = field_id(schema.tagged.field(column))
    if number in snapshot.head.given_ids:
        raise InvalidInput(
            f"the column {column!r} is not in the files of {snapshot.location.uri}: partition "
            "values decide filters on it, so it needs no index"
        )
    definition = define(name, schema.arrow.field(column), number, kind, parameters, where, min_rows)
    predicate_of(where, snapshot)
    _refuse_taken(snapshot, definition)
    return definition


def _refuse_taken(snapshot: Snapshot, definition: IndexDefinition) -> None:
    if definition.name in snapshot.head.indexes:
        raise InvalidInput(
            f"the table {snapshot.location.uri} has an index {definition.name!r} already: drop it "
            "first, or choose another name"
        )
    for other in snapshot.head.indexes.values():
        same = (other.column_id, other.family) == (definition.column_id, definition.family)
        if same and definition.family != SCALAR:
            raise InvalidInput(
                f"the column of {definition.name!r} has the index {other.name!r} already, and a "
                f"search can use only one: drop it first"
            )


def _leaves(
    snapshot: Snapshot, definition: IndexDefinition, where: str | None = None
) -> list[LeafRow]:
    """The leaves that an index is for; with `where`, those among them that it selects."""
    indices = Plan(snapshot, predicate_of(definition.where, snapshot)).indices
    if where is not None:
        indices = np.intersect1d(indices, Plan(snapshot, predicate_of(where, snapshot)).indices)
    return [row for row in snapshot.leaves.rows(indices) if row.row_count != 0]


def _coverage(snapshot: Snapshot, row: LeafRow, definition: IndexDefinition) -> Coverage:
    leaf = Leaf.of(snapshot.location, snapshot.head, row)
    return leaf_indexes.coverage(leaf, row.read_version, [definition])[0]


def plan(
    snapshot: Snapshot,
    definitions: Iterable[IndexDefinition],
    where: str | None,
    pool: Executor,
    only: Collection[str] | None = None,
) -> list[IndexTask]:
    """The tasks for the leaves that lack something of some indexes."""
    wanted: dict[str, tuple[LeafRow, list[IndexDefinition]]] = {}
    for definition in definitions:
        for row in _leaves(snapshot, definition, where):
            large = row.row_count is None or row.row_count >= definition.min_rows
            if large and (only is None or row.object_id in only):
                wanted.setdefault(row.object_id, (row, []))[1].append(definition)

    def look(item: tuple[LeafRow, list[IndexDefinition]]) -> IndexTask | None:
        row, chosen = item
        assert row.read_version is not None
        leaf = Leaf.of(snapshot.location, snapshot.head, row)
        covers = leaf_indexes.coverage(leaf, row.read_version, chosen)
        behind = tuple(d for d, cover in zip(chosen, covers, strict=True) if cover.is_behind)
        if not behind:
            return None
        return IndexTask(
            snapshot.location,
            row.object_id,
            row.location,
            row.read_version,
            snapshot.head.schema,
            behind,
            row.row_count or 0,
        )

    return [task for task in pool.map(look, wanted.values()) if task is not None]


def _small(snapshot: Snapshot, definition: IndexDefinition, where: str | None) -> list[str]:
    """A note on the leaves that a new index leaves out, if there are some."""
    least = definition.min_rows
    rows = _leaves(snapshot, definition, where)
    small = sum(row.row_count is not None and row.row_count < least for row in rows)
    if not small:
        return []
    has = "has" if small == 1 else "have"
    return [
        f"{count_text(small, 'leaf')} {has} fewer than {least:,} rows, so a query reads all of "
        "them: min_rows sets that bound"
    ]


def trained(snapshot: Snapshot, definition: IndexDefinition, pool: Executor) -> IndexDefinition:
    """The definition of a vector index with its model, if there are rows enough to train one."""
    if definition.family != VECTOR or definition.model is not None:
        return definition
    untrained = definition
    name = snapshot.head.schema.name_of(definition.column_id)
    leaves = _leaves(snapshot, definition)
    if name is None or not any((row.row_count or 0) >= definition.min_rows for row in leaves):
        return definition
    if "num_partitions" not in definition.parameters:
        count = index_models.default_partitions(max(row.row_count or 0 for row in leaves))
        parameters = {**definition.parameters, "num_partitions": count}
        definition = replace(definition, parameters=parameters)
    total = sum(row.row_count or 0 for row in leaves)
    wanted = index_models.sample_rows(definition)

    def take(row: LeafRow) -> pa.Array:
        assert row.read_version is not None
        share = -(-wanted * (row.row_count or 0) // max(1, total))
        leaf = Leaf.of(snapshot.location, snapshot.head, row)
        return leaf_indexes.sample(leaf, row.read_version, name, share)

    parts = [part for part in pool.map(take, leaves) if len(part)]
    if sum(map(len, parts)) < index_models.least_rows(definition):
        return untrained
    vectors = pa.concat_arrays(parts)
    folder = index_models.train(snapshot.location, definition, vectors)
    reach("index.model-trained")
    return definition.with_model(folder)


# Running


def build(task: IndexTask) -> Indexed:
    """Build the missing segments of one leaf, in any process. They are not visible yet."""
    leaf = Leaf(task.location, task.folder, task.schema)
    delta = leaf_indexes.build(leaf, task.version, task.definitions)
    reach("index.segments-written")
    version = leaf.commit(task.version, delta) if delta.is_change else None
    return Indexed(task, delta, version)


@dataclass
class AddSegments:
    """Add new segments to leaves, and definitions to the table.

    Running it raises ConflictError if the schema has changed, and InvalidInput if the name of a new
    index was taken meanwhile.
    """

    name: str
    #: Definitions that are new or have changed.
    definitions: tuple[IndexDefinition, ...]
    is_new: bool
    done: Sequence[Indexed]
    #: The ids of leaves that were changed by other transactions. They must be planned again.
    overtaken: list[str] = field(default_factory=list)

    def run(self, view: View) -> None:
        self.overtaken = []
        self._define(view)
        rows = view.base.leaves.by_id([result.task.object_id for result in self.done])
        valid = []
        for result in self.done:
            task, row = result.task, rows.get(result.task.object_id)
            if result.version is None or row is None or row.read_version is None:
                continue
            leaf = Leaf.of(view.base.location, view.head, row)
            holds = row.location == task.folder and task.schema == view.schema
            if holds and index_still_holds(leaf, result.delta, task.version, row.read_version):
                valid.append((result, leaf, row))
            else:
                self.overtaken.append(task.object_id)
        view.prefetch_statistics_of([row for _, _, row in valid])
        for result, leaf, row in valid:
            assert result.version is not None
            view.made_before(leaf, result.task.version, result.delta, result.version)
            view.index(row, result.delta)

    def _define(self, view: View) -> None:
        known = dict(view.head.indexes)
        for definition in self.definitions:
            other = known.get(definition.name)
            if not self.is_new and (other is None or other.model not in (None, definition.model)):
                raise ConflictError(
                    f"the index {definition.name!r} of {view.base.location.uri} was changed by "
                    "another transaction: nothing was changed, try again"
                )
            if self.is_new:
                _refuse_taken(view.base, definition)
                if definition.column_id not in view.schema.id_set:
                    raise ConflictError(
                        f"the column of the index {definition.name!r} was dropped from "
                        f"{view.base.location.uri} meanwhile: nothing was changed"
                    )
            known[definition.name] = definition
        if self.definitions:
            view.change_head(indexes=known)


@dataclass
class DropIndex:
    """Drop an index from the table, and its segments from the leaves."""

    index: str
    name = "drop index"

    def run(self, view: View) -> None:
        named(view.base, self.index)
        known = {name: d for name, d in view.head.indexes.items() if name != self.index}
        view.change_head(indexes=known)
        rows = [row for row in view.base.leaves.rows() if row.read_version is not None]

        def dropped(row: LeafRow) -> LeafDelta:
            leaf = Leaf.of(view.base.location, view.head, row)
            return leaf_indexes.drop(leaf, row.read_version or 0, self.index)

        changes = zip(rows, view.pool.map(dropped, rows), strict=True)
        changed = [(row, delta) for row, delta in changes if delta.is_change]
        view.prefetch_statistics_of([row for row, _ in changed])
        for row, delta in changed:
            view.index(row, delta)


def _committed(
    base: Snapshot, operation: AddSegments | DropIndex, pool: Executor, started: float
) -> Snapshot:
    transaction = Transaction(base, pool, durably=durable_by_default(), started=started)
    transaction.run(operation)
    reach("index.before-commit")
    return transaction.commit()


@dataclass
class Indexing:
    """The state of a call between its rounds. Any process can continue from it."""

    location: Location
    names: tuple[str, ...]
    #: The definition of an index that is being created.
    new: IndexDefinition | None = None
    where: str | None = None
    #: How many rounds were committed.
    round: int = 0
    report: IndexReport = field(init=False)

    def __post_init__(self) -> None:
        self.report = IndexReport(self.names)

    def run(
        self, newest: Snapshot, pool: Executor, only: Collection[str] | None = None
    ) -> IndexReport:
        """Plan, build and commit until nothing is left to do."""
        while True:
            started = time.time()
            changed, tasks = self.prepare(newest, pool, only)
            if not tasks and not changed:
                return self.report
            done = self._built(tasks, pool)
            overtaken = self.finish(newest, changed, done, pool, started)
            if not overtaken or not self.goes_on:
                return self.report
            newest, only = Snapshot.latest(self.location), set(overtaken)

    @property
    def goes_on(self) -> bool:
        """Whether leaves that others have changed meanwhile are planned once more."""
        return self.round < _ROUNDS

    def prepare(
        self, newest: Snapshot, pool: Executor, only: Collection[str] | None
    ) -> tuple[tuple[IndexDefinition, ...], list[IndexTask]]:
        """Definitions that are new or changed, and the tasks of a round."""
        known = newest.head.indexes
        before = [self.new] if self.new else [known[n] for n in self.names if n in known]
        definitions = [trained(newest, definition, pool) for definition in before]
        changed = tuple(
            definition
            for definition, old in zip(definitions, before, strict=True)
            if self.new is not None or definition != old
        )
        return changed, plan(newest, definitions, self.where, pool, only)

    def finish(
        self,
        base: Snapshot,
        changed: tuple[IndexDefinition, ...],
        done: Sequence[Indexed],
        pool: Executor,
        started: float,
    ) -> list[str]:
        """Commit what was built; returns the ids of leaves that must be planned again."""
        is_new = self.new is not None
        what = "create index" if is_new else "refresh indexes"
        operation = AddSegments(what, changed, is_new, done)
        self.report.version = _committed(base, operation, pool, started).sequence
        self.report.leaves += len(done) - len(operation.overtaken)
        if self.new is not None:
            self.report.notes += _small(base, self.new, self.where)
        self.new = None
        self.round += 1
        if operation.overtaken and not self.goes_on:
            self.report.notes.append(
                f"{count_text(len(operation.overtaken), 'leaf')} stayed as before, because others "
                "kept changing them: refresh again"
            )
        return operation.overtaken

    def _built(self, tasks: Sequence[IndexTask], pool: Executor) -> list[Indexed]:
        progress.begin(len(tasks), "leaves")
        return list(progress.counted(pool.map(build, tasks)))
