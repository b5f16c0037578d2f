"""Makes a commit survive a power cut: Lance writes files without waiting for the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

#: File timestamps are coarse: files that are older than the start by less than this are synced too.
_SLACK_SECONDS = 2.0


def sync(folders: Iterable[str], since: float) -> None:
    """Wait until every file in some folders that is newer than `since` is on disk.

    Folders with new entries are synced as well: subfolders, the parent of each folder, and the
    parent's ancestors up to the first that has not changed.
    """

    def sync_new(path: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_mtime >= since - _SLACK_SECONDS:
                _fsync(path)
                return True
        return False

    parents = set()
    for folder in folders:
        parents.add(Path(folder).parent)
        for root, _, names in os.walk(folder):
            changed = [name for name in names if sync_new(os.path.join(root, name))]
            # A folder's time changes when an entry is added or removed, not when a file is written.
            if not sync_new(root) and changed:
                _fsync(root)
    for parent in parents:
        _fsync(os.fspath(parent))
        # We may not have permission to open every ancestor.
        with contextlib.suppress(PermissionError):
            for ancestor in parent.parents:
                if not sync_new(os.fspath(ancestor)):
                    break


def _fsync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
