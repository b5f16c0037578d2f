import contextlib
import errno
import os
import threading
import time

import pytest

from phalanx.storage.location import Location
from phalanx.transaction import lock


@pytest.fixture
def location(tmp_path):
    return Location(tmp_path)


def handles():
    """How often this process has the lock's file open."""
    count = 0
    for handle in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{handle}").endswith(lock.LOCK_FILE)
    return count


def waiters():
    return [thread for thread in threading.enumerate() if thread.name == "phalanx-lock"]


def until(done):
    deadline = time.monotonic() + 10
    while not done() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert done()


def test_one_at_a_time(location):
    inside, most, times = [], [], 8

    def work():
        for _ in range(20):
            with lock.held(location) as had:
                assert had
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.0005)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(times)]
    before = handles()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(most), max(most)) == (20 * times, 1)
    assert handles() == before


def test_whoever_waits_gets_it_when_it_is_free(location):
    entered = threading.Event()

    def second():
        with lock.held(location) as had:
            assert had
            entered.set()

    with lock.held(location):
        thread = threading.Thread(target=second)
        thread.start()
        until(waiters)
        assert not entered.wait(0.05)
    thread.join(10)
    assert entered.is_set()


def test_a_stuck_holder_is_not_waited_for(location, monkeypatch):
    monkeypatch.setattr(lock, "_PATIENCE_SECONDS", 0.05)
    before = handles()
    with lock.held(location) as first:
        with lock.held(location) as second:
            assert (first, second) == (True, False)
        # It is still in line, but lets go of the lock as soon as it has it.
        assert waiters()
    until(lambda: not waiters())
    with lock.held(location) as had:
        assert had
    assert handles() == before


def test_an_exception_lets_go(location):
    with pytest.raises(ZeroDivisionError), lock.held(location):
        raise ZeroDivisionError
    with lock.held(location) as had:
        assert had


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(location, monkeypatch, code):
    def refuse(*_):
        raise OSError(code, "no locks here")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    start = time.monotonic()
    with lock.held(location) as had:
        assert not had
    assert time.monotonic() - start < 1


def test_object_stores_have_none():
    with lock.held(Location("s3://lake/t")) as had:
        assert not had
