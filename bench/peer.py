"""One of the peers at its work. `bench.peers` runs it in the environment of that system.

`python -m bench.peer SYSTEM DATA FOLDER JARS` prints its seconds as JSON; with `first` behind that,
those of the first query of a session on what an earlier run has written.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUNS = 3
#: How often a query runs before it is measured: compilers need some runs until they are done.
WARM = 6
COMMON = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.memory": "4g",
}
MERGE_ON_READ = ", ".join(
    f"'write.{m}.mode' = 'merge-on-read'" for m in ("delete", "update", "merge")
)
#: What each system is told when a table is made that will be changed.
CHANGED = {
    "iceberg-mor": f"TBLPROPERTIES ('format-version' = '3', {MERGE_ON_READ})",
    "delta": "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
}


class Peer:
    """A session of one system, and tables in it by name."""

    def __init__(self, system: str, folder: Path, jars: str) -> None:
        self.kind = system.removesuffix("-mor")
        self.changed = CHANGED.get(system, "")
        self.folder = folder
        self.session = self._session(jars)

    def _session(self, jars: str) -> Any:
        conf = {**COMMON, "spark.local.dir": os.fspath(self.folder / "scratch")}
        conf["spark.sql.warehouse.dir"] = os.fspath(self.folder / "hive")
        lake = os.fspath(self.folder / "lake")
        if self.kind == "phalanx":
            from phalanx.spark import session

            spark = session(lake, master="local[2]", conf=conf)
        else:
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.master("local[2]")
            for key, value in {**conf, **self._conf(lake, jars)}.items():
                builder = builder.config(key, value)
            spark = builder.getOrCreate()
        if self.kind in ("phalanx", "iceberg"):
            spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
        return spark

    def _conf(self, lake: str, jars: str) -> dict[str, str]:
        match self.kind:
            case "iceberg":
                return {
                    "spark.jars": jars,
                    "spark.sql.extensions": (
                        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
                    ),
                    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
                    "spark.sql.catalog.lake.type": "hadoop",
                    "spark.sql.catalog.lake.warehouse": lake,
                    "spark.sql.sources.v2.bucketing.enabled": "true",
                    "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
                    "spark.sql.requireAllClusterKeysForCoPartition": "false",
                    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
                }
            case "delta":
                return {
                    "spark.jars": jars,
                    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                    "spark.sql.catalog.spark_catalog": (
                        "org.apache.spark.sql.delta.catalog.DeltaCatalog"
                    ),
                }
        return {}

    def sql(self, text: str) -> list[Any]:
        rows: list[Any] = self.session.sql(text).collect()
        return rows

    def drain(self, text: str) -> None:
        self.session.sql(text).write.format("noop").mode("overwrite").save()

    def path(self, table: str) -> Path:
        lake = self.folder / "lake"
        return lake / "db" / table if self.kind in ("phalanx", "iceberg") else lake / table

    def name(self, table: str) -> str:
        match self.kind:
            case "parquet":
                return f"parquet_{table}"
            case "delta":
                return f"delta.`{self.path(table)}`"
        return f"lake.db.{table}"

    def make(self, table: str, query: str, by: str = "", bucket: int = 0, more: str = "") -> None:
        """A table of a query's rows, partitioned by a column or by buckets of it."""
        if self.kind == "parquet":
            write = self.session.sql(query).write
            if bucket:
                path = os.fspath(self.path(table))
                write = write.bucketBy(bucket, by).format("parquet").option("path", path)
                write.saveAsTable(self.name(table))
                return
            (write.partitionBy(by) if by else write).parquet(os.fspath(self.path(table)))
            rows = self.session.read.parquet(os.fspath(self.path(table)))
            rows.createOrReplaceTempView(self.name(table))
            return
        if bucket and self.kind == "delta":
            by, bucket = "", 0  # it has no buckets
        clause = f"bucket({bucket}, {by})" if bucket else by
        partitioned = f"PARTITIONED BY ({clause})" if clause else ""
        self.sql(
            f"CREATE TABLE {self.name(table)} USING {self.kind} {partitioned} {more} AS {query}"
        )

    def drop(self, table: str) -> None:
        if self.kind == "parquet":
            self.session.catalog.dropTempView(self.name(table))
            self.sql(f"DROP TABLE IF EXISTS {self.name(table)}")
        elif self.kind != "delta":
            purge = " PURGE" if self.kind == "iceberg" else ""
            self.sql(f"DROP TABLE IF EXISTS {self.name(table)}{purge}")
        shutil.rmtree(self.path(table), ignore_errors=True)

    def bytes(self, table: str) -> int:
        return sum(f.stat().st_size for f in self.path(table).rglob("*") if f.is_file())

    def files(self, table: str) -> int:
        return sum(f.is_file() for f in self.path(table).rglob("*"))


