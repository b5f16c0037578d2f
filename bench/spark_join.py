"""Joins, aggregates and merges in Spark, each compared with the optimization turned off.

- 10M rows joined with 10M, on bucketed keys (16 and 8 buckets): with and without a shuffle.
- COUNT and GROUP BY over 1,000 partitions: answered by the manifest, compared with a query that
  reads nothing, and with the same queries if the manifest cannot answer them.
  `python -m bench.spark_join 100` runs this part with 100M rows as well.
- A star join that selects 1 % of the partitions: with and without dynamic pruning.
- A MERGE that changes 1 % of 10M rows, compared with rewriting the partitions that it touches.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.engine import drain, spark
from bench.measure import Figure, interleaved

MILLION = 1_000_000
RUNS = 5


def join(engine: Any) -> Iterator[Figure]:
    rows = 10 * MILLION
    for name, buckets, value in (("a", 16, "x"), ("b", 8, "y")):
        engine.sql(
            f"CREATE TABLE lake.db.{name} PARTITIONED BY (bucket({buckets}, id)) AS "
            f"SELECT id, id * 3 % 1009 AS {value}, rand(7) AS {value}2 FROM range({rows})"
        )
    query = (
        "SELECT sum(a.x * b.y), sum(a.x2 + b.y2) FROM lake.db.a a JOIN lake.db.b b ON a.id = b.id"
    )

    def work() -> None:
        engine.sql(query).collect()

    with conf(engine, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
        off = under(engine, {"spark.sql.sources.v2.bucketing.enabled": "false"}, work)
        ours, shuffled = interleaved(RUNS, work, off)
        hashed = {"spark.sql.join.preferSortMergeJoin": "false"}
        mine, others = interleaved(RUNS, under(engine, hashed, work), under(engine, hashed, off))
    yield Figure("join 10M with 10M, 16 with 8 buckets, no shuffle", ours * 1e3, "ms")
    yield Figure("join 10M with 10M, 16 with 8 buckets, with a shuffle", shuffled * 1e3, "ms")
    yield Figure("shuffled / not shuffled", shuffled / ours, "x", 2, at_least=True)
    yield Figure("shuffled / not shuffled, if Spark prefers hash joins", others / mine, "x")


def answers(engine: Any, rows: int) -> Iterator[Figure]:
    millions = rows // MILLION
    table = f"lake.db.counted{millions}"
    engine.sql(
        f"CREATE TABLE {table} PARTITIONED BY (tenant) AS "
        f"SELECT id, CAST(id % 1000 AS INT) AS tenant, rand(7) AS x FROM range({rows})"
    )
    queries = {
        "COUNT": f"SELECT count(*) FROM {table}",
        "GROUP BY": f"SELECT tenant, count(*) FROM {table} GROUP BY tenant",
    }
    for name, query in queries.items():

        def ours(query: str = query) -> None:
            engine.sql(query).collect()

        def nothing() -> None:
            engine.sql("SELECT count(*) FROM VALUES (1)").collect()

        # A condition that is always true, and that only Spark can evaluate.
        by = query.replace(f"FROM {table}", f"FROM {table} WHERE pmod(hash(id), 7) >= 0")

        def reading(query: str = by) -> None:
            engine.sql(query).collect()

        for _ in range(5):
            ours()
            nothing()
        mine, least = interleaved(21, ours, nothing)
        again, read = interleaved(3, ours, reading)
        text = f"{name}, {millions}M rows in 1,000 partitions"
        yield Figure(
            f"{text}: {mine * 1e3:.0f} ms, nothing {least * 1e3:.0f}", mine / least, "x", 1.3
        )
        yield Figure(f"{text}: reading {read * 1e3:.0f} ms / from the manifest", read / again, "x")


def star(engine: Any) -> Iterator[Figure]:
    engine.sql(
        "CREATE TABLE lake.db.facts PARTITIONED BY (day) AS "
        "SELECT id, CAST(id % 1000 AS INT) AS day, "
        f"rand(7) AS x, uuid() AS name FROM range({10 * MILLION})"
    )
    engine.sql(
        "CREATE TABLE lake.db.days AS "
        "SELECT CAST(id AS INT) AS day, CAST(id % 100 AS INT) AS kind FROM range(1000)"
    )
    query = (
        "SELECT sum(x), max(name) FROM lake.db.facts f JOIN lake.db.days d ON f.day = d.day "
        "WHERE d.kind = 7"
    )

    def work() -> None:
        engine.sql(query).collect()

    off = {"spark.sql.optimizer.dynamicPartitionPruning.enabled": "false"}
    for _ in range(8):
        work()
    pruned, whole = interleaved(RUNS, work, under(engine, off, work))
    yield Figure("star join, 1 % of 1,000 partitions, pruned", pruned * 1e3, "ms")
    yield Figure("not pruned / pruned", whole / pruned, "x", 5, at_least=True)


def merge(engine: Any) -> Iterator[Figure]:
    columns = "id, CAST(id % 100 AS INT) AS part, id * 2 AS n, rand(7) AS x, uuid() AS name"
    engine.sql(
        f"CREATE TABLE lake.db.merged PARTITIONED BY (part) AS SELECT {columns} "
        f"FROM range({10 * MILLION})"
    )
    engine.sql(
        "CREATE TABLE lake.db.news AS SELECT id * 100 + id % 100 AS id, id AS n "
        f"FROM range({MILLION // 10})"
    )
    changed = "SELECT t.id, t.part, coalesce(s.n, t.n) AS n, t.x, t.name"

    def merged() -> None:
        engine.sql(
            "MERGE INTO lake.db.merged t USING lake.db.news s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET n = s.n"
        )

    def rewritten() -> None:
        with conf(engine, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
            engine.sql(
                f"INSERT OVERWRITE lake.db.merged {changed} FROM lake.db.merged t "
                "LEFT JOIN lake.db.news s ON t.id = s.id"
            )

    mine, whole = interleaved(2, merged, rewritten)
    yield Figure("MERGE of 1 % of 10M rows", mine, "s")
    yield Figure("rewriting the partitions / MERGE", whole / mine, "x", 1, at_least=True)


@contextmanager
def conf(engine: Any, values: dict[str, str]) -> Iterator[None]:
    before = {key: engine.conf.get(key) for key in values}
    for key, value in values.items():
        engine.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            engine.conf.set(key, value)


def under(engine: Any, values: dict[str, str], work: Callable[[], None]) -> Callable[[], None]:
    def changed() -> None:
        with conf(engine, values):
            work()

    return changed


def main() -> int:
    folder = Path(tempfile.mkdtemp())
    engine = spark(folder)
    figures: list[Figure] = []
    started = time.monotonic()
    try:
        drain(engine.range(1000))
        parts = [join(engine), answers(engine, 10 * MILLION), star(engine), merge(engine)]
        if sys.argv[1:]:
            parts.append(answers(engine, int(sys.argv[1]) * MILLION))
        for part in parts:
            for figure in part:
                print(figure, flush=True)
                figures.append(figure)
    finally:
        engine.stop()
        shutil.rmtree(folder)
    print(f"{time.monotonic() - started:.0f} s")
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
