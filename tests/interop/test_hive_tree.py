"""Trees of key=value folders that others have made: read, pruned, appended to, adopted."""

import datetime as dt
import json
import os
import shutil
from decimal import Decimal

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.interop import hive
from phalanx.interop.hive_metadata import read_metadata
from tests.interop.trees import GOLDEN, golden, ids, paths_in, write_leaf, write_manifest

TREES = pytest.mark.parametrize("tree", GOLDEN, ids=[tree["name"] for tree in GOLDEN])
NOTHING = dt.timedelta(0)


class TestDocument:
    @TREES
    def test_queries_read_only_the_leaves_they_must(self, root, tree):
        table = phalanx.open(golden(root, tree))
        for query in tree["queries"]:
            plan = table.scan(where=query["where"]).plan()
            paths = sorted(os.path.relpath(leaf.uri, root) for leaf in plan.leaves)
            assert paths == sorted(query["leaves"] or tree["leaves"]), query
            assert ids(table, query["where"]) == query["ids"], query

    @TREES
    def test_leaves_that_are_left_out_are_not_opened(self, root, tree):
        golden(root, tree)
        phalanx.open(root)
        query = tree["queries"][0]
        for path in tree["leaves"]:
            if path not in query["leaves"]:
                shutil.rmtree(root / path / "data")
        assert ids(phalanx.open(root), query["where"]) == query["ids"]

    @TREES
    def test_all_rows_come_back(self, root, tree):
        table = phalanx.open(golden(root, tree))
        rows = sum(len(rows) for rows in tree["leaves"].values())
        assert (table.count(), len(ids(table))) == (rows, rows)
        assert table.partitions().num_rows == len(tree["leaves"])

    def test_columns_are_in_the_order_that_is_declared(self, root):
        table = phalanx.open(golden(root, GOLDEN[0]))
        assert table.schema == pa.schema(
            [("id", pa.int64()), ("event_date", pa.date32()), ("country", pa.string())]
        )

    def test_an_empty_namespace(self, root):
        write_manifest(root, GOLDEN[0]["properties"])
        table = phalanx.open(root)
        assert (table.count(), table.schema.names) == (0, ["id", "event_date", "country"])
        table.append([{"id": 1, "event_date": dt.date(2025, 12, 10), "country": "US"}])
        assert paths_in(root) == ["event_date=2025-12-10/country=US.lance"]

    def test_a_namespace_that_is_not_partitioned(self, root):
        write_manifest(root, {"lance.partitioning.is_partitioned": "false"})
        with pytest.raises(phalanx.TableNotFound):
            phalanx.open(root)

    @pytest.mark.parametrize(
        "columns",
        [
            None,
            "{",
            "[{}]",
            '[{"name": "id", "function": "zorder"}]',
            '[{"name": "id", "function": "bucket"}]',
            '[{"name": "id", "function": "bucket", "properties": {"num_buckets": true}}]',
            '[{"name": "id", "function": "truncate", "properties": {"width": 3.5}}]',
            '[{"name": "id", "function": "truncate", "properties": {"width": "3.5"}}]',
        ],
    )
    def test_properties_that_cannot_be_read(self, root, columns):
        properties = {"lance.partitioning.is_partitioned": "true"}
        if columns is not None:
            properties["lance.partitioning.partition_columns"] = columns
        with pytest.raises(phalanx.UnsupportedTable, match="cannot be read"):
            read_metadata(properties, "here")


