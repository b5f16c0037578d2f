"""What the bridge between Spark and Python costs a query: warm, first, and after idle time.

Spark ends Python workers that were idle for a minute, so the next query starts them again. The cost
of a warm query is the total time of its calls into the planner. The extra cost after idle time is
the time of the whole query, less the time of a warm one.
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
#: Seconds until Spark has noticed: it checks for idle workers every ten seconds.
_LOOKS = 11


def main() -> int:
    # An installed package has bytecode files. Have them written here too, for new workers.
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
    # Warm up Spark and its Python before the first call into Phalanx.
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
        Figure(f"the first query after {_IDLE} s idle, whole", idle * 1e3, "ms"),
        Figure(f"after {_IDLE} s idle, time in calls into the planner", planner * 1e3, "ms"),
        Figure(f"after {_IDLE} s idle, extra over a warm query", (idle - warm) * 1e3, "ms", 800),
    ]


if __name__ == "__main__":
    sys.exit(main())
