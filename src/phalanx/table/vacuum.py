"""Vacuum: expire old snapshots, and delete files that nothing refers to.

First, snapshots expire in the manifest. Then files are deleted that no remaining snapshot and no
plain Lance reader needs, and that are too old to belong to a running writer. Last, old versions of
the manifest itself are deleted. A crash in between leaves extra files, never missing ones.

If the disk is so full that no snapshot can expire, files are deleted first: those that nothing
refers to, and if that is not enough, those of the snapshots that are about to expire.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from phalanx import progress
from phalanx.errors import CorruptTable, InvalidInput
from phalanx.model.properties import DEFAULT_AGE
from phalanx.storage import lance_errors
from phalanx.storage.files import (
    DETACHED,
    GRACE_FLOOR,
    DatasetFolder,
    File,
    Live,
    folders,
    version_of,
)
from phalanx.storage.index_models import is_model_folder
from phalanx.storage.layouts import layout_of
from phalanx.storage.location import MANIFEST, Location
from phalanx.storage.main_branch import MainBranch
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.manifest_update import READ_VERSION
from phalanx.table.anchor import anchor
from phalanx.table.check import confirmed_damage
from phalanx.table.format import count_text, size_text
from phalanx.table.retention import (
    Expired,
    Retention,
    RetentionPolicy,
    announce,
    expire,
    is_after,
    models_of,
)
from phalanx.table.rules.lost import LeafLost, LeafReplaced
from phalanx.transaction import lock
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot

#: Versions of the manifest that were the newest within this time are kept even with `force`. A swap
#: may have started from one, and once the versions after it are deleted, Lance no longer detects
#: the conflict.
SWAP_FLOOR = dt.timedelta(minutes=10)
#: How many files are deleted before the lock is released: writers wait for it for 5 seconds.
_AT_ONCE = 256
#: A disk with less free space than this is full: an expiry may need as much. Likewise with fewer
#: files that can be made.
_ENOUGH = 16 * 1024 * 1024
_ENOUGH_FILES = 1_000
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

    def plus(self, later: VacuumReport) -> VacuumReport:
        """This report and a later one of the same call, as one."""
        sums = {name: getattr(self, name) + getattr(later, name) for name in _SUMMED}
        return replace(later, **sums)

    def __str__(self) -> str:
        verb = "would remove" if self.dry_run else "removed"
        lines = [
            f"{verb} {count_text(self.files, 'file')} ({size_text(self.bytes)}), "
            f"{count_text(len(self.folders), 'folder')} among them; "
            f"{count_text(len(self.snapshots), 'snapshot')}, {count_text(self.rows, 'row')} and "
            f"{count_text(len(self.manifest_versions), 'version')} of the manifest"
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


#: The rules that bring leaves back. Files that they need look as if nothing refers to them.
_RECOVERING = (LeafLost(), LeafReplaced())
_SUMMED = ("paths", "bytes", "folders", "manifest_versions", "notes")


def vacuum(
    snapshot: Snapshot,
    older_than: dt.timedelta | dt.datetime | str | None = None,
    dry_run: bool = False,
    force: bool = False,
) -> VacuumReport:
    """Expire old snapshots, and delete the files that nothing needs.

    Snapshots expire if they were replaced longer ago than `older_than`; without it, the table's
    properties decide. Unreferenced files are deleted if they are older than `older_than` (7 days by
    default). Younger files may belong to a running writer.

    Raises InvalidInput for an age of less than 24 hours without `force`, UnsupportedTable for a
    table of another client, and ConflictError if other transactions kept committing.
    """
    policy = RetentionPolicy.of(older_than)
    age = DEFAULT_AGE if policy.older_than is None else policy.older_than
    policy = replace(policy, file_age=age)
    if age < GRACE_FLOOR and not force:
        raise InvalidInput(
            f"older_than={age} is less than 24 hours, and a writer that is still running may own "
            "files of that age: pass force=True if there is none"
        )
    snapshot.check_writable()
    location = snapshot.location
    recoverable = confirmed_damage(location, _RECOVERING)
    if recoverable:
        listed = "; ".join(map(str, recoverable))
        note = f"check() finds what repair() can bring back, so nothing was deleted: {listed}"
        return VacuumReport(dry_run, notes=(note,))
    with ThreadPoolExecutor(_WORKERS) as pool:
        if dry_run:
            return _swept(location, expire(location, policy, "vacuum", True), policy, True, pool)
        freed = VacuumReport(False)
        for expiring in (False, True):
            try:
                return freed.plus(_vacuumed(location, policy, pool))
            except OSError as error:
                if not lance_errors.is_full(error):
                    raise
                if expiring and _free_bytes(location) > _ENOUGH:
                    raise  # a quota or a limit: deleting old snapshots may not help
                freed = freed.plus(_freed(location, policy, expiring, pool))
        return freed.plus(_vacuumed(location, policy, pool))


def _vacuumed(location: Location, policy: RetentionPolicy, pool: Executor) -> VacuumReport:
    """Expire snapshots, delete files and publish what plain Lance readers see."""
    expired = expire(location, policy, "vacuum", dry_run=False)
    reach("vacuum.rows-expired")
    report = _swept(location, expired, policy, False, pool)
    notes = anchor(Snapshot.latest(location), pool, has_room=lambda: _has_room(location))
    return replace(report, notes=(*report.notes, *notes))


def _has_room(location: Location) -> bool:
    """Whether a disk has space for more than what others need at once: bytes, and files."""
    if location.path is None:
        return True
    files = os.statvfs(location.path)
    return _free_bytes(location) >= _ENOUGH and (
        not files.f_files or files.f_favail >= _ENOUGH_FILES
    )


def _free_bytes(location: Location) -> int:
    """How much space is left on the disk of a table."""
    return shutil.disk_usage(location.uri).free


def _freed(
    location: Location, policy: RetentionPolicy, expiring: bool, pool: Executor
) -> VacuumReport:
    """Delete files while the disk is too full for a commit.

    These are files that nothing refers to. If `expiring`, they are also those of snapshots that the
    policy does not keep: they can no longer be read then, though the manifest still has them.
    """
    if expiring:
        expired = expire(location, policy, "vacuum", dry_run=True)
    else:
        expired = Expired(Retention.of(Snapshot.latest(location), None), (), 0)
    report = _swept(location, expired, policy, False, pool, full=True)
    note = "the disk was full: files were deleted before snapshots expired"
    return replace(report, snapshots=(), rows=0, notes=(note, *report.notes))


def _swept(
    location: Location,
    expired: Expired,
    policy: RetentionPolicy,
    dry_run: bool,
    pool: Executor,
    full: bool = False,
) -> VacuumReport:
    sweep = _Sweep(location, expired, policy.ago(policy.file_age), dry_run, pool, full)
    sweep.leaves()
    sweep.orphans()
    sweep.models()
    sweep.manifest(policy.ago(max(policy.file_age, SWAP_FLOOR)))
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
        full: bool = False,
    ) -> None:
        """`full` says that the disk is full, so that nothing can be committed."""
        self._location, self._cutoff = location, cutoff
        self._dry_run, self._pool, self._full = dry_run, pool, full
        self._retention, self._announced = expired.retention, expired.committed
        self._kept = self._retention.leaf_versions(self._retention.first_kept)
        self.paths: list[str] = []
        self.bytes = 0
        self.folders: list[str] = []
        self.versions: list[int] = []
        self.notes: list[str] = []

    def leaves(self) -> None:
        """Delete unreferenced files of the leaves that a kept snapshot has."""
        kept = self._kept.by_folder()
        progress.begin(len(kept), "leaves")
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
        folder, files = removable.folder, _versions_first(removable.files)
        if self._dry_run:
            self._count(folder, files)
            return
        self._announce()
        for start in range(0, len(files), _AT_ONCE):
            part = files[start : start + _AT_ONCE]
            with self._alone() as alone:
                if not alone:
                    return
                late = self._versions_now(folder.name) - known
                if late:
                    live = live_files(folder, late, self._cutoff)
                    part = [file for file in part if not live.holds(file.path)]
                self._delete(folder, part)
            self._count(folder, part)

    def _announce(self) -> None:
        """Commit a version before the first file is deleted, so that slow writers check theirs."""
        if not self._announced and not self._full:
            announce(self._location)
            self._announced = True

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Hold the lock; yields whether files may be deleted.

        On a full disk no version was announced. A slow writer that has verified its files swaps
        under the lock, so files are deleted only while it is really held, and only as long as the
        table is as it was: the snapshots to keep may be others after a commit.
        """
        with lock.held(self._location) as held:
            if not self._full:
                yield True
                return
            same = ManifestVersion(self._location).version == self._retention.newest.version
            note = "the disk is full, and other writers are busy: try again"
            if not (held and same) and note not in self.notes:
                self.notes.append(note)
            yield held and same

    def _versions_now(self, folder: str) -> set[int | None]:
        """The versions of a leaf in the newest snapshot; empty if no newer one was committed."""
        newest = ManifestVersion(self._location)
        if newest.version == self._retention.newest.version:
            return set()
        return newest.versions_in(folder)

    def orphans(self) -> None:
        """Delete the folders of leaves that no kept snapshot has."""
        known = self._kept.folders()
        head = self._retention.newest.head()
        layout = layout_of(head.properties)
        names = [n for n in layout.leaf_folders(self._location, head) if n not in known]
        for name in names:
            folder = DatasetFolder(self._location, name)
            if not self._is_abandoned(folder):
                continue
            if layout.SHARED and not folder.is_created_by_us():
                self.notes.append(
                    f"{name} is not part of the table, and nothing shows that Phalanx has created "
                    "it, so it was kept: delete it if nobody needs it"
                )
                continue
            if self._is_used_by_others(folder):
                self.notes.append(
                    f"{name} is no longer part of the table, but another client has tagged or "
                    "changed it, so it was kept: delete it if nobody needs it"
                )
                continue
            if not self._dry_run:
                self._announce()
                with self._alone() as alone:
                    folder.forget()
                    if not alone or self._versions_now(name) or not self._is_abandoned(folder):
                        continue
                    self._delete(folder, folder.files)
                    folder.remove_empty()
                reach("vacuum.folder-deleted")
            self.folders.append(name)
            self._count(folder, folder.files)

    def models(self) -> None:
        """Delete the models of vector indexes that no kept snapshot has."""
        names = [name for name in folders(self._location) if is_model_folder(name)]
        if not names:
            return
        kept = self._retention.models(self._retention.first_kept)
        for name in names:
            folder = DatasetFolder(self._location, name)
            if name in kept or not self._is_abandoned(folder):
                continue
            if not self._dry_run:
                self._announce()
                with self._alone() as alone:
                    if not alone or name in models_of(ManifestVersion(self._location)):
                        continue
                    self._delete(folder, folder.files)
                    folder.remove_empty()
                reach("vacuum.folder-deleted")
            self.folders.append(name)
            self._count(folder, folder.files)

    def _is_used_by_others(self, folder: DatasetFolder) -> bool:
        """Whether a Lance client has tags, branches or rows of its own in a folder."""
        if any(file.path.startswith("_refs/") for file in folder.files):
            return True
        if not self._retention.newest.has_column(READ_VERSION):
            return False
        try:
            return bool(MainBranch(self._location, folder.name).foreign_commits())
        except CorruptTable:
            return False

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
        """Delete files, versions first."""

        def delete(file: File) -> None:
            folder.delete(file.path)
            reach("vacuum.file-deleted")

        ordered = _versions_first(files)
        progress.begin(len(ordered), "files")
        for _, group in itertools.groupby(ordered, key=_describes_version):
            self._map(delete, group)

    def _map(self, do: Callable[[_T], _U], items: Iterable[_T]) -> list[_U]:
        return list(progress.counted(self._pool.map(do, items)))

    def _count(self, folder: DatasetFolder, files: Sequence[File]) -> None:
        self.paths += [f"{folder.name}/{file.path}" for file in files]
        self.bytes += sum(file.size for file in files)


def _versions_first(files: Iterable[File]) -> list[File]:
    """Files in the order in which they are deleted: after a crash no version lacks its files."""
    return sorted(files, key=lambda file: not _describes_version(file))


def _describes_version(file: File) -> bool:
    return version_of(file.path) is not None


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
