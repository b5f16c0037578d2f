"""A point lookup by an indexed key, compared with the same lookup without the index.

`BENCH_ROWS` sets the number of rows, 10,000,000 by default, and `BENCH_PARTITIONS` the number of
partitions that hold them, 16 by default. Keys are random over the partitions, so none is pruned,
and every lookup is for another key. Both tables are warm: leaves with an index have been asked
often enough to know which keys they do not have.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import phalanx
from bench.measure import Figure, interleaved, seconds

ROWS = int(os.environ.get("BENCH_ROWS", 10_000_000))
PARTITIONS = int(os.environ.get("BENCH_PARTITIONS", 16))

#: Lookups with the index per run: the time of one depends on what ran before.
CALLS = 20


def main() -> int:
    folder = Path(tempfile.mkdtemp())
    numbers = np.random.default_rng(0)
    try:
        data = pa.table(
            {
                "id": pa.array(numbers.permutation(ROWS)),
                "tenant": pa.array(np.arange(ROWS) % PARTITIONS, pa.int32()),
                "amount": pa.array(numbers.normal(size=ROWS)),
                "note": pa.array(np.arange(ROWS).astype("U8")),
            }
        )
        tables = [
            phalanx.create(folder / name, data.schema, partition_by=["tenant"])
            for name in ("plain", "indexed")
        ]
        for table in tables:
            table.append(data)
        del data
        built = seconds(lambda: tables[1].create_index("id", "BTREE"))
        turn = iter(range(10**9))

        def lookup(table: phalanx.Table) -> None:
            rows = table.scan(where=f"id = {next(turn) * 7919 % ROWS}").to_arrow()
            assert rows.num_rows == 1

        def lookups() -> None:
            for _ in range(CALLS):
                lookup(tables[1])

        works = [lambda: lookup(tables[0]), lookups]
        interleaved(2, *works)
        plain, indexed = interleaved(7, *works)
        indexed /= CALLS
    finally:
        shutil.rmtree(folder)
    figures = [
        Figure("index of all leaves", built, "s"),
        Figure("lookup without an index", plain * 1e3, "ms"),
        Figure("lookup with an index", indexed * 1e3, "ms"),
        Figure("without / with an index", plain / indexed, "x", 20, at_least=True),
    ]
    print(*figures, sep="\n")
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
