"""A snapshot: one version of the manifest, and with it one version of every leaf."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping
from typing import Any

from phalanx.errors import InvalidInput, TableNotFound
from phalanx.lru import LruCache
from phalanx.storage import cache
from phalanx.storage.head import Head
from phalanx.storage.leaf_index import LeafIndex
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion, NoManifest
from phalanx.storage.records import TagRecord

#: How a snapshot is named: its version, a tag, or a time.
Version = int | str | dt.datetime

#: How many transactions behind a cached snapshot may be before it is written again.
_SAVE_AFTER = 16
#: How many transactions behind it may be to be of use at all.
_TOO_OLD = 5_000
#: Of how many changed leaves the statistics are kept for whoever changes them next.
_FEW_LEAVES = 64


class Snapshot:
    """The table as one transaction left it. Everything read through it is of that moment."""

    def __init__(
        self,
        manifest: ManifestVersion,
        head: Head | None = None,
        leaves: LeafIndex | None = None,
        news: frozenset[str] | None = None,
    ) -> None:
        """`head` and `leaves` where they are known already; else they are read."""
        self.manifest = manifest
        self.head = manifest.head() if head is None else head
        self._leaves = leaves
        #: The transactions since the snapshot this one was advanced from; None if unknown.
        self.news = news
        #: The statistics of leaves that were read with it, by object id, as the manifest has them.
        self.statistics: Mapping[str, Any] = {}

    @staticmethod
    def latest(location: Location, known: Snapshot | None = None) -> Snapshot:
        """The newest snapshot; from one that is known only what is new is read.

        Raises TableNotFound where there is no table.
        """
        manifest = ManifestVersion(location)
        found = None if known is None else _advanced(manifest, known)
        if found is None:
            found = _recalled(manifest) or Snapshot(manifest)
            found.news = None
        _recent.put(location.uri, found)
        return found

    @staticmethod
    def unborn(location: Location, head: Head) -> Snapshot:
        """A table that does not exist yet, or not like that: it has a head and no leaf."""
        return Snapshot(NoManifest(location), head, LeafIndex.empty(head.specs))

    @staticmethod
    def at(location: Location, version: Version) -> Snapshot:
        """The snapshot with a version or a tag, or the last one at a time.

        Raises TableNotFound where it does not exist, or not any more.
        """
        newest = Snapshot.latest(location)
        newest.refuse_weak("opened at a version")
        return newest.find(version)

    def find(self, version: Version) -> Snapshot:
        """The snapshot with a version or tag, or the last one at a time, up to this one.

        Raises InvalidInput for one from before the table was strong: it says which leaves there
        were, and not which rows.
        """
        if isinstance(version, dt.datetime):
            version = self.sequence_at(version)
        if isinstance(version, str):
            found = self._tagged(version)
        elif isinstance(version, int) and not isinstance(version, bool):
            found = self.go_to(version)
        else:
            raise InvalidInput(f"a version is a whole number, a tag or a datetime, not {version!r}")
        if found.head.transactions == "weak":
            raise InvalidInput(
                f"version {found.sequence} of the table {self.location.uri} is from when it was "
                "weak: which rows it had then is not known"
            )
        return found

    def with_leaves(self, leaves: LeafIndex, head: Head | None = None) -> Snapshot:
        """The same moment with other leaves: what a transaction sees before it commits."""
        return Snapshot(self.manifest, head or self.head, leaves)

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

    @property
    def _is_newest(self) -> bool:
        """Whether nothing newer was seen when this was opened: only such are worth keeping."""
        return not self._travelled

    _travelled = False

    def sequence_at(self, time: dt.datetime) -> int:
        """The version that was current at a time; one without a zone counts as UTC."""
        if time.tzinfo is None:
            time = time.replace(tzinfo=dt.UTC)
        if time >= self.head.committed_at:
            return self.sequence
        # Of what has expired only tagged versions are left, and not when they were replaced.
        kept = self.manifest.transactions(since=self.head.oldest)
        versions = [record.sequence for record in kept if record.committed_at <= time]
        if not versions and self.head.oldest > 1:
            raise TableNotFound(f"what the table {self.location.uri} was at {time} has expired")
        if not versions:
            raise TableNotFound(f"the table {self.location.uri} did not exist yet at {time}")
        return max(versions)

    def refuse_weak(self, what: str) -> None:
        """Raise InvalidInput for a weak table, which has no snapshots of its rows."""
        if self.head.transactions == "weak":
            raise InvalidInput(
                f"the table {self.location.uri} is weak and cannot be {what}: its rows are read as "
                "they are now"
            )

    def tags(self) -> dict[str, TagRecord]:
        """The tags of the table by name."""
        return self.manifest.tags()

    def _tagged(self, name: str) -> Snapshot:
        tags = self.tags()
        if name not in tags:
            known = ", ".join(sorted(tags)) or "none"
            raise TableNotFound(
                f"the table {self.location.uri} has no tag {name!r}: it has {known}"
            )
        snapshot = Snapshot(ManifestVersion(self.location, tags[name].manifest_version))
        snapshot._travelled = True
        return snapshot

    def go_to(self, sequence: int) -> Snapshot:
        """The snapshot with a version, by binary search: both numbers only ever rise.

        Of several versions of the manifest that have it, the last: vacuum takes that last, too.
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
            known, found = middle, sequence_in(versions[middle])
            while found is None and known > low:
                # A version that another client has damaged: the one before it decides.
                known -= 1
                found = sequence_in(versions[known])
            if found is not None and found > sequence:
                high = known
            else:
                low = middle + 1
        # A version that has lost its head says nothing: the one before it counts.
        for version in reversed(versions[:low]):
            if sequence_in(version) is None:
                continue
            candidate = Snapshot(ManifestVersion(self.location, version))
            candidate._travelled = True
            if candidate.sequence == sequence:
                return candidate
            break
        raise removed

    def can_open(self, sequence: int) -> bool:
        """Whether a version has not expired: it is recent enough, or a tag holds it."""
        return sequence >= self.head.oldest or sequence in {
            tag.version for tag in self.tags().values()
        }

    def _sequence_in(self, version: int) -> int | None:
        return ManifestVersion(self.location, version).sequence()


