"""Sessions: a SparkSession that knows a catalog of Phalanx tables, or the confs that make one."""

from __future__ import annotations

import os
import re
import site
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.spark.conf import (
    CATALOG_PREFIX,
    PATH_CATALOG,
    PYTHON,
    PYTHON_PATH,
    STORAGE_PREFIX,
    WAREHOUSE,
)
from phalanx.spark.features import minor, minor_of
from phalanx.spark.jar import check_spark, jar, java
from phalanx.storage.location import Location

_CATALOG = "org.apache.spark.sql.phalanx.PhalanxCatalog"
#: The catalog of tables that are named by their paths.
_PATHS = PATH_CATALOG.default
_EXTENSIONS = "org.apache.spark.sql.phalanx.PhalanxExtensions"
_BUCKETING = "spark.sql.sources.v2.bucketing"

#: Confs that let Spark join by partition keys, and prune by the keys of a join.
_OPTIMIZATIONS = {
    f"{_BUCKETING}.enabled": "true",
    f"{_BUCKETING}.pushPartValues.enabled": "true",
    f"{_BUCKETING}.allowCompatibleTransforms.enabled": "true",
    f"{_BUCKETING}.allowKeysSubsetOfPartitionKeys.enabled": "true",
    f"{_BUCKETING}.shuffle.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly": "false",
}


#: The conf of a storage option, which may be a secret.
_STORAGE_OPTION = re.compile(rf"{re.escape(CATALOG_PREFIX)}[^.]+[.]{re.escape(STORAGE_PREFIX)}.+")
#: Confs that Spark reads only when it starts.
_AT_START = ("spark.jars", "spark.sql.extensions", "spark.redaction.regex")
#: What Spark redacts by default, and the names that object stores have for secrets.
_REDACTED = (
    "(?i)secret|password|token|access[.]?key|[.]storage[.].*(key|signature|credential|connection)"
)


def conf(
    warehouse: str | os.PathLike[str] | None = None,
    catalog: str = "lake",
    storage_options: Mapping[str, str] | None = None,
    beside: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The confs of a catalog: for `spark-submit`, a builder of your own, or a Connect server.

    `beside` are the confs of other catalogs in the same session, such as those of Iceberg or Delta;
    they take precedence, and jars and extensions are joined. The Python that calls this plans
    queries: for a driver on another host, set `spark.sql.phalanx.python` to one there. Executors
    run PYSPARK_PYTHON or `python3`, which must have Phalanx; those of a local session run the
    Python that plans.

    Raises PhalanxError where PySpark or Java is missing, or Spark is of an unknown minor version.
    """
    confs = {"spark.jars": os.fspath(jar()), "spark.sql.extensions": _EXTENSIONS, **_OPTIMIZATIONS}
    if storage_options:
        confs["spark.redaction.regex"] = _REDACTED
    for name in {catalog, _PATHS}:
        confs[CATALOG_PREFIX + name] = _CATALOG
        for key, value in (storage_options or {}).items():
            confs[f"{CATALOG_PREFIX}{name}.{STORAGE_PREFIX}{key}"] = value
    if warehouse is not None:
        confs[f"{CATALOG_PREFIX}{catalog}.{WAREHOUSE.name}"] = Location(warehouse).uri
    confs[PYTHON.name] = sys.executable
    root = os.fspath(Path(__file__).parents[2])
    if root not in map(os.path.abspath, site.getsitepackages()):
        confs[PYTHON_PATH.name] = root
    return _together(confs, beside or {})


_conf = conf


def session(
    warehouse: str | os.PathLike[str] = "lake",
    catalog: str = "lake",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """A SparkSession with a catalog of the tables under `warehouse`.

    If a session is running, the catalog is added to it; if that session has another catalog of the
    same name, you get a new session beside it. `conf` are more confs of Spark, those of other
    catalogs among them. The session also has the table function `phalanx_search`.

    Raises PhalanxError where PySpark or Java is missing, or Spark is of an unknown minor version.
    """
    check_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from phalanx.spark.searching import register

    running = SparkSession.getActiveSession()
    if running is None and SparkContext._active_spark_context is not None:
        running = SparkSession.builder.getOrCreate()
    if running is None:
        java()
        # Tasks run in this Python, unless the user has chosen another one.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    confs = _conf(warehouse, catalog, storage_options)
    if running is None:
        spark = _started(master, _together(confs, conf or {}))
    else:
        spark = _added(running, catalog, confs, conf or {})
    if minor_of(spark.version) != minor():
        raise PhalanxError(
            f"PySpark {minor()} is installed, and this session runs Spark {spark.version}: "
            "let SPARK_HOME name the same version, or leave it unset"
        )
    register(spark)
    return spark


def _started(master: str | None, confs: Mapping[str, str]) -> Any:
    """A session of its own. Others can read Java's command line, so it gets no storage options."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    at_start = SparkConf()
    if master is not None:
        at_start.setMaster(master)
    for key, value in confs.items():
        if not _STORAGE_OPTION.fullmatch(key):
            at_start.set(key, value)
    with warnings.catch_warnings():
        # Spark's launcher forks before it starts Java, and does not use Lance after that.
        warnings.filterwarnings("ignore", "lance is not fork-safe")
        SparkContext.getOrCreate(at_start)
    return SparkSession.builder.config(map=dict[str, Any](confs)).getOrCreate()


def _together(confs: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Our confs and the user's. The user's take precedence; lists are joined.

    Our extension comes last: Spark asks its parser first, and that leaves to others what is theirs.
    """
    merged = {**confs, **more}
    for key in ("spark.jars", "spark.sql.extensions"):
        if more.get(key):
            merged[key] = f"{more[key]},{confs[key]}"
    return merged


def _added(running: Any, catalog: str, confs: Mapping[str, str], more: Mapping[str, str]) -> Any:
    """Add a catalog to a running session. One that is in use cannot be changed: see `session`."""
    own, paths = CATALOG_PREFIX + catalog, CATALOG_PREFIX + _PATHS
    here, wanted = _below(own, running.conf.getAll), _below(own, confs)
    spark = running if here in ({}, wanted) else running.newSession()
    for key in here.keys() - wanted.keys():
        spark.conf.unset(key)
    path = confs["spark.jars"]
    if path not in spark.sparkContext.getConf().get("spark.jars", ""):
        spark.sql("ADD JAR '{}'".format(path.replace("\\", "\\\\").replace("'", "\\'")))
    known = _below(paths, spark.conf.getAll) if spark is running else {}
    for key, value in {**confs, **more}.items():
        if key not in _AT_START and not (known and key in _below(paths, confs)):
            _set(spark, key, value)
    return spark


def _below(prefix: str, confs: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in confs.items() if k == prefix or k.startswith(f"{prefix}.")}


def _set(spark: Any, key: str, value: str) -> None:
    from pyspark.errors import AnalysisException

    try:
        spark.conf.set(key, value)
    except AnalysisException:
        warnings.warn(f"Spark is running, and {key} can only be set at its start", stacklevel=4)
