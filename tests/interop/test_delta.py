import datetime as dt
import json
import math
import os
import re
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import phalanx
from phalanx.interop import delta
from tests.interop.samples import COLUMNS, HOSTILE, same_rows

EVENTS = pa.table(
    {
        "country": ["US", "CN", "US", "US", "FR", None],
        "id": pa.array(range(6)),
        "day": pa.array([dt.date(2025, 12, 10)] * 3 + [dt.date(2025, 12, 11)] * 3),
    }
)


@pytest.fixture
def events(root):
    return phalanx.create(root, EVENTS.schema, ["country", "bucket(2, id)"]).append(EVENTS)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "delta"


def rows_of(path, version=None):
    return pa.table(DeltaTable(path, version=version).scan())


def actions_of(path, version):
    lines = (path / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


def adds_of(path, version):
    return [action["add"] for action in actions_of(path, version) if "add" in action]


def stable(path, version):
    """The actions of a version, without what differs from one export to the next."""
    own = {"id", "createdTime", "configuration", "size", "modificationTime", "tags"}
    actions = []
    for action in actions_of(path, version):
        ((kind, fields),) = action.items()
        if kind != "commitInfo":
            fields = {k: v for k, v in fields.items() if k not in {*own, "deletionTimestamp"}}
            if "path" in fields:
                fields["path"] = re.sub(r"part-[0-9a-f]{32}", "part-0", fields["path"])
            actions.append({kind: fields})
    files = [action for action in actions if {"add", "remove"} & set(action)]
    others = [action for action in actions if action not in files]
    return others + sorted(files, key=json.dumps)


def test_the_golden_log(root, target):
    golden = json.loads((Path(__file__).parent / "golden" / "delta_export.json").read_text())
    days = [dt.date(2025, 12, 10)] * 2 + [dt.date(2025, 12, 11)] * 2
    rows = pa.table({"country": ["US", "CN", "US", None], "id": [1, 2, 3, 4], "day": days})
    table = phalanx.create(root, rows.schema, ["country"]).append(rows)
    delta.export(table, target)
    table.delete("id = 1")
    delta.export(table, target)
    assert [stable(target, version) for version in (0, 1)] == golden["log"]
    for add in adds_of(target, 0):
        file = pq.read_table(target / add["path"], partitioning=None)
        assert file.column_names == golden["columns"]


class TestExport:
    def test_deltalake_reads_it(self, events, target):
        report = delta.export(events, target)
        assert (report.version, report.delta_version, report.rows_added) == (2, 0, 6)
        assert same_rows(rows_of(target), EVENTS)
        table = DeltaTable(target)
        assert table.metadata().partition_columns == ["country"]
        assert same_rows(table.to_pyarrow_table(), EVENTS)

    def test_the_protocol_is_that_of_the_writer_feature(self, events, target):
        delta.export(events, target)
        (protocol,) = [a["protocol"] for a in actions_of(target, 0) if "protocol" in a]
        assert protocol == {
            "minReaderVersion": 1,
            "minWriterVersion": 7,
            "writerFeatures": ["materializePartitionColumns"],
        }

    def test_partition_columns_are_stored_after_the_others(self, events, target):
        delta.export(events, target)
        for add in adds_of(target, 0):
            file = pq.read_table(target / add["path"], partitioning=None)
            assert file.column_names == ["id", "day", "country"]
            assert set(file["country"].to_pylist()) == {add["partitionValues"]["country"]}

    def test_bare_files_are_the_table(self, events, target):
        delta.export(events, target)
        files = [pq.read_table(file, partitioning=None) for file in target.rglob("part-*.parquet")]
        assert same_rows(pa.concat_tables(files).select(EVENTS.column_names), EVENTS)

    def test_statistics(self, root, target):
        moment = dt.datetime(2024, 2, 29, 1, 2, 3, 456789, dt.UTC)
        table = pa.table(
            {
                "id": [1, 2, None],
                "x": [1.5, -0.5, 2.5],
                "nan": [1.0, math.nan, 2.0],
                "s": ["b", "a", "c" * 100],
                "d": pa.array([dt.date(2024, 1, 1)] * 3),
                "ts": pa.array([moment] * 3, pa.timestamp("us", "UTC")),
                "m": pa.array([Decimal("1.25")] * 3, pa.decimal128(5, 2)),
                "wide": pa.array([Decimal("9" * 30)] * 3, pa.decimal128(38, 0)),
                "l": [[1], [2], None],
                "b": [True, False, None],
            }
        )
        delta.export(phalanx.create(root, table.schema).append(table), target)
        (add,) = adds_of(target, 0)
        stats = json.loads(add["stats"])
        assert stats["numRecords"] == 3
        assert stats["nullCount"]["id"] == 1
        assert (stats["minValues"]["id"], stats["maxValues"]["id"]) == (1, 2)
        assert (stats["minValues"]["x"], stats["maxValues"]["x"]) == (-0.5, 2.5)
        assert stats["minValues"]["s"] == "a"
        assert stats["maxValues"]["s"] > "c" * 64
        assert len(stats["maxValues"]["s"]) <= 64
        assert stats["minValues"]["ts"] == "2024-02-29T01:02:03.456Z"
        assert stats["maxValues"]["ts"] == "2024-02-29T01:02:03.457Z"
        assert stats["minValues"]["d"] == "2024-01-01"
        assert stats["minValues"]["m"] == 1.25
        assert set(stats["minValues"]) == {"id", "x", "s", "d", "ts", "m"}

    @pytest.mark.parametrize(
        "where",
        [
            "x > 1.6",
            "x = 'NaN'",
            "s = 'cccccc'",
            "ts = TIMESTAMP '2024-02-29T01:02:03.456789Z'",
            "ts < TIMESTAMP '2024-02-29T01:02:03.4568Z'",
            "country = 'US'",
            "country IS NULL",
            "x < -0.1",
        ],
    )
    def test_statistics_hide_no_row(self, root, target, where):
        moment = dt.datetime(2024, 2, 29, 1, 2, 3, 456789, dt.UTC)
        table = pa.table(
            {
                "x": [1.5, math.nan, -0.5, 2.5],
                "s": ["cccccc", "a", "c" * 100, ""],
                "ts": pa.array([moment] * 4, pa.timestamp("us", "UTC")),
                "country": ["US", "DE", None, "US"],
            }
        )
        ours = phalanx.create(root, table.schema, ["country"]).append(table)
        delta.export(ours, target)
        found = pa.table(DeltaTable(target).scan(predicate=where))
        assert same_rows(found, ours.scan(where=where).to_arrow())

    def test_a_table_without_rows(self, root, target):
        delta.export(phalanx.create(root, EVENTS.schema, ["country"]), target)
        assert rows_of(target).num_rows == 0
        assert DeltaTable(target).metadata().partition_columns == ["country"]

    def test_partition_columns_can_be_chosen(self, events, target):
        delta.export(events, target, partition_by=["day"])
        assert DeltaTable(target).metadata().partition_columns == ["day"]
        assert same_rows(rows_of(target), EVENTS)

    def test_weak_tables(self, root, target):
        table = phalanx.create(root, EVENTS.schema, ["country"], transactions="weak")
        table.append(EVENTS)
        delta.export(table, target)
        delta.export(table, target)
        assert same_rows(rows_of(target), EVENTS)


class TestTypes:
    def test_every_type(self, root, target, tmp_path):
        rows = pa.table(COLUMNS)
        table = phalanx.create(root, rows.schema).append(rows)
        delta.export(table, target)
        back = delta.import_(target, tmp_path / "back")
        types = {field.name: field.type for field in back.schema}
        assert types["uint8"] == pa.int16()
        assert types["uint64"] == pa.decimal128(20, 0)
        assert types["unzoned"] == pa.timestamp("us")
        assert types["new_york"] == pa.timestamp("us", "UTC")
        for name in COLUMNS:
            ours = rows[name].to_pylist()
            theirs = back.scan([name]).to_arrow()[name].to_pylist()
            assert repr(_comparable(theirs)) == repr(_comparable(ours)), name

    def test_maps(self, root, target):
        values = pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int32()))
        rows = pa.table({"id": range(3), "m": values})
        table = phalanx.create(root, rows.schema).append(rows)
        delta.export(table, target)
        assert rows_of(target)["m"].to_pylist() == values.to_pylist()

    @pytest.mark.parametrize(
        "name",
        [
            *("bool", "int8", "int64", "uint64", "float32", "float64", "decimal", "wide_decimal"),
            *("large_string", "date", "zoned", "unzoned", "milliseconds", "seconds"),
        ],
    )
    def test_every_type_of_partition_column(self, root, target, name):
        values = COLUMNS[name]
        rows = pa.table({"id": range(3), "p": values})
        table = phalanx.create(root, rows.schema, partition_by=["p"]).append(rows)
        delta.export(table, target)
        found = [row["p"] for row in sorted(rows_of(target).to_pylist(), key=lambda row: row["id"])]
        assert repr(_comparable(found)) == repr(_comparable(values.to_pylist()))

    @pytest.mark.parametrize(
        "type",
        [
            *(pa.time32("s"), pa.time64("us"), pa.duration("us"), pa.decimal256(60, 0)),
            *(pa.list_(pa.time32("ms")), pa.struct([("t", pa.duration("s"))])),
        ],
    )
    def test_what_delta_does_not_have_is_refused(self, root, target, type):
        table = phalanx.create(root, pa.schema([("id", pa.int64()), ("x", type)]))
        with pytest.raises(phalanx.InvalidInput, match=r"column 'x.*which Delta does not have"):
            delta.export(table, target)
        assert not target.exists()

    def test_nanoseconds_are_refused_where_they_would_be_lost(self, root, target):
        schema = pa.schema([("ts", pa.timestamp("ns"))])
        table = phalanx.create(root, schema).append(
            pa.table({"ts": pa.array([1000], schema[0].type)})
        )
        delta.export(table, target)
        table.append(pa.table({"ts": pa.array([1], schema[0].type)}))
        with pytest.raises(phalanx.InvalidInput, match="column 'ts' does not fit"):
            delta.export(table, target)
        assert rows_of(target).num_rows == 1

    def test_timestamps_without_a_zone_need_a_reader_feature(self, root, target):
        table = phalanx.create(root, pa.schema([("id", pa.int64())]))
        delta.export(table, target)
        table.add_column("ts", pa.timestamp("us"))
        delta.export(table, target)
        protocol = DeltaTable(target).protocol()
        assert protocol.min_reader_version == 3
        assert protocol.reader_features == ["timestampNtz"]
        assert set(protocol.writer_features) == {"timestampNtz", "materializePartitionColumns"}

    @pytest.mark.parametrize("name", ["a b", "a=b", "a(b"])
    def test_names_that_delta_does_not_take(self, root, target, name):
        table = phalanx.create(root, pa.schema([(name, pa.int64())]))
        with pytest.raises(phalanx.InvalidInput, match="rename the column"):
            delta.export(table, target)

    def test_not_null_is_kept(self, root, target, tmp_path):
        inner = pa.struct([pa.field("x", pa.int64(), False)])
        schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("s", inner)])
        table = phalanx.create(root, schema).append([{"id": 1, "s": {"x": 2}}, {"id": 2}])
        delta.export(table, target)
        back = delta.import_(target, tmp_path / "back")
        assert back.schema == schema
        assert same_rows(back.scan().to_arrow(), table.scan().to_arrow())

    def test_names_that_differ_in_case_only(self, root, target):
        table = phalanx.create(root, pa.schema([("a", pa.int64()), ("A", pa.int64())]))
        with pytest.raises(phalanx.InvalidInput, match="'a' and 'A' are one in Delta"):
            delta.export(table, target)

    def test_hostile_values(self, root, target):
        values = [value for value in HOSTILE if value != ""]
        rows = pa.table({"id": range(len(values)), "p": values})
        table = phalanx.create(root, rows.schema, partition_by=["p"]).append(rows)
        delta.export(table, target)
        assert same_rows(rows_of(target), rows)
        assert all("=" in folder for folder in os.listdir(target) if folder != "_delta_log")

    def test_the_empty_string_is_no_partition_value(self, root, target):
        rows = pa.table({"id": [1, 2], "p": ["", "a"]})
        table = phalanx.create(root, rows.schema, partition_by=["p"]).append(rows)
        with pytest.raises(phalanx.InvalidInput, match="Delta takes for NULL"):
            delta.export(table, target)
        assert not target.exists()
        delta.export(table, target, partition_by=[])
        assert same_rows(rows_of(target), rows)


