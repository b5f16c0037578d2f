"""Values as text: SQL constants, restrictions as clauses, partition values for people.

Keys are for comparing, text is for reading. Only what has been lost or written down as text (a
copy of a partition value, a column's default) is read back from it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model import civil
from phalanx.model.domains import (
    PER_SECOND,
    Domain,
    FloatDomain,
    Literal,
    TemporalDomain,
    TextDomain,
    domain_of,
    scaled,
)
from phalanx.model.sets import ValueSet

_DAY_MILLISECONDS = 86_400_000
#: How many characters of a value people are shown.
_SHOWN = 80


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def shortened(text: str) -> str:
    """A text that people read: of a long one the beginning, and how long it is."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text):,} characters)"


def value_text(key: Any, type: pa.DataType) -> str:
    """A value as plain text: ISO 8601 for times, digits for numbers, strings as they are."""
    t, type = pa.types, domain_of(type).type
    if t.is_boolean(type):
        return "true" if key else "false"
    if t.is_floating(type):
        domain = domain_of(type)
        assert isinstance(domain, FloatDomain)
        number = domain.value(key)
        return "NaN" if number != number else _shortest(number, type)
    if t.is_decimal(type):
        return f"{scaled(key, type.scale):f}"
    if t.is_date32(type):
        return _date(key)
    if t.is_date64(type):
        return _date(key // _DAY_MILLISECONDS)
    if t.is_timestamp(type):
        return _timestamp(key, type.unit) + ("Z" if type.tz else "")
    if t.is_time(type):
        return _clock(key, PER_SECOND[type.unit])
    if isinstance(key, bytes):
        return key.hex()
    return str(key)


def read_value(text: str, type: pa.DataType) -> Any:
    """The key that `value_text` has made this text of. Raises InvalidInput where there is none."""
    key: Any = None
    if pa.types.is_boolean(type):
        key = {"true": 1, "false": 0}.get(text)
    elif pa.types.is_binary(type) or pa.types.is_large_binary(type) or _is_fixed(type):
        with contextlib.suppress(ValueError):
            key = bytes.fromhex(text)
    else:
        key = domain_of(type).locate(Literal("string", text))[0]
    if key is None or value_text(key, type) != text:
        raise InvalidInput(f"{text!r} is no value of type {type}")
    return key


def _is_fixed(type: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(type))


def sql_literal(key: Any, type: pa.DataType) -> str:
    """A constant that our parser, given a column of this type, reads back as this key."""
    t, type = pa.types, domain_of(type).type
    text = value_text(key, type)
    if t.is_boolean(type):
        return text.upper()
    if t.is_floating(type):
        return quote(text) if text.strip("-") in ("NaN", "inf") else text
    if t.is_date64(type) and key % _DAY_MILLISECONDS:
        return f"TIMESTAMP '{_timestamp(key, 'ms')}'"
    if t.is_date(type):
        return f"DATE '{text}'"
    if t.is_timestamp(type):
        return f"TIMESTAMP '{text}'"
    if t.is_time(type):
        return f"TIME '{text}'"
    if isinstance(key, bytes):
        return f"X'{text}'"
    if isinstance(key, str):
        return quote(text)
    return text


def arrow_literal(key: Any, type: pa.DataType) -> str:
    """A constant of exactly this type, in the SQL of DataFusion and Lance."""
    t = pa.types
    if key == _LEAST and (t.is_int64(type) or t.is_timestamp(type)):
        # A minus sign and digits are two things in SQL, and these digits alone are too many.
        key = f"arrow_cast('{_LEAST}', 'Int64')"
        if t.is_int64(type):
            return str(key)
    if t.is_timestamp(type) or t.is_time(type) or t.is_date(type):
        return f"arrow_cast({key}, {quote(type_name(type))})"
    if t.is_decimal(type) or t.is_floating(type):
        return f"arrow_cast({quote(value_text(key, type))}, {quote(type_name(type))})"
    if t.is_large_string(type):
        return f"arrow_cast({quote(key)}, {quote(type_name(type))})"
    return sql_literal(key, type)


def type_name(type: pa.DataType) -> str:
    """What DataFusion calls a type of plain values; empty for others."""
    t, width = pa.types, 0
    with contextlib.suppress(ValueError):
        width = type.bit_width
    if t.is_signed_integer(type):
        return f"Int{width}"
    if t.is_unsigned_integer(type):
        return f"UInt{width}"
    if t.is_floating(type):
        return f"Float{width}"
    if t.is_decimal(type):
        return f"Decimal{width}({type.precision}, {type.scale})"
    if t.is_timestamp(type):
        zone = "None" if type.tz is None else f'Some("{type.tz}")'
        return f"Timestamp({_UNITS[type.unit]}, {zone})"
    if t.is_time(type):
        return f"Time{width}({_UNITS[type.unit]})"
    if t.is_fixed_size_binary(type):
        return f"FixedSizeBinary({type.byte_width})"
    return _NAMES.get(type, "")


_NAMES = {
    pa.bool_(): "Boolean",
    pa.string(): "Utf8",
    pa.large_string(): "LargeUtf8",
    pa.binary(): "Binary",
    pa.large_binary(): "LargeBinary",
    pa.date32(): "Date32",
    pa.date64(): "Date64",
}
_LEAST = -(2**63)
_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}


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
            return f"DATE '{_date(value)}'"
        case "timestamp":
            return f"TIMESTAMP '{_timestamp(value, 'ns')}{'Z' if literal.zoned else ''}'"
        case "time":
            return f"TIME '{_clock(value, PER_SECOND['ns'])}'"
    return f"INTERVAL {quote(value)}"


