"""Tables of very many leaves: one append, a count in a fresh process, and a removal.

The baseline of the append is the disk: how long it takes to create the folders and files that Lance
needs for the same leaves, with nothing in them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import phalanx
from bench.measure import Figure, peak_memory, seconds
from bench.planning import table_of

LEAVES = 100_000
SAMPLE = 2_000
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64())])

COUNT = """
import sys, time
import phalanx, phalanx.table.table
started = time.perf_counter()
assert phalanx.open(sys.argv[1]).count("k < 100") == 100
print(time.perf_counter() - started)
"""


def disk(folder: Path) -> float:
    """Seconds to create the folders and files of all leaves, from a sample of them."""

    def create() -> None:
        for number in range(SAMPLE):
            leaf = folder / f"{number}"
            for name in ("_versions", "_transactions", "data"):
                (leaf / name).mkdir(parents=True)
            for name in ("_versions/d", "_transactions/d", "data/d"):
                (leaf / name).write_bytes(b"x" * 300)

    return seconds(create) * LEAVES / SAMPLE


def main() -> int:
    root = Path(tempfile.mkdtemp())
    try:
        table = phalanx.create(root / "t", SCHEMA, ["k"])
        rows = pa.table({"k": np.arange(LEAVES), "v": np.random.default_rng(1).random(LEAVES)})
        before = disk(root / "disk")
        append = seconds(lambda: table.append(rows))
        command = [sys.executable, "-c", COUNT, str(root / "t")]
        count = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        large = table_of(root / "large", LEAVES)
        few = seconds(lambda: large.delete("ts < '2023-04-11'"))
        removed = LEAVES - len(large._snapshot.leaves)
        left = len(large._snapshot.leaves)
        many = seconds(lambda: large.delete("ts < '2025-01-01'"))
        more = left - len(large._snapshot.leaves)
        figures = [
            Figure("folders and files of 100k leaves, by a sample", before, "s"),
            Figure("one append to 100k new leaves", append, "s", 60),
            Figure("append / folders and files", append / before, "x"),
            Figure("peak memory", peak_memory(), "MB"),
            Figure("count('k < 100') in a fresh process", count, "s", 0.3),
            Figure(f"remove {removed:,} of 100k leaves", few, "s"),
            Figure(f"remove {more:,} of {left:,} leaves, for 50,000", many / more * 5e4, "s", 2),
        ]
    finally:
        shutil.rmtree(root)
    print(*figures, sep="\n")
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
