"""Rewrite: rows of earlier specs move into the partitions of the newest one.

It goes step by step, and each step is a transaction that takes rows out of old leaves and puts
them into new ones. So whoever reads sees every row once, and what is done stays done: after a
failure the next call goes on with what is left, which is what is still in old leaves.

A step has three parts, so that the middle one can be done anywhere: `plan` says which files of
which leaves are moved together, `move` writes their rows where they belong and returns what it has
written, `commit` makes that the table's. Where somebody has changed one of the files meanwhile, the
step is given up and planned again.
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

from phalanx.errors import ConflictError, CorruptTable, InvalidInput
from phalanx.model.schema import TableSchema
from phalanx.storage import compaction
from phalanx.storage.head import Head
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.location import Location
from phalanx.storage.records import MOVES_ROWS, LeafRow
from phalanx.table.anchor import anchor
from phalanx.table.arguments import positive
from phalanx.table.format import count_text, size_text
from phalanx.table.partitioned_writer import BUFFER_BYTES, WRITERS, PartitionedWriter, WrittenLeaf
from phalanx.table.plan import Plan
from phalanx.table.scan import predicate_of
from phalanx.transaction.commit import Transaction, durable_by_default
from phalanx.transaction.conflicts import still_holds
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import View

Array = np.ndarray[Any, Any]

#: What one step moves at most, unless a single file has more.
STEP_ROWS = 64 * 1024 * 1024
STEP_BYTES = 4 * 1024**3
#: Leaves up to this size are read several at a time, each in one go.
_SMALL_BYTES = 4 * 1024 * 1024
#: How often in a row a step may be overtaken by others before it is left alone.
_PATIENCE = 8


@dataclass(frozen=True)
class Source:
    """Files of a leaf that are moved."""

    object_id: str
    folder: str
    version: int
    #: Fragments by id; None for all of them.
    fragments: tuple[int, ...] | None
    rows: int
    bytes: int


@dataclass(frozen=True)
class RewriteStep:
    """What is moved together: all that a process elsewhere needs to know."""

    location: Location
    #: The version of the table that it was planned on, and that version's head.
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
    """What was written for a step. Nobody sees it until it is committed."""

    step: RewriteStep
    #: The fragments that rows were read from, for each source.
    fragments: tuple[frozenset[int], ...]
    #: How many rows those have, for each source.
    rows: tuple[int, ...]
    written: tuple[WrittenLeaf, ...]


@dataclass
class RewriteReport:
    """What rewrite has done, or would do."""

    dry_run: bool
    #: Leaves of earlier specs that were chosen, and those that are left of them.
    leaves: int = 0
    left: int = 0
    steps: int = 0
    rows: int = 0
    bytes: int = 0
    #: The versions of the table that have come of it, one for each step.
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
        return "\n".join([text, *(f"note: {note}" for note in self.notes)])


def rewrite(
    snapshot: Snapshot,
    where: str | None = None,
    step_rows: int | None = None,
    step_bytes: int | None = None,
    max_steps: int | None = None,
    dry_run: bool = False,
) -> RewriteReport:
    """Move rows of earlier specs to the newest. Raises InvalidInput for what cannot be meant."""
    with ThreadPoolExecutor(WRITERS) as pool:
        job, newest = begin(snapshot, where, step_rows, step_bytes, max_steps, dry_run)
        if not dry_run:
            _here(job, newest, pool)
    return job.report


def begin(
    snapshot: Snapshot,
    where: str | None,
    step_rows: int | None,
    step_bytes: int | None,
    max_steps: int | None,
    dry_run: bool,
) -> tuple[Rewriting, Snapshot]:
    """What must be known to go on, and the snapshot to begin with."""
    bounds = (
        positive(step_rows, STEP_ROWS, "step_rows"),
        positive(step_bytes, STEP_BYTES, "step_bytes"),
    )
    limit = None if max_steps is None else positive(max_steps, 1, "max_steps")
    newest = Snapshot.latest(snapshot.location, snapshot)
    newest.head.check_writable()
    if newest.head.transactions == "weak":
        raise InvalidInput(
            f"the table {newest.location.uri} is weak, and rows cannot move from one leaf to "
            "another at once: make_strong() it first"
        )
    chosen = _chosen(newest, where)
    report = RewriteReport(dry_run, leaves=len(chosen), left=len(chosen))
    report.notes += Plan(newest, predicate_of(where, newest)).doubts(chosen, "moved")
    if dry_run:
        found = list(plan(newest, where, bounds))
        report.steps, report.rows = len(found), sum(step.rows for step in found)
        report.bytes = sum(step.bytes for step in found)
    return Rewriting(newest.location, where, bounds, limit, report), newest


# Planning


def _chosen(snapshot: Snapshot, where: str | None) -> Array:
    """The leaves of earlier specs that may hold a matching row, in the order of their values."""
    indices = Plan(snapshot, predicate_of(where, snapshot)).indices
    found: Array = indices[snapshot.leaves.spec_ids[indices] != snapshot.head.spec_id]
    return found


def plan(snapshot: Snapshot, where: str | None, bounds: tuple[int, int]) -> Iterator[RewriteStep]:
    """The steps that move what a filter chooses; no two of them move the same rows."""
    sources: list[Source] = []
    rows = size = 0
    for source in _sources(snapshot, _chosen(snapshot, where), bounds):
        if sources and (rows + source.rows > bounds[0] or size + source.bytes > bounds[1]):
            yield RewriteStep(snapshot.location, snapshot.head, tuple(sources))
            sources, rows, size = [], 0, 0
        sources.append(source)
        rows, size = rows + source.rows, size + source.bytes
    if sources:
        yield RewriteStep(snapshot.location, snapshot.head, tuple(sources))


def _sources(snapshot: Snapshot, chosen: Array, bounds: tuple[int, int]) -> Iterator[Source]:
    """Leaves that fit into a step as a whole, and the files of those that do not."""
    for row in snapshot.leaves.rows(chosen):
        assert row.read_version is not None, row
        rows, size = row.row_count, row.byte_count
        if rows is not None and size is not None and rows <= bounds[0] and size <= bounds[1]:
            yield Source(row.object_id, row.location, row.read_version, None, rows, size)
            continue
        leaf = Leaf(snapshot.location, row.location, snapshot.head.schema)
        for part in compaction.look(leaf, row.read_version).fragments:
            yield Source(
                row.object_id, row.location, row.read_version, (part.id,), part.rows, part.bytes
            )


# Doing


def move(step: RewriteStep, snapshot: Snapshot | None = None) -> Moved:
    """Write the rows of a step where they belong, in any process. Nothing is visible yet."""
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
        written = PartitionedWriter(snapshot, pool, BUFFER_BYTES).write(tables)
    moved = sum(leaf.rows for leaf in written)
    if moved != sum(counts):
        raise CorruptTable(
            f"{sum(counts)} rows of {step.location.uri} were to be moved, and {moved} were read: "
            "nothing was changed, run check()"
        )
    reach("rewrite.files-written")
    return Moved(step, tuple(fragments), tuple(counts), tuple(written))


def _leaf(step: RewriteStep, source: Source) -> Leaf:
    return Leaf(step.location, source.folder, step.head.schema)


def _read(
    step: RewriteStep, fragments: Sequence[frozenset[int]], schema: TableSchema, pool: Executor
) -> Iterator[pa.Table]:
    """The rows of a step, with the table's schema; small leaves are read ahead."""

    def rows(source: Source, ids: frozenset[int], whole: bool) -> Iterator[pa.Table]:
        found = _leaf(step, source).scan(
            source.version, schema.arrow.names, None, whole=whole, fragments=sorted(ids)
        )
        for batch in found:
            if batch.num_rows:
                arrays = pa.RecordBatch.from_arrays(batch.columns, schema=schema.arrow)
                yield pa.Table.from_batches([arrays])

    def small(source: Source, ids: frozenset[int]) -> list[pa.Table]:
        found = list(rows(source, ids, True))
        return [pa.concat_tables(found)] if found else []

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
    found = ahead.popleft()
    return found.result() if isinstance(found, Future) else found


