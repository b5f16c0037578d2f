"""Constants of the filter language, read from text and written as SQL."""

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from phalanx.errors import InvalidInput
from phalanx.model.literals import (
    NULL,
    Literal,
    lit,
    literal_of,
    parse_date,
    parse_number,
    parse_time,
    parse_timestamp,
    quote,
    spell_literal,
)
from phalanx.model.parser import parse


@pytest.mark.parametrize(
    ("literal", "zoned", "moment"),
    [
        ("2025-12-10T10:00:00", False, dt.datetime(2025, 12, 10, 10)),
        ("2025-12-10 10:00", False, dt.datetime(2025, 12, 10, 10)),
        ("2025-12-10T10:00:00Z", True, dt.datetime(2025, 12, 10, 10)),
        ("2025-12-10T10:00:00.5+02:00", True, dt.datetime(2025, 12, 10, 8, 0, 0, 500_000)),
        ("2025-12-10 10:00:00 -0530", True, dt.datetime(2025, 12, 10, 15, 30)),
        ("1969-12-31T23:59:59.999999", False, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    ],
)
def test_timestamps(literal, zoned, moment):
    micros = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    assert parse_timestamp(literal) == Literal("timestamp", micros * 1_000, zoned)


@pytest.mark.parametrize(
    ("literal", "days"),
    [
        ("1970-01-01", 0),
        ("2024-02-29", 19782),
        ("0001-01-01", -719162),
        ("+10000-01-01", 2932897),
        ("-0001-01-01", -719893),
    ],
)
def test_dates(literal, days):
    assert parse_date(literal) == parse_timestamp(literal) == Literal("date", days)


@pytest.mark.parametrize(
    "literal",
    [
        "",
        "2025",
        "2025-13-01",
        "2025-02-29",
        "10000-01-01",
        "2025-12-10T",
        "2025-12-10T25:00:00",
        "2025-12-10T10:00:00.1234567890",
        "2025-12-10T10:00:00 Mars",
        "2025-12-10T10:00:00+25:00",
    ],
)
def test_no_timestamps(literal):
    with pytest.raises(InvalidInput, match="is not a date or timestamp: write 2025-12-31T23:59:59"):
        parse_timestamp(literal)


@pytest.mark.parametrize("literal", ["", "24:00:00", "10", "10:00:00+01:00", "10:61"])
def test_no_times(literal):
    with pytest.raises(InvalidInput, match="is not a time: write 23:59:59"):
        parse_time(literal)


@pytest.mark.parametrize(
    ("shown", "value"),
    [("5", 5), ("-5", -5), ("5.0", Decimal("5.0")), (".5", Decimal("0.5")), ("1e2", Decimal(100))],
)
def test_numbers(shown, value):
    number = parse_number(shown)
    assert number == value
    assert type(number) is type(value)


@pytest.mark.parametrize("shown", ["1" * 1001, "1e1001", "1e-1001", "1e999999999999999999999"])
def test_endless_numbers_are_refused(shown):
    with pytest.raises(InvalidInput, match="has more than 1000 digits"):
        parse_number(shown)


def number(text: str) -> Literal:
    return Literal("number", parse_number(text))


def test_two_is_not_two_point_zero():
    """They are equal, but `x / 2` and `x / 2.0` are different terms."""
    assert number("2") != number("2.0")
    assert number("2.0") == number("2.00")
    assert hash(number("2.0")) == hash(number("2.00"))


@pytest.mark.parametrize(
    ("scalar", "literal"),
    [
        (pa.scalar(5, pa.uint8()), Literal("number", 5)),
        (pa.scalar(None, pa.int8()), NULL),
        (pa.scalar(math.inf), Literal("string", "inf")),
        (pa.scalar(10**9, pa.timestamp("ns", "UTC")), Literal("timestamp", 10**9, zoned=True)),
        (pa.scalar(86_400_000, pa.date64()), Literal("date", 1)),
        (pa.scalar(1, pa.time32("s")), Literal("time", 10**9)),
        (pa.scalar("a", pa.large_string()), Literal("string", "a")),
        (pa.scalar(b"a"), Literal("binary", b"a")),
    ],
    ids=str,
)
def test_literal_of(scalar, literal):
    assert literal_of(scalar) == literal


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, -(2**70)])
def test_whole_numbers_that_arrow_does_not_hold(number):
    assert lit(number) == Literal("number", number)
    assert literal_of(pa.scalar(2**63 - 1)) == lit(2**63 - 1)


@pytest.mark.parametrize(
    "number", [10**1001, -(10**5000)], ids=["long", "longer than Python spells"]
)
def test_whole_numbers_that_are_too_long(number):
    with pytest.raises(InvalidInput, match="more than 1000 digits"):
        lit(number)


def test_literal_of_a_list():
    with pytest.raises(InvalidInput, match="a constant of type list<item: int64> cannot be used"):
        literal_of(pa.scalar([1]))


@pytest.mark.parametrize(
    ("literal", "sql"),
    [
        (Literal("null"), "NULL"),
        (Literal("boolean", False), "FALSE"),
        (Literal("number", 5), "5"),
        (Literal("number", Decimal("5")), "5.0"),
        (Literal("number", Decimal("1E+2")), "100.0"),
        (Literal("number", Decimal("-0.50")), "-0.50"),
        (Literal("number", 1e-7), "1e-07"),
        (Literal("string", "a'b"), "'a''b'"),
        (Literal("binary", b"\1"), "X'01'"),
        (Literal("date", 0), "DATE '1970-01-01'"),
        (Literal("timestamp", 10**9), "TIMESTAMP '1970-01-01T00:00:01'"),
        (Literal("timestamp", 10**9, zoned=True), "TIMESTAMP '1970-01-01T00:00:01Z'"),
        (Literal("time", 10**9), "TIME '00:00:01'"),
        (Literal("interval", "1 day"), "INTERVAL '1 day'"),
    ],
    ids=str,
)
def test_literals_read_back(literal, sql):
    assert spell_literal(literal) == sql
    term = parse(sql)
    assert term == literal or float(term.value) == literal.value


def test_quote():
    assert quote("it's") == "'it''s'"
