"""Reading as a stream: from where to where each batch reads, and what is in between.

An offset says which rows come next: those that a version has added, from one of its files on. A
stream that begins with the table as it is counts all files of that version first. Where it has
begun is part of every offset: so the first batch is the same also when it is run again later,
when the table has moved on.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import zoneinfo
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from phalanx.errors import (
    ConflictError,
    InvalidInput,
    PhalanxError,
    TableNotFound,
    UnsupportedTable,
)
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionSpec
from phalanx.spark.door import Reply, Request, operation
from phalanx.spark.handles import Handle
from phalanx.spark.tasks import Chosen, Tasks
from phalanx.storage.location import Location
from phalanx.storage.manifest import TRANSACTION
from phalanx.table.added import Portion, Step, cut, everything, steps
from phalanx.table.plan import partition_name
from phalanx.table.scan import is_small
from phalanx.transaction.snapshot import Snapshot

#: What Spark starts from before there is an offset; where that is, the first batch says.
INITIAL = json.dumps({"initial": True})
#: How many versions are looked at for one batch where there is a limit to it.
_MOST_VERSIONS = 500
_KEPT = 64


@dataclass(frozen=True)
class Offset:
    """What comes next: the rows of a version, from one of its files on."""

    #: The table's id.
    table: str
    #: The version that the stream has begun with, and whether with all of its rows.
    start: int
    whole: bool
    version: int
    file: int = 0

    @staticmethod
    def loads(text: str) -> Offset | None:
        """None for the offset that Spark starts from."""
        found = json.loads(text)
        return None if "initial" in found else Offset(**found)

    def dumps(self) -> str:
        """Equal offsets are equal texts: Spark compares those."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def first(self) -> Offset:
        """Where its stream has begun."""
        return replace(self, version=self.start, file=0)

    def is_whole(self, version: int) -> bool:
        """Whether all rows of a version are read, and not only those that it has added."""
        return self.whole and version == self.start


@dataclass(frozen=True)
class Stream:
    """A stream between calls. Spark sends it back with every one."""

    uri: str
    options: Mapping[str, str] | None
    table: str
    #: The schema that the table had when the stream was started, as JSON.
    schema: dict[str, Any]
    #: What its options say.
    version: str | None
    timestamp: str | None
    skips: bool
    limits: Mapping[str, int]

    @property
    def location(self) -> Location:
        return Location(self.uri, self.options)

    def newest(self) -> Snapshot:
        """The newest snapshot. Raises ConflictError where it is another table by now."""
        found = Snapshot.latest(self.location)
        if found.head.table_id != self.table:
            raise ConflictError(
                f"the table {self.uri} was dropped and made again: start the stream with another "
                "checkpoint"
            )
        return found

    def check(self, offset: Offset | None) -> None:
        """Raise ConflictError for an offset of another table."""
        if offset is not None and offset.table != self.table:
            raise ConflictError(
                f"the checkpoint is of another table than the one at {self.uri} now: start the "
                "stream with another checkpoint"
            )


@operation
def start_stream(request: Request) -> Reply:
    """What is to be remembered of a stream. Raises InvalidInput for impossible options."""
    handle = Handle.from_json(request["table"])
    options = {name.lower(): value for name, value in request["options"].items()}
    snapshot = handle.snapshot()
    head = snapshot.head
    if not head.ours:
        raise UnsupportedTable(f"the table {handle.uri} was made by another client: no stream")
    snapshot.refuse_weak("read by a stream")
    for name in ("versionasof", "timestampasof"):
        if name in options:
            raise InvalidInput("a stream reads one version after the other: say startingVersion")
    version, timestamp = options.get("startingversion"), options.get("startingtimestamp")
    if version is not None and timestamp is not None:
        raise InvalidInput("a stream starts at a version or at a time: say only one of them")
    if version not in (None, "earliest", "latest") and not _is_number(version):
        raise InvalidInput(f"startingVersion is a version, 'earliest' or 'latest', not {version!r}")
    limits = {}
    for what in ("files", "bytes", "rows", "versions"):
        name = f"max{what.title()}PerTrigger"
        text = options.get(name.lower())
        if text is not None:
            if not _is_number(text):
                raise InvalidInput(f"{name} is a whole number from 1, not {text!r}")
            limits[what] = int(text)
    skips = options.get("skipchangecommits", "false").lower()
    if skips not in ("true", "false"):
        raise InvalidInput(f"skipChangeCommits is true or false, not {skips!r}")
    if timestamp is not None:
        timestamp = _moment(timestamp, request["zone"]).isoformat()
    stream = Stream(
        handle.uri,
        handle.options,
        head.table_id,
        head.schema.to_json(),
        version,
        timestamp,
        skips == "true",
        limits,
    )
    return {"stream": vars(stream), "initial": INITIAL}


