"""What a user sees when something breaks that is not the user's doing."""

import os
import signal
import sys
import time

import pytest

from tests.spark.deployments.processes import Failure, workers_of
from tests.spark.deployments.steps import is_one_sentence

PLANNER = "pyspark_phalanx"


def failure(driver, text):
    with pytest.raises(Failure) as failed:
        driver.sql(text)
    return failed.value


def task_failure(driver, text):
    """The message of a task's error; Spark puts its own words around it."""
    message = str(failure(driver, text))
    assert "Traceback" not in message
    assert 'File "' not in message
    return message


def kill_while(driver, **request):
    """Send a request, and kill the planner before it has answered."""
    [planner] = workers_of(driver.process, PLANNER)
    os.kill(planner, signal.SIGSTOP)
    driver.send(**request)
    time.sleep(1)
    os.kill(planner, signal.SIGKILL)


@pytest.fixture(scope="module")
def broken(local):
    """The driver, with a table `lake.broken.t`."""
    local.sql("CREATE NAMESPACE lake.broken")
    local.sql("CREATE TABLE lake.broken.t (id BIGINT, part BIGINT) PARTITIONED BY (part)")
    local.sql("INSERT INTO lake.broken.t SELECT id, id % 2 FROM range(10)")
    return local


def test_what_breaks(broken, subtests, tmp_path):
    driver = broken
    table = driver.warehouse / "broken" / "t"
    bridge = "spark._jvm.org.apache.spark.sql.phalanx.Bridge"
    count = "SELECT count(id) FROM lake.broken.t"
    total = "SELECT sum(id) FROM lake.broken.t"
    with subtests.test("an error that nobody expected"):
        with pytest.raises(Failure) as failed:
            driver.python(f"{bridge}.call('no_such_thing', spark._jvm.PythonUtils.toSeq([]))")
        assert failed.value.kind == "AnalysisException"
        wrong = "Phalanx failed: BadRequest: there is no operation 'no_such_thing' (dispatch.py"
        assert str(failed.value).startswith(wrong)
        assert "\n" not in str(failed.value)
    with subtests.test("the planner is killed between two queries"):
        [planner] = workers_of(driver.process, PLANNER)
        os.kill(planner, signal.SIGKILL)
        assert driver.sql(count) == [(10,)]
        assert workers_of(driver.process, PLANNER) != [planner]
    with subtests.test("the planner is killed during a query"):
        kill_while(driver, sql=count)
        assert driver.wait() == [[10]]
    with subtests.test("the planner is killed while it changes something"):
        kill_while(driver, python=f"{bridge}.call('delete', spark._jvm.PythonUtils.toSeq([]))")
        with pytest.raises(Failure) as failed:
            driver.wait()
        assert failed.value.kind == "AnalysisException"
        assert str(failed.value).startswith("Phalanx's planner, a Python process, ended during")
        is_one_sentence(str(failed.value))
        assert driver.sql(count) == [(10,)]
    with subtests.test("the planner's Python is not there"):
        driver.sql("SET spark.sql.phalanx.python=/no/such/python3")
        found = failure(driver, count)
        driver.python("import sys; spark.conf.set('spark.sql.phalanx.python', sys.executable)")
        assert found.kind == "AnalysisException"
        assert "the Python of Spark's planner, /no/such/python3, does not run" in str(found)
        is_one_sentence(str(found))
        assert driver.sql(count) == [(10,)]
    with subtests.test("the planner's Python has no Lance"):
        bare = tmp_path / "python3"
        bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        bare.chmod(0o755)
        driver.sql(f"SET spark.sql.phalanx.python={bare}")
        found = failure(driver, count)
        driver.python("import sys; spark.conf.set('spark.sql.phalanx.python', sys.executable)")
        assert f"the Python of Spark's planner, {bare}, does not run or has no Phalanx" in str(
            found
        )
    with subtests.test("the executors' Python is not there"):
        # Spark lets nobody change this one while it runs, so this goes around it.
        confs = "spark._jsparkSession.sessionState().conf()"
        driver.python(f"{confs}.setConfString('spark.pyspark.python', '/no/such/python3')")
        try:
            found = task_failure(driver, total)
        finally:
            driver.python(f"{confs}.unsetConf('spark.pyspark.python')")
        assert "the Python of Spark's executors, /no/such/python3, does not run" in found
        assert driver.sql(count) == [(10,)]
    with subtests.test("a file of a leaf is gone"):
        driver.sql("CREATE TABLE lake.broken.gone (id BIGINT)")
        driver.sql("INSERT INTO lake.broken.gone SELECT id FROM range(10)")
        for file in (table.parent / "gone").rglob("data/*.lance"):
            if "__manifest" not in file.parts:
                file.unlink()
        found = task_failure(driver, "SELECT sum(id) FROM lake.broken.gone")
        assert "broken/gone" in found
    with subtests.test("the manifest is unreadable"):
        for file in (table / "__manifest" / "data").glob("*"):
            file.write_bytes(b"nonsense")
        for worker in workers_of(driver.process, PLANNER):
            os.kill(worker, signal.SIGKILL)
        found = failure(driver, count)
        assert found.kind == "AnalysisException"
        assert "broken/t" in str(found)
        is_one_sentence(str(found))
