"""A catalog in Google Cloud Storage: here a server on this machine that speaks its protocol."""

import pytest

from tests.spark.deployments.conftest import driver_of
from tests.spark.deployments.steps import (
    add_catalog,
    everything_shown,
    is_one_sentence,
    refusals,
)
from tests.table.in_a_store import secrets_of


@pytest.fixture(scope="module")
def driver(gs_options, bridge, tmp_path_factory):
    with driver_of(tmp_path_factory.mktemp("gs"), "gs://lake/spark/house", gs_options) as found:
        yield found


def test_google_cloud_storage(driver, gs_options, gcs_server, subtests):
    secrets = secrets_of(gs_options)
    with subtests.test("tables"):
        driver.sql("CREATE NAMESPACE lake.db")
        driver.sql(
            "CREATE TABLE lake.db.t (id BIGINT, country STRING) PARTITIONED BY (country, "
            "bucket(2, id))"
        )
        driver.sql("INSERT INTO lake.db.t SELECT id, concat('c', id % 3) FROM range(60)")
        where = "country = 'c1' AND id > 40"
        assert driver.sql(f"SELECT count(*), min(id) FROM lake.db.t WHERE {where}") == [(6, 43)]
        [(plan,)] = driver.sql(f"EXPLAIN SELECT id FROM lake.db.t WHERE {where}")
        assert "partitions 2/6, pruned by: " in plan
        driver.sql("UPDATE lake.db.t SET country = 'x' WHERE id < 10")
        assert driver.sql("SELECT count(*) FROM lake.db.t WHERE country = 'x'") == [(10,)]
        assert driver.sql("SELECT max(country) FROM lake.db.t VERSION AS OF 2") == [("c2",)]
        driver.sql("CREATE TABLE lake.db.copied PARTITIONED BY (id) AS SELECT 1 AS id")
        assert driver.sql("SHOW NAMESPACES IN lake") == [("db",), ("default",)]
        assert [row[1] for row in driver.sql("SHOW TABLES IN lake.db")] == ["copied", "t"]
        driver.sql("DROP TABLE lake.db.copied")
        assert not [n for n in gcs_server.buckets["lake"] if n.startswith("spark/house/db/copied")]
    with subtests.test("by path"):
        path = "gs://lake/spark/paths/t"
        driver.python(f"spark.range(5).write.format('phalanx').save('{path}')")
        assert driver.python(f"result = spark.read.format('phalanx').load('{path}').count()") == 5
    with subtests.test("secrets are not shown"):
        shown = everything_shown(driver)
        shown += "".join(
            refusals(driver, "SELECT * FROM lake.db.no", "INSERT INTO lake.db.t SELECT 1")
        )
        log = driver.log.read_text()
        assert "lake.db.t: partitions" in log
        assert not [secret for secret in secrets if secret in shown or secret in log]
    with subtests.test("a key that cannot be read"):
        place = {name: gs_options[name] for name in ("base_url", "allow_http")}
        place["service_account_key"] = (
            '{"private_key": "other-secret", "disable_oauth": "other-secret"}'
        )
        add_catalog(driver, "closed", "gs://lake/spark/house", place)
        for refused in refusals(driver, "SELECT * FROM closed.db.t", "SHOW TABLES IN closed.db"):
            assert "the key of the service account cannot be read" in refused
            is_one_sentence(refused)
            assert "other-secret" not in refused
        assert "other-secret" not in driver.log.read_text()
