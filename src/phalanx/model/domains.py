"""The order of each Arrow type, as keys that Python compares exactly.

A predicate, a partition value and a bound all become keys before they meet, so that nothing is
ever compared as text and no comparison loses precision.

| type                         | key                                                          |
|------------------------------|--------------------------------------------------------------|
| integers, bool               | the integer (false 0, true 1)                                |
| date32, date64, time*        | the integer Arrow stores (days, milliseconds, the unit)      |
| timestamp (any unit, zone)   | the integer Arrow stores: units since the epoch in UTC       |
| duration                     | the integer Arrow stores                                     |
| decimal*                     | the unscaled integer                                         |
| float16, float32, float64    | the bits as an order-preserving integer: -0.0 is 0.0, NaN is |
|                              | one value above infinity (as in Lance, Spark and PostgreSQL) |
| strings                      | the string (code point order is UTF-8 byte order)            |
| binary, uuid                 | the bytes                                                    |
| everything else              | no keys: only NULL and not NULL can be told apart            |

Every key has a successor, so a set of values is a list of half-open intervals.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
import uuid
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.calendar import PER_SECOND, is_utc
from phalanx.model.literals import (
    Literal,
    parse_number,
    parse_time,
    parse_timestamp,
    spell_literal,
)
from phalanx.model.sets import EMPTY, NULL_ONLY, Interval, ValueSet

Key = Any

_DAY_SECONDS = 86_400


class Domain:
    """The keys of one type. `locate` finds where a literal stands among them.

    `type` is the type behind a dictionary or an extension.
    """

    def __init__(self, type: pa.DataType) -> None:
        self.type = type

    @property
    def ordered(self) -> bool:
        return True

    @property
    def lowest(self) -> Key | None:
        """The smallest key, or None where there is none."""
        return None

    @property
    def highest(self) -> Key | None:
        return None

    def key(self, scalar: pa.Scalar) -> Key:
        """The key of a scalar that is not NULL."""
        raise NotImplementedError

    def array(self, keys: Sequence[Key | None]) -> pa.Array:
        """An Arrow array of this type from keys (None is NULL)."""
        raise NotImplementedError

    def successor(self, key: Key) -> Key:
        return key + 1

    def locate(self, literal: Literal) -> tuple[Key, bool]:
        """The smallest key that is not below the literal, and whether it is the literal."""
        raise NotImplementedError

    def compare(self, op: str, literal: Literal) -> ValueSet:
        """The values `x` for which `x op literal` is true. `op` is one of = <> < <= > >=.

        Raises InvalidInput where the literal is of another kind than this type.
        """
        if literal.kind == "null":
            return EMPTY
        key, exact = self.locate(literal)
        after = self.successor(key) if exact else key
        intervals: list[Interval] = {
            "=": [(key, after)],
            "<>": [(None, key), (after, None)],
            "<": [(None, key)],
            "<=": [(None, after)],
            ">": [(after, None)],
            ">=": [(key, None)],
        }[op]
        return self.clip(ValueSet.of(intervals))

    def clip(self, values: ValueSet) -> ValueSet:
        """A set without bounds beyond the range of the type: they are opened, or dropped."""
        low = self.lowest
        beyond = None if self.highest is None else self.successor(self.highest)
        clipped = []
        for start, end in values.intervals:
            if (start is not None and beyond is not None and start >= beyond) or (
                end is not None and low is not None and end <= low
            ):
                continue
            if start is not None and low is not None and start <= low:
                start = None
            if end is not None and beyond is not None and end >= beyond:
                end = None
            clipped.append((start, end))
        return ValueSet(tuple(clipped), values.null)

    def single(self, interval: Interval) -> Key | None:
        """The one key of an interval that holds just one, else None."""
        low, high = interval
        low = self.lowest if low is None else low
        if high is None and self.highest is not None:
            high = self.successor(self.highest)
        return low if low is not None and high == self.successor(low) else None

    def point(self, key: Key) -> ValueSet:
        return self.clip(ValueSet(((key, self.successor(key)),)))

    def points(self, keys: Sequence[Key | None]) -> ValueSet:
        """The set of these keys; None stands for NULL."""
        values = ValueSet.of((key, self.successor(key)) for key in keys if key is not None)
        return self.clip(values).with_null(any(key is None for key in keys))

    def enumerate(self, values: ValueSet, limit: int) -> list[Key | None] | None:
        """Every key of a set that holds at most `limit` of them, else None."""
        keys: list[Key | None] = [None] if values.null else []
        for low, high in values.intervals:
            more = self._between(low, high, limit - len(keys))
            if more is None:
                return None
            keys.extend(more)
        return keys if len(keys) <= limit else None

    def _between(self, low: Key | None, high: Key | None, limit: int) -> list[Key] | None:
        """The keys of one interval if they are at most `limit`."""
        key = self.single((low, high))
        return None if key is None or limit < 1 else [key]

    def refuse(self, literal: Literal) -> InvalidInput:
        return InvalidInput(
            f"cannot compare a value of type {self.type} with {spell_literal(literal)}"
        )


class IntegerDomain(Domain):
    """Types whose Arrow values are integers."""

    def __init__(self, type: pa.DataType, lowest: int, highest: int) -> None:
        super().__init__(type)
        self._lowest, self._highest = lowest, highest

    @property
    def lowest(self) -> int:
        return self._lowest

    @property
    def highest(self) -> int:
        return self._highest

    def key(self, scalar: pa.Scalar) -> int:
        return int(scalar.as_py())

    def array(self, keys: Sequence[Key | None]) -> pa.Array:
        return pa.array(keys, self.type)

    def locate(self, literal: Literal) -> tuple[int, bool]:
        exact = self._exact(literal)
        key = math.ceil(exact)
        return key, key == exact

    def _exact(self, literal: Literal) -> Fraction | int:
        return _number(self, literal)

    def _between(self, low: Key | None, high: Key | None, limit: int) -> list[int] | None:
        start = self._lowest if low is None else max(low, self._lowest)
        end = self._highest + 1 if high is None else min(high, self._highest + 1)
        return list(range(start, end)) if end - start <= limit else None


class BooleanDomain(IntegerDomain):
    def __init__(self) -> None:
        super().__init__(pa.bool_(), 0, 1)

    def array(self, keys: Sequence[Key | None]) -> pa.Array:
        return pa.array([None if key is None else bool(key) for key in keys], pa.bool_())

    def _exact(self, literal: Literal) -> int:
        if literal.kind != "boolean":
            raise self.refuse(literal)
        return int(literal.value)


class DecimalDomain(IntegerDomain):
    def __init__(self, type: pa.DataType) -> None:
        top = 10**type.precision - 1
        super().__init__(type, -top, top)

    def key(self, scalar: pa.Scalar) -> int:
        return unscaled(scalar.as_py(), self.type.scale)

    def array(self, keys: Sequence[Key | None]) -> pa.Array:
        values = [None if k is None else scaled(k, self.type.scale) for k in keys]
        return pa.array(values, self.type)

    def _exact(self, literal: Literal) -> Fraction:
        return Fraction(_number(self, literal)) * Fraction(10) ** int(self.type.scale)


class TemporalDomain(IntegerDomain):
    """date32, date64, time32, time64, timestamp and duration: `per_second` keys a second."""

    def __init__(self, type: pa.DataType, per_second: Fraction) -> None:
        bits = 32 if pa.types.is_date32(type) or pa.types.is_time32(type) else 64
        lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        if pa.types.is_time(type):
            lowest, highest = 0, int(per_second) * _DAY_SECONDS - 1
        super().__init__(type, lowest, highest)
        self.per_second = per_second
        self._storage = pa.int32() if bits == 32 else pa.int64()

    def key(self, scalar: pa.Scalar) -> int:
        return int(scalar.value)

    def array(self, keys: Sequence[Key | None]) -> pa.Array:
        return pa.array(keys, self._storage).view(self.type)

    def _exact(self, literal: Literal) -> Fraction:
        nanos = self._nanoseconds(literal)
        return Fraction(nanos, 1_000_000_000) * self.per_second

    def _nanoseconds(self, literal: Literal) -> int:
        if pa.types.is_time(self.type):
            if literal.kind == "string":
                literal = parse_time(literal.value)
            if literal.kind != "time":
                raise self.refuse(literal)
            return int(literal.value)
        if pa.types.is_duration(self.type):
            raise self.refuse(literal)
        if literal.kind == "string":
            literal = parse_timestamp(literal.value)
        if literal.kind == "date":
            literal = Literal("timestamp", literal.value * _DAY_SECONDS * 1_000_000_000)
        if literal.kind != "timestamp":
            raise self.refuse(literal)
        zone = self.type.tz if pa.types.is_timestamp(self.type) else None
        if zone and not literal.zoned:
            return local_to_utc(literal.value, zone)
        return int(literal.value)


_FLOAT_FORMATS = {16: ("<e", "<h"), 32: ("<f", "<i"), 64: ("<d", "<q")}


class FloatDomain(Domain):
    def __init__(self, type: pa.DataType) -> None:
        super().__init__(type)
        self._float, self._int = _FLOAT_FORMATS[type.bit_width]
        self._magnitude = 2 ** (type.bit_width - 1) - 1
        self._lowest, self._infinity = self._key(-math.inf), self._key(math.inf)

    @property
    def lowest(self) -> int:
        return self._lowest

    @property
    def highest(self) -> int:
        return self._infinity + 1

    def _key(self, value: float) -> int:
        if value != value:
            return self._infinity + 1
        bits: int = struct.unpack(self._int, struct.pack(self._float, value))[0]
        return bits if bits >= 0 else -(bits & self._magnitude)

    def value(self, key: int) -> float:
        """The float of a key: the inverse of the order-preserving mapping."""
        if key > self._infinity:
            return math.nan
        bits = key if key >= 0 else (-key) | (self._magnitude + 1)
        number: float = struct.unpack(self._float, struct.pack(self._int.upper(), bits))[0]
        return number

    def key(self, scalar: pa.Scalar) -> int:
        return self._key(float(scalar.as_py()))

    def array(self, keys: Sequence[Key | None]) -> pa.Array:
        values = [None if k is None else self.value(k) for k in keys]
        return pa.array(values, pa.float64()).cast(self.type)

    def locate(self, literal: Literal) -> tuple[int, bool]:
        """Where the literal, rounded to this type, stands: it is infinite beyond the range."""
        if literal.kind == "string" and (named := _named_float(literal.value)) is not None:
            return self._key(named), True
        number = _number(self, literal)
        try:
            return self._key(float(number)), True
        except OverflowError:
            return (self._infinity if number > 0 else self._lowest), True

    def _between(self, low: Key | None, high: Key | None, limit: int) -> list[Key] | None:
        low = self.lowest if low is None else low
        high = self.highest + 1 if high is None else high
        return list(range(low, high)) if high - low <= limit else None


class TextDomain(Domain):
    @property
    def lowest(self) -> str:
        return ""

    def key(self, scalar: pa.Scalar) -> str:
        return str(_stored(scalar).as_py())

    def array(self, keys: Sequence[Key | None]) -> pa.Array:
        return pa.array(keys, self.type)

    def successor(self, key: str) -> str:
        return key + "\0"

    def locate(self, literal: Literal) -> tuple[str, bool]:
        if literal.kind != "string":
            raise self.refuse(literal)
        return literal.value, True

    def prefix(self, prefix: str) -> ValueSet:
        """The strings that start with `prefix`."""
        return self.clip(ValueSet(((prefix, after_prefix(prefix)),)))


class BytesDomain(Domain):
    @property
    def lowest(self) -> bytes:
        return b""

    def key(self, scalar: pa.Scalar) -> bytes:
        return bytes(_stored(scalar).as_py())

    def array(self, keys: Sequence[Key | None]) -> pa.Array:
        return pa.array(keys, self.type)

    def successor(self, key: bytes) -> bytes:
        return key + b"\0"

    def locate(self, literal: Literal) -> tuple[bytes, bool]:
        if literal.kind == "string":
            return literal.value.encode(), True
        if literal.kind != "binary":
            raise self.refuse(literal)
        return literal.value, True


class FixedBytesDomain(BytesDomain):
    """Bytes of one length. A literal of another length lies between two of them, or beyond all."""

    @property
    def lowest(self) -> bytes:
        return bytes(self.type.byte_width)

    @property
    def highest(self) -> bytes:
        return bytes([255]) * int(self.type.byte_width)

    def successor(self, key: bytes) -> bytes:
        width = self.type.byte_width
        if key >= self.highest:
            return key + b"\0"
        return (int.from_bytes(key, "big") + 1).to_bytes(width, "big")

    def locate(self, literal: Literal) -> tuple[bytes, bool]:
        key, exact = super().locate(literal)
        width = self.type.byte_width
        if len(key) > width:
            return self.successor(key[:width]), False
        return key.ljust(width, b"\0"), exact and len(key) == width


class UuidDomain(FixedBytesDomain):
    def locate(self, literal: Literal) -> tuple[bytes, bool]:
        if literal.kind == "string":
            try:
                return uuid.UUID(literal.value).bytes, True
            except ValueError:
                raise self.refuse(literal) from None
        return super().locate(literal)


class NullnessDomain(Domain):
    """Types without an order that we use: only NULL and not NULL can be told apart."""

    @property
    def ordered(self) -> bool:
        return False

    def array(self, keys: Sequence[Key | None]) -> pa.Array:
        if any(key is not None for key in keys):
            raise InvalidInput(f"values of type {self.type} have no order")
        return pa.nulls(len(keys), self.type)

    def locate(self, literal: Literal) -> tuple[Key, bool]:
        raise InvalidInput(f"values of type {self.type} can only be tested with IS [NOT] NULL")

    def enumerate(self, values: ValueSet, limit: int) -> list[Key | None] | None:
        return [None] if values == NULL_ONLY else [] if values.is_empty else None


@lru_cache(maxsize=1024)
def domain_of(type: pa.DataType) -> Domain:
    """The domain of an Arrow type."""
    t = pa.types
    if isinstance(type, pa.UuidType):
        return UuidDomain(type.storage_type)
    if isinstance(type, pa.BaseExtensionType):
        return domain_of(type.storage_type)
    if t.is_dictionary(type):
        type = type.value_type
    if t.is_boolean(type):
        return BooleanDomain()
    if t.is_integer(type):
        width = type.bit_width
        if t.is_signed_integer(type):
            return IntegerDomain(type, -(2 ** (width - 1)), 2 ** (width - 1) - 1)
        return IntegerDomain(type, 0, 2**width - 1)
    if t.is_floating(type):
        return FloatDomain(type)
    if t.is_decimal(type):
        return DecimalDomain(type)
    if t.is_date32(type):
        return TemporalDomain(type, Fraction(1, _DAY_SECONDS))
    if t.is_date64(type):
        return TemporalDomain(type, Fraction(1000))
    if t.is_timestamp(type) or t.is_time(type) or t.is_duration(type):
        return TemporalDomain(type, Fraction(PER_SECOND[type.unit]))
    if t.is_string(type) or t.is_large_string(type) or t.is_string_view(type):
        return TextDomain(type)
    if t.is_fixed_size_binary(type):
        return FixedBytesDomain(type)
    if t.is_binary(type) or t.is_large_binary(type) or t.is_binary_view(type):
        return BytesDomain(type)
    return NullnessDomain(type)


def cuts_in_utc(type: pa.DataType) -> bool:
    """Whether a date or timestamp column is in UTC, or has no zone."""
    return not pa.types.is_timestamp(type) or type.tz is None or is_utc(type.tz)


def after_prefix(prefix: str) -> str | None:
    """The smallest string above every string that starts with `prefix`, or None."""
    while prefix:
        point = ord(prefix[-1]) + 1
        if 0xD800 <= point <= 0xDFFF:
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[:-1] + chr(point)
        prefix = prefix[:-1]
    return None


def unscaled(value: Decimal, scale: int) -> int:
    """The integer a decimal of this scale stores."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    number = number * int(10**shift) if shift >= 0 else number // int(10**-shift)
    return -number if sign else number


