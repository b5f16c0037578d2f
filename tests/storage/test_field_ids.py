"""Lance schemas with the field ids that we choose."""

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation
from lance.fragment import write_fragments
from lance.schema import LanceSchema

from phalanx.storage.field_ids import with_ids

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"unit": "pieces"}),
        ("place", pa.struct([("city", pa.string()), ("at", pa.struct([("x", pa.float32())]))])),
        ("tags", pa.list_(pa.string())),
        ("attributes", pa.map_(pa.string(), pa.int32())),
        ("vector", pa.list_(pa.float32(), 4)),
        ("price", pa.decimal128(20, 4)),
    ],
    metadata={"owner": "ann"},
)


def ids_of(schema):
    return [(field.name(), field.id()) for field in walk(schema.fields())]


def walk(fields):
    for field in fields:
        yield field
        yield from walk(field.children())


@pytest.mark.parametrize("offset", [0, 1, 100, 127, 128, 300, 20_000, 2**31 - 20])
def test_every_field_has_the_id_it_is_given(offset):
    plain = LanceSchema.from_pyarrow(SCHEMA)
    ids = {id: id + offset for _, id in ids_of(plain)}
    found = with_ids(plain, ids)
    assert ids_of(found) == [(name, id + offset) for name, id in ids_of(plain)]


def test_ids_in_another_order():
    plain = LanceSchema.from_pyarrow(SCHEMA)
    numbers = [id for _, id in ids_of(plain)]
    ids = dict(zip(numbers, reversed(numbers), strict=True))
    assert ids_of(with_ids(plain, ids)) == [(name, ids[id]) for name, id in ids_of(plain)]


def test_the_rest_stays_as_it_was():
    plain = LanceSchema.from_pyarrow(SCHEMA)
    ids = {id: id + 1000 for _, id in ids_of(plain)}
    assert with_ids(plain, ids).to_pyarrow().equals(plain.to_pyarrow(), check_metadata=True)


def test_an_id_that_is_not_given():
    with pytest.raises(KeyError):
        with_ids(LanceSchema.from_pyarrow(SCHEMA), {0: 5})


def test_a_dataset_with_such_a_schema(tmp_path):
    uri = str(tmp_path / "data")
    plain = LanceSchema.from_pyarrow(SCHEMA)
    schema = with_ids(plain, {id: id + 500 for _, id in ids_of(plain)})
    first = lance.LanceDataset.commit(uri, LanceOperation.Overwrite(schema, []))
    # Lance numbers the fields of the first version itself, and of no later one.
    empty = lance.LanceDataset.commit(
        first, LanceOperation.Overwrite(schema, []), read_version=first.version
    )
    row = {
        "id": 1,
        "place": {"city": "Rome", "at": {"x": 0.5}},
        "tags": ["a", None],
        "attributes": [("k", 1)],
        "vector": [1.0, 2.0, 3.0, 4.0],
        "price": None,
    }
    rows = pa.Table.from_pylist([row], SCHEMA)
    fragments = write_fragments(rows, empty, schema=rows.schema)
    filled = lance.LanceDataset.commit(
        empty, LanceOperation.Append(fragments), read_version=empty.version
    )
    assert filled.to_table().to_pylist() == [row]
    assert ids_of(filled.lance_schema) == ids_of(schema)
    assert filled.to_table(columns=["place.city"]).num_rows == 1
