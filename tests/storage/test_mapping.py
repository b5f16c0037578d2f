"""A leaf seen through the table's schema."""

import datetime as dt
from decimal import Decimal

import lance
import numpy as np
import pyarrow as pa
import pytest

from phalanx.model import evolution
from phalanx.model.filters import bind
from phalanx.model.parser import parse
from phalanx.model.schema import TableSchema
from phalanx.storage import small_leaves
from phalanx.storage.field_ids import ids_of, lance_schema
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.location import Location
from phalanx.storage.mapping import LeafMapping, constant, mapping_of
from phalanx.storage.small_leaves import Member

SCHEMA = TableSchema.assign(
    pa.schema(
        [
            ("id", pa.int32()),
            ("f", pa.float32()),
            ("day", pa.date32()),
            ("price", pa.decimal128(5, 2)),
            (
                "s",
                pa.struct(
                    [
                        ("x", pa.int32()),
                        pa.field("y", pa.string(), nullable=False),
                        ("t", pa.struct([("u", pa.int32())])),
                    ]
                ),
            ),
            ("l", pa.list_(pa.struct([("a", pa.int64())]))),
        ]
    )
)
NEXT = max(SCHEMA.field_ids) + 1
ROWS = [
    {
        "id": 1,
        "f": 0.1,
        "day": dt.date(2025, 1, 1),
        "price": Decimal("1.50"),
        "s": {"x": 1, "y": "one", "t": {"u": 10}},
        "l": [{"a": 1}],
    },
    {"id": 2, "f": None, "day": None, "price": None, "s": None, "l": None},
    {
        "id": 3,
        "f": -0.0,
        "day": dt.date(1969, 12, 31),
        "price": Decimal("-2.25"),
        "s": {"x": None, "y": "three", "t": None},
        "l": [],
    },
]


