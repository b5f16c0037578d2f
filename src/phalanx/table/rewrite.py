"""Rewrite: move rows that were written under earlier specs into partitions of the current one.

Rows are moved in steps. Each step is a transaction that removes rows from old leaves and adds them
to new ones, so readers see every row once. After a failure, finished steps are kept, and the next
call continues with the rows that are still in old leaves.

A step has three parts, so that the second can run in another process: `plan` chooses the files of
the step, `move` writes their rows to the new partitions, `commit` adds these to the table. If
another transaction changed one of the files meanwhile, the step is discarded and planned again.

Then the leaves of the current spec that have other columns than new files are rewritten, each as
`phalanx.table.optimize` does it: partition columns may have been stored, or left out, since.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx import progress
from phalanx.errors import ConflictError, CorruptTable, InvalidInput
from phalanx.model.partition_columns import Given
from phalanx.model.schema import TableSchema
from phalanx.storage import compaction
from phalanx.storage.head import Head
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.location import Location
from phalanx.storage.records import MOVES_ROWS, LeafRow
from phalanx.table import optimize
from phalanx.table.anchor import anchor
from phalanx.table.arguments import positive
from phalanx.table.filters import predicate_of
from phalanx.table.format import count_text, size_text
from phalanx.table.indexes import refresh_indexes
from phalanx.table.partitioned_writer import BUFFER_BYTES, WRITERS, PartitionedWriter, WrittenLeaf
from phalanx.table.plan import Plan
from phalanx.transaction.commit import Transaction, durable_by_default
from phalanx.transaction.conflicts import still_holds
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import View

Array = np.ndarray[Any, Any]

#: The default limits of a step, in rows and in bytes. A larger file is a step of its own.
STEP_ROWS = 64 * 1024 * 1024
STEP_BYTES = 4 * 1024**3
#: Leaves up to this many bytes are read several at a time, each as one table.
_SMALL_BYTES = 4 * 1024 * 1024
#: After this many conflicts in a row, a call stops.
_PATIENCE = 8


@dataclass(frozen=True)
class Source:
    """The files of a leaf that a step moves."""

    object_id: str
    folder: str
    version: int
    #: The ids of the fragments; None for all of them.
    fragments: tuple[int, ...] | None
    rows: int
    bytes: int
    #: The columns that the partition gives, with their values.
    given: Given = ()


@dataclass(frozen=True)
class RewriteStep:
    """The files that are moved together, with everything that another process needs to do it."""

    location: Location
    #: The head of the table at the version that the step was planned on.
    head: Head
    sources: tuple[Source, ...]

    @property
    def rows(self) -> int:
        return sum(source.rows for source in self.sources)

    @property
    def bytes(self) -> int:
        return sum(source.bytes for source in self.sources)


@dataclass(frozen=True)
class Moved:
    """The new files of a step. They are not visible until they are committed."""

    step: RewriteStep
    #: The ids of the fragments that were read, for each source.
    fragments: tuple[frozenset[int], ...]
    #: The number of rows that were read, for each source.
    rows: tuple[int, ...]
    written: tuple[WrittenLeaf, ...]


@dataclass
class RewriteReport:
    """What rewrite did, or would do."""

    dry_run: bool
    #: How many leaves of earlier specs were selected, and how many are left.
    leaves: int = 0
    left: int = 0
    steps: int = 0
    rows: int = 0
    bytes: int = 0
    #: How many leaves of the current spec were rewritten to have the columns of new files.
    columns: int = 0
    #: The versions of the table that were committed: one for each step, then those for `columns`.
    versions: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        verb = "would move" if self.dry_run else "moved"
        text = (
            f"{verb} {count_text(self.rows, 'row')} ({size_text(self.bytes)}) of "
            f"{count_text(self.leaves, 'leaf')} of earlier specs "
            f"in {count_text(self.steps, 'step')}"
        )
        if self.left and not self.dry_run:
            text += f"; {count_text(self.left, 'leaf')} left"
        if self.columns:
            verb = "would rewrite" if self.dry_run else "rewrote"
            text += f"; {verb} {count_text(self.columns, 'leaf')} to have the columns of new files"
        return "\n".join([text, *(f"note: {note}" for note in self.notes)])


def rewrite(
    snapshot: Snapshot,
    where: str | None = None,
    step_rows: int | None = None,
    step_bytes: int | None = None,
    max_steps: int | None = None,
    dry_run: bool = False,
) -> RewriteReport:
    """Move rows of earlier specs into partitions of the current one.

    Raises InvalidInput for invalid arguments, or if the table is weak.
    """
    with ThreadPoolExecutor(WRITERS) as pool:
        job, newest = begin(snapshot, where, step_rows, step_bytes, max_steps, dry_run)
        if not dry_run:
            _run(job, newest, pool)
        if (columns := begin_columns(job, newest, pool)) is not None:
            if not dry_run:
                optimize.run(*columns, pool)
            job.count(columns[0].report)
    return job.report


def begin_columns(
    job: Rewriting, snapshot: Snapshot, pool: Executor
) -> tuple[optimize.Optimizing, optimize.OptimizePlan] | None:
    """The second part of a call: leaves whose files have other columns than new ones.

    None if there can be no such leaves, or if the limit of steps is reached.
    """
    if job.is_over or not snapshot.head.gives_columns:
        return None
    return optimize.begin_columns(snapshot, job.where, job.report.dry_run, pool)


def begin(
    snapshot: Snapshot,
    where: str | None,
    step_rows: int | None,
    step_bytes: int | None,
    max_steps: int | None,
    dry_run: bool,
) -> tuple[Rewriting, Snapshot]:
    """The state of a new call, and the snapshot to start from.

    Raises InvalidInput for invalid arguments, or if the table is weak.
    """
    bounds = (
        positive(step_rows, STEP_ROWS, "step_rows"),
        positive(step_bytes, STEP_BYTES, "step_bytes"),
    )
    limit = None if max_steps is None else positive(max_steps, 1, "max_steps")
    newest = Snapshot.latest(snapshot.location, snapshot)
    newest.check_writable()
    if newest.head.transactions == "weak":
        raise InvalidInput(
            f"the table {newest.location.uri} is weak, and its rows cannot move from one leaf to "
            "another atomically: make_strong() it first"
        )
    leaves = _selected(newest, where)
    report = RewriteReport(dry_run, leaves=len(leaves), left=len(leaves))
    report.notes += Plan(newest, predicate_of(where, newest)).doubts(leaves, "moved")
    if dry_run:
        steps = list(plan(newest, where, bounds))
        report.steps, report.rows = len(steps), sum(step.rows for step in steps)
        report.bytes = sum(step.bytes for step in steps)
    return Rewriting(newest.location, where, bounds, limit, report), newest


# Planning


def _selected(snapshot: Snapshot, where: str | None) -> Array:
    """The indices of the leaves of earlier specs that may hold a matching row."""
    indices = Plan(snapshot, predicate_of(where, snapshot)).indices
    leaves: Array = indices[snapshot.leaves.spec_ids[indices] != snapshot.head.spec_id]
    return leaves


def plan(snapshot: Snapshot, where: str | None, bounds: tuple[int, int]) -> Iterator[RewriteStep]:
    """The steps that move the leaves a filter selects; no two steps move the same rows.

    `bounds` are the limits of a step, in rows and in bytes.
    """
    sources: list[Source] = []
    rows = size = 0
    for source in _sources(snapshot, _selected(snapshot, where), bounds):
        if sources and (rows + source.rows > bounds[0] or size + source.bytes > bounds[1]):
            yield RewriteStep(snapshot.location, snapshot.head, tuple(sources))
            sources, rows, size = [], 0, 0
        sources.append(source)
        rows, size = rows + source.rows, size + source.bytes
    if sources:
        yield RewriteStep(snapshot.location, snapshot.head, tuple(sources))


def _sources(snapshot: Snapshot, leaves: Array, bounds: tuple[int, int]) -> Iterator[Source]:
    """Whole leaves if they fit into a step, and single files of the larger ones."""
    for row in snapshot.leaves.rows(leaves):
        assert row.read_version is not None, row
        rows, size = row.row_count, row.byte_count
        given = snapshot.head.given(row.spec_id, row.keys)
        if rows is not None and size is not None and rows <= bounds[0] and size <= bounds[1]:
            yield Source(row.object_id, row.location, row.read_version, None, rows, size, given)
            continue
        leaf = Leaf.of(snapshot.location, snapshot.head, row)
        for part in compaction.look(leaf, row.read_version).fragments:
            yield Source(
                row.object_id,
                row.location,
                row.read_version,
                (part.id,),
                part.rows,
                part.bytes,
                given,
            )


# Running


def move(step: RewriteStep, snapshot: Snapshot | None = None) -> Moved:
    """Write the rows of a step to partitions of the current spec, in any process.

    Nothing is visible until the step is committed. Raises CorruptTable if the files do not have as
    many rows as they should.
    """
    if snapshot is None:
        snapshot = Snapshot.latest(step.location).find(step.head.sequence)
    schema = step.head.schema
    fragments: list[frozenset[int]] = []
    counts: list[int] = []
    for source in step.sources:
        parts = compaction.look(_leaf(step, source), source.version).fragments
        if source.fragments is not None:
            parts = tuple(part for part in parts if part.id in source.fragments)
        fragments.append(frozenset(part.id for part in parts))
        counts.append(sum(part.rows for part in parts))
    with ThreadPoolExecutor(WRITERS) as pool:
        tables = _read(step, fragments, schema, pool)
        written = PartitionedWriter(snapshot, pool, BUFFER_BYTES, checks=False).write(tables)
    moved = sum(leaf.rows for leaf in written)
    if moved != sum(counts):
        raise CorruptTable(
            f"{sum(counts)} rows of {step.location.uri} were to be moved, and {moved} were read: "
            "nothing was changed, run check()"
        )
    reach("rewrite.files-written")
    return Moved(step, tuple(fragments), tuple(counts), tuple(written))


def _leaf(step: RewriteStep, source: Source) -> Leaf:
    return Leaf(step.location, source.folder, step.head.schema, source.given)


def _read(
    step: RewriteStep, fragments: Sequence[frozenset[int]], schema: TableSchema, pool: Executor
) -> Iterator[pa.Table]:
    """The rows of a step with the table's schema; small leaves are read ahead."""

    def rows(source: Source, ids: frozenset[int], whole: bool) -> Iterator[pa.Table]:
        batches = _leaf(step, source).scan(
            source.version, schema.arrow.names, None, whole=whole, fragments=sorted(ids)
        )
        for batch in batches:
            if batch.num_rows:
                arrays = pa.RecordBatch.from_arrays(batch.columns, schema=schema.arrow)
                yield pa.Table.from_batches([arrays])

    def small(source: Source, ids: frozenset[int]) -> list[pa.Table]:
        tables = list(rows(source, ids, True))
        return [pa.concat_tables(tables)] if tables else []

    ahead: deque[Future[list[pa.Table]] | Iterator[pa.Table]] = deque()
    for source, ids in zip(step.sources, fragments, strict=True):
        if source.bytes <= _SMALL_BYTES:
            ahead.append(pool.submit(small, source, ids))
        else:
            ahead.append(rows(source, ids, False))
        if len(ahead) > WRITERS:
            yield from _next(ahead)
    while ahead:
        yield from _next(ahead)


