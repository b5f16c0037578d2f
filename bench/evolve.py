"""Changes of schema and spec in a table of 10,000 leaves: none of them may rewrite a leaf."""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

import phalanx
from bench.measure import Figure, seconds
from bench.planning import table_of

LEAVES = 10_000
RUNS = 5


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="phalanx-bench-"))
    times: dict[str, list[float]] = {}
    try:
        table_of(folder / "table", LEAVES)

        def timed(name: str, call: str, *args: object, **options: object) -> None:
            """Make one change through a newly opened table."""
            change = getattr(phalanx.open(folder / "table"), call)
            times.setdefault(name, []).append(seconds(lambda: change(*args, **options)))

        for run in range(RUNS):
            timed("add a column", "add_column", f"n{run}", pa.int32())
            timed("add a column with a default", "add_column", f"d{run}", pa.int32(), default=1)
            timed("rename a partition source", "rename_column", _name(folder), f"land{run}")
            timed("widen a column", "change_type", f"n{run}", pa.int64())
            timed("drop a column", "drop_column", f"n{run}")
            timed("evolve the spec", "evolve_partitioning", ["years(ts)", f"bucket({run + 8}, id)"])
        table = phalanx.open(folder / "table")
        assert table.scan(where=f"{_name(folder)} = 'C01'").plan().selected == LEAVES // 20
    finally:
        shutil.rmtree(folder)
    figures = [
        Figure(f"{name}, {LEAVES:,} leaves, p50 of {RUNS}", statistics.median(found), "s", 1.0)
        for name, found in times.items()
    ]
    print(*figures, sep="\n")
    return int(not all(figure.ok for figure in figures))


def _name(folder: Path) -> str:
    """The current name of the column that was created as `country`."""
    return phalanx.open(folder / "table").schema.names[2]


if __name__ == "__main__":
    sys.exit(main())
