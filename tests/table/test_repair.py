"""Repair: what it leaves alone, and what it cannot mend."""

import os

import pyarrow as pa
import pytest

import phalanx
from phalanx import UnsupportedTable
from phalanx.table import repair as repairing
from tests.table.damage import (
    check,
    copy_of,
    id_of,
    kinds,
    leaf_of,
    manifest,
    repair,
    row,
    rows,
    set_cells,
)


@pytest.fixture
def table(tables_to_damage, root):
    return copy_of(tables_to_damage, "strong", root)


def test_nothing_to_repair_writes_nothing(table):
    before = manifest(table).version
    report = repair(table)
    assert (report.ok, str(report)) == (True, "nothing to repair")
    assert manifest(table).version == before


def test_another_clients_table_is_not_ours_to_mend(table):
    manifest(table).delete("object_type IN ('__head', 'transaction', 'tag')")
    manifest(table).update_metadata({"phalanx.table_id": None})
    assert "head-missing" not in kinds(check(table))
    with pytest.raises(UnsupportedTable):
        repair(table)


def test_the_manifest_itself(table):
    for name in os.listdir(f"{table.uri}/__manifest/data"):
        os.unlink(f"{table.uri}/__manifest/data/{name}")
    report = check(table)
    assert kinds(report) == {"manifest-unreadable"}
    assert [p.kind for p in repair(table).unmended] == ["manifest-unreadable"]


def test_copies_from_before_a_widening_stay(root):
    """They have fewer digits than the values have now."""
    schema = pa.schema([("id", pa.int64()), ("f", pa.float32())])
    table = phalanx.create(root, schema, ["f"]).append([{"id": 1, "f": 0.1}])
    table.change_type("f", pa.float64()).append([{"id": 2, "f": 0.25}])
    before = manifest(table).version
    assert check(table).ok
    assert str(repair(table)) == "nothing to repair"
    assert manifest(table).version == before


def test_others_write_meanwhile(table, monkeypatch):
    """What is mended is worked out again on what they have written."""
    expected, id = rows(table), id_of(leaf_of(table, "b"))
    set_cells(table, id_of(leaf_of(table)), row_count="77")
    swap_head = repairing.swap_head

    def meanwhile(location, *arguments):
        phalanx.open(table.uri).append([row(8, "b"), row(9, "new")])
        set_cells(table, id, row_count="77")
        return swap_head(location, *arguments)

    monkeypatch.setattr(repairing, "swap_head", meanwhile)
    assert {problem.where for problem in repair(table).mended} == {id_of(leaf_of(table)), id}
    assert check(table).ok
    assert rows(table) == [*expected, row(8, "b"), row(9, "new")]
