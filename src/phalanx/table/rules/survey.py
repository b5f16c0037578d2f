"""What lies in a table's folders, and what its earlier snapshots need of it.

Files are looked at once, by several threads; what they showed is kept for the rules. A repair
that has to start again looks only at folders that somebody has changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

from phalanx.errors import CorruptTable, InvalidInput, PhalanxError
from phalanx.model.schema import TableSchema
from phalanx.storage.files import DatasetFolder, File, Live, VersionFiles, folders
from phalanx.storage.leaf_versions import LeafVersions
from phalanx.storage.location import MANIFEST, Location
from phalanx.storage.names import is_leaf_folder
from phalanx.storage.raw_manifest import RawManifest, RawRow, RawVersion
from phalanx.table.retention import Retention
from phalanx.transaction.snapshot import Snapshot

_WORKERS = 8


@dataclass(frozen=True)
class FolderNeeds:
    """The versions of a leaf that snapshots need; None stands for the newest on main."""

    versions: frozenset[int | None]
    #: Whether the newest snapshot has the leaf, and at which version.
    in_newest: bool = False
    newest: int | None = None


@dataclass(frozen=True)
class LeafFacts:
    """What the newest snapshot's version of a leaf holds."""

    #: Rows, bytes and fragments, as the columns of the manifest are called.
    counts: Mapping[str, int]
    #: Id, path and type of every field, nested ones included, depth first.
    fields: tuple[tuple[int, str, str], ...]


@dataclass
class FolderSurvey:
    """A leaf's folder, as it was found."""

    name: str
    needs: FolderNeeds
    #: Whether the folder is outside of the table's root: nothing is looked at there.
    outside: bool = False
    #: Why nothing in it can be read.
    error: str | None = None
    #: Why plain Lance cannot open it.
    main_error: str | None = None
    #: Whether there are files of a main branch.
    has_main: bool = False
    files: int = 0
    #: The versions that cannot be read.
    unreadable: list[int | None] = field(default_factory=list)
    #: The files that versions need and that are not there, with their sizes.
    missing: dict[str, int] = field(default_factory=dict)
    #: The files that have another size than they should, with that size.
    damaged: dict[str, tuple[File, int]] = field(default_factory=dict)
    #: The files that nothing refers to.
    orphans: list[File] = field(default_factory=list)
    #: What the newest snapshot's version holds; None where it cannot be read.
    newest: LeafFacts | None = None


@dataclass(frozen=True)
class ManifestSurvey:
    """The manifest's own files."""

    files: int
    missing: list[str]
    orphans: list[File]


@dataclass
class History:
    """What the earlier snapshots that can be opened consist of."""

    leaf_versions: LeafVersions = field(default_factory=LeafVersions)
    schemas: set[TableSchema] = field(default_factory=set)
    sequences: set[int] = field(default_factory=set)
    #: Versions of the manifest that cannot be read, and why.
    unreadable: dict[int, str] = field(default_factory=dict)
    #: Tags whose version of the manifest is gone, with their version of the table.
    broken_tags: dict[str, int] = field(default_factory=dict)

    @cached_property
    def versions_by_folder(self) -> dict[str, set[int | None]]:
        """The versions of leaves by folder; None stands for the newest on main."""
        return self.leaf_versions.by_folder()


