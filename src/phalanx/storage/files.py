"""The files of a table: what lies in its folders, what refers to it, and how it is removed.

A leaf, and the manifest too, is a Lance dataset in a folder of its own:

| path                      | holds                        | is needed by                     |
|---------------------------|------------------------------|----------------------------------|
| `data/*.lance`            | rows                         | every version with that fragment |
| `data/<name>/*`           | large values of such a file  | the same                         |
| `_deletions/*`            | which rows are deleted       | every version with that fragment |
| `_indices/<id>/*`         | an index                     | every version that lists it      |
| `_versions/d<n>.manifest` | a detached version           | the snapshots that name it       |
| `_versions/<n>.manifest`  | a version on main            | plain Lance readers              |
| `_transactions/*.txn`     | how a version came about     | that version                     |

Everything else is not ours to judge and stays: tags and branches of plain Lance (`_refs`,
`tree`), hints, whatever a later Lance may put there.
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
from typing import Any

from lance.file import LanceFileSession
from lance.schema import LanceSchema

from phalanx.errors import CorruptTable
from phalanx.model.schema import TableSchema
from phalanx.storage import lance_errors
from phalanx.storage.lance_errors import LANCE_ERRORS
from phalanx.storage.location import MANIFEST, Location

#: No file that nothing refers to is removed before this age, unless it is forced: a writer that
#: is still running may own it.
GRACE_FLOOR = dt.timedelta(hours=24)
#: Versions from this number on are detached: no branch leads to them.
DETACHED = 1 << 63

_HIGHEST = (1 << 64) - 1
_VERSION_FILE = re.compile(r"(d?)(\d+)\.manifest")
#: What is left of a file that was being written when its writer died.
_HALF_WRITTEN = re.compile(r"#\d+$")


@dataclass(frozen=True)
class File:
    """A file in a dataset's folder; `path` is relative to it."""

    path: str
    size: int
    modified: dt.datetime


@dataclass(frozen=True)
class VersionFiles:
    """What one version of a dataset refers to, and what it holds."""

    #: Paths of files, with their sizes where the version knows them.
    files: Mapping[str, int | None]
    #: The ids of indexes; None where they cannot be told.
    indexes: frozenset[str] | None
    #: The file of the transaction that made it; None where it cannot be told.
    transaction: str | None
    rows: int
    bytes: int
    fragments: int
    #: Id, path and type of every field, nested ones included, depth first.
    fields: tuple[tuple[int, str, str], ...]


@dataclass
class Live:
    """The files of one folder that must stay."""

    paths: set[str] = field(default_factory=set)
    indexes: set[str] | None = field(default_factory=set)
    #: Whether it is not known which transaction files are needed: then all of them are.
    all_transactions: bool = False

    def add(self, found: VersionFiles) -> None:
        self.paths.update(found.files)
        if found.indexes is None or self.indexes is None:
            self.indexes = None
        else:
            self.indexes |= found.indexes
        if found.transaction is None:
            self.all_transactions = True
        else:
            self.paths.add(found.transaction)

    def add_paths(self, paths: Iterable[str]) -> None:
        """Add files by name; of an index that one belongs to, all of them."""
        for path in paths:
            self.paths.add(path)
            kind, _, rest = path.partition("/")
            if kind == "_indices" and self.indexes is not None:
                self.indexes.add(rest.partition("/")[0])

    def holds(self, path: str) -> bool:
        """Whether a file must stay. What is not known for what it is stays, too."""
        if path in self.paths:
            return True
        kind, _, rest = path.partition("/")
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


def version_of(path: str) -> int | None:
    """The version whose file this is, detached or on main; None for other files."""
    folder, _, name = path.rpartition("/")
    match = _VERSION_FILE.fullmatch(name)
    if folder != "_versions" or match is None:
        return None
    number = int(match[2])
    # On main the newest comes first in the alphabet; older datasets have plain numbers.
    return _HIGHEST - number if not match[1] and len(match[2]) == 20 else number


def folders(location: Location) -> list[str]:
    """The folders in a table's root, without the manifest's, in order of name."""
    if location.path is not None:
        with os.scandir(location.path) as entries:
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    else:
        listed = _session(location).list_with_delimiter().common_prefixes
        found = [name.strip("/") for name in listed]
    return sorted(name for name in found if name != MANIFEST)


