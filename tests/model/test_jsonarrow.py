"""Schemas as JSON: nothing is lost, and other clients understand it."""

import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.namespace import DirectoryNamespace
from lance_namespace import DescribeTableRequest
from lance_namespace_urllib3_client.models.json_arrow_schema import JsonArrowSchema

from phalanx.errors import InvalidInput
from phalanx.model.jsonarrow import (
    schema_from_json,
    schema_to_json,
    type_from_json,
    type_to_json,
)

PLAIN = {
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

ITEM = {"name": "item", "nullable": True, "type": {"type": "int32"}}
KEY = {"name": "key", "nullable": False, "type": {"type": "utf8"}}
VALUE = {"name": "value", "nullable": True, "type": {"type": "int32"}}
ENTRIES = {
    "name": "entries",
    "nullable": False,
    "type": {"type": "struct", "fields": [KEY, VALUE]},
}
UUID = {"name": "arrow.uuid", "metadata": ""}

SPELLED = [
    *((type_, {"type": name}) for name, type_ in PLAIN.items()),
    (pa.string_view(), {"type": "utf8", "view": True}),
    (pa.binary_view(), {"type": "binary", "view": True}),
    (pa.binary(16), {"type": "fixed_size_binary", "length": 16}),
    (pa.decimal32(9, 2), {"type": "decimal32", "length": 9002}),
    (pa.decimal64(18, 18), {"type": "decimal64", "length": 18018}),
    (pa.decimal128(38, 10), {"type": "decimal128", "length": 38010}),
    (pa.decimal128(5, -3), {"type": "decimal128", "length": 4997}),
    (pa.decimal128(1, -128), {"type": "decimal128", "length": 872}),
    (pa.decimal256(76, 127), {"type": "decimal256", "length": 76127}),
    (pa.time32("s"), {"type": "time32", "unit": "s"}),
    (pa.time32("ms"), {"type": "time32", "unit": "ms"}),
    (pa.time64("us"), {"type": "time64", "unit": "us"}),
    (pa.time64("ns"), {"type": "time64", "unit": "ns"}),
    (pa.duration("s"), {"type": "duration", "unit": "s"}),
    (pa.timestamp("us"), {"type": "timestamp", "unit": "us"}),
    (pa.timestamp("ns", "UTC"), {"type": "timestamp", "unit": "ns", "timezone": "UTC"}),
    (pa.timestamp("s", "+05:30"), {"type": "timestamp", "unit": "s", "timezone": "+05:30"}),
    (pa.list_(pa.int32()), {"type": "list", "fields": [ITEM]}),
    (pa.large_list(pa.int32()), {"type": "large_list", "fields": [ITEM]}),
    (pa.list_(pa.int32(), 4), {"type": "fixed_size_list", "fields": [ITEM], "length": 4}),
    (pa.struct([]), {"type": "struct", "fields": []}),
    (pa.struct([("value", pa.int32())]), {"type": "struct", "fields": [VALUE]}),
    (pa.map_(pa.string(), pa.int32()), {"type": "map", "fields": [ENTRIES]}),
    (
        pa.map_(pa.string(), pa.int32(), keys_sorted=True),
        {"type": "map", "fields": [ENTRIES], "keys_sorted": True},
    ),
    (
        pa.dictionary(pa.int8(), pa.string()),
        {"type": "utf8", "dictionary": {"index": "int8", "ordered": False}},
    ),
    (
        pa.dictionary(pa.uint32(), pa.timestamp("ms"), ordered=True),
        {
            "type": "timestamp",
            "unit": "ms",
            "dictionary": {"index": "uint32", "ordered": True},
        },
    ),
    (
        pa.dictionary(pa.int32(), pa.int64()),
        {"type": "int64", "dictionary": {"index": "int32", "ordered": False}},
    ),
    (pa.uuid(), {"type": "fixed_size_binary", "length": 16, "extension": UUID}),
]


class Celsius(pa.ExtensionType):
    """An extension type with parameters, registered only where a test does so."""

    def __init__(self, parameters: bytes = b"") -> None:
        self.parameters = parameters
        super().__init__(pa.float32(), "test.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return self.parameters

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> "Celsius":
        return cls(serialized)


EXTENSIONS = [
    pa.uuid(),
    pa.json_(),
    pa.json_(pa.large_string()),
    pa.bool8(),
    pa.fixed_shape_tensor(pa.float32(), [2, 3]),
    pa.fixed_shape_tensor(pa.int8(), [2, 3], dim_names=["a", "b"], permutation=[1, 0]),
    pa.opaque(pa.int32(), "point", "vendor"),
]


# --- random schemas --------------------------------------------------------------------------

units = st.sampled_from(["s", "ms", "us", "ns"])
names = st.text(min_size=1, max_size=5)
metadata = st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2)
leaf_types = st.one_of(
    st.sampled_from([type_ for type_, _ in SPELLED]),
    st.builds(pa.binary, st.integers(0, 100)),
    st.builds(pa.decimal128, st.integers(1, 38), st.integers(-128, 127)),
    st.builds(pa.timestamp, units, st.none() | st.sampled_from(["UTC", "Europe/Berlin", "-01:00"])),
    st.builds(pa.duration, units),
    st.sampled_from(EXTENSIONS),
)


def fields(types: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(field, names, types, st.booleans(), metadata)


def field(name: str, type_: Any, nullable: bool, metadata: Any) -> pa.Field:
    return pa.field(name, type_, nullable or type_ == pa.null(), metadata)


def nested(types: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    key_types = types.filter(lambda type_: type_ != pa.null())
    keys = st.builds(pa.field, names, key_types, st.just(False), metadata)
    return st.one_of(
        st.builds(pa.list_, fields(types)),
        st.builds(pa.large_list, fields(types)),
        st.builds(pa.list_, fields(types), st.integers(0, 100)),
        st.builds(pa.struct, st.lists(fields(types), max_size=3)),
        st.builds(pa.map_, keys, fields(types)),
    )


schemas = st.builds(
    pa.schema,
    st.lists(fields(st.recursive(leaf_types, nested, max_leaves=4)), max_size=4),
    metadata,
)


def through_json(value: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(value))


@settings(deadline=None, max_examples=300)
@given(schemas)
def test_nothing_is_lost(schema):
    described = through_json(schema_to_json(schema))
    restored = schema_from_json(described)
    assert restored.equals(schema, check_metadata=True)
    assert schema_to_json(restored) == described


@settings(deadline=None)
@given(schemas)
def test_the_stock_models_read_it(schema):
    described = schema_to_json(schema)
    model = JsonArrowSchema.from_dict(described)
    assert [field.name for field in model.fields] == schema.names
    assert [field.nullable for field in model.fields] == [field.nullable for field in schema]
    assert JsonArrowSchema.model_validate(described) == model
    # What comes back from them has lost our keys, and is still a schema to us.
    assert schema_from_json(model.to_dict()).names == schema.names


# --- the spelling ----------------------------------------------------------------------------


@pytest.mark.parametrize(("type_", "expected"), SPELLED, ids=str)
def test_types(type_, expected):
    assert type_to_json(type_) == expected
    assert type_from_json(expected) == type_


def test_specification_example():
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), False, {"lance:field_id": "0"}),
            pa.field("event_date", pa.date32(), True, {"lance:field_id": "1"}),
            pa.field("country", pa.string(), True, {"lance:field_id": "2"}),
        ]
    )
    text = """
    {
      "fields": [
        {
          "name": "id",
          "nullable": false,
          "type": { "type": "int64" },
          "metadata": { "lance:field_id": "0" }
        },
        {
          "name": "event_date",
          "nullable": true,
          "type": { "type": "date32" },
          "metadata": { "lance:field_id": "1" }
        },
        {
          "name": "country",
          "nullable": true,
          "type": { "type": "utf8" },
          "metadata": { "lance:field_id": "2" }
        }
      ]
    }
    """
    # As text, because the order of the keys is the specification's too.
    assert json.dumps(schema_to_json(schema)) == json.dumps(json.loads(text))
    assert schema_from_json(json.loads(text)).equals(schema, check_metadata=True)


