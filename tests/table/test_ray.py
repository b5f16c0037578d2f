"""Scans as datasets of Ray. They run where Ray is installed."""

import os
import sys

import pyarrow as pa
import pytest

import phalanx
from phalanx.errors import InvalidInput

ray = pytest.importorskip("ray", reason="pip install 'phalanx[ray]' to run these")
pytest.importorskip("ray.data", reason="pip install 'phalanx[ray]' to run these")

from phalanx.table import ray_datasource, shards  # noqa: E402

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    table = phalanx.create(tmp_path_factory.mktemp("ray") / "t", SCHEMA, ["part"])
    table.append([{"id": id, "part": "abcd"[id % 4]} for id in range(400)])
    table.delete("id % 10 = 3")
    return table


@pytest.fixture(scope="module")
def cluster():
    source = os.pathsep.join(path for path in sys.path if path)
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": source}},
    )
    yield
    ray.shutdown()


def ids_of(dataset):
    return sorted(row["id"] for row in dataset.take_all())


def test_rows_columns_and_counts(table, cluster):
    dataset = table.scan(["id"]).to_ray()
    assert dataset.schema().names == ["id"]
    assert dataset.count() == table.count()
    assert ids_of(dataset) == sorted(table.scan("id").to_arrow()["id"].to_pylist())


def test_a_filter(table, cluster):
    dataset = table.scan(["id", "part"], "part = 'b' AND id < 50").to_ray(override_num_blocks=2)
    wanted = table.scan("id", "part = 'b' AND id < 50").to_arrow()["id"].to_pylist()
    assert ids_of(dataset) == sorted(wanted)
    assert dataset.count() == len(wanted)


def test_no_rows(table, cluster):
    dataset = table.scan(where="part = 'none'").to_ray()
    assert dataset.count() == 0
    assert dataset.schema().names == SCHEMA.names


def test_a_task_reads_a_leaf_or_several_small_ones(table):
    plan = table.scan().plan()
    source = ray_datasource.RayRows(
        shards.ShardReader.of(plan, SCHEMA), shards.shards_of(plan), True
    )
    assert len(source.get_read_tasks(100)) == 4
    assert len(source.get_read_tasks(2)) == 2
    (whole,) = source.get_read_tasks(1)
    assert whole.metadata.num_rows == table.count()
    assert sum(block.num_rows for block in whole()) == table.count()


def test_rows_that_a_filter_may_leave_out_are_not_counted(table):
    plan = table.scan(where="id > 7").plan()
    source = ray_datasource.RayRows(
        shards.ShardReader.of(plan, SCHEMA), shards.shards_of(plan), True
    )
    assert [task.metadata.num_rows for task in source.get_read_tasks(4)] == [None] * 4


def test_scans_that_cannot_be_divided_are_refused(table):
    with pytest.raises(InvalidInput, match="leave the limit out"):
        table.scan(limit=1).to_ray()