class TestBareTrees:
    def test_types_are_inferred(self, root):
        write_leaf(
            root, "a=1/b=2025-01-02/c=x/d=01/e=__HIVE_DEFAULT_PARTITION__.lance", [{"id": 1}]
        )
        write_leaf(root, "a=-20/b=__HIVE_DEFAULT_PARTITION__/c=2/d=12/e=true.lance", [{"id": 2}])
        table = phalanx.open(root)
        assert table.schema == pa.schema(
            [
                ("id", pa.int64()),
                ("a", pa.int64()),
                ("b", pa.date32()),
                ("c", pa.string()),
                ("d", pa.string()),
                ("e", pa.string()),
            ]
        )
        assert table.scan(where="id = 1").to_arrow().to_pylist() == [
            {"id": 1, "a": 1, "b": dt.date(2025, 1, 2), "c": "x", "d": "01", "e": None}
        ]
        assert ids(table, "a < 0") == [2]

    def test_comparisons_are_typed(self, root):
        for month in ("1", "02", "10"):
            write_leaf(root, f"month={month}.lance", [{"id": int(month)}])
        table = phalanx.open(root, schema=pa.schema([("id", pa.int64()), ("month", pa.int32())]))
        assert ids(table, "month = 1") == [1]
        assert ids(table, "month < 10") == [1, 2]
        assert table.scan(where="month = 2").plan().selected == 1

    @pytest.mark.parametrize(
        ("type", "text", "value"),
        [
            (pa.string(), "", ""),
            (pa.string(), "%2F%20%25", "/ %"),
            (pa.string(), "__HIVE_DEFAULT_PARTITION__", None),
            (pa.int32(), "007", 7),
            (pa.int64(), "-1", -1),
            (pa.date32(), "2024-02-29", dt.date(2024, 2, 29)),
            (
                pa.timestamp("us", "UTC"),
                "2024-01-01T10%3A00%3A00Z",
                dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC),
            ),
            (pa.timestamp("us"), "2024-01-01%2010%3A30%3A00", dt.datetime(2024, 1, 1, 10, 30)),
            (pa.bool_(), "TRUE", True),
            (pa.float32(), "3.5", 3.5),
            (pa.float64(), "2.718", 2.718),
            (pa.float64(), "1e3", 1000.0),
            (pa.decimal128(9, 2), "123.4", Decimal("123.40")),
        ],
        ids=str,
    )
    def test_every_type_that_can_be_declared(self, root, type, text, value):
        write_leaf(root, f"p={text}.lance", [{"id": 1}])
        table = phalanx.open(root, schema=pa.schema([("id", pa.int64()), ("p", type)]))
        assert table.scan().to_arrow()["p"].to_pylist() == [value]
        assert table.scan(["id"], where="p IS NULL").count() == int(value is None)

    def test_a_value_that_does_not_fit(self, root):
        write_leaf(root, "p=many.lance", [{"id": 1}])
        with pytest.raises(phalanx.InvalidInput, match="give a schema in which it does"):
            phalanx.open(root, schema=pa.schema([("id", pa.int64()), ("p", pa.int32())]))

    def test_columns_that_the_files_have_as_well(self, root):
        write_leaf(root, "p=7.lance", pa.table({"id": [1], "p": pa.array([7], pa.int16())}))
        table = phalanx.open(root)
        assert table.schema == pa.schema([("id", pa.int64()), ("p", pa.int16())])
        assert ids(table, "p = 7") == [1]

    def test_leaves_with_columns_in_another_order(self, root):
        """Lance gives the same columns other ids then."""
        write_leaf(root, "p=1.lance", pa.table({"id": [1], "a": ["x"], "b": [1.5]}))
        write_leaf(root, "p=2.lance", pa.table({"b": [2.5], "id": [2], "a": ["y"]}))
        table = phalanx.open(root)
        assert table.scan(where="b > 2 AND a = 'y'").to_arrow().to_pylist() == [
            {"id": 2, "a": "y", "b": 2.5, "p": 2}
        ]
        with pytest.raises(phalanx.UnsupportedTable, match="import the tree into a table"):
            table.append([{"id": 3, "a": "z", "b": 3.5, "p": 2}])
        with pytest.raises(phalanx.UnsupportedTable, match="ids of columns"):
            hive.adopt(root)
        assert ids(phalanx.open(root)) == [1, 2]

    def test_leaves_with_more_or_fewer_columns(self, root):
        write_leaf(root, "p=1.lance", pa.table({"id": [1], "a": ["x"]}))
        write_leaf(root, "p=2.lance", pa.table({"id": [2], "more": [9]}))
        rows = phalanx.open(root).scan().to_arrow().sort_by("id").to_pylist()
        assert rows == [{"id": 1, "a": "x", "p": 1}, {"id": 2, "a": None, "p": 2}]

    @pytest.mark.parametrize(
        ("paths", "reason"),
        [
            (["a=1.lance", "b=1.lance"], "do not agree on the partition columns"),
            (["a=1.lance", "a=1/b=1.lance"], "do not agree on the partition columns"),
            (["a=1/a=1.lance"], "appears twice"),
            (["a=1.lance", "plain.lance"], "names no partition"),
            (["a=1.lance", "plain/b=1.lance"], "names no partition"),
            (["a=%FF.lance"], "is not UTF-8"),
        ],
    )
    def test_trees_that_make_no_sense(self, root, paths, reason):
        for path in paths:
            write_leaf(root, path, [{"id": 1}])
        with pytest.raises(phalanx.InvalidInput, match=reason):
            phalanx.open(root)

    def test_what_is_hidden_is_left_out(self, events):
        (events / "_SUCCESS").write_text("")
        (events / ".staging" / "country=XX.lance").mkdir(parents=True)
        (events / "_temporary").mkdir()
        assert ids(phalanx.open(events)) == [1, 2, 3, 4]

    @pytest.mark.parametrize("make", ["nothing", "empty", "parquet", "folders"])
    def test_what_is_no_tree(self, root, make):
        if make != "nothing":
            root.mkdir()
        if make == "parquet":
            (root / "a=1").mkdir()
            (root / "a=1" / "part-0.parquet").write_text("")
        if make == "folders":
            (root / "one" / "two").mkdir(parents=True)
        with pytest.raises(phalanx.TableNotFound):
            phalanx.open(root)

    def test_a_folder_without_a_dataset(self, root):
        write_leaf(root, "p=2.lance", [{"id": 1}])
        for name in ("p=1.lance", "p=3.lance"):
            (root / name).mkdir()
            with pytest.raises(
                phalanx.CorruptTable, match=rf"{name} has no version .*delete it if"
            ):
                phalanx.open(root).scan().to_arrow()
            (root / name).rmdir()
        assert ids(phalanx.open(root)) == [1]

    def test_a_table_of_ours_needs_no_declaration(self, root):
        schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
        phalanx.create(root, schema, ["p"])
        with pytest.raises(phalanx.InvalidInput, match="open it without"):
            phalanx.open(root, schema=schema)

    def test_declared_fields_that_do_not_fit(self, events):
        with pytest.raises(phalanx.InvalidInput, match="give another partition_by"):
            phalanx.open(events, partition_by=["country"])