def changed(*steps):
    """The schema after some changes, and each new column with an id of its own."""
    schema, number = SCHEMA, NEXT
    for change, *args in steps:
        if change == "add":
            schema = evolution.add_column(schema, args[0], args[1], number, *args[2:])
            number = max(number, *schema.field_ids) + 1
        else:
            schema = getattr(evolution, change)(schema, *args)
    return schema


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The rows, in a leaf of the schema as it was."""
    leaf = Leaf(Location(tmp_path_factory.mktemp("mapping")), "1_v1$dataset", SCHEMA)
    files = leaf.create().write(pa.Table.from_pylist(ROWS, SCHEMA.arrow))
    return leaf, leaf.commit(None, LeafDelta(added=(files,)))


@pytest.fixture
def seen(written):
    """A function that gives the leaf as it is seen through a schema."""
    leaf, version = written
    return lambda schema: (Leaf(leaf.location, leaf.folder, schema), version)


def rows_of(leaf, version, schema, where=None, columns=None):
    names = columns or schema.arrow.names
    predicate = None if where is None else bind(parse(where), schema.column)
    batches = list(leaf.scan(version, names, predicate))
    for batch in batches:
        assert batch.schema.names == names
        assert batch.schema.types == [schema.arrow.field(name).type for name in names]
        batch.validate(full=True)
    assert leaf.count(version, predicate) == sum(batch.num_rows for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def ids(leaf, version, schema, where):
    name = next(f.name for f in schema.tagged if f.metadata[b"lance:field_id"] == b"0")
    return [row[name] for row in rows_of(leaf, version, schema, where, [name])]


class TestTheSame:
    def test_it_costs_nothing(self, written):
        leaf, version = written
        handle = leaf.open(version)
        mapping = mapping_of(handle.lance_schema, handle, SCHEMA)
        assert mapping is mapping_of(handle.lance_schema, leaf.open(version), SCHEMA)
        reading = mapping.reading(["s", "id"])
        assert reading.is_same
        assert reading.columns == ["s", "id"]
        batch = pa.record_batch({"s": [1], "id": [2]})
        assert reading.batch(batch, row_ids=False) is batch

    def test_other_columns_make_no_difference(self, seen):
        schema = changed(("rename_column", "f", "g"), ("add", "n", pa.int64()))
        leaf, version = seen(schema)
        handle = leaf.open(version)
        assert mapping_of(handle.lance_schema, handle, schema).reading(["id", "s"]).is_same
        assert not mapping_of(handle.lance_schema, handle, schema).reading(["g"]).is_same

    def test_some_columns_of_a_schema(self, seen):
        schema = SCHEMA.only(["id", "s"])
        leaf, version = seen(schema)
        assert rows_of(leaf, version, schema, "s.x = 1") == [{"id": 1, "s": ROWS[0]["s"]}]


class TestColumns:
    def test_renamed_moved_and_dropped(self, seen):
        schema = changed(
            ("rename_column", "id", "tmp"),
            ("rename_column", "f", "id"),
            ("rename_column", "tmp", "f"),
            ("drop_column", "day"),
            ("move_column", "l", True),
        )
        leaf, version = seen(schema)
        assert [(row["f"], row["l"]) for row in rows_of(leaf, version, schema)] == [
            (1, [{"a": 1}]),
            (2, None),
            (3, []),
        ]
        assert ids(leaf, version, schema, "f = 3") == [3]
        assert ids(leaf, version, schema, "id = 0") == [3]

    def test_dropped_and_added_again(self, seen):
        schema = changed(("drop_column", "f"), ("add", "f", pa.float32(), 7.0))
        leaf, version = seen(schema)
        assert [row["f"] for row in rows_of(leaf, version, schema)] == [7.0] * 3
        assert ids(leaf, version, schema, "f = 7") == [1, 2, 3]
        assert ids(leaf, version, schema, "f < 1") == []

    def test_wider(self, seen):
        schema = changed(
            ("change_type", "id", pa.int64()),
            ("change_type", "f", pa.float64()),
            ("change_type", "day", pa.timestamp("ms")),
            ("change_type", "price", pa.decimal128(30, 2)),
            ("change_type", "s.t.u", pa.int64()),
        )
        leaf, version = seen(schema)
        found = rows_of(leaf, version, schema)
        assert [row["day"] for row in found] == [
            dt.datetime(2025, 1, 1),
            None,
            dt.datetime(1969, 12, 31),
        ]
        assert [row["s"] for row in found] == [row["s"] for row in ROWS]
        for where, expected in (
            ("id > 1", [2, 3]),
            ("f = 0.1", []),
            ("f > 0.1", [1]),
            ("f = 0", [3]),
            ("day < TIMESTAMP '1970-01-01T00:00:00'", [3]),
            ("day IS NULL", [2]),
            ("price <= -2.25", [3]),
            ("s.t.u = 10", [1]),
            ("s.t.u IS NULL", [2, 3]),
            ("id + 1 = 3", [2]),
        ):
            assert ids(leaf, version, schema, where) == expected, where

    def test_inside_structs(self, seen):
        schema = changed(
            ("rename_column", "s.t", "w"),
            ("add", "s.w.v", pa.string()),
            ("drop_column", "s.x"),
            ("rename_column", "s", "z"),
        )
        leaf, version = seen(schema)
        assert [row["z"] for row in rows_of(leaf, version, schema)] == [
            {"y": "one", "w": {"u": 10, "v": None}},
            None,
            {"y": "three", "w": None},
        ]
        assert ids(leaf, version, schema, "z.w.v IS NULL") == [1, 2, 3]
        assert ids(leaf, version, schema, "z.w.u = 10") == [1]
        assert ids(leaf, version, schema, "z IS NULL") == [2]
        assert not schema.arrow.field("z").type.field("y").nullable

    def test_a_struct_that_is_new(self, seen):
        schema = changed(("add", "n", pa.struct([("a", pa.int64()), ("b", pa.binary())])))
        leaf, version = seen(schema)
        assert [row["n"] for row in rows_of(leaf, version, schema)] == [None] * 3
        assert ids(leaf, version, schema, "n IS NULL AND n.a IS NULL AND id < 3") == [1, 2]

    @pytest.mark.parametrize("type", [pa.int64(), pa.string(), pa.list_(pa.int8()), pa.binary(3)])
    def test_nothing_but_new_columns(self, seen, type):
        schema = changed(("add", "n", type))
        leaf, version = seen(schema)
        assert rows_of(leaf, version, schema, None, ["n"]) == [{"n": None}] * 3
        assert rows_of(leaf, version, schema, "n IS NULL AND id = 1", ["n"]) == [{"n": None}]
        assert rows_of(leaf, version, schema, "n IS NOT NULL", ["n"]) == []

    def test_row_ids(self, seen):
        schema = changed(("change_type", "id", pa.int64()), ("add", "n", pa.int64(), 5))
        leaf, version = seen(schema)
        (batch,) = leaf.scan(version, ["n", "id"], None, row_ids=True)
        assert batch.schema.names == ["n", "id", "_rowid"]
        delta, count = leaf.delete_rows(version, batch.column("_rowid").to_numpy()[1:2])
        assert count == 1
        assert rows_of(leaf, leaf.commit(version, delta), schema, None, ["id"]) == [
            {"id": 1},
            {"id": 3},
        ]

    def test_slices_of_structs(self):
        """Rows of a batch that begins in the middle of another."""
        have = TableSchema.assign(
            pa.schema([("s", pa.struct([("a", pa.int32()), ("b", pa.int8())]))])
        )
        want = evolution.change_type(have, "s.a", pa.int64())
        rows = pa.array([{"a": 1, "b": 1}, None, {"a": 3, "b": None}], have.arrow.field(0).type)
        batch = pa.record_batch([rows], schema=have.arrow).slice(1)
        found = LeafMapping(have, want, "leaf").reading(["s"]).batch(batch, row_ids=False)
        assert found.column("s").to_pylist() == [None, {"a": 3, "b": None}]
        found.validate(full=True)

    def test_constants(self):
        field = changed(("add", "n", pa.decimal128(5, 1), Decimal("2.5"))).tagged.field("n")
        assert constant(field, 2).to_pylist() == [Decimal("2.5")] * 2
        assert constant(SCHEMA.tagged.field("s"), 1).type == SCHEMA.arrow.field("s").type


class TestChanges:
    def test_delete(self, seen):
        schema = changed(("rename_column", "id", "key"), ("add", "n", pa.int64(), 5))
        leaf, version = seen(schema)
        for where, count in (("n = 5 AND key < 3", 2), ("n = 6", 0), ("n IS NULL OR key = 3", 1)):
            assert leaf.delete(version, bind(parse(where), schema.column))[1] == count, where
            assert leaf.open(version).count_rows() == 3

    def test_delete_by_row(self, seen):
        schema = changed(("change_type", "id", pa.int64()), ("add", "n", pa.int64(), 5))
        leaf, version = seen(schema)
        (batch,) = leaf.scan(version, ["id"], None, whole=True, row_ids=True)
        by_id = dict(zip(batch["id"].to_pylist(), batch["_rowid"].to_pylist(), strict=True))
        delta, count = leaf.delete_rows(version, np.array([by_id[2]], np.uint64))
        assert count == 1
        assert ids(leaf, leaf.commit(version, delta), schema, "n = 5") == [1, 3]

    def test_deletes_alone_leave_the_description_as_it_is(self, seen):
        schema = changed(("rename_column", "id", "key"))
        leaf, version = seen(schema)
        delta, _ = leaf.delete(version, bind(parse("key = 1"), schema.column))
        after = leaf.open(leaf.commit(version, delta))
        assert after.schema.names == SCHEMA.arrow.names

    @pytest.mark.parametrize(
        ("steps", "anew"),
        [
            ([("rename_column", "id", "key"), ("drop_column", "f")], False),
            ([("add", "n", pa.int64()), ("move_column", "s", True)], False),
            ([("drop_column", "f"), ("add", "f", pa.float32())], False),
            ([("add", "s.n", pa.int64()), ("rename_column", "s.y", "yy")], False),
            ([("add", "n", pa.int64(), 5)], True),
            ([("change_type", "id", pa.int64())], True),
            ([("change_type", "s.x", pa.int64())], True),
            ([("add", "s.t.n", pa.int64()), ("drop_column", "s.t.u")], True),
            ([("add", "l.element.b", pa.int64()), ("rename_column", "l.element.a", "c")], False),
            ([("add", "l.element.b", pa.int64()), ("drop_column", "l.element.a")], True),
            ([("change_type", "id", pa.int64()), ("add", "l.element.b", pa.int64())], True),
        ],
    )
    def test_adding_rows(self, seen, steps, anew):
        """The leaf gets the table's schema, by its description alone where that is enough."""
        schema = changed(*steps)
        leaf, version = seen(schema)
        before = rows_of(leaf, version, schema)
        more = pa.Table.from_pylist([dict.fromkeys(schema.arrow.names)], schema.arrow)
        files = leaf.writer(version).write(more)
        delta, _ = leaf.delete(version, bind(parse("s IS NULL"), schema.column))
        after = leaf.commit(version, LeafDelta((files,), delta.updated, delta.removed))
        assert leaf.rewrote_rows == anew
        handle = leaf.open(after)
        assert handle.lance_schema == lance_schema(schema)
        assert ids_of(handle.lance_schema) == schema.field_ids
        wanted = [before[0], before[2], *more.to_pylist()]
        assert rows_of(leaf, after, schema) == wanted
        assert lance.dataset(leaf.uri, version=after).to_table().to_pylist() == wanted