class Overtaken(Exception):
    """Rows of a step were changed by others before it was committed."""


@dataclass
class Rewrite:
    """Take rows out of leaves of earlier specs, and put them into those of the newest."""

    name = MOVES_ROWS
    moved: Moved

    def run(self, view: View) -> None:
        step = self.moved.step
        view.check_schema(step.head.schema)
        if view.head.spec != step.head.spec:
            raise Overtaken
        rows = view.base.leaves.by_id([source.object_id for source in step.sources])
        # One leaf may be there several times, with other fragments each time.
        out: dict[str, tuple[LeafRow, set[int], int]] = {}
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
            _, known, before = out.get(source.object_id, (row, set(), 0))
            out[source.object_id] = row, known | fragments, before + count
        for row, gone, count in out.values():
            if count == row.row_count:
                view.remove(row)
            else:
                view.change(row, LeafDelta(removed=frozenset(gone)), count)
        spec = view.spec_like(step.head.spec)
        places = [view.place(spec, added.keys) for added in self.moved.written]
        view.prefetch_statistics(places)
        for added, place in zip(self.moved.written, places, strict=True):
            view.append(place, added.written, added.statistics)


def commit(base: Snapshot, moved: Moved, pool: Executor, started: float) -> tuple[int, set[str]]:
    """Make a step the table's, in one transaction: its version, and the leaves it has changed.

    Raises Overtaken where rows of it were changed by others, ConflictError where the schema was.
    """
    transaction = Transaction(base, pool, durably=durable_by_default(), started=started)
    transaction.run(Rewrite(moved))
    reach("rewrite.before-commit")
    done = transaction.commit().sequence
    reach("rewrite.step-done")
    return done, transaction.counts.leaves


