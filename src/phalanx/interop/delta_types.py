"""Columns of a table as columns of a Delta table.

| type                                    | in Delta                                        |
|-----------------------------------------|-------------------------------------------------|
| bool, int8 to int64, float, double      | boolean, byte to long, float, double            |
| uint8, uint16, uint32, uint64           | short, integer, long, decimal(20, 0)            |
| float16                                 | float                                           |
| decimals of up to 38 digits             | decimal                                         |
| strings                                 | string                                          |
| binary of all kinds                     | binary                                          |
| date32, date64 (whole days)             | date                                            |
| timestamp with, without zone            | timestamp, timestamp_ntz, both in microseconds  |
| lists of all kinds, struct, map         | array, struct, map                              |
| dictionary, extension types             | what they hold                                  |
| time, duration, null, longer decimals,  | refused                                         |
| negative scales                         |                                                 |

Nanoseconds that are no whole microseconds are refused as well, when they are met.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.interop.types import whole_days
from phalanx.model.schema import TableSchema
from phalanx.model.spelling import value_text
from phalanx.model.statistics import ColumnStatistics, Statistics

#: Characters that names of columns cannot have without column mapping.
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
_INTEGERS = {8: "byte", 16: "short", 32: "integer", 64: "long"}
_MILLISECOND = 1_000


def stored_field(field: pa.Field) -> pa.Field:
    """A column as it is stored in the files of a Delta table.

    Raises InvalidInput for a name or a type that Delta does not have.
    """
    return _stored(field, field.name)


def _stored(field: pa.Field, path: str) -> pa.Field:
    if _FORBIDDEN.search(field.name):
        raise InvalidInput(
            f"column {path!r}: names in Delta have no space and none of ,;{{}}()= in them: rename "
            "the column"
        )
    return pa.field(field.name, _stored_type(field.type, path), field.nullable)


def _stored_type(type: pa.DataType, path: str) -> pa.DataType:
    t = pa.types
    if isinstance(type, pa.BaseExtensionType):
        return _stored_type(type.storage_type, path)
    if t.is_dictionary(type):
        return _stored_type(type.value_type, path)
    if t.is_boolean(type) or t.is_signed_integer(type) or type in (pa.float32(), pa.float64()):
        return type
    if t.is_unsigned_integer(type):
        wider = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}
        return wider[type.bit_width]
    if t.is_float16(type):
        return pa.float32()
    if t.is_decimal(type) and type.precision <= 38 and type.scale >= 0:
        return pa.decimal128(type.precision, type.scale)
    if t.is_string(type) or t.is_large_string(type):
        return pa.string()
    if t.is_binary(type) or t.is_large_binary(type) or t.is_fixed_size_binary(type):
        return pa.binary()
    if t.is_date(type):
        return pa.date32()
    if t.is_timestamp(type):
        return pa.timestamp("us", None if type.tz is None else "UTC")
    if t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type):
        inner = type.value_field
        element = _stored_type(inner.type, f"{path}.element")
        return pa.list_(pa.field("element", element, inner.nullable))
    if t.is_struct(type):
        return pa.struct([_stored(inner, f"{path}.{inner.name}") for inner in type])
    if t.is_map(type):
        item = type.item_field
        value = pa.field("value", _stored_type(item.type, f"{path}.value"), item.nullable)
        return pa.map_(_stored_type(type.key_type, f"{path}.key"), value)
    raise InvalidInput(
        f"column {path!r} is {type}, which Delta does not have: drop it or change its type first"
    )


def stored_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Values as they are stored. Raises InvalidInput where one would change."""
    column = whole_days(column, field)
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array(
            [chunk.storage for chunk in column.chunks], column.type.storage_type
        )
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise InvalidInput(
            f"column {field.name!r} does not fit {field.type}, the type that Delta has for it: "
            f"{error}"
        ) from None


def schema_json(schema: pa.Schema) -> str:
    """The schema of a Delta table, for columns that `stored_field` has made."""
    return json.dumps(_struct_json(schema), ensure_ascii=False)


