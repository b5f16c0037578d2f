"""What makes Spark's Python workers faster for Phalanx."""

import socket

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
