"""What each version of a table has added: the rows that it has and the one before had not.

A version is compared with the one before it, leaf by leaf and fragment by fragment: what it has
added is in fragments of their own. A version that has also taken rows out, or put others in
their place, has no such part. Upkeep moves rows into other files and adds none.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.errors import CorruptTable, TableNotFound
from phalanx.storage.leaf import fragments_of, written_anew
from phalanx.storage.leaf_index import LeafIndex
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.records import FragmentSize, LeafRow, TransactionRecord
from phalanx.transaction.snapshot import Snapshot

#: The operations that change where rows are, and no row.
UPKEEP = frozenset({"optimize", "rewrite"})


@dataclass(frozen=True)
class Portion:
    """Rows of one leaf: all, or those of some of its fragments. A fragment counts as a file."""

    row: LeafRow
    files: int
    rows: int
    bytes: int
    #: The fragments, in order; None for all of the leaf's.
    fragments: tuple[FragmentSize, ...] | None = None

    @staticmethod
    def of(row: LeafRow, fragments: Sequence[FragmentSize]) -> Portion:
        return Portion(
            row,
            len(fragments),
            sum(fragment.rows for fragment in fragments),
            sum(fragment.bytes for fragment in fragments),
            tuple(fragments),
        )

    @staticmethod
    def whole(location: Location, row: LeafRow) -> Portion:
        """All rows of a leaf. It is opened only where the manifest does not know its size."""
        sizes = row.fragment_count, row.row_count, row.byte_count
        if None in sizes:
            return Portion.of(row, fragments_of(location, row.location, row.read_version))
        files, rows, bytes = (size or 0 for size in sizes)
        return Portion(row, files, rows, bytes)

    def opened(self, location: Location) -> Portion:
        """The same with its fragments. Raises CorruptTable where the manifest has miscounted."""
        if self.fragments is not None:
            return self
        found = fragments_of(location, self.row.location, self.row.read_version)
        if len(found) != self.files:
            raise CorruptTable(
                f"the leaf {self.row.location} of {location.uri} has {len(found)} fragments, and "
                f"the manifest says {self.files}: run check()"
            )
        return Portion.of(self.row, found)

    def cut(self, location: Location, first: int, last: int) -> Portion:
        """The files from one on to before another."""
        if first <= 0 and last >= self.files:
            return self
        return Portion.of(self.row, (self.opened(location).fragments or ())[max(first, 0) : last])


def cut(
    location: Location, portions: Iterable[Portion], first: int, last: int
) -> Iterator[Portion]:
    """The files from one on to before another, counted over all portions."""
    at = 0
    for portion in portions:
        if at >= last:
            break
        if at + portion.files > first:
            yield portion.cut(location, first - at, last - at)
        at += portion.files


@dataclass(frozen=True)
class Increment:
    """A version, or several that follow one another, and what they did to the rows together."""

    first: int
    #: The table after the last of them.
    snapshot: Snapshot
    operation: str
    #: What they have added; None where they took rows out or put others in their place.
    added: tuple[Portion, ...] | None

    @property
    def last(self) -> int:
        return self.snapshot.sequence


def everything(snapshot: Snapshot, first: int = 0) -> tuple[int, Iterator[Portion]]:
    """All rows of a version, in the order of their partitions, from the leaf with a file on.

    Also how many files come before. Nothing is done for the leaves that are not asked for.
    """
    leaves, location = snapshot.leaves, snapshot.location
    before, skipped = 0, 0
    if not bool((leaves.fragment_counts < 0).any()):
        ends = np.cumsum(leaves.fragment_counts)
        before = int(np.searchsorted(ends, first, side="right"))
        skipped = int(ends[before - 1]) if before else 0
    rest = range(before, len(leaves))
    return skipped, (Portion.whole(location, leaves.row(index)) for index in rest)


def steps(newest: Snapshot, first: int, last: int, together: bool = False) -> Iterator[Increment]:
    """The versions from one to another, one after the other.

    With `together`, those that seem only to add rows are taken as one: that is much faster.
    Raises TableNotFound where a version, or the one before the first, is not there any more.
    """
    finder = _Finder(newest)
    for records in _runs(newest, first, last, together):
        low, high = records[0].sequence, records[-1].sequence
        before = finder.find(low - 1) if low > 1 else None
        after = finder.find(high)
        yield Increment(low, after, records[-1].operation or "", _added(before, after, records))


def _adds(record: TransactionRecord) -> bool:
    """Whether a transaction seems only to add rows."""
    other = record.operation in UPKEEP or record.operation == "rollback"
    return not record.rows_removed and not other


def _runs(
    newest: Snapshot, first: int, last: int, together: bool
) -> Iterator[list[TransactionRecord]]:
    """The transactions of some versions, in the groups that they are looked at in."""
    records = newest.manifest.transactions(since=first, until=last)
    by_version = {record.sequence: record for record in records}
    run: list[TransactionRecord] = []
    for version in range(first, last + 1):
        record = by_version.get(version)
        if run and not (together and record and _adds(record)):
            yield run
            run = []
        if record is None:
            raise TableNotFound(f"version {version} of the table {newest.location.uri} has expired")
        run.append(record)
        if not _adds(record):
            yield run
            run = []
    if run:
        yield run


class _Finder:
    """Finds snapshots of a table; one that follows the last one found it finds fast."""

    _NEAR = 8

    def __init__(self, newest: Snapshot) -> None:
        self._newest = newest
        self._versions = newest.manifest.versions()
        self._last: Snapshot | None = None

    def find(self, version: int) -> Snapshot:
        last = self._last
        if last is None or last.sequence != version:
            self._last = self._near(version) or self._newest.go_to(version)
        assert self._last is not None
        return self._last

    def _near(self, version: int) -> Snapshot | None:
        """The snapshot, if it is one of the next versions of the manifest."""
        if self._last is None or self._last.sequence + 1 != version:
            return None
        at = bisect.bisect_right(self._versions, self._last.manifest.version)
        for number in self._versions[at : at + self._NEAR]:
            with contextlib.suppress(CorruptTable):
                found = Snapshot(ManifestVersion(self._newest.location, number))
                if found.sequence == version:
                    return found
        return None


def _added(
    before: Snapshot | None, after: Snapshot, records: Sequence[TransactionRecord]
) -> tuple[Portion, ...] | None:
    """What some versions have added to the one before; None where they have changed other rows."""
    if records[-1].operation in UPKEEP:
        return ()
    if after.head.transactions == "weak":
        return None
    changed = LeafIndex.read(after.manifest, after.head, since=records[0].sequence).rows()
    may_remove = any(record.may_remove_leaves for record in records)
    removed = (
        may_remove and before is not None and before.manifest.leaf_ids() - after.manifest.leaf_ids()
    )
    if not changed and not removed:
        return ()
    if removed or not all(map(_adds, records)):
        return None
    known: dict[str, LeafRow] = {}
    if before is not None:
        ids = [row.object_id for row in changed]
        earlier = LeafIndex.read(before.manifest, before.head, ids=ids)
        known = {row.object_id: row for row in earlier.rows()}
    found = []
    for row in changed:
        fragments = _new_fragments(after.location, known.get(row.object_id), row)
        if fragments is None:
            return None
        if fragments:
            found.append(Portion.of(row, fragments))
    # Rows that came from somewhere else, such as an earlier version, are none that were added.
    if sum(portion.rows for portion in found) != sum(record.rows_added or 0 for record in records):
        return None
    return tuple(found)


def _new_fragments(
    location: Location, before: LeafRow | None, after: LeafRow
) -> list[FragmentSize] | None:
    """The fragments that have come to a leaf; None where others have changed."""
    found = fragments_of(location, after.location, after.read_version)
    if before is None:
        return found
    if before.read_version is None or before.location != after.location:
        return None
    added = _beside(found, fragments_of(location, before.location, before.read_version))
    if added is not None or after.read_version is None:
        return added
    # The first rows that come to a leaf after a change of the schema may make it be written anew.
    with contextlib.suppress(CorruptTable, OSError, ValueError):
        anew = written_anew(location, after.location, before.read_version, after.read_version)
        if anew is not None:
            return _beside(found, fragments_of(location, after.location, anew))
    return None


def _beside(
    found: Sequence[FragmentSize], older: Sequence[FragmentSize]
) -> list[FragmentSize] | None:
    """The fragments that are there beside others; None where those are not all as they were."""
    known = {fragment.id: fragment for fragment in older}
    stayed = [fragment for fragment in found if fragment.id in known]
    if len(stayed) < len(known):
        return None
    if not all(fragment.is_still(known[fragment.id]) for fragment in stayed):
        return None
    return [fragment for fragment in found if fragment.id not in known]
