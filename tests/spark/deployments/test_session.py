"""Sessions: with confs, on a session that runs already, and beside another."""

import re
import subprocess
import sys

import pytest

from phalanx.spark import conf
from phalanx.spark.session import _together
from tests.spark.deployments.conftest import QUIET
from tests.spark.deployments.processes import (
    ROOT,
    Driver,
    Failure,
    environment,
    wait_for,
    workers_of,
)

LATE = """
import sys
sys.path.insert(0, {source!r})
from pyspark.sql import SparkSession

mine = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
mine.range(3).count()

from phalanx.spark import session

spark = session(warehouse={lake!r}, conf={{"spark.sql.shuffle.partitions": "3"}})
assert spark is mine
assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
spark.sql("CREATE NAMESPACE lake.db")
spark.sql("CREATE TABLE lake.db.t (id BIGINT, part BIGINT) PARTITIONED BY (part)")
spark.sql("INSERT INTO lake.db.t SELECT id, id % 2 FROM range(10)")
assert spark.sql("SELECT sum(id) FROM lake.db.t WHERE part = 1").first()[0] == 25
assert spark.read.format("phalanx").load({lake!r} + "/db/t").count() == 10

spark.sql("CREATE TABLE lake.db.v (v ARRAY<FLOAT>) TBLPROPERTIES ('vector.v.dimension' = '3')")
try:
    spark.sql("INSERT INTO lake.db.v SELECT array(1F)")
except Exception as error:
    assert str(error).startswith("column 'v' holds a value"), str(error)
else:
    raise AssertionError("a vector of one item")

assert session(warehouse={lake!r}) is spark
other = session(warehouse={other!r})
assert other is not spark
assert [row[0] for row in other.sql("SHOW NAMESPACES IN lake").collect()] == ["default"]
assert spark.sql("SELECT count(*) FROM lake.db.t").first()[0] == 10
more = session(warehouse={other!r}, catalog="second")
assert [row[0] for row in more.sql("SHOW NAMESPACES IN second").collect()] == ["default"]
try:
    session(warehouse={other!r}, conf={{"spark.driver.memory": "1g"}})
finally:
    mine.stop()
print("done")
"""


def test_on_a_session_that_runs(bridge, tmp_path):
    """The package is not installed and on no path that Spark's Java knows."""
    code = LATE.format(
        source=str(ROOT / "src"), lake=str(tmp_path / "lake"), other=str(tmp_path / "other")
    )
    child = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert child.stdout.endswith("done\n"), child.stderr[-4000:]
    assert "spark.driver.memory can only be set at its start" in child.stderr


def test_python_starts_with_the_session(bridge, tmp_path):
    """The planner and a worker for tasks have been loaded before they are needed."""
    options = {"warehouse": str(tmp_path / "lake"), "master": "local[1]", "conf": QUIET}
    driver = Driver(tmp_path, options)

    def workers():
        modules = ("pyspark_phalanx", "pyspark.worker")
        return [workers_of(driver.process, module) for module in modules]

    try:
        wait_for(lambda: all(workers()), "a worker", driver.process, driver.log)
        started = workers()
        driver.sql("CREATE NAMESPACE lake.db")
        driver.sql("CREATE TABLE lake.db.t AS SELECT id, id % 2 AS part FROM range(10)")
        assert driver.sql("SELECT id FROM lake.db.t WHERE id < 2") == [(0,), (1,)]
        assert workers() == started
        assert [len(pids) for pids in started] == [1, 1]
    finally:
        driver.stop()


