"""Changes of a schema, as values."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from phalanx import InvalidInput, expr
from phalanx.model.defaults import (
    Default,
    default_of,
    new_default_of,
    with_default,
    with_new_default,
)
from phalanx.model.evolution import (
    add_column,
    add_missing,
    change_type,
    drop_column,
    find,
    fits_files,
    make_nullable,
    move_column,
    rename_column,
    reorder_columns,
    set_default,
    widen_specs,
)
from phalanx.model.promotion import is_wider
from phalanx.model.schema import TableSchema
from phalanx.model.specs import build_spec

SCHEMA = TableSchema.assign(
    pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            ("day", pa.date32()),
            ("s", pa.struct([("x", pa.int32()), ("t", pa.struct([("u", pa.string())]))])),
            ("tags", pa.map_(pa.string(), pa.int64())),
        ]
    )
)
NEXT = max(SCHEMA.field_ids) + 1


def ids(schema):
    return {".".join(column.path): id for id, column in schema.columns.items()}


class TestAdd:
    def test_last_first_and_after(self):
        assert add_column(SCHEMA, "n", pa.int64(), NEXT).arrow.names[-1] == "n"
        assert add_column(SCHEMA, "n", pa.int64(), NEXT, first=True).arrow.names[0] == "n"
        schema = add_column(SCHEMA, "n", pa.int64(), NEXT, after="id")
        assert schema.arrow.names == ["id", "n", "day", "s", "tags"]

    def test_ids(self):
        nested = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))])
        schema = add_column(SCHEMA, "n", nested, NEXT)
        assert schema.field_ids == [*SCHEMA.field_ids, *range(NEXT, NEXT + 4)]
        assert ids(schema)["n.a"] == NEXT + 1

    def test_in_a_struct(self):
        schema = add_column(SCHEMA, "s.t.v", "int64", NEXT, first=True)
        assert ids(schema)["s.t.v"] == NEXT
        assert schema.arrow.field("s").type.field("t").type == pa.struct(
            [("v", pa.int64()), ("u", pa.string())]
        )
        assert schema == add_column(SCHEMA, ("s", "t", "v"), pa.int64(), NEXT, first=True)

    @pytest.mark.parametrize(
        ("type", "value"),
        [
            (pa.int8(), -7),
            (pa.uint64(), 2**64 - 1),
            (pa.float32(), 0.1),
            (pa.float64(), float("inf")),
            (pa.decimal128(10, 2), Decimal("-1.50")),
            (pa.bool_(), False),
            (pa.string(), "it's\n"),
            (pa.binary(), b"\x00"),
            (pa.date32(), dt.date(1969, 12, 31)),
            (pa.timestamp("us"), dt.datetime(2025, 1, 2, 3, 4, 5, 6)),
            (pa.timestamp("ms", "UTC"), dt.datetime(2025, 1, 2, tzinfo=dt.UTC)),
            (pa.time64("us"), dt.time(1, 2, 3)),
            (pa.duration("us"), dt.timedelta(-1, 5)),
            (pa.list_(pa.float32()), [0.5, None]),
            (pa.map_(pa.string(), pa.int64()), {"a": 1}),
            (pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))]), {"a": 1, "b": []}),
        ],
        ids=str,
    )
    def test_defaults(self, type, value):
        schema = TableSchema.from_json(add_column(SCHEMA, "n", type, NEXT, value).to_json())
        assert default_of(schema.tagged.field("n")) == pa.scalar(value, type)
        assert not schema.stored.field("n").metadata

    def test_must_not_be_null(self):
        schema = add_column(SCHEMA, "n", pa.int64(), NEXT, 0, nullable=False)
        assert not schema.arrow.field("n").nullable

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("id", pa.int64()), "already"),
            (("_rowid", pa.int64()), "Lance uses"),
            (("", pa.int64()), "cannot be called"),
            (("day.x", pa.int64()), "has no fields"),
            (("none.x", pa.int64()), "unknown column"),
            (("n", "integer"), "unknown type"),
            (("n", int), "pyarrow type"),
            (("n", pa.int8(), NEXT, 300), "does not fit"),
            (("n", pa.int64(), NEXT, 1.5), "does not fit"),
            (("n", pa.int64(), NEXT, "x"), "does not fit"),
            (("n", pa.list_(pa.int64()), NEXT, [1.5]), "does not fit"),
            (("n", pa.struct([("a", pa.int8())]), NEXT, {"b": 1}), "does not fit"),
            (("n", pa.uuid(), NEXT, pa.scalar(bytes(16), pa.uuid())), "no default"),
            (("n", pa.int64(), NEXT, pa.scalar(None, pa.int64()), False), "give a default"),
            (("n", pa.int64(), NEXT, None, False), "give a default"),
            (("s.n", pa.int64(), NEXT, 5), "no default"),
            (("n", pa.int64(), NEXT, None, True, False, "none"), "to come after"),
            (("n", pa.int64(), NEXT, None, True, True, "id"), "not both"),
        ],
        ids=str,
    )
    def test_refused(self, arguments, said):
        name, type, *others = arguments
        with pytest.raises(InvalidInput, match=said):
            add_column(SCHEMA, name, type, *(others or [NEXT]))

    def test_what_rows_have(self):
        rows = pa.schema([("id", pa.int64()), ("a", pa.string_view()), ("b", pa.list_(pa.int8()))])
        schema = add_missing(SCHEMA, rows, NEXT)
        assert schema.arrow.names == [*SCHEMA.arrow.names, "a", "b"]
        assert schema.arrow.field("a").type == pa.string()
        assert schema.field_ids[-3:] == [NEXT, NEXT + 1, NEXT + 2]
        assert add_missing(SCHEMA, SCHEMA.arrow, NEXT) == SCHEMA


class TestOthers:
    def test_drop(self):
        assert drop_column(SCHEMA, "tags").arrow.names == ["id", "day", "s"]
        assert "s.x" not in ids(drop_column(SCHEMA, "s.x"))
        with pytest.raises(InvalidInput, match="at least one field"):
            drop_column(SCHEMA, "s.t.u")
        with pytest.raises(InvalidInput, match="a table needs"):
            drop_column(TableSchema.assign(pa.schema([("a", pa.int64())])), "a")

    def test_rename(self):
        schema = rename_column(rename_column(SCHEMA, "id", "key"), "s.t", "w")
        assert ids(schema)["key"] == ids(SCHEMA)["id"]
        assert ids(schema)["s.w.u"] == ids(SCHEMA)["s.t.u"]
        assert rename_column(SCHEMA, "id", "ID").arrow.names[0] == "ID"
        with pytest.raises(InvalidInput, match="already"):
            rename_column(SCHEMA, "id", "day")
        assert rename_column(SCHEMA, "id", "s.x").column(("s.x",)).field_id == ids(SCHEMA)["id"]

    def test_order(self):
        assert move_column(SCHEMA, "tags", first=True).arrow.names[0] == "tags"
        assert move_column(SCHEMA, "id", after="day").arrow.names[:2] == ["day", "id"]
        inside = move_column(SCHEMA, "s.t", first=True).arrow.field("s").type
        assert [field.name for field in inside] == ["t", "x"]
        schema = reorder_columns(SCHEMA, ["tags", "s", "day", "id"])
        assert ids(schema) == ids(SCHEMA)
        for wrong in (["id"], ["id", "id", "day", "s"], "id"):
            with pytest.raises(InvalidInput, match="every column once"):
                reorder_columns(SCHEMA, wrong)
        with pytest.raises(InvalidInput, match="say where"):
            move_column(SCHEMA, "id")

    def test_nullable(self):
        assert make_nullable(SCHEMA, "id").arrow.field("id").nullable

    def test_find(self):
        assert find(SCHEMA, "s.t.u").path == ("s", "t", "u")
        assert find(SCHEMA, "ID").path == ("id",)
        assert find(SCHEMA, "tags.value").path == ("tags", "value")
        with pytest.raises(InvalidInput, match="unknown column"):
            find(SCHEMA, "tags.keys")


class TestInLists:
    """Fields of structs that are elements of lists, or values of maps."""

    POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])
    SCHEMA = TableSchema.assign(
        pa.schema(
            [
                ("a", pa.list_(pa.field("item", POINT, False))),
                ("l", pa.large_list(pa.list_(POINT))),
                ("m", pa.map_(pa.struct([("x", pa.int32())]), POINT)),
                ("n", pa.list_(pa.int32())),
                ("v", pa.list_(pa.float32(), 4)),
            ]
        )
    )
    NEXT = max(SCHEMA.field_ids) + 1
    PATHS = ("a.element", "l.element.element", "m.value")

    @staticmethod
    def struct(schema, path):
        return schema.place(tuple(path.split("."))).type

    @pytest.mark.parametrize("path", PATHS)
    def test_fields(self, path):
        added = add_column(self.SCHEMA, f"{path}.z", pa.int64(), self.NEXT, after="x")
        assert [field.name for field in self.struct(added, path)] == ["x", "z", "y"]
        assert added.place((*path.split("."), "z")).field_id == self.NEXT
        assert added.id_set == self.SCHEMA.id_set | {self.NEXT}
        renamed = rename_column(added, f"{path}.X", "w")
        moved = move_column(renamed, f"{path}.y", first=True)
        wider = change_type(moved, f"{path}.w", pa.int64())
        assert self.struct(wider, path) == pa.struct(
            [("y", pa.string()), ("w", pa.int64()), ("z", pa.int64())]
        )
        assert wider.id_set == added.id_set
        assert self.struct(drop_column(wider, f"{path}.y"), path).num_fields == 2
        # A schema comes back from the manifest with the ids of all fields.
        assert TableSchema.from_json(wider.to_json()) == wider

    def test_elements(self):
        schema = change_type(self.SCHEMA, "n.element", pa.int64())
        assert schema.arrow.field("n").type == pa.list_(pa.int64())
        assert make_nullable(schema, "a.element").arrow.field("a").type == pa.list_(self.POINT)
        assert schema.field_ids == self.SCHEMA.field_ids

    def test_a_filter_does_not_name_them(self):
        with pytest.raises(InvalidInput, match="unknown column"):
            self.SCHEMA.column(("a", "element", "x"))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda s: add_column(s, "m.key.z", pa.int64(), 99), "keys of a map"),
            (lambda s: drop_column(s, "m.key.x"), "keys of a map"),
            (lambda s: rename_column(s, "m.key.x", "z"), "keys of a map"),
            (lambda s: change_type(s, "m.key.x", pa.int64()), "keys of a map"),
            (lambda s: make_nullable(s, "m.key"), "keys of a map"),
            (lambda s: drop_column(s, "a.element"), "only its type can change"),
            (lambda s: rename_column(s, "m.value", "z"), "only its type can change"),
            (lambda s: add_column(s, "a.z", pa.int64(), 99), "has no fields"),
            (lambda s: add_column(s, "n.element.z", pa.int64(), 99), "has no fields"),
            (lambda s: add_column(s, "a.element.x", pa.int64(), 99), "already"),
            (lambda s: add_column(s, "a.element.z", pa.int64(), 99, 1), "no default"),
            (lambda s: set_default(s, "a.element.x", 1), "can have a default"),
            (lambda s: change_type(s, "v.element", pa.float64()), "unknown column"),
            (lambda s: change_type(s, "a.element.y", pa.int64()), "cannot become"),
            (lambda s: drop_column(drop_column(s, "a.element.x"), "a.element.y"), "at least one"),
        ],
    )
    def test_refused(self, change, message):
        with pytest.raises(InvalidInput, match=message):
            change(self.SCHEMA)

    def test_a_default_has_its_fields(self):
        field = pa.field("d", pa.list_(self.POINT))
        schema = TableSchema.assign(pa.schema([("id", pa.int32())]))
        schema = add_column(schema, "d", field.type, 1, [{"x": 1, "y": "one"}, None])
        schema = rename_column(schema, "d.element.y", "w")
        schema = add_column(schema, "d.element.z", pa.int64(), 9, first=True)
        assert default_of(schema.arrow.field("d")).as_py() == [
            {"z": None, "x": 1, "w": "one"},
            None,
        ]


WIDER = [
    (pa.int8(), pa.int16()),
    (pa.int8(), pa.int64()),
    (pa.int32(), pa.int64()),
    (pa.uint8(), pa.int16()),
    (pa.uint32(), pa.uint64()),
    (pa.float16(), pa.float32()),
    (pa.float32(), pa.float64()),
    (pa.decimal128(5, 2), pa.decimal128(9, 2)),
    (pa.decimal128(5, 2), pa.decimal256(50, 2)),
    (pa.date32(), pa.timestamp("us")),
    (pa.date32(), pa.timestamp("s")),
]
NOT_WIDER = [
    (pa.int64(), pa.int64()),
    (pa.int64(), pa.int32()),
    (pa.int32(), pa.uint64()),
    (pa.uint32(), pa.int32()),
    (pa.int32(), pa.float64()),
    (pa.float64(), pa.float32()),
    (pa.decimal128(9, 2), pa.decimal128(5, 2)),
    (pa.decimal128(5, 2), pa.decimal128(9, 4)),
    (pa.date32(), pa.timestamp("us", "UTC")),
    (pa.date32(), pa.timestamp("ns")),
    (pa.date32(), pa.date64()),
    (pa.string(), pa.int64()),
    (pa.int64(), pa.string()),
]


class TestTypes:
    @pytest.mark.parametrize(("old", "new"), WIDER, ids=str)
    def test_wider(self, old, new):
        assert is_wider(old, new)

    @pytest.mark.parametrize(("old", "new"), NOT_WIDER, ids=str)
    def test_not_wider(self, old, new):
        assert not is_wider(old, new)
        schema = TableSchema.assign(pa.schema([("a", old)]))
        if old == new:  # no change
            assert change_type(schema, "a", new) == schema
            return
        with pytest.raises(InvalidInput, match="only be widened"):
            change_type(schema, "a", new)

    def test_the_id_stays(self):
        schema = change_type(change_type(SCHEMA, "id", pa.int64()), "s.x", "int64")
        assert ids(schema) == ids(SCHEMA)
        assert find(schema, "s.x").type == pa.int64()
        assert not schema.arrow.field("id").nullable

    def test_a_default_stays_the_same_value(self):
        field = with_default(pa.field("f", pa.float32()), pa.scalar(0.1, pa.float32()))
        schema = TableSchema.assign(pa.schema([field]))
        wider = change_type(schema, "f", pa.float64())
        assert default_of(wider.tagged.field("f")).as_py() == pa.scalar(0.1, pa.float32()).as_py()


class TestDefaults:
    """The default for new rows, which is changed without touching that of existing ones."""

    WITH = add_column(SCHEMA, "n", pa.int32(), NEXT, 5)
    NOW = Default(None, "current_timestamp()")

    def test_set_and_drop(self):
        schema = set_default(self.WITH, "n", 7)
        assert default_of(schema.tagged.field("n")).as_py() == 5
        assert new_default_of(schema.tagged.field("n")) == Default(pa.scalar(7, pa.int32()))
        dropped = set_default(schema, "n", None)
        assert default_of(dropped.tagged.field("n")).as_py() == 5
        assert new_default_of(dropped.tagged.field("n")) is None
        assert set_default(dropped, "n", 5) == self.WITH
        assert set_default(SCHEMA, "id", None) == SCHEMA
        assert set_default(set_default(SCHEMA, "id", 1), "id", None) == SCHEMA

    def test_refused(self):
        with pytest.raises(InvalidInput, match="does not fit"):
            set_default(SCHEMA, "id", "x")
        with pytest.raises(InvalidInput, match=r"'s\.x' is inside another column"):
            set_default(SCHEMA, "s.x", 1)
        with pytest.raises(InvalidInput, match="unknown column"):
            set_default(SCHEMA, "none", 1)

    def test_it_stays_with_its_column(self):
        sql = Default(pa.scalar(7, pa.int32()), "3 + 4")
        schema = set_default(self.WITH, "n", sql)
        moved = move_column(rename_column(drop_column(schema, "id"), "n", "m"), "m", first=True)
        assert new_default_of(moved.tagged.field("m")) == sql
        assert new_default_of(make_nullable(moved, "m").tagged.field("m")) == sql

    def test_a_wider_type(self):
        schema = set_default(self.WITH, "n", Default(pa.scalar(7, pa.int32()), "3 + 4"))
        wider = change_type(schema, "n", pa.int64()).tagged.field("n")
        assert default_of(wider) == pa.scalar(5, pa.int64())
        assert new_default_of(wider) == Default(pa.scalar(7, pa.int64()))
        day = set_default(SCHEMA, "day", Default(None, "current_date()"))
        wider = change_type(day, "day", pa.timestamp("us")).tagged.field("day")
        assert new_default_of(wider) == Default(None, "current_date()")
        none = change_type(set_default(self.WITH, "n", None), "n", pa.int64()).tagged.field("n")
        assert new_default_of(none) is None
        assert default_of(none) == pa.scalar(5, pa.int64())

    def test_fields_of_a_struct_change(self):
        """A struct's default follows: by the ids of its fields, and not by their places."""
        schema = set_default(SCHEMA, "s", {"x": 1, "t": {"u": "a"}})
        schema = add_column(schema, "s.new", pa.int64(), NEXT, first=True)
        schema = rename_column(move_column(schema, "s.t", first=True), "s.t.u", "v")
        schema = change_type(schema, "s.x", pa.int64())
        value = new_default_of(schema.tagged.field("s")).value.as_py()
        assert value == {"t": {"v": "a"}, "new": None, "x": 1}
        value = new_default_of(drop_column(schema, "s.x").tagged.field("s")).value.as_py()
        assert value == {"t": {"v": "a"}, "new": None}

    def test_sql_that_would_not_fit_a_struct(self):
        field = SCHEMA.tagged.field("s")
        sql = Default(None, "named_struct('x', 1, 't', named_struct('u', current_user()))")
        changed = SCHEMA.tagged.set(2, with_new_default(field, sql))
        schema = TableSchema(changed)
        described = rename_column(schema, "s", "r")
        assert new_default_of(described.tagged.field("r")) == sql
        with pytest.raises(InvalidInput, match=r"'s' has the default named_struct.*drop the"):
            drop_column(schema, "s.x")