DECLARED = {
    "bucket(1000, id)": {"name": "id", "function": "bucket", "properties": {"num_buckets": "1000"}},
    "hash(id)": {"name": "id", "function": "hash"},
    "hash(s)": {"name": "s", "function": "hash"},
    "truncate(2, s)": {"name": "s", "function": "truncate", "properties": {"width": "2"}},
    "truncate(10, i)": {"name": "i", "function": "truncate", "properties": {"width": "10"}},
    "day(ts)": {"name": "ts", "function": "day"},
}


def publish(root, *entries):
    """Declare partition functions in the properties of the namespace."""
    columns = json.dumps([DECLARED[entry] for entry in entries])
    write_manifest(
        root,
        {
            "lance.partitioning.is_partitioned": "true",
            "lance.partitioning.partition_columns": columns,
        },
    )


class TestNotNull:
    """NOT NULL in the schema of a leaf, or in a declared one, says nothing about other leaves."""

    REQUIRED = pa.schema([("id", pa.int64()), pa.field("x", pa.int64(), nullable=False)])
    OPTIONAL = pa.schema([("id", pa.int64()), ("x", pa.int64())])

    @pytest.fixture
    def mixed(self, root):
        write_leaf(root, "c=A.lance", [{"id": 1, "x": 1}], self.REQUIRED)
        write_leaf(root, "c=B.lance", [{"id": 2, "x": None}, {"id": 3, "x": 3}], self.OPTIONAL)
        return root

    def test_every_column_of_a_tree_may_be_null(self, mixed):
        table = phalanx.open(mixed)
        assert all(field.nullable for field in table.schema)
        assert ids(table, "x IS NULL") == [2]
        assert ids(table, "x IS NOT NULL") == [1, 3]
        assert table.count("x IS NULL") == 1

    def test_also_a_declared_one(self, root):
        write_leaf(root, "c=A.lance", [{"id": 1}])
        write_leaf(root, "c=__HIVE_DEFAULT_PARTITION__.lance", [{"id": 2}])
        required = pa.field("c", pa.string(), nullable=False)
        table = phalanx.open(root, schema=pa.schema([("id", pa.int64()), required]))
        assert ids(table, "c IS NULL") == [2]
        assert ids(table, "c IS NOT NULL") == [1]

    def test_fields_of_structs_too(self, root):
        inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
        required = pa.schema([("id", pa.int64()), pa.field("s", inner, nullable=False)])
        write_leaf(root, "c=A.lance", [{"id": 1, "s": {"x": 1}}], required)
        write_leaf(root, "c=B.lance", [{"id": 2, "s": {"x": None}}, {"id": 3, "s": {"x": 3}}])
        assert ids(phalanx.open(root), "s.x IS NULL") == [2]

    def test_rows_are_added_to_leaves_as_their_schema_says(self, mixed):
        table = phalanx.open(mixed)
        table.append([{"id": 4, "x": 4, "c": "A"}])
        assert ids(table, "c = 'A'") == [1, 4]
        with pytest.raises(phalanx.InvalidInput, match="'x' holds NULL"):
            table.append([{"id": 5, "x": None, "c": "A"}])

    def test_a_column_stays_not_null_in_a_table_if_no_row_is_null(self, mixed):
        shutil.rmtree(mixed / "c=B.lance")
        table = hive.adopt(mixed)
        assert [field.nullable for field in table.schema] == [True, False, True]
        assert table.check().ok
        with pytest.raises(phalanx.InvalidInput, match="'x' holds NULL"):
            table.append([{"id": 5, "x": None, "c": "A"}])

    def test_otherwise_it_may_be_null(self, mixed):
        table = hive.adopt(mixed)
        assert all(field.nullable for field in table.schema)
        table.delete("x IS NOT NULL")
        assert ids(table) == [2]
        table.append([{"id": 5, "x": None, "c": "A"}])
        assert ids(phalanx.open(mixed), "x IS NULL") == [2, 5]
        assert table.check().ok

    def test_a_partition_column_with_a_folder_for_null(self, root):
        write_leaf(root, "c=A.lance", [{"id": 1}])
        write_leaf(root, "c=__HIVE_DEFAULT_PARTITION__.lance", [{"id": 2}])
        columns = {"id": pa.int64(), "c": pa.string()}
        required = [pa.field(name, type, nullable=False) for name, type in columns.items()]
        table = hive.adopt(root, schema=pa.schema(required))
        assert [field.nullable for field in table.schema] == [False, True]
        table.delete("c IS NOT NULL")
        assert ids(table) == [2]


