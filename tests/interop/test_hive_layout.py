"""Tables with layout='hive': their trees, what they refuse, and everything a table does."""

import concurrent.futures
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
from decimal import Decimal

import lance
import mmh3
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import phalanx
from phalanx.interop.folders import leaf_path, parse_leaf_path
from phalanx.model import ipcjson
from phalanx.storage.head import HIVE_LAYOUT
from phalanx.storage.leaf import Leaf
from phalanx.table.partitioned_writer import PartitionedWriter
from tests.interop.samples import COLUMNS
from tests.interop.trees import paths_in, write_leaf

SCHEMA = pa.schema([("id", pa.int64()), ("event_date", pa.date32()), ("country", pa.string())])
NOTHING = dt.timedelta(0)
NAMES = st.text(min_size=1, max_size=10)
#: Columns that no table can be partitioned by.
_NO_KEYS = {
    name
    for name, column in COLUMNS.items()
    if pa.types.is_nested(column.type)
    or pa.types.is_binary(column.type)
    or pa.types.is_large_binary(column.type)
    or pa.types.is_fixed_size_binary(column.type)
}
HOSTILE = [
    *("/", "%2F", "=", "..", ".", "", None, "😀", "x" * 200, "a ", " ", "a.lance", ".lance", "$"),
    *("__HIVE_DEFAULT_PARTITION__", "12", "true", "2020-01-01", "NULL", "null", "a/../../b"),
    *("\\", "C:\\x", "*?", '"<>|', "#frag", "?query", "a;b", "a+b", "~", "a\nb", "\x7f", "é"),
    *("e\u0301", "country=US", "US.lance/data", "__manifest", "_versions", "'", "`"),
]


def row(id, country="US", day=10):
    return {"id": id, "event_date": day and dt.date(2025, 12, day), "country": country}


def ids(table, where=None):
    return sorted(table.scan(where=where).to_arrow()["id"].to_pylist())


@pytest.fixture
def table(root):
    table = phalanx.create(root, SCHEMA, ["event_date", "country"], layout="hive")
    return table.append([row(1), row(2, "CN"), row(3, day=11), row(4, "FR", 11)])


def _ids_on_main(root):
    """What a plain Lance reader sees that goes through all folders."""
    leaves = [lance.dataset(f"{root}/{path}") for path in paths_in(root)]
    return sorted(number for leaf in leaves for number in leaf.to_table()["id"].to_pylist())


