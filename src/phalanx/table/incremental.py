"""What each version of a table has added: the rows that it has and the one before had not.

A version is compared with the one before it, leaf by leaf and fragment by fragment: what it has
added is in fragments of their own. A version that has also taken rows out, or put others in
their place, has no such part. Upkeep moves rows into other files and adds none.
"""

from __future__ import annotations

import bisect
import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.errors import CorruptTable, TableNotFound
from phalanx.model.spelling import quote
from phalanx.storage.leaf import FragmentSize, fragments_of, written_anew
from phalanx.storage.leaf_index import LeafRow, Leaves
from phalanx.storage.location import Location
from phalanx.storage.manifest import TABLE, TRANSACTION, ManifestVersion
from phalanx.transaction.snapshot import Snapshot

#: The operations that change where rows are, and no row.
UPKEEP = frozenset({"optimize", "rewrite"})
#: How many leaves are looked up by their ids in one go.
_AT_ONCE = 1000


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
class Step:
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


def steps(newest: Snapshot, first: int, last: int, together: bool = False) -> Iterator[Step]:
    """The versions from one to another, one after the other.

    With `together`, those that seem only to add rows are taken as one: that is much faster.
    Raises TableNotFound where a version, or the one before the first, is not there any more.
    """
    finder = _Finder(newest)
    for made in _runs(newest, first, last, together):
        low, high = made[0].version, made[-1].version
        before = finder.find(low - 1) if low > 1 else None
        after = finder.find(high)
        yield Step(low, after, made[-1].operation, _added(before, after, made))


@dataclass(frozen=True)
class _Made:
    """What a transaction says of itself."""

    version: int
    operation: str
    added: int
    removed: int
    #: Whether rows of the manifest went with it.
    gone: bool

    @property
    def adds(self) -> bool:
        """Whether it seems only to add rows."""
        return not self.removed and self.operation not in UPKEEP and self.operation != "rollback"


def _runs(newest: Snapshot, first: int, last: int, together: bool) -> Iterator[list[_Made]]:
    """The transactions of some versions, in the groups that they are looked at in."""
    wanted = f"object_type = '{TRANSACTION}' AND sequence >= {first} AND sequence <= {last}"
    rows = newest.manifest.read(["sequence", "metadata"], wanted).to_pylist()
    found = {row["sequence"]: json.loads(row["metadata"]) for row in rows}
    run: list[_Made] = []
    for version in range(first, last + 1):
        described = found.get(version)
        made = described and _Made(
            version,
            described.get("operation", ""),
            int(described.get("rows_added", 0)),
            int(described.get("rows_removed", 0)),
            bool(int(described.get("rows_gone", 1))),
        )
        if run and not (together and made and made.adds):
            yield run
            run = []
        if not made:
            raise TableNotFound(f"version {version} of the table {newest.location.uri} has expired")
        run.append(made)
        if not made.adds:
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
    before: Snapshot | None, after: Snapshot, made: Sequence[_Made]
) -> tuple[Portion, ...] | None:
    """What some versions have added to the one before; None where they have changed other rows."""
    if made[-1].operation in UPKEEP:
        return ()
    if after.head.transactions == "weak":
        return None
    since = made[0].version - 1
    changed = _leaves(after, f"sequence > {since}")
    went = any(one.gone for one in made)
    gone = went and before is not None and _ids(before) - _ids(after)
    if not changed and not gone:
        return ()
    if gone or not all(one.adds for one in made):
        return None
    known: dict[str, LeafRow] = {}
    if before is not None:
        known = _by_id(before, [row.object_id for row in changed])
    found = []
    for row in changed:
        fragments = _new_fragments(after.location, known.get(row.object_id), row)
        if fragments is None:
            return None
        if fragments:
            found.append(Portion.of(row, fragments))
    # Rows that came from somewhere else, such as an earlier version, are none that were added.
    if sum(portion.rows for portion in found) != sum(one.added for one in made):
        return None
    return tuple(found)


def _by_id(snapshot: Snapshot, ids: Sequence[str]) -> dict[str, LeafRow]:
    """Some leaves of a version by their ids."""
    found: dict[str, LeafRow] = {}
    for start in range(0, len(ids), _AT_ONCE):
        wanted = ", ".join(quote(id) for id in ids[start : start + _AT_ONCE])
        found |= {row.object_id: row for row in _leaves(snapshot, f"object_id IN ({wanted})")}
    return found


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


def _leaves(snapshot: Snapshot, which: str) -> list[LeafRow]:
    """Some leaves of a version, without a look at the others."""
    manifest, head = snapshot.manifest, snapshot.head
    rows = manifest.read(Leaves.columns_in(head), f"object_type = '{TABLE}' AND {which}")
    leaves = Leaves.of_rows(rows, manifest, head)
    return leaves.rows()


def _ids(snapshot: Snapshot) -> set[str]:
    """The ids of all leaves of a version."""
    found = snapshot.manifest.read(["object_id"], f"object_type = '{TABLE}'")
    return set(found.column("object_id").to_pylist())
