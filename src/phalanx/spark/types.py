"""Types of Spark and of Arrow, both ways, and the casts between their values.

Spark's side is the JSON that Spark itself writes for a type. Where Spark has no such type, the
nearest one that holds every value is used; values are checked where even that could lose some.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import InvalidInput
from phalanx.model.calendar import PER_SECOND
from phalanx.model.defaults import (
    Default,
    default_of,
    new_default_of,
    with_default,
    with_new_default,
)
from phalanx.model.domains import domain_of
from phalanx.model.literals import clock_text
from phalanx.model.properties import VECTOR_DIMENSION
from phalanx.model.schema import FIELD_ID
from phalanx.model.spelling import value_text
from phalanx.spark import features

#: A type or schema as Spark writes it in JSON.
SparkType = str | dict[str, Any]

_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_TIME = re.compile(r"time\((\d+)\)")
_TEXT = re.compile(r"((var)?char\(\d+\)|string)( collate UTF8_BINARY)?")
_COLLATIONS = "__COLLATIONS"
#: Where Spark keeps the default of a column: SQL for new rows without it, and a constant, also as
#: SQL, for existing ones.
_CURRENT, _EXISTS = "CURRENT_DEFAULT", "EXISTS_DEFAULT"
#: Where Spark keeps the id of a field, which it compares with the one that a query was made for.
_ID = "__FIELD_ID"
_DAY_TIME = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")
_MOST_DIGITS = 38
#: How Spark's VARIANT lies in Arrow, and in files: its binary, in two parts. Where Spark takes
#: values, the second part says what the struct is.
_VARIANT = "variant"
_VARIANT_PARTS = (
    pa.field("value", pa.binary(), False),
    pa.field("metadata", pa.binary(), False),
)
_MARK = {b"variant": b"true"}
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
        if kind == _VARIANT:
            return pa.struct(_VARIANT_PARTS)
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
    for key in (_CURRENT, _EXISTS, _ID):
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
    defaults: Mapping[str, ColumnDefault] | None = None,
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
        value = constant(default, fields[at].type, name)
        if default.constant:
            fields[at] = with_default(fields[at], value)
        fields[at] = with_new_default(fields[at], default.of(value))
    return pa.schema(fields)


def _vector(type: pa.DataType, column: str, dimension: int | None) -> pa.DataType:
    if not pa.types.is_list(type) or not pa.types.is_floating(type.value_type):
        raise InvalidInput(f"column {column!r} is not a vector, an ARRAY<FLOAT> or ARRAY<DOUBLE>")
    return pa.list_(pa.field("item", type.value_type), dimension)


# To Spark


def _spark_time(type: pa.DataType, column: str) -> SparkType:
    finest = type == pa.time64("ns")
    lacking = features.lacking("time_in_nanoseconds" if finest else "time")
    if lacking:
        raise InvalidInput(f"column {column!r} is of the type {type}, and {lacking}")
    return "time(9)" if finest else "time(6)"


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
        return _spark_time(type, column)
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
    id = (field.metadata or {}).get(FIELD_ID)
    if id is not None:
        metadata[_ID] = id.decode()
    default = new_default_of(field)
    if default is not None:
        existing = default_of(field)
        metadata[_CURRENT] = default.sql or spark_sql(default.value)
        metadata[_EXISTS] = "NULL" if existing is None else spark_sql(existing)
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


# Defaults


@dataclass(frozen=True)
class ColumnDefault:
    """The default of a column, as Spark knows it."""

    #: As it was written.
    sql: str
    #: Its value when it was written, and its type, as Spark's JSON.
    value: Any
    type: str
    #: Whether it has this value in every statement.
    constant: bool

    def of(self, value: pa.Scalar) -> Default:
        """The default that a table keeps; `value` is this one's as a `constant`."""
        return Default(value if self.constant else None, self.sql)


def constant(default: ColumnDefault, type: pa.DataType | None, column: str) -> pa.Scalar:
    """The value of a default, in a type or in its own. Raises InvalidInput where it does not fit.

    In JSON, a struct is a list of its fields, and a map a list of pairs.
    """
    kind = json.loads(default.type)
    own = exchange_type(kind) if kind != "void" or type is None else type
    array = pa.array([_python(default.value, own)], own)
    return array[0] if type is None else cast(array, type, column)[0]


