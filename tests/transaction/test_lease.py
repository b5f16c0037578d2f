"""Writers in an object store take turns; whatever happens to their line, the swap decides."""

import json
import signal
import threading
import time
import uuid

import lance
import lance.namespace
import pyarrow as pa
import pytest
from lance_namespace import ListNamespacesRequest

import phalanx
from phalanx.storage.location import Location
from phalanx.transaction import lease
from phalanx.transaction.lease import Turn
from phalanx.transaction.lock import LOCK_FILE
from tests import s3
from tests.transaction.faults import StrictStore
from tests.transaction.processes import start, together
from tests.transaction.sabotage import failing

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


@pytest.fixture
def client(s3_options):
    return s3.client(s3_options)


@pytest.fixture
def location(s3_options):
    return Location(f"s3://lake/{uuid.uuid4().hex}", s3_options)


@pytest.fixture
def table(location, s3_options):
    return phalanx.create(location.uri, SCHEMA, ["part"], storage_options=s3_options)


@pytest.fixture
def line(location, client):
    return TheLine(location, client)


class TheLine:
    """The file that lists the writers, seen by another client."""

    def __init__(self, location, client):
        self._client = client
        self._key = f"{location.uri.removeprefix('s3://lake/')}/{LOCK_FILE}"

    def set(self, data):
        self._client.put_object(Bucket="lake", Key=self._key, Body=data)

    @property
    def ids(self):
        try:
            found = self._client.get_object(Bucket="lake", Key=self._key)
        except self._client.exceptions.NoSuchKey:
            return None
        return json.loads(found["Body"].read())


def until(done):
    deadline = time.monotonic() + 30
    while not done() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert done()


def has_turn(location):
    """Whether a writer that has met others gets its turn."""
    with Turn(location) as turn:
        return turn.wait(lost=True)


def ids(table):
    return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())


class TestTurns:
    def test_whoever_meets_nobody_does_not_look(self, location, line, table):
        table.append([{"id": 1, "part": "a"}]).append([{"id": 2, "part": "a"}])
        with Turn(location) as turn:
            assert not turn.wait(lost=False)
        assert line.ids is None

    def test_a_lost_swap_is_a_meeting(self, location, line):
        with Turn(location) as turn:
            assert turn.wait(lost=True)
            assert len(line.ids) == 1
            assert turn.wait(lost=True)  # it lost to a writer that is not in line
        assert line.ids == []
        with Turn(location) as turn:
            assert turn.wait(lost=False)

    def test_meetings_are_forgotten(self, location, monkeypatch):
        monkeypatch.setattr(lease, "_BUSY_SECONDS", 0.05)
        assert has_turn(location)
        time.sleep(0.1)
        with Turn(location) as turn:
            assert not turn.wait(lost=False)

    def test_one_at_a_time_and_in_order(self, location, line):
        order, threads = [], []

        def work(number):
            with Turn(location) as turn:
                assert turn.wait(lost=True)
                order.append(number)
                assert len(order) == number + 1
                time.sleep(0.02)

        with Turn(location) as first:
            assert first.wait(lost=True)
            for number in range(3):
                threads.append(threading.Thread(target=work, args=[number]))
                threads[-1].start()
                until(lambda number=number: len(line.ids) == number + 2)
            assert order == []
        for thread in threads:
            thread.join(30)
        assert order == [0, 1, 2]
        assert line.ids == []

    def test_an_exception_lets_the_next_one_in(self, location, line):
        with pytest.raises(ZeroDivisionError), Turn(location) as turn:
            _ = 1 / (1 - turn.wait(lost=True))
        assert line.ids == []

    def test_a_file_system_has_a_lock_instead(self, tmp_path):
        assert not has_turn(Location(tmp_path))
        assert list(tmp_path.iterdir()) == []

    def test_an_unknown_store(self):
        assert not has_turn(Location("memory://lake/t"))


class TestTheDead:
    @pytest.mark.parametrize("dead", [1, 4])
    def test_they_are_passed_over(self, location, line, monkeypatch, dead):
        monkeypatch.setattr(lease, "_PATIENCE_SECONDS", 0.3)
        monkeypatch.setattr(lease, "_STAGGER_SECONDS", 0.05)
        line.set(json.dumps([f"dead-{n}" for n in range(dead)]))
        began = time.monotonic()
        with Turn(location) as turn:
            assert turn.wait(lost=True)
            assert len(line.ids) == 1
        assert 0.3 < time.monotonic() - began < 5
        assert line.ids == []

    def test_of_two_that_wait_one_is_next(self, location, line, monkeypatch):
        monkeypatch.setattr(lease, "_PATIENCE_SECONDS", 0.3)
        line.set(b'["dead"]')
        inside, most = [], []

        def work():
            with Turn(location) as turn:
                assert turn.wait(lost=True)
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.05)
                inside.pop()

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert most == [1, 1]
        assert line.ids == []

    def test_one_that_is_only_slow_goes_on(self, location, line, monkeypatch):
        monkeypatch.setattr(lease, "_PATIENCE_SECONDS", 0.2)
        with Turn(location) as slow:
            assert slow.wait(lost=True)
            with Turn(location) as quick:
                assert quick.wait(lost=True)
                assert len(line.ids) == 1
            assert line.ids == []
            # Its swap is lost then, and it stands in line again.
            assert slow.wait(lost=True)
            assert len(line.ids) == 1
        assert line.ids == []

    def test_nobody_waits_forever(self, location, line, monkeypatch):
        monkeypatch.setattr(lease, "_LONGEST_WAIT_SECONDS", 0.3)
        line.set(b'["dead"]')
        assert not has_turn(location)
        assert line.ids == ["dead"]


