"""What each version of a table has added: the rows that it has and the one before had not.

A version is compared with the one before it, leaf by leaf and fragment by fragment: what it has
added is in fragments of their own. A version that has also taken rows out, or put others in
their place, has no such part. Upkeep moves rows into other files and adds none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.errors import CorruptTable, TableNotFound
from phalanx.model.spelling import quote
from phalanx.storage.leaf import FragmentSize, Leaf
from phalanx.storage.leaves import LeafRow, Leaves
from phalanx.storage.location import Location
from phalanx.storage.manifest import TABLE, TRANSACTION, ManifestVersion
from phalanx.transaction.snapshot import Snapshot, sequence_of

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
            return Portion.of(row, Leaf(location, row.location).fragments(row.read_version))
        files, rows, bytes = (size or 0 for size in sizes)
        return Portion(row, files, rows, bytes)

    def opened(self, location: Location) -> Portion:
        """The same with its fragments. Raises CorruptTable where the manifest has miscounted."""
        if self.fragments is not None:
            return self
        found = Leaf(location, self.row.location).fragments(self.row.read_version)
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
    """One version, and what it did to the rows."""

    snapshot: Snapshot
    operation: str
    #: What it has added; None where it took rows out or put others in their place.
    added: tuple[Portion, ...] | None

    @property
    def version(self) -> int:
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


def steps(newest: Snapshot, first: int, last: int) -> Iterator[Step]:
    """The versions from one to another, one after the other.

    Raises TableNotFound where one of them, or the one before the first, is not there any more.
    """
    made = _transactions(newest, first, last)
    found = _snapshots(newest, max(first - 1, 1), last)
    before = next(found, None) if first > 1 else None
    for after in found:
        if after.sequence not in made:
            raise _removed(newest, after.sequence)
        described = made[after.sequence]
        yield Step(after, described.get("operation", ""), _added(before, after, described))
        before = after


def _transactions(newest: Snapshot, first: int, last: int) -> dict[int, dict[str, str]]:
    """What the transactions of some versions say of themselves."""
    wanted = f"object_type = '{TRANSACTION}' AND sequence >= {first} AND sequence <= {last}"
    rows = newest.manifest.read(["sequence", "metadata"], wanted).to_pylist()
    return {row["sequence"]: json.loads(row["metadata"]) for row in rows}


def _snapshots(newest: Snapshot, first: int, last: int) -> Iterator[Snapshot]:
    """The snapshots from one version to another: the first is searched, the others follow it."""
    if first > last:
        return
    found = newest.go_to(first)
    yield found
    follow = [v for v in newest.manifest.versions() if v > found.manifest.version]
    wanted = first + 1
    for version in follow:
        if wanted > last:
            return
        manifest = ManifestVersion(newest.location, version)
        if sequence_of(manifest) == wanted:
            yield Snapshot(manifest)
            wanted += 1
    if wanted <= last:
        raise _removed(newest, wanted)


def _removed(newest: Snapshot, version: int) -> TableNotFound:
    return TableNotFound(
        f"version {version} of the table {newest.location.uri} has been removed by vacuum"
    )


def _added(
    before: Snapshot | None, after: Snapshot, made: dict[str, str]
) -> tuple[Portion, ...] | None:
    """What a version has added to the one before it; None where it has changed other rows."""
    operation = made.get("operation", "")
    if operation in UPKEEP:
        return ()
    changed = _leaves(after, f"sequence = {after.sequence}")
    gone = int(made.get("rows_gone", 1)) and before is not None and _ids(before) - _ids(after)
    if not changed and not gone:
        return ()
    if gone or operation == "rollback" or int(made.get("rows_removed", 0)):
        return None
    known: dict[str, LeafRow] = {}
    if before is not None:
        ids = ", ".join(quote(row.object_id) for row in changed)
        known = {row.object_id: row for row in _leaves(before, f"object_id IN ({ids})")}
    found = []
    for row in changed:
        fragments = _new_fragments(after.location, known.get(row.object_id), row)
        if fragments is None:
            return None
        if fragments:
            found.append(Portion.of(row, fragments))
    # Rows that came from somewhere else, such as an earlier version, are none that were added.
    if sum(portion.rows for portion in found) != int(made.get("rows_added", 0)):
        return None
    return tuple(found)


def _new_fragments(
    location: Location, before: LeafRow | None, after: LeafRow
) -> list[FragmentSize] | None:
    """The fragments that have come to a leaf; None where others have changed."""
    leaf = Leaf(location, after.location)
    found = leaf.fragments(after.read_version)
    if before is None:
        return found
    if before.read_version is None or before.location != after.location:
        return None
    known = {fragment.id: fragment for fragment in leaf.fragments(before.read_version)}
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
    return [leaves.row(index) for index in range(len(leaves))]


def _ids(snapshot: Snapshot) -> set[str]:
    """The ids of all leaves of a version."""
    found = snapshot.manifest.read(["object_id"], f"object_type = '{TABLE}'")
    return set(found.column("object_id").to_pylist())