def test_metadata_at_every_level():
    item = pa.field("element", pa.struct([pa.field("x", pa.int8(), False, {"a": "é"})]), True)
    field = pa.field("points", pa.list_(item.with_metadata({"b": "1"})), False, {"c": ""})
    schema = pa.schema([field], {"owner": "me"})
    described = schema_to_json(schema)
    assert described["metadata"] == {"owner": "me"}
    points = described["fields"][0]
    assert points["metadata"] == {"c": ""}
    assert points["type"]["fields"][0]["metadata"] == {"b": "1"}
    assert points["type"]["fields"][0]["type"]["fields"][0]["metadata"] == {"a": "é"}
    assert schema_from_json(described).equals(schema, check_metadata=True)


def test_no_metadata_no_key():
    assert schema_to_json(pa.schema([pa.field("a", pa.int8(), metadata={})], {})) == {
        "fields": [{"name": "a", "nullable": True, "type": {"type": "int8"}}]
    }


# --- what other clients write ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ({"type": "timestamp"}, pa.timestamp("us")),
        ({"type": "duration"}, pa.duration("us")),
        ({"type": "time32"}, pa.time32("ms")),
        ({"type": "time64"}, pa.time64("us")),
        ({"type": "boolean"}, pa.bool_()),
        ({"type": "Int32"}, pa.int32()),
        ({"type": "decimal128", "length": 20004, "fields": None}, pa.decimal128(20, 4)),
        ({"type": "int64", "fields": None, "length": None, "later": {"a": 1}}, pa.int64()),
    ],
    ids=str,
)
def test_lossy_and_loose_forms(described, expected):
    assert type_from_json(described) == expected


