"""Errors arrive as one Spark error with one sentence, and no Python traceback."""

import re
import shutil

import pytest
from pyspark.errors import AnalysisException, SparkRuntimeException
from pyspark.sql.functions import expr


def sentence(caught):
    text = str(caught.value)
    assert "Traceback" not in text
    assert "[[phalanx" not in text
    assert "Phalanx failed" not in text
    return text


def test_a_leaf_that_is_gone(lake):
    lake.sql("CREATE TABLE {db}.t PARTITIONED BY (id) AS SELECT id FROM range(2)")
    for folder in (lake.path / "t").iterdir():
        if folder.name != "__manifest":
            shutil.rmtree(folder, ignore_errors=True)
    with pytest.raises(Exception, match=r"the leaf .* has no version") as caught:
        lake.sql("SELECT * FROM {db}.t").collect()
    assert "run check()" in sentence(caught)


def test_a_task_that_cannot_write(lake):
    lake.sql("CREATE TABLE {db}.t (v ARRAY<FLOAT>) TBLPROPERTIES ('vector.v.dimension' = '3')")
    with pytest.raises(Exception, match="column 'v' holds a value") as caught:
        lake.sql("INSERT INTO {db}.t SELECT array(1F) FROM range(10)")
    sentence(caught)


def test_a_table_that_is_dropped_during_a_query(lake):
    lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
    frame = lake.spark.table(lake["t"])
    lake.sql("DROP TABLE {db}.t")
    lake.sql("CREATE TABLE {db}.t AS SELECT 2 AS id")
    try:
        assert [row.id for row in frame.collect()] in ([1], [2])
    except Exception as error:
        text = str(error)
        assert "dropped and made again" in text or "TABLE" in text
        assert "Traceback" not in text


def test_unknown_columns(lake):
    lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        lake.sql("SELECT nope FROM {db}.t")


def test_a_change_that_makes_no_sense(lake):
    lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
    with pytest.raises(AnalysisException) as caught:
        lake.sql("ALTER TABLE {db}.t ADD PARTITION (id = 1)")
    sentence(caught)


def test_a_folder_without_a_manifest(lake):
    lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
    (lake.path / "t" / "__manifest").rename(lake.path / "t" / "gone")
    with pytest.raises(AnalysisException, match="NOT_FOUND"):
        lake.sql("SELECT * FROM {db}.t")


def test_a_catalog_without_a_warehouse(spark):
    with pytest.raises(AnalysisException, match="has no warehouse") as caught:
        spark.sql("SELECT * FROM phalanx.db.t")
    sentence(caught)


def test_what_a_task_refuses_is_one_sentence(lake):
    lake.sql("CREATE TABLE {db}.t (id BIGINT, g INT) PARTITIONED BY (g)")
    frame = lake.spark.range(3).selectExpr("id", "CAST(id AS INT) AS g")
    with pytest.raises(SparkRuntimeException) as caught:
        frame.writeTo(lake["t"]).overwrite(expr("g = 1"))
    text = str(caught.value)
    assert re.match(r"\d rows? do(es)? not match g = 1: only rows that match", text), text
    assert len(text) < 300
    assert lake.rows("SELECT id FROM {db}.t") == []