class TestTree:
    def test_it_is_the_one_of_the_document(self, table, root):
        assert paths_in(root) == [
            "event_date=2025-12-10/country=CN.lance",
            "event_date=2025-12-10/country=US.lance",
            "event_date=2025-12-11/country=FR.lance",
            "event_date=2025-12-11/country=US.lance",
        ]

    def test_values_in_the_path_are_not_in_the_files(self, table, root):
        leaf = lance.dataset(f"{root}/event_date=2025-12-10/country=US.lance")
        assert leaf.to_table().to_pylist() == [{"id": 1}]
        assert table.scan(where="id = 1").to_arrow().to_pylist() == [row(1)]

    def test_they_can_be(self, root):
        table = phalanx.create(
            root, SCHEMA, ["country"], layout="hive", materialize_partition_columns=True
        )
        table.append([row(1)])
        leaf = lance.dataset(f"{root}/country=US.lance")
        assert leaf.schema.names == ["id", "event_date", "country"]
        assert leaf.to_table().to_pylist() == [row(1)]

    def test_sources_of_functions_are_in_the_files(self, root):
        schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("s", pa.string())])
        table = phalanx.create(root, schema, ["year(ts)", "truncate(2, s)"], layout="hive")
        table.append([{"ts": dt.datetime(2025, 1, 2, tzinfo=dt.UTC), "s": "abc"}])
        (path,) = paths_in(root)
        assert path == "ts_year=2025/s_trunc=ab.lance"
        assert lance.dataset(f"{root}/{path}").schema.names == ["ts", "s"]

    def test_functions(self, root):
        schema = pa.schema(
            [
                ("ts", pa.timestamp("us", "UTC")),
                ("user_id", pa.string()),
                ("s", pa.string()),
                ("i", pa.int32()),
                ("c", pa.list_(pa.int64())),
            ]
        )
        fields = ["hours(ts)", "bucket(7, user_id)", "truncate(3, s)", "truncate(10, i)", "hash(c)"]
        table = phalanx.create(root, schema, fields, layout="hive")
        moment = dt.datetime(2025, 1, 2, 3, 4, tzinfo=dt.UTC)
        table.append([{"ts": moment, "user_id": "b", "s": "abcdef", "i": -5, "c": [1]}])
        canonical = (8).to_bytes(4, "little") + (1).to_bytes(8, "little")
        assert paths_in(root) == [
            "ts_year=2025/ts_month=01/ts_day=02/ts_hour=03/"
            f"user_id_bucket={mmh3.hash('b') % 7}/s_trunc=abc/i_trunc=-10/"
            f"c_hash={mmh3.hash(canonical, signed=False):08x}.lance"
        ]
        plan = table.scan(where="i = -5 AND s LIKE 'abc%' AND user_id = 'b'").plan()
        assert plan.selected == 1
        assert table.scan(where="i = 5").plan().selected == 0
        assert table.scan(where="user_id = 'c'").plan().selected == int(
            mmh3.hash("c") % 7 == mmh3.hash("b") % 7
        )

    def test_the_properties_of_the_document(self, root):
        phalanx.create(root, SCHEMA, ["event_date", "bucket(100, id)"], layout="hive")
        metadata = lance.dataset(f"{root}/__manifest").metadata
        assert metadata["lance.partitioning.is_partitioned"] == "true"
        assert json.loads(metadata["lance.partitioning.partition_columns"]) == [
            {"name": "event_date", "function": "identity"},
            {"name": "id", "function": "bucket", "properties": {"num_buckets": "100"}},
        ]
        assert ipcjson.loads(metadata["lance.partitioning.schema"]) == SCHEMA

    def test_the_properties_follow_the_schema(self, table, root):
        table.add_column("more", pa.int32())
        metadata = lance.dataset(f"{root}/__manifest").metadata
        names = ipcjson.loads(metadata["lance.partitioning.schema"]).names
        assert names == ["id", "event_date", "country", "more"]

    def test_plain_lance_sees_every_commit(self, table, root):
        table.append([row(5)])
        table.delete("id = 1")
        leaf = lance.dataset(f"{root}/event_date=2025-12-10/country=US.lance")
        assert leaf.to_table().to_pylist() == [{"id": 5}]

    @pytest.mark.parametrize(
        ("change", "rows"),
        [
            (lambda t: t.delete("country = 'US'"), [2, 4]),
            (lambda t: t.update({"country": "'DE'"}, "country = 'US'"), [1, 2, 3, 4]),
            (lambda t: t.overwrite([row(9, "DE")]), [9]),
            (lambda t: t.rollback(1), []),
        ],
    )
    def test_plain_lance_sees_no_rows_of_partitions_that_are_gone(self, table, root, change, rows):
        change(table)
        assert ids(table) == _ids_on_main(root) == rows
        assert ids(phalanx.open(root, version=2)) == [1, 2, 3, 4]
        table.rollback(2)
        assert ids(table) == _ids_on_main(root) == [1, 2, 3, 4]
        assert table.check().ok

    def test_nor_of_adopted_ones(self, root):
        write_leaf(root, "country=a b.lance", [{"id": 1}])
        table = phalanx.interop.hive.adopt(root)
        table.delete("id = 1")
        assert _ids_on_main(root) == []
        table.append([{"id": 2, "country": "a b"}])
        assert paths_in(root) == ["country=a b.lance", "country=a%20b.lance"]
        assert ids(table) == _ids_on_main(root) == [2]
        table.vacuum(NOTHING, force=True)
        assert table.check().ok

    def test_rows_of_others_in_a_partition_that_is_removed_stay(self, table, root):
        path = f"{root}/event_date=2025-12-11/country=FR.lance"
        lance.write_dataset(pa.table({"id": [98]}), path, mode="append")
        table.delete("country = 'FR'")
        assert lance.dataset(path).to_table()["id"].to_pylist() == [4, 98]
        table.vacuum(NOTHING, force=True)
        assert lance.dataset(path).to_table()["id"].to_pylist() == [4, 98]

    def test_vacuum_empties_what_a_writer_that_died_has_not(self, table, root, monkeypatch):
        monkeypatch.setattr("phalanx.transaction.commit._withdraw", lambda leaf: None)
        table.delete("country = 'FR'")
        write_leaf(root, "event_date=2025-12-11/country=XX.lance", [{"id": 98}])
        assert _ids_on_main(root) == [1, 2, 3, 4, 98]
        table.vacuum()
        assert _ids_on_main(root) == [1, 2, 3, 98]
        assert ids(phalanx.open(root, version=2)) == [1, 2, 3, 4]

    def test_the_example_of_the_document_reads_one_leaf(self, table):
        scan = table.scan(where="event_date = '2025-12-11' AND country != 'FR'")
        assert [os.path.relpath(leaf.uri, table.uri) for leaf in scan.plan().leaves] == [
            "event_date=2025-12-11/country=US.lance"
        ]
        assert scan.to_arrow().to_pylist() == [row(3, day=11)]

    def test_an_older_version_of_phalanx_does_not_write(self, table, monkeypatch):
        assert HIVE_LAYOUT in table._snapshot.head.writer_features
        monkeypatch.setattr("phalanx.storage.head.WRITER_FEATURES", frozenset())
        with pytest.raises(phalanx.UnsupportedTable, match="upgrade Phalanx to write"):
            phalanx.open(table.uri).append([row(9)])


