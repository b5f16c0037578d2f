"""An advisory lock around rebase and swap, on file systems that support it.

It keeps many writers fast and fair: without it they conflict, and some retry for a long time.
Correctness does not depend on it: the swap alone decides which transaction wins.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator

from phalanx.storage.location import Location

try:
    import fcntl
except ImportError:  # a system without flock
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".phalanx.lock"
#: How long a writer waits for the lock before it continues without it: its holder may be stuck.
_PATIENCE_SECONDS = 5.0


@contextlib.contextmanager
def held(location: Location) -> Iterator[bool]:
    """Hold the table's lock if it can be acquired in time; yields whether it was."""
    if location.path is None or fcntl is None:
        yield False
        return
    try:
        handle = os.open(location.path / LOCK_FILE, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError:  # a read-only folder: the swap itself will say so
        yield False
        return
    lock = _Lock(handle)
    try:
        yield lock.acquire(_PATIENCE_SECONDS)
    finally:
        lock.release()


class _Lock:
    """The lock on an open file.

    Writers sleep while they wait for it. Polling would take CPU time from other writers, and would
    give the lock to whichever writer polls first instead of the next in line.
    """

    def __init__(self, handle: int) -> None:
        self._handle, self._mutex = handle, threading.Lock()
        self._over = threading.Event()
        self._waiting = self._got = self._given_up = False

    def acquire(self, patience: float) -> bool:
        """Wait for the lock for up to `patience` seconds; returns whether it was acquired."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._waiting = True
            # flock has no timeout, so a thread waits for it.
            threading.Thread(target=self._wait, name="phalanx-lock", daemon=True).start()
            self._over.wait(patience)
        except OSError:  # a file system without locks
            return False
        else:
            self._got = True
        return self._got

    def _wait(self) -> None:
        got = False
        with contextlib.suppress(OSError):
            fcntl.flock(self._handle, fcntl.LOCK_EX)
            got = True
        with self._mutex:
            self._got, self._waiting = got, False
            if self._given_up:
                os.close(self._handle)
        self._over.set()

    def release(self) -> None:
        """Release the lock, or stop waiting for it."""
        with self._mutex:
            self._given_up = True
            if not self._waiting:
                os.close(self._handle)


def back_off(attempt: int) -> None:
    """Sleep for a short random time before the next attempt."""
    time.sleep(random.uniform(0, min(0.25, 0.004 * 2 ** min(attempt, 6))))
