"""Types and their casts, without Spark."""

import pyarrow as pa
import pytest

from phalanx import InvalidInput
from phalanx.spark.types import (
    arrow_schema,
    arrow_type,
    cast,
    exchange_type,
    spark_schema,
    spark_type,
)
from tests.spark.needs import needs


def field(type, name="v", nullable=True, **metadata):
    return {"name": name, "type": type, "nullable": nullable, "metadata": metadata}


def struct(*fields):
    return {"type": "struct", "fields": list(fields)}


BOTH_WAYS = [
    "boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date",
    "timestamp", "timestamp_ntz", "decimal(10,2)", "decimal(38,38)",
    "interval day to second",
    {"type": "array", "elementType": "long", "containsNull": False},
    {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True},
    struct(field("integer", "a", False), field(struct(field("string", "c")), "b")),
    pytest.param("time(6)", marks=needs("time")),
    pytest.param("time(9)", marks=needs("time_in_nanoseconds")),
]  # fmt: skip


@pytest.mark.parametrize("type", BOTH_WAYS, ids=str)
def test_both_ways(type):
    assert spark_type(arrow_type(type, "v"), "v") == type


DECLARED = [
    "varchar(10)", "char(3)", "interval hour to minute",
    pytest.param("time(0)", marks=needs("time")),
    {"type": "array", "elementType": "varchar(5)", "containsNull": True},
    struct(field("char(2)", "a")),
]  # fmt: skip


@pytest.mark.parametrize("type", DECLARED, ids=str)
def test_a_narrower_type_is_remembered(type):
    given = struct(field(type))
    assert spark_schema(arrow_schema(given)) == given


@pytest.mark.parametrize("type", ["string", "varchar(10)"])
def test_to_compare_by_bytes_is_no_type_of_its_own(type):
    """Spark writes it in SHOW CREATE TABLE, and reads no schema that says so."""
    given = struct(field(f"{type} collate UTF8_BINARY"))
    assert spark_schema(arrow_schema(given)) == struct(field(type))


def test_a_narrower_type_goes_with_a_change():
    schema = arrow_schema(struct(field("varchar(10)")))
    changed = schema.set(0, schema.field(0).with_type(pa.int64()))
    assert spark_schema(changed)["fields"][0]["type"] == "long"


def test_comments_and_other_metadata():
    given = struct(field("integer", comment="key", other=7))
    assert spark_schema(arrow_schema(given)) == given


@pytest.mark.parametrize(
    "type",
    ["void", "interval year to month", "interval", "udt", struct()],
    ids=str,
)
def test_what_cannot_be_stored(type):
    with pytest.raises(InvalidInput, match="column 'v'"):
        arrow_schema(struct(field(type)))


def test_the_name_of_what_is_inside():
    inner = {"type": "array", "elementType": "interval year to month", "containsNull": True}
    with pytest.raises(InvalidInput, match=r"column 'v.a.element'"):
        arrow_schema(struct(field(struct(field(inner, "a")))))


def test_a_collation():
    given = field("string", __COLLATIONS={"v": "icu.UNICODE"})
    with pytest.raises(InvalidInput, match=r"column 'v' has the collation icu.UNICODE"):
        arrow_schema(struct(given))


@pytest.mark.parametrize("type", [pa.decimal256(50, 2), pa.month_day_nano_interval()], ids=str)
def test_what_spark_lacks(type):
    with pytest.raises(InvalidInput, match="column 'v' has the Arrow type"):
        spark_type(type, "v")


