"""Rows with every type and the values that get lost most easily."""

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa

UTC = dt.UTC

#: A column of each type that both a table and Parquet can hold, with values that differ in kind.
COLUMNS = {
    "bool": pa.array([True, False, None]),
    "int8": pa.array([-128, 127, None], pa.int8()),
    "int16": pa.array([-(2**15), 2**15 - 1, None], pa.int16()),
    "int32": pa.array([-(2**31), 2**31 - 1, None], pa.int32()),
    "int64": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
    "uint8": pa.array([0, 255, None], pa.uint8()),
    "uint16": pa.array([0, 2**16 - 1, None], pa.uint16()),
    "uint32": pa.array([0, 2**32 - 1, None], pa.uint32()),
    "uint64": pa.array([0, 2**64 - 1, None], pa.uint64()),
    "float32": pa.array([math.nan, -0.0, None], pa.float32()),
    "float64": pa.array([math.inf, -0.0, None], pa.float64()),
    "decimal": pa.array([Decimal("-12.34"), Decimal("99999.99"), None], pa.decimal128(7, 2)),
    "wide_decimal": pa.array(
        [Decimal("-1.5"), Decimal("9" * 37 + ".9"), None], pa.decimal128(38, 1)
    ),
    "string": pa.array(["", "😀 ' \" \n", None], pa.string()),
    "large_string": pa.array(["a", "b", None], pa.large_string()),
    "binary": pa.array([b"", b"\x00\xff", None], pa.binary()),
    "large_binary": pa.array([b"", b"\x00\xff", None], pa.large_binary()),
    "fixed": pa.array([b"abc", b"\x00\x00\x00", None], pa.binary(3)),
    "date": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None], pa.date32()),
    "date64": pa.array([dt.date(1970, 1, 1), dt.date(2024, 2, 29), None], pa.date64()),
    "zoned": pa.array(
        [dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(2024, 2, 29, 23, 59, 59, 999999, UTC), None],
        pa.timestamp("us", "UTC"),
    ),
    "new_york": pa.array([0, 1_700_000_000_123_456, None], pa.timestamp("us", "America/New_York")),
    "unzoned": pa.array(
        [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None],
        pa.timestamp("us"),
    ),
    "seconds": pa.array([0, -1, None], pa.timestamp("s")),
    "milliseconds": pa.array([0, -1, None], pa.timestamp("ms", "UTC")),
    "list": pa.array([[1, None], [], None], pa.list_(pa.int32())),
    "vector": pa.array([[1.0, -0.0], [2.5, 3.5], None], pa.list_(pa.float32(), 2)),
    "struct": pa.array(
        [{"a": 1, "b": "x"}, {"a": None, "b": None}, None],
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
    ),
}

#: Types that Parquet has and Delta has not.
PARQUET_ONLY = {
    "float16": pa.array([1.5, -0.0, None], pa.float16()),
    "time32": pa.array([0, 86_399, None], pa.time32("s")),
    "time64": pa.array([0, 86_399_999_999_999, None], pa.time64("ns")),
    "nanoseconds": pa.array([-1, 1, None], pa.timestamp("ns")),
    "duration": pa.array([-1, 1, None], pa.duration("us")),
    "decimal256": pa.array([Decimal("9" * 60), Decimal("-1"), None], pa.decimal256(60, 0)),
}

#: Strings that do harm in a path.
HOSTILE = [
    "plain",
    "/",
    "a/b",
    "../../etc",
    "..",
    ".",
    "/etc/passwd",
    "%2F",
    "%",
    "%%25",
    "a=b",
    "=",
    "",
    None,
    "__HIVE_DEFAULT_PARTITION__",
    "😀 emoji",
    "x" * 200,
    "tab\tline\nnull\0end",
    " leading and trailing ",
    "quote\"'<>|*?:\\",
    "ünïcode",
    "NULL",
    "null",
    "~",
    "#[]{}^",
]


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have the same rows in any order, bit for bit and NULL for NULL."""
    return sorted(map(repr, one.to_pylist())) == sorted(map(repr, other.to_pylist()))
