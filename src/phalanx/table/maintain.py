"""Removal of what is no longer needed: old snapshots, and files that nothing refers to.

A snapshot is kept as long as it was the newest at some time within the last `older_than`, so
that nobody who opened the table within that time loses it while reading. Before that, only
tags keep snapshots. What expires is told to the manifest first; then files go that no kept
snapshot and no plain Lance reader can need, and that are too old to belong to a running writer;
then the manifest's own old versions. A crash in between leaves files behind, never a hole.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from phalanx.errors import ConflictError, CorruptTable, InvalidInput, TableNotFound
from phalanx.model.predicates import to_text
from phalanx.model.spelling import quote
from phalanx.storage.files import (
    DETACHED,
    GRACE_FLOOR,
    DatasetFolder,
    File,
    Live,
    folders,
    is_leaf_folder,
    is_leaf_id,
    version_of,
)
from phalanx.storage.head import Head
from phalanx.storage.leaf import Leaf
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
from phalanx.table.format import count_text, size_text
from phalanx.table.plan import Plan
from phalanx.table.properties import DEFAULT_AGE, snapshot_age, snapshots_at_least
from phalanx.transaction import lock
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot, sequence_of

#: Versions of the manifest that were the newest within this time stay even when forced: a swap
#: may have started from one, and Lance accepts it unseen once the versions after it are gone.
SWAP_FLOOR = dt.timedelta(minutes=10)
_WORKERS = 8
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


@dataclass(frozen=True)
class VacuumReport:
    """What went, or would go."""

    dry_run: bool
    #: The versions that can no longer be opened.
    snapshots: tuple[int, ...] = ()
    #: How many rows of the manifest went with them.
    rows: int = 0
    #: Every file, relative to the table's root; those of whole folders and of the manifest too.
    paths: tuple[str, ...] = ()
    bytes: int = 0
    #: Leaf folders that went whole.
    folders: tuple[str, ...] = ()
    #: Versions of the manifest.
    manifest_versions: tuple[int, ...] = ()
    #: What was left alone, and why.
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        return len(self.paths)

    def __str__(self) -> str:
        verb = "would remove" if self.dry_run else "removed"
        lines = [
            f"{verb} {count_text(self.files, 'file')} ({size_text(self.bytes)}), "
            f"{count_text(len(self.folders), 'folder')} among them; "
            f"{count_text(len(self.snapshots), 'snapshot')}, {count_text(self.rows, 'row')} and "
            f"{count_text(len(self.manifest_versions), 'version')} of the manifest"
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def expire_snapshots(
    snapshot: Snapshot, older_than: dt.timedelta | None = None, dry_run: bool = False
) -> ExpireReport:
    """Give up the snapshots that were the newest only before that time; tags keep theirs.

    Without an age the table's property says it. No file is removed: `vacuum` does that, when they
    are old enough. Raises InvalidInput for an impossible age.
    """
    found = _expire(snapshot.location, _Policy.of(older_than), "expire", dry_run)
    return ExpireReport(dry_run, found.snapshots, found.row_count, found.oldest)


def vacuum(
    snapshot: Snapshot,
    older_than: dt.timedelta | None = None,
    dry_run: bool = False,
    force: bool = False,
) -> VacuumReport:
    """Remove old snapshots, and the files that nothing needs.

    Snapshots go when they were the newest only before `older_than`, or as the table's properties
    say. Files that nothing refers to go when they are older than `older_than` (7 days by
    default), which is 24 hours at least unless forced: a writer that is still running may own
    them.

    Raises InvalidInput for an age that is too short.
    """
    age = DEFAULT_AGE if older_than is None else older_than
    policy = replace(_Policy.of(older_than), file_age=age)
    if age < GRACE_FLOOR and not force:
        raise InvalidInput(
            f"older_than={age} is less than 24 hours, and a writer that is still running may own "
            "files of that age: say force=True if there is none"
        )
    now = policy.now
    found = _expire(snapshot.location, policy, "vacuum", dry_run)
    reach("vacuum.rows-expired")
    with ThreadPoolExecutor(_WORKERS) as pool:
        sweep = _Sweep(snapshot.location, found, now - age, dry_run, pool)
        sweep.leaves()
        sweep.orphans()
        sweep.manifest(now - max(age, SWAP_FLOOR))
        if not dry_run:
            anchor(Snapshot.latest(snapshot.location), pool)
    return VacuumReport(
        dry_run,
        found.snapshots,
        found.row_count,
        tuple(sweep.paths),
        sweep.bytes,
        tuple(sweep.folders),
        tuple(sweep.versions),
        tuple(sweep.notes),
    )


def anchor(snapshot: Snapshot, pool: Executor, chosen: Any = None) -> None:
    """Publish the leaves' versions on their main branches, where the table asks for it.

    With `chosen` only those of some leaves, by their places in the snapshot.
    """
    head = snapshot.head
    if head.transactions == "weak" or head.properties.get("anchor", "maintenance") == "never":
        return
    leaves = snapshot.leaves
    places = leaves.versions(np.arange(len(leaves)) if chosen is None else chosen)

    def publish(place: tuple[str, int | None]) -> None:
        Leaf(snapshot.location, place[0], head.schema).anchor(place[1])

    list(pool.map(publish, places))


@dataclass(frozen=True)
class _Policy:
    """How long snapshots are kept: as somebody says now, or as the table says."""

    older_than: dt.timedelta | None
    now: dt.datetime
    #: How old files must be that go with them: whoever reads a snapshot of that time needs them.
    file_age: dt.timedelta = dt.timedelta(0)

    @staticmethod
    def of(older_than: dt.timedelta | None) -> _Policy:
        known = older_than is None or isinstance(older_than, dt.timedelta)
        if not known or (older_than is not None and older_than < dt.timedelta(0)):
            raise InvalidInput(
                f"older_than is a timedelta that is not negative, not {older_than!r}"
            )
        return _Policy(older_than, dt.datetime.now(dt.UTC))

    def cutoff(self, head: Head) -> dt.datetime:
        """What was the newest only before this time goes."""
        age = snapshot_age(head.properties) if self.older_than is None else self.older_than
        try:
            return self.now - age
        except OverflowError:
            return dt.datetime.min.replace(tzinfo=dt.UTC)

    def retention(self, newest: Snapshot) -> Retention:
        return Retention.of(newest, self.cutoff(newest.head), self.now - self.file_age)


# Snapshots


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
            first = min((v for v in versions if _is_after(superseded, v, cutoff)), default=first)
        kept = first
        if files_since is not None:
            since = (v for v in versions if _is_after(superseded, v, files_since))
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
        least = head.sequence - snapshots_at_least(head.properties) + 1
        for wanted in range(max(head.oldest, least), oldest) if cutoff is not None else ():
            with contextlib.suppress(TableNotFound):
                oldest, first_open = wanted, newest.go_to(wanted).manifest.version
                kept = min(kept, first_open)
                break
        return Retention(newest.location, manifest, oldest, _tags(newest), kept, first_open)

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


def _tags(snapshot: Snapshot) -> frozenset[tuple[int, int]]:
    tags = snapshot.tags().values()
    return frozenset((int(tag["version"]), int(tag["manifest_version"])) for tag in tags)


def _is_after(superseded: dict[int, dt.datetime], version: int, cutoff: dt.datetime) -> bool:
    """Whether a version of main was still the newest after a time."""
    return version not in superseded or superseded[version] > cutoff


@dataclass
class _Expired:
    """What has expired, or would, and what stays."""

    retention: Retention
    snapshots: tuple[int, ...]
    row_count: int
    #: Whether that has become a version of the table.
    told: bool = False

    @property
    def oldest(self) -> int:
        return self.retention.oldest


def _expire(location: Location, policy: _Policy, operation: str, dry_run: bool) -> _Expired:
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
            if _tags(newest) != retention.tags or newest.head.oldest > retention.oldest:
                continue
            retention.newest = newest.manifest
            gone = _transactions_before(newest, retention)
            # A leaf that went and came back has new rows by the names of old ones.
            present = _version_rows(newest.manifest) if candidates else set()
            ids = [id for _, id in gone] + [row[0] for row in candidates if row in present]
            found = _Expired(retention, tuple(sorted(s for s, _ in gone)), len(ids))
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


def _announce(location: Location) -> None:
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


# Files

_T = TypeVar("_T")
_U = TypeVar("_U")


@dataclass
class _Found:
    """What can go from one folder."""

    folder: DatasetFolder
    files: list[File] = field(default_factory=list)
    note: str | None = None


class _Sweep:
    """Finds and removes the files that nothing needs, and counts them."""

    def __init__(
        self,
        location: Location,
        expired: _Expired,
        cutoff: dt.datetime,
        dry_run: bool,
        pool: Executor,
    ) -> None:
        self._location, self._cutoff = location, cutoff
        self._dry_run, self._pool = dry_run, pool
        self._retention, self._told = expired.retention, expired.told
        self._kept = self._retention.leaf_versions(self._retention.first_kept)
        self.paths: list[str] = []
        self.bytes = 0
        self.folders: list[str] = []
        self.versions: list[int] = []
        self.notes: list[str] = []

    def leaves(self) -> None:
        """Files in leaves that some kept snapshot has."""
        kept = self._kept.by_folder()
        found = self._map(lambda name: self._look(name, kept[name]), sorted(kept))
        reach("vacuum.files-listed")
        for one in found:
            if one.note:
                self.notes.append(one.note)
            elif one.files:
                self._remove(one, kept[one.folder.name])

    def _look(self, name: str, versions: Collection[int | None]) -> _Found:
        """The files of a leaf that can go."""
        folder = DatasetFolder(self._location, name)
        if not folder.is_inside:
            return _Found(folder, note=f"{folder.uri} is a link: nothing in it was touched")
        try:
            if not any(self._is_old(file) for file in folder.files):
                return _Found(folder)
            live = live_files(folder, versions, self._cutoff)
        except CorruptTable as error:
            return _Found(folder, note=f"nothing in {name} was touched, run check(): {error}")
        return _Found(
            folder, [f for f in folder.files if self._is_old(f) and not live.holds(f.path)]
        )

    def _is_old(self, file: File) -> bool:
        return file.modified <= self._cutoff

    def _remove(self, found: _Found, known: set[int | None]) -> None:
        """Remove files of a leaf, unless a commit of this moment has come to need them."""
        folder, files = found.folder, found.files
        if not self._dry_run:
            self._announce()
            with lock.held(self._location):
                late = self._versions_now(folder.name) - known
                if late:
                    live = live_files(folder, late, self._cutoff)
                    files = [file for file in files if not live.holds(file.path)]
                self._delete(folder, files)
        self._count(folder, files)

    def _announce(self) -> None:
        if not self._told:
            _announce(self._location)
            self._told = True

    def _versions_now(self, folder: str) -> set[int | None]:
        """The versions of a leaf in the newest snapshot."""
        newest = ManifestVersion(self._location)
        if newest.version == self._retention.newest.version:
            return set()
        columns = ["location", "read_version"]
        rows = newest.read(columns, f"object_type = '{TABLE}' AND location = {quote(folder)}")
        return {row.get("read_version") for row in rows.to_pylist()}

    def orphans(self) -> None:
        """Folders of leaves that no kept snapshot has."""
        known = self._kept.folders()
        names = [n for n in folders(self._location) if is_leaf_folder(n) and n not in known]
        for name in names:
            folder = DatasetFolder(self._location, name)
            if not self._is_abandoned(folder):
                continue
            if not self._dry_run:
                self._announce()
                with lock.held(self._location):
                    folder.forget()
                    if self._versions_now(name) or not self._is_abandoned(folder):
                        continue
                    self._delete(folder, folder.files)
                    folder.remove_empty()
                reach("vacuum.folder-deleted")
            self.folders.append(name)
            self._count(folder, folder.files)

    def _is_abandoned(self, folder: DatasetFolder) -> bool:
        """Whether everything in a folder is old."""
        try:
            return folder.is_inside and folder.modified <= self._cutoff
        except CorruptTable as error:
            self.notes.append(f"the age of {folder.name} cannot be told, so it stays: {error}")
            return False

    def manifest(self, cutoff: dt.datetime) -> None:
        """Old versions of the manifest, and files that only they refer to."""
        folder = DatasetFolder(self._location, MANIFEST)
        if not folder.is_inside:
            self.notes.append(f"{folder.uri} is a link: nothing in it was touched")
            return
        main, versions = folder.main(), folder.main_versions()
        superseded = folder.superseded()
        newest = min(self._retention.newest.version, main.newest)
        first = min((v for v in versions if _is_after(superseded, v, cutoff)), default=newest)
        first = min(first, newest, self._retention.first_kept)
        held = self._retention.tagged | main.pinned
        gone = [v for v in versions if v < first and v not in held]
        live = Live()
        live.add_paths(main.files(set(versions) - set(gone)))
        files = [
            file
            for file in folder.files
            if file.modified <= cutoff and version_of(file.path) is None
            if not live.holds(file.path)
        ]
        files = [versions[v] for v in gone] + files
        if not self._dry_run:
            self._delete(folder, files)
            reach("vacuum.manifest-trimmed")
        self.versions += gone
        self._count(folder, files)

    def _delete(self, folder: DatasetFolder, files: Iterable[File]) -> None:
        """Remove files, versions first: what is left after a crash is in nobody's way."""

        def delete(file: File) -> None:
            folder.delete(file.path)
            reach("vacuum.file-deleted")

        versions = [file for file in files if version_of(file.path) is not None]
        self._map(delete, versions)
        self._map(delete, [file for file in files if version_of(file.path) is None])

    def _map(self, do: Callable[[_T], _U], items: Iterable[_T]) -> list[_U]:
        return list(self._pool.map(do, items))

    def _count(self, folder: DatasetFolder, files: Sequence[File]) -> None:
        self.paths += [f"{folder.name}/{file.path}" for file in files]
        self.bytes += sum(file.size for file in files)