class DatasetFolder:
    """The folder of a leaf or of the manifest."""

    def __init__(self, location: Location, name: str) -> None:
        """Raises InvalidInput for a name that leads out of the table's root."""
        self.location, self.name = location, name
        self.uri = location.child(name)

    @property
    def is_inside(self) -> bool:
        """Whether the folder really lies in the root, not where a link points."""
        if self.location.path is None:
            return True
        root = os.path.realpath(self.location.path)
        return os.path.realpath(self.uri) == os.path.join(root, self.name)

    @cached_property
    def files(self) -> list[File]:
        """Every file in the folder, in order of path.

        Raises CorruptTable where it cannot be told: an object store is listed through a version.
        """
        found = self._listed() if self.location.path is None else self._walked()
        return sorted(found, key=lambda file: file.path)

    @cached_property
    def by_path(self) -> dict[str, File]:
        return {file.path: file for file in self.files}

    @cached_property
    def _version_files(self) -> dict[int | None, str]:
        return {version_of(file.path): file.path for file in self.files}

    @property
    def modified(self) -> dt.datetime:
        """When something in the folder was last written, or an empty one was made."""
        times = [file.modified for file in self.files]
        if not times and self.location.path is not None:
            times = [dt.datetime.fromtimestamp(os.stat(self.uri).st_mtime, dt.UTC)]
        return max(times, default=dt.datetime.now(dt.UTC))

    def forget(self) -> None:
        """Look at the folder anew when it is next asked for."""
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
        listed = self._any_version().all_files().read_all()
        columns = [listed.column(n).to_pylist() for n in ("path", "size_bytes", "last_modified")]
        for path, size, modified in zip(*columns, strict=True):
            yield File(path, size, modified.astimezone(dt.UTC))

    @cached_property
    def _store(self) -> LanceFileSession:
        return _session(self.location)

    def _any_version(self) -> Any:
        """A handle on the dataset, at whatever version: only through one can a store be listed."""
        with contextlib.suppress(CorruptTable):
            return self.open(None)
        for path in self._store.list(self.name):
            version = version_of(path.removeprefix(f"{self.name}/"))
            if version is not None:
                with contextlib.suppress(CorruptTable):
                    return self.open(version)
        raise CorruptTable(f"there is no version of {self.uri} that can be opened")

    def open(self, version: int | None) -> Any:
        """A version as it is in the store now, not as some cache remembers it."""
        try:
            return self.location.open(self.uri, version)
        except (ValueError, OSError) as error:
            raise CorruptTable(
                f"{self.uri} has no readable version {'on main' if version is None else version}: "
                f"{self.location.reason(error)}"
            ) from None

    def contents(self, version: int | None) -> VersionFiles:
        """What a version refers to. Raises CorruptTable where it cannot be read."""
        handle = self.open(version)
        number = int(handle.version)
        files: dict[str, int | None] = {}
        size = 0
        fragments = handle.get_fragments()
        for fragment in fragments:
            metadata = fragment.metadata
            for file in (*metadata.files, *(layer.data_file for layer in metadata.overlays)):
                if getattr(file, "base_id", None) is None:
                    files[f"data/{file.path}"] = file.file_size_bytes or None
            size += sum(file.file_size_bytes or 0 for file in metadata.files)
            deletions = fragment.deletion_file()
            if deletions:
                files[deletions] = None
        files[self._version_files.get(number, f"_versions/d{number}.manifest")] = None
        return VersionFiles(
            files,
            self._indexes(handle),
            _transaction_file(handle, number),
            int(handle.count_rows()),
            size,
            len(fragments),
            tuple(_fields(handle.lance_schema.fields())),
        )

    def _indexes(self, handle: Any) -> frozenset[str] | None:
        if not any(file.path.startswith("_indices/") for file in self.files):
            return frozenset()
        try:
            described = handle.describe_indices()
            return frozenset(str(s.uuid) for index in described for s in index.segments)
        except (OSError, ValueError):
            return None

    def missing(self, version: int | None) -> list[str]:
        """The files of a version that are not there, or not as long as they should be.

        Raises CorruptTable where the version itself cannot be read.
        """
        return self.missing_of(self.contents(version))

    def missing_of(self, found: VersionFiles) -> list[str]:
        gone = []
        for path, size in found.files.items():
            file = self.by_path.get(path)
            if file is None or (size is not None and file.size != size):
                gone.append(path)
        for index in found.indexes or ():
            prefix = f"_indices/{index}/"
            if not any(file.path.startswith(prefix) for file in self.files):
                gone.append(prefix)
        return sorted(gone)

    def main_versions(self) -> dict[int, File]:
        """The versions on main with their files, oldest first."""
        found = [(v, path) for v, path in self._version_files.items() if v is not None]
        return {v: self.by_path[path] for v, path in sorted(found) if v < DETACHED}

    def superseded(self) -> dict[int, dt.datetime]:
        """When each version on main but the newest was succeeded by the next."""
        versions = list(self.main_versions().items())
        return {
            version: later.modified for (version, _), (_, later) in itertools.pairwise(versions)
        }

    def main(self) -> Main:
        """What plain Lance refers to. Raises CorruptTable where there is no main branch."""
        return Main(self, self.open(None))

    def delete(self, path: str) -> None:
        """Remove a file; one that is gone already is no error."""
        parts = path.split("/")
        if not all(parts) or any(part in (".", "..") for part in parts):
            raise CorruptTable(f"{path!r} does not lie inside {self.uri}")
        if self.location.path is None:
            try:
                self._store.delete_file(f"{self.name}/{path}")
            except OSError as error:
                if not lance_errors.is_missing(error):
                    raise
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.uri, *parts))

    def remove_empty(self) -> None:
        """Remove the folder with those inside it, as far as they are empty."""
        if self.location.path is None:
            return
        for folder, _, _ in os.walk(self.uri, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


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
        """Versions that a tag names or a branch starts from."""
        if not self._has_refs:
            return set()
        tags = self._handle.tags.list().values()
        found = {int(tag["version"]) for tag in tags if tag.get("branch") is None}
        starts = [b for b in self._branches.values() if b.get("parent_branch") is None]
        return found | {int(branch["parent_version"]) for branch in starts}

    @cached_property
    def _tracked(self) -> dict[int, set[str]]:
        return _by_version(self._handle, self._folder)

    def files(self, versions: Iterable[int]) -> set[str]:
        """The files of some versions on main, and of everything on any branch.

        Raises CorruptTable where one of the versions cannot be read.
        """
        found = {path for v in versions for path in self._tracked.get(v, ())}
        for name in self._branches:
            branch = self._handle.checkout_version((name, None))
            for paths in _by_version(branch, self._folder).values():
                found |= paths
        return found


def _by_version(handle: Any, folder: DatasetFolder) -> dict[int, set[str]]:
    """What each version of a branch refers to in a folder. Raises CorruptTable."""
    try:
        table = handle.tracked_files().read_all()
    except LANCE_ERRORS as error:
        reason = folder.location.reason(error)
        raise CorruptTable(f"a version of {folder.uri} cannot be read: {reason}") from None
    columns = [table.column(name).to_pylist() for name in ("version", "base_uri", "path")]
    found: dict[int, set[str]] = {}
    for version, base, path in zip(*columns, strict=True):
        if base.rstrip("/").rpartition("/")[2] == folder.name:
            found.setdefault(version, set()).add(path)
    return found


def _transaction_file(handle: Any, version: int) -> str | None:
    try:
        made = handle.read_transaction(version)
    except (OSError, ValueError, NotImplementedError):
        return None
    return None if made is None else f"_transactions/{made.read_version}-{made.uuid}.txn"


def _fields(fields: Iterable[Any], parent: str = "") -> Iterator[tuple[int, str, str]]:
    for found in fields:
        path = parent + found.name()
        yield found.id(), path, str(found.to_arrow().type)
        yield from _fields(found.children(), path + ".")


def _session(location: Location) -> LanceFileSession:
    return LanceFileSession(location.uri, storage_options=location.options)


def schema_fields(schema: TableSchema) -> tuple[tuple[int, str, str], ...]:
    """The fields of a table's schema as `VersionFiles.fields` gives those of a leaf."""
    listed = _fields(LanceSchema.from_pyarrow(schema.arrow).fields())
    ids = schema.field_ids
    return tuple((id, path, type) for id, (_, path, type) in zip(ids, listed, strict=True))
