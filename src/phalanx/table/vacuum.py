"""Vacuum: removal of old snapshots, and of files that nothing refers to.

What expires is told to the manifest first; then files go that no kept snapshot and no plain Lance
reader can need, and that are too old to belong to a running writer; then the manifest's own old
versions. A crash in between leaves files behind, never a hole.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from phalanx.errors import CorruptTable, InvalidInput
from phalanx.model.properties import DEFAULT_AGE
from phalanx.model.spelling import quote
from phalanx.storage.files import (
    DETACHED,
    GRACE_FLOOR,
    DatasetFolder,
    File,
    Live,
    folders,
    is_leaf_folder,
    version_of,
)
from phalanx.storage.location import MANIFEST, Location
from phalanx.storage.manifest import (
    TABLE,
    ManifestVersion,
)
from phalanx.table.anchor import anchor
from phalanx.table.format import count_text, size_text
from phalanx.table.retention import Expired, RetentionPolicy, announce, expire, is_after
from phalanx.transaction import lock
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot

#: Versions of the manifest that were the newest within this time stay even when forced: a swap
#: may have started from one, and Lance accepts it unseen once the versions after it are gone.
SWAP_FLOOR = dt.timedelta(minutes=10)
_WORKERS = 8


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
    policy = replace(RetentionPolicy.of(older_than), file_age=age)
    if age < GRACE_FLOOR and not force:
        raise InvalidInput(
            f"older_than={age} is less than 24 hours, and a writer that is still running may own "
            "files of that age: say force=True if there is none"
        )
    now = policy.now
    found = expire(snapshot.location, policy, "vacuum", dry_run)
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
        expired: Expired,
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
            announce(self._location)
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
        first = min((v for v in versions if is_after(superseded, v, cutoff)), default=newest)
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
        kept = {v for v in on_main if is_after(superseded, v, cutoff)}
        kept |= main.pinned | {main.newest} | {v for v in wanted if v < DETACHED}
        live.add_paths(main.files(kept))
    return live
