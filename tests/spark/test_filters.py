"""Spark's filters as predicates of the model, without Spark."""

import base64
import json

import pyarrow as pa
import pytest

from phalanx.model.dialect import to_sql
from phalanx.model.schema import TableSchema
from phalanx.spark.filters import Untranslatable, conjunction_of, predicate_of

SCHEMA = TableSchema.assign(
    pa.schema(
        [
            ("n", pa.int64()),
            ("tiny", pa.int8()),
            ("s", pa.string()),
            ("x", pa.float64()),
            ("f", pa.float32()),
            ("d", pa.decimal128(9, 2)),
            ("ts", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("flag", pa.bool_()),
            ("raw", pa.binary()),
            ("at", pa.struct([("city", pa.string())])),
            ("list", pa.list_(pa.int64())),
        ]
    )
)
DAY = 19723  # 2024-01-01


def col(*path):
    return {"column": list(path)}


def value(constant, type):
    return {"value": constant, "type": json.dumps(type)}


def call(name, *args, **more):
    return {"call": name, "args": list(args), **more}


def date_of(column):
    return call("CAST", col(column), to='"date"')


def part(field, column):
    return call("EXTRACT", col(column), field=field)


def rest(column, divisor, type="long"):
    return call("%", column, value(divisor, type))


def widened(column, type="long"):
    return call("CAST", col(column), to=json.dumps(type))


DATE = value(DAY, "date")
FIRST, NEXT = "TIMESTAMP '2024-01-01T00:00:00Z'", "TIMESTAMP '2024-01-02T00:00:00Z'"

TRANSLATED = [
    (call("=", col("n"), value(3, "long")), "n = 3"),
    (call("=", col("n"), value(3, "byte")), "n = 3"),
    (call("<", value(3, "long"), col("n")), "n >= 4"),
    (call("IS_NULL", col("list")), "list IS NULL"),
    (call("IS_NOT_NULL", col("s")), "s IS NOT NULL"),
    (call("<=>", col("s"), value(None, "string")), "s IS NULL"),
    (call("=", col("s"), value(None, "string")), "FALSE"),
    (call("IN", col("s"), value("a", "string"), value(None, "string")), "s = 'a'"),
    (call("NOT", call("IN", col("n"), value(1, "long"), value(None, "long"))), "FALSE"),
    (call("=", col("at", "city"), value("x", "string")), "at.city = 'x'"),
    (call("=", col("S"), value("x", "string")), "s = 'x'"),
    (call("=", col("raw"), value(base64.b64encode(b"\0\1").decode(), "binary")), "raw = X'0001'"),
    (call("=", col("d"), value("1.25", "decimal(3,2)")), "d = 1.25"),
    (call("=", col("x"), value("-0.0", "double")), "x = 0.0"),
    (call("=", col("f"), value("0.1", "float")), "f = 0.1"),
    (call("CONTAINS", col("s"), value("x", "string")), "(s LIKE '%x%')"),
    (col("flag"), "flag"),
    (call("NOT", col("flag")), "NOT flag"),
    (call("ALWAYS_TRUE"), "TRUE"),
    (call("ALWAYS_FALSE"), "FALSE"),
    (call("=", date_of("ts"), DATE), f"ts >= {FIRST} AND ts < {NEXT}"),
    (call("<>", date_of("ts"), DATE), f"ts < {FIRST} OR ts >= {NEXT}"),
    (call("<", date_of("ts"), DATE), f"ts < {FIRST}"),
    (call("<=", date_of("ts"), DATE), f"ts < {NEXT}"),
    (call(">", date_of("ts"), DATE), f"ts >= {NEXT}"),
    (call(">=", date_of("ts"), DATE), f"ts >= {FIRST}"),
    (call("<", DATE, date_of("ts")), f"ts >= {NEXT}"),
    (call("IN", date_of("ts"), DATE), f"ts >= {FIRST} AND ts < {NEXT}"),
    (call("=", part("YEAR", "ts"), value(2024, "integer")), "date_part('year', ts) = 2024"),
    (call("=", part("MONTH", "day"), value(2, "integer")), "date_part('month', day) = 2"),
    (call("=", rest(col("n"), 10), value(3, "long")), "(n % 10) = 3"),
    (call("<", rest(widened("tiny"), 7), value(0, "long")), "(tiny % 7) < 0"),
    (call("IN", rest(col("n"), 9), value(-1, "long"), value(1, "long")), "(n % 9) IN (-1, 1)"),
    (
        call("AND", call(">", col("n"), value(0, "long")), call("IS_NULL", col("s"))),
        "n >= 1 AND s IS NULL",
    ),
]


@pytest.mark.parametrize(("filter", "expected"), TRANSLATED, ids=[text for _, text in TRANSLATED])
def test_translated(filter, expected):
    assert to_sql(predicate_of(filter, SCHEMA, "UTC")) == expected


@pytest.mark.parametrize("text", ["a%b", "a_b", "a\\b", "%", ""])
@pytest.mark.parametrize("name", ["STARTS_WITH", "ENDS_WITH", "CONTAINS"])
def test_signs_of_like_mean_themselves(root, text, name):
    import phalanx

    rows = ["a%b", "a_b", "a\\b", "axb", "a%bc", "xa%b", "%", "", "x"]
    table = phalanx.create(root, pa.schema([("s", pa.string())]), [])
    table.append([{"s": s} for s in rows])
    where = to_sql(predicate_of(call(name, col("s"), value(text, "string")), SCHEMA, "UTC"))
    means = {"STARTS_WITH": str.startswith, "ENDS_WITH": str.endswith, "CONTAINS": str.__contains__}
    words = sorted(row["s"] for row in table.scan(where=where).to_arrow().to_pylist())
    assert words == sorted(s for s in rows if means[name](s, text))


UNTRANSLATED = [
    call("UPPER", col("s")),
    call("=", col("x"), value("NaN", "double")),
    call(">", col("x"), value("Infinity", "double")),
    call("=", col("none"), value(1, "long")),
    call("=", col("s"), value("x", "string collate UTF8_LCASE")),
    call("=", call("CAST", col("n"), to='"string"'), value("1", "string")),
    call("=", call("CAST", col("s"), to='"date"'), DATE),
    call("<=>", date_of("ts"), DATE),
    call("=", part("DAY_OF_WEEK", "ts"), value(1, "integer")),
    call("IN", date_of("ts"), value(None, "date")),
    call("STARTS_WITH", col("s"), col("s")),
    call("=", rest(col("n"), 0), value(0, "long")),
    call("=", rest(col("n"), -1), value(0, "long")),
    call("=", rest(col("n"), None), value(0, "long")),
    call("=", call("%", col("n"), col("n")), value(0, "long")),
    call("=", rest(col("x"), "2.0", "double"), value("0.0", "double")),
    call("=", rest(col("d"), "2", "decimal(9,2)"), value("0", "decimal(9,2)")),
    call("=", rest(widened("tiny", "integer"), 128, "integer"), value(0, "integer")),
    call("=", rest(widened("n", "integer"), 7, "integer"), value(0, "integer")),
    call("=", rest(widened("n", "string"), 7), value(0, "long")),
    call("=", rest(widened("n", {"type": "struct", "fields": []}), 7), value(0, "long")),
    call("=", col("list"), value([1], {"type": "array", "elementType": "long"})),
    call("=", rest(call("+", col("n"), value(1, "long")), 3), value(0, "long")),
    call("=", call("%", value(7, "long"), col("n")), value(0, "long")),
    call("?", text="something new"),
    call("AND", call("=", col("n"), value(1, "long")), call("UPPER", col("s"))),
    call("=", col("n"), value("1", "interval day to second")),
]


@pytest.mark.parametrize("filter", UNTRANSLATED, ids=str)
def test_untranslatable(filter):
    with pytest.raises(Untranslatable):
        predicate_of(filter, SCHEMA, "UTC")


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "Z", "+00:00", "GMT", "Etc/Greenwich"])
def test_zones_that_are_utc(zone):
    predicate_of(call("=", date_of("ts"), DATE), SCHEMA, zone)


