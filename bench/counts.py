"""`count` and `count_by` from metadata, compared with reading the rows."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import phalanx
from bench.measure import Figure, interleaved
from bench.write import rows

WHERE = "tenant < 400"
#: Calls per run. One call takes less than a millisecond, and its time depends on what ran before.
CALLS = 20


def main() -> int:
    data = rows()
    folder = Path(tempfile.mkdtemp())
    try:
        phalanx.create(folder / "t", data.schema, partition_by=["tenant"]).append(data)
        del data
        table = phalanx.open(folder / "t")

        def read() -> None:
            batches = table.scan(columns=["tenant"], where=WHERE).to_batches(ordered=False)
            assert sum(batch.num_rows for batch in batches) == counted

        def read_groups() -> None:
            whole = table.scan(columns=["tenant"], where=WHERE).to_arrow()
            assert whole.group_by("tenant").aggregate([([], "count_all")]).num_rows == 400

        def count() -> None:
            for _ in range(CALLS):
                assert table.count(WHERE) == counted

        def count_by() -> None:
            for _ in range(CALLS):
                assert table.count_by(["tenant"], WHERE).num_rows == 400

        counted = table.count(WHERE)
        scanned, grouped, known, known_groups = interleaved(7, read, read_groups, count, count_by)
        known, known_groups = known / CALLS, known_groups / CALLS
    finally:
        shutil.rmtree(folder)
    figures = [
        Figure("count by reading one column", scanned * 1e3, "ms"),
        Figure("count", known * 1e3, "ms"),
        Figure("reading / count", scanned / known, "x", 100, at_least=True),
        Figure("group by reading one column", grouped * 1e3, "ms"),
        Figure("count_by", known_groups * 1e3, "ms"),
        Figure("reading / count_by", grouped / known_groups, "x", 100, at_least=True),
    ]
    print(*figures, sep="\n")
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
