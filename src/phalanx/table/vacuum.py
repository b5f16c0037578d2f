"""Vacuum: expire old snapshots, and delete files that nothing refers to.

First, snapshots expire in the manifest. Then files are deleted that no remaining snapshot and no
plain Lance reader needs, and that are too old to belong to a running writer. Last, old versions of
the manifest itself are deleted. A crash in between leaves extra files, never missing ones.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from phalanx.errors import CorruptTable, InvalidInput
from phalanx.model.properties import DEFAULT_AGE
from phalanx.storage.files import (
    DETACHED,
    GRACE_FLOOR,
    DatasetFolder,
    File,
    Live,
    folders,
    version_of,
)
from phalanx.storage.location import MANIFEST, Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.names import is_leaf_folder, leaf_in
from phalanx.table.anchor import anchor
from phalanx.table.format import count_text, size_text
from phalanx.table.retention import Expired, RetentionPolicy, announce, expire, is_after
from phalanx.transaction import lock
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot

#: Versions of the manifest that were the newest within this time are kept even with `force`. A swap
#: may have started from one, and once the versions after it are deleted, Lance no longer detects
#: the conflict.
SWAP_FLOOR = dt.timedelta(minutes=10)
#: How many leaves are listed, or files deleted, concurrently.
_WORKERS = 8


@dataclass(frozen=True)
class VacuumReport:
    """What vacuum deleted, or would delete."""

    dry_run: bool
    #: The versions that can no longer be opened.
    snapshots: tuple[int, ...] = ()
    #: How many rows were removed from the manifest.
    rows: int = 0
    #: All deleted files, relative to the table's root.
    paths: tuple[str, ...] = ()
    bytes: int = 0
    #: Leaf folders that were deleted as a whole.
    folders: tuple[str, ...] = ()
    #: Versions of the manifest that were deleted.
    manifest_versions: tuple[int, ...] = ()
    #: What was skipped, and why.
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        """The number of deleted files."""
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
    """Expire old snapshots, and delete the files that nothing needs.

    Snapshots expire if they were replaced longer ago than `older_than`; without it, the table's
    properties decide. Unreferenced files are deleted if they are older than `older_than` (7 days by
    default). Younger files may belong to a running writer.

    Raises InvalidInput for an age of less than 24 hours without `force`, and ConflictError if other
    transactions kept committing.
    """
    age = DEFAULT_AGE if older_than is None else older_than
    policy = replace(RetentionPolicy.of(older_than), file_age=age)
    if age < GRACE_FLOOR and not force:
        raise InvalidInput(
            f"older_than={age} is less than 24 hours, and a writer that is still running may own "
            "files of that age: pass force=True if there is none"
        )
    expired = expire(snapshot.location, policy, "vacuum", dry_run)
    reach("vacuum.rows-expired")
    with ThreadPoolExecutor(_WORKERS) as pool:
        sweep = _Sweep(snapshot.location, expired, policy.ago(age), dry_run, pool)
        sweep.leaves()
        sweep.orphans()
        sweep.manifest(policy.ago(max(age, SWAP_FLOOR)))
        if not dry_run:
            sweep.notes += anchor(Snapshot.latest(snapshot.location), pool)
    return VacuumReport(
        dry_run,
        expired.snapshots,
        expired.row_count,
        tuple(sweep.paths),
        sweep.bytes,
        tuple(sweep.folders),
        tuple(sweep.versions),
        tuple(sweep.notes),
    )


_T = TypeVar("_T")
_U = TypeVar("_U")


@dataclass
class _Removable:
    """The files of one leaf that can be deleted."""

    folder: DatasetFolder
    files: list[File] = field(default_factory=list)
    #: Why the leaf is skipped, if it is.
    note: str | None = None


class _Sweep:
    """Finds and deletes the files that nothing needs, and counts them."""

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
        self._retention, self._announced = expired.retention, expired.told
        self._kept = self._retention.leaf_versions(self._retention.first_kept)
        self.paths: list[str] = []
        self.bytes = 0
        self.folders: list[str] = []
        self.versions: list[int] = []
        self.notes: list[str] = []

    def leaves(self) -> None:
        """Delete unreferenced files of the leaves that a kept snapshot has."""
        kept = self._kept.by_folder()
        removables = self._map(lambda name: self._look(name, kept[name]), sorted(kept))
        reach("vacuum.files-listed")
        for removable in removables:
            if removable.note:
                self.notes.append(removable.note)
            elif removable.files:
                self._remove(removable, kept[removable.folder.name])

    def _look(self, name: str, versions: Collection[int | None]) -> _Removable:
        """The files of a leaf that can be deleted."""
        folder = DatasetFolder(self._location, name)
        if not folder.is_inside:
            return _Removable(folder, note=f"{folder.uri} is a link: nothing in it was touched")
        try:
            if not any(self._is_old(file) for file in folder.files):
                return _Removable(folder)
            live = live_files(folder, versions, self._cutoff)
        except CorruptTable as error:
            return _Removable(folder, note=f"nothing in {name} was touched, run check(): {error}")
        return _Removable(
            folder, [f for f in folder.files if self._is_old(f) and not live.holds(f.path)]
        )

    def _is_old(self, file: File) -> bool:
        return file.modified <= self._cutoff

    def _remove(self, removable: _Removable, known: set[int | None]) -> None:
        """Delete files of a leaf, except those that a commit of this moment refers to."""
        folder, files = removable.folder, removable.files
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
        """Commit a version before the first file is deleted, so that slow writers check theirs."""
        if not self._announced:
            announce(self._location)
            self._announced = True

    def _versions_now(self, folder: str) -> set[int | None]:
        """The versions of a leaf in the newest snapshot; empty if no newer one was committed."""
        newest = ManifestVersion(self._location)
        if newest.version == self._retention.newest.version:
            return set()
        return newest.versions_in(folder)

    def orphans(self) -> None:
        """Delete the folders of leaves that no kept snapshot has."""
        known = self._kept.folders()
        names = [n for n in folders(self._location) if is_leaf_folder(n) and n not in known]
        lost = self._retention.newest.lost_leaves() if names else set()
        for name in names:
            folder = DatasetFolder(self._location, name)
            if not self._is_abandoned(folder):
                continue
            if leaf_in(name) in lost:
                self.notes.append(f"{name} is the folder of a leaf whose row is lost: run repair()")
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
            self.notes.append(f"the age of {folder.name} is unknown, so it was kept: {error}")
            return False

    def manifest(self, cutoff: dt.datetime) -> None:
        """Delete old versions of the manifest, and the files that only they refer to."""
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
        """Delete files, versions first, so that after a crash no version lacks its files."""

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
    """The files of a leaf that must be kept, for the given versions and for plain Lance readers.

    These also need the newest version on main, every version that was the newest after `cutoff`,
    and those that a Lance tag or branch refers to. Raises CorruptTable if a version cannot be read.
    """
    live = Live()
    named = {version for version in versions if version is not None}
    for version in named:
        live.add(folder.contents(version))
    on_main = folder.main_versions()
    if on_main or None in versions:
        main = folder.main()
        superseded = folder.superseded()
        kept = {v for v in on_main if is_after(superseded, v, cutoff)}
        kept |= main.pinned | {main.newest} | {v for v in named if v < DETACHED}
        live.add_paths(main.files(kept))
    return live
