"""Key=value trees in Spark: tables with that layout, and trees that others have made."""

import datetime as dt
import os

import lance
import mmh3
import pyarrow as pa
import pytest

import phalanx
from phalanx.interop import hive


def paths_in(root):
    """The leaves of a tree, relative to its root."""
    return sorted(
        os.path.relpath(folder, root) for folder, _, _ in os.walk(root) if folder.endswith(".lance")
    )


@pytest.fixture
def events(lake):
    lake.sql(
        "CREATE TABLE {db}.events (id BIGINT, event_date DATE, country STRING) USING phalanx "
        "PARTITIONED BY (event_date, country) TBLPROPERTIES ('layout' = 'hive')"
    )
    lake.sql(
        "INSERT INTO {db}.events VALUES (1, DATE '2025-12-10', 'US'), (2, DATE '2025-12-10', 'CN'),"
        " (3, DATE '2025-12-11', 'US'), (4, DATE '2025-12-11', 'FR'), (5, NULL, 'a/b')"
    )
    return lake


class TestTables:
    def test_leaves_are_in_a_tree(self, events):
        assert paths_in(events.path / "events") == [
            "event_date=2025-12-10/country=CN.lance",
            "event_date=2025-12-10/country=US.lance",
            "event_date=2025-12-11/country=FR.lance",
            "event_date=2025-12-11/country=US.lance",
            "event_date=__HIVE_DEFAULT_PARTITION__/country=a%2Fb.lance",
        ]
        path = events.path / "events" / "event_date=2025-12-10" / "country=US.lance"
        assert lance.dataset(str(path)).to_table().to_pylist() == [{"id": 1}]

    def test_rows_come_back_with_the_values_of_their_paths(self, events):
        assert events.rows("SELECT country, id, event_date FROM {db}.events WHERE id > 3") == [
            ("FR", 4, dt.date(2025, 12, 11)),
            ("a/b", 5, None),
        ]

    def test_the_example_of_the_document_reads_one_leaf(self, events):
        table = phalanx.open(events.path / "events")
        where = "event_date = '2025-12-11' AND country != 'FR'"
        assert events.rows(f"SELECT id FROM {{db}}.events WHERE {where}") == [(3,)]
        assert [leaf.uri for leaf in table.scan(where=where).plan().leaves] == [
            f"{events.path}/events/event_date=2025-12-11/country=US.lance"
        ]

    def test_rows_change(self, events):
        events.sql("UPDATE {db}.events SET country = 'DE' WHERE id = 1")
        events.sql("DELETE FROM {db}.events WHERE country = 'CN'")
        events.sql("INSERT OVERWRITE {db}.events SELECT 9, DATE '2025-12-10', 'US'")
        assert events.rows("SELECT id FROM {db}.events") == [(9,)]
        assert "ok" in str(phalanx.open(events.path / "events").check())

    def test_partition_functions(self, lake):
        lake.sql(
            "CREATE TABLE {db}.f (id BIGINT, ts TIMESTAMP, s STRING) USING phalanx PARTITIONED BY "
            "(year(ts), month(ts), bucket(4, id), truncate(3, s), hash(s)) "
            "TBLPROPERTIES ('layout' = 'hive')"
        )
        lake.sql(
            "INSERT INTO {db}.f SELECT id, TIMESTAMP '2025-01-31 23:00:00', 'abcdef' FROM range(9)"
        )
        paths = paths_in(lake.path / "f")
        assert {path.split("/")[0] for path in paths} == {"ts_year=2025"}
        assert {path.split("/")[1] for path in paths} == {"ts_month=01"}
        assert {path.split("/")[2] for path in paths} <= {f"id_bucket={n}" for n in range(4)}
        assert {path.split("/")[3] for path in paths} == {"s_trunc=abc"}
        assert {path.split("/")[4] for path in paths} == {
            f"s_hash={mmh3.hash('abcdef', signed=False):08x}.lance"
        }
        assert lake.rows("SELECT id FROM {db}.f WHERE id = 7 AND s = 'abcdef'") == [(7,)]
        assert lake.rows("SELECT count(*) FROM {db}.f a JOIN {db}.f b ON a.id = b.id") == [(9,)]

    def test_what_paths_cannot_express_is_refused(self, events):
        for statement, reason in [
            ("CALL lake.system.evolve_partitioning(table => '{t}', partition_by => 'country')", ""),
            ("ALTER TABLE {db}.events RENAME COLUMN country TO land", "in the paths"),
            ("ALTER TABLE {db}.events SET TBLPROPERTIES ('layout' = 'flat')", "cannot be changed"),
        ]:
            text = statement.replace("{t}", f"{events.name}.events")
            with pytest.raises(Exception, match=reason or "cannot be changed"):
                events.sql(text)


