"""Rows of the manifest that are there twice, or whose metadata cannot be read."""

import json

import lance
import pyarrow as pa

import phalanx
from tests.table.damage import (
    check,
    id_of,
    in_manifest,
    kinds,
    leaf_of,
    manifest,
    only_plain_columns,
    repair,
    rows,
    set_cells,
)


def test_a_leaf_twice(table):
    """The row that came last counts, and what only the other has is told."""
    leaf = leaf_of(table, "b")
    newest = manifest(table).to_table(filter=f"object_id = '{id_of(leaf)}'")
    earlier = phalanx.open(table.uri, version=2).partitions().to_pylist()
    (version,) = [x["version"] for x in earlier if x["part"] == "b"]
    index = newest.schema.names.index("read_version")
    stale = newest.set_column(index, "read_version", pa.array([version], pa.uint64()))
    manifest(table).delete(f"object_id = '{id_of(leaf)}'")
    lance.write_dataset(stale, manifest(table).uri, mode="append")
    lance.write_dataset(newest, manifest(table).uri, mode="append")
    assert "row-twice" in kinds(check(table))
    report = repair(table)
    assert [problem.kind for problem in report.unmended] == ["rows-lost"]
    assert str(version) in report.unmended[0].what
    assert check(table).ok
    assert len(rows(table)) == 6


def test_a_copy_that_is_no_flat_map(table):
    set_cells(table, "v1", metadata="'{\"a\": 1}'")
    assert kinds(check(table)) == {"metadata-unreadable"}


def test_every_metadata_stays_flat(table):
    """Stock clients fail on anything but strings."""
    only_plain_columns(table)
    repair(table)
    for cells in in_manifest(table).values():
        parsed = json.loads(cells["metadata"])
        assert all(isinstance(value, str) for value in parsed.values())


def test_the_metadata_of_a_spec(table):
    before = in_manifest(table)
    set_cells(table, "v1", metadata="'not json'")
    assert [problem.kind for problem in repair(table).mended] == ["metadata-unreadable"]
    assert in_manifest(table)["v1"] == before["v1"]


def test_metadata_that_no_column_repeats(table):
    """What a transaction did is written nowhere else."""
    id = next(id for id in in_manifest(table) if id.startswith("__transaction$"))
    set_cells(table, id, metadata="'not json'")
    report = repair(table)
    assert [(p.kind, p.where) for p in report.unmended] == [("metadata-unreadable", id)]
    assert not report.mended


def test_copies_of_values_that_a_row_does_not_have(table):
    before = in_manifest(table)
    leaf = id_of(leaf_of(table))
    namespace = leaf.removesuffix("$dataset")
    for id in (leaf, namespace):
        metadata = json.loads(before[id]["metadata"]) | {"partition.other": "1"}
        set_cells(table, id, metadata=f"'{json.dumps(metadata)}'")
    assert {(p.kind, p.where) for p in check(table).damage} == {
        ("copy-differs", leaf),
        ("copy-differs", namespace),
    }
    assert repair(table).ok
    after = in_manifest(table)
    assert [after[id]["metadata"] for id in (leaf, namespace)] == [
        before[id]["metadata"] for id in (leaf, namespace)
    ]