def _number(value: Decimal | float | int) -> str:
    """Digits, with a point unless it was written as a whole number: `x / 2.0` is not `x / 2`."""
    if not isinstance(value, Decimal):
        return str(value)
    text = f"{value:f}"
    return text if "." in text else text + ".0"


Constant = Callable[[Any, pa.DataType], str]


def clauses(term: str, node: Any, constant: Constant) -> list[str]:
    """A restriction as clauses to be joined by OR."""
    type, values = node.type, node.values
    domain = domain_of(type)
    parts: list[str] = []
    if values.has_all_values:
        parts.append(f"{term} IS NOT NULL")
    elif pa.types.is_boolean(type):
        wants_true = values.intervals[0][0] == 1 if values.intervals else False
        if values.intervals:
            parts.append(term if wants_true else f"NOT {term}")
    else:
        parts.extend(_value_clauses(term, type, values, domain, constant))
    if values.null:
        parts.append(f"{term} IS NULL")
    return parts or ["FALSE"]


def _value_clauses(
    term: str, type: pa.DataType, values: ValueSet, domain: Domain, constant: Constant
) -> list[str]:
    holes = [domain.single(gap) for gap in values.gaps()]
    if len(values.intervals) > 1 and None not in holes:
        return [_equal(term, [constant(key, type) for key in holes], negated=True)]
    singles = [domain.single(interval) for interval in values.intervals]
    points = [key for key in singles if key is not None]
    parts = [_equal(term, [constant(key, type) for key in points])] if points else []
    for (low, high), single in zip(values.intervals, singles, strict=True):
        if single is not None:
            continue
        bounds = []
        if low is not None:
            op, key = _lower(low, domain)
            bounds.append(f"{term} {op} {constant(key, type)}")
        if high is not None:
            op, key = _upper(high, domain)
            bounds.append(f"{term} {op} {constant(key, type)}")
        text = " AND ".join(bounds)
        parts.append(f"({text})" if len(values.intervals) > 1 and len(bounds) > 1 else text)
    return parts


def _equal(term: str, constants: list[str], negated: bool = False) -> str:
    if len(constants) == 1:
        return f"{term} {'<>' if negated else '='} {constants[0]}"
    return f"{term} {'NOT IN' if negated else 'IN'} ({', '.join(constants)})"


def _lower(key: Any, domain: Domain) -> tuple[str, Any]:
    before = _predecessor(key, domain)
    return (">=", key) if before is None else (">", before)


def _upper(key: Any, domain: Domain) -> tuple[str, Any]:
    before = _predecessor(key, domain)
    return ("<", key) if before is None else ("<=", before)


def _predecessor(key: Any, domain: Domain) -> Any | None:
    """The key before, where it reads better: without a final NUL, or with fewer digits."""
    if isinstance(domain, TextDomain):
        return key[:-1] if key.endswith("\0") else None
    if isinstance(key, bytes):
        return key[:-1] if key.endswith(b"\0") else None
    if isinstance(domain, FloatDomain | TemporalDomain):
        here, before = sql_literal(key, domain.type), sql_literal(key - 1, domain.type)
        return key - 1 if len(before) < len(here) else None
    return None


def _shortest(number: float, type: pa.DataType) -> str:
    if type.bit_width == 64:
        return repr(number)
    for digits in range(1, 18):
        text = f"{number:.{digits}g}"
        if pa.scalar(float(text), pa.float64()).cast(type).as_py() == number:
            return repr(float(text))
    return repr(number)


def _date(days: int) -> str:
    year, month, day = civil.civil_of(days)
    sign = "" if 0 <= year <= 9999 else "+" if year > 0 else "-"
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"


def _timestamp(key: int, unit: str) -> str:
    per_second = PER_SECOND[unit]
    days, rest = divmod(key, 86_400 * per_second)
    return f"{_date(days)}T{_clock(rest, per_second)}"


def _clock(units: int, per_second: int) -> str:
    seconds, rest = divmod(units, per_second)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if rest:
        digits = len(str(per_second)) - 1
        text += f".{rest:0{digits}}".rstrip("0")
    return text
