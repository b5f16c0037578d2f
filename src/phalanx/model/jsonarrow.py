"""pyarrow types, fields and schemas as JSON, and back, without loss.

The JSON is the JsonArrow dialect of the Lance namespace specification: a data type is an object
`{"type": name, "fields"?: [...], "length"?: int}`. The dialect alone forgets parts of some types.
What it forgets is written to further keys of the same object, which other clients ignore:

    type                         JSON
    ---------------------------  ---------------------------------------------------------------
    null, bool, int8 … uint64,   {"type": "int64"}, …; string is "utf8", large_string "large_utf8"
    float16 … float64, string,
    large_string, binary,
    large_binary, date32, date64
    string_view, binary_view     {"type": "utf8", "view": true}, {"type": "binary", "view": true}
    fixed_size_binary            {"type": "fixed_size_binary", "length": bytes}
    decimal32, 64, 128, 256      {"type": "decimal128", "length": precision * 1000 + scale}
    timestamp                    {"type": "timestamp", "unit": "us", "timezone"?: "UTC"}
    time32, time64, duration     {"type": "time64", "unit": "us"}, …
    list, large_list             {"type": "list", "fields": [item]}
    fixed_size_list              {"type": "fixed_size_list", "fields": [item], "length": items}
    struct                       {"type": "struct", "fields": [...]}
    map                          {"type": "map", "fields": [entries], "keys_sorted"?: true} with
                                 entries a struct of key and value
    dictionary                   the value's type with
                                 "dictionary": {"index": "int32", "ordered": false}
    extension type of a field    the storage's type; name and parameters go to the field's
                                 metadata, as `ARROW:extension:name` and `…:metadata`
    extension type elsewhere     the storage's type with
                                 "extension": {"name": "arrow.uuid", "metadata": ""}

Where the unit is missing, as other clients leave it, it is microseconds, but milliseconds for
time32, and a timestamp has no zone. Type names are read in any case, and "boolean" is "bool".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from phalanx.errors import InvalidInput

__all__ = ["schema_from_json", "schema_to_json", "type_from_json", "type_to_json"]

JsonObject: TypeAlias = dict[str, Any]

_Path: TypeAlias = tuple[str, ...]
"""The names of the fields around the place that is being converted, for messages."""

_EXTENSION_NAME = "ARROW:extension:name"
_EXTENSION_METADATA = "ARROW:extension:metadata"

_PLAIN_TYPES = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "utf8": pa.string(),
    "large_utf8": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "date32": pa.date32(),
    "date64": pa.date64(),
}
_PLAIN_NAMES = {type_: name for name, type_ in _PLAIN_TYPES.items()}
_VIEW_TYPES = {"utf8": pa.string_view(), "binary": pa.binary_view()}
_VIEW_NAMES = {type_: name for name, type_ in _VIEW_TYPES.items()}
_ALIASES = {"boolean": "bool"}

_DECIMAL_TYPES = {
    "decimal32": pa.decimal32,
    "decimal64": pa.decimal64,
    "decimal128": pa.decimal128,
    "decimal256": pa.decimal256,
}
_MIN_SCALE, _MAX_SCALE = -128, 127

_UNIT_TYPES = {
    "time32": (pa.time32, "ms"),
    "time64": (pa.time64, "us"),
    "duration": (pa.duration, "us"),
}


def schema_to_json(schema: Any) -> JsonObject:
    """Describe a `pa.Schema`, its metadata included.

    Raises:
        InvalidInput: a type that Lance cannot store, or metadata that is not UTF-8.
    """
    result: JsonObject = {"fields": [_field_to_json(field, ()) for field in schema]}
    metadata = _metadata_to_json(schema.metadata, ())
    if metadata:
        result["metadata"] = metadata
    return result


def schema_from_json(value: Mapping[str, Any]) -> pa.Schema:
    """Read what `schema_to_json`, or another client, wrote.

    An extension type that is not registered with pyarrow stays what it is stored as, and its
    name stays in the field's metadata.

    Raises:
        InvalidInput: the value does not describe a schema.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("fields"), list):
        raise InvalidInput("A schema must be an object with a list of `fields`.")
    fields = _fields_from_json(value, ())
    return pa.schema(fields, metadata=_metadata_from_json(value.get("metadata"), ()))


def type_to_json(type_: Any) -> JsonObject:
    """Describe a `pa.DataType`.

    Raises:
        InvalidInput: Lance cannot store the type, or metadata in it is not UTF-8.
    """
    return _type_to_json(type_, ())


def type_from_json(value: Mapping[str, Any]) -> pa.DataType:
    """Read what `type_to_json`, or another client, wrote.

    Raises:
        InvalidInput: the value does not describe a type, or an extension type that is not
            registered with pyarrow.
    """
    return _type_from_json(value, ())


# --- to JSON -------------------------------------------------------------------------------