def _comparable(values):
    """Values as Delta's types have them."""
    return [_number(value) for value in values]


def _number(value):
    if isinstance(value, dt.datetime):
        return value if value.tzinfo is None else value.astimezone(dt.UTC)
    if (
        isinstance(value, Decimal)
        and value == value.to_integral_value()
        and not value.as_tuple()[2]
    ):
        return int(value)
    return value


class TestAgain:
    def test_only_leaves_that_changed_are_written(self, events, target):
        delta.export(events, target)
        events.append(pa.table({"country": ["FR"], "id": [7], "day": [dt.date(2026, 1, 1)]}))
        report = delta.export(events, target)
        assert (report.delta_version, report.files_added) == (1, 1)
        assert report.files_removed <= 1
        assert report.files_kept >= 4
        assert same_rows(rows_of(target), events.scan().to_arrow())
        assert same_rows(rows_of(target, 0), EVENTS)

    def test_nothing_is_written_if_nothing_changed(self, events, target):
        delta.export(events, target)
        files = sorted(target.rglob("*"))
        report = delta.export(events, target)
        assert (report.delta_version, report.files_added, report.files_removed) == (0, 0, 0)
        assert sorted(target.rglob("*")) == files

    def test_every_change_of_rows(self, events, target):
        delta.export(events, target)
        changes = [
            lambda: events.delete("country = 'US' AND id = 0"),
            lambda: events.update({"day": "DATE '2000-01-01'"}, "id = 3"),
            lambda: events.delete("country = 'CN'"),
            lambda: events.overwrite(EVENTS),
            lambda: events.merge(EVENTS, on=["id"]),
            lambda: events.optimize(),
            lambda: events.rollback(2),
            lambda: events.delete("TRUE"),
        ]
        for change in changes:
            change()
            delta.export(events, target)
            assert same_rows(rows_of(target), events.scan().to_arrow())

    def test_every_change_of_shape(self, events, target):
        delta.export(events, target)
        changes = [
            lambda: events.add_column("n", pa.int16(), default=3),
            lambda: events.rename_column("day", "date"),
            lambda: events.change_type("n", pa.int64()),
            lambda: events.drop_column("n"),
            lambda: events.evolve_partitioning(["date"]),
            lambda: events.append([{"id": 9, "country": "US", "date": dt.date(2030, 1, 1)}]),
            lambda: events.rewrite(),
        ]
        for change in changes:
            change()
            delta.export(events, target)
            assert same_rows(rows_of(target), events.scan().to_arrow())
            names = [field.name for field in DeltaTable(target).schema().fields]
            assert names == events.schema.names
        assert DeltaTable(target).metadata().partition_columns == ["date"]

    def test_a_column_that_is_dropped_and_added_again(self, root, target):
        """It is another column, although the schema of the Delta table stays as it is."""
        type = pa.list_(pa.struct([("x", pa.int64())]))
        rows = pa.table({"id": [1], "n.o": [2], "a": pa.array([[{"x": 3}, None]], type)})
        table = phalanx.create(root, rows)
        for path in ("`n.o`", "a.element.x"):
            table.append(rows)
            delta.export(table, target)
            assert same_rows(rows_of(target), table.scan().to_arrow())
            with table.transaction() as tx:
                tx.add_column("a.element.y", pa.int64())
                tx.drop_column(path)
                tx.add_column(path, pa.int64())
                tx.drop_column("a.element.y")
                tx.reorder_columns(rows.schema.names)
            delta.export(table, target)
            assert same_rows(rows_of(target), table.scan().to_arrow())

    def test_an_earlier_version_can_follow(self, events, target):
        events.append(EVENTS)
        delta.export(events, target)
        delta.export(phalanx.open(events.uri, version=2), target)
        assert same_rows(rows_of(target), EVENTS)

    def test_checkpoints_of_others_are_read(self, events, target):
        delta.export(events, target)
        for _ in range(2):
            events.append(EVENTS)
            delta.export(events, target)
        DeltaTable(target).create_checkpoint()
        for version in range(3):
            os.remove(target / "_delta_log" / f"{version:020}.json")
        assert delta.export(events, target).files_added == 0
        events.append(EVENTS.slice(0, 1))
        report = delta.export(events, target)
        assert (report.files_added, report.delta_version) == (1, 3)
        assert same_rows(rows_of(target), events.scan().to_arrow())

    def test_a_log_with_a_hole(self, events, target):
        delta.export(events, target)
        events.append(EVENTS)
        delta.export(events, target)
        os.remove(target / "_delta_log" / f"{0:020}.json")
        with pytest.raises(phalanx.UnsupportedTable, match="has no version 0"):
            delta.export(events, target)


