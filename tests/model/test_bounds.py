"""Which rows the bounds of columns rule out."""

import datetime as dt
import math
import random

import pyarrow as pa
import pytest

from phalanx.model import statistics
from phalanx.model.bounds import bounded_columns, may_match
from phalanx.model.filters import bind
from phalanx.model.parser import parse
from phalanx.model.schema import TableSchema
from phalanx.model.statistics import ColumnStatistics

SCHEMA = TableSchema.assign(
    pa.schema(
        [
            ("n", pa.int64()),
            ("d", pa.date32()),
            ("x", pa.float64()),
            ("y", pa.float32()),
            ("s", pa.string()),
            ("hollow", pa.int32()),
            ("whole", pa.struct([("a", pa.int64())])),
        ]
    )
)
TABLE = pa.table(
    {
        "n": [10, None, 20, 15],
        "d": [dt.date(2020, 1, 1), dt.date(2020, 3, 1), None, dt.date(2020, 2, 1)],
        "x": [-0.0, 2.5, 1.0, 0.5],
        "y": [0.1, -3.5, None, 7.25],
        "s": ["b", "bb", "c", "c" * 100],
        "hollow": pa.nulls(4, pa.int32()),
        "whole": [{"a": 1}, {"a": None}, {"a": 3}, {"a": 4}],
    },
    schema=SCHEMA.arrow,
)
ID = {column.path[0]: column.field_id for column in SCHEMA.columns.values()}


def predicate(text):
    return bind(parse(text), SCHEMA.column)


def known(table=TABLE):
    return statistics.measure(table, statistics.measured_columns(SCHEMA))


@pytest.mark.parametrize(
    "text",
    [
        "n = 15",
        "n = 10",
        "n >= 20",
        "n IS NULL",
        "n <> 10",
        "n = 5 OR n = 12",
        "d BETWEEN DATE '2019-01-01' AND DATE '2020-01-01'",
        "x = 0",
        "x <= 0",
        "y > 7",
        "y < -3",
        "s LIKE 'bb%'",
        "s > 'cc'",
        "s = 'ccc'",
        "hollow IS NULL",
        "n = 99 OR upper(s) = 'X'",
        "n % 2 = 1",
        "whole.a = 99",
        "whole IS NOT NULL",
    ],
)
def test_rows_that_may_match(text):
    assert may_match(predicate(text), known(), 4)


@pytest.mark.parametrize(
    "text",
    [
        "n = 9",
        "n > 20",
        "n < 10 AND s = 'b'",
        "n IN (1, 2, 21)",
        "d > DATE '2020-03-01'",
        "x IS NULL",
        "x < 0",
        "x > 2.5",
        "x = 'NaN'",
        "y > 7.5",
        "s < 'b'",
        "s LIKE 'a%'",
        "s LIKE 'd%'",
        "s IS NULL",
        "hollow = 3",
        "hollow IS NOT NULL",
        "whole IS NULL",
        "n = 9 OR hollow > 1",
    ],
)
def test_rows_that_are_ruled_out(text):
    assert not may_match(predicate(text), known(), 4)


def test_nan_is_above_all_numbers():
    rows = TABLE.set_column(2, "x", pa.array([math.nan, 1.0, 2.0, None]))
    assert may_match(predicate("x > 100"), known(rows), 4)
    assert may_match(predicate("x = 'NaN'"), known(rows), 4)
    assert not may_match(predicate("x < 1"), known(rows), 4)
    nothing_else = TABLE.set_column(2, "x", pa.array([math.nan] * 4))
    assert may_match(predicate("x > 100"), known(nothing_else), 4)


def test_what_is_not_known():
    assert may_match(predicate("n = 99"), {}, 4)
    unknown = {ID["n"]: ColumnStatistics(None)}
    assert may_match(predicate("n = 99"), unknown, 4)
    assert may_match(predicate("n IS NULL"), unknown, None)
    loose = {ID["n"]: known()[ID["n"]].loosened()}
    assert may_match(predicate("n IS NULL"), loose, 3)
    assert not may_match(predicate("n = 99"), loose, 3)


def test_the_columns_whose_bounds_count():
    wanted = predicate("(n = 1 OR upper(s) = 'X') AND whole.a = 3 AND d IS NULL")
    assert {column.path for column in bounded_columns(wanted)} == {("n",), ("d",)}


def test_no_row_that_matches_is_ruled_out():
    """Random rows and comparisons, judged by Python."""
    chance = random.Random(7)
    for _ in range(3000):
        values = [chance.choice([None, *range(-5, 6)]) for _ in range(chance.randint(1, 4))]
        rows = TABLE.slice(0, len(values) if len(values) < 5 else 4)
        rows = rows.set_column(0, "n", pa.array(values, pa.int64()))
        low, high = chance.randint(-7, 7), chance.randint(-7, 7)
        text, holds = chance.choice(
            [
                (f"n BETWEEN {low} AND {high}", lambda v, a=low, b=high: a <= v <= b),
                (f"n = {low} OR n > {high}", lambda v, a=low, b=high: v == a or v > b),
                (f"NOT (n = {low})", lambda v, a=low: v != a),
                (f"n NOT IN ({low}, {high})", lambda v, a=low, b=high: v not in (a, b)),
            ]
        )
        matches = any(value is not None and holds(value) for value in values)
        assert may_match(predicate(text), known(rows), len(values)) or not matches, (text, values)
