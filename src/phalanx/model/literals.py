"""Constants of the filter language: read from SQL text, and written back as SQL.

A literal keeps every digit and its zone. What it means is decided when it meets a column: the
column's domain (`phalanx.model.domains`) finds its place among the column's values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.calendar import PER_SECOND, civil_of, days_of

#: How many digits a number may have, written out.
MAX_DIGITS = 1_000
_DAY_SECONDS = 86_400


@dataclass(frozen=True, eq=False)
class Literal:
    """A constant as it was written: `kind` says how, `value` holds it without loss.

    Kinds: null, boolean, number (int, or Decimal or float where it has a point or an exponent),
    string, binary, date (days since the epoch), timestamp (nanoseconds since the epoch in UTC,
    or since a naive epoch), time (nanoseconds of the day), interval (its text). `zoned` says
    whether a timestamp named its offset.
    """

    kind: str
    value: Any = None
    zoned: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        # 2 and 2.0 are equal in Python, but `x / 2` and `x / 2.0` are not the same term.
        return self.kind, isinstance(self.value, int), self.value, self.zoned


NULL = Literal("null")
TRUE = Literal("boolean", True)
FALSE = Literal("boolean", False)


def literal_of(scalar: pa.Scalar) -> Literal:
    """An Arrow scalar as a literal."""
    if not scalar.is_valid:
        return NULL
    type, t = scalar.type, pa.types
    if t.is_boolean(type):
        return Literal("boolean", scalar.as_py())
    if t.is_integer(type) or t.is_floating(type) or t.is_decimal(type):
        value = scalar.as_py()
        if isinstance(value, float) and value - value != 0:
            return Literal("string", str(value))
        return Literal("number", value)
    if t.is_date32(type):
        return Literal("date", scalar.value)
    if t.is_date64(type):
        return Literal("date", scalar.value // 86_400_000)
    if t.is_timestamp(type):
        nanos = scalar.value * (PER_SECOND["ns"] // PER_SECOND[type.unit])
        return Literal("timestamp", nanos, zoned=type.tz is not None)
    if t.is_time(type):
        return Literal("time", scalar.value * (PER_SECOND["ns"] // PER_SECOND[type.unit]))
    value = scalar.as_py()
    if isinstance(value, str):
        return Literal("string", value)
    if isinstance(value, bytes):
        return Literal("binary", value)
    raise InvalidInput(f"a constant of type {type} cannot be used in a filter")


def lit(value: Any) -> Literal:
    """A Python value as a constant, where text would be taken for SQL.

    ```
    table.update({"kind": phalanx.lit("it's")}, where="id = 7")
    ```

    Raises InvalidInput for a value that is not a constant, such as a list.
    """
    if isinstance(value, Literal):
        return value
    if type(value) is int and value.bit_length() > 63:  # more than Arrow's integers hold
        if value.bit_length() > 4 * MAX_DIGITS:
            raise InvalidInput(f"the number has more than {MAX_DIGITS} digits")
        return Literal("number", parse_number(str(value)))
    try:
        if isinstance(value, np.generic):  # pyarrow does not take all of them one by one
            value = pa.array(np.array([value]))[0]
        return literal_of(value if isinstance(value, pa.Scalar) else pa.scalar(value))
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(f"{value!r} cannot be used as a constant: {error}") from None


# Reading ---

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def parse_number(text: str) -> Decimal | int:
    """The number that digits spell: an int, or a Decimal where there is a point or an exponent.

    Raises InvalidInput where the text is not a number, or has more than 1,000 digits.
    """
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(f"{text!r} is not a number")
    long = InvalidInput(f"the number {text[:20]}… has more than {MAX_DIGITS} digits")
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise long from None
    if len(value.as_tuple().digits) + abs(value.adjusted()) > MAX_DIGITS:
        raise long
    return int(value) if text.lstrip("+-").isdigit() else value


_DATE = re.compile(r"([+-]?\d{4,6})-(\d\d?)-(\d\d?)", re.ASCII)
_CLOCK = re.compile(r"(\d\d?)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?", re.ASCII)
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)?", re.ASCII)


def parse_timestamp(text: str) -> Literal:
    """An ISO 8601 date or timestamp, `T` or a blank between the two, an offset if it has one.

    Years have four digits, or a sign and up to six. Raises InvalidInput where it is neither.
    """
    error = InvalidInput(f"{text!r} is not a date or timestamp: write 2025-12-31T23:59:59")
    date = _DATE.match(text.strip())
    if not date:
        raise error
    days = _days(date, error)
    rest = text.strip()[date.end() :]
    if not rest:
        return Literal("date", days)
    clock = _CLOCK.match(rest, 1) if rest[0] in "Tt " and ":" in rest else None
    if not clock:
        raise error
    nanos = days * _DAY_SECONDS * 1_000_000_000 + _nanoseconds(clock, error)
    zone = rest[clock.end() :].strip()
    if not zone:
        return Literal("timestamp", nanos)
    return Literal("timestamp", nanos - _offset(zone, error) * 1_000_000_000, zoned=True)


def parse_date(text: str) -> Literal:
    error = InvalidInput(f"{text!r} is not a date: write 2025-12-31")
    date = _DATE.fullmatch(text.strip())
    if not date:
        raise error
    return Literal("date", _days(date, error))


def parse_time(text: str) -> Literal:
    error = InvalidInput(f"{text!r} is not a time: write 23:59:59")
    clock = _CLOCK.fullmatch(text.strip())
    if not clock or ":" not in text:
        raise error
    return Literal("time", _nanoseconds(clock, error))


def _days(date: re.Match[str], error: InvalidInput) -> int:
    year, month, day = (int(part) for part in date.groups())
    days = int(days_of(year, month, day))
    if (len(date[1]) > 4 and date[1].isdigit()) or civil_of(days) != (year, month, day):
        raise error
    return days


def _nanoseconds(clock: re.Match[str], error: InvalidInput) -> int:
    """Nanoseconds since midnight."""
    hour, minute, second = (int(part or 0) for part in clock.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise error
    fraction = int((clock[4] or "").ljust(9, "0"))
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + fraction


def _offset(text: str, error: InvalidInput) -> int:
    """Seconds that a clock is ahead of UTC."""
    if text in ("Z", "z", "UTC"):
        return 0
    offset = _OFFSET.fullmatch(text)
    if not offset or int(offset[2]) > 23 or int(offset[3] or 0) > 59:
        raise error
    seconds = int(offset[2]) * 3600 + int(offset[3] or 0) * 60
    return -seconds if offset[1] == "-" else seconds


# Writing ---


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def spell_literal(literal: Literal) -> str:
    """A literal as it could have been written."""
    value = literal.value
    match literal.kind:
        case "null":
            return "NULL"
        case "boolean":
            return "TRUE" if value else "FALSE"
        case "number":
            return _number(value)
        case "string":
            return quote(value)
        case "binary":
            return f"X'{value.hex()}'"
        case "date":
            return f"DATE '{date_text(value)}'"
        case "timestamp":
            return f"TIMESTAMP '{timestamp_text(value, 'ns')}{'Z' if literal.zoned else ''}'"
        case "time":
            return f"TIME '{clock_text(value, PER_SECOND['ns'])}'"
    return f"INTERVAL {quote(value)}"


def _number(value: Decimal | float | int) -> str:
    """Digits, with a point unless it was written as a whole number: `x / 2.0` is not `x / 2`."""
    if not isinstance(value, Decimal):
        return str(value)
    text = f"{value:f}"
    return text if "." in text else text + ".0"


def date_text(days: int) -> str:
    year, month, day = civil_of(days)
    sign = "" if 0 <= year <= 9999 else "+" if year > 0 else "-"
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"


def timestamp_text(key: int, unit: str) -> str:
    per_second = PER_SECOND[unit]
    days, rest = divmod(key, 86_400 * per_second)
    return f"{date_text(days)}T{clock_text(rest, per_second)}"


def clock_text(units: int, per_second: int) -> str:
    seconds, rest = divmod(units, per_second)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if rest:
        digits = len(str(per_second)) - 1
        text += f".{rest:0{digits}}".rstrip("0")
    return text
