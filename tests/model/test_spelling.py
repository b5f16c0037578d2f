"""Values as text, for people and for SQL."""

import datetime as dt
import math

import pyarrow as pa
import pytest

from phalanx import InvalidInput
from phalanx.model.domains import domain_of
from phalanx.model.literals import Literal
from phalanx.model.parser import parse
from phalanx.model.spelling import constant_text, read_constant, sql_literal, value_text

DAY = 86_400


@pytest.mark.parametrize(
    ("type", "key", "text", "sql"),
    [
        (pa.int8(), -5, "-5", "-5"),
        (pa.uint64(), 2**64 - 1, "18446744073709551615", "18446744073709551615"),
        (pa.bool_(), 1, "true", "TRUE"),
        (pa.decimal128(9, 2), -150, "-1.50", "-1.50"),
        (pa.decimal128(9, 0), 7, "7", "7"),
        (pa.string(), "it's", "it's", "'it''s'"),
        (pa.binary(), b"\0\xff", "00ff", "X'00ff'"),
        (pa.date32(), 20_432, "2025-12-10", "DATE '2025-12-10'"),
        (pa.date32(), -1, "1969-12-31", "DATE '1969-12-31'"),
        (pa.date32(), 2_932_897, "+10000-01-01", "DATE '+10000-01-01'"),
        (pa.date32(), -719_529, "-0001-12-31", "DATE '-0001-12-31'"),
        (pa.date64(), DAY * 1_000, "1970-01-02", "DATE '1970-01-02'"),
        (pa.timestamp("s"), -1, "1969-12-31T23:59:59", "TIMESTAMP '1969-12-31T23:59:59'"),
        (
            pa.timestamp("us"),
            1_500_000,
            "1970-01-01T00:00:01.5",
            "TIMESTAMP '1970-01-01T00:00:01.5'",
        ),
        (
            pa.timestamp("ns", "America/New_York"),
            1,
            "1970-01-01T00:00:00.000000001Z",
            "TIMESTAMP '1970-01-01T00:00:00.000000001Z'",
        ),
        (pa.time32("s"), 3_661, "01:01:01", "TIME '01:01:01'"),
        (pa.time64("us"), 1, "00:00:00.000001", "TIME '00:00:00.000001'"),
    ],
    ids=str,
)
def test_values(type, key, text, sql):
    assert value_text(key, type) == text
    assert sql_literal(key, type) == sql
    literal = parse(sql)
    assert isinstance(literal, Literal)
    assert domain_of(type).locate(literal) == (key, True)


@pytest.mark.parametrize(
    ("type", "value", "sql"),
    [
        (pa.float64(), 0.1, "0.1"),
        (pa.float32(), 0.1, "0.1"),
        (pa.float16(), 0.1, "0.1"),
        (pa.float64(), -0.0, "0.0"),
        (pa.float64(), 1e300, "1e+300"),
        (pa.float64(), 5e-324, "5e-324"),
        (pa.float64(), -math.inf, "'-inf'"),
        (pa.float32(), math.nan, "'NaN'"),
    ],
    ids=str,
)
def test_floats(type, value, sql):
    """The shortest digits that mean the value in its own type."""
    domain = domain_of(type)
    key = domain.key(pa.scalar(value).cast(type))
    assert sql_literal(key, type) == sql
    assert domain.locate(parse(sql)) == (key, True)


def test_a_date64_within_a_day():
    """Such a value is no date: it is written as the instant it is."""
    assert sql_literal(1, pa.date64()) == "TIMESTAMP '1970-01-01T00:00:00.001'"


@pytest.mark.parametrize(
    ("type", "value", "text"),
    [
        (pa.string(), '["a"]', '["a"]'),
        (pa.duration("us"), dt.timedelta(seconds=-1), "-1000000"),
        (pa.list_(pa.int64()), [1, None], '["1", null]'),
        (pa.list_(pa.list_(pa.string())), [[], None, ["é"]], '[[], null, ["é"]]'),
        (pa.list_(pa.binary(), 1), [b"\x0f"], '["0f"]'),
        (pa.map_(pa.string(), pa.date32()), {"a": dt.date(2026, 1, 2)}, '[["a", "2026-01-02"]]'),
        (pa.map_(pa.string(), pa.date32()), {}, "[]"),
        (pa.struct([("a", pa.bool_()), ("b", pa.int8())]), {"a": True}, '["true", null]'),
    ],
    ids=str,
)
def test_constants(type, value, text):
    """This text is stored with the table."""
    scalar = pa.scalar(value, type)
    assert constant_text(scalar) == text
    assert read_constant(text, type) == scalar


@pytest.mark.parametrize("text", ["", "1", "null", '{"a": 1}', '["x"]', '["1", "2"]', "[[]]"])
def test_text_that_is_no_constant(text):
    with pytest.raises(InvalidInput, match="is not a value of type"):
        read_constant(text, pa.struct([("a", pa.int64())]))
