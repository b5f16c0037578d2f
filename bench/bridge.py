"""What the bridge between Spark and Python costs a query: warm, at first, and after idleness.

Spark ends its idle Python workers after a minute, so the first query after one starts them anew.
The cost of a warm query is the time that its calls into the planner take, all together; what a
query costs more after idleness is its whole time, less the time of a warm one.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from typing import Any

from bench.measure import Figure, seconds
from phalanx.spark import session

QUERY = "SELECT sum(id) FROM lake.db.events WHERE country = 'US'"
_IDLE = 61
#: Spark looks for idle workers every ten seconds.
_LOOKS = 11


def main() -> int:
    # An installed package is compiled; so must this one be, for workers that have just started.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        spark = session(
            f"{folder}/lake",
            master="local[2]",
            conf={"spark.ui.enabled": "false", "spark.log.level": "ERROR"},
        )
        try:
            figures = measure(spark)
        finally:
            spark.stop()
    print(*figures, sep="\n")
    return int(not all(figure.ok for figure in figures))


def measure(spark: Any) -> list[Figure]:
    # Spark itself is warm, and so is its Python, before the first call of ours.
    spark.range(10).selectExpr("sum(id)").collect()
    first = seconds(lambda: spark.sql("SHOW NAMESPACES IN lake").collect())
    spark.sql("CREATE NAMESPACE lake.db")
    spark.sql(
        "CREATE TABLE lake.db.events (id BIGINT, country STRING) USING phalanx "
        "PARTITIONED BY (country, bucket(4, id))"
    )
    spark.sql(
        "INSERT INTO lake.db.events SELECT id, element_at(array('US', 'DE', 'FR'), "
        "int(id % 3) + 1) FROM range(1000)"
    )
    bridge = spark._jvm.org.apache.spark.sql.phalanx.Bridge

    def query() -> None:
        spark.sql(QUERY).collect()

    for _ in range(20):
        query()
    whole, calls, counts = [], [], []
    for _ in range(21):
        spent, count = bridge.spent(), bridge.calls()
        whole.append(seconds(query))
        calls.append((bridge.spent() - spent) / 1e9)
        counts.append(bridge.calls() - count)
    warm = statistics.median(whole)
    time.sleep(_IDLE + _LOOKS)
    spent = bridge.spent()
    idle = seconds(query)
    planner = (bridge.spent() - spent) / 1e9
    return [
        Figure("the first call in a fresh session", first * 1e3, "ms"),
        Figure("a warm query, whole", warm * 1e3, "ms"),
        Figure("a warm query, calls into the planner", statistics.median(counts), "calls"),
        Figure("a warm query, time in those calls", statistics.median(calls) * 1e3, "ms", 15),
        Figure(f"the first query after {_IDLE} s of idleness, whole", idle * 1e3, "ms"),
        Figure(f"after {_IDLE} s, time in calls into the planner", planner * 1e3, "ms"),
        Figure(f"after {_IDLE} s, more than a warm query", (idle - warm) * 1e3, "ms", 800),
    ]


if __name__ == "__main__":
    sys.exit(main())
