"""Exactness: this filter on this spec reads exactly these leaves, with this filter or none."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from phalanx.model import hashing
from phalanx.model.specs import build_spec, expr
from tests.model.leaves import DAYS, EVENTS, bucket, day, left_over, reads

# One line a case: the spec, the leaves, the filter, and what is read. A set means that every leaf
# in it is read without a filter, None for all others.

TRUNCATED = [-20, -10, 0, 10, 20, None]
WORDS = ["", "a", "ab", "abc", "abd", "b", None]
YEARS = [2023, 2024, 2025, 2026, None]
MONTHS = list(range(1, 13))
ON_TS = "ts >= TIMESTAMP '{}' AND ts < TIMESTAMP '{}'"

IDENTITY = [
    ("country = 'US'", {"US"}),
    ("country <> 'US'", {"CA", "", "us"}),
    ("country != 'US'", {"CA", "", "us"}),
    ("country <=> 'US'", {"US"}),
    ("country <=> NULL", {None}),
    ("NOT (country <=> 'US')", {"CA", "", "us", None}),
    ("country IS NULL", {None}),
    ("country IS NOT NULL", {"US", "CA", "", "us"}),
    ("country IN ('US', 'CA', 'FR', NULL)", {"US", "CA"}),
    ("country NOT IN ('US', 'CA')", {"", "us"}),
    ("country NOT IN ('US', NULL)", set()),
    ("country LIKE 'U%'", {"US"}),
    ("country LIKE '_S'", {"US"}),
    ("country ILIKE 'us'", {"US", "us"}),
    ("country NOT LIKE 'U%'", {"CA", "", "us"}),
    ("country = ''", {""}),
    ("country >= 'D'", {"US", "us"}),
    ("country < 'D'", {"CA", ""}),
    ("country BETWEEN 'A' AND 'D'", {"CA"}),
    ("country NOT BETWEEN 'A' AND 'D'", {"US", "", "us"}),
    ("upper(country) = 'US'", {"US", "us"}),
    ("upper(country) IN ('US', 'CA')", {"US", "us", "CA"}),
    ("character_length(country) = 0", {""}),
    ("coalesce(country, 'XX') = 'XX'", {None}),
    ("country || 'A' = 'USA'", {"US"}),
    ("(country = 'US') IS NULL", {None}),
    ("(country = 'US') IS NOT TRUE", {"CA", "", "us", None}),
    ("country = 'US' OR country IS NULL", {"US", None}),
    ("country = 'US' AND country = 'CA'", set()),
    ("country = 'US' OR TRUE", {"US", "CA", "", "us", None}),
    ("NULL", set()),
    ("country = 'US' AND i > 5", {"US": "i >= 6"}),
    (
        "country = 'US' OR i > 5",
        {"US": None, "CA": "i >= 6", "": "i >= 6", "us": "i >= 6", None: "i >= 6"},
    ),
    (
        "NOT (country = 'US' AND i > 5)",
        {"US": "i < 6", "CA": None, "": None, "us": None, None: "i < 6"},
    ),
    (
        "country = 'US' AND i > 5 OR country = 'CA' AND i < 3",
        {"US": "i >= 6", "CA": "i < 3"},
    ),
    (
        "i > 5 AND (country = 'US' OR country = 'CA' AND s = 'x')",
        {"US": "i >= 6", "CA": "i >= 6 AND s = 'x'"},
    ),
    ("(country = 'US' OR i = 1) AND (country = 'CA' OR i = 2)", {"US": "i = 2", "CA": "i = 1"}),
]

TIME = [
    # A hierarchy: the range is the years, months, days or hours that it touches.
    (
        "days(ts)",
        DAYS,
        "ts >= '2025-12-10' AND ts < '2025-12-12'",
        {(2025, 12, 10), (2025, 12, 11)},
    ),
    ("days(ts)", DAYS, "ts < '2025-11-11'", {(2024, 12, 10), (2025, 11, 10)}),
    (
        "days(ts)",
        DAYS,
        "ts > '2025-12-10'",
        {
            (2025, 12, 10): "ts > TIMESTAMP '2025-12-10T00:00:00'",
            (2025, 12, 11): None,
            (2026, 12, 10): None,
        },
    ),
    (
        "days(ts)",
        DAYS,
        "ts = '2025-12-10T12:00:00'",
        {(2025, 12, 10): "ts = TIMESTAMP '2025-12-10T12:00:00'"},
    ),
    (
        "days(ts)",
        DAYS,
        "ts IN ('2025-12-10', '2025-12-09T05:00:00')",
        {
            (
                2025,
                12,
                9,
            ): "ts IN (TIMESTAMP '2025-12-09T05:00:00', TIMESTAMP '2025-12-10T00:00:00')",
            (
                2025,
                12,
                10,
            ): "ts IN (TIMESTAMP '2025-12-09T05:00:00', TIMESTAMP '2025-12-10T00:00:00')",
        },
    ),
    (
        "days(ts)",
        DAYS,
        "NOT (ts >= '2025-12-10' AND ts < '2025-12-11')",
        {leaf for leaf in DAYS if leaf != (2025, 12, 10)},
    ),
    ("days(ts)", [*DAYS, (None, None, None)], "ts IS NULL", {(None, None, None)}),
    ("days(ts)", [*DAYS, (None, None, None)], "ts IS NOT NULL", set(DAYS)),
    ("days(ts)", [(None, None, None)], "ts IS NULL", {(None, None, None)}),
    ("days(ts)", [(None, None, None)], "ts < '2025-11-11'", set()),
    ("days(ts)", DAYS, "CAST(ts AS DATE) = '2025-12-10'", {(2025, 12, 10)}),
    ("days(ts)", DAYS, "CAST(ts AS DATE) > '2025-12-10'", {(2025, 12, 11), (2026, 12, 10)}),
    (
        "days(ts)",
        DAYS,
        "date_trunc('month', ts) = '2025-12-01'",
        {(2025, 12, 9), (2025, 12, 10), (2025, 12, 11)},
    ),
    ("days(ts)", DAYS, "date_trunc('month', ts) = '2025-12-02'", set()),
    (
        "days(ts)",
        DAYS,
        "date_trunc('quarter', ts) = '2025-10-01'",
        {(2025, 11, 10), (2025, 12, 9), (2025, 12, 10), (2025, 12, 11)},
    ),
    # A week from Monday, the 8th, to Sunday.
    (
        "days(ts)",
        DAYS,
        "date_trunc('week', ts) = '2025-12-08'",
        {(2025, 12, 9), (2025, 12, 10), (2025, 12, 11)},
    ),
    (
        "days(ts)",
        DAYS,
        "date_part('year', ts) = 2025 AND date_part('month', ts) = 12",
        {(2025, 12, 9), (2025, 12, 10), (2025, 12, 11)},
    ),
    (
        "days(ts)",
        DAYS,
        "date_part('year', ts) * 100 + date_part('month', ts) = 202511",
        {(2025, 11, 10)},
    ),
    (
        "months(ts)",
        [(2025, 11), (2025, 12), (2026, 1)],
        "ts >= '2025-12-01' AND ts < '2026-01-15'",
        {
            (2025, 12): None,
            (2026, 1): ON_TS.format("2025-12-01T00:00:00", "2026-01-15T00:00:00"),
        },
    ),
    (
        "hours(ts)",
        [(2025, 12, 31, 23), (2026, 1, 1, 0), (2026, 1, 1, 1)],
        "ts < '2026-01-01T01:00:00'",
        {(2025, 12, 31, 23), (2026, 1, 1, 0)},
    ),
    ("hours(ts)", [(1969, 12, 31, 23), (1970, 1, 1, 0)], "ts < '1970-01-01'", {(1969, 12, 31, 23)}),
    # The year alone.
    ("year(ts)", YEARS, "ts >= '2024-01-01' AND ts < '2026-01-01'", {2024, 2025}),
    (
        "year(ts)",
        YEARS,
        "ts >= '2024-06-01'",
        {2024: "ts >= TIMESTAMP '2024-06-01T00:00:00'", 2025: None, 2026: None},
    ),
    ("year(ts)", YEARS, "date_part('year', ts) = 2025", {2025}),
    ("year(ts)", YEARS, "year(ts) IN (2023, 2026)", {2023, 2026}),
    ("year(ts)", YEARS, "EXTRACT(YEAR FROM ts) > 2024.5", {2025, 2026}),
    ("year(ts)", YEARS, "date_part('year', ts) % 2 = 0", {2024, 2026}),
    ("year(ts)", YEARS, "date_part('year', ts) IS NULL", {None}),
    ("year(ts)", YEARS, "CAST(ts AS DATE) < '2024-01-01'", {2023}),
    # A month without its year: only a short range names the months it touches.
    (
        "month(ts)",
        MONTHS,
        "ts >= '2025-11-15' AND ts < '2026-02-01'",
        {
            month: ON_TS.format("2025-11-15T00:00:00", "2026-02-01T00:00:00")
            for month in (11, 12, 1)
        },
    ),
    (
        "month(ts)",
        MONTHS,
        "ts >= '2025-01-01'",
        dict.fromkeys(MONTHS, "ts >= TIMESTAMP '2025-01-01T00:00:00'"),
    ),
    ("month(ts)", MONTHS, "date_part('month', ts) IN (1, 2)", {1, 2}),
    (
        "month(ts)",
        MONTHS,
        "NOT (ts >= '2025-12-01' AND ts < '2025-12-15')",
        {
            **dict.fromkeys(range(1, 12)),
            12: "ts < TIMESTAMP '2025-12-01T00:00:00' OR ts >= TIMESTAMP '2025-12-15T00:00:00'",
        },
    ),
    # A day is no date.
    (
        "day(ts)",
        list(range(1, 32)),
        "ts >= '2025-12-10' AND ts < '2025-12-11'",
        {10: ON_TS.format("2025-12-10T00:00:00", "2025-12-11T00:00:00")},
    ),
    (
        "hour(ts)",
        list(range(24)),
        "ts >= '2025-12-10T22:00:00' AND ts < '2025-12-11T01:00:00'",
        {hour: ON_TS.format("2025-12-10T22:00:00", "2025-12-11T01:00:00") for hour in (22, 23, 0)},
    ),
    # Zoned columns are cut in UTC; a constant without an offset is local to the column.
    ("days(utc)", DAYS, "utc >= '2025-12-10' AND utc < '2025-12-11'", {(2025, 12, 10)}),
    ("days(utc)", DAYS, "CAST(utc AS DATE) = '2025-12-10'", {(2025, 12, 10)}),
    (
        "days(ny)",
        DAYS,
        "ny >= '2025-12-10T00:00:00Z' AND ny < '2025-12-11T00:00:00Z'",
        {(2025, 12, 10)},
    ),
    (
        "days(ny)",
        DAYS,
        "ny >= '2025-12-10' AND ny < '2025-12-11'",
        dict.fromkeys(
            [(2025, 12, 10), (2025, 12, 11)],
            "ny >= TIMESTAMP '2025-12-10T05:00:00Z' AND ny < TIMESTAMP '2025-12-11T05:00:00Z'",
        ),
    ),
    # date_part looks at the clock in New York, the partition at UTC's: they are kept apart.
    (
        "year(ny)",
        [2025, 2026],
        "date_part('year', ny) = 2025",
        dict.fromkeys([2025, 2026], "date_part('year', ny) = 2025"),
    ),
]

NUMBERS = [
    ("truncate(10, i)", TRUNCATED, "i = 5", {0: "i = 5"}),
    ("truncate(10, i)", TRUNCATED, "i = -5", {0: "i = -5"}),
    ("truncate(10, i)", TRUNCATED, "i >= -9 AND i < 10", {0}),
    ("truncate(10, i)", TRUNCATED, "i > -10", {0, 10, 20}),
    ("truncate(10, i)", TRUNCATED, "i < -10", {-20: None, -10: "i < -10"}),
    ("truncate(10, i)", TRUNCATED, "i <= -10", {-20, -10}),
    ("truncate(10, i)", TRUNCATED, "i > -15", {-10: "i >= -14", 0: None, 10: None, 20: None}),
    ("truncate(10, i)", TRUNCATED, "i >= 10", {10, 20}),
    ("truncate(10, i)", TRUNCATED, "i BETWEEN 10 AND 19", {10}),
    (
        "truncate(10, i)",
        TRUNCATED,
        "i <> 5",
        {-20: None, -10: None, 0: "i <> 5", 10: None, 20: None},
    ),
    ("truncate(10, i)", TRUNCATED, "i IN (-19, 25)", {-10: "i IN (-19, 25)", 20: "i IN (-19, 25)"}),
    ("truncate(10, i)", TRUNCATED, "i IS NULL", {None}),
    ("truncate(10, i)", TRUNCATED, "i IS NOT NULL", {-20, -10, 0, 10, 20}),
    ("truncate(10, i)", TRUNCATED, "i - (i % 10) = -10", {-10}),
    ("truncate(10, i)", TRUNCATED, "i > 2147483647", set()),
    (
        "truncate(5, price)",
        ["-5.00", "0.00", "5.00", "10.00"],
        "price < 5",
        {"-5.00": None, "0.00": None},
    ),
    ("truncate(5, price)", ["-5.00", "0.00", "5.00", "10.00"], "price > 9.99", {"10.00"}),
    (
        "truncate(5, price)",
        ["-5.00", "0.00", "5.00", "10.00"],
        "price >= 9.99",
        {"5.00": "price >= 9.99", "10.00": None},
    ),
    ("truncate(2, f)", [-2.0, 0.0, 2.0, 4.0], "f > 3.5", {2.0: "f > 3.5", 4.0: None}),
    ("truncate(2, f)", [-2.0, 0.0, 2.0, 4.0], "f < 2", {-2.0, 0.0}),
    ("price", ["1.00", "2.50"], "price = 2.5", {"2.50"}),
    ("price", ["1.00", "2.50"], "price > 1.005", {"2.50"}),
    ("f", [0.0, 1.5, float("inf")], "f = -0.0", {0.0}),
    ("f", [0.0, 1.5, float("inf")], "f > 1", {1.5, float("inf")}),
    # Numbers are compared as numbers: "10" is not less than "2".
    ("i", [2, 10, 9], "i < 10", {2, 9}),
    ("i", [2, 10, 9], "i > 9.5", {10}),
    ("b", [False, True, None], "b", {True}),
    ("b", [False, True, None], "NOT b", {False}),
    ("b", [False, True, None], "b IS NOT TRUE", {False, None}),
]

STRINGS = [
    # LIKE with a prefix shorter than, as long as, and longer than the width.
    ("truncate(3, s)", WORDS, "s LIKE 'a%'", {"a", "ab", "abc", "abd"}),
    ("truncate(3, s)", WORDS, "s LIKE 'abc%'", {"abc"}),
    ("truncate(3, s)", WORDS, "s LIKE 'abcd%'", {"abc": "s >= 'abcd' AND s < 'abce'"}),
    (
        "truncate(3, s)",
        WORDS,
        "s LIKE 'a_c%'",
        {
            "abc": "(s LIKE 'a_c%')",
            "abd": "(s LIKE 'a_c%')",
            "ab": "(s LIKE 'a_c%')",
            "a": "(s LIKE 'a_c%')",
        },
    ),
    ("truncate(3, s)", WORDS, "s NOT LIKE 'a%'", {"", "b"}),
    (
        "truncate(3, s)",
        WORDS,
        "s NOT LIKE 'a_c%'",
        dict.fromkeys(["", "a", "ab", "abc", "abd", "b"], "NOT (s LIKE 'a_c%')"),
    ),
    ("truncate(3, s)", WORDS, "s LIKE '%'", {"", "a", "ab", "abc", "abd", "b"}),
    # A value shorter than the width is the string itself.
    ("truncate(3, s)", WORDS, "s = 'ab'", {"ab"}),
    ("truncate(3, s)", WORDS, "s = 'abc'", {"abc": "s = 'abc'"}),
    ("truncate(3, s)", WORDS, "s = 'abcd'", {"abc": "s = 'abcd'"}),
    ("truncate(3, s)", WORDS, "s = ''", {""}),
    ("truncate(3, s)", WORDS, "s <> 'ab'", {"", "a", "abc", "abd", "b"}),
    ("truncate(3, s)", WORDS, "s < 'abd'", {"", "a", "ab", "abc"}),
    ("truncate(3, s)", WORDS, "s <= 'abc'", {"": None, "a": None, "ab": None, "abc": "s <= 'abc'"}),
    ("truncate(3, s)", WORDS, "s >= 'abc'", {"abc", "abd", "b"}),
    ("truncate(3, s)", WORDS, "s > 'abc'", {"abc": "s > 'abc'", "abd": None, "b": None}),
    ("truncate(3, s)", WORDS, "s IN ('ab', 'b')", {"ab", "b"}),
    ("truncate(3, s)", WORDS, "left(s, 3) = 'abc'", {"abc"}),
    ("truncate(3, s)", WORDS, "upper(left(s, 3)) = 'ABC'", {"abc"}),
    ("truncate(1, s)", ["日", "é", "😀"], "s LIKE '日%'", {"日"}),
    ("truncate(1, s)", ["日", "é", "😀"], "s >= '日本'", {"日": "s >= '日本'", "😀": None}),
]

HASHED = list(range(8))


def residuals(values: list[Any], text: str, count: int = 8) -> dict[Any, str]:
    return {bucket(value, count): text for value in values}


BUCKETS = [
    ("bucket(8, user_id)", [*HASHED, None], "user_id = 'a'", residuals(["a"], "user_id = 'a'")),
    (
        "bucket(8, user_id)",
        [*HASHED, None],
        "user_id IN ('a', 'b', 'c')",
        residuals(["a", "b", "c"], "user_id IN ('a', 'b', 'c')"),
    ),
    ("bucket(8, user_id)", [*HASHED, None], "user_id IS NULL", {None}),
    ("bucket(8, user_id)", [*HASHED, None], "user_id IS NOT NULL", set(HASHED)),
    ("bucket(8, user_id)", [*HASHED, None], "user_id <=> NULL", {None}),
    (
        "bucket(8, user_id)",
        [*HASHED, None],
        "user_id <> 'a'",
        {**dict.fromkeys(HASHED), **residuals(["a"], "user_id <> 'a'")},
    ),
    ("bucket(8, id)", HASHED, "id = 34", residuals([34], "id = 34")),
    ("bucket(8, id)", HASHED, "id BETWEEN 34 AND 35", residuals([34, 35], "id >= 34 AND id < 36")),
    ("bucket(8, id)", HASHED, "id = 34.5", set()),
    ("bucket(8, id)", HASHED, "id > 34", dict.fromkeys(HASHED, "id >= 35")),
    ("bucket(8, price)", HASHED, "price = 1.5", residuals([Decimal("1.50")], "price = 1.50")),
]

EXPRESSIONS = [
    (
        expr("date_trunc('week', col0)", ["ts"], "week"),
        [dt.datetime(2025, 12, 1), dt.datetime(2025, 12, 8), dt.datetime(2025, 12, 15), None],
        [
            ("ts >= '2025-12-08' AND ts < '2025-12-15'", {dt.datetime(2025, 12, 8)}),
            (
                "ts = '2025-12-10'",
                {dt.datetime(2025, 12, 8): "ts = TIMESTAMP '2025-12-10T00:00:00'"},
            ),
            (
                "ts > '2025-12-14'",
                {
                    dt.datetime(2025, 12, 8): "ts > TIMESTAMP '2025-12-14T00:00:00'",
                    dt.datetime(2025, 12, 15): None,
                },
            ),
            ("date_trunc('week', ts) = '2025-12-08'", {dt.datetime(2025, 12, 8)}),
            (
                "date_trunc('week', ts) > '2025-12-01'",
                {dt.datetime(2025, 12, 8), dt.datetime(2025, 12, 15)},
            ),
            ("ts IS NULL", {None}),
        ],
    ),
    (
        expr("upper(col0)", ["country"], "up"),
        ["US", "CA", None],
        [
            ("upper(country) = 'US'", {"US"}),
            ("upper(country) <> 'US'", {"CA"}),
            ("country = 'us'", {"US": "country = 'us'"}),
            (
                "country IN ('us', 'Ca')",
                {"US": "country IN ('Ca', 'us')", "CA": "country IN ('Ca', 'us')"},
            ),
            (
                "country > 'a'",
                {"US": "country > 'a'", "CA": "country > 'a'", None: "country > 'a'"},
            ),
            ("country IS NULL", {None: "country IS NULL"}),
        ],
    ),
    (
        expr("coalesce(col0, 'none')", ["country"], "filled"),
        ["US", "none"],
        [
            ("country IS NULL", {"none": "country IS NULL"}),
            ("country = 'US'", {"US": "country = 'US'"}),
        ],
    ),
    (
        expr("cast(col0 as date)", ["ts"], "on"),
        [day("2025-12-10"), day("2025-12-11"), None],
        [
            ("ts >= '2025-12-11'", {day("2025-12-11")}),
            (
                "ts < '2025-12-10T12:00:00'",
                {day("2025-12-10"): "ts < TIMESTAMP '2025-12-10T12:00:00'"},
            ),
            ("CAST(ts AS DATE) = '2025-12-10'", {day("2025-12-10")}),
        ],
    ),
    (
        # The column's own clock: the 10th in New York begins at five in the morning in UTC.
        expr("cast(col0 as date)", ["ny"], "on"),
        [day("2025-12-06"), day("2025-12-10"), day("2025-12-11"), day("2025-12-15")],
        [
            ("CAST(ny AS DATE) = '2025-12-10'", {day("2025-12-10")}),
            ("ny = '2025-12-10'", {day("2025-12-10"): "ny = TIMESTAMP '2025-12-10T05:00:00Z'"}),
        ],
    ),
    (
        expr("col0 / 100", ["i"], "hundred"),
        [-1, 0, 1, 2, None],
        [
            ("i >= 100 AND i < 200", {1}),
            ("i > 150", {1: "i >= 151", 2: None}),
            ("i = -150", {-1: "i = -150"}),
            ("i / 100 = 1", {1}),
        ],
    ),
    (
        expr("floor(col0)", ["f"], "floor"),
        [0.0, 1.0, 2.0],
        [("f >= 1 AND f < 2", {1.0}), ("floor(f) > 0", {1.0, 2.0}), ("f = 1.5", {1.0: "f = 1.5"})],
    ),
    (
        expr("concat(col0, '-', col1)", ["country", "region"], "place"),
        ["US-west", "US-east", "CA-west"],
        [
            (
                "country = 'US' AND region = 'west'",
                {"US-west": "country = 'US' AND region = 'west'"},
            ),
            ("concat(country, '-', region) = 'US-east'", {"US-east"}),
            ("country = 'US'", dict.fromkeys(["US-west", "US-east", "CA-west"], "country = 'US'")),
        ],
    ),
]


def expected(leaves: list[Any], wanted: Any) -> dict[Any, str | None]:
    residuals = wanted if isinstance(wanted, dict) else dict.fromkeys(wanted)
    assert set(residuals) <= set(leaves)
    return residuals


@pytest.mark.parametrize(("where", "wanted"), IDENTITY)
def test_identity(where, wanted):
    leaves = ["US", "CA", "", "us", None]
    assert reads(where, ["country"], leaves) == expected(leaves, wanted)


@pytest.mark.parametrize(("by", "leaves", "where", "wanted"), [*TIME, *STRINGS, *BUCKETS])
def test_transforms(by, leaves, where, wanted):
    assert reads(where, [by], leaves) == expected(leaves, wanted)


@pytest.mark.parametrize(("by", "leaves", "where", "wanted"), NUMBERS)
def test_numbers(by, leaves, where, wanted):
    if "price" in by:
        cents = {text: pa.scalar(text).cast(pa.decimal128(9, 2)).as_py() for text in leaves}
        leaves = list(cents.values())
        wanted = {cents[text]: residual for text, residual in expected(list(cents), wanted).items()}
    assert reads(where, [by], leaves) == expected(leaves, wanted)


@pytest.mark.parametrize(
    ("by", "leaves", "where", "wanted"),
    [(by, leaves, where, wanted) for by, leaves, cases in EXPRESSIONS for where, wanted in cases],
)
def test_expressions(by, leaves, where, wanted):
    assert reads(where, [by], leaves) == expected(leaves, wanted)


def both(a: Any, b: Any) -> int:
    rows = [pa.array([a], pa.int64()), pa.array([b], pa.string())]
    return hashing.bucket(hashing.murmur3_multi(rows), 16)[0].as_py()


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("id = 5 AND user_id = 'a'", {both(5, "a"): "id = 5 AND user_id = 'a'"}),
        (
            "id IN (5, 6) AND user_id = 'a'",
            dict.fromkeys([both(5, "a"), both(6, "a")], "(id >= 5 AND id < 7) AND user_id = 'a'"),
        ),
        ("id = 5 AND user_id IS NULL", {both(5, None): "id = 5 AND user_id IS NULL"}),
        ("id = 5", dict.fromkeys(range(16), "id = 5")),
        ("user_id = 'a'", dict.fromkeys(range(16), "user_id = 'a'")),
        ("id = 5 AND user_id > 'a'", dict.fromkeys(range(16), "id = 5 AND user_id > 'a'")),
        ("id = 5 AND user_id = 'a' AND id = 6", {}),
    ],
)
def test_multi_bucket(where, wanted):
    assert reads(where, ["multi_bucket(16, id, user_id)"], list(range(16))) == wanted


def test_no_fields():
    """A table that is not partitioned has one leaf, which is read unless nothing can match."""
    spec = build_spec(1, [], EVENTS)
    assert left_over("i > 5", spec, EVENTS, [()]) == {(): "i >= 6"}
    assert left_over("i > 5 AND i < 3", spec, EVENTS, [()]) == {}
    assert left_over("TRUE", spec, EVENTS, [()]) == {(): None}


def test_several_fields_together():
    by = ["days(ts)", "country", "bucket(4, id)"]
    leaves = [
        (2025, 12, day, country, number)
        for day in (10, 11)
        for country in ("US", "CA", None)
        for number in range(4)
    ]
    where = "ts >= '2025-12-11' AND country = 'US' AND id = 34"
    assert reads(where, by, leaves) == {(2025, 12, 11, "US", bucket(34, 4)): "id = 34"}
    where = "ts < '2025-12-11' AND (country IS NULL OR id = 34)"
    assert reads(where, by, leaves) == {
        **{(2025, 12, 10, country, bucket(34, 4)): "id = 34" for country in ("US", "CA")},
        **{(2025, 12, 10, None, number): None for number in range(4)},
    }


def test_two_fields_of_one_column():
    """Both are asked: the bucket for equality, the truncation for ranges."""
    by = ["truncate(100, i)", "bucket(4, i)"]
    leaves = [(start, number) for start in (0, 100, 200) for number in range(4)]
    number = hashing.bucket(hashing.murmur3(pa.array([150], pa.int32())), 4)[0].as_py()
    assert reads("i = 150", by, leaves) == {(100, number): "i = 150"}
    assert reads("i >= 100", by, leaves) == {leaf: None for leaf in leaves if leaf[0] >= 100}
