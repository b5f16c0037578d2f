"""Rows of leaves that contradict themselves or each other."""

import json
import os

import pytest

import phalanx
from tests.table.damage import (
    check,
    id_of,
    in_manifest,
    kinds,
    leaf_of,
    manifest,
    mend_and_compare,
    repair,
    rows,
    set_cells,
)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ({"partition_field_part": "'x'"}, "value-differs"),
        ({"partition_field_part": "NULL"}, "value-differs"),
        ({"partition_field_day": "date '2020-01-01'"}, "value-differs"),
        ({"row_count": "77"}, "count-differs"),
        ({"byte_count": "77"}, "count-differs"),
        ({"fragment_count": "77"}, "count-differs"),
        ({"fragment_count": "NULL"}, "count-differs"),
        ({"read_version": "NULL"}, "version-differs"),
        ({"spec_id": "9"}, "spec-differs"),
        ({"spec_id": "NULL"}, "spec-differs"),
        ({"version_number": "1"}, "timeline-differs"),
        ({"metadata": '\'{"partition.part": "zzz"}\''}, "value-differs"),
        ({"metadata": "'not json'"}, "metadata-unreadable"),
    ],
)
def test_a_leaf_row_that_is_wrong(table, cells, kind):
    expected, before = rows(table), in_manifest(table)
    id = id_of(leaf_of(table))
    set_cells(table, id, **cells)
    report = check(table)
    assert kind in kinds(report)
    assert any(problem.where.startswith(id) for problem in report.damage)
    mend_and_compare(table, expected)
    mended = in_manifest(table)
    if "version_number" not in cells:
        assert mended[id] == before[id] | {"sequence": mended[id]["sequence"]}


def test_a_leaf_at_an_earlier_version(table):
    expected, leaf = rows(table), leaf_of(table)
    earlier = phalanx.open(table.uri, version=2).partitions().to_pylist()
    (before,) = [other["version"] for other in earlier if other["uri"] == leaf["uri"]]
    assert before != leaf["version"]
    set_cells(table, id_of(leaf), read_version=str(before))
    assert "version-differs" in kinds(check(table))
    mend_and_compare(table, expected)


def test_a_location_outside(table):
    set_cells(table, id_of(leaf_of(table)), location="'../elsewhere'")
    assert "leaf-outside" in kinds(check(table))
    assert "leaf-outside" in {problem.kind for problem in repair(table).unmended}


def test_two_leaves_in_one_folder(table):
    other = os.path.basename(leaf_of(table, "b")["uri"])
    set_cells(table, id_of(leaf_of(table)), location=f"'{other}'")
    assert "leaf-twice" in kinds(check(table))


def test_an_id_that_fits_no_spec(table):
    set_cells(table, id_of(leaf_of(table)), object_id="'v7$x$y$dataset'")
    assert "leaf-unknown" in kinds(check(table))


def test_a_version_that_does_not_exist(table):
    """The leaf is mended. The damaged snapshot cannot be opened, now that it is an earlier one."""
    expected = rows(table)
    set_cells(table, id_of(leaf_of(table)), read_version="999")
    assert kinds(check(table)) >= {"version-differs", "version-missing"}
    report = mend_and_compare(table, expected, lost={"version-missing"})
    assert [problem.kind for problem in report.mended] == ["version-differs"]
    assert [problem.kind for problem in report.unmended] == ["version-missing"]


def test_a_version_that_is_not_known(table):
    id = id_of(leaf_of(table))
    set_cells(table, id, read_version="NULL", metadata="'{}'")
    manifest(table).delete(f"object_id LIKE '{id}$%'")
    assert "version-lost" in kinds(check(table))
    report = repair(table)
    assert ("version-lost", id) in {(p.kind, p.where) for p in report.unmended}


def test_values_that_nothing_confirms(table):
    """The value in the column stays, and the report does not call that mended."""
    id = id_of(leaf_of(table, "b"))
    namespace = id.rpartition("$")[0].rpartition("$")[0]
    metadata = json.loads(in_manifest(table)[id]["metadata"]) | {"partition.part": "y"}
    set_cells(table, id, partition_field_part="'x'", metadata=f"'{json.dumps(metadata)}'")
    set_cells(table, namespace, partition_field_part="'z'", metadata="'{}'")
    report = repair(table)
    assert [(p.kind, p.where) for p in report.unmended] == [("value-lost", id)]
    assert id not in {problem.where for problem in report.mended}
    assert in_manifest(table)[id]["partition_field_part"] == "x"
    assert check(table).ok


def test_what_cannot_be_mended_is_told(table):
    other = {"object_id": "'v7$x$y$dataset'", "location": "'elsewhere'"}
    set_cells(table, id_of(leaf_of(table)), **other)
    assert "leaf-unknown" in {problem.kind for problem in repair(table).unmended}


def test_a_leaf_row_that_is_wrong_in_several_ways(table):
    """What is mended first does not overwrite what the rest is mended from."""
    expected, before = rows(table), in_manifest(table)
    id = id_of(leaf_of(table))
    cells = {"read_version": "NULL", "spec_id": "9", "row_count": "77", "version_number": "NULL"}
    values = {"partition_field_part": "'x'", "partition_field_day": "NULL"}
    set_cells(table, id, **cells, **values)
    mend_and_compare(table, expected)
    assert in_manifest(table)[id] == before[id]


def test_a_value_that_only_the_namespace_has(table):
    """Neither its column nor its copy has it any more, but the namespace is named after it."""
    expected, before = rows(table), in_manifest(table)
    id = id_of(leaf_of(table))
    metadata = json.loads(before[id]["metadata"])
    del metadata["partition.part"]
    set_cells(table, id, partition_field_part="NULL", metadata=f"'{json.dumps(metadata)}'")
    assert id in {problem.where for problem in check(table).damage}
    mend_and_compare(table, expected)
    after = in_manifest(table)
    assert {key: after[key] for key in before} == before