def _next(ahead: deque[Future[list[pa.Table]] | Iterator[pa.Table]]) -> Iterable[pa.Table]:
    tables = ahead.popleft()
    return tables.result() if isinstance(tables, Future) else tables


class Overtaken(Exception):
    """Another transaction changed rows of a step, or the spec, before the step was committed."""


@dataclass
class Rewrite:
    """Remove the rows of a step from their leaves, and add the new files.

    Running it raises Overtaken if another transaction changed these rows or the spec, and
    ConflictError if the schema has changed.
    """

    name = MOVES_ROWS
    moved: Moved

    def run(self, view: View) -> None:
        step = self.moved.step
        view.check_schema(step.head.schema)
        if view.head.spec != step.head.spec:
            raise Overtaken
        rows = view.base.leaves.by_id([source.object_id for source in step.sources])
        # A leaf may be the source several times, with different fragments.
        removals: dict[str, tuple[LeafRow, set[int], int]] = {}
        for source, fragments, count in zip(
            step.sources, self.moved.fragments, self.moved.rows, strict=True
        ):
            row = rows.get(source.object_id)
            if row is None or row.location != source.folder or row.read_version is None:
                raise Overtaken
            delta = LeafDelta(removed=fragments)
            leaf = _leaf(step, source)
            if not still_holds(leaf, delta, source.version, row.read_version, "snapshot"):
                raise Overtaken
            _, ids, before = removals.get(source.object_id, (row, set(), 0))
            removals[source.object_id] = row, ids | fragments, before + count
        for row, ids, count in removals.values():
            if count == row.row_count:
                view.remove([row])
            else:
                view.change(row, LeafDelta(removed=frozenset(ids)), count)
        spec = view.spec_like(step.head.spec)
        places = [view.place(spec, output.keys) for output in self.moved.written]
        view.prefetch_statistics(places)
        for output, place in zip(self.moved.written, places, strict=True):
            view.append(place, output.written, output.statistics)


