"""An advisory lock around rebase and swap, on file systems that have one.

It keeps many writers fast and fair: without it they collide, and the unlucky starve. Nothing
depends on it for being right: the swap alone decides who wins.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator

from phalanx.storage.location import Location

try:
    import fcntl
except ImportError:  # a system without flock
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".phalanx.lock"
#: A holder may be stuck: after this long one goes on without the lock.
_PATIENCE_SECONDS = 5.0
_POLL_SECONDS = 0.001


@contextlib.contextmanager
def held(location: Location) -> Iterator[bool]:
    """Hold the table's lock, if it can be had in reasonable time; says whether it could."""
    if location.path is None or fcntl is None:
        yield False
        return
    try:
        handle = os.open(location.path / LOCK_FILE, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError:  # a read-only folder: the swap itself will say so
        yield False
        return
    try:
        yield _acquire(handle)
    finally:
        os.close(handle)


def _acquire(handle: int) -> bool:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            time.sleep(_POLL_SECONDS)
    return False


def back_off(attempt: int) -> None:
    """Wait before another try where there is no lock to wait for."""
    time.sleep(random.uniform(0, min(0.25, 0.004 * 2 ** min(attempt, 6))))
