import datetime as dt
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import phalanx
from phalanx.interop import parquet
from tests.interop.samples import COLUMNS, HOSTILE, PARQUET_ONLY, same_rows

GOLDEN = json.loads((Path(__file__).parent / "golden" / "parquet.json").read_text())
EVENTS = pa.table(
    {
        "id": pa.array(range(6)),
        "event_date": pa.array([dt.date(2025, 12, 10)] * 3 + [dt.date(2025, 12, 11)] * 3),
        "country": ["US", "CN", "US", "US", "FR", None],
    }
)


@pytest.fixture
def events(root):
    table = phalanx.create(root, EVENTS.schema, partition_by=["event_date", "country"])
    return table.append(EVENTS)


def folders(path):
    """The folders with files in them, relative to a root."""
    return sorted({str(file.parent.relative_to(path)) for file in path.rglob("*.parquet")})


@pytest.mark.parametrize("tree", GOLDEN, ids=lambda tree: tree["name"])
def test_a_golden_tree(tree, root, tmp_path):
    for name, ids in tree["files"].items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": ids}), path)
    columns = [(name, pa.type_for_alias(type)) for name, type in tree["types"].items()]
    schema = pa.schema([*columns, ("id", pa.int64())])
    table = parquet.import_(tmp_path / "tree", root, schema=schema)
    expected = [dict(zip(schema.names, row, strict=True)) for row in tree["rows"]]
    for row in expected:
        if "event_date" in row:
            row["event_date"] = dt.date.fromisoformat(row["event_date"])
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    assert table.spec.spell(table._snapshot.head.schema) == list(tree["types"])
    again = parquet.import_(_exported(table, tmp_path / "again"), tmp_path / "copy")
    assert again.scan().to_arrow().sort_by("id").to_pylist() == expected


def _exported(table, path):
    parquet.export(table, path)
    return path