def test_the_stock_client_writes_the_same(tmp_path):
    """Leave our own keys out, and what a stock namespace says of a table is what we say."""
    schema = storable([type_ for type_, _ in SPELLED])
    schema = pa.schema([f for f in schema if not isinstance(f.type, pa.BaseExtensionType)])
    write_empty(schema, tmp_path / "t.lance")
    request = DescribeTableRequest(id=["t"], load_detailed_metadata=True)
    stock = DirectoryNamespace(root=str(tmp_path)).describe_table(request).var_schema
    assert JsonArrowSchema.from_dict(schema_to_json(schema)) == stock


def test_lance_schemas_round_trip(tmp_path):
    schema = storable([*(type_ for type_, _ in SPELLED), *EXTENSIONS])
    stored = write_empty(schema, tmp_path / "t.lance").schema
    assert stored.names == schema.names
    restored = schema_from_json(through_json(schema_to_json(stored)))
    assert restored.equals(stored, check_metadata=True)


def storable(types: list[pa.DataType]) -> pa.Schema:
    """The types that this version of Lance takes, one column each."""
    taken = [
        type_
        for type_ in types
        if not pa.types.is_decimal32(type_)
        and not pa.types.is_decimal64(type_)
        and not (pa.types.is_map(type_) and type_.keys_sorted)
        and not (pa.types.is_dictionary(type_) and type_.ordered)
    ]
    return pa.schema([pa.field(f"c{n}", type_) for n, type_ in enumerate(taken)])


def write_empty(schema: pa.Schema, path: Path) -> lance.LanceDataset:
    return lance.write_dataset(pa.Table.from_batches([], schema), path)


# --- extension types -------------------------------------------------------------------------


def field_to_json(field):
    (described,) = schema_to_json(pa.schema([field]))["fields"]
    return described


def field_from_json(value):
    (field,) = schema_from_json({"fields": [value]})
    return field


@pytest.mark.parametrize("type_", EXTENSIONS, ids=str)
def test_extension_types(type_):
    field = pa.field("c", type_, False, {"k": "v"})
    described = through_json(field_to_json(field))
    assert described["metadata"]["ARROW:extension:name"] == type_.extension_name
    assert described["metadata"]["k"] == "v"
    assert "extension" not in described["type"]
    assert field_from_json(described).equals(field, check_metadata=True)
    assert type_from_json(through_json(type_to_json(type_))) == type_
    inside = pa.struct([field])
    assert type_from_json(type_to_json(inside)) == inside


def test_uuid_is_spelled_as_the_stock_client_does():
    assert field_to_json(pa.field("u", pa.uuid())) == {
        "name": "u",
        "nullable": True,
        "type": {"type": "fixed_size_binary", "length": 16},
        "metadata": {"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": ""},
    }


def test_unregistered_extension_types_keep_their_name():
    described = field_to_json(pa.field("t", Celsius(b"indoors")))
    restored = field_from_json(described)
    assert restored.type == pa.float32()
    assert restored.metadata == {
        b"ARROW:extension:name": b"test.celsius",
        b"ARROW:extension:metadata": b"indoors",
    }
    assert field_to_json(restored) == described
    with pytest.raises(InvalidInput, match=r"'test\.celsius', which is not registered"):
        type_from_json(type_to_json(Celsius(b"indoors")))


