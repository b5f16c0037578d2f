"""What every deployment must be able to do, as steps that build on each other."""

import re

import pytest

from tests.spark.deployments.processes import Failure


def walk(driver, subtests):
    """Create, insert, select, overwrite, look back, and fail as one sentence."""
    driver.sql("CREATE NAMESPACE lake.db")
    with subtests.test("create and insert"):
        driver.sql(
            "CREATE TABLE lake.db.events (id BIGINT NOT NULL, ts TIMESTAMP, country STRING) "
            "USING phalanx PARTITIONED BY (days(ts), country)"
        )
        driver.sql(
            "INSERT INTO lake.db.events SELECT id, timestamp'2024-01-01' + "
            "make_interval(0, 0, 0, int(id % 5)), element_at(array('US', 'DE'), int(id % 2) + 1) "
            "FROM range(0, 1000, 1, 4)"
        )
        assert driver.sql("SELECT count(*), sum(id) FROM lake.db.events") == [(1000, 499_500)]
        assert driver.sql("SELECT count(*) FROM lake.db.events.partitions") == [(10,)]
    with subtests.test("select with pruning"):
        where = "ts >= '2024-01-02' AND ts < '2024-01-03' AND country = 'DE'"
        assert driver.sql(f"SELECT count(*), sum(id) FROM lake.db.events WHERE {where}") == [
            (100, sum(id for id in range(1000) if id % 5 == 1 and id % 2))
        ]
        [(plan,)] = driver.sql(f"EXPLAIN SELECT id FROM lake.db.events WHERE {where}")
        assert "partitions 1/10, pruned by: " in plan
        assert "version 2" in plan
    with subtests.test("join on the executors"):
        joined = driver.sql(
            "SELECT count(*) FROM lake.db.events a JOIN lake.db.events b "
            "ON a.id = b.id AND a.country = b.country"
        )
        assert joined == [(1000,)]
    with subtests.test("overwrite"):
        driver.sql(
            "INSERT OVERWRITE lake.db.events SELECT -id, ts, country FROM lake.db.events "
            "WHERE country = 'US'"
        )
        assert driver.sql("SELECT country, count(*), max(id) FROM lake.db.events GROUP BY 1") == [
            ("US", 500, 0)
        ]
    with subtests.test("time travel"):
        old = driver.sql("SELECT count(*), sum(id) FROM lake.db.events VERSION AS OF 2")
        assert old == [(1000, 499_500)]
        assert driver.sql("SELECT max(version) FROM lake.db.events.snapshots") == [(3,)]
    with subtests.test("an error of the planner is one sentence"):
        with pytest.raises(Failure) as refused:
            driver.sql("SELECT * FROM lake.db.events VERSION AS OF 99")
        assert refused.value.kind == "AnalysisException"
        assert "99" in str(refused.value)
        is_one_sentence(str(refused.value))
    with subtests.test("an error of a task is one sentence"):
        driver.sql("ALTER TABLE lake.db.events SET TBLPROPERTIES ('write.max_new_leaves' = '2')")
        with pytest.raises(Failure, match="max_new_leaves") as refused:
            driver.sql(
                "INSERT INTO lake.db.events SELECT id, current_timestamp(), CAST(id AS STRING) "
                "FROM range(10)"
            )
        assert "Traceback" not in str(refused.value)
        assert driver.sql("SELECT count(*) FROM lake.db.events") == [(500,)]


def is_one_sentence(message):
    assert "\n" not in message.strip()
    assert "Traceback" not in message
    assert not re.search(r"\.py\b", message)


def everything_shown(driver):
    """All that Spark tells about the table `lake.db.t` and about its own settings, as text."""
    rows = [
        *driver.sql("EXPLAIN EXTENDED SELECT * FROM lake.db.t"),
        *driver.sql("EXPLAIN FORMATTED INSERT INTO lake.db.t SELECT * FROM lake.db.t"),
        *driver.sql("DESCRIBE EXTENDED lake.db.t"),
        *driver.sql("SHOW TBLPROPERTIES lake.db.t"),
        *driver.sql("SHOW CREATE TABLE lake.db.t"),
        *driver.sql("DESCRIBE NAMESPACE EXTENDED lake.db"),
        *driver.sql("SET"),
        *driver.sql("SELECT * FROM lake.db.t.snapshots"),
        *driver.sql("SELECT * FROM lake.db.t.partitions"),
    ]
    assert len(rows) > 20
    frame = driver.python(
        "found = spark.table('lake.db.t')\nresult = str(found._jdf.queryExecution()) + repr(found)"
    )
    return "\n".join([*(str(cell) for row in rows for cell in row), frame])


def add_catalog(driver, name, warehouse, storage_options):
    """Give a running session another catalog, as a user types it."""
    key = f"spark.sql.catalog.{name}"
    confs = {key: "org.apache.spark.sql.phalanx.PhalanxCatalog", f"{key}.warehouse": warehouse}
    confs |= {f"{key}.storage.{option}": value for option, value in storage_options.items()}
    driver.python(f"for key, value in {confs!r}.items():\n    spark.conf.set(key, value)")


def refusals(driver, *texts):
    """What a user is told of statements that fail."""
    said = []
    for text in texts:
        with pytest.raises(Failure) as refused:
            driver.sql(text)
        said.append(str(refused.value))
    return said
