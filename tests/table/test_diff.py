"""`Table.diff`: what changed between two versions."""

import pyarrow as pa
import pytest

import phalanx
from phalanx.errors import InvalidInput, TableNotFound


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    schema = pa.schema([("id", pa.int64()), ("k", pa.string())])
    table = phalanx.create(tmp_path_factory.mktemp("diff") / "t", schema, ["k"])
    table.append({"id": [1, 2, 3], "k": ["a", "b", "b"]})  # version 2
    table.append({"id": [4, 5], "k": ["b", None]})  # 3
    table.delete("k = 'a'")  # 4
    table.rename_column("id", "number")  # 5
    table.add_column("v", "double")  # 6
    table.evolve_partitioning(["bucket(2, number)"])  # 7
    table.set_properties({"retention.snapshots": "30 days"})  # 8
    return table.optimize() and table


def test_leaves(table):
    report = table.diff(2, 4)
    assert (report.before.rows, report.after.rows) == (3, 4)
    assert (report.added, report.removed, report.changed) == (1, 1, 1)
    assert [(leaf.kind, leaf.partition, leaf.rows) for leaf in report.leaves] == [
        ("removed", "k=a", -1),
        ("changed", "k=b", 1),
        ("added", "k=NULL", 1),
    ]
    assert "1 added, 1 removed, 1 changed" in str(report)
    assert "+ k=NULL  0 -> 1" in str(report)


def test_it_works_backward(table):
    report = table.diff(4, 2)
    assert (report.added, report.removed, report.changed) == (1, 1, 1)
    assert [leaf.rows for leaf in report.leaves] == [-1, -1, 1]


def test_columns_partitioning_and_properties(table):
    report = table.diff(4, 8)
    assert report.leaves == ()
    assert report.columns == ("id was renamed to number", "v was added, as double")
    assert report.partition_by_before == ("k",)
    assert report.partition_by_after == ("bucket(2, number)",)
    assert report.properties == {"retention.snapshots": (None, "30 days")}
    assert "k -> bucket(2, number)" in str(report)
    assert table.diff(6, 5).columns == ("v was dropped",)


def test_a_leaf_that_was_compacted_has_the_same_rows(table):
    report = table.diff(8)
    assert report.after.version == table.version == 9
    assert [(leaf.kind, leaf.partition, leaf.rows) for leaf in report.leaves] == [
        ("changed", "k=b", 0)
    ]


def test_the_same_version(table):
    report = table.diff(3, 3)
    assert report.same
    assert str(report).endswith("nothing differs")


def test_versions_that_there_are_not(table, root):
    with pytest.raises(TableNotFound):
        table.diff(1, 99)
    weak = phalanx.create(root, pa.schema([("k", pa.string())]), transactions="weak")
    with pytest.raises(InvalidInput, match="weak"):
        weak.diff(1)


def test_an_old_handle_is_compared_as_it_is(table):
    old = phalanx.open(table.uri, version=2)
    assert old.diff(3).after.version == 2
    assert old.diff(2, 8).after.version == 8
