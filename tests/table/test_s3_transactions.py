"""Transactions in an object store: no lock helps there, the swap alone decides."""

import signal
import uuid

import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError
from tests.transaction.processes import start, together
from tests.transaction.sabotage import failing

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])


def row(id, part="a", n=0):
    return {"id": id, "part": part, "n": n}


@pytest.fixture
def uri():
    return f"s3://lake/{uuid.uuid4().hex}"


@pytest.fixture
def table(uri, s3_options):
    table = phalanx.create(uri, SCHEMA, ["part"], storage_options=s3_options)
    return table.append([row(1), row(2), row(3, "b")])


@pytest.fixture
def other(table, s3_options):
    return phalanx.open(table.uri, storage_options=s3_options)


def rows(table):
    table.refresh()
    found = sorted(table.scan().to_arrow().to_pylist(), key=str)
    assert table.count() == len(found)
    return found


def ids(table):
    return sorted(found["id"] for found in rows(table))


def test_every_change(table, s3_options):
    assert table.delete("id = 1 OR part = 'b'") == 2
    assert table.update({"part": "'c'", "n": "5"}, "id = 2") == 1
    assert table.merge([row(2, "a", 6), row(4)], ["id"]).updated == 1
    assert rows(table) == [row(2, "a", 6), row(4)]
    table.overwrite([row(7, "b")], "partitions").overwrite([row(2, n=1)], where="id = 2")
    assert rows(table) == [row(2, n=1), row(4), row(7, "b")]
    with table.transaction() as tx:
        tx.overwrite([row(8), row(9, "z")])
        tx.delete("part = 'z'")
    table.tag("now").rollback(2)
    assert ids(table) == [1, 2, 3]
    then = phalanx.open(table.uri, version="now", storage_options=s3_options)
    assert (then.version, then.count()) == (8, 1)
    assert table.snapshots()["version"].to_pylist() == list(range(1, 11))
    assert table.check().ok


def test_rebase_and_conflict(table, other):
    with table.transaction() as tx:
        tx.delete("id IN (1, 7)")
        other.append([row(7), row(8, "new")])
    assert ids(table) == [2, 3, 8]
    with pytest.raises(ConflictError), table.transaction() as tx:  # noqa: PT012
        tx.append([row(tx.count(), "new")])
        other.append([row(9)])
    assert ids(table) == [2, 3, 8, 9]


def append_many(uri, options, worker, turns):
    table = phalanx.open(uri, storage_options=options)
    for turn in range(turns):
        table.append([row(10 * worker + turn, "hot"), row(10 * worker + turn, f"new-{turn}")])


@pytest.mark.parametrize(
    ("workers", "turns"), [(3, 2), pytest.param(8, 10, marks=pytest.mark.soak)]
)
def test_every_row_is_there_once(table, s3_options, workers, turns):
    together(*((append_many, table.uri, s3_options, w, turns) for w in range(1, workers + 1)))
    table.refresh()
    expected = [10 * w + t for w in range(1, workers + 1) for t in range(turns)]
    assert sorted(table.scan(where="part = 'hot'").to_arrow()["id"].to_pylist()) == expected
    assert ids(table) == sorted([1, 2, 3, *expected, *expected])
    parts = table.partitions()["part"].to_pylist()
    assert parts == ["a", "b", "hot", *(f"new-{t}" for t in range(turns))]
    versions = table.snapshots()["version"].to_pylist()
    assert versions == list(range(1, 3 + workers * turns))


def append_as(uri, options):
    table = phalanx.open(uri, storage_options=options)
    with table.transaction(transaction_id="the one") as tx:
        tx.append([row(7)])
    return tx.repeated


def test_of_retries_that_race_one_lands(table, s3_options):
    repeated = together(*((append_as, table.uri, s3_options) for _ in range(3)))
    assert sorted(repeated) == [False, True, True]
    assert ids(table) == [1, 2, 3, 7]


def change(uri, options):
    table = phalanx.open(uri, storage_options=options)
    table.merge([row(1, "b", 9), row(7, "new")], ["id"], transaction_id="the one")


def change_and_die(uri, options, step):
    with failing(step, "kill"):
        change(uri, options)


@pytest.mark.parametrize(
    ("step", "action"),
    [
        ("commit.leaf-committed", "raise"),
        ("commit.after-swap", "raise"),
        ("lance.merge.before", "kill"),
        ("commit.after-swap", "kill"),
    ],
)
def test_a_failure(table, s3_options, step, action):
    before = rows(table)
    if action == "kill":
        process = start(change_and_die, table.uri, s3_options, step)
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    elif step == "commit.after-swap":  # only the reply is lost
        with failing(step, "raise"):
            change(table.uri, s3_options)
    else:
        with failing(step, "raise"), pytest.raises(OSError, match="failpoint"):
            change(table.uri, s3_options)
    after = [row(1, "b", 9), row(2), row(3, "b"), row(7, "new")]
    assert rows(table) == (after if step == "commit.after-swap" else before)
    change(table.uri, s3_options)
    assert rows(table) == after
    assert ids(table.append([row(8)])) == [1, 2, 3, 7, 8]


def test_a_weak_table(uri, s3_options):
    table = phalanx.create(uri, SCHEMA, ["part"], transactions="weak", storage_options=s3_options)
    table.append([row(1), row(2), row(3, "b")])
    assert table.delete("id = 1") == 1
    assert table.update({"part": "'c'"}, "id = 3") == 1
    assert rows(table) == [row(2), row(3, "c")]
    stale = phalanx.open(uri, storage_options=s3_options)
    table.make_strong().append([row(4)])
    stale.append([row(5)])
    assert ids(table) == [2, 3, 4, 5]
