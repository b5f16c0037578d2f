"""Epochs of a stream land once: repeated, late, at once, after an expiry and after a repair."""

import datetime as dt

import lance
import lance_namespace
import pyarrow as pa
import pytest
from lance_namespace import ListNamespacesRequest

import phalanx
from phalanx import InvalidInput
from phalanx.transaction.epochs import Epoch
from tests.transaction import processes, sabotage

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


@pytest.fixture
def table(root):
    return phalanx.create(root, SCHEMA, ["part"])


def row(id, part="a"):
    return {"id": id, "part": part}


def ids(root):
    return sorted(phalanx.open(root).scan(["id"]).to_arrow().column("id").to_pylist())


def test_an_epoch_lands_once(root, table):
    table.append([row(1)], epoch=Epoch("q", 0))
    for _ in range(2):
        with phalanx.open(root).transaction(epoch=Epoch("q", 0)) as tx:
            tx.append([row(1)])
        assert tx.repeated
    assert ids(root) == [1]
    assert phalanx.open(root).version == 2


def test_an_epoch_before_the_last_one_does_nothing(root, table):
    table.append([row(1)], epoch=Epoch("q", 3))
    table.append([row(2)], epoch=Epoch("q", 2))
    table.append([row(3)], epoch=Epoch("q", 10))
    table.append([row(4)], epoch=Epoch("q", 9))
    assert ids(root) == [1, 3]


def test_each_query_has_epochs_of_its_own(root, table):
    table.append([row(1)], epoch=Epoch("one", 7))
    table.append([row(2)], epoch=Epoch("two", 0))
    table.append([row(2)], epoch=Epoch("two", 0))
    # No name is taken for a part of another.
    table.append([row(3)], epoch=Epoch("two:0", 0))
    table.append([row(4)], epoch=Epoch("it's", 0))
    table.append([row(4)], epoch=Epoch("it's", 0))
    assert ids(root) == [1, 2, 3, 4]


def test_an_overwrite_lands_once_too(root, table):
    table.append([row(1), row(2, "b")])
    table.overwrite([row(3)], epoch=Epoch("q", 0))
    table.append([row(4)])
    table.overwrite([row(3)], epoch=Epoch("q", 0))
    assert ids(root) == [3, 4]


def test_the_last_epoch_outlives_its_transaction(root, table):
    for number in range(3):
        table.append([row(number)], epoch=Epoch("q", number))
    table.append([row(9)])
    table.vacuum(dt.timedelta(0), force=True)
    history = table.snapshots().column("transaction_id").to_pylist()
    assert not any(id.startswith("q:") for id in history)
    for number in range(4):
        table.append([row(number)], epoch=Epoch("q", number))
    assert ids(root) == [0, 1, 2, 3, 9]
    assert table.check().ok


def test_a_rollback_does_not_bring_an_epoch_back(root, table):
    table.append([row(1)], epoch=Epoch("q", 0))
    table.rollback(1)
    table.append([row(1)], epoch=Epoch("q", 0))
    assert ids(root) == []


def test_two_that_try_the_same_epoch_at_once(root, table):
    for number in range(2):
        processes.together(*[(add, root, number)] * 3)
    assert ids(root) == [0, 1]


def add(root, number):
    phalanx.open(root).append([row(number)], epoch=Epoch("q", number))


def test_a_late_writer_finds_the_epoch_when_it_commits(root, table):
    with phalanx.open(root).transaction(epoch=Epoch("q", 1)) as tx:
        tx.append([row(1)])
        table.append([row(1)], epoch=Epoch("q", 1))
        table.append([row(2)], epoch=Epoch("q", 2))
    assert tx.repeated
    assert ids(root) == [1, 2]


@pytest.mark.parametrize("step", ["commit.before-swap", "commit.after-swap"])
def test_a_failure_around_the_swap(root, table, step):
    with sabotage.failing(step, "raise"):
        try:
            table.append([row(1)], epoch=Epoch("q", 0))
        except OSError:
            assert step == "commit.before-swap"
            assert ids(root) == []
    table.append([row(1)], epoch=Epoch("q", 0))
    assert ids(root) == [1]


def test_repair_brings_the_last_epoch_back(root, table):
    table.append([row(1)], epoch=Epoch("q", 5))
    manifest = lance.dataset(str(root / "__manifest"))
    kept = manifest.to_table(filter="object_type NOT IN ('stream', '__head')")
    lance.write_dataset(kept.drop_columns(["sequence"]), manifest.uri, mode="overwrite")
    assert not phalanx.check(root).ok
    phalanx.repair(root)
    phalanx.open(root).append([row(1)], epoch=Epoch("q", 5))
    assert ids(root) == [1]


def test_other_clients_pass_over_the_row(root, table):
    table.append([row(1)], epoch=Epoch("q", 0))
    client = lance_namespace.connect("dir", {"root": str(root)})
    listed = client.list_namespaces(ListNamespacesRequest(id=[])).namespaces
    assert list(listed) == ["v1"]


def test_a_weak_table_is_refused(root):
    weak = phalanx.create(root, SCHEMA, transactions="weak")
    with pytest.raises(InvalidInput, match="is weak and cannot be written by a stream"):
        weak.append([row(1)], epoch=Epoch("q", 0))


@pytest.mark.parametrize(("query", "number"), [("", 0), ("q" * 257, 0), ("q", -1), ("q", True)])
def test_what_is_no_epoch(query, number):
    with pytest.raises(InvalidInput):
        Epoch(query, number)
