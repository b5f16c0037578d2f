"""Offsets: which rows of a table a stream reads next, and how far one batch goes.

An offset says which rows come next: those that a version has added, from one of its files on. A
stream that begins with all rows of a version counts all files of that version first. Every offset
also says where its stream has begun, so that the first batch is the same when it is run again
later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from phalanx.table.incremental import Portion
from phalanx.transaction.snapshot import Snapshot

#: The offset that Spark starts from; the first batch says which version that is.
INITIAL = json.dumps({"initial": True})


@dataclass(frozen=True)
class Offset:
    """The rows that come next: those of a version, from one of its files on."""

    #: The table's id.
    table: str
    #: The version that the stream has begun with, and whether with all rows of it.
    start: int
    whole: bool
    version: int
    file: int = 0

    @staticmethod
    def loads(text: str) -> Offset | None:
        """The offset of a text; None for the one that Spark starts from."""
        values = json.loads(text)
        return None if "initial" in values else Offset(**values)

    def dumps(self) -> str:
        """The text of an offset. Spark compares offsets by their texts."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def first(self) -> Offset:
        """Where its stream has begun."""
        return replace(self, version=self.start, file=0)

    def is_whole(self, version: int) -> bool:
        """Whether all rows of a version are read, and not only those that it has added."""
        return self.whole and version == self.start


@dataclass(frozen=True)
class Read:
    """Files that are still to be read: of one version, or all of several."""

    #: The first version, and the table after the last one.
    first: int
    snapshot: Snapshot
    #: The number of the first file, and the files from there on.
    at: int
    portions: Iterator[Portion]


class Budget:
    """How much a batch may still read. It always reads a file, however large that is."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._left = dict(limits)
        self._any = False
        self.spent = False

    def take(self, read: Read, end: Offset) -> Offset:
        """The offset after what is taken of a version's files: all, or as many as are allowed."""
        if end.version != read.first:
            end = replace(end, version=read.first, file=0)
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
        return replace(end, version=read.snapshot.sequence + 1, file=0)

    def _fits(self, **amounts: int) -> bool:
        return all(amount <= self._left.get(what, amount) for what, amount in amounts.items())

    def _take(self, **amounts: int) -> None:
        for what in self._left.keys() & amounts.keys():
            self._left[what] -= amounts[what]
        self._any |= "files" in amounts