class TestGiven:
    """Columns whose values the partition gives, whatever is in the files."""

    @staticmethod
    def leaf(written, **given):
        leaf, version = written
        values = tuple((SCHEMA.column((name,)).field_id, key) for name, key in given.items())
        return Leaf(leaf.location, leaf.folder, SCHEMA, values), version

    def test_files_are_not_asked(self, written):
        leaf, version = self.leaf(written, day=0, id=None)
        handle = leaf.open(version)
        mapping = mapping_of(handle.lance_schema, handle, SCHEMA)
        reading = mapping.reading(["day", "f", "id"], leaf.given)
        assert reading.columns == ["f"]
        assert not reading.is_same
        assert mapping.reading(["f", "s"], leaf.given).is_same
        found = rows_of(leaf, version, SCHEMA, columns=["day", "id", "price"])
        assert found == [
            {"day": dt.date(1970, 1, 1), "id": None, "price": row["price"]} for row in ROWS
        ]

    def test_only_given_columns(self, written):
        leaf, version = self.leaf(written, price=-150)
        assert (
            rows_of(leaf, version, SCHEMA, columns=["price"]) == [{"price": Decimal("-1.50")}] * 3
        )

    @pytest.mark.parametrize(
        ("where", "count"),
        [
            ("id = 7", 3),
            ("id = 1", 0),
            ("id IS NULL", 0),
            ("day IS NULL", 3),
            ("day = '2025-01-01'", 0),
            ("day IS NULL AND f IS NULL", 1),
            ("id > 7 OR price < 0", 1),
            ("id + 1 = 8 AND f IS NOT NULL", 2),
            ("NOT (day = '2025-01-01')", 0),
        ],
    )
    def test_filters(self, written, where, count):
        leaf, version = self.leaf(written, id=7, day=None)
        assert len(rows_of(leaf, version, SCHEMA, where)) == count
        assert leaf.delete(version, bind(parse(where), SCHEMA.column))[1] == count

    def test_rows_by_their_ids(self, written):
        leaf, version = self.leaf(written, id=7)
        found = leaf.take(version, np.array([2, 0], np.uint64), ["price", "id"]).to_pylist()
        assert found == [{"price": ROWS[at]["price"], "id": 7} for at in (2, 0)]

    def test_with_row_ids(self, written):
        leaf, version = self.leaf(written, id=7)
        (batch,) = leaf.scan(version, ["id"], None, row_ids=True)
        assert batch.to_pylist() == [{"id": 7, "_rowid": at} for at in range(3)]

    def test_a_column_under_another_name_and_type(self, seen):
        schema = changed(("rename_column", "id", "key"), ("change_type", "key", pa.int64()))
        leaf, version = seen(schema)
        leaf = Leaf(leaf.location, leaf.folder, schema, ((0, 2**40),))
        assert rows_of(leaf, version, schema, "key > 5", ["key"]) == [{"key": 2**40}] * 3

    def test_they_need_no_files(self, written):
        leaf, version = self.leaf(written, id=7)
        handle = leaf.open(version)
        schema = changed(("change_type", "id", pa.int64()))
        mapping = mapping_of(handle.lance_schema, handle, schema)
        assert not mapping.needs_no_files()
        assert mapping.needs_no_files(leaf.given)


