"""Rows of a scan, divided among readers. What PyTorch and Ray make of it is tested with them."""

import pickle
import sys

import pyarrow as pa
import pytest

import phalanx
from phalanx.errors import PhalanxError
from phalanx.table.shards import ShardReader, divided, packed, shards_of

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int32())])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    table = phalanx.create(tmp_path_factory.mktemp("shards") / "t", SCHEMA, ["part"])
    # Four files of 100 rows in partition 0, and a few rows in each of the others.
    for start in range(0, 400, 100):
        table.append([{"id": id, "part": 0} for id in range(start, start + 100)])
    table.append([{"id": 1000 + id, "part": 1 + id % 5} for id in range(50)])
    table.delete("id % 20 = 7")
    return table


def ids_of(reader, shards):
    return [id for batch in reader.batches(shards) for id in batch.column("id").to_pylist()]


@pytest.mark.parametrize("readers", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("where", [None, "id > 120 AND id < 1030"])
def test_every_row_is_read_by_one_reader(table, readers, where):
    scan = table.scan(["id"], where)
    reader = pickle.loads(pickle.dumps(ShardReader.of(scan.plan(), scan.schema)))
    parts = divided(shards_of(scan.plan(), readers), readers)
    ids = [id for part in pickle.loads(pickle.dumps(parts)) for id in ids_of(reader, part)]
    assert sorted(ids) == sorted(scan.to_arrow()["id"].to_pylist())


def test_readers_get_about_as_many_rows(table):
    loads = [
        sum(shard.rows for shard in part) for part in divided(shards_of(table.scan().plan(), 2), 2)
    ]
    assert sum(loads) == table.count()
    assert max(loads) - min(loads) <= 100


def test_a_large_leaf_is_cut_at_its_files_and_small_ones_are_not(table):
    shards = shards_of(table.scan().plan(), 1)
    assert [shard.fragments is None for shard in shards] == [False] * 4 + [True] * 5
    assert len(shards_of(table.scan(where="part = 3").plan(), 4)) == 1


def test_leaves_of_a_weak_table_are_not_cut(root):
    table = phalanx.create(root, SCHEMA, ["part"], transactions="weak")
    for id in range(2):
        table.append([{"id": id, "part": 0}])
    (shard,) = shards_of(table.scan().plan(), 1)
    assert shard.fragments is None


def test_no_rows_make_no_shards(table):
    plan = table.scan(where="part = 99").plan()
    assert shards_of(plan, 3) == []
    assert divided([], 3) == [[], [], []]


def test_packed_shards_keep_their_order_and_bound(table):
    shards = shards_of(table.scan().plan())
    most = 2 * max(shard.bytes for shard in shards)
    runs = list(packed(shards, most))
    assert [shard for run in runs for shard in run] == shards
    assert all(sum(shard.bytes for shard in run) <= most for run in runs)
    assert [len(run) for run in packed(shards, 1)] == [1] * len(shards)


def test_no_secret_is_shown(table):
    location = phalanx.storage.location.Location(table.uri, {"secret_access_key": "hush"})
    reader = ShardReader(location, table._snapshot.head.schema, SCHEMA)
    assert "hush" not in repr(reader)


@pytest.mark.parametrize(
    ("package", "module", "call", "text"),
    [
        ("torch", "torch_dataset", "to_torch", r"to_torch needs PyTorch .*'phalanx\[torch\]'"),
        ("ray", "ray_datasource", "to_ray", r"to_ray needs Ray .*'phalanx\[ray\]'"),
    ],
)
def test_a_package_that_is_missing_is_named(table, monkeypatch, package, module, call, text):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.data", None)
    monkeypatch.delitem(sys.modules, f"phalanx.table.{module}", raising=False)
    with pytest.raises(PhalanxError, match=text):
        getattr(table.scan(), call)()