def _field_to_json(field: Any, parent: _Path) -> JsonObject:
    path = (*parent, field.name)
    type_ = field.type
    metadata = _metadata_to_json(field.metadata, path)
    if isinstance(type_, pa.BaseExtensionType):
        metadata[_EXTENSION_NAME] = type_.extension_name
        metadata[_EXTENSION_METADATA] = extension_metadata(type_, path)
        type_ = type_.storage_type
    result = {
        "name": field.name,
        "nullable": field.nullable,
        "type": _type_to_json(type_, path),
    }
    if metadata:
        result["metadata"] = metadata
    return result


def _type_to_json(type_: Any, path: _Path) -> JsonObject:
    types = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        extension = {
            "name": type_.extension_name,
            "metadata": extension_metadata(type_, path),
        }
        return {**_type_to_json(type_.storage_type, path), "extension": extension}
    if type_ in _PLAIN_NAMES:
        return {"type": _PLAIN_NAMES[type_]}
    if type_ in _VIEW_NAMES:
        return {"type": _VIEW_NAMES[type_], "view": True}
    if types.is_fixed_size_binary(type_):
        return {"type": "fixed_size_binary", "length": type_.byte_width}
    if types.is_decimal(type_):
        return _decimal_to_json(type_, path)
    if types.is_timestamp(type_):
        zone = {"timezone": type_.tz} if type_.tz else {}
        return {"type": "timestamp", "unit": type_.unit, **zone}
    if types.is_time32(type_):
        return {"type": "time32", "unit": type_.unit}
    if types.is_time64(type_):
        return {"type": "time64", "unit": type_.unit}
    if types.is_duration(type_):
        return {"type": "duration", "unit": type_.unit}
    if types.is_list(type_):
        return {"type": "list", "fields": [_field_to_json(type_.value_field, path)]}
    if types.is_large_list(type_):
        return {"type": "large_list", "fields": [_field_to_json(type_.value_field, path)]}
    if types.is_fixed_size_list(type_):
        items = [_field_to_json(type_.value_field, path)]
        return {"type": "fixed_size_list", "fields": items, "length": type_.list_size}
    if types.is_struct(type_):
        return {"type": "struct", "fields": [_field_to_json(child, path) for child in type_]}
    if types.is_map(type_):
        keys_sorted = {"keys_sorted": True} if type_.keys_sorted else {}
        return {"type": "map", "fields": [_field_to_json(type_.field(0), path)], **keys_sorted}
    if types.is_dictionary(type_):
        return _dictionary_to_json(type_, path)
    raise InvalidInput(f"{_name(path)} has the type {type_}, which Lance cannot store.")


def _decimal_to_json(type_: Any, path: _Path) -> JsonObject:
    if not _MIN_SCALE <= type_.scale <= _MAX_SCALE:
        raise InvalidInput(
            f"{_name(path)} is a decimal of scale {type_.scale}; "
            f"Lance stores scales from {_MIN_SCALE} to {_MAX_SCALE}."
        )
    return {"type": f"decimal{type_.bit_width}", "length": type_.precision * 1000 + type_.scale}


def _dictionary_to_json(type_: Any, path: _Path) -> JsonObject:
    value = _type_to_json(type_.value_type, path)
    if "dictionary" in value or "extension" in value:
        raise InvalidInput(f"{_name(path)} has the type {type_}, which Lance cannot store.")
    dictionary = {"index": _PLAIN_NAMES[type_.index_type], "ordered": type_.ordered}
    return {**value, "dictionary": dictionary}


def extension_metadata(type_: Any, path: _Path) -> str:
    """The parameters of an extension type, as its definition serializes them."""
    if isinstance(type_, pa.FixedShapeTensorType):
        parameters = {
            "shape": type_.shape,
            "dim_names": type_.dim_names,
            "permutation": type_.permutation,
        }
        return json.dumps({key: value for key, value in parameters.items() if value is not None})
    if isinstance(type_, pa.OpaqueType):
        return json.dumps({"type_name": type_.type_name, "vendor_name": type_.vendor_name})
    if isinstance(type_, pa.ExtensionType):
        return _decode(type_.__arrow_ext_serialize__(), path)
    return ""


def _metadata_to_json(metadata: Any, path: _Path) -> dict[str, str]:
    return {_decode(key, path): _decode(value, path) for key, value in (metadata or {}).items()}


def _decode(octets: bytes, path: _Path) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        owner = _name(path) if path else "The schema"
        raise InvalidInput(f"{owner} has metadata that is not UTF-8: {octets[:40]!r}.") from None


# --- from JSON -----------------------------------------------------------------------------


def _field_from_json(value: Any, parent: _Path) -> pa.Field:
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise InvalidInput(f"{_name(parent)} is described by a field that has no name.")
    path = (*parent, value["name"])
    if not isinstance(value.get("nullable"), bool):
        raise InvalidInput(f"{_name(path)} does not say whether it is nullable.")
    type_ = _type_from_json(value.get("type"), path)
    metadata = _metadata_from_json(value.get("metadata"), path)
    try:
        field = pa.field(value["name"], type_, value["nullable"], metadata)
    except ValueError as error:
        raise InvalidInput(f"{_name(path)} is malformed: {_reason(error)}.") from error
    if metadata and _EXTENSION_NAME in metadata:
        return _with_extension(field, path)
    return field


