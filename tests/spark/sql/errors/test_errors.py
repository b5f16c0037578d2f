"""Errors arrive as one Spark error with one sentence, and no Python traceback."""

import re
import shutil

import pytest
from pyspark.errors import AnalysisException, SparkRuntimeException

from phalanx import ConflictError, PhalanxError, errors
from phalanx.spark.dispatch import condition_of
from tests.spark.needs import needs


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
    lake.sql("CREATE TABLE {db}.t (v ARRAY<FLOAT>) TBLPROPERTIES ('vector.v.dimension' = '3')")
    with pytest.raises(SparkRuntimeException) as caught:
        lake.sql("INSERT INTO {db}.t SELECT array(1F) FROM range(3)")
    text = str(caught.value)
    assert text.startswith("column 'v' holds a value"), text
    assert len(text) < 300
    assert caught.value.getCondition() == "PHALANX_INVALID_INPUT"
    assert lake.rows("SELECT * FROM {db}.t") == []


@needs("sqlstate_of_tasks")
def test_what_a_task_refuses_has_a_state(lake):
    lake.sql("CREATE TABLE {db}.t (v ARRAY<FLOAT>) TBLPROPERTIES ('vector.v.dimension' = '3')")
    with pytest.raises(SparkRuntimeException) as caught:
        lake.sql("INSERT INTO {db}.t SELECT array(1F)")
    assert caught.value.getSqlState() == "22023"


@pytest.mark.parametrize(
    ("statement", "condition", "state"),
    [
        ("CREATE TABLE {db}._x (id INT)", "PHALANX_INVALID_INPUT", "22023"),
        ("SELECT * FROM {db}.t VERSION AS OF 99", "PHALANX_NOT_FOUND", "42P01"),
        ("CALL lake.system.none()", "PHALANX_INVALID_INPUT", "22023"),
        ("CALL lake.system.vacuum('none.t')", "PHALANX_NOT_FOUND", "42P01"),
        ("CREATE TABLE {db}.x (id INT) USING iceberg", "PHALANX_INVALID_INPUT", "22023"),
    ],
)
def test_conditions(shared_lake, statement, condition, state):
    shared_lake.sql("CREATE TABLE IF NOT EXISTS {db}.t AS SELECT 1 AS id")
    with pytest.raises(AnalysisException) as caught:
        shared_lake.sql(statement)
    assert (caught.value.getCondition(), caught.value.getSqlState()) == (condition, state)


def test_conditions_of_all_errors():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert len(kinds) > 7
    conditions = {kind: condition_of(kind("x"))[0] for kind in kinds if kind is not PhalanxError}
    assert len(set(conditions.values())) == len(conditions)
    assert condition_of(ConflictError("x")) == ("PHALANX_CONFLICT", "40001")
    assert condition_of(PhalanxError("x"))[0] == "PHALANX_ERROR"
    assert condition_of(KeyError("x")) == ("PHALANX_INTERNAL_ERROR", "XX000")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM {db}.t",
        "INSERT INTO {db}.t VALUES (1)",
        "UPDATE {db}.t SET id = 2 WHERE id = 1",
        "DELETE FROM {db}.t WHERE id = rand()",
        "CREATE TABLE {db}.new AS SELECT 1 AS id",
        pytest.param("CREATE VIEW {db}.new AS SELECT 1 AS id", marks=needs("views")),
        "ALTER TABLE {db}.t ADD COLUMN x INT",
        "CALL lake.system.check('x')",
        "SHOW TABLES IN {db}",
    ],
)
def test_objects_have_names(shared_lake, statement):
    shared_lake.sql("CREATE TABLE IF NOT EXISTS {db}.t AS SELECT 1 AS id")
    ((text,),) = shared_lake.rows(f"EXPLAIN EXTENDED {statement}")
    assert not re.findall(r"phalanx\.\w+@[0-9a-f]+", text)


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        ("CLUSTER BY (id)", "a table has no CLUSTER BY"),
        ("CLUSTERED BY (id) SORTED BY (id) INTO 4 BUCKETS", "a table has no SORTED BY"),
    ],
)
def test_clauses_by_their_own_names(shared_lake, clause, said):
    with pytest.raises(AnalysisException, match=said):
        shared_lake.sql(f"CREATE TABLE {{db}}.x (id INT) {clause}")
