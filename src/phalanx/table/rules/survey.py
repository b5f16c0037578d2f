"""What is in a table's folders, and which of it the earlier snapshots need.

Folders are read once, by several threads, and rules ask what was in them. A repair that has to
start again reads only the folders that have changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from phalanx import progress
from phalanx.errors import CorruptTable, InvalidInput, PhalanxError, TableNotFound
from phalanx.model.schema import TableSchema
from phalanx.storage.files import DatasetFolder, File, Live, VersionFiles
from phalanx.storage.head import Head
from phalanx.storage.lance_errors import LANCE_ERRORS
from phalanx.storage.layouts import layout_of
from phalanx.storage.leaf_versions import LeafVersions
from phalanx.storage.location import MANIFEST, Location
from phalanx.storage.main_branch import ForeignCommit, ForeignIndex, MainBranch
from phalanx.storage.manifest_update import TABLE
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
    #: Whether main shows what was published, so that nobody else may commit to it.
    is_published: bool = False


@dataclass(frozen=True)
class LeafFacts:
    """What the newest snapshot's version of a leaf holds."""

    #: Rows, bytes and fragments, as the columns of the manifest are called.
    counts: Mapping[str, int]
    #: Id, path and type of every field, nested ones included, depth first.
    fields: tuple[tuple[int, str, str], ...]


@dataclass
class FolderSurvey:
    """What is in the folder of a leaf, compared with what snapshots need."""

    name: str
    needs: FolderNeeds
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
    #: What other clients have committed on main since it was published last, oldest first.
    foreign: list[ForeignCommit] = field(default_factory=list)
    #: The indexes that they have created there since.
    foreign_indexes: list[ForeignIndex] = field(default_factory=list)


@dataclass(frozen=True)
class ManifestSurvey:
    """The manifest's own files."""

    files: int
    missing: list[str]
    orphans: list[File]


class LostRow(NamedTuple):
    """A row that was deleted from the manifest without a transaction."""

    #: The row as it was last seen.
    row: RawRow
    #: The version of the table that had it last.
    sequence: int
    #: The version that has written it again.
    written_again: int = 0


