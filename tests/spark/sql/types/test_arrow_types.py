"""Types of Arrow that Spark does not have: written from Python, read in Spark."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import phalanx
from tests.spark.needs import needs

UTC = dt.UTC
#: An Arrow type, values, the Spark type, and the values in Spark where they look different.
TYPES = [
    (pa.uint8(), [0, 255], "smallint", None),
    (pa.uint16(), [0, 65535], "int", None),
    (pa.uint32(), [0, 2**32 - 1], "bigint", None),
    (pa.uint64(), [0, 2**64 - 1], "decimal(20,0)", [Decimal(0), Decimal(2**64 - 1)]),
    (pa.float16(), [0.5, -1.25], "float", None),
    (pa.large_string(), ["a", "ñ"], "string", None),
    (pa.large_binary(), [b"a", b""], "binary", None),
    (pa.binary(2), [b"ab", b"\0\0"], "binary", None),
    (pa.date64(), [dt.date(1960, 1, 1), dt.date(2024, 2, 29)], "date", None),
    (pa.timestamp("s"), [dt.datetime(1960, 1, 1)], "timestamp_ntz", None),
    (pa.timestamp("ms", "UTC"), [dt.datetime(1960, 1, 1, tzinfo=UTC)], "timestamp", None),
    (
        pa.timestamp("us", "Europe/Paris"),
        [dt.datetime(2024, 7, 1, 12, tzinfo=UTC)],
        "timestamp",
        None,
    ),
    (pa.timestamp("ns"), [dt.datetime(2024, 1, 1, 1, 1, 1, 5)], "timestamp_ntz", None),
    (pa.duration("s"), [dt.timedelta(days=1)], "interval day to second", None),
    (pa.duration("ms"), [dt.timedelta(seconds=-1.5)], "interval day to second", None),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"], "string", None),
    (pa.dictionary(pa.int32(), pa.large_string()), ["a", "b"], "string", None),
    (pa.large_list(pa.int16()), [[1, None], []], "array<smallint>", None),
    (pa.list_(pa.float32(), 2), [[1.0, 2.0]], "array<float>", None),
    (pa.list_(pa.float16(), 2), [[1.0, 2.0]], "array<float>", None),
    (pa.list_(pa.uint8()), [[1, 255]], "array<smallint>", None),
    (
        pa.struct([("a", pa.uint32()), ("b", pa.large_list(pa.float16()))]),
        [{"a": 2**32 - 1, "b": [0.5]}],
        "struct<a:bigint,b:array<float>>",
        [(2**32 - 1, [0.5])],
    ),
    pytest.param(pa.time32("s"), [dt.time(12, 30)], "time(6)", None, marks=needs("time")),
    pytest.param(pa.time32("ms"), [dt.time(12, 30, 1, 5000)], "time(6)", None, marks=needs("time")),
    pytest.param(pa.time64("us"), [dt.time(12, 30, 1, 5)], "time(6)", None, marks=needs("time")),
    (pa.decimal256(38, 2), [Decimal("1.50")], "decimal(38,2)", None),
]


def made(lake, type, values, partition_by=()):
    schema = pa.schema([("id", pa.int32()), ("v", type)])
    rows = pa.table(
        {"id": pa.array(range(len(values) + 1), pa.int32()), "v": pa.array([*values, None], type)},
        schema=schema,
    )
    table = phalanx.create(lake.path / "t", schema, list(partition_by))
    table.append(rows)


@pytest.mark.parametrize(("type", "values", "spark_type", "shown"), TYPES, ids=str)
def test_read(lake, type, values, spark_type, shown):
    made(lake, type, values)
    found = lake.sql("SELECT v FROM {db}.t ORDER BY id")
    assert found.schema["v"].dataType.simpleString() == spark_type
    rows = [row.v for row in found.collect()]
    expected = [*(shown or values), None]
    if spark_type == "timestamp":
        expected = [v and v.astimezone(UTC) for v in expected]
        rows = [v and v.astimezone(UTC) for v in rows]
    assert rows == expected
    assert lake.rows("SELECT id FROM {db}.t WHERE v IS NULL") == [(len(values),)]


WRITABLE = [
    (pa.uint8(), "CAST(255 AS SMALLINT)"),
    (pa.uint64(), "CAST(18446744073709551615 AS DECIMAL(20, 0))"),
    (pa.float16(), "0.5F"),
    (pa.large_string(), "'x'"),
    (pa.binary(2), "X'6162'"),
    (pa.timestamp("ns"), "timestamp_ntz'2024-01-01 00:00:00.000001'"),
    (pa.timestamp("ms", "UTC"), "timestamp'2024-01-01 00:00:00.001'"),
    (pa.dictionary(pa.int8(), pa.string()), "'x'"),
    (pa.large_list(pa.int16()), "array(1S, NULL)"),
    (pa.struct([("a", pa.uint32())]), "named_struct('a', 4294967295L)"),
    pytest.param(pa.time64("us"), "time'12:00:00'", marks=needs("time")),
    (pa.duration("ms"), "INTERVAL '1 00:00:00' DAY TO SECOND"),
    (pa.date64(), "date'2024-01-01'"),
]


@pytest.mark.parametrize(("type", "value"), WRITABLE, ids=str)
def test_write(lake, type, value):
    made(lake, type, [])
    lake.sql(f"INSERT INTO {{db}}.t VALUES (7, {value})")
    assert lake.rows(f"SELECT id FROM {{db}}.t WHERE v = {value}") == [(7,)]
    assert lake.open("t").schema.field("v").type == type


TOO_MUCH = [
    (pa.uint8(), "-1S"),
    (pa.uint8(), "256S"),
    (pa.uint64(), "CAST(-1 AS DECIMAL(20, 0))"),
    (pa.float16(), "0.1F"),
    (pa.binary(2), "X'616263'"),
    (pa.timestamp("ms", "UTC"), "timestamp'2024-01-01 00:00:00.000001'"),
    (pa.timestamp("ns"), "timestamp_ntz'2400-01-01 00:00:00'"),
    (pa.duration("s"), "INTERVAL '0 00:00:00.5' DAY TO SECOND"),
    (pa.list_(pa.uint8()), "array(-1S)"),
]


@pytest.mark.parametrize(("type", "value"), TOO_MUCH, ids=str)
def test_a_value_that_does_not_fit(lake, type, value):
    made(lake, type, [])
    with pytest.raises(Exception, match="column 'v' holds a value") as caught:
        lake.sql(f"INSERT INTO {{db}}.t VALUES (7, {value})")
    assert "Traceback" not in str(caught.value)
    assert len(lake.rows("SELECT * FROM {db}.t")) == 1


def test_nanoseconds_that_spark_cannot_hold(lake):
    made(lake, pa.timestamp("ns"), [pa.scalar(1, pa.timestamp("ns"))])
    with pytest.raises(Exception, match="column 'v' holds a value") as caught:
        lake.sql("SELECT v FROM {db}.t").collect()
    assert "Traceback" not in str(caught.value)
    assert len(lake.rows("SELECT id FROM {db}.t")) == 2


@pytest.mark.parametrize("type", [pa.decimal256(50, 2)], ids=str)
def test_a_type_that_spark_lacks(lake, type):
    made(lake, type, [])
    with pytest.raises(AnalysisException, match="column 'v' has the Arrow type decimal256"):
        lake.sql("SELECT id FROM {db}.t").collect()


@pytest.mark.parametrize("type", [pa.uint32(), pa.large_string(), pa.timestamp("ns")], ids=str)
def test_partitioned_by_such_a_type(lake, type):
    values = {"uint32": [1, 2**32 - 1], "large_string": ["a", "ñ"]}.get(
        str(type), [dt.datetime(2024, 1, 1), dt.datetime(1960, 1, 1)]
    )
    made(lake, type, values, ["v"])
    literal = {"uint32": "4294967295L", "large_string": "'ñ'"}.get(
        str(type), "timestamp_ntz'1960-01-01'"
    )
    assert lake.rows(f"SELECT id FROM {{db}}.t WHERE v = {literal}") == [(1,)]
    assert len(lake.rows("SELECT v, count(*) FROM {db}.t GROUP BY v")) == 3
    lake.sql(f"INSERT INTO {{db}}.t VALUES (9, {literal})")
    assert lake.rows(f"SELECT id FROM {{db}}.t WHERE v = {literal}") == [(1,), (9,)]