def _is_number(text: str | None) -> bool:
    return text is not None and text.isdigit() and text.isascii() and int(text) > 0


def _moment(text: str, zone: str) -> dt.datetime:
    """A time as a user writes it; without a zone it is one of the session's."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"startingTimestamp is a time such as '2026-11-15 12:00:00', not {text!r}"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=zoneinfo.ZoneInfo(zone))


@operation
def next_offset(request: Request) -> Reply:
    """How far the next batch reads.

    Up to the newest version, or to where the limits are reached; and not beyond a version that
    changes rows or the schema. A batch that would have to begin with such a one is refused.
    """
    stream = Stream(**request["stream"])
    newest = stream.newest()
    start = Offset.loads(request["start"])
    stream.check(start)
    if start is None:
        start = _first(stream, newest)
    until = request.get("until")
    last = newest.sequence if until is None else min(newest.sequence, until)
    budget = _Budget(stream.limits if request["limited"] else {})
    if request["limited"]:
        last = min(last, start.version + _MOST_VERSIONS)
    end = start
    try:
        for read in _reads(stream, newest, start, last):
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
    if stream.version in (None, "earliest"):
        return Offset(table, newest.sequence, True, newest.sequence)
    version = int(stream.version)
    if version > newest.sequence + 1:
        raise InvalidInput(
            f"the table {stream.uri} has no version {version} yet: its newest is {newest.sequence}"
        )
    return Offset(table, version, False, version)


def _version_at(newest: Snapshot, time: dt.datetime) -> int:
    """The first version that was committed at a time or later."""
    columns, kept = ["sequence", "committed_at"], f"sequence >= {newest.head.oldest}"
    rows = newest.manifest.read(columns, f"object_type = '{TRANSACTION}' AND {kept}").to_pylist()
    before = [row["sequence"] for row in rows if row["committed_at"] < time]
    if before:
        return int(max(before)) + 1
    # Whether the oldest one that is left was the first at that time, nobody knows any more.
    return 1


class _Stop(Exception):
    """A stream cannot go beyond a version, and why."""

    def __init__(self, reason: PhalanxError) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True)
class _Read:
    """The files of one version that are still to be read."""

    snapshot: Snapshot
    #: The number of the first file, and the files from there on.
    at: int
    portions: Iterator[Portion]

    @property
    def version(self) -> int:
        return self.snapshot.sequence


def _reads(stream: Stream, newest: Snapshot, start: Offset, last: int) -> Iterator[_Read]:
    """What there is to read from an offset on, up to a version, one version after the other.

    Raises _Stop at a version that the stream cannot go beyond.
    """
    schema = TableSchema.from_json(stream.schema)
    version, file = start.version, start.file
    try:
        if version <= last and start.is_whole(version):
            snapshot = newest.go_to(version)
            _check_schema(stream, schema, newest, snapshot)
            skipped, portions = everything(snapshot, file)
            found = cut(stream.location, portions, file - skipped, sys.maxsize)
            yield _Read(snapshot, file, found)
            version, file = version + 1, 0
        for step in _steps(newest, version, last):
            _check_schema(stream, schema, newest, step.snapshot)
            added = step.added
            if added is None:
                if not stream.skips:
                    raise _Stop(_changes_rows(stream, step))
                added = ()
            yield _Read(step.snapshot, file, cut(stream.location, added, file, sys.maxsize))
            file = 0
    except TableNotFound as error:
        raise _Stop(
            TableNotFound(
                f"a stream has to go on with version {start.version} of {stream.uri}, and what it "
                f"needs for that has expired ({error}): start it with another checkpoint"
            )
        ) from None


_known: OrderedDict[tuple[str, str, int], Step] = OrderedDict()


def _steps(newest: Snapshot, first: int, last: int) -> Iterator[Step]:
    """Versions and what they did. A batch is planned after its end was found: both ask."""
    waiting = first
    while waiting <= last:
        key = (newest.location.uri, newest.head.table_id, waiting)
        known = _known.get(key)
        if known is None or waiting <= newest.head.oldest:
            break
        yield known
        waiting += 1
    for step in steps(newest, waiting, last) if waiting <= last else ():
        _known[(newest.location.uri, newest.head.table_id, step.version)] = step
        while len(_known) > _KEPT:
            _known.popitem(last=False)
        yield step


def _check_schema(stream: Stream, schema: TableSchema, newest: Snapshot, found: Snapshot) -> None:
    if found.head.schema == schema:
        return
    if newest.head.schema == schema:
        raise _Stop(
            ConflictError(
                f"version {found.sequence} of {stream.uri} has another schema than the table has "
                "now: start the stream with another checkpoint, from a later version on"
            )
        )
    raise _Stop(
        ConflictError(
            f"the schema of {stream.uri} was changed in version {found.sequence}: start the "
            "stream again to go on with it"
        )
    )


def _changes_rows(stream: Stream, step: Step) -> PhalanxError:
    return ConflictError(
        f"version {step.version} of {stream.uri} ({step.operation}) changes or removes rows, which "
        "a stream cannot pass on: start it with the option skipChangeCommits=true to leave such "
        "versions out, or with another checkpoint"
    )


class _Budget:
    """How much a batch may still read. It always reads a file, however large that is."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._left = dict(limits)
        self._any = False
        self.spent = False

    def take(self, read: _Read, end: Offset) -> Offset:
        """The offset after what is taken of a version's files: all, or as many as are allowed."""
        if end.version != read.version:
            end = replace(end, version=read.version, file=0)
        location = read.snapshot.location
        at, entered = read.at, False
        for portion in read.portions:
            if not entered and not self._fits(versions=1):
                self.spent = True
                return replace(end, file=at)
            entered = True
            whole = {"files": portion.files, "rows": portion.rows, "bytes": portion.bytes}
            if self._fits(**whole):
                self._take(**whole)
                at += portion.files
                continue
            for fragment in portion.opened(location).fragments or ():
                one = {"files": 1, "rows": fragment.rows, "bytes": fragment.bytes}
                if self._any and not self._fits(**one):
                    self.spent = True
                    return replace(end, file=at)
                self._take(**one)
                at += 1
        if entered:
            self._take(versions=1)
        return replace(end, version=read.version + 1, file=0)

    def _fits(self, **amounts: int) -> bool:
        return all(amount <= self._left.get(what, amount) for what, amount in amounts.items())

    def _take(self, **amounts: int) -> None:
        for what in self._left.keys() & amounts.keys():
            self._left[what] -= amounts[what]
        self._any |= "files" in amounts


