"""Search in tables whose files leave out partition columns: their values come from the manifest."""

import numpy as np
import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput

VECTORS = np.random.default_rng(3).random((60, 4), np.float32)
SCHEMA = pa.schema(
    [
        ("tenant", pa.string()),
        ("id", pa.int64()),
        ("body", pa.string()),
        ("v", pa.list_(pa.float32(), 4)),
    ]
)
ROWS = [
    {
        "tenant": ["a", "b", None][n % 3],
        "id": n,
        "body": f"word{n % 5} fox" if n % 2 else f"word{n % 5}",
        "v": VECTORS[n].tolist(),
    }
    for n in range(60)
]


@pytest.fixture(params=["flat", "hive"])
def tables(request, tmp_path):
    """A table without its partition column in files, and the same with it."""
    options = {"layout": "hive"} if request.param == "hive" else {}
    off = phalanx.create(
        tmp_path / "off", SCHEMA, ["tenant"], materialize_partition_columns=False, **options
    )
    on = phalanx.create(tmp_path / "on", SCHEMA, ["tenant"])
    for table in (off, on):
        table.append(ROWS)
        table.delete("id = 7")
    return off, on


def index(table):
    table.create_index("v", "IVF_FLAT", min_rows=1, num_partitions=2)
    table.create_index("body", "INVERTED", min_rows=1)


@pytest.mark.parametrize("indexed", [False, True], ids=["flat", "indexed"])
@pytest.mark.parametrize(
    "where",
    [None, "tenant = 'a'", "tenant IS NULL", "tenant = 'b' OR id < 20", "upper(tenant) = 'A'"],
)
def test_the_same_rows(tables, where, indexed):
    off, on = tables
    if indexed:
        index(off)
        index(on)
    columns = ["tenant", "id", "body"]
    query = VECTORS[5]
    one, other = (t.search(query, k=8, where=where, columns=columns, nprobes=2) for t in tables)
    assert one.to_pylist() == other.to_pylist()
    assert {row["tenant"] for row in one.to_pylist()} <= {"a", "b", None}
    if indexed:
        one, other = (t.search(text="fox word1", column="body", k=8, where=where) for t in tables)
        assert one.sort_by("id").column("id") == other.sort_by("id").column("id")
        one, other = (
            t.search(query, column="v", text="fox", text_column="body", k=5, where=where)
            for t in tables
        )
        assert one.column("tenant").to_pylist() == other.column("tenant").to_pylist()


def test_samples_have_the_column(tables):
    off, _ = tables
    rows = off.scan(where="tenant = 'a'").sample(10, seed=1).to_pylist()
    assert len(rows) == 10
    assert {row["tenant"] for row in rows} == {"a"}


def test_the_column_needs_no_index(tables):
    off, on = tables
    with pytest.raises(InvalidInput, match="it needs no index"):
        off.create_index("tenant", "BITMAP")
    on.create_index("tenant", "BITMAP", min_rows=1)


def test_switching_keeps_indexes(tables):
    off, on = tables
    index(off)
    off.set_properties({"materialize_partition_columns": "true"})
    off.append(ROWS[:6])
    on.append(ROWS[:6])
    off.rewrite()
    off.refresh_indexes()
    query = VECTORS[5]
    ids = [t.search(query, k=8, nprobes=2).column("id").to_pylist() for t in (off, on)]
    assert ids[0] == ids[1]
