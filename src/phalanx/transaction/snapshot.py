"""A snapshot: one version of the manifest, and with it one version of every leaf."""

from __future__ import annotations

import datetime as dt
from functools import cached_property

from phalanx.errors import InvalidInput, TableNotFound
from phalanx.storage import cache
from phalanx.storage.head import HEAD_ID, Head
from phalanx.storage.leaves import Leaves
from phalanx.storage.location import Location
from phalanx.storage.manifest import TRANSACTION, ManifestVersion


class Snapshot:
    """The table as one transaction left it. Everything read through it is of that moment."""

    def __init__(
        self, manifest: ManifestVersion, head: Head | None = None, leaves: Leaves | None = None
    ) -> None:
        """`head` and `leaves` where they are known already; else they are read."""
        self.manifest = manifest
        if head is not None:
            self.head, self._leaves = head, leaves
            return
        cached = cache.load(manifest)
        if cached is not None:
            self.head, self._leaves = cached[0], cached[1]
        else:
            self.head = manifest.head()

    _leaves: Leaves | None = None

    @staticmethod
    def latest(location: Location) -> Snapshot:
        """Raises TableNotFound where there is no table."""
        return Snapshot(ManifestVersion(location))

    @staticmethod
    def at(location: Location, version: int | dt.datetime) -> Snapshot:
        """The snapshot with a version, or the last one at a time.

        Raises TableNotFound where it does not exist, or not any more.
        """
        newest = Snapshot.latest(location)
        if isinstance(version, dt.datetime):
            version = newest.sequence_at(version)
        if not isinstance(version, int) or isinstance(version, bool):
            raise InvalidInput(f"a version is a whole number or a datetime, not {version!r}")
        return newest.go_to(version)

    def with_leaves(self, leaves: Leaves) -> Snapshot:
        """The same moment with other leaves: what a transaction sees before it commits."""
        return Snapshot(self.manifest, self.head, leaves)

    @property
    def location(self) -> Location:
        return self.manifest.location

    @property
    def sequence(self) -> int:
        return self.head.sequence

    @cached_property
    def leaves(self) -> Leaves:
        if self._leaves is not None:
            return self._leaves
        leaves = Leaves.read(self.manifest, self.head)
        cache.save(self.manifest, self.head, leaves)
        return leaves

    def sequence_at(self, time: dt.datetime) -> int:
        """The version that was current at a time; one without a zone counts as UTC."""
        if time.tzinfo is None:
            time = time.replace(tzinfo=dt.UTC)
        if time >= self.head.committed_at:
            return self.sequence
        columns = ["sequence", "committed_at"]
        rows = self.manifest.read(columns, f"object_type = '{TRANSACTION}'").to_pylist()
        found = [row["sequence"] for row in rows if row["committed_at"] <= time]
        if not found:
            raise TableNotFound(f"the table {self.location.uri} did not exist yet at {time}")
        return int(max(found))

    def go_to(self, sequence: int) -> Snapshot:
        """The snapshot with a version, by binary search: both numbers only ever rise."""
        if sequence == self.sequence:
            return self
        missing = TableNotFound(
            f"the table {self.location.uri} has no version {sequence}: its newest is "
            f"{self.sequence}"
        )
        if not 1 <= sequence < self.sequence or not self.head.ours:
            raise missing
        versions = [v for v in self.manifest.versions() if v <= self.manifest.version]
        low, high = 0, len(versions)
        while low < high:
            middle = (low + high) // 2
            found = _sequence_of(ManifestVersion(self.location, versions[middle]))
            if found is not None and found >= sequence:
                high = middle
            else:
                low = middle + 1
        # The last manifest version of a sequence number: compaction writes more than one.
        if low < len(versions):
            candidate = Snapshot(ManifestVersion(self.location, versions[low]))
            if candidate.sequence == sequence:
                return candidate
        raise TableNotFound(
            f"version {sequence} of the table {self.location.uri} has been removed by vacuum"
        )


def _sequence_of(manifest: ManifestVersion) -> int | None:
    if "sequence" not in manifest.dataset.schema.names:
        return None
    rows = manifest.read(["sequence"], f"object_id = '{HEAD_ID}'").to_pylist()
    return rows[0]["sequence"] if rows else None
