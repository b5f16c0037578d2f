"""Types of Spark and of Arrow, both ways, and the casts between their values.

Spark's side is the JSON that Spark itself writes for a type. Where Spark has no such type, the
nearest one that holds every value is used; values are checked where even that could lose some.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import InvalidInput
from phalanx.model.properties import VECTOR_DIMENSION
from phalanx.model.schema import default_of, with_default

#: A type or schema as Spark writes it in JSON.
SparkType = str | dict[str, Any]

_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_TIME = re.compile(r"time\((\d+)\)")
_TEXT = re.compile(r"((var)?char\(\d+\)|string)( collate UTF8_BINARY)?")
_COLLATIONS = "__COLLATIONS"
#: Where Spark keeps the default of a column: for new rows without it, and for existing ones.
_DEFAULTS = ("CURRENT_DEFAULT", "EXISTS_DEFAULT")
_DAY_TIME = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")
_MOST_DIGITS = 38
#: Where a column's comment is kept, and the rest of its Spark metadata.
COMMENT = "comment"
SPARK_METADATA = "spark:metadata"
#: The column's Spark type, where it is narrower than the Arrow type: `varchar(10)`.
SPARK_TYPE = "spark:type"

_TO_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_FROM_ARROW: dict[pa.DataType, str] = {
    **{type: name for name, type in _TO_ARROW.items()},
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.uint64(): "decimal(20,0)",
    pa.float16(): "float",
    pa.large_string(): "string",
    pa.large_binary(): "binary",
    pa.date64(): "date",
    pa.null(): "void",
}


# From Spark


def arrow_type(kind: SparkType, column: str) -> pa.DataType:
    """The Arrow type that holds a Spark type. Raises InvalidInput, with the column's name."""
    if isinstance(kind, str):
        if kind in _TO_ARROW:
            return _TO_ARROW[kind]
        if match := _DECIMAL.fullmatch(kind):
            return pa.decimal128(int(match[1]), int(match[2]))
        if match := _TIME.fullmatch(kind):
            return pa.time64("us" if int(match[1]) <= 6 else "ns")
        if _TEXT.fullmatch(kind):
            return pa.string()
        if _DAY_TIME.fullmatch(kind):
            return pa.duration("us")
        raise InvalidInput(f"column {column!r} has the type {kind}, which Lance cannot store")
    match kind["type"]:
        case "array":
            element = arrow_type(kind["elementType"], f"{column}.element")
            return pa.list_(pa.field("item", element, kind["containsNull"]))
        case "map":
            key = arrow_type(kind["keyType"], f"{column}.key")
            value = arrow_type(kind["valueType"], f"{column}.value")
            return pa.map_(key, pa.field("value", value, kind["valueContainsNull"]))
        case "struct":
            if not kind["fields"]:
                raise InvalidInput(f"column {column!r} is a struct without fields")
            return pa.struct([arrow_field(field, f"{column}.") for field in kind["fields"]])
        case other:
            raise InvalidInput(f"column {column!r} has the type {other}, which Lance cannot store")


def arrow_field(field: Mapping[str, Any], prefix: str = "") -> pa.Field:
    """A column or field of a struct. Raises InvalidInput where it cannot be stored."""
    name = field["name"]
    metadata = dict(field.get("metadata") or {})
    kept = {}
    if "comment" in metadata:
        kept[COMMENT] = metadata.pop("comment")
    for key in _DEFAULTS:
        metadata.pop(key, None)
    if metadata:
        kept[SPARK_METADATA] = json.dumps(metadata)
    for collation in metadata.get(_COLLATIONS, {}).values():
        if not collation.endswith("UTF8_BINARY"):
            raise InvalidInput(
                f"column {prefix + name!r} has the collation {collation}: a table compares "
                "strings by their bytes, so leave it out and use COLLATE in queries"
            )
    type = arrow_type(field["type"], prefix + name)
    # Strings are compared by bytes in any case, and Spark cannot parse a type that says so.
    declared = json.dumps(field["type"]).replace(" collate UTF8_BINARY", "")
    if json.dumps(spark_type(type, name)) != declared:
        kept[SPARK_TYPE] = declared
    return pa.field(name, type, field["nullable"], kept or None)