class TestSpecs:
    FIELDS = ("id", "truncate(10, id)", "bucket(4, id)", "year(day)")

    def widened(self, entries, path, type):
        specs = (build_spec(1, entries, SCHEMA),)
        after = change_type(SCHEMA, path, type)
        return widen_specs(specs, SCHEMA, after, find(SCHEMA, path))[0]

    def test_values_of_identity_and_truncate_widen(self):
        spec = self.widened(self.FIELDS, "id", pa.int64())
        assert [field.result_type for field in spec.fields] == [
            pa.int64(),
            pa.int64(),
            pa.int32(),
            pa.int32(),
        ]
        assert [f.field_id for f in spec.fields] == ["id", "id_truncate", "id_bucket", "day_year"]

    def test_other_columns(self):
        spec = build_spec(1, self.FIELDS, SCHEMA)
        assert self.widened(self.FIELDS, "s.x", pa.int64()) == spec

    @pytest.mark.parametrize("entry", ["day", "year(day)", "bucket(4, day)"])
    def test_a_date_that_rows_are_cut_by(self, entry):
        with pytest.raises(InvalidInput, match="rows would belong elsewhere"):
            self.widened([entry], "day", pa.timestamp("us"))

    def test_an_expression(self):
        same = expr("CAST(col0 % 3 AS INT)", ["id"], name="third")
        assert self.widened([same], "id", pa.int64()).fields[0].result_type == pa.int32()
        other = expr("col0", ["id"], name="itself")
        with pytest.raises(InvalidInput, match="would give int64"):
            self.widened([other], "id", pa.int64())


