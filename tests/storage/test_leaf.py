import math
import shutil
import struct
from concurrent.futures import ThreadPoolExecutor

import lance
import numpy as np
import pyarrow as pa
import pytest

from phalanx import CorruptTable, InvalidInput, PhalanxError
from phalanx.model.filters import bind
from phalanx.model.parser import parse
from phalanx.model.schema import TableSchema
from phalanx.storage.lance_sql import Lance
from phalanx.storage.lance_types import check_storable
from phalanx.storage.leaf import EMPTY_VERSION, Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.location import Location

SCHEMA = TableSchema.assign(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("place", pa.struct([("city", pa.string()), ("at", pa.list_(pa.float64()))])),
            ("tags", pa.map_(pa.string(), pa.int32())),
            ("vector", pa.list_(pa.float32(), 2)),
        ]
    )
)


@pytest.fixture
def leaf(tmp_path):
    return Leaf(Location(tmp_path), "0badcafe_v1$dataset", SCHEMA)


def rows(*ids):
    return pa.Table.from_pylist([{"id": id} for id in ids], schema=SCHEMA.arrow)


def add(leaf, base, *ids):
    writer = leaf.create() if base is None else leaf.writer(base)
    written = writer.write(rows(*ids))
    return leaf.commit(base, LeafDelta(added=(written,)))


def ids(leaf, version, **options):
    batches = leaf.scan(version, ["id"], options.pop("where", None), **options)
    return [id for batch in batches for id in batch.column(0).to_pylist()]


class TestMaking:
    def test_it_is_empty_and_has_the_ids_of_the_table(self, leaf):
        leaf.create()
        dataset = lance.dataset(leaf.uri)
        assert (dataset.version, dataset.count_rows()) == (EMPTY_VERSION, 0)
        assert dataset.schema == SCHEMA.arrow

        def walk(field):
            yield field.id()
            for child in field.children():
                yield from walk(child)

        found = [id for field in dataset.lance_schema.fields() for id in walk(field)]
        assert found == SCHEMA.field_ids

    def test_making_it_again_changes_nothing(self, leaf):
        version = add(leaf, None, 1, 2)
        leaf.create()
        assert lance.dataset(leaf.uri).version == EMPTY_VERSION
        assert ids(leaf, version) == [1, 2]

    def test_two_can_make_it_at_once(self, tmp_path):
        with ThreadPoolExecutor(8) as pool:
            for number in range(5):
                leaf = Leaf(Location(tmp_path), f"{number}_v1$dataset", SCHEMA)
                made = list(pool.map(lambda _: leaf.create()._handle, range(8)))  # noqa: B023
                assert {handle.version for handle in made} == {EMPTY_VERSION}
                assert len(lance.dataset(leaf.uri).versions()) == 1

    def test_rows_are_committed_without_making_it_again(self, leaf, monkeypatch):
        written = leaf.create().write(rows(1))
        monkeypatch.setattr(Leaf, "create", None)
        version = leaf.commit(None, LeafDelta(added=(written,)))
        assert ids(leaf, version) == [1]

    def test_made_anew_with_another_schema(self, leaf):
        """The folder is the same, and so is the number of the first version."""
        add(leaf, None, 1)
        assert leaf.open(EMPTY_VERSION).schema == SCHEMA.arrow
        shutil.rmtree(leaf.uri)
        schema = TableSchema.assign(pa.schema([("id", pa.int64()), ("other", pa.string())]))
        table = pa.table({"id": [2], "other": ["x"]}, schema=schema.arrow)
        leaf = Leaf(leaf.location, leaf.folder, schema)
        written = leaf.create().write(table)
        version = leaf.commit(None, LeafDelta(added=(written,)))
        assert lance.dataset(leaf.uri, version=version).to_table().equals(table)

    def test_the_same_columns_with_other_ids(self, leaf, tmp_path):
        # Another process knows only the second schema: both must make the same of it.
        leaf.create()
        other = TableSchema.assign(SCHEMA.arrow, first=50)
        made = Leaf(leaf.location, "00000000_v2$other$dataset", other).create()
        assert [field.id() for field in made._handle.lance_schema.fields()] == [
            int(field.metadata[b"lance:field_id"]) for field in other.tagged
        ]

    def test_rows_in_its_first_version_do_not_come_back(self, tmp_path):
        """Another client may have written them, and the leaf was removed from the table since."""
        schema = TableSchema.assign(pa.schema([("id", pa.int64())]))
        leaf = Leaf(Location(tmp_path), "0badcafe_v1$dataset", schema)
        lance.write_dataset(pa.table({"id": [1]}), leaf.uri)
        written = leaf.create().write(pa.table({"id": [2]}))
        assert ids(leaf, leaf.commit(None, LeafDelta(added=(written,)))) == [2]

    def test_where_it_cannot_be_made_the_cause_is_told(self, tmp_path, monkeypatch):
        def fail(*args, **options):
            raise OSError("LanceError(IO): No space left on device, /rust/lance/x.rs:1:1")

        monkeypatch.setattr(lance.LanceDataset, "commit", fail)
        with pytest.raises(
            PhalanxError, match=r"cannot make the leaf .*: No space left on device$"
        ):
            Leaf(Location(tmp_path), "x", SCHEMA).create()