class TestOtherZones:
    ZONE = "Asia/Tokyo"

    @pytest.mark.parametrize(
        "filter",
        [
            call("=", date_of("ts"), DATE),
            call("IN", date_of("ts"), DATE, DATE),
            call("=", part("YEAR", "ts"), value(2024, "integer")),
        ],
        ids=str,
    )
    def test_the_date_of_an_instant_is_not_ours(self, filter):
        with pytest.raises(Untranslatable, match="time zone"):
            predicate_of(filter, SCHEMA, self.ZONE)

    @pytest.mark.parametrize(
        "filter",
        [
            call("=", date_of("local"), DATE),
            call("=", part("HOUR", "local"), value(3, "integer")),
            call("=", part("YEAR", "day"), value(2024, "integer")),
            call("<", col("ts"), value(0, "timestamp")),
        ],
        ids=str,
    )
    def test_what_has_no_zone_is(self, filter):
        predicate_of(filter, SCHEMA, self.ZONE)


def test_several_at_once():
    filters = [call(">", col("n"), value(0, "long")), call("IS_NULL", col("s"))]
    assert to_sql(conjunction_of(filters, SCHEMA, "UTC")) == "n >= 1 AND s IS NULL"
    assert to_sql(conjunction_of([], SCHEMA, "UTC")) == "TRUE"
    with pytest.raises(Untranslatable):
        conjunction_of([*filters, call("UPPER", col("s"))], SCHEMA, "UTC")
