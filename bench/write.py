"""Write 5M rows to 500 leaves, compared with one Lance dataset."""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import phalanx
from bench.measure import Figure, interleaved, peak_memory

ROWS, LEAVES = 5_000_000, 500


def rows() -> pa.Table:
    random = np.random.default_rng(7)
    countries = pa.array(["US", "DE", "FR", "GB", "JP"])
    return pa.table(
        {
            "id": np.arange(ROWS),
            "tenant": random.integers(0, LEAVES, ROWS).astype("int32"),
            "value": random.random(ROWS),
            "country": countries.take(pa.array(random.integers(0, 5, ROWS))),
        }
    )


def main() -> int:
    data = rows()
    folder = Path(tempfile.mkdtemp())

    fresh = (folder / str(number) for number in itertools.count())

    def one() -> None:
        lance.write_dataset(data, next(fresh))

    def many() -> None:
        table = phalanx.create(next(fresh), data.schema, partition_by=["tenant"])
        table.append(data)

    try:
        baseline, ours = interleaved(5, one, many)
    finally:
        shutil.rmtree(folder)
    figures = [
        Figure("one dataset", baseline, "s"),
        Figure(f"{LEAVES} leaves", ours, "s"),
        Figure(f"{LEAVES} leaves / one dataset", ours / baseline, "x", 6),
        Figure("peak memory", peak_memory(), "MB", 1500),
    ]
    print(*figures, sep="\n")
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