def median(work: Callable[[], Any], warm: int = 1) -> float:
    for _ in range(warm):
        work()
    spans = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        spans.append(time.perf_counter() - start)
    return statistics.median(spans)


def measure(peer: Peer, data: str) -> dict[str, float]:
    source = f"SELECT * FROM parquet.`{data}/rows`"
    results: dict[str, float] = {}

    def write(table: str, **how: Any) -> Callable[[], None]:
        def work() -> None:
            peer.drop(table)
            peer.make(table, source, **how)

        return work

    results["write 20 partitions"] = median(write("t", by="country"))
    t = peer.name("t")
    results["MB on disk"] = peer.bytes("t") / 1e6
    rows = peer.sql(f"SELECT count(*) FROM {t}")[0][0]
    queries = {
        "full scan, one sum": f"SELECT sum(amount), count(*) FROM {t}",
        "one partition": f"SELECT sum(amount), max(text) FROM {t} WHERE country = 'C07'",
        "filter on a plain column": f"SELECT sum(amount), max(text) FROM {t} WHERE category = 77",
        "one row": f"SELECT * FROM {t} WHERE id = {rows // 3}",
        "COUNT": f"SELECT count(*) FROM {t}",
        "COUNT by partition": f"SELECT country, count(*) FROM {t} GROUP BY country",
        "MIN and MAX of a double": f"SELECT min(amount), max(amount) FROM {t}",
        "MIN and MAX by partition": (
            f"SELECT country, min(amount), max(amount) FROM {t} GROUP BY country"
        ),
        "SUM by partition": f"SELECT country, sum(amount) FROM {t} GROUP BY country",
        "SUM by another column": f"SELECT category, sum(amount) FROM {t} GROUP BY category",
    }
    for name, query in queries.items():
        results[name] = median(lambda query=query: peer.sql(query), warm=WARM)
    results["full scan, all columns"] = median(lambda: peer.drain(f"SELECT * FROM {t}"), warm=WARM)
    peer.drop("t")
    bucketed = write("a", by="id", bucket=16)
    if peer.kind == "delta":  # it has no buckets, and writes the rows as they come
        bucketed()
    else:
        results["write 16 buckets"] = median(bucketed, warm=0)
    other = f"SELECT id, amount * 2 AS twice FROM parquet.`{data}/rows`"
    peer.make("b", other, by="id", bucket=16)
    peer.session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    join = (
        f"SELECT sum(a.amount + b.twice), count(*) FROM {peer.name('a')} a "
        f"JOIN {peer.name('b')} b ON a.id = b.id"
    )
    results["join by bucket"] = median(lambda: peer.sql(join), warm=WARM)
    peer.session.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    peer.drop("a")
    peer.drop("b")
    parts = f"SELECT *, id % 1000 AS part FROM parquet.`{data}/rows`"

    def write_many() -> None:
        peer.drop("many")
        peer.make("many", parts, by="part")

    results["write 1,000 partitions"] = median(write_many, warm=0)
    few = f"SELECT id, id % 100 AS part FROM parquet.`{data}/rows` WHERE id < 1000"
    peer.make("few", few, by="part")
    results["files of 100 partitions"] = peer.files("few")
    if peer.kind != "parquet":
        results |= changes(peer, source)
    return results