def scaled(number: int, scale: int) -> Decimal:
    """The decimal that an unscaled integer means; the inverse of `unscaled`."""
    digits = tuple(int(d) for d in str(abs(number)))
    return Decimal((int(number < 0), digits, -scale))


def _stored(scalar: pa.Scalar) -> pa.Scalar:
    return scalar.value if isinstance(scalar, pa.ExtensionScalar) else scalar


def _number(domain: Domain, literal: Literal) -> Fraction | int:
    value = literal.value
    if literal.kind == "string":
        try:
            value = parse_number(value.strip())
        except InvalidInput:
            raise domain.refuse(literal) from None
    elif literal.kind != "number":
        raise domain.refuse(literal)
    if isinstance(value, int):
        return value
    try:
        return Fraction(value)
    except (ValueError, OverflowError):  # NaN and infinity.
        raise domain.refuse(literal) from None


def _named_float(text: str) -> float | None:
    """The floats that have names instead of digits."""
    name = text.strip().lower()
    sign = -1.0 if name.startswith("-") else 1.0
    match name.lstrip("+-"):
        case "nan":
            return math.nan
        case "inf" | "infinity":
            return sign * math.inf
    return None


def local_to_utc(nanos: int, zone: str) -> int:
    """A wall-clock reading in `zone`, as nanoseconds since the epoch in UTC.

    Where a clock that is set back shows a time twice, the first one is meant. Beyond the years 1
    to 9999 of Python's calendar, the offset is that of its first or last day.
    """
    seconds, rest = divmod(nanos, 1_000_000_000)
    try:
        local = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)
    except OverflowError:
        local = dt.datetime.max if seconds > 0 else dt.datetime.min
    offset = _zone(zone).utcoffset(local)
    assert offset is not None
    return (seconds - int(offset.total_seconds())) * 1_000_000_000 + rest


def utc_to_local(nanos: int, zone: str) -> int:
    """The inverse of `local_to_utc`: what clocks in `zone` show, as nanoseconds since the epoch."""
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=nanos // 1_000_000_000)
    offset = moment.astimezone(_zone(zone)).utcoffset()
    assert offset is not None
    return nanos + int(offset.total_seconds()) * 1_000_000_000


@lru_cache(maxsize=64)
def _zone(name: str) -> dt.tzinfo:
    if is_utc(name):
        return dt.UTC
    if name[:1] in "+-":
        moment = dt.datetime.fromisoformat(f"2000-01-01T00:00:00{name}")
        assert moment.tzinfo is not None
        return moment.tzinfo
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError):
        raise InvalidInput(f"unknown time zone {name!r}") from None