def arrow_schema(
    struct: Mapping[str, Any],
    properties: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> pa.Schema:
    """The schema of a new table. `vector.<column>.dimension` makes an array a vector."""
    fields = [arrow_field(field) for field in struct["fields"]]
    names = [field.name for field in fields]
    for name, dimension in VECTOR_DIMENSION.by_column(properties or {}).items():
        if name not in names:
            raise InvalidInput(
                f"the property vector.{name}.dimension names no column: there is {', '.join(names)}"
            )
        at = names.index(name)
        fields[at] = fields[at].with_type(_vector(fields[at].type, name, dimension))
    for name, default in (defaults or {}).items():
        at = names.index(name)
        fields[at] = with_default(fields[at], constant(default, fields[at].type))
    return pa.schema(fields)


def _vector(type: pa.DataType, column: str, dimension: int | None) -> pa.DataType:
    if not pa.types.is_list(type) or not pa.types.is_floating(type.value_type):
        raise InvalidInput(f"column {column!r} is no vector: one is ARRAY<FLOAT> or ARRAY<DOUBLE>")
    return pa.list_(pa.field("item", type.value_type), dimension)


# To Spark


def spark_type(type: pa.DataType, column: str) -> SparkType:
    """The nearest Spark type that loses nothing. Raises InvalidInput, with the column's name."""
    t = pa.types
    if isinstance(type, pa.BaseExtensionType):
        return spark_type(type.storage_type, column)
    if type in _FROM_ARROW:
        return _FROM_ARROW[type]
    if t.is_timestamp(type):
        return "timestamp_ntz" if type.tz is None else "timestamp"
    if t.is_time(type):
        return "time(9)" if type == pa.time64("ns") else "time(6)"
    if t.is_duration(type):
        return "interval day to second"
    if t.is_fixed_size_binary(type):
        return "binary"
    if t.is_decimal(type) and type.precision <= _MOST_DIGITS and 0 <= type.scale <= type.precision:
        return f"decimal({type.precision},{type.scale})"
    if t.is_dictionary(type):
        return spark_type(type.value_type, column)
    if t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type):
        element = spark_type(type.value_type, f"{column}.element")
        return {
            "type": "array",
            "elementType": element,
            "containsNull": type.value_field.nullable,
        }
    if t.is_map(type):
        return {
            "type": "map",
            "keyType": spark_type(type.key_type, f"{column}.key"),
            "valueType": spark_type(type.item_type, f"{column}.value"),
            "valueContainsNull": type.item_field.nullable,
        }
    if t.is_struct(type):
        return {"type": "struct", "fields": [_spark_field(field, f"{column}.") for field in type]}
    raise InvalidInput(
        f"column {column!r} has the Arrow type {type}, which Spark cannot hold without loss"
    )


def _spark_field(field: pa.Field, prefix: str = "") -> dict[str, Any]:
    kept = {
        key.decode(): value.decode(errors="replace")
        for key, value in (field.metadata or {}).items()
        if key.decode() in (COMMENT, SPARK_METADATA, SPARK_TYPE)
    }
    metadata = json.loads(kept.get(SPARK_METADATA, "{}"))
    if COMMENT in kept:
        metadata["comment"] = kept[COMMENT]
    default = default_of(field)
    if default is not None:
        metadata |= dict.fromkeys(_DEFAULTS, _sql(default))
    return {
        "name": field.name,
        "type": _declared(field, kept.get(SPARK_TYPE))
        or spark_type(field.type, prefix + field.name),
        "nullable": field.nullable,
        "metadata": metadata,
    }


def _declared(field: pa.Field, text: str | None) -> SparkType | None:
    """The type that a column was declared with in Spark, if it still fits the column."""
    if text is None:
        return None
    declared: SparkType = json.loads(text)
    return declared if arrow_type(declared, field.name) == field.type else None


def constant(literal: Mapping[str, Any], type: pa.DataType) -> pa.Scalar:
    """A constant of Spark, which comes in JSON. Raises InvalidInput where it does not fit."""
    value, kind = literal["value"], json.loads(literal["type"])
    wanted = exchange_type(kind) if kind != "void" else type
    t = pa.types
    try:
        if value is None:
            return pa.scalar(None, type)
        if t.is_date(wanted) or t.is_timestamp(wanted):
            number = pa.int32() if t.is_date(wanted) else pa.int64()
            return pa.scalar(int(value), number).cast(wanted).cast(type)
        if t.is_time(wanted):  # nanoseconds, whatever the precision
            return pa.scalar(int(value), pa.int64()).cast(pa.time64("ns")).cast(type)
        if t.is_integer(wanted):
            return pa.scalar(int(value), wanted).cast(type)
        if t.is_floating(wanted):
            return pa.scalar(float(value), wanted).cast(type)
        if t.is_decimal(wanted):
            return pa.scalar(Decimal(value), wanted).cast(type)
        if t.is_binary(wanted) or t.is_large_binary(wanted):
            return pa.scalar(base64.b64decode(value), wanted).cast(type)
        return pa.scalar(value, wanted).cast(type)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidInput(f"the default {value!r} does not fit {type}: {error}") from None


