"""How leaves are put into tasks."""

import json

import pyarrow as pa
import pytest

from phalanx.model.schema import TableSchema
from phalanx.spark.tasks import Chosen, Cluster, ScanSettings, Tasks
from phalanx.spark.types import spark_schema
from phalanx.storage.location import Location
from phalanx.storage.records import LeafRow

MB = 1 << 20
SCHEMA = TableSchema.assign(
    pa.schema([("id", pa.int64()), ("v", pa.list_(pa.float32(), 768)), ("name", pa.string())])
)


def tasks(*columns, cores=2, task_bytes=128 * MB):
    wanted = pa.schema([SCHEMA.arrow.field(name) for name in columns])
    cluster = Cluster(cores, task_bytes)
    scan = ScanSettings(schema=json.dumps(spark_schema(wanted)), cluster=cluster)
    return Tasks(Location("/nowhere"), SCHEMA, scan)


def leaves(made, count, size):
    for number in range(count):
        row = LeafRow(number, f"v1${number}", f"{number}", 1, 1, (), 1, 1000, size, 1)
        yield Chosen(row, made.piece(row, ""), size, small=False)


@pytest.mark.parametrize(
    ("columns", "share"),
    [(["id", "v", "name"], 1.0), (["v"], 3072 / 3096), (["id"], 1 / 64), ([], 1 / 64)],
)
def test_what_part_of_the_bytes_is_read(columns, share):
    assert tasks(*columns).share == pytest.approx(share)


def test_where_the_vector_is_not_read_each_core_gets_one_task():
    """Leaves of 1.5 GB, of which a few MB are read, are not worth twelve tasks."""
    for columns, expected in ((["id", "name"], 2), (["id", "v"], 10)):
        made = tasks(*columns)
        assert len(made.pieces(list(leaves(made, 10, 150 * MB)))) == expected


def test_little_is_one_task():
    made = tasks("id", "v", "name")
    assert len(made.pieces(list(leaves(made, 10, 100_000)))) == 1
