"""Samples: some rows of a scan, each with the same chance.

How many rows come from which leaf is drawn first, from the numbers of rows. Then only leaves from
which rows were drawn are opened, and of these only the ids and the rows that were drawn are read.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from phalanx.storage.leaf import Leaf
from phalanx.storage.mapping import ROW_ID
from phalanx.table.plan import Plan, PlannedLeaf

_READERS = 8


def sample(plan: Plan, schema: pa.Schema, count: int, seed: int | None) -> pa.Table:
    """Some rows that a plan selects, in random order; all of them if there are not as many."""
    numbers = np.random.default_rng(seed)
    leaves, head = plan.leaves, plan.snapshot.head

    def leaf_of(leaf: PlannedLeaf) -> Leaf:
        return Leaf.of(plan.snapshot.location, head, leaf.row)

    def matching(leaf: PlannedLeaf) -> int:
        if leaf.where is None and leaf.rows is not None:
            return leaf.rows
        return leaf_of(leaf).count(leaf.version, leaf.where)

    with ThreadPoolExecutor(_READERS) as pool:
        counts = np.array(list(pool.map(matching, leaves)), np.int64)
        wanted = min(count, int(counts.sum()))
        if not wanted:
            return schema.empty_table()
        draws = numbers.multivariate_hypergeometric(counts, wanted, method="marginals")
        seeds = numbers.integers(2**63, size=len(leaves))

        def take(number: int) -> pa.Table:
            leaf = leaf_of(leaves[number])
            version, where = leaves[number].version, leaves[number].where
            batches = leaf.scan(version, [], where, row_ids=True)
            ids = np.concatenate([batch.column(ROW_ID).to_numpy() for batch in batches])
            own = np.random.default_rng(seeds[number])
            chosen = np.sort(own.choice(ids, draws[number], replace=False))
            rows = leaf.take(version, chosen, schema.names)
            return rows.select(schema.names).cast(schema) if schema.names else rows

        parts = list(pool.map(take, np.flatnonzero(draws).tolist()))
    return pa.concat_tables(parts).take(numbers.permutation(wanted))
