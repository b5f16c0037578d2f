"""Optimize: the same rows in fewer, larger files.

It goes in three steps, so that the middle one can be done anywhere: `plan` looks at leaves and
says what is to be done in each, `compact` does it for one leaf and returns what it has written,
`commit` makes that the table's, many leaves in one transaction. No step changes a row. Whoever
adds rows to a leaf meanwhile is not in the way; where rows of the same files were deleted, what
was written is given up, and the leaf is planned again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.errors import ConflictError
from phalanx.model import statistics
from phalanx.model.ordering import Ordering
from phalanx.model.schema import TableSchema
from phalanx.model.statistics import Statistics
from phalanx.storage import compaction
from phalanx.storage.compaction import LeafFragments, Target
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.location import Location
from phalanx.storage.records import FragmentSize, LeafRow
from phalanx.table.anchor import anchor
from phalanx.table.arguments import positive
from phalanx.table.format import count_text, size_text
from phalanx.table.partitioned_writer import FILE_BYTES, WRITERS
from phalanx.table.plan import Plan
from phalanx.table.scan import predicate_of
from phalanx.transaction.commit import Transaction, durable_by_default
from phalanx.transaction.conflicts import still_holds
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import View

#: How large files should be, unless told otherwise.
TARGET_ROWS = 1024 * 1024
TARGET_BYTES = FILE_BYTES
#: What one transaction takes at most: leaves, and bytes of the files that are rewritten.
GROUP_LEAVES = 1_000
GROUP_BYTES = 16 * 1024**3
#: Leaves with more bytes to rewrite are done two at a time, to bound the memory.
_LARGE_BYTES = 64 * 1024 * 1024
_LARGE_AT_A_TIME = 2
#: Up to how many leaves are looked up in the manifest by name.
_FEW = 500
#: How often leaves are planned again that others have changed meanwhile.
_ROUNDS = 4


Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class LeafTask:
    """What is to be done in one leaf: all that a process elsewhere needs to know."""

    location: Location
    object_id: str
    folder: str
    #: The version to start from, and whether it is on main, where the result goes too.
    version: int
    on_main: bool
    schema: TableSchema
    #: The fragments to rewrite, by id: each group becomes one file, or a few.
    groups: tuple[tuple[int, ...], ...]
    target: Target
    ordering: Ordering | None
    #: Whether the leaf's statistics are to be taken from its rows.
    measure: bool
    #: What the groups have in all.
    files: int
    bytes: int
    rows: int
    deleted: int


@dataclass(frozen=True)
class Compacted:
    """What was written for one leaf. Nobody sees it until it is committed."""

    task: LeafTask
    delta: LeafDelta
    #: The leaf's version with it, on top of the one it started from; None where others have
    #: changed the same files on main.
    version: int | None
    statistics: Statistics | None = None


@dataclass(frozen=True)
class OptimizePlan:
    """What there is to do, and what of it was looked at."""

    snapshot: Snapshot
    tasks: tuple[LeafTask, ...]
    #: The leaves that were chosen.
    leaves: int
    #: Their files and the bytes of those.
    files: int
    bytes: int
    notes: tuple[str, ...] = ()

    def groups(self) -> Iterator[list[LeafTask]]:
        """The tasks in groups, each for one transaction."""
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
    """What optimize has done, or would do. Files and bytes are those of the chosen leaves."""

    dry_run: bool
    #: Leaves that were chosen, and those of them that were rewritten.
    leaves: int = 0
    rewritten: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    #: Before anything is written it is not known, and None.
    bytes_after: int | None = 0
    #: Deleted rows that were still in the files.
    deleted_rows: int = 0
    #: The versions of the table that have come of it, one for each group of leaves.
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
    """Compact the leaves that a filter chooses. Raises InvalidInput for what cannot be meant."""
    with ThreadPoolExecutor(WRITERS) as pool:
        job, found = begin(
            snapshot, where, target_rows, target_bytes, dry_run, sort_by, zorder_by, pool
        )
        if not dry_run:
            _here(job, found, pool)
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
    """What is to be done first, and what must be known to go on."""
    target = Target(
        positive(target_rows, TARGET_ROWS, "target_rows"),
        positive(target_bytes, TARGET_BYTES, "target_bytes"),
    )
    newest = Snapshot.latest(snapshot.location, snapshot)
    newest.head.check_writable()
    ordering = Ordering.of(sort_by, zorder_by, newest.head.schema)
    found = plan(newest, where, target, ordering, pool)
    job = Optimizing(newest.location, where, target, ordering, _planned(found, dry_run))
    return job, found


def _here(job: Optimizing, first: OptimizePlan, pool: Executor) -> None:
    """Do it all in this process."""
    large = threading.Semaphore(_LARGE_AT_A_TIME)

    def done(task: LeafTask) -> Compacted:
        if task.bytes < _LARGE_BYTES:
            return compact(task)
        with large:
            return compact(task)

    found: OptimizePlan | None = first
    while found is not None:
        for group in found.groups():
            started = time.time()
            job.finish(found.snapshot, list(pool.map(done, group)), pool, started)
        found = job.next(pool)
    job.end(pool)


# Planning


def plan(
    snapshot: Snapshot,
    where: str | None,
    target: Target,
    ordering: Ordering | None,
    pool: Executor,
    only: Collection[str] | None = None,
) -> OptimizePlan:
    """What there is to do in the leaves that a filter chooses, or in some of them."""
    predicate = predicate_of(where, snapshot)
    if ordering is not None:
        ordering.check(snapshot.head.schema)
    chosen = Plan(snapshot, predicate)
    leaves, indices = snapshot.leaves, chosen.indices
    if only is not None:
        indices = indices[leaves.are_in(indices, only)]
    loose = _loose(snapshot, indices)
    looked = _Look(snapshot, target, ordering, loose)
    opened = indices[looked.may_be_due(indices)]
    found = list(pool.map(looked.look, leaves.rows(opened)))
    others = np.setdiff1d(indices, opened)
    return OptimizePlan(
        snapshot,
        tuple(task for _, task in found if task is not None),
        len(indices),
        sum(part.files for contents, _ in found for part in contents.fragments)
        + int(leaves.fragment_counts[others].sum()),
        sum(part.bytes for contents, _ in found for part in contents.fragments)
        + int(leaves.byte_counts[others].sum()),
        (
            *chosen.doubts(chosen.indices, "taken"),
            *_index_notes([contents for contents, _ in found]),
        ),
    )


def _loose(snapshot: Snapshot, indices: Array) -> frozenset[str]:
    """The leaves whose statistics do not say all that could be said of their rows."""
    ids = snapshot.leaves.ids.take(pa.array(indices)).to_pylist()
    if snapshot.head.transactions == "weak":
        return frozenset(ids)
    stored = snapshot.manifest.statistics(ids if len(ids) <= _FEW else None)
    complete = statistics.are_complete(stored.cells, snapshot.head.schema)
    known = dict(zip(stored.ids, complete.tolist(), strict=True))
    return frozenset(id for id in ids if not known.get(id, False))


@dataclass(frozen=True)
class _Look:
    snapshot: Snapshot
    target: Target
    ordering: Ordering | None
    loose: frozenset[str]

    def may_be_due(self, indices: Array) -> Array:
        """Which leaves need be opened: they may have small files, or deleted rows in them.

        Most leaves of a table in good shape are one file without a deleted row, and the manifest
        says so: a delete takes the counts of NULL away.
        """
        leaves = self.snapshot.leaves
        rows, sizes = leaves.row_counts[indices], leaves.byte_counts[indices]
        known = (rows >= 0) & (sizes >= 0) & (leaves.fragment_counts[indices] == 1)
        if self.ordering is not None or self.snapshot.head.transactions == "weak":
            return np.ones(len(indices), dtype=bool)
        doubtful = leaves.are_in(indices, self.loose)
        large = np.array(
            [
                compaction.is_too_large(FragmentSize(0, count, size), self.target)
                for count, size in zip(rows.tolist(), sizes.tolist(), strict=True)
            ],
            dtype=bool,
        )
        return np.asarray(~known | doubtful | large)

    def look(self, row: LeafRow) -> tuple[LeafFragments, LeafTask | None]:
        schema, weak = self.snapshot.head.schema, row.read_version is None
        leaf = Leaf(self.snapshot.location, row.location, schema)
        version = leaf.newest() if row.read_version is None else row.read_version
        contents = compaction.look(leaf, version)
        parts = contents.fragments
        groups = compaction.groups(parts, self.target)
        if self.ordering is not None or (groups and not contents.current):
            groups = [parts] if parts and not any(part.indexed for part in parts) else []
        if not groups:
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
            tuple(tuple(part.id for part in group) for group in groups),
            self.target,
            self.ordering,
            whole and not weak and row.object_id in self.loose,
            sum(part.files for part in touched),
            sum(part.bytes for part in touched),
            sum(part.rows for part in touched),
            sum(part.deletions for part in touched),
        )


def _index_notes(looked: Iterable[LeafFragments]) -> Iterator[str]:
    kept_back = Counter(contents.indexes for contents in looked if contents.indexes)
    for names, count in kept_back.items():
        yield (
            f"files of {count_text(count, 'leaf')} stay as they are, because an index points "
            f"into them ({', '.join(names)}): drop it to have them compacted"
        )


def _planned(found: OptimizePlan, dry_run: bool) -> OptimizeReport:
    """The report before anything is done; what would come of it, for a dry run."""
    report = OptimizeReport(
        dry_run,
        leaves=found.leaves,
        files_before=found.files,
        files_after=found.files,
        bytes_before=found.bytes,
        bytes_after=found.bytes,
        notes=list(found.notes),
    )
    if dry_run:
        report.rewritten = len(found.tasks)
        report.bytes_after = None if found.tasks else found.bytes
        for task in found.tasks:
            report.files_after += _expected_files(task) - task.files
            report.deleted_rows += task.deleted
    return report


def _expected_files(task: LeafTask) -> int:
    """How many files would come of a task, about."""
    live = task.bytes * task.rows // max(1, task.rows + task.deleted)
    cuts = max(-(-task.rows // task.target.rows), -(-live // task.target.bytes))
    return max(len(task.groups), cuts) if task.rows else 0


# Doing


def compact(task: LeafTask) -> Compacted:
    """Do what is to be done in one leaf, in any process. Nothing is visible in a strong table."""
    leaf = Leaf(task.location, task.folder, task.schema)
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
    """All that was written has been overtaken by others."""


@dataclass
class Optimize:
    """Let leaves consist of other files with the same rows."""

    name = "optimize"
    done: Sequence[Compacted]
    #: The leaves that others have changed too much meanwhile, and those that are gone.
    overtaken: list[str] = field(default_factory=list)
    gone: int = 0

    def run(self, view: View) -> None:
        self.overtaken, self.gone = [], 0
        rows = view.base.leaves.by_id([one.task.object_id for one in self.done])
        holding = []
        for one in self.done:
            view.check_schema(one.task.schema)
            row = rows.get(one.task.object_id)
            if row is None or row.read_version is None:
                self.gone += 1
                continue
            leaf = Leaf(view.base.location, one.task.folder, one.task.schema)
            if row.location == one.task.folder and _holds(leaf, one, row.read_version):
                holding.append((one, leaf, row))
            else:
                self.overtaken.append(one.task.object_id)
        if not holding:
            raise NothingLeft
        view.prefetch_statistics_of([row for one, _, row in holding if one.statistics is None])
        for one, leaf, row in holding:
            if one.version is not None:
                view.made_before(leaf, one.task.version, one.delta, one.version)
            # What was measured is true of the version it was measured at.
            measured = one.statistics if row.read_version == one.task.version else None
            view.rewrite(row, one.delta, measured)


def _holds(leaf: Leaf, one: Compacted, version: int) -> bool:
    if one.delta.replaced:
        # It takes the place of all that is there, so nothing may have come.
        return version == one.task.version
    return still_holds(leaf, one.delta, one.task.version, version, "snapshot")


def commit(
    base: Snapshot, done: Sequence[Compacted], pool: Executor, started: float
) -> tuple[int | None, Optimize]:
    """Make what was written for some leaves the table's, in one transaction.

    Returns its version (None where nothing was left to commit), and the operation, which knows
    the leaves that must be done again.
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
    """A call between its rounds: all that must be known to go on, in any process."""

    location: Location
    where: str | None
    target: Target
    ordering: Ordering | None
    report: OptimizeReport
    round: int = 0
    #: The leaves that others have changed meanwhile, so that they are to be done again.
    again: list[str] = field(default_factory=list)

    def finish(
        self, base: Snapshot, done: Sequence[Compacted], pool: Executor, started: float
    ) -> None:
        """Make what was written for some leaves the table's; the first file is of `started`."""
        if base.head.transactions == "weak":
            for one in done:
                if one.version is not None:
                    self._count(one)
            self.again += [one.task.object_id for one in done if one.version is None]
            return
        try:
            version, operation = commit(base, done, pool, started)
        except ConflictError:
            # The schema or the spec has changed: what was written is not what is wanted now.
            self.again += [one.task.object_id for one in done]
            return
        if version is not None:
            self.report.versions = (*self.report.versions, version)
        lost = set(operation.overtaken)
        for one in done:
            if version is not None and one.task.object_id not in lost:
                self._count(one)
        if operation.gone:
            self.report.notes.append(
                f"{count_text(operation.gone, 'leaf')} left the table meanwhile"
            )
        self.again += operation.overtaken

    def next(self, pool: Executor) -> OptimizePlan | None:
        """What is to be done again; None where that is nothing, or has been tried enough."""
        left, self.again = self.again, []
        self.round += 1
        if left and self.round < _ROUNDS:
            newest = Snapshot.latest(self.location)
            return plan(newest, self.where, self.target, self.ordering, pool, set(left))
        if left:
            self.report.notes.append(
                f"{count_text(len(left), 'leaf')} stayed as before, because others kept changing "
                "rows there: run optimize again"
            )
        return None

    def end(self, pool: Executor) -> None:
        """Publish the leaves for plain Lance, where the table wants it."""
        if self.report.leaves:
            last = Snapshot.latest(self.location)
            anchor(last, pool, Plan(last, predicate_of(self.where, last)).indices)

    def _count(self, one: Compacted) -> None:
        report, new = self.report, [part.new for part in one.delta.rewritten]
        report.rewritten += 1
        report.deleted_rows += one.task.deleted
        files = sum(part.file_count for part in new)
        report.files_after += files - one.task.files
        assert report.bytes_after is not None
        report.bytes_after += sum(part.bytes for part in new) - one.task.bytes