class TestTypes:
    """Leaves may differ in their types as long as the table's type holds all values."""

    NEW_YORK = pa.timestamp("us", "America/New_York")

    def write(self, root, *columns):
        for number, (value, type) in enumerate(columns):
            rows = pa.table({"id": [number], "x": pa.array([value], type)})
            write_leaf(root, f"c={number}.lance", rows)
        return root

    @pytest.mark.parametrize(
        ("wide", "narrow"),
        [
            ((1, pa.int64()), (2, pa.int8())),
            ((1.5, pa.float64()), (0.25, pa.float32())),
            ((Decimal("1.50"), pa.decimal128(12, 2)), (Decimal("0.25"), pa.decimal128(4, 2))),
            (("a", pa.string()), ("b", pa.large_string())),
            (([1], pa.list_(pa.int64())), ([2], pa.list_(pa.int32()))),
        ],
    )
    def test_narrower_types_are_widened(self, root, wide, narrow):
        table = phalanx.open(self.write(root, wide, narrow))
        assert table.schema.field("x").type == wide[1]
        assert table.to_arrow().sort_by("id")["x"].to_pylist() == [wide[0], narrow[0]]

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ((1.5, pa.float32()), (1e300, pa.float64())),
            ((1, pa.int32()), (2**40, pa.int64())),
            ((1, pa.int32()), (2, pa.int64())),
            ((1, pa.int64()), ("05", pa.string())),
            ((1, pa.int64()), ("x", pa.string())),
            ((dt.datetime(2025, 1, 1), pa.timestamp("us")), (dt.datetime(2025, 1, 1), NEW_YORK)),
            (
                ({"a": 1}, pa.struct([("a", pa.int32())])),
                ({"a": 2}, pa.struct([("a", pa.int64())])),
            ),
            (([1], pa.list_(pa.int32())), ([2], pa.list_(pa.int64()))),
        ],
    )
    def test_others_are_refused_by_leaf_and_column(self, root, first, second):
        table = phalanx.open(self.write(root, first, second))
        with pytest.raises(
            phalanx.UnsupportedTable, match=r"leaf .*c=1\.lance has .*'x"
        ) as refusal:
            table.to_arrow()
        assert "schema" in str(refusal.value)
        with pytest.raises(phalanx.UnsupportedTable, match=r"c=1\.lance"):
            table.count("x IS NOT NULL" if pa.types.is_nested(first[1]) else "x = x")
        assert ids(table, "c = 0") == [0]
        assert table.scan(["id"]).to_arrow().num_rows == 2, "other columns are read"

    def test_filters_on_fields_of_structs(self, root):
        inner = pa.struct([("a", pa.int32())]), pa.struct([("a", pa.string())])
        table = phalanx.open(self.write(root, ({"a": 1}, inner[0]), ({"a": "01"}, inner[1])))
        with pytest.raises(phalanx.UnsupportedTable, match=r"c=1\.lance"):
            table.scan(["id"], where="x.a = 1").to_arrow()

    def test_a_declared_type_that_holds_all_values(self, root):
        self.write(root, (1, pa.int32()), (2**40, pa.int64()))
        schema = pa.schema([("id", pa.int64()), ("x", pa.int64())])
        assert phalanx.open(root, schema=schema).count("x > 1") == 1

    def test_what_the_path_gives_is_not_read_from_files(self, root):
        write_leaf(root, "m=01.lance", [{"id": 1, "m": "01"}])
        schema = pa.schema([("id", pa.int64()), ("m", pa.int32())])
        assert phalanx.open(root, schema=schema).scan(where="m = 1").to_arrow().to_pylist() == [
            {"id": 1, "m": 1}
        ]

    def test_a_date_that_is_no_timestamp(self, root):
        self.write(root, (dt.datetime(2025, 1, 1), pa.timestamp("us")), (2**30, pa.date32()))
        with pytest.raises(phalanx.UnsupportedTable, match=r"c=1\.lance.*'x'"):
            phalanx.open(root).to_arrow()


