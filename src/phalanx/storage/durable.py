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

    The folders' own entries, and those of the folder they are in, are synced too.
    """
    parents = set()
    for folder in folders:
        parents.add(Path(folder).parent)
        for root, _, names in os.walk(folder):
            changed = False
            for name in names:
                path = os.path.join(root, name)
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(path).st_mtime >= since - _SLACK_SECONDS:
                        _fsync(path)
                        changed = True
            if changed:
                _fsync(root)
    for parent in parents:
        _fsync(os.fspath(parent))


def _fsync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
