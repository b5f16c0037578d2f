"""Vector search in one partition and across all of them, compared with one Lance dataset.

`BENCH_VECTORS` sets the number of rows, 1,000,000 by default, in 100 partitions.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import phalanx
from bench.measure import Figure, interleaved, seconds
from phalanx.storage.index_models import load

ROWS = int(os.environ.get("BENCH_VECTORS", 1_000_000))
PARTITIONS, DIMENSION, K, BATCH = 100, 128, 10, 100
#: The same for both sides: centroids, codebook, probes and candidates.
CENTROIDS, PROBES, REFINE = 256, 16, 8
_numbers = np.random.default_rng(0)
_CLUSTERS = _numbers.normal(size=(1_000, DIMENSION)).astype("f4")


def vectors(rows: int) -> Any:
    noise = _numbers.normal(size=(rows, DIMENSION)).astype("f4")
    return _CLUSTERS[_numbers.integers(0, len(_CLUSTERS), rows)] + 0.5 * noise


def rows() -> pa.Table:
    numbers = vectors(ROWS).ravel()
    return pa.table(
        {
            "id": pa.array(np.arange(ROWS)),
            "tenant": pa.array(np.arange(ROWS) % PARTITIONS, pa.int32()),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(numbers), DIMENSION),
        }
    )


def exact(data: pa.Table, queries: Any) -> list[set[int]]:
    """The ids of the nearest rows, by looking at all of them."""
    all_vectors = data["v"].combine_chunks().flatten().to_numpy().reshape(-1, DIMENSION)
    lengths = (all_vectors**2).sum(axis=1)
    nearest = [np.argpartition(lengths - 2 * all_vectors @ q, K)[:K] for q in queries]
    return [set(found.tolist()) for found in nearest]


def recall(found: list[set[int]], wanted: list[set[int]]) -> float:
    return sum(len(a & b) for a, b in zip(found, wanted, strict=True)) / (K * len(wanted))


def main() -> int:
    folder = Path(tempfile.mkdtemp())
    try:
        figures = measured(folder)
    finally:
        shutil.rmtree(folder)
    print(*figures, sep="\n")
    return int(not all(figure.ok for figure in figures))


def measured(folder: Path) -> list[Figure]:
    data = rows()
    table = phalanx.create(folder / "t", data.schema, partition_by=["tenant"])
    table.append(data)
    table.optimize()
    built = seconds(
        lambda: table.create_index(
            "v", "IVF_PQ", num_partitions=CENTROIDS, num_sub_vectors=DIMENSION // 8
        )
    )
    one = lance.write_dataset(data, str(folder / "one"))
    model = load(table._snapshot.location, table._snapshot.head.indexes["v_idx"].model or "")
    one_built = seconds(
        lambda: one.create_index(
            "v",
            "IVF_PQ",
            num_partitions=CENTROIDS,
            num_sub_vectors=DIMENSION // 8,
            ivf_centroids=model.centroids,
            pq_codebook=model.codebook,
        )
    )
    one.create_scalar_index("tenant", "BITMAP")
    one = lance.dataset(str(folder / "one"))
    queries = vectors(BATCH)
    wanted = exact(data, queries)
    del data
    leaf = table.scan(where="tenant = 7").plan().leaves[0].open()
    turn = iter(range(10**9))

    def lance_search(dataset: Any, query: Any, **options: Any) -> pa.Table:
        nearest = {"column": "v", "q": query, "k": K, "nprobes": PROBES, "refine_factor": REFINE}
        return dataset.scanner(columns=["id"], nearest=nearest, **options).to_table()

    def ours(query: Any, where: str | None = None) -> pa.Table:
        return table.search(
            query, k=K, where=where, columns=["id"], nprobes=PROBES, refine_factor=REFINE
        )

    def next_query() -> Any:
        return queries[next(turn) % BATCH]

    within = [
        lambda: ours(next_query(), "tenant = 7"),
        lambda: lance_search(leaf, next_query()),
        lambda: lance_search(one, next_query(), filter="tenant = 7", prefilter=True),
    ]
    interleaved(10, *within)
    in_one, raw, filtered = interleaved(100, *within)
    everywhere = [lambda: ours(next_query()), lambda: lance_search(one, next_query())]
    interleaved(6, *everywhere)
    across, single = interleaved(40, *everywhere)
    batch_works = [lambda: ours(queries), lambda: lance_search(one, queries)]
    interleaved(1, *batch_works)
    batch, one_batch = interleaved(5, *batch_works)
    found = [set(ours(query)["id"].to_pylist()) for query in queries]
    one_found = [set(lance_search(one, query)["id"].to_pylist()) for query in queries]
    return [
        Figure("index of all leaves, with training", built, "s"),
        Figure("index of one dataset, without training", one_built, "s"),
        Figure("recall of ours at 10", recall(found, wanted), ""),
        Figure("recall of one dataset at 10", recall(one_found, wanted), ""),
        Figure("search in one partition", in_one * 1e3, "ms"),
        Figure("raw Lance on that leaf", raw * 1e3, "ms"),
        Figure("ours / raw Lance on the leaf", in_one / raw, "x", 1.2),
        Figure("one dataset with a filter and a BITMAP index", filtered * 1e3, "ms"),
        Figure("one dataset with a filter / ours", filtered / in_one, "x", 2, at_least=True),
        Figure("search in all partitions", across * 1e3, "ms"),
        Figure("one dataset", single * 1e3, "ms"),
        Figure("all partitions / one dataset", across / single, "x", 10),
        Figure("per query of a batch of 100, all partitions", batch / BATCH * 1e3, "ms"),
        Figure("per query of a batch of 100, one dataset", one_batch / BATCH * 1e3, "ms"),
        Figure("batch: all partitions / one dataset", batch / one_batch, "x", 3),
    ]


if __name__ == "__main__":
    sys.exit(main())