class TestOtherWriters:
    def test_who_does_not_know_the_feature_reads_and_does_not_write(self, events, target):
        delta.export(events, target)
        with pytest.raises(Exception, match="MaterializePartitionColumns"):
            write_deltalake(target, EVENTS, mode="append")
        assert same_rows(rows_of(target), EVENTS)

    def test_a_folder_with_something_else_in_it(self, events, target):
        target.mkdir()
        (target / "mine.txt").write_text("keep me")
        with pytest.raises(phalanx.InvalidInput, match="not empty and no Delta table"):
            delta.export(events, target)

    def test_a_delta_table_of_others_is_replaced_when_asked(self, events, target):
        write_deltalake(target, pa.table({"x": [1, 2]}))
        with pytest.raises(phalanx.InvalidInput, match="was not exported from"):
            delta.export(events, target)
        assert rows_of(target).num_rows == 2
        delta.export(events, target, overwrite=True)
        assert same_rows(rows_of(target), EVENTS)
        assert delta.export(events, target).files_added == 0

    def test_features_that_cannot_be_honored(self, events, target):
        write_deltalake(
            target, pa.table({"x": [1, 2]}), configuration={"delta.enableChangeDataFeed": "true"}
        )
        with pytest.raises(phalanx.UnsupportedTable, match="cannot honor"):
            delta.export(events, target, overwrite=True)

    def test_files_that_others_have_added(self, events, target):
        delta.export(events, target)
        (add, *_) = adds_of(target, 0)
        add.pop("tags")
        add["path"] = "other.parquet"
        log = target / "_delta_log" / f"{1:020}.json"
        log.write_text(json.dumps({"add": add}) + "\n")
        with pytest.raises(phalanx.InvalidInput, match="others have written"):
            delta.export(events, target)
        delta.export(events, target, overwrite=True)
        assert same_rows(rows_of(target), EVENTS)

    def test_files_that_others_have_removed_come_back(self, events, target):
        delta.export(events, target)
        (add, *_) = adds_of(target, 0)
        log = target / "_delta_log" / f"{1:020}.json"
        log.write_text(json.dumps({"remove": {"path": add["path"], "dataChange": True}}) + "\n")
        assert delta.export(events, target).files_added == 1
        assert same_rows(rows_of(target), EVENTS)

    def test_a_version_that_another_export_has_taken(self, events, target, monkeypatch):
        delta.export(events, target)
        events.append(EVENTS)
        commit = delta.delta_log.commit
        lost = []

        def late(root, version, actions):
            if not lost:
                lost.append(version)
                delta.export(phalanx.open(events.uri), target, partition_by=[])
            return commit(root, version, actions)

        monkeypatch.setattr(delta.delta_log, "commit", late)
        report = delta.export(events, target)
        assert lost == [1]
        assert report.delta_version == 2
        assert same_rows(rows_of(target), events.scan().to_arrow())

    def test_exports_at_the_same_time(self, events, target):
        errors = []

        def run():
            try:
                delta.export(phalanx.open(events.uri), target)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert same_rows(rows_of(target), EVENTS)