class TestValues:
    def test_hostile_values_come_back(self, root):
        table = phalanx.create(root, SCHEMA, ["country", "event_date"], layout="hive")
        table.append([row(number, text) for number, text in enumerate(HOSTILE)])
        again = phalanx.open(root).scan().to_arrow().sort_by("id").to_pylist()
        assert [one["country"] for one in again] == HOSTILE
        for number, text in enumerate(HOSTILE):
            where = "country IS NULL" if text is None else f"country = {_quoted(text)}"
            scan = table.scan(where=where)
            assert (ids(table, where), scan.plan().selected) == ([number], 1), text

    def test_no_value_leaves_the_root(self, root):
        beside = set(os.listdir(root.parent))
        table = phalanx.create(root, SCHEMA, ["country"], layout="hive")
        table.append([row(number, text) for number, text in enumerate(HOSTILE)])
        assert set(os.listdir(root.parent)) - beside == {root.name}
        assert len(paths_in(root)) == len(HOSTILE)
        assert all("/" not in path for path in paths_in(root))

    @given(st.lists(st.none() | st.text(max_size=20), min_size=1, max_size=3), NAMES)
    def test_every_path_is_read_back(self, texts, column):
        columns = [f"{column}{number}" for number in range(len(texts))]
        path = leaf_path(columns, texts)
        assert parse_leaf_path(path) == list(zip(columns, texts, strict=True))
        *levels, leaf = path.split("/")
        assert len(levels) == len(texts) - 1
        assert leaf.endswith(".lance")
        assert not any(one.endswith(".lance") for one in levels)
        assert not {".", "..", ""} & {*levels, leaf}

    @pytest.mark.parametrize("name", [n for n in COLUMNS if n not in _NO_KEYS])
    def test_every_type_comes_back(self, root, name):
        column = COLUMNS[name]
        data = pa.table({"id": range(len(column)), "p": column})
        table = phalanx.create(root, data.schema, ["p"], layout="hive").append(data)
        again = phalanx.open(root).scan().to_arrow().sort_by("id")
        assert again["p"].type == column.type
        assert repr(again["p"].to_pylist()) == repr(column.to_pylist())
        assert table.check().ok

    @pytest.mark.parametrize(
        ("type", "value", "path"),
        [
            (pa.string(), "2024-01-01", "p=2024-01-01.lance"),
            (pa.int32(), 42, "p=42.lance"),
            (pa.int64(), 1704067200, "p=1704067200.lance"),
            (pa.date32(), dt.date(2024, 1, 1), "p=2024-01-01.lance"),
            (
                pa.timestamp("us", "UTC"),
                dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC),
                "p=2024-01-01T10%3A00%3A00Z.lance",
            ),
            (pa.bool_(), True, "p=true.lance"),
            (pa.float32(), 3.14, "p=3.14.lance"),
            (pa.float64(), 2.718, "p=2.718.lance"),
            (pa.decimal128(9, 2), Decimal("123.45"), "p=123.45.lance"),
        ],
        ids=str,
    )
    def test_the_nine_types_of_the_document(self, root, type, value, path):
        schema = pa.schema([("id", pa.int64()), ("p", type)])
        table = phalanx.create(root, schema, ["p"], layout="hive")
        table.append(pa.table({"id": [1], "p": pa.array([value], type)}))
        assert paths_in(root) == [path]
        (back,) = phalanx.open(root).scan().to_arrow()["p"].to_pylist()
        assert back == pa.scalar(value, type).as_py()

    def test_a_name_that_is_too_long_is_refused_before_anything_is_written(self, table, root):
        before = paths_in(root)
        with pytest.raises(phalanx.InvalidInput, match="too long for the name of a folder"):
            table.append([row(8, "new"), row(9, "x" * 242)])
        assert (paths_in(root), table.version) == (before, 2)
        table.append([row(9, "x" * 241)])
        assert ids(table, f"country = '{'x' * 241}'") == [9]


