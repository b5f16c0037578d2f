"""`now()` in filters and assignments: one instant, read when the call begins."""

import datetime as dt

import pyarrow as pa
import pytest

import phalanx


@pytest.fixture
def table(root):
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])
    table = phalanx.create(root, schema, partition_by=["bucket(4, id)"])
    today = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    rows = [(0, today - dt.timedelta(days=1)), (1, today + dt.timedelta(days=1))]
    table.append(pa.table(list(map(list, zip(*rows, strict=True))), schema=schema))
    return table


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("ts < now()", [0]),
        ("ts > current_timestamp", [1]),
        ("ts > now() AND ts < now()", []),
        ("CAST(ts AS DATE) < current_date", [0]),
    ],
)
def test_a_filter_reads_the_clock(table, where, ids):
    assert sorted(table.scan(where=where).to_arrow()["id"].to_pylist()) == ids


def test_an_update_sets_every_row_to_the_same_instant(table):
    before = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    table.update({"ts": "now()"}, "id >= 0")
    (moment,) = set(table.scan().to_arrow()["ts"].to_pylist())
    assert before <= moment <= dt.datetime.now(dt.UTC).replace(tzinfo=None)
