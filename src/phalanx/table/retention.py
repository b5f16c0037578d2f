"""Retention: which snapshots are kept, and how the others are given up.

A snapshot is kept as long as it was the newest at some time within the last `older_than`, so
that nobody who opened the table within that time loses it while reading. Before that, only tags
keep snapshots. What expires is told to the manifest in one transaction; no file is removed here.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from phalanx.errors import InvalidInput, TableNotFound
from phalanx.storage import names
from phalanx.storage.files import DatasetFolder
from phalanx.storage.head import Head
from phalanx.storage.leaf_versions import LeafVersions
from phalanx.storage.location import MANIFEST, Location
from phalanx.storage.manifest import ManifestVersion, SwapLost
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx.storage.records import TimelineRow, TransactionRecord
from phalanx.table.format import count_text
from phalanx.table.properties import snapshot_age, snapshots_at_least
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.swap import Proposal, swap_head


@dataclass(frozen=True)
class ExpireReport:
    """Which snapshots went, or would go."""

    dry_run: bool
    #: The versions that can no longer be opened.
    snapshots: tuple[int, ...] = ()
    #: How many rows of the manifest went with them.
    rows: int = 0
    #: The oldest version that can be opened without a tag.
    oldest: int = 1

    def __str__(self) -> str:
        verb = "would expire" if self.dry_run else "expired"
        return (
            f"{verb} {count_text(len(self.snapshots), 'snapshot')} and "
            f"{count_text(self.rows, 'row')} of the manifest; the oldest version is {self.oldest}"
        )


def expire_snapshots(
    snapshot: Snapshot, older_than: dt.timedelta | None = None, dry_run: bool = False
) -> ExpireReport:
    """Give up the snapshots that were the newest only before that time; tags keep theirs.

    Without an age the table's property says it. No file is removed: `vacuum` does that, when they
    are old enough. Raises InvalidInput for an impossible age.
    """
    found = expire(snapshot.location, RetentionPolicy.of(older_than), "expire", dry_run)
    return ExpireReport(dry_run, found.snapshots, found.row_count, found.oldest)


@dataclass(frozen=True)
class RetentionPolicy:
    """How long snapshots are kept: as somebody says now, or as the table says."""

    older_than: dt.timedelta | None
    now: dt.datetime
    #: How old files must be that go with them: whoever reads a snapshot of that time needs them.
    file_age: dt.timedelta = dt.timedelta(0)

    @staticmethod
    def of(older_than: dt.timedelta | None) -> RetentionPolicy:
        known = older_than is None or isinstance(older_than, dt.timedelta)
        if not known or (older_than is not None and older_than < dt.timedelta(0)):
            raise InvalidInput(
                f"older_than is a timedelta that is not negative, not {older_than!r}"
            )
        return RetentionPolicy(older_than, dt.datetime.now(dt.UTC))

    def cutoff(self, head: Head) -> dt.datetime:
        """What was the newest only before this time goes."""
        age = snapshot_age(head.properties) if self.older_than is None else self.older_than
        try:
            return self.now - age
        except OverflowError:
            return dt.datetime.min.replace(tzinfo=dt.UTC)

    def retention(self, newest: Snapshot) -> Retention:
        return Retention.of(newest, self.cutoff(newest.head), self.now - self.file_age)


@dataclass
class Retention:
    """Which snapshots stay, seen from the newest."""

    location: Location
    newest: ManifestVersion
    #: The oldest version of the table that can be opened without a tag.
    oldest: int
    #: What tags hold: a version of the table, and the version of the manifest that has it.
    tags: frozenset[tuple[int, int]]
    #: The first version of the manifest whose leaves must stay as they are.
    first_kept: int
    #: The first version of the manifest that can be opened without a tag.
    first_open: int

    @staticmethod
    def of(
        newest: Snapshot, cutoff: dt.datetime | None, files_since: dt.datetime | None = None
    ) -> Retention:
        """What stays where everything goes that was the newest only before `cutoff`.

        As many of the newest as the table's property says stay all the same, and so do the leaves
        of what was the newest after `files_since`. Without a cutoff: what can be opened now.
        """
        manifest, head = newest.manifest, newest.head
        folder = DatasetFolder(newest.location, MANIFEST)
        superseded = folder.superseded()
        versions = [v for v in folder.main_versions() if v <= manifest.version]
        first = manifest.version
        if cutoff is None:
            first = versions[0] if versions else first
        else:
            first = min((v for v in versions if is_after(superseded, v, cutoff)), default=first)
        kept = first
        if files_since is not None:
            since = (v for v in versions if is_after(superseded, v, files_since))
            kept = min(kept, min(since, default=kept))
        oldest, first_open = head.oldest, manifest.version
        for version in (v for v in versions if v >= first):
            sequence = None
            # Nothing expires by mistake: only who merely looks passes over what is unreadable.
            with contextlib.suppress(*((OSError, ValueError) if cutoff is None else ())):
                sequence = ManifestVersion(newest.location, version).sequence()
            if sequence is not None and sequence >= head.oldest:
                oldest, first_open = sequence, version
                break
        oldest = min(oldest, head.sequence)
        least = head.sequence - snapshots_at_least(head.properties) + 1
        for wanted in range(max(head.oldest, least), oldest) if cutoff is not None else ():
            with contextlib.suppress(TableNotFound):
                oldest, first_open = wanted, newest.go_to(wanted).manifest.version
                kept = min(kept, first_open)
                break
        return Retention(
            newest.location, manifest, oldest, tagged_versions(newest), kept, first_open
        )

    @property
    def tagged(self) -> frozenset[int]:
        """The versions of the manifest that tags hold."""
        return frozenset(version for _, version in self.tags)

    def versions(self, first: int) -> list[int]:
        """The versions of the manifest from one on, and those that tags hold."""
        existing = self.newest.versions()
        return [v for v in existing if v >= first or v in self.tagged]

    def leaf_versions(self, first: int) -> LeafVersions:
        """The leaves' versions in those."""
        found = LeafVersions()
        for version in self.versions(first):
            found.add(ManifestVersion(self.location, version))
        return found


