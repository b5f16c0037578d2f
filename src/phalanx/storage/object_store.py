"""Folders that hold tables, on disk or in an object store: listed, read, written and removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from pathlib import Path

from lance.file import LanceFileSession

from phalanx.storage.location import MANIFEST, Location


def children(folder: Location) -> set[str]:
    """The names of the folders and files directly in a folder; empty if it does not exist."""
    if folder.path is not None:
        with contextlib.suppress(OSError):
            return set(os.listdir(folder.path))
        return set()
    return {path.split("/")[0] for path in _session(folder).list()}


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