def first_query(peer: Peer) -> dict[str, float]:
    """The first query of a session, on the table of 1,000 partitions that another has written."""
    started = time.perf_counter()
    if peer.kind == "parquet":
        rows = peer.session.read.parquet(os.fspath(peer.path("many")))
        rows.createOrReplaceTempView(peer.name("many"))
    query = f"SELECT sum(amount), max(text) FROM {peer.name('many')} WHERE part = 77"
    peer.sql(query)
    return {"first query of a session": time.perf_counter() - started}


def changes(peer: Peer, source: str) -> dict[str, float]:
    """Changes of 1 % of the rows, each time other ones, and inserts of one row.

    Some take their rows from staged files, which say nothing about where these rows are.
    """
    peer.make("d", source, by="country", more=peer.changed)
    d = peer.name("d")
    turns = iter(range(100))

    def merge() -> None:
        rows = f"SELECT id, -1.0D AS amount FROM ({source}) WHERE id % 100 = {next(turns)}"
        peer.sql(
            f"MERGE INTO {d} t USING ({rows}) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET amount = s.amount"
        )

    staged = os.fspath(peer.folder / "staged")
    picked = f"SELECT id, -1.0D AS amount, pmod(hash(id), 100) AS part FROM ({source})"
    few = f"SELECT * FROM ({picked}) WHERE part < 12"
    peer.session.sql(few).write.partitionBy("part").parquet(staged)
    parts = iter(range(12))

    def merge_staged() -> None:
        rows = f"SELECT id, amount FROM parquet.`{staged}/part={next(parts)}`"
        peer.sql(
            f"MERGE INTO {d} t USING ({rows}) s ON t.id = s.id WHEN MATCHED THEN "
            "UPDATE SET amount = s.amount WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
        )

    def delete_staged() -> None:
        rows = f"SELECT id FROM parquet.`{staged}/part={next(parts)}`"
        if peer.kind == "delta":  # it takes no subquery in DELETE
            peer.sql(f"MERGE INTO {d} t USING ({rows}) s ON t.id = s.id WHEN MATCHED THEN DELETE")
        else:
            peer.sql(f"DELETE FROM {d} WHERE id IN ({rows})")

    columns = "(id, ts, country, amount, category, text)"
    row = "(-1, TIMESTAMP '2026-01-01', 'C00', 1.5D, 7, 'one')"
    return {
        "MERGE of 1 %": median(merge, warm=0),
        "UPDATE of 1 %": median(
            lambda: peer.sql(f"UPDATE {d} SET amount = -2 WHERE id % 100 = {next(turns)}"), warm=0
        ),
        "DELETE of 1 %": median(
            lambda: peer.sql(f"DELETE FROM {d} WHERE id % 100 = {next(turns)}"), warm=0
        ),
        "MERGE of staged rows": median(merge_staged),
        "UPDATE by LIKE": median(
            lambda: peer.sql(
                f"UPDATE {d} SET amount = -3 WHERE text LIKE '%{next(turns) % 16:x}7-payload%'"
            )
        ),
        "DELETE by a subquery": median(delete_staged),
        "INSERT of one row": median(lambda: peer.sql(f"INSERT INTO {d} {columns} VALUES {row}")),
    }


if __name__ == "__main__":
    system, data, folder, jars, *first = sys.argv[1:]
    peer = Peer(system, Path(folder), jars)
    try:
        figures = first_query(peer) if first else measure(peer, data)
        print(json.dumps({"spark": peer.session.version, "figures": figures}), flush=True)
    finally:
        peer.session.stop()
