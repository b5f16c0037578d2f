"""Conditions that are tested on the rows that were read, instead of by Lance."""

import datetime as dt
from decimal import Decimal

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.model.predicates import EVERYTHING
from phalanx.storage import row_checks
from phalanx.storage.row_checks import RowCheck

SCHEMA = pa.schema([("k", pa.int32()), ("a", pa.int64()), ("s", pa.struct([("x", pa.int8())]))])


@pytest.fixture
def table(tmp_path):
    table = phalanx.create(tmp_path / "t", SCHEMA, ["k"])
    for k in range(4):
        rows = [{"k": k, "a": n if n % 3 else None, "s": {"x": n}} for n in range(20)]
        table.append([*rows, {"k": k, "a": None, "s": None}])
    return table


def split(table, where, columns):
    return row_checks.split(table.scan(where=where).plan().predicate, columns)


def test_only_checks_of_columns_that_are_read_are_taken_out(table):
    assert split(table, "a IS NOT NULL", ["a"]) == (None, (RowCheck("a"),))
    rest, checks = split(table, "a IS NOT NULL", ["k"])
    assert rest is not None
    assert checks == ()


def test_what_else_is_asked_for_stays(table):
    rest, checks = split(table, "a IS NOT NULL AND s.x > 3", ["a"])
    assert checks == (RowCheck("a"),)
    assert rest == table.scan(where="s.x > 3").plan().predicate


@pytest.mark.parametrize(
    "where", ["a IS NULL", "a > 3", "a IS NOT NULL OR k = 1", "s.x IS NOT NULL", "s IS NOT NULL"]
)
def test_other_filters_are_left_to_lance(table, where):
    predicate = table.scan(where=where).plan().predicate
    assert row_checks.split(predicate, ["a", "k", "s"]) == (predicate, ())


def test_no_filter():
    assert row_checks.split(None, ["a"]) == (None, ())
    assert row_checks.split(EVERYTHING, ["a"]) == (EVERYTHING, ())


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
    """The filters that Lance is given for leaves."""
    given = []
    scanner = lance.LanceDataset.scanner

    def noted(self, *args, **options):
        if not self.uri.endswith("__manifest"):
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


# Long lists of values

#: Values of each type, of which every third is asked for.
VALUES = {
    "int8": [pa.scalar(n, pa.int8()) for n in range(-128, 128, 2)],
    "int64": [pa.scalar(n * 10**15, pa.int64()) for n in range(-60, 60)],
    "uint64": [pa.scalar(2**64 - 1 - 2 * n, pa.uint64()) for n in range(90)],
    "string": [pa.scalar(f"it's {n}", pa.string()) for n in range(90)],
    "large_string": [pa.scalar(f"\u00fc{n}", pa.large_string()) for n in range(90)],
    "binary": [pa.scalar(bytes([n, 0]), pa.binary()) for n in range(90)],
    "decimal": [pa.scalar(Decimal(n).scaleb(-2), pa.decimal128(9, 2)) for n in range(-90, 90, 2)],
    "date": [pa.scalar(dt.date(1969, 1, 1) + dt.timedelta(7 * n)) for n in range(90)],
    "timestamp": [pa.scalar(n * 10**9, pa.timestamp("us", "UTC")) for n in range(-45, 45)],
    "float64": [pa.scalar(n / 4 + 0.1, pa.float64()) for n in range(-45, 45)],
}


@pytest.mark.parametrize("type", VALUES)
def test_a_long_list_of_values(tmp_path, type):
    values = VALUES[type]
    schema = pa.schema([("k", pa.int32()), ("c", values[0].type)])
    table = phalanx.create(tmp_path / "t", schema, ["k"])
    column = pa.array([*(v.as_py() for v in values), None, None], values[0].type)
    table.append(
        pa.table({"k": pa.array([n % 3 for n in range(len(column))], "int32"), "c": column})
    )
    asked = [v.as_py() for v in values[::3]]
    expression = pa.compute.field("c").isin(pa.array(asked, values[0].type))
    rows = table.scan(columns=["c"], where=expression).to_arrow()
    assert sorted(rows["c"].to_pylist()) == sorted(asked)
    assert table.count(expression) == len(asked)
    assert table.scan(columns=["k"], where=expression).to_arrow().num_rows == len(asked)


def lists(table, values):
    text = ", ".join(map(str, values))
    return split(table, f"a IN ({text})", ["a"])


def test_which_lists_are_long(table):
    _, (check,) = lists(table, range(0, 60, 2))
    assert check.values.to_pylist() == list(range(0, 60, 2))
    for values in (range(0, 20, 2), range(1000), range(0, 24000, 2), [*range(40), *range(50, 60)]):
        rest, checks = lists(table, values)
        assert rest is not None
        assert checks == ()


def test_values_that_a_column_cannot_hold(tmp_path):
    table = phalanx.create(tmp_path / "t", pa.schema([("a", pa.binary(2)), ("b", pa.int8())]), [])
    table.append([{"a": b"\0\2", "b": 4}])
    texts = [f"X'{n:04x}'" for n in range(0, 80, 2)]
    assert table.count(f"a IN ({', '.join(texts)}, X'00', X'000000')") == 1
    assert table.count(f"b IN ({', '.join(str(4 * n) for n in range(60))})") == 1


def test_neighbors_in_a_long_list(table):
    values = [n for n in range(90) if n % 3]
    _, (check,) = lists(table, values)
    assert check.values.to_pylist() == values


def test_a_list_with_null_is_left_to_lance(table):
    where = f"a IS NULL OR a IN ({', '.join(map(str, range(0, 60, 2)))})"
    rest, checks = split(table, where, ["a"])
    assert rest is not None
    assert checks == ()


@pytest.mark.parametrize("leaves", [1, 4])
def test_lance_does_not_get_a_long_list_for_narrow_rows(table, filters, leaves):
    where = f"a IN ({', '.join(map(str, range(1, 60, 3)))}) AND k < {leaves}"
    assert table.scan(columns=["a"], where=where).to_arrow().num_rows == 7 * leaves
    assert set(filters) == {None}
