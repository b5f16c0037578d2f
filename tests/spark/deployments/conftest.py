import contextlib
import os
from pathlib import Path

import pytest

from phalanx.spark.jar import jar
from tests.spark.deployments.processes import Driver

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # As for drivers: `quick_java` in tests/conftest.py.
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def bridge(own_cache):
    """The jar, compiled once for all runs, although the cache is the run's own."""
    with pytest.MonkeyPatch.context() as outside:
        outside.delenv("PHALANX_CACHE")
        made = jar()
    with contextlib.suppress(FileExistsError):
        os.symlink(made, Path(os.environ["PHALANX_CACHE"]) / made.name)
    return made


@contextlib.contextmanager
def driver_of(folder, warehouse, storage_options):
    """A driver whose catalog is in an object store. It logs everything."""
    options = {
        "warehouse": warehouse,
        "master": "local[2]",
        "conf": QUIET,
        "storage_options": storage_options,
    }
    driver = Driver(folder, options)
    try:
        driver.log_all()
        yield driver
    finally:
        driver.stop()


@pytest.fixture(scope="session")
def local(bridge, tmp_path_factory):
    """A driver in local mode, in which a task may fail twice."""
    folder = tmp_path_factory.mktemp("local")
    options = {"warehouse": str(folder / "lake"), "master": "local[2,3]", "conf": QUIET}
    driver = Driver(folder, options, PHALANX_FAILS=str(folder / "fails"))
    driver.warehouse = folder / "lake"
    yield driver
    driver.stop()
