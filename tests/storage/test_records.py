"""What the record of a transaction says about rows, for those that commit after it."""

import datetime as dt

import pytest

from phalanx.storage.records import TransactionRecord


def record(operation, **counts):
    return TransactionRecord("t", 2, dt.datetime.now(dt.UTC), operation, **counts)


@pytest.mark.parametrize("operation", ["append", "delete", "optimize", "tag", "add column"])
def test_rows_stay_in_their_leaves(operation):
    assert not record(operation).may_move_rows
    assert not record(operation, rows_added=1, rows_removed=0).may_move_rows


@pytest.mark.parametrize(
    "operation",
    ["update", "merge", "rewrite", "rollback", "repair", "replace", "transaction", "later", None],
)
def test_rows_may_move(operation):
    """Whatever its counts: two rows that change places leave them as they are."""
    assert record(operation).may_move_rows
    assert record(operation, rows_added=0, rows_removed=0).may_move_rows


def test_rows_may_move_by_their_counts():
    assert record("delete", rows_added=1, rows_removed=1).may_move_rows


def test_restored_leaves_are_remembered():
    restored = record("transaction", restores=True)
    again = TransactionRecord.from_row(
        restored.sequence, restored.committed_at, restored.to_metadata()
    )
    assert again == restored
    assert "restores" not in record("transaction").to_metadata()
