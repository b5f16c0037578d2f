"""Tasks that fail after they have written, and are tried again: no row is there twice."""

import datetime as dt

import pytest

import phalanx
from tests.spark.deployments.conftest import QUIET
from tests.spark.deployments.processes import Driver, Failure

AFTER_WRITING = "write.files-written"


@pytest.fixture(scope="module", params=[pytest.param("raise", marks=pytest.mark.soak), "kill"])
def failing(request, bridge, tmp_path_factory):
    """A driver whose tasks fail as often as there are files in the folder `fails`."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "fails").mkdir()
    options = {"warehouse": str(folder / "lake"), "master": "local[2,3]", "conf": QUIET}
    failpoint = f"{AFTER_WRITING}:{request.param}:{folder / 'fails'}"
    driver = Driver(folder, options, PHALANX_FAILPOINT=failpoint)
    driver.folder = folder
    driver.sql("CREATE NAMESPACE lake.db")
    yield driver
    driver.stop()


def fail(driver, times):
    for entry in (driver.folder / "fails").iterdir():
        entry.unlink()
    for number in range(times):
        (driver.folder / "fails" / str(number)).touch()


def left(driver):
    return len(list((driver.folder / "fails").iterdir()))


def files(table):
    """The files of a table's leaves."""
    return [path for path in table.rglob("data/*.lance") if "__manifest" not in path.parts]


def rows_of(driver, table):
    return driver.sql(f"SELECT count(*), count(DISTINCT id), sum(id) FROM lake.db.{table}")


ALL = [(400, 400, sum(range(400)))]
ROWS = "SELECT id, id % 4 AS part FROM range(0, 400, 1, 4)"


def test_a_retried_task_duplicates_nothing(failing, subtests):
    driver = failing
    table = driver.folder / "lake" / "db" / "t"
    driver.sql("CREATE TABLE lake.db.t (id BIGINT, part BIGINT) PARTITIONED BY (part)")
    with subtests.test("append"):
        fail(driver, 2)
        driver.sql(f"INSERT INTO lake.db.t {ROWS}")
        assert left(driver) == 0
        assert rows_of(driver, "t") == ALL
        assert phalanx.open(table).version == 2
    with subtests.test("overwrite"):
        fail(driver, 2)
        driver.sql(f"INSERT OVERWRITE lake.db.t {ROWS}")
        assert left(driver) == 0
        assert rows_of(driver, "t") == ALL
    with subtests.test("create as select"):
        fail(driver, 2)
        driver.sql(f"CREATE TABLE lake.db.made PARTITIONED BY (part) AS {ROWS}")
        assert left(driver) == 0
        assert rows_of(driver, "made") == ALL
    with subtests.test("a job that is given up changes nothing, and vacuum takes its files"):
        opened = phalanx.open(table)
        before, names = opened.version, files(table)
        fail(driver, 1000)
        with pytest.raises(Failure) as given_up:
            driver.sql(f"INSERT INTO lake.db.t {ROWS}")
        fail(driver, 0)
        assert "Traceback" not in str(given_up.value)
        assert rows_of(driver, "t") == ALL
        opened = phalanx.open(table)
        assert opened.version == before
        assert len(files(table)) > len(names)
        opened.vacuum(older_than=dt.timedelta(0), force=True)
        assert set(files(table)) <= set(names)
        assert rows_of(driver, "t") == ALL
        assert opened.check().ok
    with subtests.test("a table that was not made is not there, and can be made"):
        fail(driver, 1000)
        with pytest.raises(Failure):
            driver.sql(f"CREATE TABLE lake.db.never PARTITIONED BY (part) AS {ROWS}")
        fail(driver, 0)
        assert ("never",) not in [row[1:2] for row in driver.sql("SHOW TABLES IN lake.db")]
        driver.sql(f"CREATE TABLE lake.db.never PARTITIONED BY (part) AS {ROWS}")
        assert rows_of(driver, "never") == ALL