class TestFunctions:
    def write(self, root, level, rows, partition_by):
        write_leaf(root, f"{level}.lance", rows)
        return phalanx.open(root, partition_by=[partition_by])

    def test_a_function_that_is_declared_and_confirmed_is_used(self, root):
        write_leaf(root, "s_trunc=ab.lance", [{"id": 1, "s": "abc"}])
        publish(root, "truncate(2, s)")
        table = phalanx.open(root)
        assert table.scan(where="s = 'xyz'").plan().selected == 0
        assert ids(table, "s = 'abc'") == [1]
        assert (
            phalanx.open(root, partition_by=["truncate(3, s)"])
            .scan(where="s = 'xyz'")
            .plan()
            .selected
            == 1
        )

    def test_a_function_that_only_the_caller_names_is_not(self, root):
        """Rows beyond those that can be looked at when a tree is opened may contradict it."""
        self.write(root, "s_trunc=ab", [{"id": 1, "s": "abc"}] * 200, "truncate(2, s)")
        lance.write_dataset(
            pa.table({"id": [2], "s": ["xyz"]}), f"{root}/s_trunc=ab.lance", mode="append"
        )
        table = phalanx.open(root, partition_by=["truncate(2, s)"])
        assert ids(table, "s = 'xyz'") == [2]
        table.append([{"id": 3, "s": "xyz"}])
        assert lance.dataset(f"{root}/s_trunc=xy.lance").to_table()["id"].to_pylist() == [3]
        assert ids(table, "s = 'xyz'") == [2, 3]
        with pytest.raises(phalanx.UnsupportedTable, match=r"s_trunc=ab.lance.*are not where"):
            hive.adopt(root, partition_by=["truncate(2, s)"])

    @pytest.mark.parametrize("is_published", [True, False])
    def test_empty_leaves_confirm_nothing(self, root, is_published):
        """They contradict nothing, either."""
        empty = pa.table({"id": pa.array([], pa.int64()), "s": pa.array([], pa.string())})
        write_leaf(root, "s_hash=00000000.lance", empty)
        if is_published:
            publish(root, "hash(s)")
        fields = None if is_published else ["hash(s)"]
        assert phalanx.open(root, partition_by=fields).scan(where="s = 'x'").plan().selected == 1
        table = hive.adopt(root, partition_by=fields)
        assert table.count() == 0
        table.append([{"id": 1, "s": "x"}])
        assert ids(table, "s = 'x'") == [1]

    def test_every_leaf_is_checked_before_a_tree_becomes_a_table(self, root):
        """Days in New York, where only one of many rows is on another day in UTC."""
        for day in range(1, 21):
            hours = [12, 15] if day != 20 else [12, 26]
            start = dt.datetime(2025, 1, day, tzinfo=dt.UTC)
            times = pa.array([start + dt.timedelta(hours=h) for h in hours])
            rows = pa.table({"id": [day, 100 + day], "ts": times.cast(pa.timestamp("us", "UTC"))})
            write_leaf(root, f"ts_day={day:02}.lance", rows)
        table = phalanx.open(root, partition_by=["day(ts)"])
        assert ids(table, "ts >= '2025-01-21T00:00:00Z'") == [120]
        with pytest.raises(phalanx.UnsupportedTable, match=r"ts_day=20.lance.*are not where"):
            hive.adopt(root, partition_by=["day(ts)"])
        assert not (root / "__manifest").exists()

    @pytest.mark.parametrize("is_stored", [True, False])
    def test_the_column_of_a_function_may_be_in_the_path_as_well(self, root, is_stored):
        day = dt.date(2025, 3, 4)
        columns = {"id": [1]} | ({"d": pa.array([day])} if is_stored else {})
        write_leaf(root, "d=2025-03-04/d_month=03.lance", pa.table(columns))
        table = phalanx.open(root, partition_by=["d", "month(d)"])
        table.append([{"id": 2, "d": day}])
        assert ids(table, "d = '2025-03-04'") == [1, 2]
        adopted = hive.adopt(root, partition_by=["d", "month(d)"])
        assert ids(adopted, "d = '2025-03-04'") == [1, 2]

    @pytest.mark.parametrize(
        ("level", "entry", "where"),
        [
            ("id_bucket=3", "bucket(1000, id)", "id = 5"),
            ("id_hash=00000000", "hash(id)", "id = 5"),
            ("s_trunc=zz", "truncate(2, s)", "s = 'abc'"),
        ],
    )
    def test_a_function_that_rows_contradict_is_not(self, root, level, entry, where):
        """Others may hash or truncate in another way: no row may be lost for that."""
        table = self.write(root, level, [{"id": 5, "s": "abc"}], entry)
        assert ids(table, where) == [5]
        assert ids(table, f"NOT ({where})") == []
        with pytest.raises(phalanx.UnsupportedTable, match="not where"):
            table.append([{"id": 6, "s": "abc"}])
        with pytest.raises(phalanx.UnsupportedTable, match="not where"):
            hive.adopt(root, partition_by=[entry])

    def test_a_leaf_that_says_nothing_confirms_nothing(self, root):
        """NULL is NULL in every function, and a leaf may be empty."""
        empty = pa.table({"id": pa.array([], pa.int64()), "s": pa.array([], pa.string())})
        write_leaf(root, "s_hash=00000000.lance", empty)
        write_leaf(
            root,
            "s_hash=__HIVE_DEFAULT_PARTITION__.lance",
            pa.table({"id": [1], "s": pa.nulls(1, pa.string())}),
        )
        write_leaf(root, "s_hash=abcdef00.lance", [{"id": 2, "s": "x"}])
        table = phalanx.open(root, partition_by=["hash(s)"])
        assert ids(table, "s = 'x'") == [2]

    def test_time_in_another_zone_than_utc_is_noticed(self, root):
        times = pa.array([dt.datetime(2025, 1, 1, 3)], pa.timestamp("us", "UTC"))
        write_leaf(root, "ts_year=2024.lance", pa.table({"id": [1], "ts": times}))
        table = phalanx.open(root, partition_by=["year(ts)"])
        assert ids(table, "ts >= '2025-01-01T00:00:00Z'") == [1]

    def test_numbers_may_be_truncated_toward_zero(self, root):
        write_leaf(root, "i_trunc=0.lance", [{"id": 1, "i": -5}])
        write_leaf(root, "i_trunc=-10.lance", [{"id": 2, "i": -15}])
        publish(root, "truncate(10, i)")
        table = phalanx.open(root)
        assert (ids(table, "i = -5"), ids(table, "i = -15")) == ([1], [2])
        assert table.scan(where="i > 50").plan().selected == 0


