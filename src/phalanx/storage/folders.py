"""Folders that hold tables, on disk or in an object store: listed, read, written and removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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


def walk(root: Location, is_level: Callable[[str], bool], depth: int) -> list[str]:
    """The folders at a depth below a root, through levels that a function chooses by their paths.

    Paths are relative to the root. Folders that are links are left out.
    """
    paths = [""]
    if root.path is not None:
        for _ in range(depth):
            paths = [path for above in paths for path in _inside(root, above) if is_level(path)]
        return paths
    with ThreadPoolExecutor(_LISTERS) as pool:
        for _ in range(depth):
            lists = pool.map(lambda above: _inside(root, above), paths)
            paths = [path for inner in lists for path in inner if is_level(path)]
    return paths


def _inside(root: Location, path: str) -> list[str]:
    """The paths of the folders directly in a folder."""
    if root.path is not None:
        try:
            with os.scandir(os.path.join(root.uri, path)) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
    else:
        # A session at the folder itself: paths that are passed to one are escaped another time.
        session = LanceFileSession(root.child(path) if path else root.uri, root.options)
        names = [prefix.strip("/") for prefix in session.list_with_delimiter().common_prefixes]
    return [f"{path}/{name}" if path else name for name in names]


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