class TestVersions:
    def test_a_commit_is_invisible_on_main(self, leaf):
        version = add(leaf, None, 1)
        assert version > 2**63
        assert lance.dataset(leaf.uri).count_rows() == 0
        assert ids(leaf, version) == [1]

    def test_one_builds_on_another(self, leaf):
        first = add(leaf, None, 1)
        second = add(leaf, first, 2)
        other = add(leaf, first, 3)
        assert ids(leaf, first) == [1]
        assert ids(leaf, second) == [1, 2]
        assert ids(leaf, other) == [1, 3]

    def test_one_that_does_not_exist(self, leaf):
        leaf.create()
        with pytest.raises(CorruptTable, match=r"has no version 77: .*run check\(\)"):
            leaf.open(77)

    def test_written_rows_are_counted(self, leaf):
        written = leaf.create().write(rows(1, 2, 3))
        assert written.rows == 3
        assert written.bytes > 0


class TestReading:
    def test_columns_filter_and_limit(self, leaf):
        version = add(leaf, None, *range(10))
        where = bind(parse("id >= 4"), SCHEMA.column)
        assert ids(leaf, version, where=where) == [4, 5, 6, 7, 8, 9]
        assert ids(leaf, version, where=where, limit=2) == [4, 5]
        assert leaf.count(version, where) == 6
        assert leaf.count(version, None) == 10

    @pytest.mark.parametrize(
        "where",
        [
            "substr('abc', CAST(id AS INT), 1) = 'a'",
            "ceil(id / 2.0) = 1",
            "trim(CAST(id AS STRING)) = '1'",
            "DATE '2025-01-01' + INTERVAL '1 day' > DATE '2025-01-01' AND id = 1",
        ],
    )
    def test_functions_that_sql_writes_in_its_own_way(self, leaf, where):
        version = add(leaf, None, 1, 4)
        assert ids(leaf, version, where=bind(parse(where), SCHEMA.column)) == [1]

    def test_a_filter_that_fails_on_a_row(self, leaf):
        version = add(leaf, None, 1)
        where = bind(parse("CAST('x' || CAST(id AS STRING) AS INT) = 1"), SCHEMA.column)
        with pytest.raises(InvalidInput, match=r"Lance cannot evaluate .*: .*Cannot cast string"):
            ids(leaf, version, where=where)
        with pytest.raises(InvalidInput, match="Lance cannot evaluate"):
            leaf.count(version, where)