class TestChanges:
    def test_one_partition_takes_an_append(self, events):
        table = phalanx.open(events)
        table.append([{"id": 5, "event_date": dt.date(2025, 12, 10), "country": "US"}])
        assert lance.dataset(f"{events}/event_date=2025-12-10/country=US.lance").to_table()[
            "id"
        ].to_pylist() == [1, 5]
        assert ids(table) == ids(phalanx.open(events)) == [1, 2, 3, 4, 5]

    def test_a_new_partition_gets_the_schema_of_the_others(self, events):
        phalanx.open(events).append([{"id": 5, "event_date": None, "country": ""}])
        path = "event_date=__HIVE_DEFAULT_PARTITION__/country=.lance"
        assert lance.dataset(f"{events}/{path}").schema == pa.schema([("id", pa.int64())])
        assert ids(phalanx.open(events), "country = ''") == [5]

    @pytest.mark.parametrize("key", [0, 1])
    def test_partition_columns_are_in_new_files_if_they_are_in_the_others(self, root, key):
        for k in (1, 2):
            columns = {"id": [k], "k": pa.array([k], pa.int32()), "x": [1]}
            write_leaf(root, f"k={k}.lance", pa.table(columns))
        phalanx.open(root).append([{"id": 9, "k": key, "x": 7}])
        leaf = lance.dataset(f"{root}/k={key}.lance")
        assert leaf.schema == lance.dataset(f"{root}/k=2.lance").schema
        assert {"id": 9, "k": key, "x": 7} in leaf.to_table().to_pylist()
        assert ids(phalanx.open(root), f"k = {key} AND x = 7") == [9]
        assert ids(phalanx.open(root)) == [1, 2, 9]
        assert ids(hive.adopt(root)) == [1, 2, 9]

    def test_new_files_have_the_ids_of_the_others(self, root):
        for k in (1, 2):
            write_leaf(root, f"k={k}.lance", pa.table({"id": [k], "gone": [0], "x": [1]}))
            lance.dataset(f"{root}/k={k}.lance").drop_columns(["gone"])
        table = phalanx.open(root)
        table.append([{"id": 9, "k": 0, "x": 7}])
        table.append([{"id": 10, "k": 0, "x": 7}])
        assert ids(phalanx.open(root), "k = 0 AND x = 7") == [9, 10]
        assert ids(hive.adopt(root), "x = 7") == [9, 10]

    def test_what_is_refused_leaves_no_leaf_behind(self, root):
        write_leaf(root, "k=1.lance", pa.table({"id": [1], "x": [1]}))
        write_leaf(root, "k=2.lance", pa.table({"x": [1], "id": [2]}))
        before = paths_in(root)
        for data in ({"id": 3, "k": 2, "x": 1}, {"id": "many", "k": 0}, {"id": 3, "z": 0}):
            with pytest.raises(phalanx.PhalanxError):
                phalanx.open(root).append([data])
        assert (paths_in(root), ids(phalanx.open(root))) == (before, [1, 2])

    def test_several_do_not(self, events):
        before = paths_in(events)
        with pytest.raises(phalanx.InvalidInput, match="append to one partition at a time"):
            phalanx.open(events).append([{"id": 5, "country": "A"}, {"id": 6, "country": "B"}])
        assert (paths_in(events), ids(phalanx.open(events))) == (before, [1, 2, 3, 4])

    def test_nor_do_they_in_two_steps_of_one_transaction(self, events):
        def append_twice():
            with phalanx.open(events).transaction() as tx:
                tx.append([{"id": 5, "country": "A"}])
                tx.append([{"id": 6, "country": "B"}])

        with pytest.raises(phalanx.UnsupportedTable, match="in several steps"):
            append_twice()
        assert ids(phalanx.open(events)) == [1, 2, 3, 4]

    def test_overwriting_is_idempotent_and_allowed(self, events):
        rows = [{"id": 7, "event_date": dt.date(2025, 12, 10), "country": c} for c in ("US", "DE")]
        for _ in range(2):
            phalanx.open(events).overwrite(rows, mode="partitions")
            assert ids(phalanx.open(events)) == [2, 3, 4, 7, 7]
        phalanx.open(events).overwrite(rows)
        assert ids(phalanx.open(events)) == [7, 7]

    def test_overwriting_replaces_every_folder_of_a_partition(self, root):
        for number, text in enumerate(["01", "1", "2"], 1):
            write_leaf(root, f"m={text}.lance", [{"id": number}])
        schema = pa.schema([("id", pa.int64()), ("m", pa.int32())])
        table = phalanx.open(root, schema=schema)
        table.overwrite([{"id": 9, "m": 1}], mode="partitions")
        assert ids(table) == ids(phalanx.open(root, schema=schema)) == [3, 9]
        table.overwrite([], mode="partitions")
        assert ids(phalanx.open(root, schema=schema)) == [3, 9]

    @pytest.mark.parametrize(
        "change",
        [
            lambda t: t.delete("id = 1"),
            lambda t: t.update({"id": "0"}),
            lambda t: t.merge([{"id": 1, "country": "US"}], on=["id"]),
            lambda t: t.add_column("x", pa.int8()),
            lambda t: t.evolve_partitioning(["country"]),
            lambda t: t.set_properties({"a": "b"}),
            lambda t: t.tag("now"),
            lambda t: t.optimize(),
            lambda t: t.vacuum(),
            lambda t: t.check(),
            lambda t: t.repair(),
            lambda t: t.make_strong(),
            lambda t: t.append([{"id": 1, "country": "US"}], transaction_id="once"),
        ],
    )
    def test_everything_else_needs_a_manifest(self, events, change):
        with pytest.raises(phalanx.PhalanxError, match="adopt"):
            change(phalanx.open(events))
        assert ids(phalanx.open(events)) == [1, 2, 3, 4]

    def test_data_that_does_not_fit_is_refused(self, events):
        with pytest.raises(phalanx.InvalidInput):
            phalanx.open(events).append([{"id": "many", "country": "US"}])

    def test_leaves_of_others_are_seen(self, events):
        assert ids(phalanx.open(events)) == [1, 2, 3, 4]
        write_leaf(events, "event_date=2025-12-12/country=US.lance", [{"id": 5}])
        shutil.rmtree(events / "event_date=2025-12-10" / "country=CN.lance")
        assert ids(phalanx.open(events)) == [1, 3, 4, 5]

    def test_rows_of_others_are_seen_without_another_listing(self, events):
        table = phalanx.open(events)
        more = pa.table({"id": [5]})
        lance.write_dataset(more, f"{events}/event_date=2025-12-10/country=US.lance", mode="append")
        assert ids(table) == [1, 2, 3, 4, 5]


