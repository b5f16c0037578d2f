"""Queries that are run again: Python is asked for the version only, and every change is seen."""

import pytest

QUERY = "SELECT country, sum(id), count(*) FROM {db}.t WHERE id > 2 GROUP BY country"


@pytest.fixture
def calls(lake, spark):
    """Counts the calls to Python that a query takes."""
    bridge = spark._jvm.org.apache.spark.sql.phalanx.Bridge

    def counted(query):
        before = bridge.calls()
        lake.sql(query).collect()
        return bridge.calls() - before

    return counted


def create(lake, properties=""):
    lake.sql(
        f"CREATE TABLE {{db}}.t PARTITIONED BY (country) {properties} "
        "AS SELECT id, if(id % 2 = 0, 'US', 'DE') AS country FROM range(10)"
    )


@pytest.mark.parametrize("query", [QUERY, "SELECT id + 1 FROM {db}.t WHERE id % 3 = 1 AND id < 9"])
def test_only_the_version_is_asked_for_again(lake, calls, query):
    create(lake)
    first, second = calls(query), calls(query)
    assert first > second
    assert second == calls("SELECT * FROM {db}.t LIMIT 0")


@pytest.mark.parametrize("properties", ["", "TBLPROPERTIES ('transactions' = 'weak')"])
def test_rows_that_another_process_changes(lake, properties):
    create(lake, properties)
    query = "SELECT id FROM {db}.t WHERE id >= 8"
    assert lake.rows(query) == [(8,), (9,)]
    lake.open("t").append([{"id": 11, "country": "DE"}])
    assert lake.rows(query) == [(11,), (8,), (9,)]
    lake.open("t").delete("id = 9")
    assert lake.rows(query) == [(11,), (8,)]
    assert lake.rows("SELECT sum(id) FROM {db}.t WHERE id >= 8") == [(19,)]


def test_another_table_of_the_same_name_at_the_same_version(lake):
    for number in range(3):
        lake.sql(f"CREATE TABLE {{db}}.t PARTITIONED BY (k) AS SELECT {number} AS id, 1 AS k")
        assert lake.rows("SELECT id, k FROM {db}.t WHERE k = 1") == [(number, 1)]
        lake.sql("DROP TABLE {db}.t")


def test_a_replaced_and_a_rolled_back_table(lake):
    create(lake)
    query = "SELECT count(id) FROM {db}.t WHERE id < 5"
    assert lake.rows(query) == [(5,)]
    lake.sql(
        "CREATE OR REPLACE TABLE {db}.t PARTITIONED BY (country) AS SELECT 1L AS id, 'X' AS country"
    )
    assert lake.rows(query) == [(1,)]
    lake.sql("CALL lake.system.rollback(table => '{db}.t', version => 1)")
    assert lake.rows(query) == [(5,)]


def test_the_confs_of_a_session_count(lake, spark):
    create(lake)
    query = "SELECT a.id FROM {db}.t a JOIN {db}.t b ON a.country = b.country"
    wanted = {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.phalanx.keyedLeaves": None,
    }
    before = {name: spark.conf.get(name) for name in wanted}
    shuffles = []
    try:
        for leaves in ("64", "1", "64"):
            for name, value in wanted.items():
                spark.conf.set(name, value or leaves)
            shuffles.append(lake.plan(query).count("Exchange "))
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert shuffles == [0, 2, 0]