def tagged_versions(snapshot: Snapshot) -> frozenset[tuple[int, int]]:
    """The versions of the table that tags hold, with the versions of the manifest."""
    tags = snapshot.tags().values()
    return frozenset((tag.version, tag.manifest_version) for tag in tags)


def is_after(superseded: dict[int, dt.datetime], version: int, cutoff: dt.datetime) -> bool:
    """Whether a version of main was still the newest after a time."""
    return version not in superseded or superseded[version] > cutoff


@dataclass
class Expired:
    """What has expired, or would, and what stays."""

    retention: Retention
    snapshots: tuple[int, ...]
    row_count: int
    #: Whether that has become a version of the table.
    told: bool = False

    @property
    def oldest(self) -> int:
        return self.retention.oldest


def expire(location: Location, policy: RetentionPolicy, operation: str, dry_run: bool) -> Expired:
    """Tell the manifest which snapshots are gone, in one transaction.

    Raises ConflictError where others kept writing.
    """
    expiry = _Expiry(location, policy, operation)
    if not dry_run:
        return swap_head(location, operation, expiry.decide, expiry.prepare)
    expiry.prepare()
    return expiry.find(expiry.newest)[0]


class _Expiry:
    """The expiry of snapshots, worked out again on a newer one where others come first."""

    def __init__(self, location: Location, policy: RetentionPolicy, operation: str) -> None:
        self._location, self._policy, self._operation = location, policy, operation

    def prepare(self) -> None:
        """Find out what stays. That takes long, and others may be waiting for the lock."""
        self.newest = Snapshot.latest(self._location)
        self.newest.head.check_writable()
        self._retention = self._policy.retention(self.newest)
        needed = self._retention.leaf_versions(self._retention.first_open).pairs()
        self._candidates = _rows_without(self.newest.manifest, needed)

    def decide(self) -> Proposal[Expired] | Expired:
        newest, retention = Snapshot.latest(self._location, self.newest), self._retention
        moved = tagged_versions(newest) != retention.tags
        if moved or newest.head.oldest > retention.oldest:
            raise SwapLost("others have tagged or expired snapshots meanwhile")
        expired, removed = self.find(newest)
        if not removed and retention.oldest == newest.head.oldest:
            return expired

        def then(version: int | None) -> Expired:
            retention.newest = ManifestVersion(self._location, version)
            expired.told = True
            return expired

        return _proposal(
            newest, self._operation, retention.oldest, removed, len(expired.snapshots), then
        )

    def find(self, newest: Snapshot) -> tuple[Expired, list[str]]:
        """What expires, and the rows of the manifest that go with it."""
        retention = self._retention
        retention.newest = newest.manifest
        transactions = _transactions_before(newest, retention)
        # A leaf that was removed and added again has new rows with the ids of old ones.
        present = set(newest.manifest.timeline()) if self._candidates else set()
        removed = [names.transaction_row(record.id) for record in transactions]
        removed += [row.id for row in self._candidates if row in present]
        snapshots = tuple(sorted(record.sequence for record in transactions))
        return Expired(retention, snapshots, len(removed)), removed


def announce(location: Location) -> None:
    """Make a version of the table that changes nothing, before files go.

    A writer that has taken long may just have seen that its files are there. It loses the swap to
    this, and looks again. Raises ConflictError where others kept writing.
    """

    def decide() -> Proposal[Snapshot] | Snapshot:
        newest = Snapshot.latest(location)
        return _proposal(newest, "vacuum", newest.head.oldest, (), 0, lambda version: newest)

    swap_head(location, "vacuum", decide)


T = TypeVar("T")


def _proposal(
    newest: Snapshot,
    operation: str,
    oldest: int,
    removed: Sequence[str],
    snapshots: int,
    then: Callable[[int | None], T],
) -> Proposal[T]:
    """A head that gives up snapshots, and no leaf."""
    head = newest.head.after(dt.datetime.now(dt.UTC), uuid.uuid4().hex, oldest=oldest)
    update = ManifestUpdate(head.specs, strong=head.transactions == "strong")
    update.put_head(head)
    # No leaf goes with these rows, so whoever knows the leaves still does.
    update.put_transaction(TransactionRecord.of(head, operation, snapshots=snapshots, removals=0))
    update.remove(removed)
    return Proposal(newest.manifest, head, update, then)


def _rows_without(manifest: ManifestVersion, needed: set[tuple[str, int]]) -> list[TimelineRow]:
    """The rows of the leaves' timelines that are not needed, in order."""
    rows = manifest.timeline()
    return sorted(row for row in rows if (row.leaf, row.read_version) not in needed)


def _transactions_before(newest: Snapshot, retention: Retention) -> list[TransactionRecord]:
    """The transactions whose snapshots are gone."""
    kept = {sequence for sequence, _ in retention.tags} | {newest.sequence}
    last = newest.head.transaction_id
    records = newest.manifest.transactions(until=retention.oldest - 1)
    return [r for r in records if r.sequence not in kept and r.id != last]
