"""Sessions: a SparkSession that knows a catalog of Phalanx tables, or the confs that make one."""

from __future__ import annotations

import os
import site
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx.spark.jar import check_spark, jar
from phalanx.storage.location import Location

_CATALOG = "org.apache.spark.sql.phalanx.PhalanxCatalog"
_EXTENSIONS = "org.apache.spark.sql.phalanx.PhalanxExtensions"
_BUCKETING = "spark.sql.sources.v2.bucketing"

#: What Spark needs to be told so that joins use partitions, and filters reach them.
_OPTIMIZATIONS = {
    f"{_BUCKETING}.enabled": "true",
    f"{_BUCKETING}.pushPartValues.enabled": "true",
    f"{_BUCKETING}.allowCompatibleTransforms.enabled": "true",
    f"{_BUCKETING}.allowKeysSubsetOfPartitionKeys.enabled": "true",
    f"{_BUCKETING}.shuffle.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly": "false",
}


def conf(
    warehouse: str | os.PathLike[str] | None = None,
    catalog: str = "lake",
    storage_options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The confs of a catalog: for `spark-submit`, a builder of your own, or a Connect server.

    Raises PhalanxError where PySpark is missing or of another minor version.
    """
    found = {"spark.jars": os.fspath(jar()), "spark.sql.extensions": _EXTENSIONS, **_OPTIMIZATIONS}
    named = f"spark.sql.catalog.{catalog}"
    options = {f"storage.{key}": value for key, value in (storage_options or {}).items()}
    for name in {named, "spark.sql.catalog.phalanx"}:
        found[name] = _CATALOG
        found |= {f"{name}.{key}": value for key, value in options.items()}
    if warehouse is not None:
        found[f"{named}.warehouse"] = Location(warehouse).uri
    return found


def session(
    warehouse: str | os.PathLike[str] = "lake",
    catalog: str = "lake",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """A SparkSession with a catalog of the tables under `warehouse`.

    Where a session runs already, the catalog is added to it. `conf` are more confs of Spark.
    """
    check_spark()
    from pyspark.sql import SparkSession

    _prepare_workers()
    confs = _conf(warehouse, catalog, storage_options)
    builder = SparkSession.builder
    if master is not None:
        builder = builder.master(master)
    for key, value in {**confs, **(conf or {})}.items():
        builder = builder.config(key, value)
    running = SparkSession.getActiveSession()
    with warnings.catch_warnings():
        # Starting Java forks this process for a moment; nothing of Lance runs in the fork.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        spark = builder.getOrCreate()
    if running is not None and confs["spark.jars"] not in str(running.conf.get("spark.jars", "")):
        spark.sql(f"ADD JAR '{confs['spark.jars']}'")
    return spark


_conf = conf


def _prepare_workers() -> None:
    """See to it that Spark's Python workers run this Python and find this package."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = os.fspath(Path(__file__).parents[2])
    installed = {os.path.abspath(path) for path in site.getsitepackages()}
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in installed and root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])
