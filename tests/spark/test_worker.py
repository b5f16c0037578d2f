"""What makes Spark's Python workers faster for Phalanx."""

import importlib
import os
import socket
import sys
import zipfile
import zipimport

import pytest

import pyspark_phalanx


@pytest.fixture
def as_a_new_worker(monkeypatch):
    monkeypatch.setattr(pyspark_phalanx, "_sends_at_once", False)


def delays(connection):
    return not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_answers_are_sent_at_once(as_a_new_worker):
    """Spark waits for each of several small ones, and they would wait for its confirmation."""
    with (
        socket.create_server(("localhost", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        assert delays(connection)
        pyspark_phalanx.send_at_once()
        assert not delays(connection)


def test_sockets_that_have_no_such_delay(as_a_new_worker):
    here, there = socket.socketpair()
    with here, there:
        pyspark_phalanx.send_at_once()
        here.sendall(b"x")
        assert there.recv(1) == b"x"


def listed_again(folder, monkeypatch, archive):
    """How often an archive with a package is listed after Spark has forgotten all about it."""
    path = folder / archive
    with zipfile.ZipFile(path, "w") as writer:
        writer.writestr("outer_of_test/__init__.py", "")
        writer.writestr("outer_of_test/inner/__init__.py", "")
        writer.writestr("outer_of_test/inner/last.py", "")
    monkeypatch.syspath_prepend(path)
    for name in ("outer_of_test", "outer_of_test.inner", "outer_of_test.inner.last"):
        importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
    listings = []
    real = zipimport._read_directory
    monkeypatch.setattr(
        zipimport, "_read_directory", lambda name: listings.append(name) or real(name)
    )
    importlib.invalidate_caches()
    return len(listings)


def test_sparks_archives_are_listed_once(tmp_path, monkeypatch):
    monkeypatch.setattr(
        zipimport.zipimporter, "invalidate_caches", zipimport.zipimporter.invalidate_caches
    )
    pyspark_phalanx.keep_archives()
    assert listed_again(tmp_path, monkeypatch, "pyspark.zip") == 0
    assert listed_again(tmp_path, monkeypatch, "spark-core_2.13-4.1.4.jar") == 0
    assert listed_again(tmp_path, monkeypatch, "of_a_user.zip") > 0


def test_lance_takes_no_more_threads_than_a_task_has_cores(monkeypatch):
    """Tasks run beside each other: with a thread for each core, they only wake each other."""
    for name in ("TOKIO_WORKER_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # so that it is undone, also where it was not set
        monkeypatch.delenv(name)
    pyspark_phalanx.use_own_cores_only()
    assert os.environ["TOKIO_WORKER_THREADS"] == "1"
    monkeypatch.setenv("TOKIO_WORKER_THREADS", "7")  # the user's choice
    pyspark_phalanx.use_own_cores_only()
    assert os.environ["TOKIO_WORKER_THREADS"] == "7"
