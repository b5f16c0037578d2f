"""Schemas in Arrow's own JSON."""

import json

import pyarrow as pa
import pytest

from phalanx.errors import InvalidInput
from phalanx.model import ipcjson

TYPES = [
    *(pa.null(), pa.bool_(), pa.string(), pa.large_string(), pa.string_view(), pa.binary()),
    *(pa.large_binary(), pa.binary_view(), pa.binary(16), pa.date32(), pa.date64()),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal32(5, 2), pa.decimal64(12, 3), pa.decimal128(38, 10), pa.decimal256(70, 0)),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Berlin"), pa.duration("ms")),
    *(pa.list_(pa.int32()), pa.large_list(pa.string()), pa.list_(pa.float32(), 768)),
    pa.struct([pa.field("a", pa.int32(), nullable=False), ("b", pa.list_(pa.string()))]),
    *(pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64(), keys_sorted=True)),
    *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string(), ordered=True)),
    *(pa.uuid(), pa.list_(pa.field("item", pa.uuid()))),
]


@pytest.mark.parametrize("type", TYPES, ids=str)
@pytest.mark.parametrize("nullable", [True, False])
def test_every_type_comes_back(type, nullable):
    nullable |= pa.types.is_null(type)
    schema = pa.schema([pa.field("x", type, nullable, {"comment": "ü"})], {"about": "this"})
    assert ipcjson.loads(ipcjson.dumps(schema)).equals(schema, check_metadata=True)


def test_the_form_is_arrows():
    """Written by hand from the documentation of Arrow's integration tests."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("d", pa.date32())])
    assert json.loads(ipcjson.dumps(schema)) == {
        "fields": [
            {
                "name": "id",
                "nullable": False,
                "type": {"name": "int", "bitWidth": 64, "isSigned": True},
                "children": [],
            },
            {
                "name": "d",
                "nullable": True,
                "type": {"name": "date", "unit": "DAY"},
                "children": [],
            },
        ]
    }


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"fields": [{"name": "x", "type": {"name": "zebra"}}]}']
)
def test_what_is_no_schema(text):
    with pytest.raises(InvalidInput, match="not in Arrow's JSON format"):
        ipcjson.loads(text)


def test_a_type_that_the_format_lacks_is_refused():
    with pytest.raises(InvalidInput, match="has no form"):
        ipcjson.dumps(pa.schema([("x", pa.run_end_encoded(pa.int32(), pa.string()))]))
