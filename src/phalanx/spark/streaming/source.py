"""Reading as a stream: from where to where each batch reads, and which tasks read it."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from phalanx.errors import (
    ConflictError,
    InvalidInput,
    PhalanxError,
    TableNotFound,
    UnsupportedTable,
)
from phalanx.lru import LruCache
from phalanx.model.schema import TableSchema
from phalanx.spark.conf import (
    LIMITS,
    SKIP_CHANGE_COMMITS,
    STARTING_TIMESTAMP,
    STARTING_VERSION,
    TIME_TRAVEL,
    is_given,
    resolve,
)
from phalanx.spark.dispatch import Reply, operation
from phalanx.spark.foreign import refuse_options
from phalanx.spark.handles import Handle
from phalanx.spark.requests import Request
from phalanx.spark.streaming.offsets import INITIAL, Budget, Offset, Read
from phalanx.spark.tasks import Chosen, ScanSettings, Tasks
from phalanx.spark.times import moment_of
from phalanx.storage.head import Head
from phalanx.storage.location import Location
from phalanx.storage.read_units import are_small
from phalanx.table.incremental import Increment, Portion, cut, everything, steps
from phalanx.table.plan import partition_name
from phalanx.transaction.snapshot import Snapshot

#: How many versions are looked at, one by one, for a batch that has a limit.
_MOST_VERSIONS = 100
_KEPT = 64
_END = sys.maxsize


class _Stop(Exception):
    """Says why a stream cannot go beyond a version."""

    def __init__(self, reason: PhalanxError) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True)
class Stream:
    """A stream between calls. Spark sends it back with every one."""

    uri: str
    options: Mapping[str, str] | None
    #: The id of the table.
    table: str
    #: The schema that the table had when the stream was started, as JSON.
    schema: Mapping[str, Any]
    #: What the options of the stream say.
    version: str
    timestamp: str | None
    skips: bool
    limits: Mapping[str, int]

    @property
    def location(self) -> Location:
        return Location(self.uri, self.options)

    def newest(self) -> Snapshot:
        """The newest snapshot. Raises ConflictError where another table is there now."""
        snapshot = Snapshot.latest(self.location)
        if snapshot.head.table_id != self.table:
            raise ConflictError(
                f"the table {self.uri} was dropped and made again: start the stream with another "
                "checkpoint"
            )
        return snapshot

    @cached_property
    def table_schema(self) -> TableSchema:
        return TableSchema.from_json(dict(self.schema))

    def can_read(self, newest: Snapshot, version: Snapshot) -> bool:
        """Whether a version has the schema of the stream, or an earlier one of the same fields.

        A table that was replaced has other fields, whatever their names are.
        """
        mine, its = self.table_schema, version.head.schema
        shares_fields = not set(mine.field_ids).isdisjoint(its.field_ids)
        return its == mine or (shares_fields and newest.head.schema == mine)

    def check_schema(self, newest: Snapshot, version: Snapshot) -> None:
        """Raise _Stop at a version that has another schema than the stream."""
        if self.can_read(newest, version):
            return
        if newest.head.schema == self.table_schema:
            reason = (
                f"version {version.sequence} of {self.uri} has another schema than the table has "
                "now: start the stream with another checkpoint, from a later version on"
            )
        else:
            reason = (
                f"the schema of {self.uri} was changed in version {version.sequence}: start the "
                "stream again to go on with it"
            )
        raise _Stop(ConflictError(reason))

    def check(self, offset: Offset | None) -> None:
        """Raise ConflictError for an offset of another table."""
        if offset is not None and offset.table != self.table:
            raise ConflictError(
                f"the checkpoint is of another table than the one at {self.uri} now: start the "
                "stream with another checkpoint"
            )


@dataclass(frozen=True, kw_only=True)
class StartStream(Request):
    """A table, and the options of the stream."""

    table: Handle
    options: Mapping[str, str]


@operation(StartStream)
def start_stream(request: StartStream) -> Reply:
    """The state of a new stream. Raises InvalidInput for options that make no sense."""
    handle, options = request.table, request.options
    snapshot = handle.snapshot()
    head = snapshot.head
    if not head.ours:
        raise UnsupportedTable(f"the table {handle.uri} was made by another client: no stream")
    snapshot.refuse_weak("read by a stream")
    if any(is_given(setting, options) for setting in TIME_TRAVEL):
        raise InvalidInput("a stream reads one version after the other: say startingVersion")
    refuse_options(options)
    timestamp = resolve(STARTING_TIMESTAMP, options)
    if timestamp is not None:
        if is_given(STARTING_VERSION, options):
            raise InvalidInput("a stream starts at a version or at a time: say only one of them")
        if timestamp.tzinfo is None:
            given = timestamp.isoformat()
            timestamp = moment_of(given, request.zone)
            if timestamp is None:
                raise InvalidInput(f"{STARTING_TIMESTAMP.name} {given} is out of range")
    limits = {what: resolve(setting, options) for what, setting in LIMITS.items()}
    stream = Stream(
        handle.uri,
        handle.options,
        head.table_id,
        head.schema.to_json(),
        resolve(STARTING_VERSION, options),
        None if timestamp is None else timestamp.isoformat(),
        resolve(SKIP_CHANGE_COMMITS, options),
        {what: limit for what, limit in limits.items() if limit is not None},
    )
    return {"stream": asdict(stream), "initial": INITIAL}


@dataclass(frozen=True, kw_only=True)
class NextOffset(Request):
    """A stream, where its next batch starts, and how far it may read."""

    stream: Stream
    start: str
    #: Whether the limits of the stream hold for the batch.
    limited: bool
    #: The last version that the query reads, if it ends.
    until: int | None


@operation(NextOffset)
def next_offset(request: NextOffset) -> Reply:
    """How far the next batch reads: to the newest version, or to where the limits are reached.

    It does not go beyond a version that changes rows or the schema. A batch that would begin with
    such a version is refused.
    """
    stream = request.stream
    newest = stream.newest()
    start = Offset.loads(request.start)
    stream.check(start)
    if start is None:
        start = _first(stream, newest)
    last = newest.sequence
    if request.until is not None:
        last = min(last, request.until)
    limits = stream.limits if request.limited else {}
    if limits:
        last = min(last, start.version + _MOST_VERSIONS)
    budget, end = Budget(limits), start
    try:
        for read in _reads(stream, newest, start, last, together=not limits):
            end = budget.take(read, end)
            if budget.spent:
                break
    except _Stop as stop:
        if end == start:
            raise stop.reason from None
    return {"end": end.dumps(), "newest": newest.sequence}


def _first(stream: Stream, newest: Snapshot) -> Offset:
    """Where a stream begins that has not read anything yet."""
    table = stream.table
    if stream.timestamp is not None:
        version = _version_at(newest, dt.datetime.fromisoformat(stream.timestamp))
        return Offset(table, version, False, version)
    if stream.version == "latest":
        return Offset(table, newest.sequence + 1, False, newest.sequence + 1)
    if stream.version == "earliest":
        return Offset(table, newest.sequence, True, newest.sequence)
    version = int(stream.version)
    if version > newest.sequence + 1:
        raise InvalidInput(
            f"the table {stream.uri} has no version {version} yet: its newest is {newest.sequence}"
        )
    return Offset(table, version, False, version)


def _version_at(newest: Snapshot, time: dt.datetime) -> int:
    """The first version that was committed at a time or later."""
    kept = newest.manifest.transactions(since=newest.head.oldest)
    before = [record.sequence for record in kept if record.committed_at < time]
    if before:
        return int(max(before)) + 1
    # All that are left are later; those before them have expired, and reading says so.
    return 1


def _reads(
    stream: Stream, newest: Snapshot, start: Offset, last: int, together: bool
) -> Iterator[Read]:
    """What there is to read from an offset to a version: version by version, or together.

    Raises _Stop at a version that the stream cannot go beyond.
    """
    location, version, file = stream.location, start.version, start.file
    try:
        if version <= last and start.is_whole(version):
            snapshot = newest.go_to(version)
            stream.check_schema(newest, snapshot)
            skipped, portions = everything(snapshot, file)
            yield Read(version, snapshot, file, cut(location, portions, file - skipped, _END))
            version, file = version + 1, 0
        if version <= last and file:
            yield from _added(stream, newest, version, version, file)
            version += 1
        yield from _added(stream, newest, version, last, together=together)
    except TableNotFound as error:
        raise _Stop(
            TableNotFound(
                f"a stream has to go on with version {start.version} of {stream.uri}, and what it "
                f"needs for that has expired ({error}): start it with another checkpoint"
            )
        ) from None


def _added(
    stream: Stream,
    newest: Snapshot,
    first: int,
    last: int,
    file: int = 0,
    together: bool = False,
) -> Iterator[Read]:
    """What some versions have added, from a file of the first on."""
    for step in _steps(newest, first, last, together):
        unreadable = step.added is None or not stream.can_read(newest, step.snapshot)
        if unreadable and step.first < step.last:
            # One of these versions cannot be read: one by one, they tell which.
            yield from _added(stream, newest, step.first, step.last)
            continue
        stream.check_schema(newest, step.snapshot)
        if step.added is None and not stream.skips:
            raise _Stop(_changes_rows(stream, step))
        files = cut(stream.location, step.added or (), file, _END)
        yield Read(step.first, step.snapshot, file, files)
        file = 0


_known: LruCache[tuple[str, str, int, bool], Increment] = LruCache(_KEPT)


def _steps(newest: Snapshot, first: int, last: int, together: bool) -> Iterator[Increment]:
    """Versions and what they did. Kept, because finding the end of a batch and planning it ask."""
    place = newest.location.uri, newest.head.table_id
    while first <= last:
        known = _known.get((*place, first, together))
        if known is None or known.last > last or first <= newest.head.oldest:
            break
        yield known
        first = known.last + 1
    if first > last:
        return
    for step in steps(newest, first, last, together):
        _known.put((*place, step.first, together), step)
        yield step


def _changes_rows(stream: Stream, step: Increment) -> PhalanxError:
    return ConflictError(
        f"version {step.last} of {stream.uri} ({step.operation}) changes or removes rows, which "
        "a stream cannot pass on: start it with the option skipChangeCommits=true to leave such "
        "versions out, or with another checkpoint"
    )


@dataclass(frozen=True, kw_only=True)
class StreamTasks(Request):
    """A stream, one batch of it, and what is wanted of the rows."""

    stream: Stream
    start: str
    end: str
    scan: ScanSettings


@operation(StreamTasks)
def stream_tasks(request: StreamTasks) -> Reply:
    """The tasks that read from one offset to another."""
    stream = request.stream
    newest = stream.newest()
    start, end = Offset.loads(request.start), Offset.loads(request.end)
    assert end is not None
    stream.check(start)
    stream.check(end)
    if start is None:
        start = end.first
    tasks = Tasks(stream.location, stream.table_schema, request.scan)
    chosen: list[Chosen] = []
    try:
        for read in _between(stream, newest, start, end):
            head = replace(read.snapshot.head, schema=stream.table_schema)
            chosen += [_chosen(tasks, portion, head) for portion in read.portions]
    except _Stop as stop:
        raise stop.reason from None
    return {"tasks": tasks.packed(chosen)}


def _between(stream: Stream, newest: Snapshot, start: Offset, end: Offset) -> Iterator[Read]:
    """What there is to read from one offset to another."""
    yield from _reads(stream, newest, start, end.version - 1, together=True)
    if end.file:
        rest = start if start.version == end.version else replace(end, file=0)
        for read in _reads(stream, newest, rest, end.version, together=False):
            files = cut(stream.location, read.portions, 0, end.file - read.at)
            yield replace(read, portions=files)


def _chosen(tasks: Tasks, portion: Portion, head: Head) -> Chosen:
    row, fragments = portion.row, portion.fragments
    partition = partition_name(next(s for s in head.specs if s.id == row.spec_id), row)
    given = head.given(row.spec_id, row.keys)
    if fragments is None:
        rows = -1 if row.row_count is None else row.row_count
        size = -1 if row.byte_count is None else row.byte_count
        small = not tasks.hidden and are_small(rows, size)
        return Chosen(row, tasks.piece(row, partition, given=given), portion.bytes, small)
    ids = tuple(fragment.id for fragment in fragments)
    sizes = {fragment.id: fragment.bytes for fragment in fragments}
    piece = tasks.piece(row, partition, fragments=ids, given=given)
    return Chosen(row, piece, portion.bytes, False, sizes)