class TestSlices:
    """Rows of one leaf are a slice of what came in, and Lance must see only the slice."""

    @pytest.mark.parametrize(
        ("type", "values"),
        [
            (
                pa.struct([("a", pa.struct([("b", pa.string())]))]),
                [{"a": {"b": c}} for c in "wxyz"],
            ),
            (
                pa.struct([("a", pa.struct([("b", pa.int64())]))]),
                [{"a": {"b": 1}}, None, {"a": None}, {"a": {"b": None}}],
            ),
            (pa.list_(pa.struct([("a", pa.int64())])), [[{"a": 1}], None, [], [{"a": 2}, None]]),
            (
                pa.map_(pa.string(), pa.struct([("x", pa.struct([("y", pa.bool_())]))])),
                [[("k", {"x": {"y": True}})], [], None, [("l", None)]],
            ),
            (pa.list_(pa.float32(), 2), [[1, 2], None, [3, 4], [5, 6]]),
            (pa.dictionary(pa.int8(), pa.string()), ["a", None, "b", "a"]),
            (pa.bool_(), [True, None, False, True]),
        ],
        ids=str,
    )
    @pytest.mark.parametrize(("start", "length"), [(0, 2), (1, 2), (3, 1)])
    def test_a_slice_is_written_as_it_is(self, leaf, type, values, start, length):
        schema = TableSchema.assign(pa.schema([("x", type)]))
        table = pa.table([pa.array(values, type)], schema=schema.arrow).slice(start, length)
        leaf = Leaf(leaf.location, leaf.folder, schema)
        written = leaf.create().write(table)
        version = leaf.commit(None, LeafDelta(added=(written,)))
        (batch,) = leaf.scan(version, ["x"], None)
        assert batch.column(0).to_pylist() == values[start : start + length]


class TestStorable:
    """A type that Lance cannot keep is refused when the table is made, not when it is filled."""

    @pytest.mark.parametrize(
        "type",
        [
            pa.decimal32(9, 2),
            pa.decimal64(18, 2),
            pa.string_view(),
            pa.binary_view(),
            pa.month_day_nano_interval(),
            pa.list_view(pa.int64()),
            pa.struct([]),
            pa.struct([("a", pa.int64()), ("a", pa.string())]),
            pa.list_(pa.string(), 2),
            pa.list_(pa.struct([("a", pa.int64())]), 2),
            pa.list_(pa.float32(), 0),
            pa.list_(pa.struct([("s", pa.string_view())])),
        ],
        ids=str,
    )
    def test_refused(self, type):
        with pytest.raises(InvalidInput, match="Lance cannot store"):
            check_storable(TableSchema.assign(pa.schema([("x", type)])))

    @pytest.mark.parametrize("inside", [False, True])
    def test_a_blob_is_refused(self, inside):
        """Scans do not read it, so its rows could be written and never be read."""
        column = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        if inside:
            column = pa.field("s", pa.struct([column]))
        with pytest.raises(InvalidInput, match="is a blob"):
            check_storable(TableSchema.assign(pa.schema([column])))

    def test_a_blob_that_a_table_has_is_no_reason_to_refuse_other_columns(self):
        column = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        old = TableSchema.assign(pa.schema([column]))
        new = TableSchema.assign(pa.schema([column, ("x", pa.int64())]))
        check_storable(new, old)
        with pytest.raises(InvalidInput, match="'more' is a blob"):
            check_storable(TableSchema.assign(pa.schema([column, column.with_name("more")])), old)

    def test_what_lance_keeps(self):
        check_storable(SCHEMA)
        plain = pa.field("b", pa.binary(), metadata={"lance-encoding:blob": "false"})
        check_storable(TableSchema.assign(pa.schema([plain])))


# How a predicate reads in Lance's SQL --------------------------------------------------------

NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
FLOATS = {
    "-inf": -math.inf,
    "-1": -1.0,
    "-0": -0.0,
    "0": 0.0,
    "1": 1.0,
    "inf": math.inf,
    "nan": math.nan,
    "-nan": NEGATIVE_NAN,
    "null": None,
}


@pytest.fixture(scope="module", params=[pa.float32(), pa.float64()], ids=str)
def floats(request, tmp_path_factory):
    schema = TableSchema.assign(pa.schema([("name", pa.string()), ("x", request.param)]))
    leaf = Leaf(Location(tmp_path_factory.mktemp("floats")), "f", schema)
    column = pa.array(FLOATS.values(), pa.float64()).cast(request.param)
    table = pa.table([pa.array(FLOATS), column], schema=schema.arrow)
    written = leaf.create().write(table)
    return leaf, leaf.commit(None, LeafDelta(added=(written,))), schema


