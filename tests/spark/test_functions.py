"""The transforms in Scala give what the transforms of the model give."""

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from phalanx.model.transforms import (
    Bucket,
    Day,
    Hour,
    Month,
    MultiBucket,
    Truncate,
    Year,
)

RANDOM = random.Random(4)
UTC = dt.UTC
MOMENTS = [
    dt.datetime(1, 1, 1),
    dt.datetime(1582, 10, 15),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1),
    dt.datetime(2024, 2, 29, 12, 30, 1, 5),
    dt.datetime(2017, 11, 16, 22, 31, 8),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    *[dt.datetime(1900, 1, 1) + dt.timedelta(hours=RANDOM.randrange(2_000_000)) for _ in range(50)],
]
INTEGERS = [
    0,
    1,
    -1,
    34,
    99,
    100,
    -100,
    -128,
    127,
    *[RANDOM.randrange(-128, 128) for _ in range(20)],
]
WIDE = [2**31 - 1, -(2**31), *[RANDOM.randrange(-(2**31), 2**31) for _ in range(50)]]
LONG = [2**63 - 1, -(2**63), *[RANDOM.randrange(-(2**63), 2**63) for _ in range(50)]]
FLOATS = [0.0, -0.0, 1.5, -1.5, 1e30, -7.25, float("inf"), float("-inf"), float("nan"), 0.1, 1e-7]
TEXT = [
    "",
    "a",
    "iceberg",
    "añb",
    "😀😀x",
    "日本語テキスト",
    "x" * 300,
    "\0",
    "e\u0301tude",
    "👩‍👩‍👧",
]
COLUMNS = {
    "flag": pa.array([True, False, None], pa.bool_()),
    "tiny": pa.array([*INTEGERS, None], pa.int8()),
    "small": pa.array([*INTEGERS, 32767, -32768, None], pa.int16()),
    "whole": pa.array([*INTEGERS, *WIDE, None], pa.int32()),
    "big": pa.array([*INTEGERS, *WIDE, *LONG, None], pa.int64()),
    "single": pa.array([*FLOATS, None], pa.float32()),
    "double": pa.array([*FLOATS, 5e-324, None], pa.float64()),
    "exact": pa.array(
        [Decimal("14.20"), Decimal("-0.01"), Decimal("0.00"), Decimal("-999999.99"), None],
        pa.decimal128(8, 2),
    ),
    "wide": pa.array(
        [Decimal(n).scaleb(-3) for n in (0, 1, -1, 255, 256, -256, -32768, 32768, 10**37)] + [None],
        pa.decimal128(38, 3),
    ),
    "text": pa.array([*TEXT, None], pa.string()),
    "raw": pa.array([b"", b"\0\1\2\3", b"\xff" * 9, None], pa.binary()),
    "day": pa.array([*[m.date() for m in MOMENTS], None], pa.date32()),
    "ts": pa.array([*[m.replace(tzinfo=UTC) for m in MOMENTS], None], pa.timestamp("us", "UTC")),
    "local": pa.array([*MOMENTS, None], pa.timestamp("us")),
}
TIMES = ("day", "ts", "local")


@pytest.fixture(scope="module", autouse=True)
def views(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    for name, values in COLUMNS.items():
        numbered = pa.table({"at": range(len(values)), "v": values})
        pq.write_table(numbered, folder / f"{name}.parquet")
        spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(f"v_{name}")


def in_spark(spark, calls, column):
    """What each call gives, in the order of the vectors."""
    named = ", ".join(f"{call} AS c{at}" for at, call in enumerate(calls))
    found = spark.sql(f"SELECT at, {named} FROM v_{column}").collect()
    rows = sorted(found, key=lambda row: row.at)
    return [[row[at + 1] for row in rows] for at in range(len(calls))]


def shown(values):
    """Values that can be compared: NaN equals NaN, and zeros differ in their sign."""
    return [repr(v) if isinstance(v, float) else v for v in values]


@pytest.mark.parametrize("column", COLUMNS)
def test_bucket(spark, column):
    buckets = (1, 16, 1000, 2**31 - 1)
    expected = [Bucket(number).apply([COLUMNS[column]]).to_pylist() for number in buckets]
    assert in_spark(spark, [f"lake.bucket({number}, v)" for number in buckets], column) == expected


WIDTHS = {
    "tiny": (1, 10, 100), "small": (1, 10, 1000), "whole": (1, 10, 65536), "big": (1, 7, 2**31 - 1),
    "single": (1, 3), "double": (1, 10), "exact": (1, 10), "wide": (1, 50), "text": (1, 2, 5),
}  # fmt: skip


@pytest.mark.parametrize("column", WIDTHS)
def test_truncate(spark, column):
    widths = WIDTHS[column]
    expected = [Truncate(width).apply([COLUMNS[column]]).to_pylist() for width in widths]
    found = in_spark(spark, [f"lake.truncate({width}, v)" for width in widths], column)
    assert [shown(values) for values in found] == [shown(values) for values in expected]


PARTS = {"year": Year(), "month": Month(), "day": Day(), "hour": Hour()}


@pytest.mark.parametrize("column", TIMES)
@pytest.mark.parametrize("session_zone", ["UTC", "Asia/Tokyo"])
def test_parts_are_in_utc(spark, zone, column, session_zone):
    zone(session_zone)
    parts = [part for part in PARTS if (column, part) != ("day", "hour")]
    expected = [PARTS[part].apply([COLUMNS[column]]).to_pylist() for part in parts]
    assert in_spark(spark, [f"lake.{part}(v)" for part in parts], column) == expected


UNITS = {
    "years": lambda m: m.year - 1970,
    "months": lambda m: (m.year - 1970) * 12 + m.month - 1,
    "days": lambda m: m.toordinal() - dt.date(1970, 1, 1).toordinal(),
    "hours": lambda m: (m.toordinal() - dt.date(1970, 1, 1).toordinal()) * 24 + m.hour,
}


@pytest.mark.parametrize("column", TIMES)
def test_units_since_1970(spark, column):
    units = [unit for unit in UNITS if (column, unit) != ("day", "hours")]
    expected = [[UNITS[unit](m) for m in MOMENTS] + [None] for unit in units]
    assert in_spark(spark, [f"lake.{unit}(v)" for unit in units], column) == expected


def test_multi_bucket(spark):
    pairs = [(a, b) for a in [*INTEGERS[:6], None] for b in [*TEXT, None]]
    rows = [(number, *pair) for number, pair in enumerate(pairs)]
    spark.createDataFrame(rows, "at INT, a BIGINT, b STRING").createOrReplaceTempView("v_pairs")
    arrays = [pa.array([a for a, _ in pairs], pa.int64()), pa.array([b for _, b in pairs])]
    expected = MultiBucket(16).apply(arrays).to_pylist()
    assert in_spark(spark, ["lake.multi_bucket(16, a, b)"], "pairs") == [expected]


@pytest.mark.parametrize(
    "call", ["bucket(4, array(1))", "truncate(2, true)", "hours(date'2024-01-01')", "years('x')"]
)
def test_types_that_they_do_not_take(spark, call):
    with pytest.raises(Exception, match=r"does not take|cannot"):
        spark.sql(f"SELECT lake.{call}").collect()


def test_they_are_listed(spark):
    found = {row.function for row in spark.sql("SHOW USER FUNCTIONS IN lake.default").collect()}
    assert any("bucket" in name for name in found)
