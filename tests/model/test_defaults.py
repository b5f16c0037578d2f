"""Defaults of columns, as metadata of their fields and as SQL."""

import datetime as dt
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import InvalidInput
from phalanx.model.defaults import (
    DEFAULT,
    NEW_DEFAULT,
    Default,
    absent,
    default_of,
    evaluated,
    new_default_of,
    with_default,
    with_new_default,
    without_defaults,
)

FIELD = pa.field("n", pa.int32(), metadata={"comment": "a number"})
FIVE, SEVEN = pa.scalar(5, pa.int32()), pa.scalar(7, pa.int32())


class TestMetadata:
    def test_none(self):
        assert default_of(FIELD) is None
        assert new_default_of(FIELD) is None
        assert with_new_default(FIELD, None).metadata == FIELD.metadata
        assert absent(FIELD, 2).to_pylist() == [None, None]

    def test_a_table_of_before(self):
        """It has one key, which is for existing and for new rows."""
        field = pa.field("n", pa.int32(), metadata={"phalanx:default": "5"})
        assert default_of(field) == FIVE
        assert new_default_of(field) == Default(FIVE)

    @pytest.mark.parametrize(
        ("default", "stored"),
        [
            (Default(SEVEN), {"value": "7"}),
            (Default(SEVEN, "3 + 4"), {"sql": "3 + 4", "value": "7"}),
            (Default(None, "current_date()"), {"sql": "current_date()"}),
            (Default(pa.scalar(None, pa.int32()), "NULL"), {"sql": "NULL", "value": None}),
            (None, None),
        ],
        ids=str,
    )
    def test_another_one_for_new_rows(self, default, stored):
        field = with_new_default(with_default(FIELD, FIVE), default)
        assert json.loads(field.metadata[NEW_DEFAULT]) == stored
        assert field.metadata[DEFAULT] == b"5"
        assert field.metadata[b"comment"] == b"a number"
        assert default_of(field) == FIVE
        assert new_default_of(field) == default
        assert without_defaults(field).metadata == FIELD.metadata

    def test_the_same_one_says_nothing(self):
        field = with_default(FIELD, FIVE)
        changed = with_new_default(with_new_default(field, Default(SEVEN)), Default(FIVE))
        assert changed.metadata == field.metadata


# Constants of every type that a table can have, with NULL and nothing in them.

SCALARS = st.sampled_from(
    [
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
        *(pa.string(), pa.large_string(), pa.binary(), pa.binary(2), pa.date32()),
        *(pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("s")),
        *(pa.time64("us"), pa.time32("s"), pa.duration("us")),
        *(pa.decimal128(5, 2), pa.decimal128(38, 38), pa.decimal128(10, 0)),
    ]
)


def nested(inner):
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda types: pa.struct([(f"f{i}", type) for i, type in enumerate(types)])
    )
    keys = st.sampled_from([pa.string(), pa.int32(), pa.date32()])
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda type: pa.list_(type, 2)),
        st.builds(pa.map_, keys, inner),
        structs,
    )


def values_of(type, null=True):
    t = pa.types
    if t.is_struct(type):
        found = st.fixed_dictionaries({field.name: values_of(field.type) for field in type})
    elif t.is_map(type):
        pairs = st.tuples(values_of(type.key_type, False), values_of(type.item_type))
        found = st.lists(pairs, max_size=3, unique_by=lambda pair: pair[0])
    elif t.is_fixed_size_list(type):
        found = st.lists(values_of(type.value_type), min_size=2, max_size=2)
    elif t.is_nested(type):
        found = st.lists(values_of(type.value_type), max_size=3)
    else:
        found = scalars_of(type)
    return st.one_of(st.none(), found) if null else found


def scalars_of(type):
    t = pa.types
    if t.is_boolean(type):
        return st.booleans()
    if t.is_integer(type):
        low = -(2 ** (type.bit_width - 1)) if t.is_signed_integer(type) else 0
        return st.integers(low, low + 2**type.bit_width - 1)
    if t.is_floating(type):
        return st.floats(width=type.bit_width)
    if t.is_string(type) or t.is_large_string(type):
        return st.text("aZ0 '\"\\\n\0é😀[],", max_size=5)
    if t.is_fixed_size_binary(type):
        return st.binary(min_size=2, max_size=2)
    if t.is_binary(type):
        return st.binary(max_size=4)
    if t.is_decimal(type):
        top = 10 ** (type.precision - type.scale) - 1
        return st.decimals(-top, top, places=type.scale, allow_nan=False)
    low, high = (0, 86_399) if t.is_time(type) else (-500_000, 500_000)
    return st.integers(low, high)


