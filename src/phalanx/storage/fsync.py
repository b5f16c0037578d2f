"""Making a commit survive a power cut: Lance writes files, but nobody waits for the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

#: Clocks of files are coarse: look a little further back than the start.
_SLACK_SECONDS = 2.0


def sync(folders: Iterable[str], since: float) -> None:
    """Wait until every file below some folders that is newer than `since` is on disk.

    So are the folders that have got something new: those below, the one that they are in, and
    those above it, as far as they were made just now.
    """

    def sync_new(path: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_mtime >= since - _SLACK_SECONDS:
                _fsync(path)
                return True
        return False

    above = set()
    for folder in folders:
        above.add(Path(folder).parent)
        for root, _, names in os.walk(folder):
            changed = [name for name in names if sync_new(os.path.join(root, name))]
            # A folder's time is that of the last name in it that came or went.
            if not sync_new(root) and changed:
                _fsync(root)
    for parent in above:
        _fsync(os.fspath(parent))
        # Not every folder further up is ours to open.
        with contextlib.suppress(PermissionError):
            for further in parent.parents:
                if not sync_new(os.fspath(further)):
                    break


def _fsync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
