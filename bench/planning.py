"""Open a table and prune its leaves, at 1k, 10k and 100k leaves.

The manifests are real. The leaves do not exist, because planning opens none.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

import phalanx
from bench.measure import Figure, interleaved
from phalanx.lru import LruCache
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx.storage.names import leaf_id
from phalanx.storage.records import LeafRow, TransactionRecord
from phalanx.table.table import Table
from phalanx.transaction import snapshot as snapshots

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("country", pa.string())])
WHERE = "ts >= '2025-03-10' AND ts < '2025-03-12' AND country = 'C07' AND id = 34"


def table_of(folder: Path, leaves: int) -> Table:
    """A table with this many leaves: days, 20 countries and 5 buckets."""
    table = phalanx.create(folder, SCHEMA, partition_by=["days(ts)", "country", "bucket(5, id)"])
    snapshot = table._snapshot
    head = snapshot.head.after(snapshot.head.committed_at, "bench")
    update, spec = ManifestUpdate(head.specs), head.spec
    for number in range(leaves):
        day, rest = divmod(number, 100)
        year, day = divmod(day, 360)
        name = f"n{number:015}"
        leaf = LeafRow(
            index=-1,
            object_id=leaf_id(1, [*(f"{name[:-1]}{depth}" for depth in range(4)), name]),
            location=f"{number:08x}_v1${name}$dataset",
            read_version=2**63 + number,
            spec_id=1,
            keys=(2025 - year, day // 30 + 1, day % 30 + 1, f"C{rest // 5:02}", rest % 5),
            version_number=1,
            row_count=1000,
            byte_count=50_000,
            fragment_count=1,
        )
        update.put_leaf(leaf, spec, head.sequence)
    update.put_head(head)
    update.put_transaction(TransactionRecord.of(head, "append"))
    snapshot.manifest.swap(update)
    dataset = snapshot.location.open(snapshot.location.manifest)
    dataset.optimize.compact_files(target_rows_per_fragment=20_000)
    dataset.optimize.optimize_indices()
    return phalanx.open(folder)


def main() -> int:
    root = Path(tempfile.mkdtemp())
    figures = []
    try:
        for leaves in (1_000, 10_000, 100_000):
            folder = root / str(leaves)
            selected = table_of(folder, leaves).scan(where=WHERE).plan().selected
            assert selected == 2 * (leaves >= 10_000) or leaves == 1_000, selected

            def cached(folder: Path = folder) -> None:
                os.environ["PHALANX_CACHE"] = str(root / "cache")
                snapshots._recent = LruCache(16)  # only the file is left
                phalanx.open(folder).scan(where=WHERE).plan()

            def uncached(folder: Path = folder) -> None:
                os.environ["PHALANX_CACHE"] = tempfile.mkdtemp(dir=root)  # empty
                snapshots._recent = LruCache(16)
                phalanx.open(folder).scan(where=WHERE).plan()

            cached()
            warm, cold = interleaved(9, cached, uncached)
            large = leaves == 100_000
            figures += [
                Figure(
                    f"open and prune {leaves:,} leaves, cached",
                    warm * 1e3,
                    "ms",
                    20 if large else None,
                ),
                Figure(
                    f"open and prune {leaves:,} leaves, not cached",
                    cold * 1e3,
                    "ms",
                    150 if large else None,
                ),
            ]
    finally:
        shutil.rmtree(root)
    print(*figures, sep="\n")
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
