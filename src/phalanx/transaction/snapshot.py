"""A snapshot: one version of the manifest, and with it one version of every leaf."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from phalanx.errors import InvalidInput, PhalanxError, TableNotFound, UnsupportedTable
from phalanx.lru import LruCache
from phalanx.model.literals import parse_timestamp
from phalanx.model.spelling import shortened
from phalanx.storage import cache, forms
from phalanx.storage.head import Head
from phalanx.storage.lance_errors import LANCE_ERRORS
from phalanx.storage.leaf_index import LeafIndex
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestChanges, ManifestVersion, NoManifest
from phalanx.storage.records import LeafRow, TagRecord

#: What identifies a snapshot: its version, a tag, or a time, which may be text or a date.
Version = int | str | dt.datetime | dt.date

#: A cached snapshot is written again once it is this many transactions behind.
_SAVE_AFTER = 16
#: A known snapshot that is more than this many transactions behind is not used.
_TOO_OLD = 5_000
#: Statistics of at most this many changed leaves are kept for the next change.
_FEW_LEAVES = 64
#: If more leaves have changed than this, and a quarter of all, the snapshot is read as a whole.
_MANY_LEAVES = 2_000


class Snapshot:
    """The table as one transaction left it. Everything read through it is of that version."""

    def __init__(
        self,
        manifest: ManifestVersion,
        head: Head | None = None,
        leaves: LeafIndex | None = None,
        news: frozenset[str] | None = None,
    ) -> None:
        """`head` and `leaves` are read from the manifest if they are not passed in."""
        self.manifest = manifest
        self.head = manifest.head() if head is None else head
        self._leaves = leaves
        #: The transactions since the snapshot that this one was advanced from; None if unknown.
        self.news = news
        #: Statistics that were read along with it, by the leaf's id, as they are in the manifest.
        self.statistics: Mapping[str, Any] = {}

    @staticmethod
    def latest(location: Location, known: Snapshot | None = None) -> Snapshot:
        """The newest snapshot. With a `known` snapshot, only changes since that one are read.

        Raises TableNotFound if there is no table.
        """
        recent = known or _recent.get(location.uri)
        manifest = forms.open_manifest(location, None if recent is None else recent.manifest)
        snapshot = None if known is None else _advanced(manifest, known)
        if snapshot is None:
            snapshot = _recalled(manifest) or Snapshot(manifest)
            snapshot.news = None
        _recent.put(location.uri, snapshot)
        return snapshot

    @staticmethod
    def unborn(location: Location, head: Head) -> Snapshot:
        """The snapshot of a table that does not exist yet in this form: a head without leaves."""
        return Snapshot(NoManifest(location), head, LeafIndex.empty(head.specs))

    @staticmethod
    def at(location: Location, version: Version) -> Snapshot:
        """The snapshot with a version or a tag, or the one that was current at a time.

        Raises TableNotFound if it does not exist or has expired, and InvalidInput for a weak table.
        """
        newest = Snapshot.latest(location)
        newest.refuse_weak("opened at a version")
        return newest.find(version)

    def find(self, version: Version) -> Snapshot:
        """The snapshot with a version or a tag, or the one that was current at a time.

        Text that is not a tag may be a time, such as "2025-12-31" or "2025-12-31T12:00:00+01:00"; a
        date means its first instant, and without a zone a time is in UTC.
        Raises TableNotFound if it does not exist, is newer than this one or has expired. Raises
        InvalidInput for a version from before the table became strong: only its leaves are known,
        not their rows.
        """
        if isinstance(version, str) and version not in self.tags():
            version = _time_of(version) or version
        if isinstance(version, dt.date) and not isinstance(version, dt.datetime):
            version = dt.datetime.combine(version, dt.time(), dt.UTC)
        if isinstance(version, dt.datetime):
            version = self.sequence_at(version)
        if isinstance(version, str):
            snapshot = self._tagged(version)
        elif isinstance(version, int) and not isinstance(version, bool):
            snapshot = self.go_to(version)
        else:
            raise InvalidInput(f"a version is a whole number, a tag or a datetime, not {version!r}")
        if snapshot.head.transactions == "weak":
            raise InvalidInput(
                f"version {snapshot.sequence} of the table {self.location.uri} is from when it was "
                "weak: which rows it had then is not known"
            )
        return snapshot

    def with_leaves(self, leaves: LeafIndex, head: Head | None = None) -> Snapshot:
        """This snapshot with other leaves: what a transaction sees before it commits."""
        return Snapshot(self.manifest, head or self.head, leaves)

    @property
    def lasts(self) -> bool:
        """Whether its version and transaction always stand for the same rows.

        They do not in a weak table, in one of another client, and in one that is not created yet.
        """
        is_ours = type(self.manifest) is ManifestVersion
        return is_ours and self.head.transactions == "strong" and bool(self.head.transaction_id)

    @property
    def location(self) -> Location:
        return self.manifest.location

    @property
    def sequence(self) -> int:
        return self.head.sequence

    @property
    def leaves(self) -> LeafIndex:
        if self._leaves is not None:
            return self._leaves
        self._leaves = LeafIndex.read(self.manifest, self.head)
        if self._is_newest:
            cache.save(self.manifest, self.head, self._leaves)
        return self._leaves

    def cache_after(self, changed: int, before: Snapshot) -> None:
        """Cache the leaves after a commit that has changed many, for other processes.

        After a few changes they advance from the snapshot `before`.
        """
        if not _are_many(changed, before.leaves):
            return
        with contextlib.suppress(PhalanxError, *LANCE_ERRORS):
            # The commit may have compacted the manifest, and others may have changed the table.
            newest = ManifestVersion(self.location)
            if newest.head().transaction_id == self.head.transaction_id:
                cache.save(newest, self.head, self.leaves)

    @property
    def _is_newest(self) -> bool:
        """Whether this was the newest snapshot when it was opened: only those are cached."""
        return not self._is_old

    _is_old = False

    def sequence_at(self, time: dt.datetime) -> int:
        """The version that was current at a time; a time without a zone is in UTC.

        Raises TableNotFound if the table did not exist then, or if the version has expired.
        """
        if time.tzinfo is None:
            time = time.replace(tzinfo=dt.UTC)
        if time >= self.head.committed_at:
            return self.sequence
        # Expired versions are ignored even if they have a tag: when they were replaced is unknown.
        kept = self.manifest.transactions(since=self.head.oldest)
        versions = [record.sequence for record in kept if record.committed_at <= time]
        if not versions and self.head.oldest > 1:
            raise TableNotFound(
                f"the version of the table {self.location.uri} at {time} has expired"
            )
        if not versions:
            raise TableNotFound(f"the table {self.location.uri} did not exist yet at {time}")
        return max(versions)

    def check_writable(self) -> None:
        """Raise UnsupportedTable if this version of Phalanx must not write to the table."""
        self.refuse_listed("changed like this")
        self.head.check_writable(self.location.uri)

    def refuse_listed(self, what: str) -> None:
        """Raise UnsupportedTable for a tree of folders that has no manifest."""
        if self.manifest.is_listed:
            raise UnsupportedTable(
                f"the tree {self.location.uri} cannot be {what}, because it has no manifest: make "
                "it a table with phalanx.interop.hive.adopt"
            )

    def refuse_weak(self, what: str) -> None:
        """Raise InvalidInput for a weak table, which has no snapshots of its rows."""
        if self.head.transactions == "weak":
            raise InvalidInput(
                f"the table {self.location.uri} is weak and cannot be {what}: its rows are read as "
                "they are now"
            )

    def tags(self) -> dict[str, TagRecord]:
        """The tags of the table, by name."""
        return self.manifest.tags()

    def _tagged(self, name: str) -> Snapshot:
        tags = self.tags()
        if name not in tags:
            names = ", ".join(sorted(tags)) or "none"
            hint = f"; version {name} is the number {name}" if name.isdecimal() else ""
            raise TableNotFound(
                f"the table {self.location.uri} has no tag {shortened(repr(name))}: it has "
                f"{names}{hint}"
            )
        snapshot = Snapshot(ManifestVersion(self.location, tags[name].manifest_version))
        snapshot._is_old = True
        return snapshot

    def go_to(self, sequence: int) -> Snapshot:
        """The snapshot with a version, found by binary search over versions of the manifest.

        If several versions of the manifest hold it, the last of them is opened, because vacuum
        removes that one last. Raises TableNotFound if the version does not exist or has expired.
        """
        if sequence == self.sequence:
            return self
        missing = TableNotFound(
            f"the table {self.location.uri} has no version {sequence}: its newest is "
            f"{self.sequence}"
        )
        if not 1 <= sequence < self.sequence or not self.head.ours:
            raise missing
        about = f"version {sequence} of the table {self.location.uri} has"
        if not self.can_open(sequence):
            raise TableNotFound(f"{about} expired")
        removed = TableNotFound(f"{about} been removed from the manifest")
        versions = [v for v in self.manifest.versions() if v <= self.manifest.version]
        sequence_in = functools.cache(self._sequence_in)
        low, high = 0, len(versions)
        while low < high:
            middle = (low + high) // 2
            probe, number = middle, sequence_in(versions[middle])
            while number is None and probe > low:
                # Another client has damaged this version: use the one before it.
                probe -= 1
                number = sequence_in(versions[probe])
            if number is not None and number > sequence:
                high = probe
            else:
                low = middle + 1
        made_by = {record.id for record in self.manifest.transactions(sequence, sequence)}
        # A version without its head row is skipped: the one before it holds the snapshot.
        nearest = next((v for v in reversed(versions[:low]) if sequence_in(v) is not None), None)
        for version in () if nearest is None else (nearest, *reversed(versions)):
            # If the manifest was restored, others have the same number, or are out of order.
            if sequence_in(version) == sequence:
                candidate = Snapshot(ManifestVersion(self.location, version))
                candidate._is_old = True
                if not made_by or candidate.head.transaction_id in made_by:
                    return candidate
            elif not made_by:
                break
        raise removed

    def can_open(self, sequence: int) -> bool:
        """Whether a version has not expired: it is recent enough, or a tag keeps it."""
        return sequence >= self.head.oldest or sequence in {
            tag.version for tag in self.tags().values()
        }

    def _sequence_in(self, version: int) -> int | None:
        return ManifestVersion(self.location, version).sequence()


def _time_of(text: str) -> dt.datetime | None:
    """The time that a text spells; None if it spells none."""
    try:
        literal = parse_timestamp(text)
        nanos = literal.value * (86_400 * 1_000_000_000 if literal.kind == "date" else 1)
        return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=nanos // 1_000)
    except (InvalidInput, OverflowError):
        return None


#: The newest snapshot that this process has seen of each of up to 16 tables, by URI.
_recent: LruCache[str, Snapshot] = LruCache(16)


def _recalled(manifest: ManifestVersion) -> Snapshot | None:
    """The newest snapshot, advanced from one in memory or in the cache; None if there is none."""
    known = _recent.get(manifest.location.uri)
    snapshot = None if known is None else _advanced(manifest, known)
    if snapshot is not None:
        return snapshot
    cached = cache.load(manifest)
    if cached is None:
        return None
    head, leaves, is_current = cached
    if is_current:
        return Snapshot(manifest, head, leaves, frozenset())
    snapshot = _advanced_from(manifest, head, leaves)
    if snapshot is not None and snapshot.sequence - head.sequence >= _SAVE_AFTER:
        cache.save(manifest, snapshot.head, snapshot.leaves)
    return snapshot


def _advanced(manifest: ManifestVersion, known: Snapshot) -> Snapshot | None:
    """The newest snapshot, advanced from an older one; None if that is not possible."""
    if known._leaves is None:
        return None
    if manifest.same_file(known.manifest):
        return Snapshot(manifest, known.head, known._leaves, frozenset())
    return _advanced_from(manifest, known.head, known._leaves)


def _are_many(changed: int, leaves: LeafIndex) -> bool:
    """Whether so many leaves have changed that it is faster to read all of them."""
    return changed > max(_MANY_LEAVES, len(leaves) // 4)


def _are_complete(changed: Sequence[LeafRow], leaves: LeafIndex, changes: ManifestChanges) -> bool:
    """Whether each leaf that was changed since has its row in the manifest.

    Another client may have removed some: what is known of such a leaf is of an older version. The
    number of a leaf's version rises by one with each change, and transactions record how many
    leaves they have changed. One that creates a leaf and removes it again counts it as well; then
    the answer is no, which costs a whole read.
    """
    if changes.head.transactions == "weak":
        return True
    known = leaves.rows(np.array([row.index for row in changed if row.index >= 0], dtype=np.int64))
    rises = sum(row.version_number for row in changed) - sum(row.version_number for row in known)
    return rises == sum(record.leaves or 0 for record in changes.transactions)


def _advanced_from(manifest: ManifestVersion, head: Head, leaves: LeafIndex) -> Snapshot | None:
    """The newest snapshot, from an older one and the rows of the manifest that changed since.

    None if that is not possible: the older one belongs to another history or is too old, leaves
    may have been removed, rows of leaves are missing, or the schema or specs have changed. Also
    None if so many leaves have changed that it is faster to read all of them.
    """
    changes = manifest.changes_since(head, LeafIndex.columns_in(head), _TOO_OLD)
    if changes is None:
        return None
    newest = changes.head
    if newest.specs != head.specs or newest.schema != head.schema:
        return None
    if any(record.may_remove_leaves for record in changes.transactions):
        return None
    rows = changes.leaves
    if _are_many(rows.num_rows, leaves):
        return None
    changed: list[LeafRow] = []
    if rows.num_rows:
        newer = LeafIndex.of_rows(rows, manifest, newest)
        changed = [leaves.matching(row) for row in newer.rows()]
    if not _are_complete(changed, leaves, changes):
        return None
    if changed:
        leaves = leaves.apply(changed)
    news = frozenset(record.id for record in changes.transactions)
    snapshot = Snapshot(manifest, newest, leaves, news)
    if 0 < rows.num_rows <= _FEW_LEAVES:
        snapshot.statistics = changes.statistics().by_id()
    return snapshot
