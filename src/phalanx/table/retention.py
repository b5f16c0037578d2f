"""Retention: which snapshots are kept, and how the others expire.

A snapshot is kept if it was the newest at any time within the last `older_than`, so that readers
who opened the table within that time do not lose it. Older snapshots are kept only by tags and by
the property `retention.min_snapshots`. Expiry is one transaction on the manifest. It deletes no
files; `vacuum` does.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from phalanx.errors import InvalidInput, PhalanxError, TableNotFound
from phalanx.model.properties import KEEP_AT_LEAST, KEEP_SNAPSHOTS, span_of
from phalanx.storage import names
from phalanx.storage.files import DatasetFolder
from phalanx.storage.head import Head
from phalanx.storage.leaf_versions import LeafVersions
from phalanx.storage.location import MANIFEST, Location
from phalanx.storage.manifest import ManifestVersion, SwapLost
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx.storage.records import TimelineRow, TransactionRecord
from phalanx.table.arguments import whole_number
from phalanx.table.format import count_text
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.swap import Proposal, swap_head


@dataclass(frozen=True)
class ExpireReport:
    """The snapshots that expired, or would expire."""

    dry_run: bool
    #: The versions that can no longer be opened.
    snapshots: tuple[int, ...] = ()
    #: How many rows were removed from the manifest.
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
    snapshot: Snapshot,
    older_than: dt.timedelta | dt.datetime | str | None = None,
    dry_run: bool = False,
    retain_last: int | None = None,
) -> ExpireReport:
    """Expire the snapshots that were replaced longer ago than `older_than`; tagged ones are kept.

    Without an age the property `retention.snapshots` decides, and without `retain_last` the
    property `retention.min_snapshots`. No file is deleted. Raises InvalidInput for a negative age
    or nothing to retain, and ConflictError if other transactions kept committing.
    """
    policy = replace(RetentionPolicy.of(older_than), at_least=_at_least(retain_last))
    expired = expire(snapshot.location, policy, "expire", dry_run)
    return ExpireReport(dry_run, expired.snapshots, expired.row_count, expired.oldest)


@dataclass(frozen=True)
class RetentionPolicy:
    """How long snapshots are kept: by the argument of a call, or by the table's properties."""

    #: None if the properties decide.
    older_than: dt.timedelta | None
    now: dt.datetime
    #: How long the files of an expired snapshot are kept after it was replaced, for its readers.
    file_age: dt.timedelta = dt.timedelta(0)
    #: How many of the newest snapshots are kept in any case; None if the properties decide.
    at_least: int | None = None

    @staticmethod
    def of(older_than: dt.timedelta | dt.datetime | str | None) -> RetentionPolicy:
        """The policy as of now; a time means its age. Raises InvalidInput for a negative age."""
        now = dt.datetime.now(dt.UTC)
        if isinstance(older_than, dt.datetime):
            zoned = older_than if older_than.tzinfo else older_than.replace(tzinfo=dt.UTC)
            older_than = max(now - zoned, dt.timedelta(0))
        return RetentionPolicy(age_of(older_than), now)

    def cutoff(self, head: Head) -> dt.datetime:
        """The time of expiry: snapshots that were replaced before it expire."""
        age = KEEP_SNAPSHOTS.of(head.properties) if self.older_than is None else self.older_than
        return self.ago(age)

    def ago(self, age: dt.timedelta) -> dt.datetime:
        """The time that was an age ago; an age that reaches beyond all time is the first moment."""
        try:
            return self.now - age
        except OverflowError:
            return dt.datetime.min.replace(tzinfo=dt.UTC)

    def retention(self, newest: Snapshot) -> Retention:
        """The snapshots that this policy keeps."""
        cutoff, files_since = self.cutoff(newest.head), self.ago(self.file_age)
        return Retention.of(newest, cutoff, files_since, self.at_least)


def _at_least(retain_last: int | None) -> int | None:
    return None if retain_last is None else whole_number(retain_last, 1, "retain_last")


def age_of(age: dt.timedelta | str | None) -> dt.timedelta | None:
    """An age that a user passes: a timedelta, or text such as '7 days'.

    Raises InvalidInput unless it is 0 or more.
    """
    if isinstance(age, str):
        return span_of(age)
    if age is not None and (not isinstance(age, dt.timedelta) or age < dt.timedelta(0)):
        raise InvalidInput(
            f"older_than is a timedelta that is not negative, or text such as '7 days', not {age!r}"
        )
    return age


