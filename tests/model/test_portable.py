"""Conditions that mean the same to Spark and to Phalanx."""

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from phalanx import InvalidInput
from phalanx.model.filters import bind, matches
from phalanx.model.portable import parse_portable
from phalanx.model.predicates import Call
from phalanx.model.schema import TableSchema

ARROW = pa.schema(
    [
        ("x", pa.int64()),
        ("i", pa.int32()),
        ("s", pa.string()),
        ("name", pa.string()),
        ("flag", pa.bool_()),
        ("d", pa.date32()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("dec", pa.decimal128(10, 2)),
        ("long", pa.decimal128(38, 30)),
        ("ts", pa.timestamp("us", "UTC")),
        ("st", pa.struct([("a", pa.int64())])),
        pa.field("code", pa.string(), metadata={"spark:type": '"char(3)"'}),
    ]
)
SCHEMA = TableSchema.assign(ARROW)


#: Conditions, rows that satisfy them and rows that break them: tests of Spark look at them too.
CASES = [
    ("x > 0", [{"x": 1}, {}], [{"x": 0}, {"x": -1}]),
    ("0 < X", [{"x": 1}], [{"x": 0}]),
    ("`x` >= -5 AND x != 3", [{"x": -5}, {}], [{"x": 3}, {"x": -6}]),
    ("x > 0 AND x < 10 OR x IS NULL", [{"x": 5}, {}], [{"x": 30}]),
    ("x IS NOT NULL", [{"x": 0}], [{}]),
    ("x <=> 5", [{"x": 5}], [{}, {"x": 4}]),
    ("x <=> NULL", [{}], [{"x": 4}]),
    ("x = NULL", [{}, {"x": 1}], []),
    ("NOT x BETWEEN 1 AND 5", [{"x": 0}, {}], [{"x": 1}, {"x": 5}]),
    ("x IN (1, 2)", [{"x": 1}, {}], [{"x": 3}]),
    ("x NOT IN (1, NULL)", [{"x": 2}, {}], [{"x": 1}]),
    ("x < 2.5", [{"x": 2}], [{"x": 3}]),
    ("x < i", [{"x": 1, "i": 2}, {"x": 1}], [{"x": 2, "i": 2}]),
    ("s <=> name", [{}, {"s": "a", "name": "a"}], [{"s": "a"}]),
    ("s IN ('a -- \"b\"', 'c')", [{"s": "c"}, {"s": 'a -- "b"'}], [{"s": "d"}, {"s": ""}]),
    ("flag", [{"flag": True}, {}], [{"flag": False}]),
    ("NOT flag OR x == 1", [{"flag": False}, {"flag": True, "x": 1}], [{"flag": True, "x": 2}]),
    ("flag <> FALSE", [{"flag": True}], [{"flag": False}]),
    ("d >= DATE '2024-01-01'", [{"d": dt.date(2024, 1, 1)}], [{"d": dt.date(2023, 12, 31)}]),
    # NaN is greater than all numbers, and equal to itself; 0.0 equals -0.0.
    ("f > 0.1", [{"f": math.nan}, {"f": math.inf}], [{"f": 0.1}, {"f": -math.inf}]),
    ("f >= 0", [{"f": -0.0}], [{"f": -1e-300}]),
    ("f <= 1", [{"f": 1.0}], [{"f": math.nan}]),
    ("g <> 0", [{"g": 1.0}, {"g": math.nan}], [{"g": -0.0}, {"g": 0.0}]),
    ("g < 0.5", [{"g": 0.25}], [{"g": 0.5}]),
    ("dec > 0.01", [{"dec": Decimal("0.02")}], [{"dec": Decimal("0.01")}]),
    ("code IS NOT NULL", [{"code": "a"}], [{}]),
    ("st IS NOT NULL", [{"st": {"a": None}}], [{}]),
    ("TRUE", [{}], []),
    ("FALSE", [], [{}]),
]


def broken(sql, row):
    """Whether a row breaks a condition."""
    predicate = bind(Call("not", (parse_portable(sql, SCHEMA),)), SCHEMA.column)
    return bool(matches(predicate, pa.Table.from_pylist([row], schema=ARROW))[0])


@pytest.mark.parametrize(
    "sql",
    [
        "x / 2 <= 1",
        "x % 2 = 0",
        "x + 1 > 0",
        "-x < 0",
        "log(x) < 3",
        "concat(s, name) IS NOT NULL",
        "s || NULL = 'a'",
        's = "name"',
        '`s` = "name"',
        "substr(s, 0, 1) = 'a'",
        r"s <> '\''",
        r"s = 'a\\b'",
        r"s LIKE 'a\_b'",
        "s LIKE 'a%'",
        "s <> 'it''s'",
        "s = 'a' 'b'",
        "x > 0 -- a comment",
        "x > 0 /* a comment */",
        "s > 5",
        "s IN ('a', 5)",
        "x = '5'",
        "x < d",
        "d > '2024-01-01'",
        "d > DATE '2024-1-1'",
        "ts > TIMESTAMP '2024-01-01 00:00:00'",
        "ts > DATE '2024-01-01'",
        "flag = 1",
        "flag = 'true'",
        "x = TRUE",
        "x IN (1, i)",
        "x > 1e3",
        "x > .5e3",
        "x < 9223372036854775808",
        "x > 0.1234567890123456789",
        "g > 0.1",
        "g = 16777217",
        "f < g",
        "f = x",
        "dec > 0.001",
        "dec = x",
        "long > 0",
        "code = 'a'",
        "(x = 1) = flag",
        "(x = 1) IS NULL",
        "flag IS TRUE",
        "st.a > 0",
        "1 = 1",
        "x",
        "CAST(x AS STRING) = '1'",
        "now() > ts",
        "current_date > d",
        "x > 0) OR (x < 0",
        "s = X'61'",
        "",
        "nobody > 0",
    ],
)
def test_what_may_mean_something_else(sql):
    with pytest.raises(InvalidInput):
        parse_portable(sql, SCHEMA)


@pytest.mark.parametrize(("sql", "satisfying", "breaking"), CASES)
def test_what_means_the_same(sql, satisfying, breaking):
    assert [broken(sql, row) for row in satisfying + breaking] == [False] * len(satisfying) + [
        True
    ] * len(breaking)