def _python(value: Any, type: pa.DataType) -> Any:
    """A value of Spark, which comes in JSON, as Arrow takes it."""
    t = pa.types
    if value is None:
        return None
    if t.is_struct(type):
        return {f.name: _python(part, f.type) for f, part in zip(type, value, strict=True)}
    if t.is_map(type):
        return [(_python(key, type.key_type), _python(item, type.item_type)) for key, item in value]
    if _is_list(type):
        return [_python(item, type.value_type) for item in value]
    if t.is_integer(type) or t.is_temporal(type):
        return int(value)
    if t.is_floating(type):
        return float(value)
    if t.is_decimal(type):
        return Decimal(value)
    return base64.b64decode(value) if t.is_binary(type) else value


#: What follows a number inside of another value, where Spark does not cast it to the right type.
_SUFFIXES = {"byte": "Y", "short": "S", "long": "L", "decimal(20,0)": "BD"}


def spark_sql(value: pa.Scalar, inside: bool = False) -> str:
    """A constant as SQL that Spark reads back as this value, escaped strings or not.

    At the top Spark casts a number to the type of the column, and `inside` of another value not.
    """
    t, type = pa.types, value.type
    if not value.is_valid:
        return "NULL"
    if t.is_struct(type):
        names = [_quoted(type.field(at).name) for at in range(type.num_fields)]
        parts = [f"{name}, {spark_sql(value[at], True)}" for at, name in enumerate(names)]
        return f"named_struct({', '.join(parts)})"
    if t.is_map(type):
        parts = [spark_sql(entry[at], True) for entry in value.values for at in (0, 1)]
        return f"map({', '.join(parts)})"
    if _is_list(type):
        return f"array({', '.join(spark_sql(item, True) for item in value.values)})"
    if t.is_float16(type):
        return spark_sql(value.cast(pa.float32()), inside)
    domain = domain_of(type)
    key, type = domain.key(value), domain.type
    if t.is_duration(type):
        return _interval(key * 1_000_000 // PER_SECOND[type.unit])
    text = value_text(key, type)
    if t.is_boolean(type):
        return text.upper()
    if t.is_integer(type):
        return text + _SUFFIXES.get(str(spark_type(type, "")), "") if inside else text
    if t.is_decimal(type):
        return f"{text}BD" if inside else text
    if t.is_floating(type):
        return _float(text, type)
    if t.is_date(type):
        return f"DATE '{text}'"
    if t.is_timestamp(type):
        name = "TIMESTAMP_NTZ" if type.tz is None else "TIMESTAMP"
        return f"{name} '{text.replace('T', ' ')}'"
    if t.is_time(type):
        return f"TIME '{text}'"
    return f"X'{text}'" if isinstance(key, bytes) else _quoted(text)


def _float(text: str, type: pa.DataType) -> str:
    name, suffix = ("DOUBLE", "D") if pa.types.is_float64(type) else ("FLOAT", "F")
    if text.strip("-") in ("NaN", "inf"):
        return f"CAST('{text.replace('inf', 'Infinity')}' AS {name})"
    return text + suffix


def _interval(microseconds: int) -> str:
    days, rest = divmod(abs(microseconds), 86_400_000_000)
    sign = "-" if microseconds < 0 else ""
    return f"INTERVAL '{sign}{days} {clock_text(rest, 1_000_000)}' DAY TO SECOND"


def _quoted(text: str) -> str:
    """A string. What a quote and a backslash mean inside of one depends on the session's confs."""
    parts = re.split(r"(['\\])", text)
    if len(parts) == 1:
        return f"'{text}'"
    special = ("'", "\\")
    spelled = (f"chr({ord(part)})" if part in special else f"'{part}'" for part in parts if part)
    return f"concat({', '.join(spelled)})"


def spark_schema(schema: pa.Schema) -> dict[str, Any]:
    """A table's schema as Spark sees it; with the ids of fields, where they have some."""
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
        if kind == _VARIANT:
            value, metadata = _VARIANT_PARTS
            return pa.struct([value, metadata.with_metadata(_MARK)])
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
    if _is_like(array.type, type):
        return array
    try:
        return _cast(array, type)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InvalidInput(
            f"column {column!r} holds a value of {array.type} that {type} cannot: {error}"
        ) from None


def _holds_variants(type: pa.DataType) -> bool:
    """Whether a type has marks of Spark's VARIANT, which Arrow leaves out when it compares."""
    children = [type.field(at) for at in range(type.num_fields)] if pa.types.is_nested(type) else []
    return any((child.metadata or {}) == _MARK or _holds_variants(child.type) for child in children)


def _is_like(type: pa.DataType, wanted: pa.DataType) -> bool:
    return bool(type == wanted) and not _holds_variants(wanted)


def _cast(array: pa.Array, type: pa.DataType) -> pa.Array:
    if _is_like(array.type, type):
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
