"""Merges: what a row of the source costs, by the size of the source and by what is in the key."""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import phalanx
from bench.measure import Figure

ROWS = 2_000_000
DAYS, COUNTRIES = 180, ("US", "DE", "FR")
SIZES = (1_000, 10_000, 100_000, 1_000_000)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us")),
        ("country", pa.string()),
        ("amount", pa.float64()),
        ("note", pa.string()),
    ]
)


def rows(count: int) -> pa.Table:
    """Events of half a year, in 540 partitions."""
    ids = np.arange(count)
    start = np.datetime64("2024-01-01T00:00:00", "us")
    seconds = (ids * 7919) % (DAYS * 86_400)
    countries = pa.DictionaryArray.from_arrays(
        pa.array(ids % len(COUNTRIES), pa.int32()), list(COUNTRIES)
    )
    return pa.table(
        {
            "id": ids,
            "ts": start + seconds.astype("timedelta64[s]"),
            "country": countries.cast(pa.string()),
            "amount": ids.astype(float),
            "note": pa.repeat("as it was written first", count),
        },
        schema=SCHEMA,
    )


def merged(base: Path, folder: Path, source: pa.Table, on: list[str]) -> float:
    """Seconds that a merge into a fresh copy of a table takes."""
    copy = folder / "copy"
    shutil.copytree(base, copy)
    table = phalanx.open(copy)
    started = time.perf_counter()
    counts = table.merge(source, on=on)
    took = time.perf_counter() - started
    assert counts.updated == source.num_rows, counts
    shutil.rmtree(copy)
    return took


def main() -> int:
    figures = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        base = folder / "base"
        whole = rows(ROWS)
        phalanx.create(base, SCHEMA, ["days(ts)", "country"]).append(whole)
        random = np.random.default_rng(5)
        for on in (["id", "ts", "country"], ["id"]):
            key, costs = ", ".join(on), []
            for size in SIZES:
                chosen = np.sort(random.choice(ROWS, size, replace=False))
                took = merged(base, folder, whole.take(pa.array(chosen)), on)
                costs.append(took / size)
                name = f"{size:,} rows into 2M by {key}, {size / took:,.0f} a second"
                figures.append(Figure(name, took, "s", 5 if size == 100_000 else None))
                print(figures[-1], flush=True)
            worst = max(more / less for less, more in itertools.pairwise(costs))
            figures.append(Figure("cost of a row, 10 times the rows / the rows", worst, "x", 1))
            print(figures[-1], flush=True)
        partial = whole.slice(0, 100_000).select(["id", "ts", "country", "amount"])
        took = merged(base, folder, partial, ["id", "ts", "country"])
        figures.append(Figure("100,000 rows that lack a column", took, "s"))
        print(figures[-1])
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
