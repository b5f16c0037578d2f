"""Tables whose spec and schema have evolved, in Spark."""

import datetime as dt

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from tests.spark.needs import needs

SCHEMA = "id INT, country STRING, score FLOAT, day DATE, place STRUCT<city: STRING, zip: INT>"


@pytest.fixture(scope="module")
def evolved(shared_lake):
    return evolve(shared_lake)


def evolve(lake):
    """Leaves of four shapes under two specs."""
    lake.sql(f"CREATE TABLE {{db}}.t ({SCHEMA}) USING phalanx PARTITIONED BY (country)")
    lake.sql(
        "INSERT INTO {db}.t VALUES (1, 'US', 0.5, DATE'2025-01-01', named_struct('city', 'A', "
        "'zip', 1)), (2, 'DE', 1.5, DATE'2025-01-02', NULL), (3, NULL, NULL, NULL, NULL)"
    )
    table = lake.open("t")
    table.rename_column("country", "land").change_type("id", pa.int64())
    table.change_type("score", pa.float64()).change_type("day", pa.timestamp("us"))
    table.append([{"id": 2**40, "land": "US", "score": 0.1}])
    table.add_column("n", pa.int32(), default=7, after="id")
    table.evolve_partitioning(["bucket(4, id)", "land"])
    table.append([{"id": 5, "land": "FR", "n": None}, {"id": 6, "land": "US"}])
    table.add_column("place.floor", pa.int32()).drop_column("place.zip")
    table.drop_column("score").add_column("score", pa.string())
    return lake


def test_rows(evolved):
    noon = dt.datetime(2025, 1, 1)
    assert evolved.rows("SELECT id, n, land, day, place, score FROM {db}.t") == sorted(
        [
            (1, 7, "US", noon, ("A", None), None),
            (2, 7, "DE", dt.datetime(2025, 1, 2), None, None),
            (3, 7, None, None, None, None),
            (2**40, 7, "US", None, None, None),
            (5, None, "FR", None, None, None),
            (6, 7, "US", None, None, None),
        ],
        key=repr,
    )


FILTERS = [
    ("land = 'US'", [1, 6, 2**40]),
    ("id = 2", [2]),
    ("id > 3000000000", [2**40]),
    ("n = 7 AND land IS NOT NULL", [1, 2, 6, 2**40]),
    ("n IS NULL", [5]),
    ("place.city = 'A'", [1]),
    ("place.floor IS NULL AND id < 3", [1, 2]),
    ("score IS NULL AND day > TIMESTAMP_NTZ'2025-01-01 12:00:00'", [2]),
    ("upper(land) = 'DE'", [2]),
]


def test_filters(evolved):
    for where, ids in FILTERS:
        found = evolved.rows(f"SELECT id FROM {{db}}.t WHERE {where}")
        assert sorted(id for (id,) in found) == ids, where


def test_aggregates(evolved):
    assert evolved.rows("SELECT count(*), count(n), max(n), min(id), max(day) FROM {db}.t") == [
        (6, 5, 7, 1, dt.datetime(2025, 1, 2))
    ]
    assert evolved.rows("SELECT land, count(*) FROM {db}.t GROUP BY land") == sorted(
        [("US", 3), ("DE", 1), ("FR", 1), (None, 1)], key=repr
    )


@needs("partial_insert")
def test_changes(lake):
    evolve(lake)
    lake.sql("DELETE FROM {db}.t WHERE id % 2 = 1 AND n = 7")
    lake.sql("UPDATE {db}.t SET n = id + 1, land = 'XX' WHERE land = 'DE'")
    lake.sql("INSERT INTO {db}.t (id, land, score) VALUES (9, 'US', 'new')")
    lake.sql(
        "MERGE INTO {db}.t USING (SELECT 6L AS id UNION SELECT 7L) s ON {db}.t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET score = 'merged' WHEN NOT MATCHED THEN INSERT (id) "
        "VALUES (s.id)"
    )
    assert lake.rows("SELECT id, n, land, score FROM {db}.t") == sorted(
        [
            (2, 3, "XX", None),
            (2**40, 7, "US", None),
            (5, None, "FR", None),
            (6, 7, "US", "merged"),
            (7, 7, None, None),
            (9, 7, "US", "new"),
        ],
        key=repr,
    )
    assert lake.open("t").check().ok


def test_time_travel(evolved):
    assert evolved.rows("SELECT * FROM {db}.t VERSION AS OF 2 WHERE country = 'US'") == [
        (1, "US", 0.5, dt.date(2025, 1, 1), ("A", 1))
    ]


@needs("column_ids")
def test_a_frame_does_not_read_another_column_that_took_a_name(lake):
    """Spark compares the ids of columns with those that a frame was made for."""
    lake.sql("CREATE TABLE {db}.i AS SELECT 1 AS id, 'old' AS s")
    frame = lake.spark.table(lake["i"])
    lake.sql("ALTER TABLE {db}.i ADD COLUMN more INT")
    assert frame.where("id = 1").collect() == [(1, "old")]
    lake.sql("ALTER TABLE {db}.i DROP COLUMN s")
    lake.sql("ALTER TABLE {db}.i ADD COLUMN s STRING")
    with pytest.raises(AnalysisException, match="INCOMPATIBLE_TABLE_CHANGE_AFTER_ANALYSIS"):
        frame.collect()
    assert lake.spark.table(lake["i"]).collect() == [(1, None, None)]


@needs("create_table_like")
def test_ids_stay_with_their_table(lake):
    """Neither a copy of a table nor its description shows them."""
    lake.sql("CREATE TABLE {db}.i AS SELECT 1 AS id, named_struct('a', 1) AS x")
    lake.sql("CREATE TABLE {db}.j AS SELECT x, id FROM {db}.i")
    lake.sql("CREATE TABLE {db}.k LIKE {db}.i")
    assert "FIELD_ID" not in lake.rows("SHOW CREATE TABLE {db}.j")[0][0]
    for name in ("j", "k"):
        assert b"__FIELD_ID" not in lake.open(name).schema.serialize().to_pybytes()
    lake.sql("INSERT INTO {db}.k SELECT id, x FROM {db}.j")
    assert lake.rows("SELECT * FROM {db}.k") == [(1, (1,))]


def test_partitions_that_differ_in_what_is_nullable(lake):
    """Their rows are read together."""
    lake.sql("CREATE TABLE {db}.n (id BIGINT NOT NULL, p INT, v INT NOT NULL) PARTITIONED BY (p)")
    lake.sql("INSERT INTO {db}.n SELECT id, 1, CAST(id AS INT) FROM range(3)")
    lake.sql("ALTER TABLE {db}.n ALTER COLUMN v DROP NOT NULL")
    lake.sql("INSERT INTO {db}.n SELECT id, 2, NULL FROM range(3)")
    assert lake.rows("SELECT p, v FROM {db}.n") == [(1, 0), (1, 1), (1, 2), *[(2, None)] * 3]