class TestExport:
    def test_a_tree_is_named_as_the_documents_say(self, events, tmp_path):
        report = parquet.export(events, tmp_path / "tree")
        assert folders(tmp_path / "tree") == [
            "event_date=2025-12-10/country=CN",
            "event_date=2025-12-10/country=US",
            "event_date=2025-12-11/country=FR",
            "event_date=2025-12-11/country=US",
            "event_date=2025-12-11/country=__HIVE_DEFAULT_PARTITION__",
        ]
        assert (report.rows, report.files, report.version) == (6, 5, 2)
        assert "version 2 as 5 Parquet files, 6 rows" in str(report)

    def test_pyarrow_reads_it(self, events, tmp_path):
        parquet.export(events, tmp_path / "tree")
        types = pa.schema([("event_date", pa.date32()), ("country", pa.string())])
        tree = ds.dataset(tmp_path / "tree", partitioning=ds.partitioning(types, flavor="hive"))
        assert same_rows(tree.to_table(columns=EVENTS.column_names), EVENTS)

    def test_it_is_the_snapshot_of_the_table(self, events, tmp_path):
        old = phalanx.open(events.uri, version=2)
        events.append(EVENTS)
        assert parquet.export(old, tmp_path / "tree").rows == 6

    def test_files_do_not_store_partition_columns(self, events, tmp_path):
        parquet.export(events, tmp_path / "tree")
        file = next((tmp_path / "tree").rglob("*.parquet"))
        assert pq.read_schema(file).names == ["id"]

    def test_other_transforms_make_no_folder(self, root, tmp_path):
        table = phalanx.create(
            root, EVENTS.schema, partition_by=["days(event_date)", "country", "bucket(4, id)"]
        )
        table.append(EVENTS)
        parquet.export(table, tmp_path / "tree")
        assert folders(tmp_path / "tree") == [
            "country=CN",
            "country=FR",
            "country=US",
            "country=__HIVE_DEFAULT_PARTITION__",
        ]
        back = parquet.import_(tmp_path / "tree", tmp_path / "back")
        assert same_rows(back.scan().to_arrow(), EVENTS)

    def test_columns_to_partition_by_can_be_chosen(self, events, tmp_path):
        parquet.export(events, tmp_path / "ids", partition_by=["id"])
        assert folders(tmp_path / "ids") == [f"id={n}" for n in range(6)]
        parquet.export(events, tmp_path / "flat", partition_by=[])
        assert folders(tmp_path / "flat") == ["."]
        assert same_rows(pq.read_table(tmp_path / "flat"), EVENTS)

    def test_rows_of_an_earlier_spec_are_in_the_folders_of_the_newest(self, root, tmp_path):
        table = phalanx.create(root, EVENTS.schema, partition_by=["bucket(2, id)"])
        table.append(EVENTS)
        table.evolve_partitioning(["country"])
        table.append(EVENTS)
        parquet.export(table, tmp_path / "tree")
        assert "country=US" in folders(tmp_path / "tree")
        back = parquet.import_(tmp_path / "tree", tmp_path / "back")
        assert same_rows(back.scan().to_arrow(), pa.concat_tables([EVENTS, EVENTS]))

    def test_an_evolved_schema_is_exported_as_it_is_now(self, events, tmp_path):
        events.rename_column("country", "land")
        events.add_column("n", pa.int32(), default=7)
        parquet.export(events, tmp_path / "tree")
        back = parquet.import_(tmp_path / "tree", tmp_path / "back")
        assert same_rows(back.scan().to_arrow(), events.scan().to_arrow())
        assert back.schema.names == ["id", "event_date", "land", "n"]

    def test_a_table_without_rows(self, root, tmp_path):
        table = phalanx.create(root, EVENTS.schema, partition_by=["country"])
        parquet.export(table, tmp_path / "tree")
        back = parquet.import_(tmp_path / "tree", tmp_path / "back")
        assert back.schema == EVENTS.schema
        assert back.count() == 0

    def test_a_leaf_of_several_files(self, events, tmp_path, monkeypatch):
        monkeypatch.setattr("phalanx.interop.rows.FILE_BYTES", 1)
        monkeypatch.setattr("phalanx.interop.rows.CHUNK_BYTES", 1)
        assert parquet.export(events, tmp_path / "tree", partition_by=[]).files == 6
        back = parquet.import_(tmp_path / "tree", tmp_path / "back")
        assert same_rows(back.scan().to_arrow(), EVENTS)