CASTS = [
    (pa.array([1, None, 255], pa.uint8()), pa.int16()),
    (pa.array([2**64 - 1, None], pa.uint64()), pa.decimal128(20, 0)),
    (pa.array([0.5, None], pa.float16()), pa.float32()),
    (pa.array(["a", None, "b"]).dictionary_encode(), pa.string()),
    (pa.array([[1, None], None, []], pa.large_list(pa.int16())), pa.list_(pa.int16())),
    (pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)), pa.list_(pa.float32())),
    (pa.array([[1.0, 2.0], None], pa.list_(pa.float32())), pa.list_(pa.float32(), 2)),
    (pa.array([[1.0, None], None], pa.list_(pa.float32())), pa.list_(pa.float32(), 2)),
    (pa.array([None, None], pa.list_(pa.float32())), pa.list_(pa.float32(), 2)),
    (
        pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}],
                 pa.struct([("a", pa.uint8()), ("b", pa.large_list(pa.large_string()))])),
        pa.struct([("a", pa.int16()), ("b", pa.list_(pa.string()))]),
    ),
    (
        pa.array([[("k", 1)], None, []], pa.map_(pa.large_string(), pa.uint8())),
        pa.map_(pa.string(), pa.int16()),
    ),
    (pa.array([b"ab", None], pa.binary(2)), pa.binary()),
    (pa.array([1, None], pa.timestamp("ms", "UTC")), pa.timestamp("us", "UTC")),
    (pa.array([1000, None], pa.timestamp("ns")), pa.timestamp("us")),
    (pa.array([1, None], pa.duration("s")), pa.duration("us")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("array", "type"), CASTS, ids=lambda found: str(getattr(found, "type", found))
)
class TestCast:
    def test_values(self, array, type):
        found = cast(array, type, "v")
        assert found.type == type
        found.validate(full=True)
        assert [_plain(v) for v in found.to_pylist()] == [_plain(v) for v in array.to_pylist()]

    def test_of_a_slice(self, array, type):
        sliced = pa.concat_arrays([array, array]).slice(1, len(array))
        found = cast(sliced, type, "v")
        found.validate(full=True)
        assert [_plain(v) for v in found.to_pylist()] == [_plain(v) for v in sliced.to_pylist()]

    def test_of_nothing(self, array, type):
        assert cast(array.slice(0, 0), type, "v").to_pylist() == []


def _plain(value):
    from decimal import Decimal

    return int(value) if isinstance(value, Decimal) else value


TOO_MUCH = [
    (pa.array([-1], pa.int16()), pa.uint8()),
    (pa.array([0.1], pa.float32()), pa.float16()),
    (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
    (pa.array([[1.0]], pa.list_(pa.float32())), pa.list_(pa.float32(), 2)),
    (pa.array([b"abc"], pa.binary()), pa.binary(2)),
    (pa.array([[-1]], pa.list_(pa.int16())), pa.list_(pa.uint8())),
]


@pytest.mark.parametrize(
    ("array", "type"), TOO_MUCH, ids=lambda found: str(getattr(found, "type", found))
)
def test_a_value_that_does_not_fit(array, type):
    with pytest.raises(InvalidInput, match="column 'v' holds a value"):
        cast(array, type, "v")


def test_nan_is_a_half_float():
    array = pa.array([float("nan"), 0.5], pa.float32())
    assert repr(cast(array, pa.float16(), "v").to_pylist()) == "[nan, 0.5]"


def test_what_crosses_to_spark():
    """Spark takes times of day in nanoseconds, and lists whose items are called `element`."""
    assert exchange_type("time(6)") == pa.time64("ns")
    assert exchange_type("decimal(5,1)") == pa.decimal128(5, 1)
    array = {"type": "array", "elementType": "long", "containsNull": False}
    assert exchange_type(array) == pa.list_(pa.field("element", pa.int64(), False))


@pytest.mark.parametrize(
    ("type", "minor", "lacking"),
    [
        (pa.time64("us"), "4.0", "Spark 4.0 has no type for a time of day"),
        (pa.time64("ns"), "4.2", "Spark 4.2 has no time of day that is finer than microseconds"),
    ],
    ids=str,
)
def test_a_type_that_this_spark_has_not(monkeypatch, type, minor, lacking):
    monkeypatch.setattr("pyspark.version.__version__", f"{minor}.9")
    with pytest.raises(InvalidInput) as refusal:
        spark_type(type, "v")
    assert str(refusal.value) == f"column 'v' is of the type {type}, and {lacking}"