def _quoted(text):
    return "'" + text.replace("'", "''") + "'"


class TestRefusals:
    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ([], "needs at least one partition field"),
            (["nowhere"], "unknown column 'nowhere'"),
            (["id", "event_date", "country"], "every column is a partition column"),
            (["multi_bucket(4, id, country)"], "take one column"),
            ([phalanx.expr("col0 + 1", ["id"], name="next")], "it has identity, year, month"),
        ],
    )
    def test_partition_fields(self, root, fields, reason):
        with pytest.raises(phalanx.InvalidInput, match=reason):
            phalanx.create(root, SCHEMA, fields, layout="hive")
        assert not root.exists()

    @pytest.mark.parametrize(
        "type", [pa.binary(), pa.list_(pa.int8()), pa.struct([("a", pa.int8())])]
    )
    def test_types(self, root, type):
        schema = pa.schema([("id", pa.int64()), ("p", type)])
        with pytest.raises(phalanx.InvalidInput, match="cannot partition by"):
            phalanx.create(root, schema, ["p"], layout="hive")

    def test_functions_of_the_layout_are_its_own(self, root):
        with pytest.raises(phalanx.InvalidInput, match="only tables with layout='hive'"):
            phalanx.create(root, SCHEMA, ["hash(country)"])
        table = phalanx.create(root, SCHEMA, ["country"])
        with pytest.raises(phalanx.InvalidInput, match="only tables with layout='hive'"):
            table.evolve_partitioning(["hash(country)"])

    @pytest.mark.parametrize(
        "change",
        [
            lambda t: t.evolve_partitioning(["country"]),
            lambda t: t.rename_column("country", "land"),
            lambda t: t.drop_column("country"),
            lambda t: t.set_properties({"layout": "flat"}),
        ],
    )
    def test_what_paths_cannot_express(self, table, change):
        with pytest.raises(phalanx.InvalidInput, match="cannot"):
            change(table)
        assert table.refresh().version == 2

    def test_an_unknown_layout(self, root):
        with pytest.raises(phalanx.InvalidInput, match="layout is 'flat' or 'hive'"):
            phalanx.create(root, SCHEMA, ["country"], layout="round")

    def test_a_table_in_a_tree_of_others(self, root):
        write_leaf(root, "country=US.lance", [{"id": 1}])
        with pytest.raises(phalanx.TableExists, match="adopt"):
            phalanx.create(root, SCHEMA, ["country"], layout="hive")
        assert lance.dataset(f"{root}/country=US.lance").count_rows() == 1


