"""What the history says about a rollback: how many rows came back, and how many went."""

import pytest

import phalanx


@pytest.fixture
def table(root):
    """Version 1 has two rows in two leaves, version 2 five rows in three."""
    table = phalanx.create(root, {"id": [1, 2], "p": ["a", "b"]}, partition_by=["p"])
    return table.append({"id": [3, 4, 5], "p": ["b", "c", "c"]})


def last(table):
    entry = table.history().to_pylist()[0]
    assert entry["operation"] == "rollback"
    return entry["rows_added"], entry["rows_removed"], entry["leaves"]


def test_rows_that_go(table):
    assert last(table.rollback(1)) == (0, 3, 2)


def test_rows_that_come_back(table):
    table.delete("id >= 3")
    assert last(table.rollback(2)) == (3, 0, 2)


def test_leaves_that_come_back_and_others_that_go(table):
    table.update({"p": "'z'"}, "p = 'a'")
    assert last(table.rollback(2)) == (1, 1, 2)


def test_a_leaf_with_as_many_rows(table):
    table.update({"id": "id + 10"}, "p = 'a'")
    assert last(table.rollback(2)) == (0, 0, 1)


def test_nothing_to_do(table):
    assert last(table.rollback(2)) == (0, 0, 0)


def test_after_other_changes_of_the_same_transaction(table):
    with table.transaction() as tx:
        tx.append({"id": [6, 7], "p": ["a", "new"]})
        tx.delete("p = 'b'")
        tx.rollback(2)
    entry = table.history().to_pylist()[0]
    assert (entry["rows_added"], entry["rows_removed"]) == (4, 4)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5]
