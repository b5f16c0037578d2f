"""Rows that somebody deletes from the manifest, and leaves that come back."""

import datetime as dt

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import CorruptTable
from phalanx.table.vacuum import vacuum
from tests.table.aging import age
from tests.table.damage import (
    SCHEMA,
    check,
    copy_of,
    forget_history,
    id_of,
    in_manifest,
    kinds,
    leaf_of,
    manifest,
    mend_and_compare,
    opened_elsewhere,
    repair,
    row,
    rows,
)


@pytest.fixture(params=["plain", "weak"])
def any_table(request, tables_to_damage, root):
    return copy_of(tables_to_damage, request.param, root)


def of_leaf(report):
    return [problem for problem in report.damage if problem.kind == "leaf-lost"]


def test_one_leaf_comes_back(any_table):
    expected, before = rows(any_table), in_manifest(any_table)
    id = id_of(leaf_of(any_table))
    manifest(any_table).delete(f"object_id = '{id}'")
    assert [problem.where for problem in of_leaf(check(any_table))] == [id]
    assert mend_and_compare(any_table, expected).ok
    after = in_manifest(any_table)
    assert after[id] == before[id] | {"sequence": after[id]["sequence"]}


def test_all_leaves_come_back(any_table):
    expected = rows(any_table)
    manifest(any_table).delete("object_type = 'table'")
    assert len(of_leaf(check(any_table))) == 4
    assert rows(any_table) == []
    assert mend_and_compare(any_table, expected).ok


def test_also_with_everything_that_hangs_on_them(any_table):
    expected, before = rows(any_table), in_manifest(any_table)
    manifest(any_table).delete("object_id LIKE 'v1$%'")
    assert mend_and_compare(any_table, expected).ok
    tables = {id: line for id, line in before.items() if line["object_type"] == "table"}
    after = in_manifest(any_table)
    for id, line in tables.items():
        assert after[id] == line | {"sequence": after[id]["sequence"]}


class TestWithoutEarlierManifests:
    """Timelines, namespaces and the leaves themselves say what they were."""

    @pytest.fixture
    def table(self, any_table):
        return any_table

    def lose(self, table, where="object_type = 'table'"):
        manifest(table).delete(where)
        forget_history(table)

    def test_values_come_from_the_namespaces(self, table):
        expected, before = rows(table), in_manifest(table)
        self.lose(table)
        assert mend_and_compare(table, expected).ok
        after, unknown = in_manifest(table), {"sequence", "column_stats"}
        for id, line in before.items():
            if line["object_type"] == "table":
                assert {k: v for k, v in after[id].items() if k not in unknown} == {
                    k: v for k, v in line.items() if k not in unknown
                }

    def test_counts_and_pruning_are_right_again(self, table):
        self.lose(table)
        repair(table)
        table = phalanx.open(table.uri)
        assert table.count("part = 'b'") == 2
        assert table.scan(where="part = 'b'").plan().selected == 1
        assert table.count("part IS NULL") == 1
        assert table.count("id > 6") == 1


def test_values_come_from_the_rows(tables_to_damage, root):
    """Neither the leaf nor its namespaces have a row, and no earlier manifest does."""
    table = copy_of(tables_to_damage, "plain", root)
    expected = rows(table)
    manifest(table).delete("object_id LIKE 'v1$%' AND object_type IN ('table', 'namespace')")
    forget_history(table)
    assert mend_and_compare(table, expected).ok


def test_a_version_that_nothing_names_is_told(tables_to_damage, root):
    table = copy_of(tables_to_damage, "plain", root)
    id = id_of(leaf_of(table))
    manifest(table).delete(f"object_id = '{id}'")
    manifest(table).update({"read_version": "NULL"}, where=f"object_id LIKE '{id}$%'")
    forget_history(table)
    for _ in range(2):
        report = repair(table)
        assert [(p.kind, p.where) for p in report.unmended] == [("leaf-lost", id)]
        assert "nothing says which version" in report.unmended[0].what
    assert not check(table).ok
    assert repair(table, stray="drop").ok
    assert check(table).ok


def test_files_that_are_gone_are_told(tables_to_damage, root, tmp_path):
    table = copy_of(tables_to_damage, "plain", root)
    leaf = leaf_of(table)
    manifest(table).delete(f"object_id = '{id_of(leaf)}'")
    (root / leaf["uri"].rsplit("/", 1)[1]).rename(tmp_path / "away")
    report = repair(table)
    assert ("leaf-lost", id_of(leaf)) in {(p.kind, p.where) for p in report.unmended}
    assert not report.ok


def test_a_leaf_that_was_removed_stays_away(tables_to_damage, root):
    table = copy_of(tables_to_damage, "plain", root)
    table.delete("part = 'b'")
    assert check(table).ok
    repair(table)
    assert {line["id"] for line in rows(table)} == {1, 3, 4, 7}


class TestInDoubt:
    """Rows were deleted or replaced while the leaf was lost."""

    @pytest.fixture
    def table(self, tables_to_damage, root):
        table = copy_of(tables_to_damage, "plain", root)
        manifest(table).delete(f"object_id = '{id_of(leaf_of(table, 'b'))}'")
        table = opened_elsewhere(root)
        table.delete("id = 4")
        return table

    def test_a_person_decides(self, table):
        report = repair(table)
        (problem,) = report.unmended
        assert problem.kind == "leaf-lost"
        assert "delete (version 5)" in problem.what
        assert {line["id"] for line in rows(table)} == {1, 3, 7}

    def test_take(self, table):
        assert repair(table, stray="take").ok
        assert {line["id"] for line in rows(table)} == {1, 2, 3, 6, 7}
        assert check(table).ok

    def test_drop(self, table):
        assert repair(table, stray="drop").ok
        assert {line["id"] for line in rows(table)} == {1, 3, 7}
        assert check(table).ok


