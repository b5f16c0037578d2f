""".partitions, .snapshots (also called .history), .tags, .files and .specs."""

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import phalanx
from phalanx import InvalidInput
from tests.spark.door import call, catalog


@pytest.fixture(scope="module")
def filled(shared_lake):
    shared_lake.sql(
        "CREATE TABLE {db}.t PARTITIONED BY (country, bucket(2, id)) AS "
        "SELECT id, IF(id % 2 = 0, 'DE', NULL) AS country FROM range(10)"
    )
    shared_lake.sql("INSERT INTO {db}.t VALUES (11, 'FR')")
    return shared_lake


def test_partitions(filled):
    found = filled.sql("SELECT * FROM {db}.t.partitions").toPandas()
    assert found["rows"].sum() == 11
    assert len(found) == filled.open("t").partitions().num_rows


def test_snapshots(filled):
    rows = filled.rows("SELECT version, operation FROM {db}.t.snapshots")
    assert rows == [(1, "create"), (2, "append")]


def test_history_is_another_name(filled):
    rows = filled.rows("SELECT * FROM {db}.t.history")
    assert rows == filled.rows("SELECT * FROM {db}.t.snapshots")


def test_tags(lake):
    lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
    assert lake.rows("SELECT * FROM {db}.t.tags") == []
    lake.open("t").tag("b").tag("a", 1)
    assert lake.rows("SELECT * FROM {db}.t.tags") == [("a", 1), ("b", 1)]


def test_files(filled):
    ((files, positive),) = filled.rows("SELECT count(*), count_if(rows > 0) FROM {db}.t.files")
    assert files == positive == filled.open("t").files().num_rows


def test_specs(filled):
    rows = filled.rows("SELECT position, field_id, transform, is_current FROM {db}.t.specs")
    assert rows == [(0, "country", "country", True), (1, "id_bucket", "bucket(2, id)", True)]


@pytest.mark.parametrize("table", ["partitions", "snapshots", "files", "specs"])
def test_count_filter_and_projection(filled, table):
    ((count,),) = filled.rows(f"SELECT count(*) FROM {{db}}.t.{table}")
    frame = filled.spark.table(f"{filled['t']}.{table}")
    assert len(frame.collect()) == count > 0
    counted = frame.selectExpr(*[f"count_if(`{name}` IS NULL)" for name in frame.columns])
    rows = frame.collect()
    nulls = tuple(sum(row[at] is None for row in rows) for at in range(len(frame.columns)))
    assert tuple(counted.collect()[0]) == nulls
    first = frame.columns[0]
    assert frame.where(f"`{first}` IS NOT NULL").count() == count - nulls[0]


def test_they_cannot_be_written_to(filled):
    with pytest.raises(AnalysisException):
        filled.sql("INSERT INTO {db}.t.specs SELECT * FROM {db}.t.specs")
    with pytest.raises(AnalysisException):
        filled.sql("DELETE FROM {db}.t.snapshots WHERE version = 1")


def test_joined_with_the_table(filled):
    query = "SELECT count(*) FROM {db}.t t JOIN {db}.t.snapshots s ON s.version = 2"
    assert filled.rows(query) == [(11,)]


def test_another_name(filled):
    with pytest.raises(AnalysisException, match="NOT_FOUND"):
        filled.sql("SELECT * FROM {db}.t.leaves")


def test_a_namespace_with_such_a_name(lake):
    lake.sql("CREATE NAMESPACE {db}.a")
    lake.sql("CREATE TABLE {db}.a.files AS SELECT 1 AS id")
    assert lake.rows("SELECT * FROM {db}.a.files") == [(1,)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {db}.t.{about}",
        "DELETE FROM {db}.t.{about} WHERE spec = 1",
        "TRUNCATE TABLE {db}.t.{about}",
        "UPDATE {db}.t.{about} SET rows = 1",
        "MERGE INTO {db}.t.{about} USING (SELECT 1 AS x) s ON 1 = 1 WHEN MATCHED THEN DELETE",
        "INSERT INTO {db}.t.{about} SELECT * FROM {db}.t.{about}",
        "INSERT OVERWRITE {db}.t.{about} SELECT * FROM {db}.t.{about}",
        "ALTER TABLE {db}.t.{about} ADD COLUMN x INT",
        "ALTER TABLE {db}.t.{about} DROP PARTITION (part = 0)",
        "DROP TABLE {db}.t.{about}",
    ],
)
@pytest.mark.parametrize("about", ["partitions", "files"])
def test_they_cannot_be_changed(filled, statement, about):
    """A change of one must never reach the table that it is about."""
    with pytest.raises(AnalysisException):
        filled.sql(statement.replace("{about}", about))
    assert filled.open("t").version == 2
    assert filled.open("t").count() == 11


@pytest.mark.parametrize("op", ["can_delete", "delete"])
def test_they_cannot_be_changed_without_spark(tmp_path, op):
    phalanx.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
    described = call("load_table", catalog=catalog(), ident=[str(tmp_path / "t")])
    handle = {**described["handle"], "about": "files"}
    more = {"conf": {}} if op == "delete" else {}
    with pytest.raises(InvalidInput, match="cannot be changed"):
        call(op, table=handle, filters=[], **more)
