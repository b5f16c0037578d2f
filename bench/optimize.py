"""Optimize 1,000 leaves of 20 small files each, compared with pylance on one leaf after another.

The number of leaves can be passed as an argument.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import phalanx
from bench.measure import Figure, interleaved, peak_memory

LEAVES, FILES, ROWS = 1_000, 20, 50
RUNS = 3


def build(folder: Path, leaves: int) -> None:
    """Create a table of small files, with every leaf anchored for plain Lance."""
    schema = pa.schema([("id", pa.int64()), ("tenant", pa.int32()), ("value", pa.float64())])
    table = phalanx.create(folder, schema, partition_by=["tenant"])
    random, count = np.random.default_rng(7), leaves * ROWS
    for number in range(FILES):
        if number == FILES - 1:
            table.set_properties({"anchor": "commit"})
        table.append(
            pa.table(
                {
                    "id": np.arange(number * count, (number + 1) * count),
                    "tenant": (np.arange(count) % leaves).astype("int32"),
                    "value": random.random(count),
                }
            )
        )
    table.set_properties({"anchor": "maintenance"})


def main(leaves: int) -> int:
    root = Path(tempfile.mkdtemp())
    try:
        build(root / "table", leaves)
        expected = phalanx.open(root / "table").count()
        # Every run has its own copy, created before timing starts.
        names = [f"{who}-{run}" for run in range(RUNS) for who in ("pylance", "phalanx")]
        for name in names:
            shutil.copytree(root / "table", root / name)
        left = iter(names)

        def baseline() -> None:
            for leaf in phalanx.open(root / next(left)).partitions()["uri"].to_pylist():
                lance.dataset(leaf).optimize.compact_files()

        def ours() -> None:
            report = phalanx.open(root / next(left)).optimize()
            assert (report.rewritten, report.files_after) == (leaves, leaves), str(report)

        slow, fast = interleaved(RUNS, baseline, ours)
        for name in names:
            table = phalanx.open(root / name)
            assert table.count() == expected
            where = f"tenant = {leaves // 2}"
            assert table.count(f"{where} AND id >= 0") == FILES * ROWS
            uri = table.scan(where=where).plan().leaves[0].uri
            assert len(lance.dataset(uri).get_fragments()) == 1
    finally:
        shutil.rmtree(root)
    figures = [
        Figure(f"{leaves} leaves, pylance one after another", slow, "s"),
        Figure(f"{leaves} leaves, optimize", fast, "s"),
        Figure("pylance / optimize", slow / fast, "x", 1.3, at_least=True),
        Figure("peak memory", peak_memory(), "MB"),
    ]
    print(*figures, sep="\n")
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else LEAVES))
