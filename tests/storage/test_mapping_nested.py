"""Leaves whose lists, maps and structs have changed inside, seen through the table's schema."""

import random

import lance
import pyarrow as pa
import pytest

from phalanx.errors import InvalidInput
from phalanx.model import evolution
from phalanx.model.filters import bind
from phalanx.model.parser import parse
from phalanx.model.schema import TableSchema
from phalanx.storage.lance_types import check_storable
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.location import Location
from phalanx.storage.small_leaves import Member, scan
from tests.model.nested import expected, random_change, random_type, random_value

ID = TableSchema.assign(pa.schema([("id", pa.int64())])).tagged.field("id")


def rows_of(rng, schema, count):
    return [
        {f.name: n if f.name == "id" else random_value(rng, f.type) for f in schema.arrow}
        for n in range(count)
    ]


def storable(rng, schema, next_id):
    """The schema after a change that Lance can store; the column `id` stays as it is."""
    for _ in range(20):
        changed, following = random_change(rng, schema, next_id)
        try:
            check_storable(changed)
        except InvalidInput:
            continue
        if changed.tagged.field(0) == ID and len(changed.tagged.names) == 2:
            return changed, following
    return schema, next_id


def seen(row, have, want):
    """A row of one schema as the other shows it."""
    own = {f.metadata[b"lance:field_id"]: f for f in have.tagged}
    wanted = ((f, own.get(f.metadata[b"lance:field_id"])) for f in want.tagged)
    return {
        f.name: None if old is None else expected(row[old.name], old.type, f.type)
        for f, old in wanted
    }


@pytest.mark.parametrize("seed", range(24))
def test_rows_are_those_that_python_finds(tmp_path, seed):
    """In leaves with an earlier schema, one by one and together, and once rows were added."""
    rng = random.Random(seed)
    schema = None
    while schema is None:
        schema = TableSchema.assign(pa.schema([("id", pa.int64()), ("c", random_type(rng, 4))]))
        try:
            check_storable(schema)
        except InvalidInput:
            schema = None
    location, rows = Location(tmp_path), []
    versions = dict.fromkeys(["1_v1$dataset", "2_v1$dataset"])
    next_id = max(schema.field_ids) + 1
    for _ in range(3):
        more = rows_of(rng, schema, 3)
        for folder, version in versions.items():
            leaf = Leaf(location, folder, schema)
            writer = leaf.create() if version is None else leaf.writer(version)
            files = writer.write(pa.Table.from_pylist(more, schema.arrow))
            versions[folder] = leaf.commit(version, LeafDelta(added=(files,)))
        rows += more
        assert lance.dataset(leaf.uri, version=versions[folder]).to_table().to_pylist() == rows
        before = schema
        for _ in range(rng.randint(1, 3)):
            schema, next_id = storable(rng, schema, next_id)
        rows = [seen(row, before, schema) for row in rows]
        names, leaf = schema.arrow.names, Leaf(location, folder, schema)
        assert batched(leaf.scan(versions[folder], names, None)) == rows
        where = bind(parse("id > 0"), schema.column)
        wanted = [row for row in rows if row["id"] > 0]
        assert batched(leaf.scan(versions[folder], names, where)) == wanted
        members = [Member(folder, version) for folder, version in versions.items()]
        assert batched(scan(location, schema, members, names, None)) == 2 * rows


def batched(batches):
    rows = []
    for batch in batches:
        batch.validate(full=True)
        rows += batch.to_pylist()
    return rows


class TestRefused:
    """Types that Lance writes and cannot read where a struct is NULL."""

    LISTS = pa.list_(pa.list_(pa.int32()))

    @pytest.mark.parametrize(
        "type",
        [
            pa.list_(pa.struct([("c", LISTS), ("a", pa.int32())])),
            pa.map_(pa.int32(), pa.struct([("c", pa.struct([("d", LISTS)]))])),
            pa.large_list(pa.struct([("c", pa.list_(pa.struct([("d", pa.list_(pa.int32()))])))])),
        ],
    )
    def test_a_list_of_lists_first(self, type):
        schema = TableSchema.assign(pa.schema([("c", type)]))
        with pytest.raises(InvalidInput, match="put another field first"):
            check_storable(schema)

    @pytest.mark.parametrize(
        "type",
        [
            pa.list_(pa.struct([("a", pa.int32()), ("c", LISTS)])),
            pa.list_(pa.field("item", pa.struct([("c", LISTS)]), False)),
            pa.struct([("c", LISTS)]),
            pa.list_(LISTS),
        ],
    )
    def test_what_can_be_read(self, type, tmp_path):
        schema = TableSchema.assign(pa.schema([("c", type)]))
        check_storable(schema)
        rng = random.Random(1)
        values = [random_value(rng, type) for _ in range(20)]
        if not pa.types.is_struct(type) and not type.value_field.nullable:
            values = [v and [item for item in v if item is not None] for v in values]
        rows = pa.table({"c": pa.array(values, type)}, schema=schema.arrow)
        leaf = Leaf(Location(tmp_path), "1_v1$dataset", schema)
        version = leaf.commit(None, LeafDelta(added=(leaf.create().write(rows),)))
        assert batched(leaf.scan(version, ["c"], None)) == rows.to_pylist()

    def test_a_field_that_would_come_first(self):
        type = pa.list_(pa.struct([("a", pa.int32()), ("c", self.LISTS)]))
        schema = TableSchema.assign(pa.schema([("c", type)]))
        with pytest.raises(InvalidInput, match=r"'c\.element'"):
            check_storable(evolution.drop_column(schema, "c.element.a"))