@given(
    st.recursive(SCALARS, nested, max_leaves=4).flatmap(
        lambda type: st.tuples(st.just(type), values_of(type, null=False))
    )
)
def test_constants_of_every_type(case):
    type, value = case
    scalar = pa.scalar(value, type)
    field = with_default(pa.field("n", type), scalar)
    back = default_of(field)
    assert back.type == type
    assert repr(back.as_py()).replace("-0.0", "0.0") == repr(scalar.as_py()).replace("-0.0", "0.0")
    assert absent(field, 3).type == type
    assert len(absent(field, 3)) == 3
    field = with_new_default(pa.field("n", type), Default(scalar, "x"))
    back = new_default_of(field).value
    assert repr(back.as_py()).replace("-0.0", "0.0") == repr(scalar.as_py()).replace("-0.0", "0.0")


def test_a_type_without_defaults():
    with pytest.raises(InvalidInput, match="no default but NULL"):
        with_default(pa.field("n", pa.uuid()), pa.scalar(bytes(16), pa.uuid()))


class TestEvaluated:
    """SQL that has another value in every statement, as it is worked out without Spark."""

    NOON = dt.datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=dt.UTC)
    NANOSECONDS = int(NOON.timestamp()) * 10**9 + 123_456_000

    def value(self, sql, type, zone="UTC"):
        found = evaluated(sql, type, self.NANOSECONDS, "ada", zone)
        return None if found is None else found.as_py()

    @pytest.mark.parametrize(
        "sql", ["current_timestamp()", "CURRENT_TIMESTAMP", " Now ( ) ", "localtimestamp"]
    )
    def test_timestamps(self, sql):
        assert self.value(sql, pa.timestamp("us", "UTC")) == self.NOON
        assert self.value(sql, pa.timestamp("us")) == self.NOON.replace(tzinfo=None)
        assert self.value(sql, pa.timestamp("s")) == dt.datetime(2026, 3, 1, 12, 30, 15)
        assert self.value(sql, pa.timestamp("us", "Europe/Berlin")) == self.NOON
        assert self.value(sql, pa.date32()) == dt.date(2026, 3, 1)

    @pytest.mark.parametrize("sql", ["current_date", "current_date()", "curdate()"])
    def test_dates(self, sql):
        assert self.value(sql, pa.date32()) == dt.date(2026, 3, 1)
        assert self.value(sql, pa.date64()) == dt.date(2026, 3, 1)
        assert self.value(sql, pa.timestamp("us")) == dt.datetime(2026, 3, 1)

    def test_another_zone(self):
        """A zoned column holds the time itself, and others what clocks show there."""
        tokyo = "Asia/Tokyo"
        assert self.value("now()", pa.timestamp("us", "UTC"), tokyo) == self.NOON
        local = dt.datetime(2026, 3, 1, 21, 30, 15, 123456)
        assert self.value("now()", pa.timestamp("us"), tokyo) == local
        assert self.value("current_date", pa.date32(), "+12:00") == dt.date(2026, 3, 2)
        midnight = dt.datetime(2026, 2, 28, 15, tzinfo=dt.UTC)
        assert self.value("current_date", pa.timestamp("us", "UTC"), tokyo) == midnight
        with pytest.raises(InvalidInput, match="unknown time zone"):
            self.value("current_date", pa.date32(), "nowhere")

    def test_before_the_epoch(self):
        found = evaluated("current_date", pa.date32(), -1, None, "UTC")
        assert found.as_py() == dt.date(1969, 12, 31)

    @pytest.mark.parametrize("sql", ["current_user()", "USER", "session_user"])
    def test_users(self, sql):
        assert self.value(sql, pa.string()) == "ada"
        assert self.value(sql, pa.large_string()) == "ada"
        assert evaluated(sql, pa.string(), 0, None, "UTC") is None

    @pytest.mark.parametrize(
        ("sql", "type"),
        [
            ("now", pa.timestamp("us")),
            ("current_timestamp() + INTERVAL 1 DAY", pa.timestamp("us")),
            ("current_timestamp(3)", pa.timestamp("us")),
            ("current_timestamp()", pa.string()),
            ("current_timestamp()", pa.time64("us")),
            ("current_user()", pa.binary()),
            ("current_catalog()", pa.string()),
        ],
    )
    def test_what_only_spark_knows(self, sql, type):
        assert self.value(sql, type) is None
