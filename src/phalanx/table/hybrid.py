"""Search by vector, by text, or by both.

Distances and scores cannot be compared. So of a search by both, only the ranks count: a row's
relevance is the sum of `weight / (60 + rank)` over the two searches that found it (reciprocal rank
fusion).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.text import TextQuery
from phalanx.storage.searched import DISTANCE, SCORE, Array, Gathered
from phalanx.table import search as vectors
from phalanx.table.arguments import whole_number
from phalanx.table.filters import predicate_of
from phalanx.table.plan import Plan
from phalanx.table.search import RELEVANCE, Best, fetched, selected_columns
from phalanx.table.text_search import best_texts
from phalanx.transaction.snapshot import Snapshot

#: What is added to a rank, so that the first ones do not decide alone.
_OFFSET = 60
#: How many rows each search contributes, for each row that is wanted, and at least.
_CANDIDATES, _LEAST = 5, 100


def search(
    snapshot: Snapshot,
    vector: Any = None,
    column: str | None = None,
    k: int = 10,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    text: str | TextQuery | None = None,
    text_column: str | None = None,
    weights: tuple[float, float] = (1.0, 1.0),
    **options: Any,
) -> pa.Table:
    """The k best rows. Raises InvalidInput for arguments that make no sense."""
    if vector is None and text is None:
        raise InvalidInput("search takes a vector, a text, or both")
    if isinstance(vector, str | TextQuery):
        raise InvalidInput("a vector is numbers: give words as text=…, such as search(text='blue')")
    if text is None:
        return vectors.search(snapshot, vector, column, k, where, columns, **options)
    names = selected_columns(snapshot, columns)
    plan = Plan(snapshot, predicate_of(where, snapshot))
    whole_number(k, 1, "k")
    if vector is None:
        best = best_texts(snapshot, text, text_column or column, k, plan)
        return fetched(snapshot, best, names, {SCORE: pa.array(-best.distances, pa.float32())})
    return _both(snapshot, vector, column, k, plan, names, text, text_column, weights, options)


def _both(
    snapshot: Snapshot,
    vector: Any,
    column: str | None,
    k: int,
    plan: Plan,
    names: Sequence[str],
    text: str | TextQuery,
    text_column: str | None,
    weights: tuple[float, float],
    options: dict[str, Any],
) -> pa.Table:
    _check_weights(weights)
    candidates = max(_CANDIDATES * k, _LEAST)
    asked = vectors.vector_search(snapshot, vector, column, candidates, **options)
    if not asked.is_single:
        raise InvalidInput("a search by vector and text takes one vector")
    index = vectors.index_of(snapshot, asked.query.column)
    units = vectors.search_units(plan, index, together=False)
    near = vectors.merged(snapshot, asked, vectors.search_in_parallel(snapshot, asked, units))
    matching = best_texts(snapshot, text, text_column, candidates, plan)
    return _fused(snapshot, [near, matching], weights, k, names)


def _check_weights(weights: tuple[float, float]) -> None:
    try:
        numbers = [float(weight) for weight in weights]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != 2 or min(numbers) < 0 or not sum(numbers) > 0 or np.inf in numbers:
        raise InvalidInput("weights are two numbers from 0, for the vector and for the text")


def _fused(
    snapshot: Snapshot,
    results: Sequence[Best],
    weights: tuple[float, float],
    k: int,
    names: Sequence[str],
) -> pa.Table:
    """Rows of both results, by their relevance; each row once."""
    # The same leaf may have another number in each result.
    uris = sorted({dataset.uri for best in results for dataset in best.datasets})
    numbers = {uri: number for number, uri in enumerate(uris)}
    datasets: dict[str, Any] = {d.uri: d for best in results for d in best.datasets}
    relevance: dict[tuple[int, int], float] = {}
    values: list[dict[tuple[int, int], float]] = []
    for best, weight in zip(results, weights, strict=True):
        sources = [numbers[best.datasets[source].uri] for source in best.sources.tolist()]
        keys = list(zip(sources, best.ids.tolist(), strict=True))
        values.append(dict(zip(keys, best.distances.tolist(), strict=True)))
        for rank, key in enumerate(keys, 1):
            relevance[key] = relevance.get(key, 0.0) + weight / (_OFFSET + rank)
    keys = sorted(relevance, key=lambda key: (-relevance[key], key))[:k]
    chosen = [datasets[uri] for uri in uris]
    rows = Best(
        chosen,
        Gathered(snapshot.location, snapshot.head.schema, chosen),
        np.array([source for source, _ in keys], np.int64),
        np.zeros(len(keys), np.int32),
        np.array([id for _, id in keys], np.uint64),
        np.array([-relevance[key] for key in keys]),
    )
    near, matching = values
    scores: Array = np.array([-matching.get(key, np.nan) for key in keys])
    extra = {
        RELEVANCE: pa.array(-rows.distances, pa.float64()),
        DISTANCE: pa.array([near.get(key) for key in keys], pa.float32()),
        SCORE: pa.array(scores, pa.float32(), from_pandas=True),
    }
    return fetched(snapshot, rows, names, extra)
