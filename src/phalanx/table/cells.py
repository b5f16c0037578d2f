"""Values of rows as text for people, and as JSON for machines.

Text never holds a control character: a value cannot move the cursor, color the screen or break the
line. JSON holds every value: what JSON has no form for is written as text.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

#: A longer text is cut in tables; JSON has all of it.
WIDEST = 60


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch as Python values. Timestamps that Python cannot hold become text."""
    columns = [(field.name, _values(batch.column(n))) for n, field in enumerate(batch.schema)]
    return [{name: values[row] for name, values in columns} for row in range(batch.num_rows)]


def _values(array: pa.Array) -> list[Any]:
    try:
        # Nanoseconds need pandas, and lose digits without it.
        if not _has_nanoseconds(array.type):
            return list(array.to_pylist())
    except (ValueError, OverflowError):
        pass  # before the year 1 or after 9999
    return [_python(scalar) for scalar in array]


def _has_nanoseconds(type: pa.DataType) -> bool:
    if pa.types.is_timestamp(type) or pa.types.is_duration(type) or pa.types.is_time64(type):
        return bool(type.unit == "ns")
    return any(_has_nanoseconds(type.field(n).type) for n in range(type.num_fields))


def _python(scalar: pa.Scalar) -> Any:
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        return {name: _python(scalar[name]) for name in scalar.keys()}  # noqa: SIM118
    if isinstance(scalar, pa.ListScalar):  # lists of every kind, and maps
        return [_python(item) for item in scalar.values]
    try:
        return str(scalar.cast(pa.string())) if _has_nanoseconds(scalar.type) else scalar.as_py()
    except (ValueError, OverflowError):
        return str(scalar.cast(pa.string()))


def json_value(value: Any) -> Any:
    """A value in the terms of JSON; anything else becomes text."""
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case Mapping():
            return {str(key): json_value(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [json_value(item) for item in value]
    return str(value)


def cell_text(value: Any, widest: int | None = WIDEST) -> str:
    """A value as one line of text."""
    match value:
        case None:
            text = "NULL"
        case bool():
            text = str(value).lower()
        case bytes():
            text = "0x" + value[:widest].hex()
        case dt.datetime():
            text = value.isoformat(" ")
        case dict():
            text = ", ".join(f"{key}: {cell_text(item, None)}" for key, item in value.items())
            text = f"{{{text}}}"
        case list():
            shown = [cell_text(item, None) for item in value[:8]]
            text = f"[{', '.join(shown)}{', …' if len(value) > 8 else ''}]"
        case _:
            text = str(value)
    text = harmless(text)
    return text if widest is None or len(text) <= widest else text[: widest - 1] + "…"


def harmless(text: str) -> str:
    """A text without control characters: they are shown by their numbers."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