class TestDatasetsOfOthers:
    """A dataset of another client where a new partition belongs is neither read nor written."""

    STRANGE = pa.table({"id": [98]})

    @pytest.mark.parametrize("transactions", ["strong", "weak"])
    @pytest.mark.parametrize(
        "strange", [STRANGE, pa.table({"other": ["x"]}), STRANGE.slice(0, 0)], ids=str
    )
    def test_an_append_is_refused(self, root, transactions, strange):
        table = phalanx.create(root, SCHEMA, ["country"], transactions, layout="hive")
        table.append([row(1)])
        self.check_refused(table, root, strange)

    def test_an_append_to_an_adopted_tree_is_refused(self, root):
        days = pa.nulls(1, pa.date32())
        write_leaf(root, "country=US.lance", pa.table({"id": [1], "event_date": days}))
        self.check_refused(phalanx.interop.hive.adopt(root), root, self.STRANGE)

    def check_refused(self, table, root, strange):
        write_leaf(root, "country=B.lance", strange)
        before, version = _files(root), table.version
        for change in (
            lambda: table.append([row(2, "A"), row(3, "B")]),
            lambda: table.overwrite([row(3, "B")]),
            lambda: table.update({"country": "'B'"}, "id = 1"),
        ):
            with pytest.raises(phalanx.InvalidInput, match=r"country=B.lance.*move the dataset"):
                change()
        assert (_files(root), table.refresh().version, ids(table)) == (before, version, [1])
        if table._snapshot.head.transactions == "strong":
            table.vacuum(NOTHING, force=True)
        leaf = lance.dataset(f"{root}/country=B.lance")
        assert (leaf.version, leaf.to_table()) == (1, strange)

    def test_a_dataset_that_comes_meanwhile_is_refused(self, table, root, monkeypatch):
        """In an object store nobody looks before the leaf is created."""
        monkeypatch.setattr(PartitionedWriter, "_check_place", lambda *_: None)
        path = "event_date=2025-12-10/country=B.lance"
        write_leaf(root, path, self.STRANGE)
        with pytest.raises(phalanx.InvalidInput, match=r"country=B.lance.*move the dataset"):
            table.append([row(2, "A"), row(3, "B")])
        assert ids(phalanx.open(root)) == [1, 2, 3, 4]
        assert lance.dataset(f"{root}/{path}").to_table() == self.STRANGE

    def test_a_folder_without_a_dataset_is_no_obstacle(self, table, root):
        (root / "event_date=2025-12-10" / "country=B.lance" / "_versions").mkdir(parents=True)
        table.append([row(5, "B")])
        assert ids(table, "country = 'B'") == [5]