def commit(base: Snapshot, moved: Moved, pool: Executor, started: float) -> tuple[int, set[str]]:
    """Commit a step in one transaction, and return its version and the ids of the changed leaves.

    Raises Overtaken if another transaction changed rows of the step or the spec, and ConflictError
    if the schema was changed.
    """
    transaction = Transaction(base, pool, durably=durable_by_default(), started=started)
    transaction.run(Rewrite(moved))
    reach("rewrite.before-commit")
    version = transaction.commit().sequence
    reach("rewrite.step-done")
    return version, transaction.counts.leaves


@dataclass
class Rewriting:
    """The state of a call between its rounds. Any process can continue from it."""

    location: Location
    where: str | None
    #: The limits of a step, in rows and in bytes.
    bounds: tuple[int, int]
    #: The largest number of steps; None for no limit.
    limit: int | None
    report: RewriteReport
    #: The ids of the leaves that were changed.
    touched: set[str] = field(default_factory=set)
    #: How many steps in a row failed because of other transactions.
    lost: int = 0
    #: Whether a step of this round was committed, and whether one was overtaken.
    moved: bool = False
    overtaken: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the limit of steps is reached."""
        return self.limit is not None and self.report.steps >= self.limit

    def finish(self, base: Snapshot, moved: Moved, pool: Executor, started: float) -> bool:
        """Commit a step; the result is False if another transaction changed its rows."""
        try:
            version, leaves = commit(base, moved, pool, started)
        except (Overtaken, ConflictError):
            self.lost += 1
            self.overtaken = True
            return False
        self.lost, self.moved = 0, True
        self.touched |= leaves
        self.report.steps += 1
        self.report.rows += moved.step.rows
        self.report.bytes += moved.step.bytes
        self.report.versions = (*self.report.versions, version)
        return True

    def next(self) -> Snapshot | None:
        """The snapshot for another round; None if nothing is left, or after too many conflicts.

        Another round plans the rows again that other transactions changed, or added to leaves of
        earlier specs.
        """
        again, self.moved, self.overtaken = self.moved or self.overtaken, False, False
        if not again or self.is_over:
            return None
        if self.lost >= _PATIENCE:
            self.report.notes.append(
                "rows in them kept being changed by others, so run rewrite again"
            )
            return None
        return Snapshot.latest(self.location)

    def count(self, columns: optimize.OptimizeReport) -> None:
        """Add what was done to leaves that had other columns than new files."""
        self.report.columns += columns.rewritten
        self.report.versions += columns.versions
        self.report.notes += [note for note in columns.notes if note not in self.report.notes]

    def end(self, pool: Executor) -> None:
        """Count the leaves that are left, index the rows that have moved, and publish leaves."""
        last = Snapshot.latest(self.location)
        if self.touched and last.head.indexes:
            self.report.notes += refresh_indexes(last, only=self.touched).notes
            last = Snapshot.latest(self.location)
        self.report.left = len(_selected(last, self.where))
        if self.touched:
            self.report.notes += anchor(last, pool, _indices(last, self.touched))


def _run(job: Rewriting, first: Snapshot, pool: Executor) -> None:
    """Run all steps in this process, one after the other."""
    newest: Snapshot | None = first
    while newest is not None:
        leaves = newest.leaves.rows(_selected(newest, job.where))
        progress.begin(sum(row.row_count or 0 for row in leaves), "rows")
        for step in progress.counted(plan(newest, job.where, job.bounds), lambda step: step.rows):
            started = time.time()
            if job.is_over or not job.finish(newest, move(step, newest), pool, started):
                break
        newest = job.next()
    job.end(pool)


def _indices(snapshot: Snapshot, ids: Collection[str]) -> Array:
    """The indices of the leaves with these ids."""
    all_ids = snapshot.leaves.ids.to_pylist()
    return np.array([index for index, id in enumerate(all_ids) if id in ids], dtype=np.int64)
