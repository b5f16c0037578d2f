"""Optimize: compact the files of leaves into fewer, larger ones, without changing a row.

There are three steps, so that the second can run in other processes: `plan` makes a task for each
leaf that needs work, `compact` runs the task of one leaf and returns the new files, `commit` adds
the files of many leaves to the table in one transaction. Rows that are added to a leaf meanwhile do
not interfere. If rows of the same files were deleted, the new files are discarded and the leaf is
planned again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx import progress
from phalanx.errors import ConflictError
from phalanx.model import statistics
from phalanx.model.ordering import Ordering
from phalanx.model.partition_columns import Given
from phalanx.model.schema import TableSchema
from phalanx.model.statistics import Statistics
from phalanx.storage import compaction
from phalanx.storage.compaction import LeafFragments, Target
from phalanx.storage.compression import Compression
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.location import Location
from phalanx.storage.records import FragmentSize, LeafRow
from phalanx.table.anchor import anchor
from phalanx.table.arguments import positive
from phalanx.table.filters import predicate_of
from phalanx.table.format import count_text, size_text
from phalanx.table.indexes import refresh_indexes
from phalanx.table.partitioned_writer import FILE_BYTES, WRITERS
from phalanx.table.plan import Plan
from phalanx.transaction.commit import Transaction, durable_by_default
from phalanx.transaction.conflicts import still_holds
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import View

#: The default size of a file, in rows and in bytes.
TARGET_ROWS = 1024 * 1024
TARGET_BYTES = FILE_BYTES
#: The most that one transaction rewrites: leaves, and bytes of their files.
GROUP_LEAVES = 1_000
GROUP_BYTES = 16 * 1024**3
#: Leaves with at least this many bytes to rewrite are compacted two at a time, to bound memory.
_LARGE_BYTES = 64 * 1024 * 1024
_LARGE_AT_A_TIME = 2
#: Up to this many leaves, statistics are looked up by id; beyond, all of them are read.
_FEW = 500
#: How often leaves are planned in all, if other transactions keep changing them.
_ROUNDS = 4


Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Goal:
    """What the files of leaves shall be like."""

    target: Target
    ordering: Ordering | None = None
    #: Whether only leaves that have other columns than new files are rewritten.
    columns: bool = False

    @property
    def concerns_all(self) -> bool:
        """Whether every leaf must be opened to see if it is like that."""
        return self.ordering is not None or self.columns


@dataclass(frozen=True)
class LeafTask:
    """The work in one leaf, with everything that another process needs to do it."""

    location: Location
    object_id: str
    folder: str
    #: The version to start from.
    version: int
    #: Whether the result is committed on main (weak tables).
    on_main: bool
    schema: TableSchema
    #: The columns that the partition gives, with their values, and those that new files hold.
    given: Given
    stored: TableSchema
    compression: Compression
    #: The ids of the fragments to rewrite; each group becomes one file or a few.
    groups: tuple[tuple[int, ...], ...]
    target: Target
    ordering: Ordering | None
    #: Whether to compute the leaf's statistics from its rows.
    measure: bool
    #: The totals of all groups: files, bytes, rows, and deleted rows that are still in the files.
    files: int
    bytes: int
    rows: int
    deleted: int

    @property
    def leaf(self) -> Leaf:
        return Leaf(
            self.location,
            self.folder,
            self.schema,
            self.given,
            self.stored,
            compression=self.compression,
        )


@dataclass(frozen=True)
class Compacted:
    """The new files of one leaf. In a strong table they are not visible until the commit."""

    task: LeafTask
    delta: LeafDelta
    #: The leaf version that has the new files; None if another transaction changed the same files
    #: on main (weak tables).
    version: int | None
    statistics: Statistics | None = None


@dataclass(frozen=True)
class OptimizePlan:
    """The tasks for one snapshot, and the size of the leaves that were considered."""

    snapshot: Snapshot
    tasks: tuple[LeafTask, ...]
    #: How many leaves the filter selected, and their files and bytes.
    leaves: int
    files: int
    bytes: int
    notes: tuple[str, ...] = ()

    def groups(self) -> Iterator[list[LeafTask]]:
        """The tasks in groups, one for each transaction."""
        group: list[LeafTask] = []
        size = 0
        for task in self.tasks:
            if group and (len(group) >= GROUP_LEAVES or size + task.bytes > GROUP_BYTES):
                yield group
                group, size = [], 0
            group.append(task)
            size += task.bytes
        if group:
            yield group


@dataclass
class OptimizeReport:
    """What optimize did, or would do. Files and bytes are totals of the selected leaves."""

    dry_run: bool
    #: How many leaves were selected, and how many of these were rewritten.
    leaves: int = 0
    rewritten: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    #: None for a dry run that would rewrite something: the size is not known yet.
    bytes_after: int | None = 0
    #: Deleted rows that were still in the rewritten files.
    deleted_rows: int = 0
    #: The versions of the table that were committed, one for each group of leaves.
    versions: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        verb = "would rewrite" if self.dry_run else "rewrote"
        after = "" if self.bytes_after is None else f", {size_text(self.bytes_after)}"
        text = (
            f"{verb} {self.rewritten:,} of {count_text(self.leaves, 'leaf')}: "
            f"{count_text(self.files_before, 'file')}, {size_text(self.bytes_before)} before, "
            f"{count_text(self.files_after, 'file')}{after} after"
        )
        if self.deleted_rows:
            text += f"; {count_text(self.deleted_rows, 'deleted row')} in them"
        return "\n".join([text, *(f"note: {note}" for note in self.notes)])


def optimize(
    snapshot: Snapshot,
    where: str | None = None,
    target_rows: int | None = None,
    target_bytes: int | None = None,
    dry_run: bool = False,
    sort_by: Any = None,
    zorder_by: Any = None,
) -> OptimizeReport:
    """Compact the leaves that a filter selects. Raises InvalidInput for invalid arguments."""
    with ThreadPoolExecutor(WRITERS) as pool:
        job, first = begin(
            snapshot,
            where,
            target_rows,
            target_bytes,
            dry_run,
            sort_by,
            zorder_by,
            pool,
        )
        if not dry_run:
            run(job, first, pool)
    return job.report


def begin(
    snapshot: Snapshot,
    where: str | None,
    target_rows: int | None,
    target_bytes: int | None,
    dry_run: bool,
    sort_by: Any,
    zorder_by: Any,
    pool: Executor,
) -> tuple[Optimizing, OptimizePlan]:
    """The state of a new call, and the first plan. Raises InvalidInput for invalid arguments."""
    target = Target(
        positive(target_rows, TARGET_ROWS, "target_rows"),
        positive(target_bytes, TARGET_BYTES, "target_bytes"),
    )
    newest = Snapshot.latest(snapshot.location, snapshot)
    newest.check_writable()
    ordering = Ordering.of(sort_by, zorder_by, newest.head.schema)
    goal = Goal(target, ordering)
    first = plan(newest, where, goal, pool)
    return Optimizing(newest.location, where, goal, _planned(first, dry_run)), first


def begin_columns(
    snapshot: Snapshot, where: str | None, dry_run: bool, pool: Executor
) -> tuple[Optimizing, OptimizePlan]:
    """Like `begin`, for the leaves of the current spec that have other columns than new files."""
    newest = Snapshot.latest(snapshot.location, snapshot)
    low, high = newest.leaves.range_of(newest.head.spec_id)
    current = newest.leaves.ids.slice(low, high - low).to_pylist()
    goal = Goal(Target(TARGET_ROWS, TARGET_BYTES), columns=True)
    first = plan(newest, where, goal, pool, current)
    return Optimizing(newest.location, where, goal, _planned(first, dry_run)), first


def run(job: Optimizing, first: OptimizePlan, pool: Executor) -> None:
    """Run all tasks in this process."""
    large = threading.Semaphore(_LARGE_AT_A_TIME)

    def compacted(task: LeafTask) -> Compacted:
        if task.bytes < _LARGE_BYTES:
            return compact(task)
        with large:
            return compact(task)

    todo: OptimizePlan | None = first
    while todo is not None:
        progress.begin(len(todo.tasks), "leaves")
        for group in todo.groups():
            started = time.time()
            results = list(progress.counted(pool.map(compacted, group)))
            job.finish(todo.snapshot, results, pool, started)
        todo = job.next(pool)
    job.end(pool)


# Planning


def plan(
    snapshot: Snapshot,
    where: str | None,
    goal: Goal,
    pool: Executor,
    only: Collection[str] | None = None,
) -> OptimizePlan:
    """The tasks for the leaves that a filter selects; with `only`, for those among these ids."""
    predicate = predicate_of(where, snapshot)
    if goal.ordering is not None:
        goal.ordering.check(snapshot.head.schema)
    selected = Plan(snapshot, predicate)
    leaves, indices = snapshot.leaves, selected.indices
    if only is not None:
        indices = indices[leaves.are_in(indices, only)]
    loose = _loose(snapshot, indices)
    planner = _LeafPlanner(snapshot, goal, loose)
    opened = indices[planner.may_be_due(indices)]
    results = list(pool.map(planner.look, leaves.rows(opened)))
    unopened = np.setdiff1d(indices, opened)
    return OptimizePlan(
        snapshot,
        tuple(task for _, task in results if task is not None),
        len(indices),
        sum(part.files for contents, _ in results for part in contents.fragments)
        + int(leaves.fragment_counts[unopened].sum()),
        sum(part.bytes for contents, _ in results for part in contents.fragments)
        + int(leaves.byte_counts[unopened].sum()),
        (
            *selected.doubts(selected.indices, "taken"),
            *_notes([contents for contents, _ in results]),
        ),
    )


def _loose(snapshot: Snapshot, indices: Array) -> frozenset[str]:
    """The ids of the leaves whose statistics are missing, incomplete or not exact."""
    ids = snapshot.leaves.ids.take(pa.array(indices)).to_pylist()
    if snapshot.head.transactions == "weak":
        return frozenset(ids)
    stored = snapshot.manifest.statistics(ids if len(ids) <= _FEW else None)
    complete = statistics.are_complete(stored.cells, snapshot.head.schema)
    known = dict(zip(stored.ids, complete.tolist(), strict=True))
    return frozenset(id for id in ids if not known.get(id, False))


@dataclass(frozen=True)
class _LeafPlanner:
    """Finds the leaves that need work, and makes their tasks."""

    snapshot: Snapshot
    goal: Goal
    #: The leaves whose statistics can be improved, by id.
    loose: frozenset[str]

    def may_be_due(self, indices: Array) -> Array:
        """Which leaves must be opened, because they may have small files or deleted rows.

        Most leaves of a compacted table are one file without deleted rows. The manifest shows
        this: a delete removes the NULL counts from the statistics of a leaf.
        """
        leaves = self.snapshot.leaves
        rows, sizes = leaves.row_counts[indices], leaves.byte_counts[indices]
        known = (rows >= 0) & (sizes >= 0) & (leaves.fragment_counts[indices] == 1)
        if self.goal.concerns_all or self.snapshot.head.transactions == "weak":
            return np.ones(len(indices), dtype=bool)
        doubtful = leaves.are_in(indices, self.loose)
        large = np.array(
            [
                compaction.is_too_large(FragmentSize(0, count, size), self.goal.target)
                for count, size in zip(rows.tolist(), sizes.tolist(), strict=True)
            ],
            dtype=bool,
        )
        return np.asarray(~known | doubtful | large)

    def look(self, row: LeafRow) -> tuple[LeafFragments, LeafTask | None]:
        """The fragments of a leaf, and its task; None if there is nothing to do."""
        schema, weak = self.snapshot.head.schema, row.read_version is None
        leaf = Leaf.of(self.snapshot.location, self.snapshot.head, row)
        version = leaf.newest() if row.read_version is None else row.read_version
        contents = compaction.look(leaf, version, self.snapshot.head.indexes)
        parts = contents.fragments
        groups = [] if self.goal.columns else compaction.groups(parts, self.goal.target)
        is_other = not contents.current and (bool(groups) or self.goal.columns)
        if self.goal.ordering is not None or is_other:
            groups = [parts] if parts and not any(part.indexed for part in parts) else []
        if not groups or contents.stable_ids:
            return contents, None
        touched = [part for group in groups for part in group]
        whole = len(touched) == len(parts)
        return contents, LeafTask(
            self.snapshot.location,
            row.object_id,
            row.location,
            version,
            weak,
            schema,
            leaf.given,
            leaf.stored,
            leaf.compression,
            tuple(tuple(part.id for part in group) for group in groups),
            self.goal.target,
            self.goal.ordering,
            whole and not weak and row.object_id in self.loose,
            sum(part.files for part in touched),
            sum(part.bytes for part in touched),
            sum(part.rows for part in touched),
            sum(part.deletions for part in touched),
        )


def _notes(leaves: Collection[LeafFragments]) -> Iterator[str]:
    """Notes on the leaves whose files stay as they are, with the reason."""
    stable = sum(contents.stable_ids for contents in leaves)
    if stable:
        yield (
            f"files of {count_text(stable, 'leaf')} stay as they are, because another client has "
            "given their rows stable ids: compact them with Lance"
        )
    counts = Counter(contents.indexes for contents in leaves if contents.indexes)
    for names, count in counts.items():
        yield (
            f"files of {count_text(count, 'leaf')} stay as they are, because an index of "
            f"another client points into them ({', '.join(names)}): drop it to have them compacted"
        )


def _planned(first: OptimizePlan, dry_run: bool) -> OptimizeReport:
    """The report before any task has run; for a dry run, with the expected result."""
    report = OptimizeReport(
        dry_run,
        leaves=first.leaves,
        files_before=first.files,
        files_after=first.files,
        bytes_before=first.bytes,
        bytes_after=first.bytes,
        notes=list(first.notes),
    )
    if dry_run:
        report.rewritten = len(first.tasks)
        report.bytes_after = None if first.tasks else first.bytes
        for task in first.tasks:
            report.files_after += _expected_files(task) - task.files
            report.deleted_rows += task.deleted
    return report


def _expected_files(task: LeafTask) -> int:
    """About how many files a task will write."""
    live = task.bytes * task.rows // max(1, task.rows + task.deleted)
    cuts = max(-(-task.rows // task.target.rows), -(-live // task.target.bytes))
    return max(len(task.groups), cuts) if task.rows else 0


# Running


def compact(task: LeafTask) -> Compacted:
    """Rewrite the files of one leaf, in any process.

    In a strong table the result is not visible until it is committed.
    """
    leaf = task.leaf
    delta, stats = compaction.rewrite(
        leaf, task.version, task.groups, task.target, task.ordering, task.measure
    )
    reach("optimize.files-written")
    if not task.on_main:
        version: int | None = leaf.commit(task.version, delta)
    else:
        try:
            version = leaf.commit_on_main(task.version, delta)
        except ConflictError:
            version = None
    reach("optimize.leaf-committed")
    return Compacted(task, delta, version, stats)


class NothingLeft(Exception):
    """Other transactions changed all of the leaves, so there is nothing to commit."""


@dataclass
class Optimize:
    """Replace the files of leaves by compacted ones with the same rows.

    Running it raises NothingLeft if no leaf can be replaced, and ConflictError if the schema has
    changed.
    """

    name = "optimize"
    done: Sequence[Compacted]
    #: The ids of leaves whose files were changed by other transactions. They must be planned again.
    overtaken: list[str] = field(default_factory=list)
    #: How many leaves are no longer in the table.
    gone: int = 0

    def run(self, view: View) -> None:
        self.overtaken, self.gone = [], 0
        rows = view.base.leaves.by_id([result.task.object_id for result in self.done])
        valid = []
        for result in self.done:
            task = result.task
            view.check_schema(task.schema)
            row = rows.get(task.object_id)
            if row is None or row.read_version is None:
                self.gone += 1
                continue
            leaf = task.leaf
            if row.location == task.folder and _holds(leaf, result, row.read_version):
                valid.append((result, leaf, row))
            else:
                self.overtaken.append(task.object_id)
        if not valid:
            raise NothingLeft
        view.prefetch_statistics_of([row for result, _, row in valid if result.statistics is None])
        for result, leaf, row in valid:
            if result.version is not None:
                view.made_before(leaf, result.task.version, result.delta, result.version)
            # Statistics are valid only for the version whose rows they were computed from.
            measured = result.statistics if row.read_version == result.task.version else None
            view.rewrite(row, result.delta, measured)


def _holds(leaf: Leaf, result: Compacted, version: int) -> bool:
    """Whether the new files can replace the old ones at a later version of the leaf."""
    if result.delta.replaced:
        # The new files replace the whole leaf, so no rows may have been added.
        return version == result.task.version
    return still_holds(leaf, result.delta, result.task.version, version, "snapshot")


def commit(
    base: Snapshot, done: Sequence[Compacted], pool: Executor, started: float
) -> tuple[int | None, Optimize]:
    """Commit the new files of some leaves, in one transaction.

    Returns its version (None if nothing was left to commit), and the operation, which lists the
    leaves that must be planned again. Raises ConflictError if the schema has changed.
    """
    operation = Optimize(done)
    transaction = Transaction(base, pool, durably=durable_by_default(), started=started)
    try:
        transaction.run(operation)
        reach("optimize.before-commit")
        return transaction.commit().sequence, operation
    except NothingLeft:
        return None, operation


@dataclass
class Optimizing:
    """The state of a call between its rounds. Any process can continue from it."""

    location: Location
    where: str | None
    goal: Goal
    report: OptimizeReport
    round: int = 0
    #: The ids of leaves that must be planned again, because other transactions changed them.
    again: list[str] = field(default_factory=list)
    #: The ids of leaves that were rewritten, and must be indexed again.
    rewritten: set[str] = field(default_factory=set)

    def finish(
        self, base: Snapshot, done: Sequence[Compacted], pool: Executor, started: float
    ) -> None:
        """Commit the new files of some leaves; the first one was written after `started`."""
        if base.head.transactions == "weak":
            for result in done:
                if result.version is not None:
                    self._count(result)
            self.again += [result.task.object_id for result in done if result.version is None]
            return
        try:
            version, operation = commit(base, done, pool, started)
        except ConflictError:
            # The schema or the spec has changed, so the new files are not valid any more.
            self.again += [result.task.object_id for result in done]
            return
        if version is not None:
            self.report.versions = (*self.report.versions, version)
        lost = set(operation.overtaken)
        for result in done:
            if version is not None and result.task.object_id not in lost:
                self._count(result)
        if operation.gone:
            self.report.notes.append(
                f"{count_text(operation.gone, 'leaf')} left the table meanwhile"
            )
        self.again += operation.overtaken

    def next(self, pool: Executor) -> OptimizePlan | None:
        """The plan of another round; None if nothing is left, or after too many rounds."""
        left, self.again = self.again, []
        self.round += 1
        if left and self.round < _ROUNDS:
            newest = Snapshot.latest(self.location)
            return plan(newest, self.where, self.goal, pool, set(left))
        if left:
            self.report.notes.append(
                f"{count_text(len(left), 'leaf')} stayed as before, because others kept changing "
                "rows there: run optimize again"
            )
        return None

    def end(self, pool: Executor) -> None:
        """Index the rows that have moved, and publish leaf versions for plain Lance readers."""
        if self.report.leaves:
            last = Snapshot.latest(self.location)
            if self.rewritten and last.head.indexes:
                indexed = refresh_indexes(last, only=self.rewritten)
                self.report.notes += indexed.notes
                last = Snapshot.latest(self.location)
            self.report.notes += anchor(
                last, pool, Plan(last, predicate_of(self.where, last)).indices
            )

    def _count(self, result: Compacted) -> None:
        """Add the result of one leaf to the report."""
        report, new = self.report, [part.new for part in result.delta.rewritten]
        report.rewritten += 1
        self.rewritten.add(result.task.object_id)
        report.deleted_rows += result.task.deleted
        files = sum(part.file_count for part in new)
        report.files_after += files - result.task.files
        assert report.bytes_after is not None
        report.bytes_after += sum(part.bytes for part in new) - result.task.bytes
