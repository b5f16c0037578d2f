"""The files of a table: what its folders contain, what refers to it, and how it is removed.

A leaf, and the manifest too, is a Lance dataset in a folder of its own:

| path                      | holds                        | is needed by                     |
|---------------------------|------------------------------|----------------------------------|
| `data/*.lance`            | rows                         | every version with that fragment |
| `data/<name>/*`           | large values of that file    | the same versions                |
| `_deletions/*`            | which rows are deleted       | every version with that fragment |
| `_indices/<id>/*`         | an index                     | every version that lists it      |
| `_versions/d<n>.manifest` | a detached version           | the snapshots that name it       |
| `_versions/<n>.manifest`  | a version on main            | plain Lance readers, and the     |
|                           |                              | snapshots that name it           |
| `_transactions/*.txn`     | how a version was created    | that version                     |

A folder `_versions.<id>` is what a writer left that died before a leaf had its first version.
Everything else is kept, because Phalanx does not know what needs it: tags and branches of plain
Lance (`_refs`, `tree`), hints, and whatever a later version of Lance may add.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lance import LanceOperation
from lance.dataset import LANCE_COMMIT_MESSAGE_KEY
from lance.file import LanceFileSession

from phalanx.errors import CorruptTable
from phalanx.model.schema import TableSchema
from phalanx.storage import lance_errors
from phalanx.storage.field_ids import lance_schema
from phalanx.storage.folders import delete_file
from phalanx.storage.lance_errors import LANCE_ERRORS, read_transaction
from phalanx.storage.location import MANIFEST, Location

#: An unreferenced file younger than this is only removed by force: a writer that is still running
#: may own it.
GRACE_FLOOR = dt.timedelta(hours=24)
#: The version of a dataset that has just been created.
FIRST_VERSION = 1
#: What our commits on main say, so that those of other clients can be told apart.
COMMIT_MESSAGE = "phalanx"
#: Versions from this number on are detached: they are on no branch.
DETACHED = 1 << 63
#: Versions on main from this number on have a random number, or follow one that has.
RANDOM = 1 << 40
#: What begins the name of a folder in which the first version of a leaf is prepared.
STAGED_VERSIONS = "_versions."

_HIGHEST = (1 << 64) - 1
_VERSION_FILE = re.compile(r"(d?)(\d+)\.manifest")
#: The suffix of a file that was still being written when its writer died.
_HALF_WRITTEN = re.compile(r"#\d+$")


@dataclass(frozen=True)
class File:
    """A file in a dataset's folder; `path` is relative to the folder."""

    path: str
    size: int
    modified: dt.datetime


@dataclass(frozen=True)
class VersionFiles:
    """The files that one version of a dataset refers to, and its size and fields."""

    #: Paths of files, with their sizes if the version records them.
    files: Mapping[str, int | None]
    #: The ids of indexes; None if they cannot be determined.
    indexes: frozenset[str] | None
    #: The file of the transaction that created the version; None if it cannot be determined.
    transaction: str | None
    rows: int
    bytes: int
    fragments: int
    #: Id, path and type of every field, including nested fields, depth first.
    fields: tuple[tuple[int, str, str], ...]
    #: Files of other datasets, by URI. They are never ours to delete.
    borrowed: frozenset[str] = frozenset()


@dataclass
class Live:
    """The files of one folder that must be kept."""

    paths: set[str] = field(default_factory=set)
    #: The ids of indexes; None if all indexes are kept, because some cannot be determined.
    indexes: set[str] | None = field(default_factory=set)
    #: Whether all transaction files are kept, because some cannot be determined.
    all_transactions: bool = False

    def add(self, version: VersionFiles) -> None:
        self.paths.update(version.files)
        if version.indexes is None or self.indexes is None:
            self.indexes = None
        else:
            self.indexes |= version.indexes
        if version.transaction is None:
            self.all_transactions = True
        else:
            self.paths.add(version.transaction)

    def add_paths(self, paths: Iterable[str]) -> None:
        """Add files by path; a file of an index adds the whole index."""
        for path in paths:
            self.paths.add(path)
            kind, _, rest = path.partition("/")
            if kind == "_indices" and self.indexes is not None:
                self.indexes.add(rest.partition("/")[0])

    def holds(self, path: str) -> bool:
        """Whether a file must be kept. Files of an unknown kind are kept."""
        if path in self.paths:
            return True
        kind, _, rest = path.partition("/")
        if kind.startswith(STAGED_VERSIONS):
            return False
        if kind in _KINDS and _HALF_WRITTEN.search(rest):
            return False
        match kind:
            case "data":
                owner, _, inner = rest.partition("/")
                if inner:
                    return not {f"data/{owner}", f"data/{owner}.lance"}.isdisjoint(self.paths)
                return not rest.endswith(".lance")
            case "_deletions":
                return not rest.endswith((".arrow", ".bin"))
            case "_indices":
                return self.indexes is None or rest.partition("/")[0] in self.indexes
            case "_transactions":
                return self.all_transactions or not rest.endswith(".txn")
            case "_versions":
                return version_of(path) is None
        return True