class TestEverythingElse:
    def test_rows_change(self, table):
        table.update({"country": "'DE'"}, "id = 1")
        table.merge([row(2, "CN"), row(9, "new")], on=["id"])
        table.delete("id = 4")
        assert sorted(
            (one["id"], one["country"]) for one in table.scan().to_arrow().to_pylist()
        ) == [
            (1, "DE"),
            (2, "CN"),
            (3, "US"),
            (9, "new"),
        ]
        assert table.check().ok

    def test_a_partition_that_was_emptied_is_written_again(self, table):
        table.delete("country = 'US'")
        table.append([row(7)])
        assert ids(table, "country = 'US'") == [7]
        assert table.check().ok

    def test_rollback_and_time_travel(self, table):
        table.delete("country = 'US'")
        assert ids(phalanx.open(table.uri, version=2)) == [1, 2, 3, 4]
        table.rollback(2)
        assert ids(table) == [1, 2, 3, 4]
        assert table.check().ok

    def test_columns_evolve(self, table):
        table.add_column("more", pa.int32(), default=7)
        table.rename_column("id", "number")
        table.append([{"number": 5, "event_date": None, "country": "US", "more": 8}])
        rows = table.scan(columns=["number", "more"]).to_arrow().to_pylist()
        assert sorted((one["number"], one["more"]) for one in rows) == [
            *((number, 7) for number in (1, 2, 3, 4)),
            (5, 8),
        ]

    def test_optimize(self, table):
        for number in range(10, 14):
            table.append([row(number)])
        report = table.optimize()
        assert report.rewritten == 1
        assert ids(table, "country = 'US'") == [1, 3, *range(10, 14)]
        assert table.check().ok

    def test_repair_brings_a_lost_leaf_back(self, table, root):
        manifest = lance.dataset(f"{root}/__manifest")
        manifest.delete("object_type = 'table' AND location LIKE '%country=FR%'")
        assert not phalanx.check(root).ok
        phalanx.repair(root)
        assert ids(phalanx.open(root)) == [1, 2, 3, 4]
        assert phalanx.check(root).ok

    def test_repair_reads_partition_values_from_the_path(self, table, root):
        """Nothing else says them: the files do not hold them, and all earlier versions are gone."""
        table.append([row(9, None, None), row(10, "a/b")])
        manifest = lance.dataset(f"{root}/__manifest")
        lost = "object_type = 'table' OR (object_type = 'namespace' AND object_id != 'v1')"
        manifest.delete(lost)
        manifest = lance.dataset(f"{root}/__manifest")
        manifest.cleanup_old_versions(NOTHING, delete_unverified=True)
        phalanx.repair(root, stray="take")
        rows = phalanx.open(root).scan().to_arrow().sort_by("id").to_pylist()
        assert rows == [
            *(row(1), row(2, "CN"), row(3, day=11), row(4, "FR", 11)),
            *(row(9, None, None), row(10, "a/b")),
        ]
        assert phalanx.check(root).ok

    def test_a_tree_without_its_manifest_is_no_table(self, table, root):
        os.rename(root / "__manifest", root.parent / "lost")
        with pytest.raises(phalanx.TableNotFound, match="restore its folder __manifest"):
            phalanx.open(root)

    def test_weak_transactions(self, root):
        table = phalanx.create(root, SCHEMA, ["country"], "weak", layout="hive")
        table.append([row(1), row(2, "FR")])
        write_leaf_rows = pa.table({"id": [9], "event_date": pa.array([None], pa.date32())})
        lance.write_dataset(write_leaf_rows, f"{root}/country=US.lance", mode="append")
        assert ids(phalanx.open(root)) == [1, 2, 9]

    @pytest.mark.parametrize("names", ["k a b", "a k b", "a b k"])
    def test_weak_transactions_with_the_partition_column_anywhere(self, root, names):
        """Files leave it out, so the ids of the columns after it are not those that Lance gives."""
        schema = pa.schema([(name, pa.int64()) for name in names.split()])
        table = phalanx.create(root, schema, ["k"], "weak", layout="hive")
        rows = [{"k": n % 2, "a": n, "b": 10 * n} for n in range(4)]
        table.append(rows)
        table.append(rows[:2])
        found = phalanx.open(root).to_arrow().select(["k", "a", "b"]).to_pylist()
        assert sorted(map(str, found)) == sorted(map(str, rows + rows[:2]))
        assert table.check().ok

    def test_rows_of_others_before_the_columns_have_their_ids(self, root, monkeypatch):
        """Files with the table's ids would be read as other columns."""
        schema = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
        table = phalanx.create(root, schema, ["k"], "weak", layout="hive")
        with monkeypatch.context() as crash:
            crash.setattr(Leaf, "_numbered_main", lambda leaf: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                table.append([{"k": 1, "a": 2, "b": 3}])
        uri = f"{root}/k=1.lance"
        lance.write_dataset(pa.table({"a": [10], "b": [20]}), uri, mode="append")
        with pytest.raises(phalanx.UnsupportedTable, match="before its columns had the ids"):
            phalanx.open(root).append([{"k": 1, "a": 4, "b": 5}])
        assert lance.dataset(uri).to_table().to_pylist() == [{"a": 10, "b": 20}]

    def test_dropped_and_created_again(self, table, root):
        """The names of the folders are the same then."""
        shutil.rmtree(root)
        schema = pa.schema([("country", pa.string()), ("name", pa.string()), ("id", pa.int64())])
        again = phalanx.create(root, schema, ["country"], layout="hive")
        again.append([{"id": 8, "name": "x", "country": "US"}])
        assert again.scan().to_arrow().to_pylist() == [{"country": "US", "name": "x", "id": 8}]


class TestVacuum:
    def test_folders_of_removed_leaves_go(self, table, root):
        table.delete("country = 'FR'")
        table.delete("event_date = '2025-12-10'")
        report = table.vacuum(NOTHING, force=True)
        assert sorted(report.folders) == [
            "event_date=2025-12-10/country=CN.lance",
            "event_date=2025-12-10/country=US.lance",
            "event_date=2025-12-11/country=FR.lance",
        ]
        assert paths_in(root) == ["event_date=2025-12-11/country=US.lance"]
        assert not (root / "event_date=2025-12-10").exists()
        assert ids(table) == [3]
        assert table.check().ok

    def test_nothing_else_is_deleted(self, table, root):
        """Datasets of others, whatever they are called, files and folders."""
        write_leaf(root, "event_date=2025-12-10/country=XX.lance", [{"id": 1}])
        write_leaf(
            root,
            "event_date=2025-12-10/country=YY.lance",
            pa.table({"id": pa.array([], pa.int64())}),
        )
        write_leaf(root, "event_date=2025-12-10/other.lance", [{"id": 1}])
        write_leaf(root, "notes.lance", [{"id": 1}])
        (root / "event_date=2025-12-10" / "country=ZZ.lance").mkdir()
        (root / "event_date=2025-12-10" / "README").write_text("mine")
        (root / "archive" / "country=US.lance" / "data").mkdir(parents=True)
        (root / "archive" / "country=US.lance" / "data" / "x.lance").write_text("mine")
        before = _files(root) - _files(root / "__manifest")
        table.delete("country = 'CN'")
        report = table.vacuum(NOTHING, force=True)
        gone = before - _files(root)
        assert gone
        assert all("country=CN.lance" in path or _is_ours(path) for path in gone)
        assert list(report.folders) == ["event_date=2025-12-10/country=CN.lance"]
        assert (
            sum("nothing shows that Phalanx has created it" in note for note in report.notes) == 3
        )
        assert ids(table) == [1, 3, 4]

    def test_a_link_is_not_followed(self, table, root):
        outside = root.parent / "outside"
        write_leaf(outside, "country=US.lance", [{"id": 1}])
        os.symlink(outside, root / "event_date=2025-12-09")
        table.vacuum(NOTHING, force=True)
        assert lance.dataset(f"{outside}/country=US.lance").count_rows() == 1


def _files(root):
    return {os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names}


def _is_ours(path):
    """Whether a file is in a leaf that the table has."""
    return any(f"country={name}.lance" in path for name in ("US", "FR")) and "archive" not in path


class TestConcurrency:
    def test_two_writers_create_the_same_partitions(self, root):
        phalanx.create(root, SCHEMA, ["event_date", "country"], layout="hive")

        def write(number):
            table = phalanx.open(root)
            for turn in range(4):
                table.append([row(100 * number + turn, f"c{turn}"), row(100 * number + 50 + turn)])

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        table = phalanx.open(root)
        assert ids(table) == sorted(
            100 * number + turn + more
            for number in range(4)
            for turn in range(4)
            for more in (0, 50)
        )
        assert table.version == 17
        assert len(paths_in(root)) == 5
        assert table.check().ok

    @pytest.mark.parametrize(
        "step",
        [
            *("write.leaf-created", "write.files-written", "commit.leaves-committed"),
            *("commit.before-swap", "commit.after-swap"),
        ],
    )
    def test_a_writer_that_is_killed_leaves_the_table_as_it_was_or_is_to_be(
        self, table, root, step
    ):
        code = (
            "import datetime, phalanx\n"
            f"phalanx.open({str(root)!r}).append([{{'id': 9, 'country': 'new'}}, "
            "{'id': 10, 'country': 'US', 'event_date': datetime.date(2025, 12, 10)}])"
        )
        environment = {**os.environ, "PHALANX_FAILPOINT": f"{step}:kill"}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
        assert done.returncode == -9, done.stderr
        landed = step == "commit.after-swap"
        again = phalanx.open(root)
        assert ids(again) == ([1, 2, 3, 4, 9, 10] if landed else [1, 2, 3, 4])
        again.append([row(11, "new"), row(12, None, None)])
        assert ids(again)[-2:] == [11, 12]
        assert again.check().ok
        again.vacuum(NOTHING, force=True)
        assert ids(again)[-2:] == [11, 12]
        assert again.check().ok


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_table_is_a_list_of_rows(tmp_path_factory, data):
    """Random changes, compared with a plain list."""
    root = tmp_path_factory.mktemp("hive") / "t"
    table = phalanx.create(root, SCHEMA, ["country", "event_date"], layout="hive")
    texts = st.sampled_from([None, "", "US", "/", "%2F", "..", "__HIVE_DEFAULT_PARTITION__"])
    rows, number = [], 0
    for _ in range(data.draw(st.integers(1, 6))):
        kind = data.draw(st.sampled_from(["append", "append", "delete", "update", "optimize"]))
        text = data.draw(texts)
        where = "country IS NULL" if text is None else f"country = '{text}'"
        if kind == "append":
            new = [row(number + at, data.draw(texts), at % 3 + 1) for at in range(3)]
            number += 3
            table.append(new)
            rows += new
        elif kind == "delete":
            table.delete(where)
            rows = [one for one in rows if one["country"] != text]
        elif kind == "update":
            table.update({"country": "'moved'"}, where)
            rows = [{**one, "country": "moved"} if one["country"] == text else one for one in rows]
        else:
            table.optimize()
        assert sorted(table.scan().to_arrow().to_pylist(), key=repr) == sorted(rows, key=repr)
    assert table.check().ok


class TestObjectStore:
    """URIs are decoded there, and cut at `#`: no two values may end up in one place."""

    VALUES = ("US", "a/b", "a%2Fb", "a#b", "a#c", "a?b", "é😀", "", None, "a b", "..", "[1]~^")

    def test_everything_works(self, s3_options):
        uri = "s3://lake/hive"
        table = phalanx.create(uri, SCHEMA, ["country"], layout="hive", storage_options=s3_options)
        table.append([row(number, text) for number, text in enumerate(self.VALUES)])
        again = phalanx.open(uri, storage_options=s3_options)
        rows = again.scan().to_arrow().sort_by("id").to_pylist()
        assert [one["country"] for one in rows] == list(self.VALUES)
        assert len({leaf.uri for leaf in again.scan().plan().leaves}) == len(self.VALUES)
        again.append([row(100, "a/b"), row(101, "a#b")])
        assert ids(again, "country = 'a/b'") == [1, 100]
        assert again.check().ok
        again.delete("country IN ('a#c', 'a%2Fb')")
        report = again.vacuum(NOTHING, force=True)
        assert sorted(report.folders) == ["country=a#c.lance", "country=a%252Fb.lance"]
        assert ids(again) == [0, 1, 3, *range(5, len(self.VALUES)), 100, 101]
        assert again.check().ok

    def test_a_tree_of_others(self, s3_options):
        uri = "s3://lake/tree"
        for day, country in ((10, "US"), (11, "a%252Fb"), (11, "FR")):
            lance.write_dataset(
                pa.table({"id": [day]}),
                f"{uri}/event_date=2025-12-{day}/country={country}.lance",
                storage_options=s3_options,
            )
        table = phalanx.open(uri, storage_options=s3_options)
        assert table.count() == 3
        assert table.scan(where="country = 'a/b'").to_arrow().to_pylist() == [row(11, "a/b", 11)]
        table.append([row(5, "x/y")])
        table = phalanx.interop.hive.adopt(uri, storage_options=s3_options)
        assert ids(table) == [5, 10, 11, 11]
        table.append([row(6), row(7, "x/y")])
        assert ids(phalanx.open(uri, storage_options=s3_options)) == [5, 6, 7, 10, 11, 11]
        assert table.check().ok
