"""Checks for NULL that are made on the rows that were read, instead of by Lance."""

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.model.predicates import EVERYTHING
from phalanx.storage import null_checks

SCHEMA = pa.schema([("k", pa.int32()), ("a", pa.int64()), ("s", pa.struct([("x", pa.int8())]))])


@pytest.fixture
def table(tmp_path):
    table = phalanx.create(tmp_path / "t", SCHEMA, ["k"])
    for k in range(4):
        rows = [{"k": k, "a": n if n % 3 else None, "s": {"x": n}} for n in range(20)]
        table.append([*rows, {"k": k, "a": None, "s": None}])
    return table


def split(table, where, columns):
    return null_checks.split(table.scan(where=where).plan().predicate, columns)


def test_only_checks_of_columns_that_are_read_are_taken_out(table):
    assert split(table, "a IS NOT NULL", ["a"]) == (None, ("a",))
    rest, checked = split(table, "a IS NOT NULL", ["k"])
    assert rest is not None
    assert checked == ()


def test_what_else_is_asked_for_stays(table):
    rest, checked = split(table, "a IS NOT NULL AND s.x > 3", ["a"])
    assert checked == ("a",)
    assert rest == table.scan(where="s.x > 3").plan().predicate


@pytest.mark.parametrize(
    "where", ["a IS NULL", "a > 3", "a IS NOT NULL OR k = 1", "s.x IS NOT NULL", "s IS NOT NULL"]
)
def test_other_filters_are_left_to_lance(table, where):
    predicate = table.scan(where=where).plan().predicate
    assert null_checks.split(predicate, ["a", "k", "s"]) == (predicate, ())


def test_no_filter():
    assert null_checks.split(None, ["a"]) == (None, ())
    assert null_checks.split(EVERYTHING, ["a"]) == (EVERYTHING, ())


@pytest.mark.parametrize("columns", [["a"], ["k"], ["k", "a"], ["s"], None])
@pytest.mark.parametrize("where", ["a IS NOT NULL", "a IS NOT NULL AND s.x >= 10"])
def test_the_rows_are_those_of_the_filter(table, columns, where):
    least = 10 if "s.x" in where else 0
    wanted = [(k, n) for k in range(4) for n in range(least, 20) if n % 3]
    rows = table.scan(columns=columns, where=where).to_arrow()
    assert rows.num_rows == len(wanted) == table.count(where)
    if "a" in rows.schema.names:
        assert sorted(rows["a"].to_pylist()) == sorted(n for _, n in wanted)


@pytest.fixture
def filters(monkeypatch):
    """The filters that Lance is given."""
    given = []
    scanner = lance.LanceDataset.scanner

    def noted(self, *args, **options):
        given.append(options.get("filter"))
        return scanner(self, *args, **options)

    monkeypatch.setattr(lance.LanceDataset, "scanner", noted)
    return given


@pytest.mark.parametrize("leaves", [1, 4])
def test_lance_is_not_asked_for_narrow_rows(table, filters, leaves):
    rows = table.scan(columns=["a"], where=f"a IS NOT NULL AND k < {leaves}").to_arrow()
    assert rows.num_rows == 13 * leaves
    assert set(filters) == {None}


@pytest.mark.parametrize("leaves", [1, 4])
def test_lance_chooses_among_wide_rows(tmp_path, filters, leaves):
    """It reads the wide columns only of those."""
    schema = pa.schema([("k", pa.int32()), ("a", pa.int64()), ("v", pa.list_(pa.float32(), 512))])
    table = phalanx.create(tmp_path / "wide", schema, ["k"])
    rows = [{"k": k, "a": n or None, "v": [n] * 512} for k in range(leaves) for n in range(4)]
    table.append(rows)
    filters.clear()
    assert table.scan(where="a IS NOT NULL").to_arrow().num_rows == 3 * leaves
    assert None not in filters


def test_lance_uses_an_index(table, filters):
    table.create_index("a", "BTREE", min_rows=1)
    filters.clear()
    assert table.scan(columns=["a"], where="a IS NOT NULL AND k = 1").to_arrow().num_rows == 13
    assert None not in filters


def test_a_limit_counts_the_rows_that_match(table):
    rows = table.scan(where="a IS NOT NULL", limit=30).to_arrow()
    assert rows.num_rows == 30
    assert rows["a"].null_count == 0


def test_a_column_that_a_leaf_does_not_have(table):
    table.add_column("later", pa.int64())
    table.append([{"k": 9, "later": 1}])
    assert table.scan(where="later IS NOT NULL").to_arrow()["k"].to_pylist() == [9]
    assert table.scan(columns=["a"], where="later IS NOT NULL").to_arrow().num_rows == 1
