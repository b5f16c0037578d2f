"""Heads and transactions that are lost, or there twice."""

import pytest

import phalanx
from phalanx import CorruptTable
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from tests.table.damage import (
    check,
    forget_history,
    in_manifest,
    kinds,
    manifest,
    mend_and_compare,
    repair,
    row,
    rows,
    set_cells,
)


def test_two_heads(table):
    """What Lance lets happen when the versions in between have been cleaned up."""
    expected = rows(table)
    stale = manifest(table)
    other = phalanx.open(table.uri)
    other.append([row(8, "c")])
    other.append([row(9, "d")])
    forget_history(table)
    head = stale.to_table(filter="object_id = '__head'")
    merge = stale.merge_insert("object_id").when_matched_update_all()
    merge.when_not_matched_insert_all().conflict_retries(0).execute(head)
    assert "head-twice" in kinds(check(table))
    with pytest.raises(CorruptTable, match="2 head rows"):
        ManifestVersion(Location(table.uri)).head()
    repair(table)
    assert rows(table) == [*expected, row(8, "c"), row(9, "d")]
    assert phalanx.open(table.uri).version == 8
    phalanx.open(table.uri).append([row(10)])


def test_no_head(table):
    expected, before = rows(table), in_manifest(table)
    manifest(table).delete("object_id = '__head'")
    assert kinds(check(table)) == {"head-missing"}
    with pytest.raises(CorruptTable, match="lost its head row"):
        phalanx.open(table.uri)
    mend_and_compare(table, expected)
    assert before.items() <= in_manifest(table).items()
    assert phalanx.open(table.uri).version == 7


def test_no_head_and_no_memory_of_one(table):
    """The copy that other clients read is enough to go on."""
    expected = rows(table)
    table.drop_tag("kept")
    manifest(table).delete("object_id = '__head'")
    forget_history(table)
    mend_and_compare(table, expected)
    assert phalanx.open(table.uri).version == 8


def test_the_newest_transaction_is_missing(table):
    expected = rows(table)
    table.drop_tag("kept")
    manifest(table).delete(f"object_type = 'transaction' AND sequence = {table.version}")
    forget_history(table)
    assert kinds(check(table)) == {"transaction-missing"}
    mend_and_compare(table, expected)


def test_a_transaction_that_has_no_version(table):
    expected = rows(table)
    id = next(id for id in in_manifest(table) if id.startswith("__transaction$"))
    set_cells(table, id, sequence="NULL", metadata="'{}'")
    assert kinds(check(table)) == {"transaction-lost"}
    assert repair(table).ok
    assert id not in in_manifest(table)
    assert check(table).ok
    assert rows(table) == expected