@pytest.fixture
def tree(tmp_path):
    """The tree of the document, as plain Lance writes it."""
    root = tmp_path / "tree"
    leaves = [
        ("2025-12-10", "US"),
        ("2025-12-10", "CN"),
        ("2025-12-11", "US"),
        ("2025-12-11", "FR"),
    ]
    for number, (day, country) in enumerate(leaves):
        lance.write_dataset(
            pa.table({"id": [number], "v": [f"{number}"]}),
            f"{root}/event_date={day}/country={country}.lance",
        )
    return root


class TestTrees:
    def test_a_tree_is_read(self, spark, tree):
        frame = spark.read.format("phalanx").load(str(tree))
        assert dict(frame.dtypes) == {
            "id": "bigint",
            "v": "string",
            "event_date": "date",
            "country": "string",
        }
        rows = frame.where("event_date = '2025-12-11' AND country != 'FR'").collect()
        assert [tuple(row) for row in rows] == [(2, "2", dt.date(2025, 12, 11), "US")]

    def test_only_the_leaves_that_are_left_are_opened(self, spark, tree):
        """The others are not even datasets any more."""
        for country in ("CN", "US"):
            os.rename(
                tree / "event_date=2025-12-10" / f"country={country}.lance" / "data",
                tree / "event_date=2025-12-10" / f"country={country}.lance" / "gone",
            )
        frame = spark.read.format("phalanx").load(str(tree)).where("event_date > '2025-12-10'")
        assert sorted(row.id for row in frame.collect()) == [2, 3]

    def test_new_leaves_are_seen(self, spark, tree):
        load = spark.read.format("phalanx").load
        assert load(str(tree)).count() == 4
        lance.write_dataset(
            pa.table({"id": [9], "v": ["9"]}), f"{tree}/event_date=2025-12-12/country=US.lance"
        )
        assert load(str(tree)).count() == 5

    def test_types_can_be_declared(self, spark, tree):
        frame = (
            spark.read.format("phalanx")
            .option("schema", "id INT, event_date STRING, country STRING")
            .load(str(tree))
        )
        assert dict(frame.dtypes) == {"id": "int", "event_date": "string", "country": "string"}
        assert frame.where("event_date = '2025-12-10'").count() == 2

    def test_functions_can_be_declared(self, spark, tmp_path):
        for year in (2024, 2025):
            times = pa.array([dt.datetime(year, 12, 10, 11)], pa.timestamp("us", "UTC"))
            path = f"{tmp_path}/t/ts_year={year}/ts_month=12.lance"
            lance.write_dataset(pa.table({"ts": times}), path)
        frame = (
            spark.read.format("phalanx")
            .option("partition_by", "year(ts), month(ts)")
            .load(f"{tmp_path}/t")
        )
        assert frame.columns == ["ts"]
        assert frame.where("ts < TIMESTAMP '2025-01-01 00:00:00'").count() == 1

    def test_one_partition_can_be_appended_to(self, spark, tree):
        frame = spark.sql("SELECT 7L id, 'x' v, DATE '2025-12-12' event_date, 'US' country")
        frame.write.format("phalanx").mode("append").save(str(tree))
        assert lance.dataset(f"{tree}/event_date=2025-12-12/country=US.lance").count_rows() == 1
        assert spark.read.format("phalanx").load(str(tree)).count() == 5

    def test_several_partitions_cannot(self, spark, tree):
        frame = spark.sql(
            "SELECT id, 'x' v, DATE '2025-12-12' event_date, '' || id country FROM range(3)"
        )
        with pytest.raises(Exception, match="append to one partition at a time"):
            frame.write.format("phalanx").mode("append").save(str(tree))
        assert spark.read.format("phalanx").load(str(tree)).count() == 4

    def test_everything_can_be_overwritten(self, spark, tree):
        frame = spark.sql(
            "SELECT id, 'x' v, DATE '2025-12-12' event_date, '' || id country FROM range(3)"
        )
        frame.write.format("phalanx").mode("overwrite").save(str(tree))
        assert spark.read.format("phalanx").load(str(tree)).count() == 3

    def test_an_adopted_tree_takes_everything(self, spark, tree):
        hive.adopt(tree)
        frame = spark.sql(
            "SELECT id, 'x' v, DATE '2025-12-12' event_date, '' || id country FROM range(3)"
        )
        frame.write.format("phalanx").mode("append").save(str(tree))
        assert phalanx.open(tree).version == 2
        assert spark.read.format("phalanx").load(str(tree)).count() == 7
