"""Incremental reads: the rows that each version of a table added to the one before.

A version is compared with the previous one, leaf by leaf and fragment by fragment: added rows are
in new fragments. A version that also deleted, updated or replaced rows has no such part. Operations
that only move rows to other files, such as optimize, add none.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.errors import CorruptTable, TableNotFound
from phalanx.storage.leaf import fragments_of, rewritten_version
from phalanx.storage.leaf_index import LeafIndex
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.records import FragmentSize, LeafRow, TransactionRecord
from phalanx.transaction.snapshot import Snapshot

#: The operations that move rows to other files and change none.
UPKEEP = frozenset({"optimize", "rewrite"})


@dataclass(frozen=True)
class Portion:
    """Rows of one leaf: all of them, or those of some fragments. A fragment counts as one file."""

    row: LeafRow
    files: int
    rows: int
    bytes: int
    #: The fragments, in order; None for all fragments of the leaf.
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
        """All rows of a leaf. The leaf is opened only if the manifest does not know its size."""
        sizes = row.fragment_count, row.row_count, row.byte_count
        if None in sizes:
            return Portion.of(row, fragments_of(location, row.location, row.read_version))
        files, rows, bytes = (size or 0 for size in sizes)
        return Portion(row, files, rows, bytes)

    def opened(self, location: Location) -> Portion:
        """This portion with its list of fragments.

        Raises CorruptTable if the leaf does not have as many as the manifest says.
        """
        if self.fragments is not None:
            return self
        fragments = fragments_of(location, self.row.location, self.row.read_version)
        if len(fragments) != self.files:
            raise CorruptTable(
                f"the leaf {self.row.location} of {location.uri} has {len(fragments)} fragments, "
                f"and the manifest says {self.files}: run check()"
            )
        return Portion.of(self.row, fragments)

    def cut(self, location: Location, first: int, last: int) -> Portion:
        """The files with the numbers `first` up to, but not including, `last`."""
        if first <= 0 and last >= self.files:
            return self
        return Portion.of(self.row, (self.opened(location).fragments or ())[max(first, 0) : last])


def cut(
    location: Location, portions: Iterable[Portion], first: int, last: int
) -> Iterator[Portion]:
    """The files with the numbers `first` up to, but not including, `last`, over all portions."""
    at = 0
    for portion in portions:
        if at >= last:
            break
        if at + portion.files > first:
            yield portion.cut(location, first - at, last - at)
        at += portion.files


@dataclass(frozen=True)
class Increment:
    """One version, or several consecutive ones, and the rows that they added together."""

    first: int
    #: The table at the last of these versions.
    snapshot: Snapshot
    operation: str
    #: The added rows; None if rows were deleted, updated or replaced.
    added: tuple[Portion, ...] | None

    @property
    def last(self) -> int:
        return self.snapshot.sequence


def everything(snapshot: Snapshot, first: int = 0) -> tuple[int, Iterator[Portion]]:
    """All rows of a version, by partition, starting at the leaf that has the file `first`.

    Also returns the number of files before that leaf. Leaves are looked at only when the iterator
    reaches them.
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
    """The versions from `first` to `last`, in order.

    With `together`, consecutive versions that seem only to add rows become one increment, which is
    much faster. Raises TableNotFound if one of the versions, or the one before `first`, has
    expired.
    """
    finder = _Finder(newest)
    for records in _runs(newest, first, last, together):
        low, high = records[0].sequence, records[-1].sequence
        before = finder.find(low - 1) if low > 1 else None
        after = finder.find(high)
        yield Increment(low, after, records[-1].operation or "", _added(before, after, records))


def _adds(record: TransactionRecord) -> bool:
    """Whether a transaction seems only to add rows, by its record."""
    other = record.operation in UPKEEP or record.operation == "rollback" or record.restores
    return not record.rows_removed and not other


def _runs(
    newest: Snapshot, first: int, last: int, together: bool
) -> Iterator[list[TransactionRecord]]:
    """The transactions of the versions, in groups that become one increment each."""
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
    """Finds snapshots of a table; fast for the version after the last one it found."""

    #: How many of the next manifest versions are tried before a binary search.
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
        """The snapshot, if it is in one of the next versions of the manifest."""
        if self._last is None or self._last.sequence + 1 != version:
            return None
        at = bisect.bisect_right(self._versions, self._last.manifest.version)
        for number in self._versions[at : at + self._NEAR]:
            with contextlib.suppress(CorruptTable):
                snapshot = Snapshot(ManifestVersion(self._newest.location, number))
                if snapshot.sequence == version:
                    return snapshot
        return None


def _added(
    before: Snapshot | None, after: Snapshot, records: Sequence[TransactionRecord]
) -> tuple[Portion, ...] | None:
    """The rows that the transactions added to `before`; None if they also changed other rows."""
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
    portions = []
    for row in changed:
        fragments = _new_fragments(after.location, known.get(row.object_id), row)
        if fragments is None:
            return None
        if fragments:
            portions.append(Portion.of(row, fragments))
    # New fragments may also hold rows that were not added, such as those of a restored version.
    rows = sum(portion.rows for portion in portions)
    if rows != sum(record.rows_added or 0 for record in records):
        return None
    return tuple(portions)


def _new_fragments(
    location: Location, before: LeafRow | None, after: LeafRow
) -> list[FragmentSize] | None:
    """The fragments that were added to a leaf; None if existing fragments have changed."""
    fragments = fragments_of(location, after.location, after.read_version)
    if before is None:
        return fragments
    if before.read_version is None or before.location != after.location:
        return None
    added = _beside(fragments, fragments_of(location, before.location, before.read_version))
    if added is not None or after.read_version is None:
        return added
    # The first append to a leaf after a change of the schema may rewrite its existing rows.
    with contextlib.suppress(CorruptTable, OSError, ValueError):
        versions = before.read_version, after.read_version
        rewritten = rewritten_version(location, after.location, *versions)
        if rewritten is not None:
            return _beside(fragments, fragments_of(location, after.location, rewritten))
    return None


def _beside(
    fragments: Sequence[FragmentSize], older: Sequence[FragmentSize]
) -> list[FragmentSize] | None:
    """The fragments that are not among the older ones; None if an older one is gone or changed."""
    known = {fragment.id: fragment for fragment in older}
    stayed = [fragment for fragment in fragments if fragment.id in known]
    if len(stayed) < len(known):
        return None
    if not all(fragment.is_still(known[fragment.id]) for fragment in stayed):
        return None
    return [fragment for fragment in fragments if fragment.id not in known]
