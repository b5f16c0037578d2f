"""How far a long call is: who is told, when, and in which words."""

import io
import sys

import pyarrow as pa
import pytest

import phalanx
from phalanx import progress

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64())])


def batches(count, rows=100):
    for at in range(count):
        ids = range(at * rows, (at + 1) * rows)
        yield pa.record_batch({"id": ids, "part": [i % 3 for i in ids]}, SCHEMA)


@pytest.fixture
def table(tmp_path):
    table = phalanx.create(tmp_path / "t", SCHEMA, ["part"])
    for _ in range(2):
        table.append(pa.Table.from_batches(batches(1)))
    return table


class Counts:
    """A function that keeps what it is called with."""

    def __init__(self):
        self.calls = []

    def __call__(self, done, total):
        self.calls.append((done, total))


def test_every_long_call_has_a_callback(table):
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches(3))
    calls = {
        "append": lambda counts: table.append(reader, progress=counts, buffer_bytes=1),
        "merge": lambda counts: table.merge(
            [{"id": 1, "part": 1}], on=["id", "part"], progress=counts, when_matched="delete"
        ),
        "check": lambda counts: table.check(progress=counts),
        "create_index": lambda counts: table.create_index(
            "id", "BTREE", min_rows=1, progress=counts
        ),
        "optimize": lambda counts: table.optimize(progress=counts),
        "vacuum": lambda counts: table.vacuum("0", force=True, progress=counts),
        "rewrite": lambda counts: table.evolve_partitioning([]).rewrite(progress=counts),
        "refresh_indexes": lambda counts: table.append([{"id": 7, "part": 1}]).refresh_indexes(
            progress=counts
        ),
        "overwrite": lambda counts: table.overwrite([{"id": 7, "part": 1}], progress=counts),
    }
    last = {}
    for name, call in calls.items():
        counts = Counts()
        call(counts)
        assert counts.calls, name
        last[name] = counts.calls[-1]
    assert last["append"] == (300, None)
    assert last["overwrite"] == (1, None)
    for name in ("check", "create_index", "optimize", "rewrite", "refresh_indexes"):
        done, total = last[name]
        assert done == total > 0, name


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    # Only there: a server in another thread would wait by the same clock for hours.
    monkeypatch.setattr(progress, "time", clock)
    return clock


def work(clock, steps, seconds, **options):
    with progress.reported("work", **options):
        progress.begin(steps, "leaves")
        for _ in progress.counted(range(steps)):
            clock.now += seconds


def test_a_bar_on_a_terminal(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    work(clock, 4, 1.0)
    drawn = sys.stderr.getvalue().split("\r")
    assert len(drawn) == 5  # nothing, two that were due, and the last one again
    assert drawn[1].startswith("work: [###############")
    assert "2/4 leaves" in drawn[1]
    assert drawn[-1].endswith("4/4 leaves\n")


def test_nothing_for_a_moment(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    work(clock, 4, 0.1)
    assert sys.stderr.getvalue() == ""


def test_nothing_where_nobody_watches(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    work(clock, 4, 1.0)
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", None)
    work(clock, 4, 1.0)


def test_notebooks_watch(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setitem(sys.modules, "ipykernel", progress)
    work(clock, 4, 1.0)
    assert sys.stderr.getvalue().endswith("4/4 leaves\n")


def test_true_and_false(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    work(clock, 4, 1.0, progress=False)
    assert sys.stderr.getvalue() == ""
    work(clock, 1, 0.0, progress=True)
    assert sys.stderr.getvalue().endswith("1/1 leaves\n")


def test_without_a_total(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.reported("append"):
        progress.begin(None, "rows")
        clock.now += 2
        progress.advance(1_500_000)
    assert sys.stderr.getvalue() == "\rappend: 1,500,000 rows" * 2 + "\n"


def test_a_call_inside_of_another(clock):
    counts = Counts()
    with progress.reported("outer", counts):
        with progress.reported("inner"):
            progress.begin(2, "leaves")
            progress.advance()
        with progress.reported("silent", False):
            progress.advance()
        progress.advance()
    progress.advance()
    assert counts.calls == [(1, 2), (2, 2)]


def test_a_failure_ends_the_bar(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())

    def fail():
        with progress.reported("work", True):
            progress.begin(2, "leaves")
            progress.advance()
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    assert sys.stderr.getvalue().endswith("1/2 leaves\n")
