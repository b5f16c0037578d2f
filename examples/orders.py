"""Orders and customers in Spark: a join without a shuffle, although the buckets differ.

Run it with `python examples/orders.py`. `--orders` scales it up.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from typing import Any

#: An exchange that moves rows by the keys of a join or an aggregate.
SHUFFLE = re.compile(r"Exchange hashpartitioning")


def main(spark: Any, namespace: str, count: int = 20_000) -> dict[str, object]:
    """Returns the figures, for those who want to compare them. `namespace` must exist."""
    customers, orders = f"{namespace}.customers", f"{namespace}.orders"
    people = max(count // 20, 1)
    spark.sql(
        f"CREATE TABLE {customers} (id BIGINT NOT NULL, name STRING, country STRING) "
        "USING phalanx PARTITIONED BY (bucket(4, id))"
    )
    spark.sql(
        f"CREATE TABLE {orders} (id BIGINT NOT NULL, customer BIGINT, amount DECIMAL(10, 2)) "
        "USING phalanx PARTITIONED BY (bucket(8, customer))"
    )
    spark.sql(
        f"INSERT INTO {customers} SELECT id, 'customer ' || id, "
        f"element_at(array('US', 'DE', 'FR'), CAST(id % 3 AS INT) + 1) FROM range({people})"
    )
    spark.sql(
        f"INSERT INTO {orders} SELECT id, id * 7919 % {people}, CAST(id % 500 AS DECIMAL(10, 2)) "
        f"FROM range({count})"
    )
    # Small tables are broadcast, which needs no shuffle either. Large ones cannot be.
    threshold = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        join = spark.sql(
            f"SELECT c.country, o.amount FROM {orders} o JOIN {customers} c ON o.customer = c.id"
        )
        shuffles = len(SHUFFLE.findall(plan_of(join)))
        joined = join.count()
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", threshold)
    print(f"{joined:,} orders joined with their customers, {shuffles} shuffles")

    best = spark.sql(
        f"SELECT c.country, sum(o.amount) AS total FROM {orders} o "
        f"JOIN {customers} c ON o.customer = c.id GROUP BY c.country ORDER BY total DESC"
    ).collect()
    for row in best:
        print(f"  {row.country}  {row.total:>12,}")
    one = spark.sql(f"SELECT * FROM {orders} WHERE customer = 17")
    print(f"the orders of one customer: {one.count()}")
    print(next(line for line in plan_of(one).splitlines() if "partitions" in line).strip()[:160])
    return {"joined": joined, "shuffles": shuffles, "total": sum(row.total for row in best)}


def plan_of(frame: Any) -> str:
    """The physical plan as text."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


if __name__ == "__main__":
    from phalanx.spark import session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=20_000, help="how many orders to make")
    with tempfile.TemporaryDirectory() as temporary:
        running = session(temporary, master="local[2]", conf={"spark.log.level": "ERROR"})
        running.sql("CREATE NAMESPACE lake.shop")
        main(running, "lake.shop", parser.parse_args().orders)
        running.stop()