class TestTheTarget:
    def test_a_folder_that_is_not_empty_is_refused(self, events, tmp_path):
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree" / "mine.txt").write_text("keep me")
        with pytest.raises(phalanx.InvalidInput, match="is not empty"):
            parquet.export(events, tmp_path / "tree")
        with pytest.raises(phalanx.InvalidInput, match=r"mine.txt is not part of a Parquet tree"):
            parquet.export(events, tmp_path / "tree", overwrite=True)
        assert (tmp_path / "tree" / "mine.txt").read_text() == "keep me"

    def test_an_empty_folder_is_filled(self, events, tmp_path):
        (tmp_path / "tree").mkdir()
        assert parquet.export(events, tmp_path / "tree").rows == 6

    def test_an_earlier_tree_is_replaced_when_asked(self, events, tmp_path):
        parquet.export(events, tmp_path / "tree")
        events.delete("country = 'US'")
        parquet.export(events, tmp_path / "tree", overwrite=True)
        back = parquet.import_(tmp_path / "tree", tmp_path / "back")
        assert same_rows(back.scan().to_arrow(), events.scan().to_arrow())
        assert sorted(os.listdir(tmp_path)) == ["back", "table", "tree"]

    @pytest.mark.parametrize("place", [".", "table", "table/tree"])
    @pytest.mark.parametrize("overwrite", [False, True])
    def test_a_table_and_its_export_are_never_inside_one_another(
        self, events, tmp_path, place, overwrite
    ):
        with pytest.raises(phalanx.InvalidInput, match="inside one another"):
            parquet.export(events, tmp_path / place, overwrite=overwrite)
        assert events.refresh().check().ok

    def test_other_tables_are_not_replaced(self, events, tmp_path):
        phalanx.create(tmp_path / "other", EVENTS.schema)
        with pytest.raises(phalanx.InvalidInput, match="not part of a Parquet tree"):
            parquet.export(events, tmp_path / "other", overwrite=True)

    @pytest.mark.parametrize("path", ["s3://bucket/tree", "", 7])
    def test_a_place_that_is_no_folder(self, events, path):
        with pytest.raises(phalanx.InvalidInput):
            parquet.export(events, path)

    @pytest.mark.parametrize("step", ["file-written", "tree-written"])
    def test_a_failure_leaves_nothing_to_read(self, events, tmp_path, monkeypatch, step):
        monkeypatch.setenv("PHALANX_FAILPOINT", f"export.{step}:raise")
        with pytest.raises(phalanx.StorageError, match="cannot write to"):
            parquet.export(events, tmp_path / "tree")
        assert os.listdir(tmp_path) == ["table"]

    @pytest.mark.parametrize("step", ["file-written", "tree-written"])
    def test_a_failure_leaves_the_earlier_tree(self, events, tmp_path, monkeypatch, step):
        parquet.export(events, tmp_path / "tree")
        events.append(EVENTS)
        monkeypatch.setattr("phalanx.transaction.failpoints._visits", {})
        monkeypatch.setenv("PHALANX_FAILPOINT", f"export.{step}:raise")
        with pytest.raises(phalanx.StorageError):
            parquet.export(events, tmp_path / "tree", overwrite=True)
        monkeypatch.delenv("PHALANX_FAILPOINT")
        back = parquet.import_(tmp_path / "tree", tmp_path / "back")
        assert same_rows(back.scan().to_arrow(), EVENTS)

    @pytest.mark.parametrize("step", ["file-written", "tree-written", "old-tree-moved"])
    def test_a_killed_process_leaves_whole_trees(self, events, tmp_path, step):
        parquet.export(events, tmp_path / "tree")
        events.append(EVENTS)
        program = (
            "import sys, phalanx\n"
            "table = phalanx.open(sys.argv[1])\n"
            "phalanx.interop.parquet.export(table, sys.argv[2], overwrite=True)"
        )
        killed = subprocess.run(
            [sys.executable, "-c", program, events.uri, tmp_path / "tree"],
            env={**os.environ, "PHALANX_FAILPOINT": f"export.{step}:kill"},
        )
        assert killed.returncode == -9
        left = tmp_path / "tree"
        if step == "old-tree-moved":
            (left,) = tmp_path.glob(".tree.*.replaced")
            assert not (tmp_path / "tree").exists()
        assert same_rows(parquet.import_(left, tmp_path / "old").scan().to_arrow(), EVENTS)
        parquet.export(events, tmp_path / "tree", overwrite=True)
        back = parquet.import_(tmp_path / "tree", tmp_path / "back")
        assert same_rows(back.scan().to_arrow(), events.scan().to_arrow())