class TestCache:
    @pytest.fixture
    def old(self, events):
        """A tree whose folders were changed long ago."""
        for folder in [events, *events.rglob("*")]:
            os.utime(folder, (1_000_000_000, 1_000_000_000))
        return events

    def test_a_tree_is_listed_once(self, old, monkeypatch):
        phalanx.open(old)
        monkeypatch.setattr("phalanx.interop.hive_tree.walk", None)
        assert ids(phalanx.open(old)) == [1, 2, 3, 4]

    def test_until_one_of_its_folders_changes(self, old):
        assert ids(phalanx.open(old)) == [1, 2, 3, 4]
        write_leaf(old, "event_date=2025-12-11/country=DE.lance", [{"id": 5}])
        assert ids(phalanx.open(old)) == [1, 2, 3, 4, 5]

    @pytest.mark.parametrize("how", ["overwritten", "another column"])
    def test_or_the_columns_of_its_first_leaf_do(self, old, how):
        table = phalanx.open(old)
        first = f"{old}/{paths_in(old)[0]}"
        if how == "overwritten":
            columns = {"id": [5], "more": ["x"]}
            lance.write_dataset(pa.table(columns), first, mode="overwrite")
        else:
            lance.dataset(first).add_columns({"more": "'x'"})
        names = ["id", "more", "event_date", "country"]
        assert phalanx.open(old).schema.names == names
        assert phalanx.open(old).count("more = 'x'") == 1
        assert table.refresh().schema.names == names
        assert table.count("more = 'x'") == 1

    def test_or_rows_contradict_a_function(self, root):
        write_leaf(root, "s_trunc=ab.lance", [{"id": 1, "s": "abc"}])
        publish(root, "truncate(2, s)")
        for folder in [root, *root.rglob("*")]:
            os.utime(folder, (1_000_000_000, 1_000_000_000))
        assert phalanx.open(root).scan(where="s = 'xyz'").plan().selected == 0
        more = pa.table({"id": [2], "s": ["xyz"]})
        lance.write_dataset(more, f"{root}/s_trunc=ab.lance", mode="append")
        assert ids(phalanx.open(root), "s = 'xyz'") == [2]

    def test_and_for_each_declaration(self, old):
        assert phalanx.open(old).schema.field("event_date").type == pa.date32()
        fields = [("id", pa.int64()), ("event_date", pa.string()), ("country", pa.string())]
        table = phalanx.open(old, schema=pa.schema(fields))
        assert table.schema.field("event_date").type == pa.string()
        assert phalanx.open(old).schema.field("event_date").type == pa.date32()