class TestBundles:
    def test_files_with_columns_that_are_gone(self, tmp_path):
        """In a bundle fields are numbered anew: an id that is gone is not another's then."""
        location, members = Location(tmp_path), []
        first = TableSchema.assign(pa.schema([("id", pa.int32()), ("f", pa.float32())]))
        schema = evolution.drop_column(first, "f")
        schema = evolution.add_column(schema, "n", pa.float32(), 2)
        for number in range(4):
            leaf = Leaf(location, f"{number}_v1$dataset", first)
            files = leaf.create().write(pa.table({"id": [number], "f": [0.5]}, first.arrow))
            version = leaf.commit(None, LeafDelta(added=(files,)))
            leaf = Leaf(location, leaf.folder, schema)
            if number > 1:
                rows = pa.table({"id": [number + 10], "n": [1.5]}, schema.arrow)
                files = leaf.writer(version).write(rows)
                version = leaf.commit(version, LeafDelta(added=(files,)))
            members.append(Member(leaf.folder, version))
        parts = small_leaves._parts(location, members)
        assert [(p.size, p.manifest is not None) for p, _ in parts] == [(2, True), (2, True)]
        batches = list(small_leaves.scan(location, schema, members, ["n", "id"], None))
        found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        assert found == [(None, 0), (None, 1), (None, 2), (1.5, 12), (None, 3), (1.5, 13)]
        for where, count in (("n IS NULL", 4), ("n = 1.5", 2), ("n = 0.5", 0), ("id > 1", 4)):
            predicate = bind(parse(where), schema.column)
            assert small_leaves.count(location, schema, members, predicate) == count, where
