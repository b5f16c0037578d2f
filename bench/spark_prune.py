"""A query for one partition of many in Spark, compared with Hive-partitioned Parquet.

Parquet is measured twice: opened in the query, so that Spark lists every folder, and with the
listing already done. The Phalanx table is opened in the query both times.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import phalanx
from bench.engine import spark
from bench.measure import Figure, interleaved

ROWS = 100
RUNS = 7
#: How many times faster than Parquet opened in the query, by the number of partitions.
WANTED = {1_000: 10, 10_000: 100}


def make(folder: Path, count: int) -> None:
    """Write equal rows to a Phalanx table and to a tree of Parquet files."""
    schema = pa.schema([("tenant", pa.int32()), ("id", pa.int64()), ("x", pa.float64())])
    table = phalanx.create(folder / "lake" / "db" / f"t{count}", schema, ["tenant"])
    ids = pa.array(range(count * ROWS), pa.int64())
    tenants = pa.array([n // ROWS for n in range(count * ROWS)], pa.int32())
    data = pa.table([tenants, ids, pa.array([0.5] * (count * ROWS))], schema=schema)
    table.append(data)
    for tenant in range(count):
        part = folder / f"parquet{count}" / f"tenant={tenant}"
        part.mkdir(parents=True)
        rows = data.slice(tenant * ROWS, ROWS).drop_columns(["tenant"])
        pq.write_table(rows, part / "part-0.parquet")


def compare(engine: Any, folder: Path, count: int) -> list[Figure]:
    wanted = count // 2
    path = str(folder / f"parquet{count}")
    engine.read.parquet(path).createOrReplaceTempView("listed")

    def ours() -> None:
        query = f"SELECT sum(id), sum(x) FROM lake.db.t{count} WHERE tenant = {wanted}"
        assert engine.sql(query).collect()[0][1] == ROWS / 2

    def opened() -> None:
        rows = engine.read.parquet(path).where(f"tenant = {wanted}")
        assert rows.selectExpr("sum(id)", "sum(x)").collect()[0][1] == ROWS / 2

    def listed() -> None:
        query = f"SELECT sum(id), sum(x) FROM listed WHERE tenant = {wanted}"
        assert engine.sql(query).collect()[0][1] == ROWS / 2

    for _ in range(3):
        ours()
        listed()
    mine, known = interleaved(RUNS, ours, listed)
    again, fresh = interleaved(3, ours, opened)
    text = f"1 of {count:,} partitions: {mine * 1e3:.0f} ms"
    return [
        Figure(
            f"{text}, Parquet {fresh * 1e3:.0f} ms",
            fresh / again,
            "x",
            WANTED[count],
            at_least=True,
        ),
        Figure(f"{text}, Parquet with its listing {known * 1e3:.0f} ms", mine / known, "x", 1.3),
    ]


def main() -> int:
    folder = Path(tempfile.mkdtemp())
    engine = spark(folder)
    figures: list[Figure] = []
    try:
        for count in WANTED:
            make(folder, count)
            figures += compare(engine, folder, count)
            print(*figures[-2:], sep="\n", flush=True)
    finally:
        engine.stop()
        shutil.rmtree(folder)
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
