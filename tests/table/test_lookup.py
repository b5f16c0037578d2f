"""Lookups: what a scan by values of an indexed column reads, and that it finds the same rows."""

import datetime as dt

import pyarrow as pa
import pytest

import phalanx
from phalanx.storage import key_filters
from phalanx.table import lookup
from phalanx.table.lookup import wanted_values

SCHEMA = pa.schema(
    [("part", pa.int32()), ("id", pa.int64()), ("word", pa.string()), ("day", pa.date32())]
)
ROWS, PARTS = 6_000, 5


def row(n):
    word = None if n % 97 == 0 else f"w{n % 2000}"
    return {"part": n % PARTS, "id": n, "word": word, "day": dt.date(2024, 1, 1 + n % 20)}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    table = phalanx.create(tmp_path_factory.mktemp("lookup") / "t", SCHEMA, ["part"])
    table.append([row(n) for n in range(ROWS)])
    for column in ("id", "word", "day"):
        table.create_index(column, "BTREE")
    return table


@pytest.fixture
def table(made, monkeypatch):
    """Filters are made at the second question in vain."""
    monkeypatch.setattr(key_filters, "_ASKED", 2)
    for cache in (key_filters._filters, key_filters._asked):
        cache.clear()
    return phalanx.open(made.uri)


def ids(scan):
    return scan.to_arrow()["id"].to_pylist()


def test_every_key_is_found_before_and_after_filters_are_made(table):
    for n in range(0, ROWS, 301):
        assert ids(table.scan(where=f"id = {n}")) == [n]
        assert table.count(f"id = {n}") == 1
    assert len(key_filters._filters) == PARTS
    for n in (-1, ROWS, 2**40):
        assert ids(table.scan(where=f"id = {n}")) == []
        assert table.count(f"id = {n}") == 0


@pytest.mark.parametrize(
    "where",
    [
        "id IN (5, 700, 5999, 100000)",
        "word = 'w17'",
        "word IN ('w17', 'w1999', 'none')",
        "id = 77 AND word = 'w77'",
        "id = 77 AND word IS NULL",
        "word = 'w5' AND part IN (0, 3)",
        "day = '2024-01-07'",
        "day = '2024-01-07' AND word = 'w6'",
        "id = 8 OR word = 'w9'",
        "word = 'w17' OR word IS NULL",
    ],
)
def test_the_rows_are_those_of_a_scan_without_indexes(table, where, monkeypatch):
    rounds = [ids(table.scan(where=where)) for _ in range(4)]
    counts = [table.count(where) for _ in range(4)]
    monkeypatch.setattr("phalanx.table.scan.wanted_values", lambda plan: None)
    expected = ids(table.scan(where=where))
    assert rounds == [expected] * 4
    assert counts == [len(expected)] * 4


def test_columns_limits_and_order(table):
    scan = table.scan(["word", "part"], "word IN ('w1', 'w2')")
    assert scan.to_arrow().schema == scan.schema
    whole = table.scan(where="word IN ('w1', 'w2')").to_arrow()
    assert whole["part"].to_pylist() == sorted(whole["part"].to_pylist())
    assert table.scan(where="word IN ('w1', 'w2')", limit=2).to_arrow() == whole.slice(0, 2)
    assert table.scan([], "id = 7").to_arrow().num_rows == 1


def test_many_rows_are_streamed(table, monkeypatch):
    expected = ids(table.scan(where="day = '2024-01-03'"))
    monkeypatch.setattr(lookup, "_FEW_ROWS", 10)
    assert len(expected) > 10
    assert ids(table.scan(where="day = '2024-01-03'")) == expected


def test_filters_know_the_version_of_a_leaf(root, monkeypatch):
    monkeypatch.setattr(key_filters, "_ASKED", 1)
    table = phalanx.create(root, SCHEMA, ["part"]).append([row(n) for n in range(ROWS)])
    table.create_index("id", "BTREE")
    for _ in range(2):
        assert ids(table.scan(where="id = 7")) == [7]
        assert ids(table.scan(where="id = 7777")) == []
    before = phalanx.open(root)
    table.append([row(7777), row(7)])
    table.delete("id = 12")
    assert ids(table.scan(where="id = 7777")) == [7777]
    assert ids(table.scan(where="id = 7")) == [7, 7]
    assert ids(table.scan(where="id = 12")) == []
    assert ids(before.scan(where="id IN (12, 7777)")) == [12]
    table.refresh_indexes()
    for _ in range(3):
        assert ids(table.scan(where="id = 7777")) == [7777]
    table.update({"id": "id + 100000"}, "id = 7777")
    for _ in range(3):
        assert ids(table.scan(where="id IN (7777, 107777)")) == [107777]


def test_leaves_that_the_index_does_not_cover_are_read_once(root, monkeypatch):
    table = phalanx.create(root, SCHEMA, ["part"]).append([row(n) for n in range(ROWS)])
    table.create_index("id", "BTREE", where="part < 3")
    counted = []
    count = lookup.Searched.count
    monkeypatch.setattr(
        lookup.Searched, "count", lambda self, where: counted.append(self.uri) or count(self, where)
    )
    assert ids(table.scan(where="id = 4")) == [4]
    assert ids(table.scan(where="id = 3003")) == [3003]
    assert len(counted) == 6


@pytest.mark.parametrize(
    ("where", "column"),
    [
        ("id = 5", "id"),
        ("part = 1 AND id = 5", "id"),
        ("id > 5", None),
        ("id = 5 OR part = 1", None),
        ("part = 1", None),
        ("word IS NULL", None),
        (None, None),
    ],
)
def test_which_filters_name_values(table, where, column):
    wanted = wanted_values(table.scan(where=where).plan())
    assert (None if wanted is None else wanted.column.path[0]) == column


def test_a_renamed_or_widened_column(root, monkeypatch):
    monkeypatch.setattr(key_filters, "_ASKED", 1)
    schema = pa.schema([("part", pa.int32()), ("small", pa.int32())])
    table = phalanx.create(root, schema, ["part"])
    table.append([{"part": n % 4, "small": n} for n in range(5000)])
    table.create_index("small", "BTREE")
    for _ in range(2):
        assert table.count("small = 41") == 1
    table.change_type("small", pa.int64())
    table.rename_column("small", "large")
    for _ in range(2):
        assert table.scan(where="large = 41").to_arrow()["large"].to_pylist() == [41]
        assert table.count("large = 4100000000") == 0
