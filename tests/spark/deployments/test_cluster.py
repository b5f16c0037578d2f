"""A real standalone cluster: a master and two workers, each a process with its own executors."""

import pytest

from tests.spark.deployments.conftest import QUIET
from tests.spark.deployments.processes import (
    Driver,
    end,
    free_port,
    listens,
    spark_process,
    wait_for,
)
from tests.spark.deployments.steps import walk


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """The address of a master that has two workers. They have two hosts' names."""
    folder = tmp_path_factory.mktemp("cluster")
    port = free_port()
    running = []
    small = {"SPARK_DAEMON_MEMORY": "256m"}
    try:
        address = f"spark://127.0.0.1:{port}"
        running.append(
            spark_process(
                folder,
                "master",
                *("spark-class", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"),
                *("--port", str(port), "--webui-port", "0"),
                **small,
            )
        )
        wait_for(lambda: listens(port), "the master", running[0], folder / "master.log")
        for number in (1, 2):
            host = f"127.0.0.{number}"
            running.append(
                spark_process(
                    folder,
                    f"worker{number}",
                    *("spark-class", "org.apache.spark.deploy.worker.Worker", "--host", host),
                    *("--webui-port", "0", "--cores", "1", "--memory", "1g"),
                    *("--work-dir", str(folder / "work"), address),
                    SPARK_LOCAL_IP=host,
                    **small,
                )
            )
        log = folder / "master.log"
        wait_for(
            lambda: log.read_text().count("Registering worker") == 2,
            "both workers",
            running[0],
            log,
        )
        yield address
    finally:
        for process in reversed(running):
            end(process)


@pytest.fixture(scope="module")
def driver(master, bridge, tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    conf = {
        **QUIET,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.task.maxFailures": "3",
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.minTaskRuntime": "200ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        # A task that writes waits, as often as there are files in this folder.
        "spark.executorEnv.PHALANX_FAILPOINT": f"write.files-written:wait:{folder / 'waits'}",
    }
    (folder / "waits").mkdir()
    options = {"warehouse": str(folder / "lake"), "master": master, "conf": conf}
    found = Driver(folder, options)
    found.folder = folder
    found.log_all()
    yield found
    found.stop()


def test_cluster(driver, subtests):
    walk(driver, subtests)
    with subtests.test("both workers had tasks"):
        hosts = driver.python(
            "result = sorted(str(e.host()) for e in "
            "spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos())"
        )
        assert {"127.0.0.1", "127.0.0.2"} <= set(hosts)
    with subtests.test("a task that runs twice at once writes no row twice"):
        driver.sql(
            "CREATE TABLE lake.db.twice (id BIGINT, part BIGINT) PARTITIONED BY (part) "
            "TBLPROPERTIES ('write.distribution' = 'none')"
        )
        (driver.folder / "waits" / "once").touch()
        driver.sql("INSERT INTO lake.db.twice SELECT id, id % 2 FROM range(0, 400, 1, 4)")
        assert not (driver.folder / "waits" / "once").exists()
        assert "as speculatable because it ran more than" in driver.log.read_text()
        rows = driver.sql("SELECT count(*), count(DISTINCT id), sum(id) FROM lake.db.twice")
        assert rows == [(400, 400, sum(range(400)))]
