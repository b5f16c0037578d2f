"""Offsets: which rows of a table a stream reads next, and how far one batch goes.

An offset says which rows come next: those that a version has added, from one of its files on. A
stream that begins with the table as it is counts all files of that version first. Where it has
begun is part of every offset: so the first batch is the same also when it is run again later,
when the table has moved on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from phalanx.table.incremental import Portion
from phalanx.transaction.snapshot import Snapshot

#: What Spark starts from before there is an offset; where that is, the first batch says.
INITIAL = json.dumps({"initial": True})


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
