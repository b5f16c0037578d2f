"""Documents of tenants, with embeddings: one tenant searched alone, all together, one erased.

Run it with `python examples/tenants.py`. `--documents` scales it up.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import phalanx

DIMENSION = 64
TENANTS = ["acme", "globex", "initech", "umbrella"]
WORDS = ["invoice", "contract", "delivery", "refund", "meeting", "outage", "holiday", "budget"]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("tenant", pa.string()),
        ("body", pa.string()),
        ("embedding", pa.list_(pa.float32(), DIMENSION)),
    ]
)


def documents(count: int) -> pa.Table:
    """Random documents. An embedding is the sum of its words' directions, and some noise."""
    random = np.random.default_rng(7)
    directions = random.normal(size=(len(WORDS), DIMENSION))
    chosen = random.integers(0, len(WORDS), (count, 3))
    vectors = directions[chosen].sum(axis=1) + random.normal(scale=0.2, size=(count, DIMENSION))
    return pa.table(
        {
            "id": np.arange(count),
            "tenant": pa.array(TENANTS).take(pa.array(random.integers(0, len(TENANTS), count))),
            "body": [" ".join(WORDS[word] for word in words) for words in chosen],
            "embedding": pa.FixedSizeListArray.from_arrays(
                pa.array(vectors.astype("f4").ravel()), DIMENSION
            ),
        },
        schema=SCHEMA,
    )


def main(folder: Path, count: int = 8_000) -> dict[str, object]:
    """Returns the figures, for those who want to compare them."""
    rows = documents(count)
    table = phalanx.create(folder / "documents", SCHEMA, partition_by=["tenant"])
    table.append(rows)
    table.create_index("embedding", "IVF_FLAT", num_partitions=16)
    table.create_index("body", "INVERTED")
    print(f"{len(table):,} documents of {len(table.partitions())} tenants, indexed")

    query = rows["embedding"][0].as_py()
    alone = table.search(
        query, column="embedding", k=5, where="tenant = 'acme'", columns=["tenant"]
    )
    print("nearest for acme:     ", alone["tenant"].to_pylist())
    together = table.search(query, column="embedding", k=5, columns=["id", "tenant"])
    print("nearest for all:      ", together["tenant"].to_pylist())
    texts = table.search(text="refund outage", column="body", k=3, columns=["tenant", "body"])
    print("best texts:           ", texts["body"].to_pylist())

    leaf = table.scan(where="tenant = 'globex'").plan().leaves[0]
    removed = table.delete("tenant = 'globex'")
    # Earlier snapshots still have the rows. Without them, the files go as well.
    table.vacuum("0", force=True)
    print(f"globex erased: {removed:,} documents, its folder is there: {Path(leaf.uri).exists()}")
    return {
        "alone": set(alone["tenant"].to_pylist()),
        "first": together["id"][0].as_py(),
        "texts": texts["body"].to_pylist(),
        "removed": removed,
        "left": table.count_by("tenant").column("tenant").to_pylist(),
        "folder": Path(leaf.uri),
        "ok": table.check().ok,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=8_000, help="how many documents to make")
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary), parser.parse_args().documents)
