"""A catalog in an object store: here one on this machine."""

import pytest

from tests import s3
from tests.spark.deployments.conftest import driver_of
from tests.spark.deployments.processes import Failure
from tests.spark.deployments.steps import (
    add_catalog,
    everything_shown,
    is_one_sentence,
    refusals,
)

#: The command lines of every Spark that runs on this machine.
JAVA = """
import contextlib, glob
result = []
for path in glob.glob("/proc/[0-9]*/cmdline"):
    with contextlib.suppress(OSError), open(path, errors="replace") as file:
        command = file.read()
        if "SparkSubmit" in command:
            result.append(command)
"""


@pytest.fixture(scope="module")
def driver(s3_options, bridge, tmp_path_factory):
    with driver_of(tmp_path_factory.mktemp("s3"), "s3://lake/spark/house", s3_options) as found:
        yield found


@pytest.fixture(scope="module")
def names(s3_options):
    """A function that lists the keys in the store below a prefix."""
    client = s3.client(s3_options)

    def listed(prefix):
        found = client.list_objects_v2(Bucket="lake", Prefix=prefix)
        return [entry["Key"] for entry in found.get("Contents", [])]

    return listed


def test_object_store(driver, names, s3_options, subtests):
    secret = s3_options["secret_access_key"]
    with subtests.test("namespaces"):
        driver.sql("CREATE NAMESPACE lake.db")
        driver.sql("CREATE NAMESPACE lake.other")
        assert driver.sql("SHOW NAMESPACES IN lake") == [("db",), ("default",), ("other",)]
        driver.sql("DROP NAMESPACE lake.other")
        assert driver.sql("SHOW NAMESPACES IN lake") == [("db",), ("default",)]
        with pytest.raises(Failure) as refused:
            driver.sql("CREATE TABLE lake.nowhere.t (id BIGINT)")
        assert "nowhere" in str(refused.value)
    with subtests.test("tables"):
        driver.sql(
            "CREATE TABLE lake.db.t (id BIGINT, country STRING) PARTITIONED BY (country) "
            "TBLPROPERTIES ('owner.team' = 'maps')"
        )
        driver.sql("INSERT INTO lake.db.t VALUES (1, 'US'), (2, 'DE'), (3, NULL)")
        assert driver.sql("SELECT * FROM lake.db.t WHERE country = 'DE'") == [(2, "DE")]
        driver.sql("INSERT OVERWRITE lake.db.t VALUES (4, 'FR')")
        assert driver.sql("SELECT * FROM lake.db.t") == [(4, "FR")]
        assert len(driver.sql("SELECT * FROM lake.db.t VERSION AS OF 2")) == 3
        driver.sql("CREATE TABLE lake.db.copied PARTITIONED BY (id) AS SELECT * FROM lake.db.t")
        assert [row[1] for row in driver.sql("SHOW TABLES IN lake.db")] == ["copied", "t"]
        driver.sql("DROP TABLE lake.db.copied")
        assert [row[1] for row in driver.sql("SHOW TABLES IN lake.db")] == ["t"]
        assert names("spark/house/db/copied") == []
        with pytest.raises(Failure) as refused:
            driver.sql("DROP NAMESPACE lake.db")
        assert "SCHEMA_NOT_EMPTY" in str(refused.value) or "not empty" in str(refused.value)
    with subtests.test("by path"):
        path = "s3://lake/spark/paths/t"
        driver.python(f"spark.range(5).write.format('phalanx').save('{path}')")
        assert driver.python(f"result = spark.read.format('phalanx').load('{path}').count()") == 5
    with subtests.test("secrets are not shown"):
        shown = everything_shown(driver)
        assert "phalanx lake.db.t" in shown
        assert secret not in shown
    with subtests.test("the command line of Java does not tell them"):
        commands = driver.python(JAVA)
        assert any("local[2]" in command for command in commands)
        assert not any(".storage." in command for command in commands)
    with subtests.test("another session has them too"):
        count = "result = spark.newSession().sql('SELECT * FROM lake.db.t').count()"
        assert driver.python(count) == 1
    with subtests.test("errors do not tell them"):
        refused = refusals(
            driver,
            "SELECT * FROM lake.db.missing",
            "SELECT * FROM lake.db.t VERSION AS OF 99",
            "ALTER TABLE lake.db.t RENAME TO lake.db.u",
        )
        assert secret not in "".join(refused)
        is_one_sentence(refused[-1])
        assert "an object store cannot rename" in refused[-1]
    with subtests.test("a store that refuses"):
        place = {"endpoint": "http://127.0.0.1:9", "allow_http": "true", "region": "x"}
        place |= {"access_key_id": "a", "secret_access_key": "other-secret"}
        place |= {"client_max_retries": "0", "retry_timeout": "1"}
        add_catalog(driver, "closed", "s3://closed/lake", place)
        (refused,) = refusals(driver, "SELECT * FROM closed.db.t")
        assert "other-secret" not in refused
        assert "Traceback" not in refused
    with subtests.test("the log does not tell them"):
        log = driver.log.read_text()
        assert "lake.db.t: partitions" in log
        assert secret not in log
        assert "other-secret" not in log
