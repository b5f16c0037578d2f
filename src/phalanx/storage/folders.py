"""Folders that hold tables, on disk or in an object store: listed, read, written and removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lance.file import LanceFileSession

from phalanx.storage.location import MANIFEST, Location

#: How many folders of an object store are listed at a time.
_LISTERS = 32


def children(folder: Location) -> set[str]:
    """The names of the folders and files directly in a folder; empty if it does not exist."""
    if folder.path is not None:
        with contextlib.suppress(OSError):
            return set(os.listdir(folder.path))
        return set()
    return {path.split("/")[0] for path in _session(folder).list()}


@dataclass(frozen=True)
class Listing:
    """The folders of a tree."""

    #: The paths of its leaves, relative to the root, in order.
    leaves: tuple[str, ...]
    #: When each of the folders above them last changed, in nanoseconds; empty in an object store.
    stamps: Mapping[str, int]


def walk(
    root: Location, is_leaf: Callable[[str], bool], is_level: Callable[[str], bool]
) -> Listing:
    """List a tree: the folders that are leaves, at whatever depth, and on the way there levels.

    Both are decided by paths relative to the root. Folders that are links are left out.
    """
    leaves: list[str] = []
    stamps: dict[str, int] = {}
    levels = [""]
    with ThreadPoolExecutor(_LISTERS) as pool:
        while levels:
            if root.path is not None:
                # One by one: threads would only wait for each other.
                below = [path for level in levels for path in _on_disk(root, level, stamps)]
            else:
                lists = pool.map(lambda level: _in_store(root, level), levels)
                below = [path for paths in lists for path in paths]
            levels = []
            for path in below:
                if is_leaf(path):
                    leaves.append(path)
                elif is_level(path):
                    levels.append(path)
    return Listing(tuple(sorted(leaves)), stamps)


def _on_disk(root: Location, level: str, stamps: dict[str, int]) -> list[str]:
    """The paths of the folders directly in a folder on disk, and when it was last changed."""
    above = f"{level}/" if level else ""
    folder = f"{root.uri}/{level}"
    try:
        stamps[level] = os.stat(folder).st_mtime_ns
        with os.scandir(folder) as entries:
            return [above + e.name for e in entries if e.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _in_store(root: Location, level: str) -> list[str]:
    """The paths of the folders directly in a folder of an object store."""
    # A session at the folder itself: paths that are passed to one are escaped another time.
    session = LanceFileSession(root.child(level) if level else root.uri, root.options)
    prefixes = session.list_with_delimiter().common_prefixes
    above = f"{level}/" if level else ""
    return [above + prefix.strip("/") for prefix in prefixes]


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
        session.delete_file(path)


def write(folder: Location, name: str, content: bytes) -> None:
    """Write a small file into a folder, which is created if it does not exist."""
    if folder.path is not None:
        folder.path.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_bytes(content)
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        _session(folder).upload_file(file.name, name)


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