_KINDS = ("data", "_deletions", "_indices", "_transactions", "_versions")


def is_lasting(version: int | None) -> bool:
    """Whether a version has a number that no other version of a leaf in this folder ever gets.

    Detached versions have random numbers, and so has the version on main that begins a new leaf
    (see `phalanx.storage.first_rows`). Other versions on main count from 1, so their numbers come
    again after a leaf was dropped, vacuumed and created again. None is the newest on main.
    """
    return version is not None and version >= RANDOM


def main_file(version: int) -> str:
    """The file of a version on main: they are numbered downwards, so that the newest is first."""
    return f"_versions/{_HIGHEST - version:020}.manifest"


#: The file of the first version.
FIRST_FILE = main_file(FIRST_VERSION)


def version_of(path: str) -> int | None:
    """The version that a file describes, detached or on main; None for other files."""
    folder, _, name = path.rpartition("/")
    match = _VERSION_FILE.fullmatch(name)
    if folder != "_versions" or match is None:
        return None
    number = int(match[2])
    # Files on main are numbered downwards, so that the newest sorts first; older datasets have
    # plain numbers.
    return _HIGHEST - number if not match[1] and len(match[2]) == 20 else number


def folders(location: Location) -> list[str]:
    """The folders in a table's root, except the manifest's, sorted by name."""
    if location.path is not None:
        with os.scandir(location.path) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    else:
        prefixes = _session(location).list_with_delimiter().common_prefixes
        names = [prefix.strip("/") for prefix in prefixes]
    return sorted(name for name in names if name != MANIFEST)