def _struct_json(fields: Any) -> dict[str, Any]:
    listed = [
        {
            "name": field.name,
            "type": _type_json(field.type),
            "nullable": field.nullable,
            "metadata": {},
        }
        for field in fields
    ]
    return {"type": "struct", "fields": listed}


def _type_json(type: pa.DataType) -> Any:
    t = pa.types
    if t.is_signed_integer(type):
        return _INTEGERS[type.bit_width]
    if t.is_decimal(type):
        return f"decimal({type.precision},{type.scale})"
    if t.is_timestamp(type):
        return "timestamp_ntz" if type.tz is None else "timestamp"
    if t.is_struct(type):
        return _struct_json(type)
    if t.is_list(type):
        inner = type.value_field
        return {
            "type": "array",
            "elementType": _type_json(inner.type),
            "containsNull": inner.nullable,
        }
    if t.is_map(type):
        return {
            "type": "map",
            "keyType": _type_json(type.key_type),
            "valueType": _type_json(type.item_type),
            "valueContainsNull": type.item_field.nullable,
        }
    return {
        pa.bool_(): "boolean",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.binary(): "binary",
        pa.date32(): "date",
    }[type]


def has_unzoned(type: pa.DataType) -> bool:
    """Whether there is a timestamp without a zone in a type, for which readers need a feature."""
    if pa.types.is_timestamp(type) and type.tz is None:
        return True
    return any(has_unzoned(type.field(at).type) for at in range(type.num_fields))


def partition_value(text: str | None, field: pa.Field) -> str | None:
    """A partition value as the log has it; None is NULL.

    Raises InvalidInput for the empty string, which is NULL in a log.
    """
    if text is None:
        return None
    t = pa.types
    if not text:
        raise InvalidInput(
            f"column {field.name!r} has the empty string as a partition value, which Delta takes "
            "for NULL: leave the column out of partition_by"
        )
    if t.is_floating(field.type) and text.endswith("inf"):
        return text.replace("inf", "Infinity")
    if t.is_timestamp(field.type) and field.type.tz is None:
        return text.replace("T", " ")
    return text


def stats_json(rows: int, statistics: Statistics, schema: TableSchema) -> str:
    """The statistics of a file. A bound that JSON cannot hold exactly is left out."""
    stats: dict[str, Any] = {"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for id, column in statistics.items():
        name, type = schema.columns[id].path[0], schema.columns[id].type
        if column.null_count is not None and not pa.types.is_nested(type):
            stats["nullCount"][name] = column.null_count
        bounds = _bounds(column, type)
        if bounds is not None:
            stats["minValues"][name], stats["maxValues"][name] = bounds
    return json.dumps(stats, ensure_ascii=False, allow_nan=False)


def _bounds(column: ColumnStatistics, type: pa.DataType) -> tuple[Any, Any] | None:
    t = pa.types
    low, high = column.low, column.high
    if low is None or high is None or column.has_nan or t.is_nested(type):
        # NaN is above all numbers, and no bound can say so.
        return None
    if t.is_integer(type):
        return low, high
    if t.is_floating(type):
        bounds = tuple(float(value_text(key, pa.float64())) for key in (low, high))
        return None if float("inf") in map(abs, bounds) else (bounds[0], bounds[1])
    if t.is_decimal(type):
        exact = [Decimal(value_text(key, type)) for key in (low, high)]
        numbers = [float(number) for number in exact]
        if [Decimal(repr(number)) for number in numbers] != exact:
            return None
        return numbers[0], numbers[1]
    if t.is_string(type):
        return low, high
    if t.is_timestamp(type):
        # Bounds have milliseconds.
        low, high = low // _MILLISECOND, -(-high // _MILLISECOND)
        type = pa.timestamp("ms", type.tz)
    if t.is_date(type) or t.is_timestamp(type):
        texts = value_text(low, type), value_text(high, type)
        if any(text.startswith(("+", "-")) for text in texts):
            return None
        return texts
    return None
