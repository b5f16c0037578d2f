"""Retention: which snapshots are kept, and how the others are given up.

A snapshot is kept as long as it was the newest at some time within the last `older_than`, so
that nobody who opened the table within that time loses it while reading. Before that, only tags
keep snapshots. What expires is told to the manifest in one transaction; no file is removed here.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from phalanx.errors import ConflictError, CorruptTable, InvalidInput, TableNotFound
from phalanx.model.properties import KEEP_AT_LEAST, KEEP_SNAPSHOTS
from phalanx.storage.files import (
    DatasetFolder,
    is_leaf_id,
)
from phalanx.storage.head import Head
from phalanx.storage.location import MANIFEST, Location
from phalanx.storage.manifest import (
    TABLE,
    TRANSACTION,
    VERSION,
    ManifestVersion,
    Rows,
    SwapLost,
    transaction_row,
)
from phalanx.table.format import count_text
from phalanx.transaction import lock
from phalanx.transaction.snapshot import Snapshot, sequence_of

_TRIES = 1000


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
        age = KEEP_SNAPSHOTS.of(head.properties) if self.older_than is None else self.older_than
        try:
            return self.now - age
        except OverflowError:
            return dt.datetime.min.replace(tzinfo=dt.UTC)

    def retention(self, newest: Snapshot) -> Retention:
        return Retention.of(newest, self.cutoff(newest.head), self.now - self.file_age)


class LeafVersions:
    """The versions of leaves that some snapshots consist of."""

    _SCHEMA = pa.schema(
        [("object_id", pa.string()), ("location", pa.string()), ("read_version", pa.uint64())]
    )

    def __init__(self) -> None:
        self._table = self._SCHEMA.empty_table()

    def add(self, manifest: ManifestVersion) -> None:
        try:
            found = manifest.read(self._SCHEMA.names, f"object_type = '{TABLE}'")
        except (OSError, ValueError) as error:
            raise CorruptTable(
                f"version {manifest.version} of the manifest of {manifest.location.uri} cannot be "
                f"read, run check(): {manifest.location.reason(error)}"
            ) from None
        if "read_version" not in found.schema.names:
            found = found.append_column("read_version", pa.nulls(found.num_rows, pa.uint64()))
        found = found.select(self._SCHEMA.names).cast(self._SCHEMA)
        both = pa.concat_tables([self._table, found])
        self._table = both.group_by(self._SCHEMA.names).aggregate([]).cast(self._SCHEMA)

    def by_folder(self) -> dict[str, set[int | None]]:
        """Versions by folder; None stands for the newest on main."""
        found: dict[str, set[int | None]] = {}
        for row in self._table.to_pylist():
            if is_leaf_id(row["object_id"]):
                found.setdefault(row["location"], set()).add(row["read_version"])
        return found

    def folders(self) -> set[str]:
        """Every folder that some table is in, be it a leaf or another client's."""
        return {name for name in self._table.column("location").to_pylist() if name}

    def pairs(self) -> set[tuple[str, int]]:
        columns = (self._table.column(c).to_pylist() for c in ("object_id", "read_version"))
        return {(id, version) for id, version in zip(*columns, strict=True) if version is not None}


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
                sequence = sequence_of(ManifestVersion(newest.location, version))
            if sequence is not None and sequence >= head.oldest:
                oldest, first_open = sequence, version
                break
        oldest = min(oldest, head.sequence)
        least = head.sequence - KEEP_AT_LEAST.of(head.properties) + 1
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
    tags = snapshot.tags().values()
    return frozenset((int(tag["version"]), int(tag["manifest_version"])) for tag in tags)


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
    """Tell the manifest which snapshots are gone, in one transaction."""
    for attempt in range(_TRIES):
        newest = Snapshot.latest(location)
        newest.head.check_writable()
        retention = policy.retention(newest)
        needed = retention.leaf_versions(retention.first_open).pairs()
        candidates = _versions_without(newest.manifest, needed)
        # From here on as little as possible: others may be waiting for the lock.
        with contextlib.nullcontext() if dry_run else lock.held(location):
            if not dry_run:
                newest = Snapshot.latest(location, newest)
            if tagged_versions(newest) != retention.tags or newest.head.oldest > retention.oldest:
                continue
            retention.newest = newest.manifest
            gone = _transactions_before(newest, retention)
            # A leaf that went and came back has new rows by the names of old ones.
            present = _version_rows(newest.manifest) if candidates else set()
            ids = [id for _, id in gone] + [row[0] for row in candidates if row in present]
            found = Expired(retention, tuple(sorted(s for s, _ in gone)), len(ids))
            if dry_run or (not ids and retention.oldest == newest.head.oldest):
                return found
            try:
                retention.newest = _swap(newest, retention.oldest, ids, operation, len(gone))
                found.told = True
                return found
            except SwapLost:
                pass
        lock.back_off(attempt)
    raise ConflictError(
        f"the snapshots of {location.uri} could not be expired: others kept writing"
    )


def _swap(
    newest: Snapshot, oldest: int, removed: Sequence[str], operation: str, snapshots: int
) -> ManifestVersion:
    head = newest.head.after(dt.datetime.now(dt.UTC), uuid.uuid4().hex, oldest=oldest)
    rows = Rows(head.specs, strong=head.transactions == "strong")
    rows.add_head(head)
    # No leaf goes with these rows, so whoever knows the leaves still does.
    described = {"operation": operation, "snapshots": str(snapshots), "rows_gone": "0"}
    rows.add_transaction(head, described)
    version = newest.manifest.swap(rows.to_table(), removed)
    return ManifestVersion(newest.location, version)


def announce(location: Location) -> None:
    """Make a version of the table that changes nothing, before files go.

    A writer that has taken long may just have seen that its files are there. It loses the swap to
    this, and looks again.
    """
    for attempt in range(_TRIES):
        with lock.held(location), contextlib.suppress(SwapLost):
            newest = Snapshot.latest(location)
            _swap(newest, newest.head.oldest, (), "vacuum", 0)
            return
        lock.back_off(attempt)
    raise ConflictError(f"no file of {location.uri} was removed: others kept writing")


def _version_rows(manifest: ManifestVersion) -> set[tuple[str, int]]:
    """The rows of the leaves' timelines: their ids and versions."""
    if "read_version" not in manifest.dataset.schema.names:
        return set()
    found = manifest.read(["object_id", "read_version"], f"object_type = '{VERSION}'")
    return set(zip(*(found.column(i).to_pylist() for i in (0, 1)), strict=True))


def _versions_without(
    manifest: ManifestVersion, needed: set[tuple[str, int]]
) -> list[tuple[str, int]]:
    """The rows of the leaves' timelines that are not needed, in order."""
    rows = _version_rows(manifest)
    return sorted(row for row in rows if (row[0].rpartition("$")[0], row[1]) not in needed)


def _transactions_before(newest: Snapshot, retention: Retention) -> list[tuple[int, str]]:
    """The transactions whose snapshots are gone: their versions and rows."""
    found = newest.manifest.read(
        ["sequence", "object_id"],
        f"object_type = '{TRANSACTION}' AND sequence < {retention.oldest}",
    )
    kept = {sequence for sequence, _ in retention.tags} | {newest.sequence}
    last = transaction_row(newest.head.transaction_id)
    rows = zip(*(found.column(c).to_pylist() for c in ("sequence", "object_id")), strict=True)
    return [(number, id) for number, id in rows if number not in kept and id != last]