@dataclass
class Rewriting:
    """A call between its rounds: all that must be known to go on, in any process."""

    location: Location
    where: str | None
    bounds: tuple[int, int]
    #: How many steps are made at most; None for all.
    limit: int | None
    report: RewriteReport
    touched: set[str] = field(default_factory=set)
    #: How often in a row others were faster.
    lost: int = 0
    #: Whether this round has moved something, or was overtaken.
    moved: bool = False
    overtaken: bool = False

    @property
    def is_over(self) -> bool:
        return self.limit is not None and self.report.steps >= self.limit

    def finish(self, base: Snapshot, moved: Moved, pool: Executor, started: float) -> bool:
        """Make a step the table's. False where others have changed its rows meanwhile."""
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
        """The snapshot for another round; None where nothing is left, or others are faster.

        What others have changed, or added to earlier specs, is planned anew.
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

    def end(self, pool: Executor) -> None:
        """Count what is left, and publish leaves for plain Lance, where the table wants it."""
        last = Snapshot.latest(self.location)
        self.report.left = len(_chosen(last, self.where))
        if self.touched:
            anchor(last, pool, _indices(last, self.touched))


def _here(job: Rewriting, first: Snapshot, pool: Executor) -> None:
    """Do it all in this process, step after step."""
    newest: Snapshot | None = first
    while newest is not None:
        for step in plan(newest, job.where, job.bounds):
            started = time.time()
            if job.is_over or not job.finish(newest, move(step, newest), pool, started):
                break
        newest = job.next()
    job.end(pool)


def _indices(snapshot: Snapshot, ids: Collection[str]) -> Array:
    listed = snapshot.leaves.ids.to_pylist()
    return np.array([at for at, id in enumerate(listed) if id in ids], dtype=np.int64)