def _type_from_json(value: Any, path: _Path) -> pa.DataType:
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise InvalidInput(f"{_name(path)} has no type: expected an object with a `type`.")
    try:
        type_ = _base_type_from_json(value, path)
        if "dictionary" in value:
            dictionary = value["dictionary"]
            index_type = _PLAIN_TYPES[dictionary["index"]]
            type_ = pa.dictionary(index_type, type_, dictionary["ordered"])
    except InvalidInput:
        raise
    except (ValueError, TypeError, KeyError, OverflowError, pa.ArrowException) as error:
        raise InvalidInput(
            f"{_name(path)} has a malformed type {value['type']!r}: {_reason(error)}."
        ) from error
    if "extension" in value:
        return _extension_from_json(type_, value["extension"], path)
    return type_


def _base_type_from_json(value: Mapping[str, Any], path: _Path) -> pa.DataType:
    name = value["type"].lower()
    name = _ALIASES.get(name, name)
    if name in _VIEW_TYPES and value.get("view"):
        return _VIEW_TYPES[name]
    if name in _PLAIN_TYPES:
        return _PLAIN_TYPES[name]
    if name in _UNIT_TYPES:
        make, default_unit = _UNIT_TYPES[name]
        return make(value.get("unit", default_unit))
    if name == "timestamp":
        return pa.timestamp(value.get("unit", "us"), value.get("timezone"))
    if name in _DECIMAL_TYPES:
        precision, scale = _precision_and_scale(_length(value, path))
        return _DECIMAL_TYPES[name](precision, scale)
    if name == "fixed_size_binary":
        return pa.binary(_length(value, path))
    if name == "list":
        return pa.list_(_only_field(value, path))
    if name == "large_list":
        return pa.large_list(_only_field(value, path))
    if name == "fixed_size_list":
        return pa.list_(_only_field(value, path), _length(value, path))
    if name == "struct":
        return pa.struct(_fields_from_json(value, path))
    if name == "map":
        entries = _only_field(value, path).type
        if not pa.types.is_struct(entries) or entries.num_fields != 2:
            raise InvalidInput(f"{_name(path)} is a map whose entries are not a key and a value.")
        return pa.map_(entries.field(0), entries.field(1), bool(value.get("keys_sorted")))
    raise InvalidInput(f"{_name(path)} has the unknown type {value['type']!r}.")


def _precision_and_scale(length: int) -> tuple[int, int]:
    # The scale may be negative: it counts down from the next thousand.
    precision = (length - _MIN_SCALE) // 1000
    return precision, length - precision * 1000


def _length(value: Mapping[str, Any], path: _Path) -> int:
    length = value.get("length")
    if not isinstance(length, int) or isinstance(length, bool) or length < 0:
        raise InvalidInput(f"{_name(path)} has the type {value['type']!r} without a valid length.")
    return length


def _only_field(value: Mapping[str, Any], path: _Path) -> pa.Field:
    fields = _fields_from_json(value, path)
    if len(fields) != 1:
        raise InvalidInput(
            f"{_name(path)} has the type {value['type']!r} with {len(fields)} fields, not 1."
        )
    return fields[0]


def _fields_from_json(value: Mapping[str, Any], path: _Path) -> list[pa.Field]:
    fields = value.get("fields")
    if not isinstance(fields, list):
        raise InvalidInput(f"{_name(path)} has the type {value['type']!r} without its fields.")
    return [_field_from_json(field, path) for field in fields]


def _metadata_from_json(value: Any, path: _Path) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for item in value.values()):
        owner = _name(path) if path else "The schema"
        raise InvalidInput(f"{owner} has metadata that does not map strings to strings.")
    return dict(value)


def _extension_from_json(storage: pa.DataType, value: Any, path: _Path) -> pa.DataType:
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise InvalidInput(f"{_name(path)} has an extension type without a name.")
    metadata = {_EXTENSION_NAME: value["name"], _EXTENSION_METADATA: value.get("metadata", "")}
    type_ = _with_extension(pa.field("", storage, metadata=metadata), path).type
    if not isinstance(type_, pa.BaseExtensionType):
        raise InvalidInput(
            f"{_name(path)} has the extension type {value['name']!r}, "
            "which is not registered with pyarrow."
        )
    return type_


def _with_extension(field: pa.Field, path: _Path) -> pa.Field:
    """Turn a field whose metadata names an extension type into one of that type."""
    # pyarrow looks extension types up only when it reads a schema.
    try:
        return pa.ipc.read_schema(pa.schema([field]).serialize()).field(0)
    except (ValueError, TypeError, KeyError, pa.ArrowException) as error:
        raise InvalidInput(
            f"{_name(path)} has a malformed extension type: {_reason(error)}."
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"unexpected or missing {error}"
    return str(error).rstrip(".")


def _name(path: _Path) -> str:
    return f"Field {'.'.join(path)!r}" if path else "A value"