class TestFailures:
    STEPS = ("file-written", "delta-written", "delta-commit")

    @pytest.mark.parametrize("step", STEPS)
    def test_a_failure_leaves_the_version_before(self, events, target, monkeypatch, step):
        monkeypatch.setattr("phalanx.transaction.failpoints._visits", {})
        monkeypatch.setenv("PHALANX_FAILPOINT", f"export.{step}:raise:1")
        with pytest.raises(phalanx.StorageError, match="cannot write to"):
            delta.export(events, target)
        assert not DeltaTable.is_deltatable(str(target))
        monkeypatch.delenv("PHALANX_FAILPOINT")
        delta.export(events, target)
        events.append(EVENTS)
        monkeypatch.setattr("phalanx.transaction.failpoints._visits", {})
        monkeypatch.setenv("PHALANX_FAILPOINT", f"export.{step}:raise:1")
        with pytest.raises(phalanx.StorageError):
            delta.export(events, target)
        assert same_rows(rows_of(target), EVENTS)
        monkeypatch.delenv("PHALANX_FAILPOINT")
        delta.export(events, target)
        assert same_rows(rows_of(target), events.scan().to_arrow())

    @pytest.mark.parametrize("step", STEPS)
    def test_a_killed_process_leaves_the_version_before(self, events, target, step):
        delta.export(events, target)
        events.append(EVENTS)
        program = (
            "import sys, phalanx\n"
            "phalanx.interop.delta.export(phalanx.open(sys.argv[1]), sys.argv[2])"
        )
        killed = subprocess.run(
            [sys.executable, "-c", program, events.uri, target],
            env={**os.environ, "PHALANX_FAILPOINT": f"export.{step}:kill"},
        )
        assert killed.returncode == -9
        assert same_rows(rows_of(target), EVENTS)
        delta.export(events, target)
        assert same_rows(rows_of(target), events.scan().to_arrow())
