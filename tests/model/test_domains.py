"""Keys: every type in its own order, every constant at its exact place."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from phalanx.errors import InvalidInput
from phalanx.model.domains import after_prefix, cuts_in_utc, domain_of, scaled, unscaled
from phalanx.model.literals import Literal, parse_date, parse_number, parse_time
from phalanx.model.sets import ALL_VALUES, EMPTY, NULL_ONLY, ValueSet

NEW_YORK = "America/New_York"
UUIDS = [b"\0" * 16, b"\0" * 15 + b"\1", b"\xff" * 16]


def temporal(type: pa.DataType, keys: list[int]) -> pa.Array:
    storage = pa.int32() if type.bit_width == 32 else pa.int64()
    return pa.array(keys, storage).view(type)


ASCENDING = [
    pa.array([-128, -1, 0, 127], pa.int8()),
    pa.array([-(2**63), 0, 2**63 - 1], pa.int64()),
    pa.array([0, 2**63, 2**64 - 1], pa.uint64()),
    pa.array([False, True]),
    pa.array([-math.inf, -1.5, -5e-324, 0.0, 5e-324, 1.5, math.inf, math.nan], pa.float64()),
    pa.array([-math.inf, -1.5, 0.0, 1.5, math.inf, math.nan], pa.float32()),
    pa.array([-math.inf, -1.5, 0.0, 1.5, math.inf, math.nan]).cast(pa.float16()),
    pa.array(
        [Decimal("-9.99"), Decimal("0.00"), Decimal("0.01"), Decimal("1")], pa.decimal128(9, 2)
    ),
    pa.array([Decimal(-(10**20)), Decimal(10**30)], pa.decimal256(50, 3)),
    pa.array(["", "\0", "9", "B", "a", "a\0", "ab", "é", "日", "😀"]),
    pa.array(["2", "10"][::-1], pa.large_string()),
    pa.array([b"", b"\0", b"a", b"a\0", b"\xff"]),
    temporal(pa.date32(), [-1, 0, 20_000]),
    temporal(pa.date64(), [-86_400_000, 0]),
    temporal(pa.timestamp("ns", NEW_YORK), [-1, 0, 2**63 - 1]),
    temporal(pa.time64("us"), [0, 86_399_999_999]),
    temporal(pa.duration("s"), [-5, 0, 5]),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array(UUIDS, pa.binary(16))),
    pa.array(["a", "b"]).dictionary_encode(),
]


@pytest.mark.parametrize("array", ASCENDING, ids=lambda array: str(array.type))
def test_keys_ascend(array):
    domain = domain_of(array.type)
    keys = [domain.key(scalar) for scalar in array]
    assert keys == sorted(set(keys))
    for key in keys:
        assert domain.successor(key) > key
        assert domain.enumerate(domain.point(key), 5) == [key]
        if domain.highest is not None:
            assert domain.lowest <= key <= domain.highest


@pytest.mark.parametrize("array", ASCENDING, ids=lambda array: str(array.type))
def test_arrays_from_keys(array):
    domain = domain_of(array.type)
    keys = [domain.key(scalar) for scalar in array]
    again = domain.array([*keys, None])
    assert [domain.key(scalar) for scalar in again[:-1]] == keys
    assert not again[-1].is_valid


def test_zeros_and_nans_are_one():
    domain = domain_of(pa.float64())
    keys = [domain.key(pa.scalar(value)) for value in (0.0, -0.0, math.nan, -math.nan)]
    assert keys[0] == keys[1] == 0
    assert keys[2] == keys[3] == domain.highest


INT8 = pa.int8()
CENTS = pa.decimal128(9, 2)


def number(text: str) -> Literal:
    return Literal("number", parse_number(text))


def text(value: str) -> Literal:
    return Literal("string", value)


@pytest.mark.parametrize(
    ("type", "op", "literal", "intervals"),
    [
        (INT8, "=", number("5"), [(5, 6)]),
        (INT8, "<>", number("5"), [(None, 5), (6, None)]),
        (INT8, "<", number("5"), [(None, 5)]),
        (INT8, "<=", number("5"), [(None, 6)]),
        (INT8, ">", number("5"), [(6, None)]),
        (INT8, ">=", number("5"), [(5, None)]),
        # A fraction lies between two numbers.
        (INT8, ">", number("2.5"), [(3, None)]),
        (INT8, ">=", number("2.5"), [(3, None)]),
        (INT8, "<", number("-2.5"), [(None, -2)]),
        (INT8, "=", number("2.5"), []),
        (INT8, "<>", number("2.5"), [(None, None)]),
        (INT8, "=", number("5.0"), [(5, 6)]),
        (INT8, "=", text(" 5 "), [(5, 6)]),
        # The ends of the type, and beyond.
        (INT8, "<=", number("127"), [(None, None)]),
        (INT8, ">", number("127"), []),
        (INT8, "=", number("127"), [(127, None)]),
        (INT8, "=", number("-128"), [(None, -127)]),
        (INT8, "<", number("1e30"), [(None, None)]),
        (INT8, "=", number("300"), []),
        (pa.uint64(), ">=", number("-1"), [(None, None)]),
        (pa.uint64(), ">", number("9223372036854775807"), [(2**63, None)]),
        # Decimals are counted in their last digit.
        (CENTS, ">", number("1.005"), [(101, None)]),
        (CENTS, "<=", number("1.005"), [(None, 101)]),
        (CENTS, "=", number("1.5"), [(150, 151)]),
        (pa.decimal128(5, -2), ">=", number("150"), [(2, None)]),
        (pa.bool_(), "=", Literal("boolean", True), [(1, None)]),
        (pa.bool_(), "<", Literal("boolean", True), [(None, 1)]),
        (pa.string(), "=", text("a"), [("a", "a\0")]),
        (pa.string(), ">", text("a"), [("a\0", None)]),
        (pa.string(), ">=", text(""), [(None, None)]),
        (pa.string(), "<", text(""), []),
        (pa.binary(), "<=", Literal("binary", b"a"), [(None, b"a\0")]),
        (pa.binary(2), "=", Literal("binary", b"\0\1"), [(b"\0\1", b"\0\2")]),
        (pa.binary(2), "=", Literal("binary", b"\1"), []),
        (pa.binary(2), "<>", Literal("binary", b"\1"), [(None, None)]),
        (pa.binary(2), "<", Literal("binary", b"\1"), [(None, b"\1\0")]),
        (pa.binary(2), ">", Literal("binary", b"\1"), [(b"\1\0", None)]),
        (pa.binary(2), "=", Literal("binary", b"\1\0\0"), []),
        (pa.binary(2), "<", Literal("binary", b"\1\xff\0"), [(None, b"\2\0")]),
        (pa.binary(2), ">=", Literal("binary", b"\1\xff\0"), [(b"\2\0", None)]),
        (pa.binary(2), "<", Literal("binary", b""), []),
        (pa.binary(2), "=", Literal("binary", b"\xff\xff"), [(b"\xff\xff", None)]),
        (pa.binary(2), ">", Literal("binary", b"\xff\xff\0"), []),
        (pa.binary(2), "<", Literal("binary", b"\xff\xff\0"), [(None, None)]),
        (pa.binary(), "=", text("é"), [("é".encode(), "é".encode() + b"\0")]),
        (pa.date32(), "=", text("1970-01-02"), [(1, 2)]),
        (pa.date32(), ">", text("1970-01-02T12:00:00"), [(2, None)]),
        (pa.date32(), "<", text("1969-12-31T00:00:01"), [(None, 0)]),
        (pa.date32(), "=", text("1970-01-02T01:00:00+01:00"), [(1, 2)]),
        (pa.time32("s"), ">", text("00:00:01.5"), [(2, None)]),
        (pa.time32("s"), "<=", text("23:59:59"), [(None, None)]),
        (pa.timestamp("s"), "=", text("1970-01-01 00:00:07"), [(7, 8)]),
        (pa.timestamp("s"), "=", text("1970-01-01T00:00:07.5"), []),
        (pa.timestamp("ns"), "=", text("1970-01-01T00:00:00.000000001"), [(1, 2)]),
        # Without an offset in the column's zone, with one at that instant.
        (pa.timestamp("s", NEW_YORK), "=", text("1969-12-31T19:00:00"), [(0, 1)]),
        (pa.timestamp("s", NEW_YORK), "=", text("1969-12-31"), [(-68400, -68399)]),
        (pa.timestamp("s", NEW_YORK), "=", text("1970-01-01T00:00:00Z"), [(0, 1)]),
        (pa.timestamp("s", "+05:30"), "=", text("1970-01-01T05:30:00"), [(0, 1)]),
        (pa.timestamp("s"), "=", text("1970-01-01T02:00:00+02:00"), [(0, 1)]),
        # An hour that comes twice: the first is meant.
        (pa.timestamp("s", NEW_YORK), ">=", text("2025-11-02T01:30:00"), [(1762061400, None)]),
    ],
    ids=str,
)
def test_compare(type, op, literal, intervals):
    assert domain_of(type).compare(op, literal) == ValueSet(tuple(intervals))


@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
def test_nothing_compares_with_null(op):
    assert domain_of(pa.int8()).compare(op, Literal("null")) == EMPTY


@pytest.mark.parametrize(
    ("type", "literal", "value"),
    [
        (pa.float32(), number("0.1"), 0.10000000149011612),
        (pa.float64(), number("0.1"), 0.1),
        (pa.float16(), number("0.1"), 0.0999755859375),
        (pa.float32(), number("1e300"), math.inf),
        (pa.float32(), text("-1e300"), -math.inf),
        (pa.float64(), number("1e400"), math.inf),
        (pa.float64(), text("-inf"), -math.inf),
        (pa.float64(), text("Infinity"), math.inf),
        (pa.float64(), number("-0.0"), 0.0),
        (pa.float64(), number("7"), 7.0),
    ],
    ids=str,
)
def test_float_literals_are_rounded(type, literal, value):
    domain = domain_of(type)
    key, exact = domain.locate(literal)
    assert exact
    assert domain.value(key) == value


def test_nan_is_above_infinity():
    domain = domain_of(pa.float64())
    nan = domain.compare("=", text("NaN"))
    assert domain.compare(">", text("inf")) == nan
    assert domain.compare("<=", text("NaN")) == ALL_VALUES
    assert math.isnan(domain.value(domain.enumerate(nan, 1)[0]))


@pytest.mark.parametrize(
    ("type", "literal", "message"),
    [
        (pa.int8(), text("five"), "cannot compare a value of type int8 with 'five'"),
        (pa.int8(), text("1_000"), "cannot compare a value of type int8 with '1_000'"),
        (pa.int8(), text("NaN"), "cannot compare a value of type int8 with 'NaN'"),
        (pa.int8(), Literal("boolean", True), "cannot compare a value of type int8 with TRUE"),
        (pa.bool_(), number("1"), "cannot compare a value of type bool with 1"),
        (pa.string(), number("1.50"), "cannot compare a value of type string with 1.50"),
        (
            pa.string(),
            parse_date("2025-12-10"),
            "cannot compare a value of type string with DATE '2025-12-10'",
        ),
        (
            pa.timestamp("us"),
            text("tomorrow"),
            "'tomorrow' is not a date or timestamp: write 2025-12-31T23:59:59",
        ),
        (
            pa.timestamp("us"),
            parse_time("10:00"),
            "cannot compare a value of type timestamp[us] with TIME '10:00:00'",
        ),
        (
            pa.time64("us"),
            parse_date("2025-12-10"),
            "cannot compare a value of type time64[us] with DATE '2025-12-10'",
        ),
        (pa.binary(), number("1"), "cannot compare a value of type binary with 1"),
        (
            pa.uuid(),
            text("nope"),
            "cannot compare a value of type fixed_size_binary[16] with 'nope'",
        ),
        (
            pa.list_(pa.int8()),
            number("1"),
            "values of type list<item: int8> can only be tested with IS [NOT] NULL",
        ),
        (
            pa.timestamp("us", "Mars/Olympus"),
            text("2025-12-10"),
            "unknown time zone 'Mars/Olympus'",
        ),
    ],
    ids=str,
)
def test_refused_comparisons(type, literal, message):
    with pytest.raises(InvalidInput) as error:
        domain_of(type).compare("=", literal)
    assert str(error.value) == message


def test_uuid_is_read_as_uuid():
    name = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
    (key,) = domain_of(pa.uuid()).enumerate(domain_of(pa.uuid()).compare("=", text(name)), 1)
    assert key.hex() == name.replace("-", "")


@pytest.mark.parametrize(
    ("type", "values", "limit", "keys"),
    [
        (pa.int8(), ValueSet(((3, 6),)), 3, [3, 4, 5]),
        (pa.int8(), ValueSet(((3, 6),)), 2, None),
        (pa.int8(), ValueSet(((3, 5), (7, 8)), null=True), 4, [None, 3, 4, 7]),
        (pa.int8(), ValueSet(((126, None),)), 5, [126, 127]),
        (pa.int64(), ValueSet(((126, None),)), 5, None),
        (pa.bool_(), ALL_VALUES, 5, [0, 1]),
        (pa.string(), ValueSet((("a", "a\0"), ("b", "b\0"))), 5, ["a", "b"]),
        (pa.string(), ValueSet(((None, "\0"),)), 5, [""]),
        (pa.string(), ValueSet((("a", "b"),)), 5, None),
        (pa.list_(pa.int8()), NULL_ONLY, 5, [None]),
        (pa.list_(pa.int8()), ALL_VALUES, 5, None),
        (pa.int8(), EMPTY, 0, []),
    ],
    ids=str,
)
def test_enumerate(type, values, limit, keys):
    assert domain_of(type).enumerate(values, limit) == keys


@pytest.mark.parametrize(
    ("prefix", "after"),
    [("a", "b"), ("a\U0010ffff", "b"), ("\ud7ff", "\ue000"), ("\U0010ffff", None), ("", None)],
)
def test_after_prefix(prefix, after):
    assert after_prefix(prefix) == after


@pytest.mark.parametrize(
    ("shown", "number", "scale"),
    [("1.50", 150, 2), ("-1.5", -150, 2), ("0", 0, 3), ("1E+3", 10, -2), ("-0.01", -1, 2)],
)
def test_unscaled_and_back(shown, number, scale):
    assert unscaled(Decimal(shown), scale) == number
    assert scaled(number, scale) == Decimal(shown)


@pytest.mark.parametrize(
    ("type", "utc"),
    [
        (pa.date32(), True),
        (pa.timestamp("us"), True),
        (pa.timestamp("us", "UTC"), True),
        (pa.timestamp("us", "+00:00"), True),
        (pa.timestamp("us", "Etc/GMT"), True),
        (pa.timestamp("us", NEW_YORK), False),
        (pa.timestamp("us", "+01:00"), False),
    ],
    ids=str,
)
def test_cuts_in_utc(type, utc):
    assert cuts_in_utc(type) == utc