@dataclass
class Retention:
    """The snapshots of a table that are kept."""

    location: Location
    newest: ManifestVersion
    #: The oldest version of the table that can be opened without a tag.
    oldest: int
    #: The tagged versions of the table, each with the version of the manifest that holds it.
    tags: frozenset[tuple[int, int]]
    #: The first version of the manifest whose leaves must keep their files.
    first_kept: int
    #: The first version of the manifest that can be opened without a tag.
    first_open: int

    @staticmethod
    def of(
        newest: Snapshot,
        cutoff: dt.datetime | None,
        files_since: dt.datetime | None = None,
        at_least: int | None = None,
    ) -> Retention:
        """The snapshots that are kept if those that were replaced before `cutoff` expire.

        The newest `at_least` snapshots do not expire, or else as many as the property
        `retention.min_snapshots` says. Files are also kept for
        snapshots that were the newest after `files_since`. Without a cutoff nothing expires, and
        these are the snapshots that can be opened now.
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
            # A version that cannot be read is skipped only if nothing expires, never by mistake.
            errors = (OSError, ValueError, PhalanxError) if cutoff is None else ()
            with contextlib.suppress(*errors):
                sequence = ManifestVersion(newest.location, version).sequence()
            if sequence is not None and sequence >= head.oldest:
                oldest, first_open = sequence, version
                break
        oldest = min(oldest, head.sequence)
        count = KEEP_AT_LEAST.of(head.properties) if at_least is None else at_least
        least = head.sequence - count + 1
        for earlier in range(max(head.oldest, least), oldest) if cutoff is not None else ():
            with contextlib.suppress(TableNotFound):
                oldest, first_open = earlier, newest.go_to(earlier).manifest.version
                kept = min(kept, first_open)
                break
        return Retention(
            newest.location, manifest, oldest, tagged_versions(newest), kept, first_open
        )

    @property
    def tagged(self) -> frozenset[int]:
        """The versions of the manifest that hold tagged snapshots."""
        return frozenset(version for _, version in self.tags)

    def versions(self, first: int) -> list[int]:
        """The versions of the manifest from `first` on, and those that hold tagged snapshots."""
        existing = self.newest.versions()
        return [v for v in existing if v >= first or v in self.tagged]

    def leaf_versions(self, first: int) -> LeafVersions:
        """The leaf versions that these versions of the manifest refer to."""
        leaf_versions = LeafVersions()
        for version in self.versions(first):
            leaf_versions.add(ManifestVersion(self.location, version))
        return leaf_versions

    def models(self, first: int) -> set[str]:
        """The folders of models that these versions of the manifest refer to."""
        manifests = (ManifestVersion(self.location, v) for v in self.versions(first))
        return {name for manifest in manifests for name in models_of(manifest)}


def models_of(manifest: ManifestVersion) -> set[str]:
    """The folders of the models that the indexes of a snapshot use."""
    return {index.model for index in manifest.head().indexes.values() if index.model is not None}


def tagged_versions(snapshot: Snapshot) -> frozenset[tuple[int, int]]:
    """The tagged versions of the table, each with the version of the manifest that holds it."""
    tags = snapshot.tags().values()
    return frozenset((tag.version, tag.manifest_version) for tag in tags)


def is_after(superseded: dict[int, dt.datetime], version: int, cutoff: dt.datetime) -> bool:
    """Whether a version on main was still the newest after a time.

    `superseded` says when each version was replaced; the newest is not in it.
    """
    return version not in superseded or superseded[version] > cutoff


@dataclass
class Expired:
    """The snapshots that expired, or would expire, and those that are kept."""

    retention: Retention
    snapshots: tuple[int, ...]
    #: How many rows were removed from the manifest.
    row_count: int
    #: Whether the expiry was committed, as a version of the table.
    committed: bool = False

    @property
    def oldest(self) -> int:
        """The oldest version that can be opened without a tag."""
        return self.retention.oldest


def expire(location: Location, policy: RetentionPolicy, operation: str, dry_run: bool) -> Expired:
    """Expire snapshots in one transaction, which is recorded under the name `operation`.

    Raises ConflictError if other transactions kept committing.
    """
    expiry = _Expiry(location, policy, operation)
    if not dry_run:
        return swap_head(location, operation, expiry.decide, expiry.prepare)
    expiry.prepare()
    return expiry.find(expiry.newest)[0]


class _Expiry:
    """The expiry of snapshots, which is computed again if another transaction commits first."""

    def __init__(self, location: Location, policy: RetentionPolicy, operation: str) -> None:
        self._location, self._policy, self._operation = location, policy, operation

    def prepare(self) -> None:
        """Find the snapshots to keep. This is slow, so it is done before the lock is taken."""
        self.newest = Snapshot.latest(self._location)
        self.newest.check_writable()
        self._retention = self._policy.retention(self.newest)
        needed = self._retention.leaf_versions(self._retention.first_open).pairs()
        self._candidates = _rows_without(self.newest.manifest, needed)

    def decide(self) -> Proposal[Expired] | Expired:
        """The next head; or the result, if there is nothing to expire.

        Raises SwapLost if the snapshots to keep must be found again.
        """
        newest, retention = Snapshot.latest(self._location, self.newest), self._retention
        tags_changed = tagged_versions(newest) != retention.tags
        if tags_changed or newest.head.oldest > retention.oldest:
            raise SwapLost("another transaction has tagged or expired snapshots")
        expired, removed = self.find(newest)
        if not removed and retention.oldest == newest.head.oldest:
            return expired

        def then(manifest: ManifestVersion | None) -> Expired:
            retention.newest = manifest or ManifestVersion(self._location)
            expired.committed = True
            return expired

        return _proposal(
            newest, self._operation, retention.oldest, removed, len(expired.snapshots), then
        )

    def find(self, newest: Snapshot) -> tuple[Expired, list[str]]:
        """The snapshots that expire, and the ids of the manifest rows to remove."""
        retention = self._retention
        retention.newest = newest.manifest
        transactions = _transactions_before(newest, retention)
        # A leaf that was removed and added again has new rows with the old ids.
        present = set(newest.manifest.timeline()) if self._candidates else set()
        removed = [names.transaction_row(record.id) for record in transactions]
        removed += [row.id for row in self._candidates if row in present]
        snapshots = tuple(sorted(record.sequence for record in transactions))
        return Expired(retention, snapshots, len(removed)), removed


def announce(location: Location) -> None:
    """Commit a version of the table that changes nothing, before files are deleted.

    A slow writer may have just verified that its files still exist. It loses the swap to this
    version, and verifies them again. Raises ConflictError if other transactions kept committing.
    """

    def decide() -> Proposal[Snapshot] | Snapshot:
        newest = Snapshot.latest(location)
        return _proposal(newest, "vacuum", newest.head.oldest, (), 0, lambda _: newest)

    swap_head(location, "vacuum", decide)


T = TypeVar("T")


def _proposal(
    newest: Snapshot,
    operation: str,
    oldest: int,
    removed: Sequence[str],
    snapshots: int,
    then: Callable[[ManifestVersion | None], T],
) -> Proposal[T]:
    """A new head that expires snapshots and changes no leaf."""
    head = newest.head.after(dt.datetime.now(dt.UTC), uuid.uuid4().hex, oldest=oldest)
    update = ManifestUpdate(head.specs, strong=head.transactions == "strong")
    update.put_head(head)
    # No leaf is removed, so snapshots that other processes have cached stay valid.
    update.put_transaction(TransactionRecord.of(head, operation, snapshots=snapshots, removals=0))
    update.remove(removed)
    return Proposal(newest.manifest, head, update, then)


def _rows_without(manifest: ManifestVersion, needed: set[tuple[str, int]]) -> list[TimelineRow]:
    """The timeline rows of leaf versions that are not needed, sorted.

    Those of a leaf whose own row is lost are kept: repair needs them.
    """
    rows = manifest.timeline()
    candidates = [row for row in rows if (row.leaf, row.read_version) not in needed]
    leaves = manifest.leaf_ids() if candidates else set()
    return sorted(row for row in candidates if row.leaf in leaves or row.leaf is None)


def _transactions_before(newest: Snapshot, retention: Retention) -> list[TransactionRecord]:
    """The transactions whose snapshots expire."""
    kept = {sequence for sequence, _ in retention.tags} | {newest.sequence}
    last = newest.head.transaction_id
    records = newest.manifest.transactions(until=retention.oldest - 1)
    # What was decided about stray rows holds as long as the rows may be there.
    return [r for r in records if r.sequence not in kept and r.id != last and not r.settled]