class TestWrittenAgain:
    """The partition of a lost leaf was written again before anybody noticed."""

    @pytest.fixture
    def table(self, tables_to_damage, root):
        table = copy_of(tables_to_damage, "plain", root)
        manifest(table).delete(f"object_id = '{id_of(leaf_of(table, 'b'))}'")
        opened_elsewhere(root).append([row(20, "b")])
        return table

    def test_it_is_told(self, table):
        assert "leaf-replaced" in kinds(check(table))
        report = repair(table)
        assert "leaf-replaced" in {problem.kind for problem in report.unmended}
        assert {line["id"] for line in rows(table)} == {1, 3, 4, 7, 20}
        assert kinds(check(table)) == {"leaf-replaced"}

    def test_take(self, table):
        report = repair(table, stray="take")
        assert "leaf-replaced" in {problem.kind for problem in report.mended}
        assert {line["id"] for line in rows(table)} == {1, 2, 3, 4, 6, 7, 20}
        repair(table, stray="take")
        assert check(table).ok
        assert len(rows(table)) == 7

    def test_drop(self, table):
        repair(table, stray="drop")
        assert {line["id"] for line in rows(table)} == {1, 3, 4, 7, 20}
        assert check(table).ok


def test_a_writer_that_still_knows_the_leaf_brings_it_back(tables_to_damage, root):
    table = copy_of(tables_to_damage, "plain", root)
    expected = rows(table)
    table.refresh()
    manifest(table).delete("object_type = 'table'")
    table.append([row(20), row(21, "b"), row(22, None), row(23, day=None)])
    assert check(table).ok
    assert rows(table)[: len(expected)] == expected


def test_a_repaired_leaf_may_change(tables_to_damage, root):
    table = copy_of(tables_to_damage, "plain", root)
    manifest(table).delete("object_type = 'table'")
    repair(table)
    phalanx.open(root).append([row(30, "b")])
    assert check(table).ok


def test_a_tag_and_a_transaction_come_back(tables_to_damage, root):
    table = copy_of(tables_to_damage, "strong", root)
    table.append([row(10)], transaction_id="load")
    manifest(table).delete("object_type IN ('tag', 'transaction')")
    assert kinds(check(table)) == {"row-missing"}
    repair(table)
    table = phalanx.open(root)
    assert table.tags() == {"kept": 2}
    table.append([row(10)], transaction_id="load")
    assert table.count("id = 10") == 1
    assert check(table).ok


def test_vacuum_keeps_the_files_of_a_lost_leaf(tables_to_damage, root):
    table = copy_of(tables_to_damage, "plain", root)
    expected = rows(table)
    manifest(table).delete("object_type = 'table'")
    forget_history(table)
    age(root, 30)
    report = vacuum(phalanx.open(root)._snapshot, dt.timedelta(days=1))
    assert any("repair()" in note for note in report.notes)
    repair(table)
    assert rows(table) == expected


def test_a_row_under_a_name_that_nobody_knows(tables_to_damage, root):
    """Its rows are not passed over, and the table is whole again after a repair."""
    table = copy_of(tables_to_damage, "plain", root)
    expected = rows(table)
    id = id_of(leaf_of(table))
    manifest(table).update({"object_id": "'v7$x$y$dataset'"}, where=f"object_id = '{id}'")
    with pytest.raises(CorruptTable, match=r"v7\$x\$y\$dataset .* run repair"):
        rows(table)
    assert kinds(check(table)) >= {"leaf-unknown", "leaf-lost"}
    assert mend_and_compare(table, expected).ok


@pytest.mark.parametrize("id", ["v7$x$y$dataset", "v1$x$dataset", "v1$x$y$z$dataset"])
@pytest.mark.parametrize("spec", [None, 1, 7])
def test_a_strange_row_beside_the_others(tables_to_damage, root, id, spec):
    table = copy_of(tables_to_damage, "plain", root)
    line = manifest(table).to_table(filter="object_type = 'table'").slice(0, 1).to_pylist()[0]
    line |= {"object_id": id, "spec_id": spec, "location": "elsewhere"}
    schema = manifest(table).schema
    lance.write_dataset(pa.Table.from_pylist([line], schema), manifest(table).uri, mode="append")
    with pytest.raises(CorruptTable, match="fits no partition spec"):
        phalanx.open(root).count("part = 'b'")
    assert ("leaf-unknown", id) in {(p.kind, p.where) for p in repair(table).unmended}


def test_a_table_of_another_client_is_passed_over(tables_to_damage, root):
    table = copy_of(tables_to_damage, "plain", root)
    expected = rows(table)
    line = {"object_id": "theirs", "object_type": "table", "location": "theirs", "metadata": "{}"}
    theirs = pa.Table.from_pylist([line], manifest(table).schema)
    lance.write_dataset(theirs, manifest(table).uri, mode="append")
    assert rows(table) == expected
    assert phalanx.open(root).count("part = 'b'") == 2
    assert check(table).ok


def test_a_table_without_fields(root):
    table = phalanx.create(root, SCHEMA).append([row(1), row(2, "b")])
    manifest(table).delete("object_type = 'table'")
    forget_history(table)
    assert repair(table).ok
    assert [line["id"] for line in rows(table)] == [1, 2]
