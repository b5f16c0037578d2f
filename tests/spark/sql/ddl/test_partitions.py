"""SHOW PARTITIONS, and statements that drop or empty partitions."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.functions.partitioning import years


def shown(lake, spec=""):
    return [row[0] for row in lake.sql(f"SHOW PARTITIONS {{db}}.t {spec}").collect()]


def test_values(lake):
    lake.sql("CREATE TABLE {db}.t (id INT, p STRING, q DATE) PARTITIONED BY (p, q)")
    lake.sql("""
        INSERT INTO {db}.t VALUES (1, 'a/b', DATE '2026-01-01'), (2, 'a/b', DATE '2026-01-02'),
        (3, '', DATE '2026-01-01'), (4, NULL, NULL)
    """)
    assert shown(lake) == [
        "p=/q=2026-01-01",
        "p=a%2Fb/q=2026-01-01",
        "p=a%2Fb/q=2026-01-02",
        "p=null/q=null",
    ]
    assert shown(lake, "PARTITION (q = DATE '2026-01-01')") == shown(lake)[:2]
    lake.sql("ALTER TABLE {db}.t DROP PARTITION (p = 'a/b', q = DATE '2026-01-01')")
    assert lake.rows("SELECT id FROM {db}.t") == [(2,), (3,), (4,)]
    with pytest.raises(AnalysisException, match="PARTITIONS_NOT_FOUND"):
        lake.sql("ALTER TABLE {db}.t DROP PARTITION (p = 'a/b', q = DATE '2026-01-01')")
    lake.sql("ALTER TABLE {db}.t DROP IF EXISTS PARTITION (p = 'x', q = DATE '2026-01-01')")
    version = lake.open("t").version
    lake.sql("""
        ALTER TABLE {db}.t DROP PARTITION (p = NULL, q = NULL),
        PARTITION (p = '', q = DATE '2026-01-01')
    """)
    assert lake.rows("SELECT id FROM {db}.t") == [(2,)]
    assert lake.open("t").version == version + 1


def test_transforms(lake):
    lake.sql(
        "CREATE TABLE {db}.t (id INT, ts TIMESTAMP) PARTITIONED BY (months(ts), bucket(2, id))"
    )
    lake.sql("""
        INSERT INTO {db}.t VALUES (1, TIMESTAMP '2026-01-05'), (1, TIMESTAMP '2026-01-06'),
        (1, TIMESTAMP '2026-02-01'), (2, TIMESTAMP '2026-02-01')
    """)
    first = shown(lake)[0]
    assert first.startswith("ts_year=2026/ts_month=1/id_bucket=")
    bucket = first.split("=")[-1]
    lake.sql(f"TRUNCATE TABLE {{db}}.t PARTITION (ts_year=2026, ts_month=1, id_bucket={bucket})")
    assert lake.rows("SELECT id, month(ts) FROM {db}.t") == [(1, 2), (2, 2)]
    lake.sql("TRUNCATE TABLE {db}.t PARTITION (ts_month = 2)")
    assert lake.rows("SELECT * FROM {db}.t") == []
    assert lake.rows("SELECT count(*) FROM {db}.t VERSION AS OF 2") == [(4,)]


def test_rows_of_an_earlier_partitioning(lake):
    """They have no such names, and may belong to the partition that goes."""
    lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id, 'a' AS p")
    lake.sql("ALTER TABLE {db}.t ADD PARTITION FIELD p")
    lake.sql("INSERT INTO {db}.t VALUES (2, 'a')")
    assert shown(lake) == ["p=a"]
    with pytest.raises(AnalysisException, match="rows of an earlier partitioning"):
        lake.sql("ALTER TABLE {db}.t DROP PARTITION (p = 'a')")
    lake.sql("CALL lake.system.rewrite('{db}.t')".replace("{db}", lake.name))
    lake.sql("ALTER TABLE {db}.t DROP PARTITION (p = 'a')")
    assert lake.rows("SELECT * FROM {db}.t") == []


def test_what_is_refused(lake):
    lake.sql("CREATE TABLE {db}.t PARTITIONED BY (p) AS SELECT 1 AS id, 'a' AS p")
    for statement, said in (
        ("ALTER TABLE {db}.t ADD PARTITION (p = 'z')", "insert rows instead"),
        ("ALTER TABLE {db}.t PARTITION (p = 'a') RENAME TO PARTITION (p = 'b')", "UPDATE those"),
        ("ALTER TABLE {db}.t DROP PARTITION (id = 1)", "PARTITION"),
    ):
        with pytest.raises(AnalysisException, match=said):
            lake.sql(statement)
    lake.sql("CREATE TABLE {db}.plain (id INT)")
    with pytest.raises(AnalysisException, match="not partitioned"):
        lake.sql("SHOW PARTITIONS {db}.plain")


class TestNames:
    """Partitions are named as DESCRIBE names their fields, whatever the ids of fields are."""

    def test_of_a_table_that_was_replaced(self, lake):
        frame = lake.sql("SELECT id, id % 2 AS p, TIMESTAMP '2026-01-05' AS ts FROM range(4)")
        for _ in range(3):
            frame.writeTo(lake["t"]).partitionedBy("p", years("ts")).createOrReplace()
        assert [f.field_id for f in lake.open("t").spec.fields] == ["p_3", "ts_year_3"]
        assert shown(lake) == ["p=0/ts_year=2026", "p=1/ts_year=2026"]
        columns = lake.spark.table(lake["t.partitions"]).columns
        assert columns[:4] == ["spec", "p", "ts_year", "rows"]
        assert lake.rows("SELECT p, rows FROM {db}.t.partitions") == [(0, 2), (1, 2)]
        lake.sql("ALTER TABLE {db}.t DROP PARTITION (p = 0, ts_year = 2026)")
        assert lake.rows("SELECT id FROM {db}.t") == [(1,), (3,)]

    def test_of_a_column_that_was_renamed(self, lake):
        lake.sql("CREATE TABLE {db}.t PARTITIONED BY (p) AS SELECT id, id % 3 AS p FROM range(6)")
        lake.sql("ALTER TABLE {db}.t RENAME COLUMN p TO q")
        assert shown(lake) == ["q=0", "q=1", "q=2"]
        lake.sql("ALTER TABLE {db}.t DROP PARTITION (q = 0)")
        lake.sql("TRUNCATE TABLE {db}.t PARTITION (q = 1)")
        assert lake.rows("SELECT id, q FROM {db}.t") == [(2, 2), (5, 2)]
        assert lake.rows("SELECT q FROM {db}.t.partitions") == [(2,)]

    def test_of_an_earlier_version(self, lake):
        lake.sql("CREATE TABLE {db}.t PARTITIONED BY (p) AS SELECT 1 AS id, 'a' AS p")
        lake.sql("CREATE OR REPLACE TABLE {db}.t PARTITIONED BY (k) AS SELECT 1 AS k")
        assert lake.rows("SELECT k FROM {db}.t.partitions") == [(1,)]
        assert lake.rows("SELECT p FROM {db}.t.partitions VERSION AS OF 1") == [("a",)]