@operation
def stream_tasks(request: Request) -> Reply:
    """The tasks that read from one offset to another."""
    stream = Stream(**request["stream"])
    newest = stream.newest()
    start, end = Offset.loads(request["start"]), Offset.loads(request["end"])
    assert end is not None
    stream.check(start)
    stream.check(end)
    if start is None:
        start = end.first
    tasks = Tasks(stream.location, TableSchema.from_json(stream.schema), request)
    last = end.version if end.file else end.version - 1
    chosen: list[Chosen] = []
    try:
        for read in _reads(stream, newest, start, last):
            until = end.file if read.version == end.version else sys.maxsize
            found = cut(stream.location, read.portions, 0, until - read.at)
            specs = {spec.id: spec for spec in read.snapshot.head.specs}
            chosen += [_chosen(tasks, portion, specs) for portion in found]
    except _Stop as stop:
        raise stop.reason from None
    return {"tasks": tasks.packed(chosen)}


def _chosen(tasks: Tasks, portion: Portion, specs: Mapping[int, PartitionSpec]) -> Chosen:
    row, fragments = portion.row, portion.fragments
    partition = partition_name(specs[row.spec_id], row)
    if fragments is None:
        bundled = not tasks.hidden and is_small(row)
        return Chosen(row, tasks.piece(row, partition), portion.bytes, bundled)
    ids = tuple(fragment.id for fragment in fragments)
    sizes = {fragment.id: fragment.bytes for fragment in fragments}
    piece = tasks.piece(row, partition, fragments=ids)
    return Chosen(row, piece, portion.bytes, False, sizes)
