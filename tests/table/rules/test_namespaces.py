"""Namespaces that are missing, empty, or have other values than their leaves."""

import lance
import pyarrow as pa

from tests.table.damage import (
    check,
    id_of,
    in_manifest,
    kinds,
    leaf_of,
    manifest,
    mend_and_compare,
    rows,
    set_cells,
)


def test_a_missing_namespace(table):
    expected, before = rows(table), in_manifest(table)
    gone = id_of(leaf_of(table)).rpartition("$")[0]
    manifest(table).delete(f"object_id IN ('{gone}', '{gone.rpartition('$')[0]}', 'v1')")
    report = check(table)
    assert kinds(report) == {"namespace-missing"}
    assert len(report.damage) == 3
    mend_and_compare(table, expected)
    assert before.items() <= in_manifest(table).items()


def test_an_empty_namespace(table):
    """It is in nobody's way."""
    namespaces = manifest(table).to_table(filter="object_id = 'v1'").to_pylist()
    namespaces[0]["object_id"], namespaces[0]["metadata"] = "v1$empty", "{}"
    lance.write_dataset(
        pa.Table.from_pylist(namespaces, manifest(table).schema), manifest(table).uri, mode="append"
    )
    report = check(table)
    assert report.ok
    assert [problem.kind for problem in report.problems] == ["namespace-empty"]


def test_a_namespace_that_is_wrong(table):
    expected, before = rows(table), in_manifest(table)
    id = id_of(leaf_of(table)).rpartition("$")[0]
    set_cells(table, id, partition_field_part="'x'", metadata="'{}'")
    assert kinds(check(table)) == {"value-differs"}
    mend_and_compare(table, expected)
    assert in_manifest(table)[id] == before[id]