class TestRoundTrips:
    def test_every_type(self, root, tmp_path):
        rows = pa.table(COLUMNS | PARQUET_ONLY)
        table = phalanx.create(root, rows.schema).append(rows)
        parquet.export(table, tmp_path / "tree")
        back = parquet.import_(tmp_path / "tree", tmp_path / "back")
        assert back.schema == rows.schema
        assert same_rows(back.scan().to_arrow(), table.scan().to_arrow())
        assert same_rows(back.scan().to_arrow(), rows)

    @pytest.mark.parametrize(
        "name",
        [
            *("bool", "int8", "int64", "uint64", "float32", "float64", "decimal", "wide_decimal"),
            *("string", "large_string", "date", "zoned", "new_york", "unzoned", "seconds"),
            *("milliseconds", "time32", "time64", "nanoseconds"),
        ],
    )
    def test_every_type_of_partition_column(self, root, tmp_path, name):
        values = (COLUMNS | PARQUET_ONLY)[name]
        rows = pa.table({"id": range(3), "p": values})
        table = phalanx.create(root, rows.schema, partition_by=["p"]).append(rows)
        parquet.export(table, tmp_path / "tree")
        back = parquet.import_(tmp_path / "tree", tmp_path / "back")
        assert back.schema == rows.schema
        assert back.spec.spell(back._snapshot.head.schema) == ["p"]
        assert same_rows(back.scan().to_arrow(), rows)

    def test_zeros_keep_their_signs_and_nan_is_a_value(self, root, tmp_path):
        values = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e300, 5e-324, None]
        rows = pa.table({"id": range(8), "p": pa.array(values)})
        table = phalanx.create(root, rows.schema, partition_by=["p"]).append(rows)
        parquet.export(table, tmp_path / "tree")
        back = parquet.import_(tmp_path / "tree", tmp_path / "back")
        assert same_rows(back.scan().to_arrow(), rows)

    def test_hostile_values_stay_inside_and_come_back(self, root, tmp_path):
        rows = pa.table({"id": range(len(HOSTILE)), "p": HOSTILE})
        table = phalanx.create(root, rows.schema, partition_by=["p"]).append(rows)
        outer = tmp_path / "outer"
        parquet.export(table, outer / "tree")
        assert os.listdir(outer) == ["tree"]
        assert all(
            len(path.relative_to(outer / "tree").parts) == 2 for path in outer.rglob("*.pa*")
        )
        back = parquet.import_(outer / "tree", tmp_path / "back")
        assert same_rows(back.scan().to_arrow(), rows)

    def test_hostile_names_of_columns(self, root, tmp_path):
        rows = pa.table({"id": [1], "a/b=c": ["x/y"], "%2F": ["z"]})
        table = phalanx.create(root, rows.schema, partition_by=["a/b=c", "%2F"]).append(rows)
        parquet.export(table, tmp_path / "tree")
        assert folders(tmp_path / "tree") == ["a%2Fb%3Dc=x%2Fy/%252F=z"]
        back = parquet.import_(tmp_path / "tree", tmp_path / "back")
        assert same_rows(back.scan().to_arrow(), rows)

    def test_a_value_too_long_for_a_folder_is_refused(self, root, tmp_path):
        rows = pa.table({"id": [1], "p": ["é" * 200]})
        table = phalanx.create(root, rows.schema, partition_by=["p"]).append(rows)
        with pytest.raises(phalanx.InvalidInput, match="too long for the name of a folder"):
            parquet.export(table, tmp_path / "tree")
        assert parquet.export(table, tmp_path / "tree", partition_by=[]).rows == 1

    def test_not_null_is_kept(self, root, tmp_path):
        inner = pa.struct([pa.field("x", pa.int64(), False)])
        fields = [pa.field("id", pa.int64(), False), pa.field("p", pa.string(), False)]
        schema = pa.schema([*fields, pa.field("s", inner), pa.field("l", pa.list_(inner))])
        rows = [{"id": 1, "p": "a", "s": {"x": 1}, "l": [{"x": 2}, None]}, {"id": 2, "p": "a"}]
        table = phalanx.create(root, schema, partition_by=["p"]).append(rows)
        parquet.export(table, tmp_path / "tree")
        back = parquet.import_(tmp_path / "tree", tmp_path / "back")
        assert back.schema == schema
        assert same_rows(back.scan().to_arrow(), table.scan().to_arrow())

    def test_dates_with_a_time_of_day_are_refused(self, root, tmp_path):
        rows = pa.table({"d": pa.array([1], pa.int64()).cast(pa.timestamp("ms")).view(pa.date64())})
        table = phalanx.create(root, rows.schema).append(rows)
        with pytest.raises(phalanx.InvalidInput, match="a time of day"):
            parquet.export(table, tmp_path / "tree")

    def test_seconds_that_milliseconds_cannot_hold_are_refused(self, root, tmp_path):
        rows = pa.table({"ts": pa.array([2**60], pa.timestamp("s"))})
        table = phalanx.create(root, rows.schema).append(rows)
        with pytest.raises(phalanx.InvalidInput, match="cannot be stored in Parquet"):
            parquet.export(table, tmp_path / "tree")
        assert not (tmp_path / "tree").exists()