class SeenHead(NamedTuple):
    """The head of an earlier version of the manifest."""

    sequence: int
    #: The last version of the manifest that has it.
    version: int


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
    #: Rows that were deleted without a transaction and have not come back, by id.
    lost: dict[str, LostRow] = field(default_factory=dict)
    #: Leaves that were lost, and then written again at another version, by id.
    replaced: dict[str, LostRow] = field(default_factory=dict)
    #: Every head, by the id of its transaction.
    heads: dict[str, SeenHead] = field(default_factory=dict)
    #: Whether the version of the table ever went back, which no transaction of ours does.
    went_back: bool = False

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
        self._named_folders: list[str] | None = None
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
            progress.begin(len(new), "leaves")
            with ThreadPoolExecutor(_WORKERS) as pool:
                for folder in progress.counted(pool.map(lambda item: self._look(*item), new)):
                    self._folders[folder.name] = folder
        return [self._folders[name] for name in sorted(needs)]

    def _look(self, name: str, needs: FolderNeeds) -> FolderSurvey:
        survey = FolderSurvey(name, needs)
        try:
            folder = DatasetFolder(self._location, name)
            survey.files = len(folder.files)
        except InvalidInput:
            return survey  # a location outside of the table's root has a rule of its own
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
                _keep_all(live, folder)
                continue
            live.add(contents)
            self._compare(survey, folder, contents)
            if needs.in_newest and version == needs.newest:
                survey.newest = self._facts(contents)
        on_main = folder.main_versions()
        survey.has_main = bool(on_main)
        if needs.is_published and on_main:
            with contextlib.suppress(PhalanxError, *LANCE_ERRORS):  # `main_error` says why
                main = MainBranch(self._location, name)
                survey.foreign = main.foreign_commits()
                survey.foreign_indexes = main.foreign_indexes()
        try:
            live.add_paths(folder.main().files(on_main))
        except CorruptTable as error:
            survey.main_error = str(error)
            if on_main:
                _keep_all(live, folder)
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

    def folders_of(self, leaf: str, head: Head) -> list[str]:
        """The folders that are named after a leaf."""
        layout = layout_of(head.properties)
        return [name for name in self._leaf_folders(head) if layout.leaf_in(name, head) == leaf]

    def _leaf_folders(self, head: Head) -> list[str]:
        """The folders that are named like those of leaves, listed once."""
        if self._named_folders is None:
            layout = layout_of(head.properties)
            self._named_folders = layout.leaf_folders(self._location, head)
        return self._named_folders

    def abandoned(self, known: Iterable[str], head: Head) -> dict[str, int]:
        """The folders of leaves that no snapshot has, with their sizes."""
        sizes = {}
        layout = layout_of(head.properties)
        for name in sorted(set(layout.leaf_folders(self._location, head)) - set(known)):
            sizes[name] = 0
            with contextlib.suppress(CorruptTable):
                files = DatasetFolder(self._location, name).files
                sizes[name] = sum(file.size for file in files)
        return sizes

    @cached_property
    def manifest(self) -> ManifestSurvey:
        folder = DatasetFolder(self._location, MANIFEST)
        live = Live()
        try:
            live.add_paths(folder.main().files(folder.main_versions()))
        except CorruptTable:
            _keep_all(live, folder)  # the history says which version cannot be read
        orphans = [file for file in folder.files if not live.holds(file.path)]
        # A version that was committed after the folder was listed has files that are not listed.
        folder.forget()
        missing = sorted(live.paths - set(folder.by_path))
        return ManifestSurvey(
            files=len(folder.files),
            missing=[path for path in missing if not path.startswith("_transactions/")],
            orphans=[file for file in orphans if file.path in folder.by_path],
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
        trail = _Trail(history)
        for version in retention.versions(retention.first_open):
            if version == manifest.version:
                continue
            try:
                earlier = RawVersion(self._location, version)
                head = earlier.whole_head()
                if head is None:
                    continue  # damaged, and mended since: it cannot be opened
                history.leaf_versions.add(earlier)
            except (PhalanxError, OSError, ValueError) as error:
                if version in manifest.handle.versions():  # not removed by a vacuum of this moment
                    history.unreadable[version] = str(error).split("\n")[0]
                continue
            history.schemas.add(head.schema)
            history.sequences.add(head.sequence)
            if version < manifest.version:  # others may have committed since
                with contextlib.suppress(TableNotFound):  # removed by a vacuum of this moment
                    trail.follow(earlier, head)
        if manifest.head.ours and manifest.head_row is not None:
            trail.follow(manifest.handle, manifest.head)
        existing = set(manifest.handle.versions())
        for name, tag in newest.tags().items():
            if tag.manifest_version not in existing:
                history.broken_tags[name] = tag.version
        return history


class _Trail:
    """Follows the versions of a manifest, oldest first, and records what nothing explains.

    Every transaction writes another head. So rows that are gone while the head is the same were
    deleted by somebody else, and so was a head whose successor has a lower version.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._last: tuple[RawVersion, Head, int] | None = None

    def follow(self, version: RawVersion, head: Head) -> None:
        """Compare the next version with what is known.

        Raises CorruptTable, and TableNotFound if it was removed meanwhile.
        """
        history = self._history
        if history.lost:
            self._look_again(version, head)
        count = version.row_count()
        if self._last is not None:
            earlier, last, rows = self._last
            if head.transaction_id != last.transaction_id:
                history.went_back |= head.sequence <= last.sequence
            else:
                try:
                    self._compare(earlier, last, version, fewer=count < rows)
                except TableNotFound:
                    if earlier.exists():  # else it was removed by a vacuum of this moment
                        raise
        history.heads[head.transaction_id] = SeenHead(head.sequence, version.version)
        self._last = version, head, count

    def _compare(self, earlier: RawVersion, last: Head, version: RawVersion, fewer: bool) -> None:
        """Record the rows that are gone, though both versions have the same head."""
        if not fewer and not earlier.leaf_ids() - version.leaf_ids():
            return
        ids = {row.id for row in version.rows(statistics=False)}
        for row in earlier.as_manifest(last).rows:
            if row.id not in ids:
                self._history.lost[row.id] = LostRow(row, last.sequence)

    def _look_again(self, version: RawVersion, head: Head) -> None:
        """Find out which of the lost rows are back."""
        history = self._history
        for row in version.rows_by_id(list(history.lost)):
            lost = history.lost.get(row.id)
            if lost is None:
                continue
            if row.type != TABLE or lost.row.version == row.version or _follows(row, lost.row):
                del history.lost[row.id]
            elif head.sequence > lost.sequence:
                del history.lost[row.id]
                history.replaced[row.id] = lost._replace(written_again=head.sequence)


def _follows(row: RawRow, earlier: RawRow) -> bool:
    """Whether a leaf was changed by a writer that knew the earlier row: a new one begins with 1."""
    number = "version_number"
    return bool(row.columns.get(number, 0) > earlier.columns.get(number, 0))


def _keep_all(live: Live, folder: DatasetFolder) -> None:
    """Take no file for an orphan: it is not known what some version needs."""
    live.all_transactions, live.indexes = True, None
    live.add_paths(file.path for file in folder.files)
