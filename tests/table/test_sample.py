"""Samples of scans."""

import collections

import pyarrow as pa
import pytest

import phalanx
from phalanx.errors import InvalidInput

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])


@pytest.fixture(params=["strong", "weak"])
def table(root, request):
    table = phalanx.create(root, SCHEMA, ["part"], transactions=request.param)
    sizes = {"a": 10, "b": 200, "c": 790}
    table.append(
        [
            {"id": 1000 * number + n, "part": part, "n": n % 10}
            for number, (part, size) in enumerate(sizes.items())
            for n in range(size)
        ]
    )
    return table


def test_a_sample_has_rows_of_the_table_each_once(table):
    rows = table.scan().sample(300, seed=1)
    ids = rows["id"].to_pylist()
    assert len(set(ids)) == len(ids) == 300
    assert set(ids) <= set(table.scan().to_arrow()["id"].to_pylist())
    assert rows.schema == SCHEMA


def test_all_rows_have_the_same_chance(table):
    counts = collections.Counter()
    for seed in range(60):
        counts.update(table.scan(["part"]).sample(100, seed=seed)["part"].to_pylist())
    # On average 60, 1,200 and 4,740 of 6,000, give or take a few standard deviations.
    assert abs(counts["a"] - 60) < 40
    assert abs(counts["b"] - 1200) < 150
    assert abs(counts["c"] - 4740) < 150


def test_a_sample_of_a_filter(table):
    table.delete("id % 2 = 0")
    rows = table.scan(["n", "id"], "n = 3 AND part <> 'a'").sample(50, seed=2)
    assert set(rows["n"].to_pylist()) == {3}
    assert len(set(rows["id"].to_pylist())) == 50
    assert rows.schema.names == ["n", "id"]


def test_more_rows_than_there_are(table):
    assert sorted(table.scan().sample(5000)["id"].to_pylist()) == sorted(
        table.scan().to_arrow()["id"].to_pylist()
    )
    assert table.scan(where="n = 77").sample(5).num_rows == 0
    assert table.scan().sample(0).num_rows == 0


def test_the_same_seed_draws_the_same_rows(table):
    assert table.scan().sample(20, seed=7) == table.scan().sample(20, seed=7)
    assert table.scan().sample(20, seed=7) != table.scan().sample(20, seed=8)


def test_columns_that_leaves_do_not_have(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    table.append([{"id": n, "part": "a", "n": n} for n in range(50)])
    table.add_column("extra", pa.int64(), 7)
    table.rename_column("n", "m")
    rows = table.scan(["extra", "m"]).sample(10)
    assert rows["extra"].to_pylist() == [7] * 10
    assert table.scan(["extra"]).sample(10)["extra"].to_pylist() == [7] * 10


def test_what_makes_no_sense_is_refused(table):
    for make, message in [
        (lambda: table.scan().sample(-1), "whole number from 0"),
        (lambda: table.scan(limit=5).sample(1), "limit"),
        (lambda: table.scan([]).sample(1), "columns"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            make()