class DatasetFolder:
    """The folder of a leaf or of the manifest."""

    def __init__(self, location: Location, name: str) -> None:
        """Raises InvalidInput for a name that leads out of the table's root."""
        self.location, self.name = location, name
        self.uri = location.child(name)

    @property
    def is_inside(self) -> bool:
        """Whether the folder is really in the root, and not a link to somewhere else."""
        if self.location.path is None:
            return True
        root = os.path.realpath(self.location.path)
        return os.path.realpath(self.uri) == os.path.join(root, self.name)

    @cached_property
    def files(self) -> list[File]:
        """Every file in the folder, sorted by path.

        Raises CorruptTable for a folder in an object store without a version that can be opened:
        it is listed through one.
        """
        files = self._listed() if self.location.path is None else self._walked()
        return sorted(files, key=lambda file: file.path)

    @cached_property
    def by_path(self) -> dict[str, File]:
        return {file.path: file for file in self.files}

    @cached_property
    def _version_files(self) -> dict[int | None, str]:
        return {version_of(file.path): file.path for file in self.files}

    @property
    def modified(self) -> dt.datetime:
        """When a file in the folder was last written, or when an empty folder was last changed."""
        times = [file.modified for file in self.files]
        if not times and self.location.path is not None:
            times = [dt.datetime.fromtimestamp(os.stat(self.uri).st_mtime, dt.UTC)]
        return max(times, default=dt.datetime.now(dt.UTC))

    def forget(self) -> None:
        """Forget the listing, so that the folder is listed again on the next use."""
        for name in ("files", "by_path", "_version_files"):
            self.__dict__.pop(name, None)

    def _walked(self) -> Iterator[File]:
        for folder, _, names in os.walk(self.uri):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    stat = os.lstat(path)
                    relative = os.path.relpath(path, self.uri).replace(os.sep, "/")
                    modified = dt.datetime.fromtimestamp(stat.st_mtime, dt.UTC)
                    yield File(relative, stat.st_size, modified)

    def _listed(self) -> Iterator[File]:
        table = self._any_version().all_files().read_all()
        columns = [table.column(n).to_pylist() for n in ("path", "size_bytes", "last_modified")]
        for path, size, modified in zip(*columns, strict=True):
            yield File(path, size, modified.astimezone(dt.UTC))

    @cached_property
    def _store(self) -> LanceFileSession:
        # At the folder itself: paths that are passed to a session are escaped another time.
        return LanceFileSession(self.uri, storage_options=self.location.options)

    def _any_version(self) -> Any:
        """A handle on any version of the dataset: an object store is listed through one."""
        with contextlib.suppress(CorruptTable):
            return self.open(None)
        for path in self._store.list():
            version = version_of(path)
            if version is not None:
                with contextlib.suppress(CorruptTable):
                    return self.open(version)
        raise CorruptTable(f"there is no version of {self.uri} that can be opened")

    def open(self, version: int | None) -> Any:
        """Open a version as it is in the store now, without a metadata cache.

        Raises CorruptTable if it cannot be opened.
        """
        try:
            return self.location.open(self.uri, version)
        except (ValueError, OSError) as error:
            raise CorruptTable(
                f"{self.uri} has no readable version {'on main' if version is None else version}: "
                f"{self.location.reason(error)}"
            ) from None

    def contents(self, version: int | None) -> VersionFiles:
        """What a version refers to. Raises CorruptTable if it cannot be read."""
        handle = self.open(version)
        number = int(handle.version)
        files: dict[str, int | None] = {}
        borrowed: set[str] = set()
        size = 0
        fragments, bases = handle.get_fragments(), handle.base_paths()

        def add(path: str, base: int | None, bytes: int | None) -> None:
            if base is None:
                files[path] = bytes
            elif base in bases:
                folder = bases[base].path.rstrip("/")
                inside = path if bases[base].is_dataset_root else path.partition("/")[2]
                borrowed.add(f"{folder}/{inside}")

        for fragment in fragments:
            metadata = fragment.metadata
            for file in (*metadata.files, *(layer.data_file for layer in metadata.overlays)):
                base = getattr(file, "base_id", None)
                add(f"data/{file.path}", base, file.file_size_bytes or None)
            size += sum(file.file_size_bytes or 0 for file in metadata.files)
            deletions = fragment.deletion_file()
            if deletions:
                add(deletions, metadata.deletion_file.base_id, None)
        files[self._version_files.get(number, f"_versions/d{number}.manifest")] = None
        return VersionFiles(
            files,
            self._indexes(handle),
            _transaction_file(handle, number),
            int(handle.count_rows()),
            size,
            len(fragments),
            tuple(_fields(handle.lance_schema.fields())),
            frozenset(borrowed),
        )

    def _indexes(self, handle: Any) -> frozenset[str] | None:
        if not any(file.path.startswith("_indices/") for file in self.files):
            return frozenset()
        try:
            indexes = handle.describe_indices()
            return frozenset(str(s.uuid) for index in indexes for s in index.segments)
        except (OSError, ValueError):
            return None

    def missing(self, version: int | None) -> list[str]:
        """The files of a version that are missing or have the wrong size.

        Raises CorruptTable if the version itself cannot be read.
        """
        return self.missing_of(self.contents(version))

    def missing_of(self, version: VersionFiles) -> list[str]:
        """Like `missing`, for a version that has already been read."""
        gone = []
        for path, size in version.files.items():
            file = self.by_path.get(path)
            if file is None or (size is not None and file.size != size):
                gone.append(path)
        for index in version.indexes or ():
            prefix = f"_indices/{index}/"
            if not any(file.path.startswith(prefix) for file in self.files):
                gone.append(prefix)
        gone += (uri for uri in version.borrowed if not _exists(uri, self.location))
        return sorted(gone)

    def main_versions(self) -> dict[int, File]:
        """The versions on main with their files, oldest first."""
        versions = [(v, path) for v, path in self._version_files.items() if v is not None]
        return {v: self.by_path[path] for v, path in sorted(versions) if v < DETACHED}

    def superseded(self) -> dict[int, dt.datetime]:
        """When each version on main, except the newest, was replaced by the next."""
        versions = list(self.main_versions().items())
        return {
            version: later.modified for (version, _), (_, later) in itertools.pairwise(versions)
        }

    def main(self) -> Main:
        """What plain Lance refers to. Raises CorruptTable if there is no main branch."""
        return Main(self, self.open(None))

    def is_created_by_us(self) -> bool:
        """Whether the first version shows that Phalanx has created the dataset for a leaf."""
        try:
            return is_commit_of_ours(self.open(FIRST_VERSION), FIRST_VERSION)
        except CorruptTable:
            return False

    def is_ours(self) -> bool:
        """Whether there is a dataset that Phalanx has created, or taken over from another client.

        A folder without a version holds no dataset.
        """
        return self.is_created_by_us() or self._is_taken_over() is True

    def is_of_others(self) -> bool:
        """Whether there is a dataset that Phalanx has neither created nor taken over."""
        return not self.is_created_by_us() and self._is_taken_over() is False

    def _is_taken_over(self) -> bool | None:
        """Whether Phalanx has committed to the main branch; None if there is none."""
        try:
            main = self.open(None)
        except CorruptTable:
            return None
        versions = sorted((int(entry["version"]) for entry in main.version_refs()), reverse=True)
        return any(is_commit_of_ours(main, version) for version in versions)

    def delete(self, path: str) -> None:
        """Remove a file; a missing file is not an error.

        Raises CorruptTable for a path that leads out of the folder.
        """
        parts = path.split("/")
        if not all(parts) or any(part in (".", "..") for part in parts):
            raise CorruptTable(f"{path!r} does not lie inside {self.uri}")
        if self.location.path is None:
            delete_file(self._store, path)
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.uri, *parts))

    def remove_empty(self) -> None:
        """Remove the empty folders inside the folder, and the folder itself if nothing is left.

        Then folders above it go as well, up to the root, as long as they are empty.
        """
        if self.location.path is None:
            return
        for folder, _, _ in os.walk(self.uri, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        with contextlib.suppress(OSError):
            for parent in Path(self.name).parents[:-1]:
                os.rmdir(self.location.path / parent)


class Main:
    """What plain Lance refers to in a folder: the versions on main, tags and branches."""

    def __init__(self, folder: DatasetFolder, handle: Any) -> None:
        self._folder, self._handle = folder, handle
        self.newest = int(handle.version)

    @cached_property
    def _branches(self) -> Mapping[str, Any]:
        return self._handle.branches.list() if self._has_refs else {}

    @cached_property
    def _has_refs(self) -> bool:
        return any(file.path.startswith("_refs/") for file in self._folder.files)

    @cached_property
    def pinned(self) -> set[int]:
        """The versions that have a tag or that a branch starts from."""
        if not self._has_refs:
            return set()
        tags = self._handle.tags.list().values()
        tagged = {int(tag["version"]) for tag in tags if tag.get("branch") is None}
        branches = [b for b in self._branches.values() if b.get("parent_branch") is None]
        return tagged | {int(branch["parent_version"]) for branch in branches}

    @cached_property
    def _tracked(self) -> dict[int, set[str]]:
        return _by_version(self._handle, self._folder)

    def files(self, versions: Iterable[int]) -> set[str]:
        """The files of some versions on main, and of all versions on any branch.

        Raises CorruptTable where one of the versions cannot be read.
        """
        paths = {path for v in versions for path in self._tracked.get(v, ())}
        for name in self._branches:
            branch = self._handle.checkout_version((name, None))
            for more in _by_version(branch, self._folder).values():
                paths |= more
        return paths


def is_commit_of_ours(handle: Any, version: int) -> bool:
    """Whether Phalanx has made a version on main: it says so, or shows a detached version."""
    transaction = read_transaction(handle, version)
    operation = getattr(transaction, "operation", None)
    if isinstance(operation, LanceOperation.Restore) and int(operation.version) >= DETACHED:
        return True
    properties = getattr(transaction, "transaction_properties", None) or {}
    return bool(properties.get(LANCE_COMMIT_MESSAGE_KEY) == COMMIT_MESSAGE)


def _exists(uri: str, location: Location) -> bool:
    """Whether there is a file of another dataset; one in a store that does not answer counts."""
    if "://" not in uri:
        return os.path.exists(uri)
    folder, _, name = uri.rpartition("/")
    try:
        return bool(LanceFileSession(folder, storage_options=location.options).contains(name))
    except LANCE_ERRORS as error:
        lance_errors.raise_interrupt(error)
        return True


def _by_version(handle: Any, folder: DatasetFolder) -> dict[int, set[str]]:
    """The files in a folder that each version of a branch refers to. Raises CorruptTable."""
    try:
        table = handle.tracked_files().read_all()
    except LANCE_ERRORS as error:
        reason = folder.location.reason(error)
        raise CorruptTable(f"a version of {folder.uri} cannot be read: {reason}") from None
    columns = [table.column(name).to_pylist() for name in ("version", "base_uri", "path")]
    paths: dict[int, set[str]] = {}
    for version, base, path in zip(*columns, strict=True):
        if _same_folder(base, folder):
            paths.setdefault(version, set()).add(path)
    return paths


def _same_folder(base: str, folder: DatasetFolder) -> bool:
    """Whether a URI of Lance's, which may be escaped, is that of a folder."""
    last = folder.uri.rpartition("/")[2]
    name = base.rstrip("/").rpartition("/")[2]
    return name == last or unquote(name) == unquote(last)


def _transaction_file(handle: Any, version: int) -> str | None:
    transaction = read_transaction(handle, version)
    if transaction is None:
        return None
    return f"_transactions/{transaction.read_version}-{transaction.uuid}.txn"


def _fields(fields: Iterable[Any], parent: str = "") -> Iterator[tuple[int, str, str]]:
    for lance_field in fields:
        path = parent + lance_field.name()
        yield lance_field.id(), path, str(lance_field.to_arrow().type)
        yield from _fields(lance_field.children(), path + ".")


def _session(location: Location) -> LanceFileSession:
    return LanceFileSession(location.uri, storage_options=location.options)


def schema_fields(schema: TableSchema) -> tuple[tuple[int, str, str], ...]:
    """The fields of a table's schema, in the form of `VersionFiles.fields`."""
    return tuple(_fields(lance_schema(schema).fields()))