def _sql(value: pa.Scalar) -> str:
    """A constant as Spark reads it."""
    t, type = pa.types, value.type
    if t.is_boolean(type):
        return str(value.as_py()).lower()
    if t.is_binary(type) or t.is_large_binary(type) or t.is_fixed_size_binary(type):
        return f"X'{value.as_py().hex()}'"
    text = value.as_py() if t.is_string(type) else str(value.cast(pa.string()).as_py())
    text = text.replace("\\", "\\\\").replace("'", "\\'")
    if t.is_string(type) or t.is_large_string(type):
        return f"'{text}'"
    if t.is_time(type):
        return f"TIME '{text}'"
    name = spark_type(type, "the default")
    return f"CAST('{text}' AS {_SQL_NAMES.get(str(name), name)})"


#: Types whose names in JSON are not those in SQL.
_SQL_NAMES = {"long": "bigint", "byte": "tinyint", "short": "smallint", "integer": "int"}


def spark_schema(schema: pa.Schema) -> dict[str, Any]:
    """A table's schema as Spark sees it."""
    return {"type": "struct", "fields": [_spark_field(field) for field in schema]}


# Values


def is_finer(type: pa.DataType) -> bool:
    """Whether values may be finer than Spark's microseconds."""
    t = pa.types
    return bool(t.is_timestamp(type) or t.is_time(type)) and type.unit == "ns"


def exchange_type(kind: SparkType) -> pa.DataType:
    """The Arrow type in which Spark takes values of one of its types."""
    if isinstance(kind, str):
        if kind == "void":
            return pa.null()
        if _TIME.fullmatch(kind):
            return pa.time64("ns")
        return arrow_type(kind, "")
    match kind["type"]:
        case "array":
            element = exchange_type(kind["elementType"])
            return pa.list_(pa.field("element", element, kind["containsNull"]))
        case "map":
            value = exchange_type(kind["valueType"])
            return pa.map_(
                exchange_type(kind["keyType"]),
                pa.field("value", value, kind["valueContainsNull"]),
            )
        case _:
            fields = kind["fields"]
            return pa.struct(
                [pa.field(f["name"], exchange_type(f["type"]), f["nullable"]) for f in fields]
            )


def cast(array: pa.Array, type: pa.DataType, column: str) -> pa.Array:
    """Values in another type, one by one the same. Raises InvalidInput where one is not."""
    if array.type == type:
        return array
    try:
        return _cast(array, type)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InvalidInput(
            f"column {column!r} holds a value of {array.type} that {type} cannot: {error}"
        ) from None


def _cast(array: pa.Array, type: pa.DataType) -> pa.Array:
    if array.type == type:
        return array
    t = pa.types
    source = array.type
    if isinstance(source, pa.BaseExtensionType):
        return _cast(array.storage, type)
    if isinstance(type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type, _cast(array, type.storage_type))
    if t.is_dictionary(source):
        return _cast(array.dictionary_decode(), type)
    if t.is_dictionary(type):
        return _cast(array, type.value_type).dictionary_encode().cast(type)
    if t.is_struct(source) and t.is_struct(type):
        children = [_cast(array.field(field.name), field.type) for field in type]
        return pa.StructArray.from_arrays(children, fields=list(type), mask=_nulls(array))
    if t.is_fixed_size_list(type):
        return _fixed(array, type)
    if _is_list(source) and _is_list(type):
        return _listed(array, type)
    if t.is_map(source) and t.is_map(type):
        keys, items = _cast(array.keys, type.key_type), _cast(array.items, type.item_type)
        offsets = _offsets(array, pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, items, type, mask=_nulls(array))
    if t.is_float16(type):
        narrowed = array.cast(type)
        if not pc.all(
            pc.or_(pc.is_nan(array), pc.equal(narrowed.cast(source), array)), min_count=0
        ).as_py():
            raise ValueError("it has more digits")
        return narrowed
    return array.cast(type)


def _is_list(type: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type))


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _offsets(array: pa.Array, type: pa.DataType) -> pa.Array:
    """The offsets of a list or map, as an array of its own and not a part of a longer one."""
    return pa.array(array.offsets.cast(type).to_numpy(), type)


def _listed(array: pa.Array, type: pa.DataType) -> pa.Array:
    large = pa.types.is_large_list(type)
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    values = _cast(array.values, type.value_type)
    offsets = _offsets(array, pa.int64() if large else pa.int32())
    kind = pa.LargeListArray if large else pa.ListArray
    # NULLs are said by a mask: a list that is NULL may still cover values.
    return kind.from_arrays(offsets, values, type=type, mask=_nulls(array))


def _fixed(array: pa.Array, type: pa.DataType) -> pa.Array:
    size = type.list_size
    lengths = pc.list_value_length(array)
    wrong = pc.any(pc.not_equal(lengths, size)).as_py()
    if wrong:
        raise ValueError(f"every list must have {size} items")
    if array.null_count:
        filler = pa.scalar([0] * size, array.type)
        filled = array.fill_null(filler)
    else:
        filled = array
    values = _cast(filled.flatten(), type.value_type)
    return pa.FixedSizeListArray.from_arrays(values, type=type, mask=_nulls(array))