def test_a_query_that_takes_a_few_rows_keeps_its_worker(bridge, tmp_path):
    """Another one would take most of a second to load."""
    options = {"warehouse": str(tmp_path / "lake"), "master": "local[1]", "conf": QUIET}
    driver = Driver(tmp_path, options)
    try:
        driver.sql("CREATE NAMESPACE lake.db")
        driver.sql("CREATE TABLE lake.db.t AS SELECT id, id % 2 AS part FROM range(400000)")
        driver.sql("SELECT max(length(string(id))) FROM lake.db.t")
        workers = workers_of(driver.process, "pyspark.worker")
        assert workers
        assert len(driver.sql("SELECT id FROM lake.db.t LIMIT 3")) == 3
        assert len(driver.sql("SELECT id FROM lake.db.t WHERE part = 1 LIMIT 3")) == 3
        assert workers_of(driver.process, "pyspark.worker") == workers
    finally:
        driver.stop()


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.sql.phalanx.startAhead": "false"},
        {"spark.python.worker.reuse": "false"},
        {"spark.sql.artifact.isolation.enabled": "true"},
    ],
    ids=lambda conf: next(iter(conf)),
)
def test_nothing_starts_that_no_query_would_use(bridge, tmp_path, conf):
    options = {"warehouse": str(tmp_path), "master": "local[1]", "conf": {**QUIET, **conf}}
    driver = Driver(tmp_path, options)
    try:
        threads = driver.python(
            "every = spark._jvm.java.lang.Thread.getAllStackTraces().keySet()\n"
            "result = [thread.getName() for thread in every]"
        )
        assert "main" in threads
        assert "phalanx-start-ahead" not in threads
        assert not workers_of(driver.process, "pyspark")
        assert driver.sql("SHOW NAMESPACES IN lake") == [("default",)]
    finally:
        driver.stop()


def test_a_python_without_phalanx_is_said_by_the_first_query(bridge, tmp_path):
    """It does not keep a session from starting, and says nothing there."""
    conf = {**QUIET, "spark.sql.phalanx.python": "/nowhere/python3"}
    driver = Driver(tmp_path, {"warehouse": str(tmp_path), "master": "local[1]", "conf": conf})
    try:
        assert driver.sql("SELECT 1") == [(1,)]
        assert "phalanx-start-ahead" not in driver.log.read_text()
        with pytest.raises(Failure, match="/nowhere/python3, does not run or has no Phalanx"):
            driver.sql("SHOW NAMESPACES IN lake")
    finally:
        driver.stop()


def test_confs(bridge, tmp_path):
    options = {"secret_access_key": "hush", "account_key": "hush"}
    found = conf(warehouse=tmp_path / "lake", catalog="house", storage_options=options)
    assert found["spark.jars"].endswith(bridge.name)
    assert found["spark.sql.catalog.house"] == "org.apache.spark.sql.phalanx.PhalanxCatalog"
    assert found["spark.sql.catalog.house.warehouse"] == str(tmp_path / "lake")
    assert found["spark.sql.catalog.house.storage.account_key"] == "hush"
    assert found["spark.sql.phalanx.python"] == sys.executable
    assert found["spark.sql.phalanx.pythonPath"] == str(ROOT / "src")
    assert all(isinstance(value, str) for value in found.values())


def test_lists_are_joined():
    ours = {"spark.jars": "a.jar", "spark.sql.extensions": "A", "x": "1"}
    both = _together(ours, {"spark.jars": "b.jar", "spark.sql.extensions": "B", "x": "2"})
    assert both == {"spark.jars": "b.jar,a.jar", "spark.sql.extensions": "B,A", "x": "2"}


def test_confs_beside_another_catalog(bridge):
    others = {"spark.sql.extensions": "B", "spark.sql.catalog.spark_catalog": "Theirs"}
    confs = conf(beside=others)
    assert confs == {
        **conf(),
        "spark.sql.extensions": "B,org.apache.spark.sql.phalanx.PhalanxExtensions",
        "spark.sql.catalog.spark_catalog": "Theirs",
    }


@pytest.mark.parametrize(
    "key",
    ["secret_access_key", "session_token", "account_key", "sas_key", "azure_credential"],
)
def test_keys_are_redacted(bridge, key):
    """By the rule that Spark applies to what it shows of its confs."""
    found = conf(storage_options={key: "hush"})
    pattern = re.compile(found["spark.redaction.regex"].removeprefix("(?i)"), re.IGNORECASE)
    for name, value in found.items():
        assert bool(pattern.search(name)) == (value == "hush"), name