def live_files(
    folder: DatasetFolder, versions: Collection[int | None], cutoff: dt.datetime
) -> Live:
    """The files of a leaf that must stay: for some versions, and for plain Lance.

    On main the newest version stays, what was the newest after `cutoff`, and what a tag or a
    branch of plain Lance holds. Raises CorruptTable where a version cannot be read.
    """
    live = Live()
    wanted = {version for version in versions if version is not None}
    for version in wanted:
        live.add(folder.contents(version))
    on_main = folder.main_versions()
    if on_main or None in versions:
        main = folder.main()
        superseded = folder.superseded()
        kept = {v for v in on_main if _is_after(superseded, v, cutoff)}
        kept |= main.pinned | {main.newest} | {v for v in wanted if v < DETACHED}
        live.add_paths(main.files(kept))
    return live


def positive(given: int | None, default: int, name: str) -> int:
    """A bound that somebody gave, or the usual one. Raises InvalidInput for what is none."""
    if given is None:
        return default
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise InvalidInput(f"{name} is a whole number from 1, not {given!r}")
    return given


def doubts(plan: Plan, indices: Any, done: str) -> Iterator[str]:
    """A note on leaves that are `done` whole although not all of their rows match, perhaps."""
    doubtful = int((~plan.certain[indices]).sum())
    if doubtful:
        yield (
            f"partition values do not decide {to_text(plan.predicate)}: "
            f"{count_text(doubtful, 'leaf')} that may hold matching rows "
            f"{'is' if doubtful == 1 else 'are'} {done} whole"
        )
