"""The short part for every minor version of Spark: each kind of work once, with its rows."""

import pytest
from pyspark.errors import PySparkException

EVENTS = """
SELECT id, CASE WHEN id % 3 = 0 THEN 'DE' WHEN id % 3 = 1 THEN 'US' END country,
       timestamp'2026-01-15 12:00:00' + make_interval(0, CAST(id % 5 AS INT)) ts
FROM range(30)
"""


@pytest.fixture(scope="module")
def events(shared_lake):
    """A table that was created and filled by one statement, with a NULL among its partitions."""
    shared_lake.sql(
        f"CREATE TABLE {{db}}.events PARTITIONED BY (country, bucket(4, id)) AS {EVENTS}"
    )
    return shared_lake


def test_create(events):
    table = events.open("events")
    assert table.version == 1
    assert [field.field_id for field in table.spec.fields] == ["country", "id_bucket"]
    assert table.schema.names == ["id", "country", "ts"]


def test_write(lake):
    lake.sql("CREATE TABLE {db}.t (id BIGINT, k STRING) PARTITIONED BY (k)")
    lake.sql("INSERT INTO {db}.t VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    lake.spark.createDataFrame([(4, "a")], "id BIGINT, k STRING").writeTo(lake["t"]).append()
    lake.sql("SET spark.sql.sources.partitionOverwriteMode=dynamic")
    lake.sql("INSERT OVERWRITE {db}.t VALUES (5, 'b')")
    lake.sql("RESET spark.sql.sources.partitionOverwriteMode")
    assert lake.rows("SELECT * FROM {db}.t") == [(1, "a"), (3, None), (4, "a"), (5, "b")]
    assert lake.rows("SELECT * FROM {db}.t VERSION AS OF 2") == [(1, "a"), (2, "b"), (3, None)]


def test_prune(events):
    query = "SELECT id FROM {db}.events WHERE country = 'US' AND id > 20"
    assert events.rows(query) == [(22,), (25,), (28,)]
    plan = events.plan(query)
    assert "partitions 3/10" in plan
    assert events.rows("SELECT count(*) FROM {db}.events WHERE country IS NULL") == [(10,)]


def test_join(events):
    events.sql(f"CREATE TABLE {{db}}.others PARTITIONED BY (bucket(8, id)) AS {EVENTS}")
    joined = "FROM {db}.events a JOIN {db}.others b ON a.id = b.id"
    query = f"SELECT /*+ MERGE(b) */ a.id, b.country {joined}"
    plan = events.plan(query)
    assert "SortMergeJoin" in plan
    assert "Exchange" not in plan
    rows = events.rows(query)
    assert len(rows) == 30
    assert rows.count((2, None)) == 1


def test_merge(lake):
    lake.sql(f"CREATE TABLE {{db}}.t PARTITIONED BY (country) AS {EVENTS}")
    lake.sql("""
        MERGE INTO {db}.t t USING (SELECT id + 28 id, 'FR' country FROM range(4)) s ON t.id = s.id
        WHEN MATCHED AND t.id = 28 THEN DELETE
        WHEN MATCHED THEN UPDATE SET country = s.country
        WHEN NOT MATCHED THEN INSERT (id, country) VALUES (s.id, s.country)""")
    assert lake.rows("SELECT id, country FROM {db}.t WHERE id >= 27") == [
        (27, "DE"),
        (29, "FR"),
        (30, "FR"),
        (31, "FR"),
    ]
    lake.sql("UPDATE {db}.t SET country = 'IT' WHERE id = 0")
    lake.sql("DELETE FROM {db}.t WHERE id BETWEEN 1 AND 26")
    lake.sql("DELETE FROM {db}.t WHERE country = 'DE'")
    assert lake.rows("SELECT id, country FROM {db}.t") == [
        (0, "IT"),
        (29, "FR"),
        (30, "FR"),
        (31, "FR"),
    ]


def test_constraint(lake):
    """Rows that break one are refused, whether Spark checks them or Phalanx does."""
    lake.sql("CREATE TABLE {db}.t (id BIGINT, k STRING) PARTITIONED BY (k)")
    with lake.open("t").transaction() as tx:
        tx.add_constraint("positive", "id > 0", validated=1)
    lake.sql("INSERT INTO {db}.t VALUES (1, 'a'), (NULL, 'b')")
    for statement in (
        "INSERT INTO {db}.t VALUES (2, 'a'), (-1, 'b')",
        "UPDATE {db}.t SET id = -1 WHERE id = 1",
    ):
        with pytest.raises(PySparkException, match="positive"):
            lake.sql(statement)
    assert lake.rows("SELECT * FROM {db}.t") == [(1, "a"), (None, "b")]


def test_stream(lake, tmp_path):
    lake.sql(f"CREATE TABLE {{db}}.a PARTITIONED BY (country) AS {EVENTS}")
    lake.sql("CREATE TABLE {db}.b (id BIGINT, country STRING) PARTITIONED BY (bucket(2, id))")

    def run():
        rows = lake.spark.readStream.table(lake["a"]).select("id", "country")
        query = rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).toTable(lake["b"]).awaitTermination()

    run()
    lake.sql("INSERT INTO {db}.a VALUES (100, 'FR', NULL)")
    run()
    assert lake.rows("SELECT count(*), count(country), max(id) FROM {db}.b") == [(31, 21, 100)]


def test_procedure(lake):
    lake.sql("CREATE TABLE {db}.t (id BIGINT, k STRING) PARTITIONED BY (k)")
    for number in range(3):
        lake.sql(f"INSERT INTO {{db}}.t VALUES ({number}, 'a')")
    lake.sql(f"CALL lake.system.optimize(table => '{lake.name}.t')")
    assert lake.rows("SELECT * FROM {db}.t") == [(0, "a"), (1, "a"), (2, "a")]
    assert len(lake.rows("SELECT * FROM {db}.t.files")) == 1