class TestFiles:
    """Which files, written for the schema, are right as they are under another."""

    @pytest.mark.parametrize(
        "schema",
        [
            SCHEMA,
            add_column(SCHEMA, "n", pa.int64(), NEXT),
            reorder_columns(SCHEMA, ["tags", "s", "day", "id"]),
            make_nullable(SCHEMA, "id"),
        ],
        ids=["same", "column added", "reordered", "nullable"],
    )
    def test_right(self, schema):
        assert fits_files(SCHEMA, schema)

    @pytest.mark.parametrize(
        "schema",
        [
            add_column(SCHEMA, "n", pa.int64(), NEXT, 5),
            add_column(SCHEMA, "s.n", pa.int64(), NEXT),
            drop_column(SCHEMA, "day"),
            rename_column(SCHEMA, "day", "date"),
            change_type(SCHEMA, "id", pa.int64()),
            TableSchema.assign(SCHEMA.arrow, NEXT),
        ],
        ids=["default", "inside", "dropped", "renamed", "widened", "replaced"],
    )
    def test_not_right(self, schema):
        assert not fits_files(SCHEMA, schema)

    def test_an_id_that_means_something_else(self):
        mine = add_column(SCHEMA, "mine", pa.int64(), NEXT)
        assert not fits_files(mine, add_column(SCHEMA, "yours", pa.int64(), NEXT))
        assert fits_files(mine, add_column(SCHEMA, "mine", pa.int64(), NEXT))


def test_a_name_that_is_taken():
    inner = pa.struct([("x", pa.int32())])
    schema = TableSchema.assign(pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", inner)]))
    with pytest.raises(InvalidInput, match=r"^the table has a column 'a' already$"):
        add_column(schema, "a", "int32", 9)
    with pytest.raises(InvalidInput, match=r"^the table has a column 'a' already$"):
        rename_column(schema, "b", "a")
    with pytest.raises(InvalidInput, match=r"^'s' has a field 'x' already$"):
        add_column(schema, "s.x", "int32", 9)
    with pytest.raises(InvalidInput, match="names are not empty"):
        rename_column(schema, "b", "")
    assert rename_column(schema, "b", "b") == schema
