"""Full scans in Spark, compared with Spark's own Parquet reader on the same rows.

One table has 4M rows of ordinary columns, the other 500k rows with a vector of 768 floats that
no query selects.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.engine import drain, spark
from bench.measure import Figure, interleaved

ROWS = 4_000_000
WIDE_ROWS = 500_000
RUNS = 7

NARROW = (
    "SELECT id, id * 7 % 1000003 AS a, CAST(id % 1000 AS INT) AS b, rand(7) AS x, rand(8) AS y, "
    "concat('name-', id % 5000) AS name, TIMESTAMP '2024-01-01' + make_dt_interval(0, 0, 0, id) AS "
    "ts, concat('C', lpad(id % 20, 2, '0')) AS country FROM range({rows})"
)
WIDE = (
    "SELECT id, rand(1) AS x, concat('doc-', id) AS name, concat('C', id % 10) AS country, "
    "transform(sequence(1, 768), i -> CAST((id + i) % 97 AS FLOAT)) AS v FROM range({rows})"
)
#: Queries by name, each with the upper bound of Phalanx's time over Parquet's.
QUERIES = {
    "all but a string": ("SELECT id, a, b, x, y, ts FROM {table}", 1.15),
    "every column": ("SELECT * FROM {table}", 1.15),
    "aggregates": ("SELECT b % 20, sum(a), avg(x), max(ts) FROM {table} GROUP BY 1", 1.15),
    "aggregates by partition, without a shuffle": (
        "SELECT country, sum(a), avg(x), max(ts) FROM {table} GROUP BY country",
        1.15,
    ),
    "filter": ("SELECT id, x, name FROM {table} WHERE b < 500 AND x > 0.5", 1.15),
    "one narrow column": ("SELECT b FROM {table}", 1.3),
}
WIDE_QUERIES = {
    "without the vector": ("SELECT id, x, name, country FROM {table}", 1.15),
    "aggregates": ("SELECT country, sum(x), max(id) FROM {table} GROUP BY country", 1.15),
    "one narrow column": ("SELECT x FROM {table}", 1.3),
}


def make(engine: Any, folder: Path, name: str, query: str, properties: str = "") -> dict[str, str]:
    """Write equal rows to a Phalanx table and to Parquet files."""
    engine.sql(
        f"CREATE TABLE lake.db.{name} USING phalanx PARTITIONED BY (country) "
        f"{properties} AS {query}"
    )
    rows = engine.sql(query)
    rows.repartition("country").write.parquet(str(folder / name))
    engine.read.parquet(str(folder / name)).createOrReplaceTempView(f"parquet_{name}")
    return {"ours": f"lake.db.{name}", "parquet": f"parquet_{name}"}


def compare(engine: Any, tables: dict[str, str], queries: Any, label: str) -> list[Figure]:
    figures = []
    for name, (query, bound) in queries.items():

        def ours(query: str = query) -> None:
            drain(engine.sql(query.format(table=tables["ours"])))

        def parquet(query: str = query) -> None:
            drain(engine.sql(query.format(table=tables["parquet"])))

        for _ in range(2):
            ours()
            parquet()
        mine, theirs = interleaved(RUNS, ours, parquet)
        text = f"{label}, {name}: {mine:.2f} s, Parquet {theirs:.2f} s"
        figures.append(Figure(text, mine / theirs, "x", bound))
        print(figures[-1], flush=True)
    return figures


def main() -> int:
    folder = Path(tempfile.mkdtemp())
    engine = spark(folder)
    try:
        narrow = make(engine, folder, "narrow", NARROW.format(rows=ROWS))
        figures = compare(engine, narrow, QUERIES, "4M rows")
        vector = "TBLPROPERTIES ('vector.v.dimension' = '768')"
        wide = make(engine, folder, "wide", WIDE.format(rows=WIDE_ROWS), vector)
        figures += compare(engine, wide, WIDE_QUERIES, "768 floats")
    finally:
        engine.stop()
        shutil.rmtree(folder)
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
