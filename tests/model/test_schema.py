"""Field ids: given depth first, kept in the schema, never shown to a user."""

import pickle

import pyarrow as pa
import pytest

from phalanx.errors import InvalidInput
from phalanx.model.schema import TableSchema, extract, field_id

POINT = pa.struct([("x", pa.float64()), pa.field("y", pa.float64(), nullable=False)])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"comment": "the key"}),
        pa.field("Name", pa.string()),
        pa.field("point", POINT),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("counts", pa.map_(pa.string(), pa.int32())),
        pa.field("vector", pa.list_(pa.float32(), 4)),
        pa.field("box", pa.struct([pa.field("corner", POINT, nullable=False)]), nullable=False),
    ],
    metadata={"owner": "me"},
)


@pytest.fixture
def schema():
    return TableSchema.assign(SCHEMA)


def test_ids_are_given_depth_first(schema):
    ids = {".".join(column.path): id for id, column in schema.columns.items()}
    assert ids == {
        "id": 0,
        "Name": 1,
        "point": 2,
        "point.x": 3,
        "point.y": 4,
        "tags": 5,
        "counts": 7,
        "vector": 11,
        "box": 12,
        "box.corner": 13,
        "box.corner.x": 14,
        "box.corner.y": 15,
    }
    assert schema.field_ids == list(range(16))


def test_ids_do_not_show(schema):
    assert schema.arrow == SCHEMA
    assert schema.arrow.field("id").metadata == {b"comment": b"the key"}
    assert schema.arrow.metadata == {b"owner": b"me"}


def test_ids_are_kept_in_json(schema):
    again = TableSchema.from_json(schema.to_json())
    assert again.tagged.equals(schema.tagged, check_metadata=True)
    assert again.field_ids == schema.field_ids


def test_given_ids_are_replaced():
    tagged = pa.schema([pa.field("a", pa.int32(), metadata={"lance:field_id": "7"})])
    assert TableSchema.assign(tagged).field_ids == [0]
    assert TableSchema(tagged).field_ids == [7]


@pytest.mark.parametrize(
    ("path", "nullable"),
    [
        (("id",), False),
        (("Name",), True),
        (("point", "y"), True),  # The struct may be NULL.
        (("box", "corner", "x"), True),
        (("box", "corner", "y"), False),
    ],
)
def test_nullable(schema, path, nullable):
    assert schema.column(path).nullable == nullable


@pytest.mark.parametrize("path", [("name",), ("NAME",), ("Name",)])
def test_case_does_not_matter(schema, path):
    assert schema.column(path).path == ("Name",)


def test_case_matters_where_it_must():
    schema = TableSchema.assign(pa.schema([("a", pa.int32()), ("A", pa.string())]))
    assert schema.column(("A",)).type == pa.string()
    wide = TableSchema.assign(pa.schema([("ab", pa.int32()), ("aB", pa.string())]))
    with pytest.raises(InvalidInput) as error:
        wide.column(("AB",))
    assert str(error.value) == "column 'AB' is ambiguous: quote it in its exact case"


@pytest.mark.parametrize("path", [("nope",), ("point", "z"), ("tags", "item"), ("id", "x")])
def test_unknown_column(schema, path):
    with pytest.raises(InvalidInput) as error:
        schema.column(path)
    known = "id, Name, point, tags, counts, vector, box"
    assert str(error.value) == f"unknown column '{'.'.join(path)}': the table has {known}"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pa.schema([]), "a table needs at least one column"),
        ([("a", pa.int32())], "a schema is a pyarrow.Schema, not list"),
        (
            pa.schema([("a", pa.int32()), ("a", pa.int32())]),
            "column 'a' appears twice in the schema",
        ),
        (pa.schema([("", pa.int32())]), "a column cannot be called '': names are not empty"),
        (
            pa.schema([("_rowid", pa.int64())]),
            "a column cannot be called '_rowid': Lance uses that name itself",
        ),
    ],
)
def test_refused_schemas(given, message):
    with pytest.raises(InvalidInput) as error:
        TableSchema.assign(given)
    assert str(error.value) == message


def test_ids_must_be_there_and_differ():
    plain = {"name": "a", "nullable": True, "type": {"type": "int32"}}
    with pytest.raises(InvalidInput, match="field 'a' has no lance:field_id"):
        TableSchema.from_json({"fields": [plain]})
    same = [plain | {"name": name, "metadata": {"lance:field_id": "1"}} for name in ("a", "b")]
    with pytest.raises(InvalidInput, match="two fields of the schema have the same lance:field_id"):
        TableSchema.from_json({"fields": same})


def test_the_same_columns_with_other_ids_are_another_schema(schema):
    assert TableSchema.assign(SCHEMA) == schema
    assert hash(TableSchema.assign(SCHEMA)) == hash(schema)
    assert TableSchema.assign(SCHEMA, first=1) != schema
    inner = pa.schema([pa.field("p", POINT)])
    assert TableSchema.assign(inner) != TableSchema.assign(inner, first=100)


def test_a_hash_stays_in_its_process(schema):
    hash(schema)
    copy = pickle.loads(pickle.dumps(schema))
    assert copy == schema
    assert "_hash" not in vars(copy)


def test_field_id():
    assert field_id(pa.field("a", pa.int32(), metadata={"lance:field_id": "3"})) == 3


def test_extract_is_null_where_the_struct_is():
    struct = pa.StructArray.from_arrays(
        [pa.array([1, 2, None])], ["x"], mask=pa.array([False, True, False])
    )
    table = pa.table({"s": pa.chunked_array([struct, struct.slice(0, 1)])})
    assert extract(table, ("s", "x")).to_pylist() == [1, None, None, 1]


def test_extract_decodes_dictionaries():
    batch = pa.RecordBatch.from_pydict({"a": pa.array(["x", None]).dictionary_encode()})
    array = extract(batch, ("a",))
    assert array.type == pa.string()
    assert array.to_pylist() == ["x", None]


def test_extract_from_no_rows():
    table = pa.schema([("a", pa.int32())]).empty_table()
    assert extract(table, ("a",)).to_pylist() == []


class TestZones:
    @pytest.mark.parametrize("zone", [None, "UTC", "+05:30", "America/New_York", "Etc/GMT+1"])
    def test_known(self, zone):
        TableSchema.assign(pa.schema([("ts", pa.timestamp("us", zone))]))

    @pytest.mark.parametrize(
        ("wrap", "name"),
        [
            (lambda type: type, "ts"),
            (pa.list_, "ts.item"),
            (lambda type: pa.struct([("a", pa.int8()), ("at", type)]), "ts.at"),
            (lambda type: pa.dictionary(pa.int32(), type), "ts"),
        ],
    )
    def test_unknown(self, wrap, name):
        schema = pa.schema([("id", pa.int64()), ("ts", wrap(pa.timestamp("us", "Mars/Phobos")))])
        with pytest.raises(InvalidInput, match=f"column '{name}' has the unknown time zone 'Mars"):
            TableSchema.assign(schema)
