"""Values as text: SQL constants of a type, and partition values for people.

Keys are for comparing, text is for reading. Only values that are stored as text (a copy of a
partition value, a column's default) are read back from it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.calendar import PER_SECOND
from phalanx.model.domains import FloatDomain, domain_of, scaled
from phalanx.model.literals import Literal, clock_text, date_text, quote, timestamp_text

_DAY_MILLISECONDS = 86_400_000
#: How many characters of a value people are shown.
_SHOWN = 80


def shortened(text: str) -> str:
    """A text for people to read. A long one is cut, and its length is added."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text):,} characters)"


def shown_value(key: Any, type: pa.DataType, shown: Callable[[str], str] = shortened) -> str:
    """A partition value for people to read; `shown` may cut it."""
    return "NULL" if key is None else shown_text(value_text(key, type), shown)


def shown_text(text: str, shown: Callable[[str], str] = lambda text: text) -> str:
    """The text of a value, in quotes where it would look like nothing or like NULL."""
    plain = text.strip() == text != "" and text != "NULL"
    return shown(text) if plain else quote(shown(text))


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
        return date_text(key)
    if t.is_date64(type):
        return date_text(key // _DAY_MILLISECONDS)
    if t.is_timestamp(type):
        return timestamp_text(key, type.unit) + ("Z" if type.tz else "")
    if t.is_time(type):
        return clock_text(key, PER_SECOND[type.unit])
    if isinstance(key, bytes):
        return key.hex()
    return str(key)


def read_value(text: str, type: pa.DataType) -> Any:
    """The key that has this `value_text`. Raises InvalidInput where none has."""
    key: Any = None
    if pa.types.is_boolean(type):
        key = {"true": 1, "false": 0}.get(text)
    elif pa.types.is_binary(type) or pa.types.is_large_binary(type) or _is_fixed(type):
        with contextlib.suppress(ValueError):
            key = bytes.fromhex(text)
    elif pa.types.is_duration(type):
        with contextlib.suppress(ValueError):
            key = int(text)
    else:
        key = domain_of(type).locate(Literal("string", text))[0]
    if key is None or value_text(key, type) != text:
        raise InvalidInput(f"{text!r} is not a value of type {type}")
    return key


def _is_fixed(type: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(type))


def constant_of(key: Any, type: pa.DataType) -> pa.Scalar:
    """The value of exactly this type that a key stands for."""
    array = domain_of(type).array([key])
    return array[0] if array.type == type else array.cast(type)[0]


def constant_text(value: pa.Scalar) -> str:
    """A value of any type, which is not NULL, as text.

    A list is a JSON array of texts, a struct one of its fields in their order, and a map one of
    pairs. Raises InvalidInput for a type whose values have no text.
    """
    tree = _tree(value)
    return tree if isinstance(tree, str) else json.dumps(tree, ensure_ascii=False)


def _tree(value: pa.Scalar) -> Any:
    t, type = pa.types, value.type
    if not value.is_valid:
        return None
    if t.is_struct(type):
        return [_tree(value[at]) for at in range(type.num_fields)]
    if t.is_map(type):
        return [[_tree(entry[0]), _tree(entry[1])] for entry in value.values]
    if t.is_nested(type):
        return [_tree(item) for item in value.values]
    domain = domain_of(type)
    if not domain.ordered or isinstance(type, pa.BaseExtensionType):
        raise InvalidInput(f"values of type {type} have no text")
    return value_text(domain.key(value), type)


def read_constant(text: str, type: pa.DataType) -> pa.Scalar:
    """The value of a type that has this `constant_text`. Raises InvalidInput where none has."""
    if not pa.types.is_nested(type):
        return constant_of(read_value(text, type), type)
    try:
        tree = json.loads(text)
        if not isinstance(tree, list):
            raise TypeError("it is not a list")
        return pa.scalar(_python(tree, type), type)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{text!r} is not a value of type {type}: {error}") from None


def _python(tree: Any, type: pa.DataType) -> Any:
    """What Arrow makes a value of a type from."""
    t = pa.types
    if tree is None:
        return None
    if t.is_struct(type):
        pairs = zip(type, tree, strict=True)
        return {field.name: _python(part, field.type) for field, part in pairs}
    if t.is_map(type):
        return [(_python(key, type.key_type), _python(item, type.item_type)) for key, item in tree]
    if t.is_nested(type):
        return [_python(item, type.value_type) for item in tree]
    if not isinstance(tree, str):
        raise TypeError(f"{tree!r} is not text")
    return constant_of(read_value(tree, type), type)


def sql_literal(key: Any, type: pa.DataType) -> str:
    """A constant that our parser, given a column of this type, reads back as this key."""
    t, type = pa.types, domain_of(type).type
    text = value_text(key, type)
    if t.is_boolean(type):
        return text.upper()
    if t.is_floating(type):
        return quote(text) if text.strip("-") in ("NaN", "inf") else text
    if t.is_date64(type) and key % _DAY_MILLISECONDS:
        return f"TIMESTAMP '{timestamp_text(key, 'ms')}'"
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
        # SQL reads a minus sign and digits separately, and these digits alone do not fit.
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


def _shortest(number: float, type: pa.DataType) -> str:
    if type.bit_width == 64:
        return repr(number)
    for digits in range(1, 18):
        text = f"{number:.{digits}g}"
        if pa.scalar(float(text), pa.float64()).cast(type).as_py() == number:
            return repr(float(text))
    return repr(number)
