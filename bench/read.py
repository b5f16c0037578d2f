"""Read 500 leaves of 10k rows, compared with one Lance dataset of the same 5M rows."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import lance

import phalanx
from bench.measure import Figure, interleaved
from bench.write import rows


def main() -> int:
    data = rows()
    folder = Path(tempfile.mkdtemp())
    try:
        lance.write_dataset(data, folder / "one")
        table = phalanx.create(folder / "many", data.schema, partition_by=["tenant"])
        table.append(data)
        del data

        def one() -> None:
            assert lance.dataset(folder / "one").to_table().num_rows == 5_000_000

        def many() -> None:
            assert phalanx.open(folder / "many").scan().to_arrow().num_rows == 5_000_000

        def streamed() -> None:
            batches = phalanx.open(folder / "many").scan().to_batches(ordered=False)
            assert sum(batch.num_rows for batch in batches) == 5_000_000

        baseline, ours, stream = interleaved(9, one, many, streamed)
    finally:
        shutil.rmtree(folder)
    figures = [
        Figure("one dataset of 5M rows", baseline, "s"),
        Figure("500 leaves, to_arrow", ours, "s"),
        Figure("500 leaves, to_batches(ordered=False)", stream, "s"),
        Figure("500 leaves / one dataset", ours / baseline, "x", 1.6),
    ]
    print(*figures, sep="\n")
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
