"""Schemas in Arrow's own JSON, as the integration tests of the Arrow format define it.

| type                    | JSON                                                                  |
|-------------------------|-----------------------------------------------------------------------|
| null, bool              | `{"name": "null"}`, `{"name": "bool"}`                                |
| integers                | `{"name": "int", "bitWidth": 64, "isSigned": true}`                   |
| floats                  | `{"name": "floatingpoint", "precision": "DOUBLE"}` (SINGLE, HALF)     |
| strings                 | `{"name": "utf8"}`, `largeutf8`, `utf8view`                           |
| binary                  | `{"name": "binary"}`, `largebinary`, `binaryview`,                    |
|                         | `{"name": "fixedsizebinary", "byteWidth": 16}`                        |
| date32, date64          | `{"name": "date", "unit": "DAY"}`, `MILLISECOND`                      |
| time32, time64          | `{"name": "time", "unit": "MICROSECOND", "bitWidth": 64}`             |
| timestamp               | `{"name": "timestamp", "unit": "MICROSECOND", "timezone": "UTC"}`     |
| duration                | `{"name": "duration", "unit": "SECOND"}`                              |
| decimals                | `{"name": "decimal", "precision": 9, "scale": 2, "bitWidth": 128}`    |
| list, large_list        | `{"name": "list"}`, `largelist`; the item is the only child           |
| fixed_size_list         | `{"name": "fixedsizelist", "listSize": 3}`                            |
| struct, map             | `{"name": "struct"}`, `{"name": "map", "keysSorted": false}`          |
| dictionary              | the type of its values, and `dictionary` in the field                 |
| extension types         | the storage's type, and `ARROW:extension:*` in the field's metadata   |
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.jsonarrow import extension_metadata

_UNITS = {"s": "SECOND", "ms": "MILLISECOND", "us": "MICROSECOND", "ns": "NANOSECOND"}
_UNIT_OF = {name: unit for unit, name in _UNITS.items()}
_PRECISIONS = {16: "HALF", 32: "SINGLE", 64: "DOUBLE"}
_FLOATS = {"HALF": pa.float16(), "SINGLE": pa.float32(), "DOUBLE": pa.float64()}
_PLAIN = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "utf8": pa.string(),
    "largeutf8": pa.large_string(),
    "utf8view": pa.string_view(),
    "binary": pa.binary(),
    "largebinary": pa.large_binary(),
    "binaryview": pa.binary_view(),
}
_PLAIN_NAMES = {type: name for name, type in _PLAIN.items()}
_DECIMALS = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}


def dumps(schema: pa.Schema) -> str:
    """A schema as text. Raises InvalidInput for a type that the format does not have."""
    ids = itertools.count()
    value: dict[str, Any] = {"fields": [_field(field, ids) for field in schema]}
    if schema.metadata:
        value["metadata"] = _pairs(schema.metadata)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def loads(text: str) -> pa.Schema:
    """The inverse of `dumps`. Raises InvalidInput for another text."""
    try:
        value = json.loads(text)
        fields = [_read_field(field) for field in value["fields"]]
        schema = pa.schema(fields, metadata=_read_pairs(value.get("metadata")))
        # Arrow makes extension types of their storage where it reads a schema.
        return pa.ipc.read_schema(schema.serialize())
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise InvalidInput(f"a schema is not in Arrow's JSON format: {error!r}") from None


def _field(field: pa.Field, ids: Iterator[int]) -> dict[str, Any]:
    type, metadata = field.type, dict(field.metadata or {})
    if isinstance(type, pa.BaseExtensionType):
        metadata[b"ARROW:extension:name"] = type.extension_name.encode()
        metadata[b"ARROW:extension:metadata"] = extension_metadata(type, (field.name,)).encode()
        type = type.storage_type
    value: dict[str, Any] = {"name": field.name, "nullable": field.nullable}
    if pa.types.is_dictionary(type):
        value["dictionary"] = {
            "id": next(ids),
            "indexType": _type(type.index_type),
            "isOrdered": type.ordered,
        }
        type = type.value_type
    value["type"] = _type(type)
    value["children"] = [_field(child, ids) for child in _children(type)]
    if metadata:
        value["metadata"] = _pairs(metadata)
    return value


def _children(type: pa.DataType) -> Sequence[pa.Field]:
    if pa.types.is_map(type):
        entries = pa.struct([type.key_field, type.item_field])
        return [pa.field("entries", entries, nullable=False)]
    return [type.field(index) for index in range(type.num_fields)]


def _type(type: pa.DataType) -> dict[str, Any]:
    t = pa.types
    if type in _PLAIN_NAMES:
        return {"name": _PLAIN_NAMES[type]}
    if t.is_integer(type):
        return {"name": "int", "bitWidth": type.bit_width, "isSigned": t.is_signed_integer(type)}
    if t.is_floating(type):
        return {"name": "floatingpoint", "precision": _PRECISIONS[type.bit_width]}
    if t.is_fixed_size_binary(type):
        return {"name": "fixedsizebinary", "byteWidth": type.byte_width}
    if t.is_decimal(type):
        bits = {"bitWidth": type.bit_width}
        return {"name": "decimal", "precision": type.precision, "scale": type.scale, **bits}
    if t.is_date(type):
        return {"name": "date", "unit": "DAY" if t.is_date32(type) else "MILLISECOND"}
    if t.is_time(type):
        return {"name": "time", "unit": _UNITS[type.unit], "bitWidth": type.bit_width}
    if t.is_timestamp(type):
        zone = {} if type.tz is None else {"timezone": type.tz}
        return {"name": "timestamp", "unit": _UNITS[type.unit], **zone}
    if t.is_duration(type):
        return {"name": "duration", "unit": _UNITS[type.unit]}
    if t.is_map(type):
        return {"name": "map", "keysSorted": type.keys_sorted}
    if t.is_fixed_size_list(type):
        return {"name": "fixedsizelist", "listSize": type.list_size}
    for name, is_of in (
        ("struct", t.is_struct),
        ("list", t.is_list),
        ("largelist", t.is_large_list),
    ):
        if is_of(type):
            return {"name": name}
    raise InvalidInput(f"the type {type} has no form in Arrow's JSON")


def _read_field(value: Mapping[str, Any]) -> pa.Field:
    children = [_read_field(child) for child in value.get("children") or ()]
    type = _read_type(value["type"], children)
    dictionary = value.get("dictionary")
    if dictionary is not None:
        index = _read_type(dictionary["indexType"], [])
        type = pa.dictionary(index, type, bool(dictionary.get("isOrdered", False)))
    metadata = _read_pairs(value.get("metadata"))
    return pa.field(value["name"], type, bool(value.get("nullable", True)), metadata)


def _read_type(value: Mapping[str, Any], children: Sequence[pa.Field]) -> pa.DataType:
    name = value["name"]
    if name in _PLAIN:
        return _PLAIN[name]
    match name:
        case "int":
            sign = "int" if value["isSigned"] else "uint"
            return pa.type_for_alias(f"{sign}{int(value['bitWidth'])}")
        case "floatingpoint":
            return _FLOATS[value["precision"]]
        case "fixedsizebinary":
            return pa.binary(int(value["byteWidth"]))
        case "decimal":
            make = _DECIMALS[int(value.get("bitWidth", 128))]
            return make(int(value["precision"]), int(value["scale"]))
        case "date":
            return pa.date32() if value["unit"] == "DAY" else pa.date64()
        case "time":
            make = pa.time32 if int(value["bitWidth"]) == 32 else pa.time64
            return make(_UNIT_OF[value["unit"]])
        case "timestamp":
            return pa.timestamp(_UNIT_OF[value["unit"]], value.get("timezone") or None)
        case "duration":
            return pa.duration(_UNIT_OF[value["unit"]])
        case "struct":
            return pa.struct(children)
    (child,) = children
    match name:
        case "list":
            return pa.list_(child)
        case "largelist":
            return pa.large_list(child)
        case "fixedsizelist":
            return pa.list_(child, int(value["listSize"]))
        case "map":
            key, item = child.type.field(0), child.type.field(1)
            return pa.map_(key, item, bool(value.get("keysSorted", False)))
    raise ValueError(f"there is no type {name!r}")


def _pairs(metadata: Mapping[bytes, bytes]) -> list[dict[str, str]]:
    return [
        {"key": key.decode(errors="replace"), "value": value.decode(errors="replace")}
        for key, value in metadata.items()
    ]


def _read_pairs(value: Any) -> dict[str, str] | None:
    if not value:
        return None
    if isinstance(value, Mapping):
        return {str(key): str(text) for key, text in value.items()}
    return {pair["key"]: pair["value"] for pair in value}
