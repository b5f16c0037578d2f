"""Folders that hold tables, on disk or in an object store: listed, read, written and removed."""

from __future__ import annotations

import contextlib
import enum
import functools
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lance.file import LanceFileSession

from phalanx.errors import StorageError
from phalanx.storage import lance_errors
from phalanx.storage.lance_errors import LANCE_ERRORS
from phalanx.storage.location import MANIFEST, Location

#: How many folders of an object store are listed at a time.
_LISTERS = 32


def children(folder: Location) -> set[str]:
    """The names of the folders and files directly in a folder; empty if it does not exist.

    Raises StorageError if a store cannot be listed.
    """
    if folder.path is not None:
        with contextlib.suppress(OSError):
            return set(os.listdir(folder.path))
        return set()
    inner, files = _in_store(folder)
    return {*inner, *files}


class FolderKind(enum.Enum):
    """What a folder in a tree is, by its name."""

    LEAF = enum.auto()
    #: A folder on the way to leaves.
    LEVEL = enum.auto()
    OTHER = enum.auto()


@dataclass(frozen=True)
class Listing:
    """The folders of a tree. Most names of leaves come again in many folders."""

    #: The paths of folders relative to the root, in order, each with the names of leaves in it.
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    #: When each of the folders above leaves last changed, in nanoseconds; empty in a store.
    stamps: Mapping[str, int]

    @functools.cached_property
    def leaves(self) -> list[str]:
        """The paths of the leaves relative to the root, in order."""
        return [f"{path}/{name}" if path else name for path, names in self.groups for name in names]


def walk(root: Location, kind_of: Callable[[str, int], FolderKind]) -> Listing:
    """List a tree. What a folder is depends on its name and its depth, 0 for those in the root.

    Folders that are links are left out.
    """
    groups: dict[str, tuple[str, ...]] = {}
    stamps: dict[str, int] = {}
    levels, depth = [""], 0
    while levels:
        kinds = functools.cache(functools.partial(_by_kind, kind_of, depth))
        below: list[str] = []
        for level, names in _inside(root, levels, stamps):
            leaves, inner = kinds(frozenset(names))
            if leaves:
                groups[level] = leaves
            below += [f"{level}/{name}" if level else name for name in inner]
        levels, depth = below, depth + 1
    return Listing(tuple(sorted(groups.items())), stamps)


def _by_kind(
    kind_of: Callable[[str, int], FolderKind], depth: int, names: frozenset[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The leaves and the levels among some names, in order."""
    pairs = [(name, kind_of(name, depth)) for name in sorted(names)]
    leaves = tuple(name for name, kind in pairs if kind is FolderKind.LEAF)
    return leaves, tuple(name for name, kind in pairs if kind is FolderKind.LEVEL)


def _inside(
    root: Location, levels: Sequence[str], stamps: dict[str, int]
) -> Iterable[tuple[str, list[str]]]:
    """The names of the folders directly in some folders."""
    if root.path is not None:
        # One by one: threads would only wait for each other.
        return ((level, _on_disk(f"{root.uri}/{level}", level, stamps)) for level in levels)
    with ThreadPoolExecutor(min(_LISTERS, len(levels))) as pool:
        folders = pool.map(lambda one: _in_store(root, one)[0], levels)
        return list(zip(levels, folders, strict=True))


def _on_disk(folder: str, level: str, stamps: dict[str, int]) -> list[str]:
    """The names of the folders in a folder on disk; also notes when it was last changed."""
    try:
        stamps[level] = os.stat(folder).st_mtime_ns
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _in_store(root: Location, level: str = "") -> tuple[list[str], list[str]]:
    """The names of the folders and of the files in a folder of an object store.

    There are none if there is no such bucket. Raises StorageError if it cannot be listed.
    """
    try:
        # A session at the folder itself: paths that are passed to one are escaped another time.
        session = LanceFileSession(root.child(level) if level else root.uri, root.options)
        listing = session.list_with_delimiter()
    except (RuntimeError, *LANCE_ERRORS) as error:  # Lance wraps failures of listings
        if lance_errors.is_missing(error) or lance_errors.is_without_bucket(error):
            return [], []
        raise StorageError(f"cannot list {root.uri}: {root.reason(error)}") from None
    inner, files = (
        [path.strip("/") for path in paths] for paths in (listing.common_prefixes, listing.objects)
    )
    return inner, files


def remove(folder: Location) -> None:
    """Delete a folder and everything in it. On disk it disappears atomically."""
    if folder.path is not None:
        # Rename it first, so that no reader sees half a table.
        hidden = folder.path.with_name(f".{folder.path.name}.{uuid.uuid4().hex}.dropped")
        os.rename(folder.path, hidden)
        shutil.rmtree(hidden, ignore_errors=True)
        return
    session = _session(folder)
    # The manifest first: without it, the rest is no longer a table.
    for path in sorted(session.list(), key=lambda path: not path.startswith(f"{MANIFEST}/")):
        delete_file(session, path)


def write(folder: Location, name: str, content: bytes) -> None:
    """Write a small file into a folder, which is created if it does not exist.

    A reader sees the file as it was, or as it is now.
    """
    if folder.path is not None:
        with _scratch_file(folder.path, content) as scratch:
            os.replace(scratch, folder.path / name)
        return
    _upload(folder, name, content)


def create(folder: Location, name: str, content: bytes) -> bool:
    """Write a small file that does not exist yet; returns whether it did not.

    On disk one of several writers at the same time creates it. In an object store each of them
    may believe so, and the last one wins.
    """
    if folder.path is not None:
        with _scratch_file(folder.path, content) as scratch:
            try:
                os.link(scratch, folder.path / name)
            except FileExistsError:
                return False
        return True
    if name in children(folder):
        return False
    _upload(folder, name, content)
    return True


@contextlib.contextmanager
def _scratch_file(folder: Path, content: bytes) -> Iterator[Path]:
    """A complete file beside the one that it becomes. What is left of it is deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f".{uuid.uuid4().hex}.new"
    try:
        scratch.write_bytes(content)
        yield scratch
    finally:
        scratch.unlink(missing_ok=True)


def _upload(folder: Location, name: str, content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        _session(folder).upload_file(file.name, name)


def delete(folder: Location, name: str) -> bool:
    """Delete a small file; returns whether it existed."""
    if folder.path is not None:
        try:
            (folder.path / name).unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True
    return name in children(folder) and delete_file(_session(folder), name)


def delete_file(session: LanceFileSession, path: str) -> bool:
    """Delete a file in a store; returns False if it was missing. Not every store says so."""
    try:
        session.delete_file(path)
    except OSError as error:
        if not lance_errors.is_missing(error):
            raise
        return False
    return True


def read(folder: Location, name: str) -> bytes | None:
    """The content of a small file in a folder; None if it does not exist."""
    if folder.path is not None:
        with contextlib.suppress(OSError):
            return (folder.path / name).read_bytes()
        return None
    if name not in children(folder):
        return None
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "file"
        _session(folder).download_file(name, os.fspath(path))
        return path.read_bytes()


def _session(folder: Location) -> LanceFileSession:
    return LanceFileSession(folder.uri, folder.options)
