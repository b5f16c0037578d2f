"""Lists that are all empty, as arrow-java sends them: valid, and a trap for readers of offsets."""

import pyarrow as pa
import pytest

import phalanx


def without_offsets(type):
    """An array without values and without offsets, as Spark 4.0 and 4.1 send it."""
    empty = pa.py_buffer(b"\xff" * 64).slice(0, 0)  # whoever reads on gets a number that is none
    if pa.types.is_primitive(type):
        return pa.array([], type)
    if not pa.types.is_nested(type):
        return pa.Array.from_buffers(type, 0, [None, empty, empty])
    return pa.Array.from_buffers(type, 0, [None, empty], children=[values_of(type)])


def values_of(type):
    """The values of lists or maps that are all empty."""
    if pa.types.is_list(type):
        return without_offsets(type.value_type)
    children = [without_offsets(type.key_type), without_offsets(type.item_type)]
    return pa.StructArray.from_arrays(children, fields=[type.key_field, type.item_field])


def empty_lists(type, rows):
    """Lists or maps, all of them empty."""
    offsets = pa.array([0] * (rows + 1), pa.int32()).buffers()[1]
    return pa.Array.from_buffers(type, rows, [None, offsets], children=[values_of(type)])


TYPES = [
    pa.list_(pa.string()),
    pa.list_(pa.binary()),
    pa.list_(pa.list_(pa.float64())),
    pa.list_(pa.list_(pa.list_(pa.string()))),
    pa.map_(pa.string(), pa.int32()),
    pa.map_(pa.int32(), pa.list_(pa.string())),
]


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_arrays_without_offsets(root, type):
    lists = empty_lists(type, 3)
    lists.validate(full=True)
    table = phalanx.create(root, pa.schema([("id", pa.int64()), ("c", type)]))
    rows = pa.table({"id": [1, 2, 3], "c": lists})
    table.append(rows)
    table.append(pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches()))
    assert table.to_arrow()["c"].to_pylist() == [[]] * 6


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_in_a_struct(root, type):
    structs = pa.StructArray.from_arrays([empty_lists(type, 2)], fields=[pa.field("x", type)])
    table = phalanx.create(root, pa.schema([("s", structs.type)]))
    table.append(pa.table({"s": structs}))
    assert table.to_arrow()["s"].to_pylist() == [{"x": []}, {"x": []}]
