"""CHECK constraints: rows that break one are refused, wherever they come from."""

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

from phalanx import InvalidInput
from phalanx.spark import features
from tests.model.test_portable import ARROW, CASES, broken
from tests.spark.needs import needs

#: What Spark itself says of rows that break a constraint, or Phalanx where it must check them.
BROKEN = (
    "CHECK_CONSTRAINT_VIOLATION"
    if features.has("constraints")
    else "1 row breaks the constraint 'positive'"
)


@pytest.fixture
def table(lake):
    lake.sql("CREATE TABLE {db}.t (id INT, x INT)")
    with lake.open("t").transaction() as tx:
        tx.add_constraint("positive", "x > 0", validated=1)
    lake.sql("INSERT INTO {db}.t VALUES (1, 1), (2, NULL)")
    return lake


def rows(lake):
    return lake.rows("SELECT id, x FROM {db}.t")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {db}.t VALUES (3, 5), (4, -1)",
        "INSERT OVERWRITE {db}.t VALUES (4, 0)",
        "UPDATE {db}.t SET x = -1 WHERE id = 1",
        "MERGE INTO {db}.t t USING (SELECT 9 AS id) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, x) VALUES (9, -9)",
    ],
)
def test_in_spark(table, statement):
    with pytest.raises(PySparkException, match=BROKEN):
        table.sql(statement)
    assert rows(table) == [(1, 1), (2, None)]


def test_rows_that_go_are_not_checked(lake):
    """Half of an update is a delete, whose row has NULL in all columns."""
    lake.sql("CREATE TABLE {db}.t (id INT, x INT)")
    with lake.open("t").transaction() as tx:
        tx.add_constraint("there", "x IS NOT NULL AND id IS NOT NULL", validated=1)
    lake.sql("INSERT INTO {db}.t VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
    lake.sql("UPDATE {db}.t SET x = x + 10 WHERE id = 1")
    merge = "MERGE INTO {db}.t t USING (SELECT explode(array(2, 3, 9)) AS id) s ON t.id = s.id "
    lake.sql(
        merge + "WHEN MATCHED AND t.id = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET x = 30 "
        "WHEN NOT MATCHED THEN INSERT (id, x) VALUES (s.id, 90)"
    )
    lake.sql("DELETE FROM {db}.t WHERE id = 4 AND hash(x) <> 0")
    expected = [(1, 11), (3, 30), (9, 90)]
    assert rows(lake) == expected
    for statement in (
        "UPDATE {db}.t SET x = NULL WHERE id = 1",
        merge + "WHEN MATCHED THEN UPDATE SET x = NULL",
        merge + "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
        merge + "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET x = NULL",
    ):
        with pytest.raises(
            PySparkException, match=r"CHECK_CONSTRAINT_VIOLATION|constraint 'there'"
        ):
            lake.sql(statement)
    assert rows(lake) == expected


def test_in_python(table):
    t = table.open("t")
    for change in (
        lambda: t.append([{"id": 3, "x": 5}, {"id": 4, "x": -1}]),
        lambda: t.overwrite([{"id": 4, "x": 0}]),
        lambda: t.update({"x": "x - 1"}, "id = 1"),
        lambda: t.merge([{"id": 1, "x": -1}], on="id"),
        lambda: t.set_properties({"constraint.positive": None}),
        lambda: t.drop_column("x"),
        lambda: t.rename_column("x", "y"),
    ):
        with pytest.raises(InvalidInput, match="constraint"):
            change()
    assert "constraint.positive" not in dict(table.rows("SHOW TBLPROPERTIES {db}.t"))
    t.append([{"id": 3, "x": None}, {"id": 4, "x": 4}])
    assert rows(table) == [(1, 1), (2, None), (3, None), (4, 4)]


def test_spark_decides_as_python_does(lake):
    """The rows that break what Python checks are the same to Spark."""
    rows = [row for _, satisfying, breaking in CASES for row in satisfying + breaking]
    frame = lake.spark.createDataFrame(pa.Table.from_pylist(rows, schema=ARROW))
    answers = frame.selectExpr(*(sql for sql, _, _ in CASES)).collect()
    for at, (sql, _, _) in enumerate(CASES):
        assert [row[at] is False for row in answers] == [broken(sql, row) for row in rows], sql


@needs("constraints")
def test_create(lake):
    lake.sql("CREATE TABLE {db}.t (id INT, x INT, CONSTRAINT positive CHECK (x > 0))")
    with pytest.raises(PySparkException, match=BROKEN):
        lake.sql("INSERT INTO {db}.t VALUES (3, 5), (4, -1)")
    with pytest.raises(InvalidInput, match="breaks the constraint 'positive'"):
        lake.open("t").append([{"id": 4, "x": -1}])
    lake.sql("CREATE OR REPLACE TABLE {db}.t (id INT, y INT, CONSTRAINT small CHECK (y < 9))")
    with pytest.raises(InvalidInput, match="breaks the constraint 'small'"):
        lake.open("t").append([{"id": 4, "y": 9}])
    lake.sql("CREATE OR REPLACE TABLE {db}.t (id INT, y INT)")
    lake.open("t").append([{"id": 4, "y": 9}])
    assert "constraints" not in lake.open("t")._snapshot.head.writer_features


@needs("constraints")
def test_add_and_drop(table):
    with pytest.raises(PySparkException, match="violat"):
        table.sql("ALTER TABLE {db}.t ADD CONSTRAINT many CHECK (id > 1)")
    table.sql("ALTER TABLE {db}.t ADD CONSTRAINT few CHECK (hash(id) <> 5 AND id < 10)")
    with pytest.raises(InvalidInput, match="can only be checked by Spark"):
        table.open("t").append([{"id": 3, "x": 5}])
    assert "CONSTRAINT positive CHECK (x > 0)" in table.rows("SHOW CREATE TABLE {db}.t")[0][0]
    with pytest.raises(AnalysisException, match="already"):
        table.sql("ALTER TABLE {db}.t ADD CONSTRAINT few CHECK (id < 100)")
    table.sql("ALTER TABLE {db}.t DROP CONSTRAINT few")
    table.sql("ALTER TABLE {db}.t DROP CONSTRAINT IF EXISTS few")
    table.sql("ALTER TABLE {db}.t DROP CONSTRAINT positive")
    table.sql("INSERT INTO {db}.t VALUES (3, -3)")
    with pytest.raises(AnalysisException, match="only CHECK"):
        table.sql("ALTER TABLE {db}.t ADD CONSTRAINT key PRIMARY KEY (id)")


def test_a_stream(table, tmp_path):
    """Spark does not check what a stream writes, so the tasks do."""
    table.spark.sql("SELECT 5 AS id, -5 AS x").write.parquet(f"{tmp_path}/in")
    source = table.spark.readStream.schema("id INT, x INT").parquet(f"{tmp_path}/in")
    query = (
        source.writeStream.option("checkpointLocation", f"{tmp_path}/at")
        .trigger(availableNow=True)
        .toTable(table["t"])
    )
    with pytest.raises(PySparkException, match="breaks the constraint 'positive'"):
        query.awaitTermination()
    assert rows(table) == [(1, 1), (2, None)]
