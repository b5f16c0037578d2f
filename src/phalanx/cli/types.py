"""Columns as people declare them in a shell: `id BIGINT NOT NULL`, `v vector(768)`."""

from __future__ import annotations

import re

import pyarrow as pa

from phalanx.errors import InvalidInput

_COLUMN = re.compile(
    r'\s*(?P<name>"(?:[^"]|"")+"|[^\s"]+)\s+(?P<type>.+?)(?P<required>\s+NOT\s+NULL)?\s*',
    re.IGNORECASE | re.DOTALL,
)
_DECIMAL = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\)")
_VECTOR = re.compile(r"vector\s*\(\s*(\d{1,6})\s*\)")
_ARRAY = re.compile(r"array\s*<(.+)>", re.DOTALL)

#: The words of SQL, as Spark understands them.
_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    **dict.fromkeys(("string", "text", "varchar"), pa.string()),
    **dict.fromkeys(("binary", "blob"), pa.binary()),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def schema_of(columns: tuple[str, ...]) -> pa.Schema:
    """The schema that columns in SQL declare. Raises InvalidInput for any other text."""
    return pa.schema([_field(text) for text in columns])


def _field(text: str) -> pa.Field:
    match = _COLUMN.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{text!r} is not a column: write it like 'id BIGINT NOT NULL'")
    name = match["name"]
    if name.startswith('"'):
        name = name[1:-1].replace('""', '"')
    return pa.field(name, type_of(match["type"]), nullable=match["required"] is None)


def type_of(text: str) -> pa.DataType:
    """A type by its name in SQL or in Arrow. Raises InvalidInput for any other text."""
    word = text.strip().lower()
    if word in _TYPES:
        return _TYPES[word]
    try:
        if (match := _DECIMAL.fullmatch(word)) is not None:
            return pa.decimal128(int(match[1]), int(match[2] or 0))
        if (match := _VECTOR.fullmatch(word)) is not None:
            return pa.list_(pa.float32(), int(match[1]))
        if (match := _ARRAY.fullmatch(word)) is not None:
            return pa.list_(type_of(match[1]))
        return pa.type_for_alias(word)
    except ValueError:
        raise InvalidInput(
            f"unknown type {text.strip()!r}: write one such as BIGINT, DOUBLE, STRING, TIMESTAMP, "
            "DATE, DECIMAL(10, 2), ARRAY<STRING> or VECTOR(768)"
        ) from None
