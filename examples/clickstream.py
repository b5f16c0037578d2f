"""A clickstream that outgrows its partitions: from days to hours, without a pause.

Run it with `python examples/clickstream.py`. `--clicks` scales it up.
"""

from __future__ import annotations

import argparse
import datetime as dt
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import phalanx

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", pa.int64()), ("page", pa.string())])


def clicks(day: int, count: int) -> pa.Table:
    """The clicks of one day."""
    random = np.random.default_rng(day)
    start = int(START.timestamp() * 1e6) + day * 86_400_000_000
    return pa.table(
        {
            "ts": pa.array(
                np.sort(start + random.integers(0, 86_400_000_000, count)), SCHEMA[0].type
            ),
            "user": random.integers(0, 1000, count),
            "page": pa.array([f"page{number}" for number in random.integers(0, 50, count)]),
        },
        schema=SCHEMA,
    )


def main(folder: Path, count: int = 2_400) -> dict[str, object]:
    """Returns the figures, for those who want to compare them."""
    table = phalanx.create(folder / "clicks", SCHEMA, partition_by=["days(ts)"])
    for day in range(5):
        table.append(clicks(day, count))
    hour = "ts >= '2026-03-{day:02} 12:00:00Z' AND ts < '2026-03-{day:02} 13:00:00Z'"
    before = table.scan(where=hour.format(day=5)).plan()
    rows = sum(leaf.rows for leaf in before.leaves)
    print(f"by day:  one hour reads {before.selected} of {before.total} leaves, {rows:,} rows")

    # Traffic has grown: from now on, by hour. Nothing that is there is touched.
    table.evolve_partitioning(["hours(ts)"])
    table.append(clicks(5, count))
    after = table.scan(where=hour.format(day=6)).plan()
    fewer = sum(leaf.rows for leaf in after.leaves)
    print(f"by hour: one hour reads {after.selected} of {after.total} leaves, {fewer:,} rows")

    table.add_column("device", pa.string(), default="unknown")
    both = table.scan(["device"], where="ts >= '2026-03-05' AND ts < '2026-03-07'").to_arrow()
    print(f"a query over both specs: {both.num_rows:,} rows, with a column added since")

    print(table.rewrite(where="ts >= '2026-03-05' AND ts < '2026-03-06'"))
    moved = table.scan(where=hour.format(day=5)).plan()
    print(f"after moving March 5: one hour of it reads {moved.selected} leaf")
    print(f"versions: {[row['operation'] for row in table.snapshots().to_pylist()]}")
    return {
        "rows_before": rows,
        "rows_after": fewer,
        "both": both.num_rows,
        "moved": sum(leaf.rows for leaf in moved.leaves),
        "count": len(table),
        "ok": table.check().ok,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, default=2_400, help="clicks for each day")
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary), parser.parse_args().clicks)
