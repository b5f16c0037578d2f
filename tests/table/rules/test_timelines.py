"""Timelines that disagree with their leaves."""

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


def test_a_timeline_that_is_wrong(table):
    expected = rows(table)
    id = id_of(leaf_of(table))
    number = in_manifest(table)[id]["version_number"]
    set_cells(table, f"{id}${number}", read_version="5")
    assert kinds(check(table)) == {"timeline-differs"}
    mend_and_compare(table, expected)
    assert in_manifest(table)[f"{id}${number}"]["read_version"] == leaf_of(table)["version"]


def test_a_timeline_that_is_missing(table):
    expected = rows(table)
    manifest(table).delete("object_type = 'table_version'")
    assert kinds(check(table)) == {"timeline-missing"}
    mend_and_compare(table, expected)


def test_a_timeline_of_nobody(table):
    expected = rows(table)
    version = manifest(table).to_table(filter="object_type = 'table_version'").slice(0, 1)
    ids = pa.array(["v1$nobody$here$dataset$1"])
    lance.write_dataset(
        version.set_column(0, manifest(table).schema.field(0), ids),
        manifest(table).uri,
        mode="append",
    )
    assert kinds(check(table)) == {"timeline-unknown"}
    mend_and_compare(table, expected)


def test_a_version_that_nobody_remembers(table):
    expected = rows(table)
    id = f"{id_of(leaf_of(table))}$1"
    set_cells(table, id, read_version="NULL")
    assert {(p.kind, p.where) for p in check(table).damage} == {("timeline-lost", id)}
    mend_and_compare(table, expected)
    assert id not in in_manifest(table)