#: The newest snapshots this process has seen, by URI: a few tables' worth.
_recent: LruCache[str, Snapshot] = LruCache(16)


def _recalled(manifest: ManifestVersion) -> Snapshot | None:
    """The newest snapshot, made from one that this process or the cache remembers."""
    known = _recent.get(manifest.location.uri)
    found = None if known is None else _advanced(manifest, known)
    if found is not None:
        return found
    cached = cache.load(manifest)
    if cached is None:
        return None
    head, leaves, this_one = cached
    if this_one:
        return Snapshot(manifest, head, leaves, frozenset())
    found = _advanced_from(manifest, head, leaves)
    if found is not None and found.sequence - head.sequence >= _SAVE_AFTER:
        cache.save(manifest, found.head, found.leaves)
    return found


def _advanced(manifest: ManifestVersion, known: Snapshot) -> Snapshot | None:
    """The newest snapshot from an older one; the same one where it is the newest still."""
    if known._leaves is None:
        return None
    if manifest.same_file(known.manifest):
        return Snapshot(manifest, known.head, known._leaves, frozenset())
    return _advanced_from(manifest, known.head, known._leaves)


def _advanced_from(manifest: ManifestVersion, head: Head, leaves: LeafIndex) -> Snapshot | None:
    """The newest snapshot, made from an older one and the rows that have changed since.

    None where that cannot be done: the older one is of another line of history, leaves have been
    removed, or the schema or specs have changed.
    """
    changes = manifest.changes_since(head, LeafIndex.columns_in(head))
    if changes is None or len(changes.transactions) > _TOO_OLD:
        return None
    newest = changes.head
    if newest.specs != head.specs or newest.schema != head.schema:
        return None
    if any(record.may_remove_leaves for record in changes.transactions):
        return None
    rows = changes.leaves
    if rows.num_rows:
        newer = LeafIndex.of_rows(rows, manifest, newest)
        leaves = leaves.apply([leaves.matching(row) for row in newer.rows()])
    news = frozenset(record.id for record in changes.transactions)
    snapshot = Snapshot(manifest, newest, leaves, news)
    if 0 < rows.num_rows <= _FEW_LEAVES:
        snapshot.statistics = changes.statistics().by_id()
    return snapshot
