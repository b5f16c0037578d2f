import contextlib
import itertools
import os
import sys
from pathlib import Path

import pytest

import phalanx
from phalanx.spark import session
from phalanx.spark.jar import jar
from tests.spark import compare

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items):
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory):
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def spark(warehouse, own_cache, tmp_path_factory):
    """The one Spark session of the test process, with the catalog `lake`."""
    root = os.fspath(Path(phalanx.__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        # Spark's Python workers must find the same package as this process.
        patch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        keep_jar()
        scratch = tmp_path_factory.mktemp("spark")
        found = session(
            warehouse=warehouse,
            master="local[2]",
            conf={
                "spark.ui.enabled": "false",
                "spark.log.level": "ERROR",
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.shuffle.partitions": "4",
                # A table with more partitions is read by few tasks, and not by one for each.
                "spark.sql.phalanx.keyedLeaves": "12",
                "spark.sql.warehouse.dir": str(scratch / "warehouse"),
                "spark.local.dir": str(scratch),
                "spark.driver.memory": "2g",
            },
        )
        yield found
        found.stop()


def keep_jar():
    """Compile the bridge once for all runs, although the cache is the run's own."""
    with pytest.MonkeyPatch.context() as outside:
        outside.delenv("PHALANX_CACHE")
        made = jar()
    with contextlib.suppress(FileExistsError):
        os.symlink(made, Path(os.environ["PHALANX_CACHE"]) / made.name)


class Lake:
    """A namespace of one test, or of the tests of one file."""

    def __init__(self, spark, folder, warehouse):
        self.spark, self.folder = spark, folder
        self.name = f"n{next(_numbers)}"
        self.path = warehouse / self.name
        spark.sql(f"CREATE NAMESPACE lake.{self.name}")

    def __getitem__(self, table):
        """The full name of a table: `lake.<namespace>.<table>`."""
        return f"lake.{self.name}.{table}"

    def sql(self, text):
        """Run a statement in which `{db}` stands for the namespace."""
        return self.spark.sql(self.named(text))

    def rows(self, text):
        """The rows of a query as sorted tuples."""
        return sorted((tuple(row) for row in self.sql(text).collect()), key=repr)

    def named(self, text):
        return text.replace("{db}", f"lake.{self.name}")

    def both(self, table, rows, partitioned_by="", properties=""):
        """Make a table, and a Parquet copy for `same`, with the rows of a query."""
        rows = self.named(rows) if isinstance(rows, str) else rows
        compare.make_both(self.spark, self[table], rows, self.folder, partitioned_by, properties)

    def copy(self, table, rows):
        """Make the Parquet copy of a table that is there already."""
        compare.make_copy(self.spark, self.spark.sql(rows), self[table], self.folder)

    def same(self, query):
        return compare.same(self.spark, self.named(query))

    def plan(self, query):
        """The plan that would run a query, as text."""
        return self.sql(query)._jdf.queryExecution().executedPlan().toString()

    def open(self, table):
        return phalanx.open(self.path / table)


@pytest.fixture
def lake(spark, tmp_path, warehouse):
    """A namespace of the test's own."""
    return Lake(spark, tmp_path, warehouse)


@pytest.fixture(scope="module")
def shared_lake(spark, tmp_path_factory, warehouse):
    """A namespace of the tests of one file, which only read there."""
    return Lake(spark, tmp_path_factory.mktemp("copies"), warehouse)


@pytest.fixture
def zone(spark):
    """A function that sets the session's time zone for the rest of the test."""
    key = "spark.sql.session.timeZone"
    before = spark.conf.get(key)
    yield lambda name: spark.conf.set(key, name)
    spark.conf.set(key, before)
