"""Indexes and search in an object store: here one on this machine."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

import phalanx
from phalanx.storage import shortlist
from tests import s3

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("body", pa.string()),
        ("vec", pa.list_(pa.float32(), 4)),
    ]
)
QUERY = np.array([0.1, -0.2, 0.3, 0.4], "f4")


@pytest.fixture
def table(s3_options, request):
    """A table of five partitions with indexes for vectors and texts."""
    numbers = np.random.default_rng(1)
    uri = f"s3://lake/{request.node.name}"
    table = phalanx.create(uri, SCHEMA, ["part"], storage_options=s3_options)
    table.append(
        [
            {
                "id": id,
                "part": "abcde"[id % 5],
                "body": " ".join(numbers.choice(["fox", "dog", "cat"], 1 + id % 4)),
                "vec": numbers.normal(size=4).astype("f4").tolist(),
            }
            for id in range(600)
        ]
    )
    table.create_index("vec", "IVF_PQ", min_rows=1, num_partitions=2, num_sub_vectors=2)
    table.create_index("body", "INVERTED")
    return table


def models(s3_options, table):
    client = s3.client(s3_options)
    prefix = table.uri.removeprefix("s3://lake/") + "/__model_"
    return client.list_objects_v2(Bucket="lake", Prefix=prefix).get("KeyCount", 0)


def test_vectors_and_texts(table, s3_options, monkeypatch):
    searched = []
    candidates = shortlist.candidates
    monkeypatch.setattr(
        shortlist, "candidates", lambda *a: searched.append(len(a[1])) or candidates(*a)
    )
    again = phalanx.open(table.uri, storage_options=s3_options)
    rows = again.scan().to_arrow().to_pylist()
    distances = [(((np.array(row["vec"], "f4") - QUERY) ** 2).sum(), row["id"]) for row in rows]
    result = again.search(QUERY, k=8, nprobes=2, refine_factor=100, columns=["id"])
    assert result["id"].to_pylist() == [id for _, id in sorted(distances)[:8]]
    assert searched == [5]
    result = again.search(text="fox", k=1000)
    foxes = sorted(row["id"] for row in rows if "fox" in row["body"])
    assert sorted(result["id"].to_pylist()) == foxes
    scores = result["_score"].to_pylist()
    assert scores == sorted(scores, reverse=True)


def test_vacuum_removes_a_model_that_no_snapshot_names(table, s3_options):
    assert models(s3_options, table) > 0
    table.vacuum(dt.timedelta(0), force=True)
    assert models(s3_options, table) > 0
    assert table.search(QUERY, k=3).num_rows == 3
    table.drop_index("vec_idx")
    table.vacuum(dt.timedelta(0), force=True)
    assert models(s3_options, table) == 0
    assert table.check().ok