class Survey:
    """What has been looked at of a table so far."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._folders: dict[str, FolderSurvey] = {}
        self._histories: dict[int, History] = {}
        #: Most leaves have the same fields: one tuple stands for all of them.
        self._fields: dict[tuple[tuple[int, str, str], ...], tuple[tuple[int, str, str], ...]] = {}

    def folders(self, needs: Mapping[str, FolderNeeds]) -> list[FolderSurvey]:
        """What is in the folders of leaves, in order of name."""
        new = [
            (name, needed)
            for name, needed in sorted(needs.items())
            if name not in self._folders or self._folders[name].needs != needed
        ]
        if new:
            with ThreadPoolExecutor(_WORKERS) as pool:
                for folder in pool.map(lambda item: self._look(*item), new):
                    self._folders[folder.name] = folder
        return [self._folders[name] for name in sorted(needs)]

    def _look(self, name: str, needs: FolderNeeds) -> FolderSurvey:
        survey = FolderSurvey(name, needs)
        try:
            folder = DatasetFolder(self._location, name)
            survey.files = len(folder.files)
        except InvalidInput:
            survey.outside = True
            return survey
        except CorruptTable as error:
            survey.error = str(error)
            return survey
        if not folder.files:
            survey.error = "the leaf's folder is empty or not there"
            return survey
        live = Live()
        for version in sorted(needs.versions, key=lambda v: v or 0):
            try:
                contents = folder.contents(version)
            except CorruptTable:
                survey.unreadable.append(version)
                # No file is an orphan while it is not known what this version needs.
                live.all_transactions, live.indexes = True, None
                live.add_paths(file.path for file in folder.files)
                continue
            live.add(contents)
            self._compare(survey, folder, contents)
            if needs.in_newest and version == needs.newest:
                survey.newest = self._facts(contents)
        on_main = folder.main_versions()
        survey.has_main = bool(on_main)
        try:
            live.add_paths(folder.main().files(on_main))
        except CorruptTable as error:
            survey.main_error = str(error)
        survey.orphans = [file for file in folder.files if not live.holds(file.path)]
        return survey

    def _compare(self, survey: FolderSurvey, folder: DatasetFolder, contents: VersionFiles) -> None:
        """Compare the files of a version with those that are there."""
        for path in folder.missing_of(contents):
            file, size = folder.by_path.get(path), contents.files.get(path) or 0
            if file is None:
                survey.missing.setdefault(path, size)
            else:
                survey.damaged.setdefault(path, (file, size))

    def _facts(self, contents: VersionFiles) -> LeafFacts:
        counts = {
            "row_count": contents.rows,
            "byte_count": contents.bytes,
            "fragment_count": contents.fragments,
        }
        return LeafFacts(counts, self._fields.setdefault(contents.fields, contents.fields))

    def is_whole(self, leaf: RawRow, version: int | None) -> bool:
        """Whether a version of a leaf can be read, with all its files."""
        try:
            folder = DatasetFolder(self._location, leaf.location or "")
            return not folder.missing(version)
        except (CorruptTable, InvalidInput):
            return False

    def abandoned(self, known: Iterable[str]) -> dict[str, int]:
        """The folders of leaves that no snapshot has, with their sizes."""
        sizes = {}
        for name in sorted(set(folders(self._location)) - set(known)):
            if is_leaf_folder(name):
                sizes[name] = 0
                with contextlib.suppress(CorruptTable):
                    files = DatasetFolder(self._location, name).files
                    sizes[name] = sum(file.size for file in files)
        return sizes

    @cached_property
    def manifest(self) -> ManifestSurvey:
        folder = DatasetFolder(self._location, MANIFEST)
        live = Live()
        live.add_paths(folder.main().files(folder.main_versions()))
        missing = sorted(live.paths - set(folder.by_path))
        return ManifestSurvey(
            files=len(folder.files),
            missing=[path for path in missing if not path.startswith("_transactions/")],
            orphans=[file for file in folder.files if not live.holds(file.path)],
        )

    def history(self, manifest: RawManifest) -> History:
        """What the snapshots before a version of the manifest consist of."""
        if manifest.version not in self._histories:
            self._histories = {manifest.version: self._remember(manifest)}
        return self._histories[manifest.version]

    def _remember(self, manifest: RawManifest) -> History:
        history = History()
        newest = Snapshot(manifest.handle, manifest.head)
        retention = Retention.of(newest, None)
        for version in retention.versions(retention.first_open):
            if version == manifest.version:
                continue
            try:
                earlier = RawVersion(self._location, version)
                head = earlier.whole_head()
                if head is None:
                    continue  # damaged, and mended since: nobody can open it
                history.leaf_versions.add(earlier)
            except (PhalanxError, OSError, ValueError) as error:
                history.unreadable[version] = str(error).split("\n")[0]
                continue
            history.schemas.add(head.schema)
            history.sequences.add(head.sequence)
        existing = set(manifest.handle.versions())
        for name, tag in newest.tags().items():
            if tag.manifest_version not in existing:
                history.broken_tags[name] = tag.version
        return history