class TestFloats:
    """Every NaN is one value above all numbers, whatever its sign bit; -0.0 is 0.0."""

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            ("x = 0", "-0 0"),
            ("x <> 0", "-inf -1 1 inf nan -nan"),
            ("x < 0", "-inf -1"),
            ("x <= 0", "-inf -1 -0 0"),
            ("x > 0", "1 inf nan -nan"),
            ("x >= 0", "-0 0 1 inf nan -nan"),
            ("x = 'NaN'", "nan -nan"),
            ("x <> 'NaN'", "-inf -1 -0 0 1 inf"),
            ("x < 'NaN'", "-inf -1 -0 0 1 inf"),
            ("x > 'Infinity'", "nan -nan"),
            ("x <= '-Infinity'", "-inf"),
            ("NOT x > 1", "-inf -1 -0 0 1"),
            ("x IN (0, 1)", "-0 0 1"),
            ("x NOT IN (0, 1)", "-inf -1 inf nan -nan"),
            ("x BETWEEN -1 AND 0", "-1 -0 0"),
            ("x < 0 OR x IS NULL", "-inf -1 null"),
            ("x > 1 OR x IS NULL", "inf nan -nan null"),
            ("x <=> NULL", "null"),
            ("x IS NOT NULL", "-inf -1 -0 0 1 inf nan -nan"),
        ],
    )
    def test_comparisons(self, floats, where, expected):
        leaf, version, schema = floats
        predicate = bind(parse(where), schema.column)
        batches = leaf.scan(version, ["name"], predicate)
        found = [name for batch in batches for name in batch.column(0).to_pylist()]
        assert " ".join(found) == expected
        assert leaf.count(version, predicate) == len(found)


class TestSpelling:
    def test_names_are_quoted(self):
        schema = TableSchema.assign(pa.schema([("a b", pa.struct([("Select", pa.int32())]))]))
        predicate = bind(parse('"a b"."Select" = 1'), schema.column)
        assert Lance().predicate(predicate).startswith("`a b`.`Select` = ")


class TestStableRowIds:
    """A leaf of another client, whose rows keep their ids when they move."""

    @pytest.fixture
    def foreign(self, leaf):
        for part in ((1, 2, 3), (4, 5), (6, 7, 8)):
            table = pa.Table.from_pylist([{"id": id} for id in part], schema=SCHEMA.arrow)
            lance.write_dataset(table, leaf.uri, mode="append", enable_stable_row_ids=True)
        dataset = lance.dataset(leaf.uri)
        assert dataset.has_stable_row_ids
        dataset.delete("id IN (2, 7)")
        dataset.optimize.compact_files(materialize_deletions_threshold=0)
        dataset.insert(rows(9, 10), mode="append")
        return leaf

    def test_rows_are_read_and_deleted_by_their_ids(self, foreign):
        version = foreign.newest()
        found = pa.Table.from_batches(foreign.scan(version, ["id"], None, row_ids=True))
        assert found.schema.names == ["id", "_rowid"]
        by_id = dict(zip(found["id"].to_pylist(), found["_rowid"].to_pylist(), strict=True))
        assert sorted(by_id) == [1, 3, 4, 5, 6, 8, 9, 10]
        chosen = np.array([by_id[id] for id in (9, 3, 8)], np.uint64)
        assert foreign.take(version, chosen, ["id"])["id"].to_pylist() == [9, 3, 8]
        delta, count = foreign.delete_rows(version, chosen)
        assert count == 3
        after = foreign.commit(version, delta)
        assert sorted(ids(foreign, after)) == [1, 4, 5, 6, 10]

    def test_without_a_column_that_the_leaf_has(self, foreign):
        wider = TableSchema.assign(SCHEMA.arrow.append(pa.field("more", pa.int8())))
        leaf = Leaf(foreign.location, foreign.folder, wider)
        (batch, *_) = leaf.scan(leaf.newest(), ["more"], None, row_ids=True)
        assert batch.schema.names == ["more", "_rowid"]