def test_registered_extension_types_come_back():
    pa.register_extension_type(Celsius())
    try:
        field = pa.field("t", Celsius(b"indoors"))
        restored = field_from_json(field_to_json(field))
        assert restored.type == Celsius(b"indoors")
        assert restored.type.parameters == b"indoors"
        assert not restored.metadata
    finally:
        pa.unregister_extension_type("test.celsius")


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "type_",
    [
        pa.dense_union([pa.field("a", pa.int32())]),
        pa.month_day_nano_interval(),
        pa.list_view(pa.int32()),
        pa.large_list_view(pa.int32()),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.dictionary(pa.int8(), pa.string())),
    ],
    ids=str,
)
def test_types_that_lance_cannot_store(type_):
    with pytest.raises(InvalidInput, match=r"^Field 'a\.b' has the type .*, which Lance cannot"):
        schema_to_json(pa.schema([("a", pa.struct([("b", type_)]))]))


def test_scales_beyond_a_byte():
    with pytest.raises(InvalidInput, match="scale 128"):
        type_to_json(pa.decimal128(38, 128))


def test_metadata_that_is_not_text():
    with pytest.raises(InvalidInput, match=r"Field 'a\.b' has metadata that is not UTF-8"):
        field_to_json(pa.field("a", pa.struct([pa.field("b", pa.int8(), metadata={"k": b"\xff"})])))
    with pytest.raises(InvalidInput, match="The schema has metadata that is not UTF-8"):
        schema_to_json(pa.schema([], {b"\xff": "v"}))
    with pytest.raises(InvalidInput, match="Field 't' has metadata that is not UTF-8"):
        field_to_json(pa.field("t", Celsius(b"\xff")))


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"type": "int128"}, "A value has the unknown type 'int128'."),
        ({"type": "union"}, "A value has the unknown type 'union'."),
        ({}, "no type"),
        (None, "no type"),
        ("int32", "no type"),
        ({"type": "decimal128"}, "without a valid length"),
        ({"type": "decimal128", "length": 39000}, "malformed type 'decimal128'"),
        ({"type": "decimal128", "length": 0}, "malformed type 'decimal128'"),
        ({"type": "fixed_size_binary", "length": -1}, "without a valid length"),
        ({"type": "fixed_size_list", "fields": [ITEM]}, "without a valid length"),
        ({"type": "fixed_size_list", "fields": [ITEM], "length": 2**40}, "malformed type"),
        ({"type": "list"}, "'list' without its fields"),
        ({"type": "struct"}, "'struct' without its fields"),
        ({"type": "list", "fields": [ITEM, ITEM]}, "with 2 fields, not 1"),
        ({"type": "map", "fields": [ITEM]}, "entries are not a key and a value"),
        ({"type": "timestamp", "unit": "weeks"}, "malformed type 'timestamp'"),
        ({"type": "timestamp", "timezone": 3}, "malformed type 'timestamp'"),
        ({"type": "time32", "unit": "ns"}, "malformed type 'time32'"),
        ({"type": "utf8", "dictionary": {"index": "int8"}}, "malformed type 'utf8'"),
        ({"type": "utf8", "dictionary": True}, "malformed type 'utf8'"),
        ({"type": "utf8", "extension": UUID}, "malformed extension type"),
        ({"type": "utf8", "extension": {}}, "extension type without a name"),
        ({"type": "struct", "fields": [{"name": "x"}]}, "Field 'x' does not say whether"),
        ({"type": "struct", "fields": [{"nullable": True}]}, "field that has no name"),
        ({"type": "list", "fields": [{**ITEM, "type": {"type": "?"}}]}, "Field 'item' has the"),
        (
            {
                "type": "struct",
                "fields": [{"name": "n", "nullable": False, "type": {"type": "null"}}],
            },
            "Field 'n' is malformed",
        ),
        ({"type": "list", "fields": [{**ITEM, "metadata": {"a": 1}}]}, "strings to strings"),
    ],
    ids=str,
)
def test_malformed_types(described, message):
    with pytest.raises(InvalidInput) as caught:
        type_from_json(described)
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("described", [None, [], {}, {"fields": None}, {"fields": {}}], ids=str)
def test_malformed_schemas(described):
    with pytest.raises(InvalidInput, match="list of `fields`"):
        schema_from_json(described)


def test_malformed_schema_metadata():
    with pytest.raises(InvalidInput, match="The schema has metadata that does not map strings"):
        schema_from_json({"fields": [], "metadata": {"a": None}})