def append(uri, options, numbers):
    """Append as a writer that knows of others; returns how long the slowest took."""
    lease._line_of(Location(uri, options)).meet()
    table = phalanx.open(uri, storage_options=options)
    slowest = 0.0
    for number in numbers:
        began = time.monotonic()
        table.append([{"id": number, "part": "hot"}])
        slowest = max(slowest, time.monotonic() - began)
    return slowest


def append_and_die(uri, options):
    with failing("commit.before-swap", "kill"):
        append(uri, options, [99])


class TestWriters:
    def test_a_killed_writer_is_passed_over(self, table, line, s3_options):
        process = start(append_and_die, table.uri, s3_options)
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        (dead,) = line.ids
        slowest = together(*((append, table.uri, s3_options, [n, n + 10]) for n in (1, 2)))
        assert max(slowest) < 30
        assert ids(table) == [1, 2, 11, 12]
        assert dead not in line.ids

    def test_nothing_is_left_that_anybody_stumbles_over(self, table, line, client, s3_options):
        together(*((append, table.uri, s3_options, [n, n + 10]) for n in (1, 2, 3)))
        assert line.ids == []
        assert ids(table) == [1, 2, 3, 11, 12, 13]
        assert table.check().ok
        table.vacuum("0 seconds", force=True)
        assert table.check().ok
        assert line.ids == []
        plain = lance.namespace.DirectoryNamespace(
            root=table.uri, **{f"storage.{name}": value for name, value in s3_options.items()}
        )
        assert plain.list_namespaces(ListNamespacesRequest(id=[])).namespaces == ["v1"]
        for leaf in table.partitions().to_pylist():
            dataset = lance.dataset(
                leaf["uri"], version=leaf["version"], storage_options=s3_options
            )
            assert dataset.count_rows() == leaf["rows"]
        table.drop()
        prefix = table.uri.removeprefix("s3://lake/") + "/"
        assert client.list_objects_v2(Bucket="lake", Prefix=prefix)["KeyCount"] == 0


def _for_the_line(request):
    return request.path.partition("?")[0].endswith(f"/{LOCK_FILE}")


def _without_conditions(request):
    if _for_the_line(request):
        for name in ("If-Match", "If-None-Match"):
            del request.headers[name]


def _not_implemented(request):
    return 501 if _for_the_line(request) and request.command == "PUT" else None


def _denied(request):
    return 403 if _for_the_line(request) else None


def _once_only(request):
    """A file may be created, and then neither replaced nor deleted."""
    return 403 if _for_the_line(request) and request.headers.get("If-Match") else None


class TestStores:
    """Writers go on without the line where a store cannot have one."""

    @pytest.mark.parametrize("rule", [_without_conditions, _not_implemented, _denied, _once_only])
    def test_every_row_is_there_once(self, table, s3_options, rule):
        with StrictStore(s3_options["endpoint"], rule) as store:
            options = {**s3_options, "endpoint": store.endpoint}
            slowest = together(*((append, table.uri, options, [n, n + 10]) for n in (1, 2, 3)))
        assert ids(table) == [1, 2, 3, 11, 12, 13]
        assert max(slowest) < 60
        assert table.check().ok

    def test_one_that_refuses_is_left_alone_for_a_while(self, location, monkeypatch):
        with StrictStore(location.options["endpoint"], _denied) as store:
            there = Location(location.uri, {**location.options, "endpoint": store.endpoint})
            assert [has_turn(there) for _ in range(3)] == [False] * 3
            assert store.asked["GET", LOCK_FILE] == 1
            monkeypatch.setattr(lease._line_of(there), "_rests_until", 0.0)
            assert not has_turn(there)
            assert store.asked["GET", LOCK_FILE] == 2

    def test_one_that_is_away(self, location):
        gone = {**location.options, "endpoint": "http://127.0.0.1:9"}
        assert not has_turn(Location(location.uri, gone))

    @pytest.mark.parametrize("data", [b"no json", b"{}", b"[1]"])
    def test_a_file_of_somebody_else(self, location, line, data):
        line.set(data)
        assert not has_turn(location)

    def test_an_empty_file(self, location, line):
        line.set(b"")
        assert has_turn(location)
        assert line.ids == []
