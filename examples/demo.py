"""`make demo`: a table of a few hundred thousand rows, made, looked at and queried."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import phalanx

ROWS = 300_000
START = 1_735_689_600_000_000  # 2025-01-01T00:00:00Z in microseconds
COUNTRIES = ["US", "DE", "FR", "JP", None]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("ts", pa.timestamp("us", "UTC")),
        ("country", pa.string()),
        ("amount", pa.float64()),
    ]
)


def events() -> pa.Table:
    random = np.random.default_rng(42)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "ts": pa.array(START + random.integers(0, 75 * 86_400_000_000, ROWS), SCHEMA[1].type),
            "country": pa.array(COUNTRIES).take(pa.array(random.integers(0, 5, ROWS))),
            "amount": random.gamma(2.0, 20.0, ROWS).round(2),
        },
        schema=SCHEMA,
    )


def tree(table: phalanx.Table, deepest: int = 3, widest: int = 3) -> str:
    """The first branches of the partition tree, with the rows below each."""
    fields = [field.field_id for field in table.spec.fields]
    rows = table.partitions().select([*fields, "rows"]).to_pylist()
    lines: list[str] = []

    def show(rows: list[dict[str, object]], depth: int) -> None:
        if depth == min(deepest, len(fields)):
            return
        groups: dict[object, list[dict[str, object]]] = {}
        for row in rows:
            groups.setdefault(row[fields[depth]], []).append(row)
        for number, (value, inside) in enumerate(groups.items()):
            if number == widest:
                lines.append("  " * depth + f"… {len(groups) - widest} more")
                return
            total = sum(int(str(row["rows"])) for row in inside)
            name = f"{fields[depth]}={'NULL' if value is None else value}"
            lines.append("  " * depth + f"{name:<16} {len(inside):>4} leaves {total:>9,} rows")
            show(inside, depth + 1)

    show(rows, 0)
    return "\n".join(lines)


def step(title: str) -> None:
    print(f"\n\033[1m{title}\033[0m" if sys.stdout.isatty() else f"\n{title}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        step("A table, partitioned by month, country and a bucket of the id")
        table = phalanx.create(
            Path(folder) / "events",
            SCHEMA,
            partition_by=["months(ts)", "country", "bucket(4, id)"],
        )
        print(table)

        step(f"{ROWS:,} rows, appended in one transaction")
        start = time.perf_counter()
        table.append(events())
        print(f"version {table.version}, {time.perf_counter() - start:.2f} s")
        print(tree(table))

        step("A query, explained")
        where = "ts >= '2025-02-10' AND ts < '2025-02-12' AND country = 'DE' AND amount > 100"
        scan = table.scan(columns=["id", "ts", "amount"], where=where)
        print(scan.explain())
        start = time.perf_counter()
        print(f"{scan.to_arrow().num_rows} rows in {(time.perf_counter() - start) * 1e3:.0f} ms")

        step("Counts from metadata: no leaf is opened")
        start = time.perf_counter()
        print(f"{table.count():,} rows in all; by country:")
        for row in table.count_by(["country"]).to_pylist():
            print(f"  {row['country'] or 'NULL':<5} {row['count']:>7,}")
        print(f"{(time.perf_counter() - start) * 1e3:.1f} ms")

        step("Time travel")
        before = phalanx.open(Path(folder) / "events", version=1)
        print(f"version 1 had {before.count()} rows")

        step("The same table in Spark (starting it takes a moment)")
        in_spark(Path(folder))


def in_spark(folder: Path) -> None:
    """The table from a Spark session: an aggregate, a pruned query, and a change."""
    from phalanx.spark import session

    quiet = {"spark.log.level": "ERROR", "spark.ui.enabled": "false"}
    quiet |= {"spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}
    spark = session(folder / "warehouse", master="local[2]", conf=quiet)
    try:
        events = spark.read.format("phalanx").load(str(folder / "events"))
        events.createOrReplaceTempView("events")
        spark.sql("SELECT country, count(*) AS events FROM events GROUP BY 1 ORDER BY 1").show()
        spark.sql("SELECT id FROM events WHERE ts >= '2025-03-10' AND country = 'JP'").explain()
        spark.sql("CREATE NAMESPACE lake.db")
        spark.sql(
            "CREATE TABLE lake.db.totals USING phalanx PARTITIONED BY (country) AS "
            "SELECT country, id % 100 AS customer, sum(amount) AS total FROM events GROUP BY 1, 2"
        )
        spark.sql("DELETE FROM lake.db.totals WHERE country = 'US' OR customer >= 50")
        print("a new table, and a DELETE over its partitions, each one transaction:")
        spark.sql(
            "SELECT version, operation, rows_added, rows_removed, leaves "
            "FROM lake.db.totals.snapshots"
        ).show()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
