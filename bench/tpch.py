"""All queries of TPC-H on partitioned tables, compared with unpartitioned Parquet files.

`tpchgen-cli` makes the data. Set TPCH_SCALE for another scale than 0.3, and TPCH_QUERIES to run
only some, for example `q1,q6`. The answers must be equal to the last row.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.engine import spark
from bench.measure import Figure, interleaved
from bench.tpch_queries import QUERIES

SCALE = os.environ.get("TPCH_SCALE", "0.3")
RUNS = 3
#: The tables with what they are partitioned by.
TABLES = {
    "lineitem": "months(l_shipdate), bucket(8, l_orderkey)",
    "orders": "bucket(16, o_orderkey)",
    "customer": "c_mktsegment, bucket(4, c_custkey)",
    "part": "bucket(4, p_partkey)",
    "partsupp": "bucket(8, ps_partkey)",
    "supplier": "bucket(2, s_suppkey)",
    "nation": "",
    "region": "",
}


def make(engine: Any, folder: Path) -> None:
    """Generate the rows, keep them as Parquet and as tables of ours."""
    generator = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent))
    if generator is None:
        raise SystemExit("tpchgen-cli is missing: 'make setup' installs it")
    subprocess.run(
        [generator, "parquet", "-s", SCALE, "--output-dir", str(folder / "source")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for table, partitioning in TABLES.items():
        engine.read.parquet(str(folder / "source" / f"{table}.parquet")).write.parquet(
            str(folder / "parquet" / table)
        )
        rows = engine.read.parquet(str(folder / "parquet" / table))
        rows.createOrReplaceTempView(f"parquet_{table}")
        by = f"PARTITIONED BY ({partitioning})" if partitioning else ""
        engine.sql(
            f"CREATE TABLE lake.db.{table} USING phalanx {by} AS SELECT * FROM parquet_{table}"
        )


def compare(engine: Any, name: str) -> tuple[float, float | None]:
    """The seconds that a query takes, with us and with Parquet; None if it ran out of memory."""
    ours = QUERIES[name].format(**{table: f"lake.db.{table}" for table in TABLES})
    parquet = QUERIES[name].format(**{table: f"parquet_{table}" for table in TABLES})
    answer = engine.sql(ours).collect()
    try:
        wanted = engine.sql(parquet).collect()
        if answer != wanted:
            raise AssertionError(f"{name} differs: {answer[:3]} and {wanted[:3]}")
        mine, theirs = interleaved(
            RUNS, lambda: engine.sql(ours).collect(), lambda: engine.sql(parquet).collect()
        )
        return mine, theirs
    except Exception as error:
        # Spark broadcasts files by their compressed size.
        if "Not enough memory to build and broadcast" not in str(error):
            raise
        return interleaved(RUNS, lambda: engine.sql(ours).collect())[0], None


def main() -> int:
    folder = Path(tempfile.mkdtemp())
    engine = spark(folder, **{"spark.driver.memory": os.environ.get("TPCH_MEMORY", "1g")})
    names = os.environ.get("TPCH_QUERIES", ",".join(QUERIES)).split(",")
    figures, totals = [], [0.0, 0.0]
    try:
        make(engine, folder)
        for name in names:
            mine, theirs = compare(engine, name)
            if theirs is None:
                print(f"scale {SCALE}, {name}: {mine:.2f} s, Parquet ran out of memory", flush=True)
                continue
            totals = [totals[0] + mine, totals[1] + theirs]
            text = f"scale {SCALE}, {name}: {mine:.2f} s, Parquet {theirs:.2f} s"
            figures.append(Figure(text, mine / theirs, "x", 1.3))
            print(figures[-1], flush=True)
        text = f"scale {SCALE}, all: {totals[0]:.1f} s, Parquet {totals[1]:.1f} s"
        figures.append(Figure(text, totals[0] / totals[1], "x", 0.9))
        print(figures[-1], flush=True)
    finally:
        engine.stop()
        shutil.rmtree(folder)
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
