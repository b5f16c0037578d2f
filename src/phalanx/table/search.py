"""Search: the rows nearest to a vector, in one partition or in all of them.

Partitions that cannot hold a matching row are left out first. What is left is searched leaf by
leaf, in parallel, and the results are put together: the k best of all leaves are among the k best
of each. Where an index compresses vectors, its distances are only estimates; as all leaves share
one codebook, the best candidates of the whole table are found by them, and only these are compared
with the vectors themselves.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.lru import LruCache
from phalanx.model.indexes import VECTOR, IndexDefinition, checked_metric, vector_dimension
from phalanx.storage import shortlist
from phalanx.storage.read_units import LeafToRead, ReadUnit, are_small, grouped
from phalanx.storage.searched import (
    DISTANCE,
    QUERY,
    SCORE,
    Array,
    Gathered,
    Hits,
    Searched,
    VectorQuery,
    open_searched,
    vector_distances,
)
from phalanx.storage.small_leaves import Member
from phalanx.table.arguments import whole_number
from phalanx.table.filters import predicate_of
from phalanx.table.plan import Plan
from phalanx.table.scan import READERS, checked_columns
from phalanx.transaction.snapshot import Snapshot

#: The column of a score that combines a vector's distance and a text's score.
RELEVANCE = "_relevance"
#: How many leaves are searched at a time.
SEARCHERS = READERS
#: How many filters of a snapshot are remembered with their leaves.
_FILTERS = 64
#: Filters that may name the time of the call.
_TIMES = re.compile("now|current|local|today", re.IGNORECASE)
_plans: WeakKeyDictionary[Snapshot, LruCache[tuple[str | None, str], list[ReadUnit]]]
_plans = WeakKeyDictionary()
#: So many leaves, at least, are searched together by the codes of their indexes.
_MANY = 4
#: So many candidates for each result are compared with their vectors if nothing else is asked for.
_REFINE = 4


@dataclass(frozen=True)
class VectorSearch:
    """What a user asks for, checked."""

    query: VectorQuery
    #: Whether the query is one vector, and not a batch of them.
    is_single: bool
    #: How many candidates for each result are compared with their vectors; 0 for none.
    refine: int


def search(
    snapshot: Snapshot,
    vector: Any,
    column: str | None = None,
    k: int = 10,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    metric: str | None = None,
    nprobes: int | None = None,
    refine_factor: int | None = None,
    ef: int | None = None,
    use_index: bool = True,
) -> pa.Table:
    """The k rows nearest to a vector, or to each of several. Raises InvalidInput for bad input."""
    asked = vector_search(
        snapshot, vector, column, k, metric, nprobes, refine_factor, ef, use_index
    )
    names = selected_columns(snapshot, columns)
    units = _planned(snapshot, where, asked.query.column)
    if len(units) == 1 and len(units[0].members) == 1 and asked.is_single:
        rows = _in_one_leaf(snapshot, asked, units[0], names)
        if rows is not None:
            return rows
    groups = search_in_parallel(snapshot, asked, units)
    best = merged(snapshot, asked, groups)
    extra = distance_column(best)
    if not asked.is_single:
        extra[QUERY] = pa.array(best.queries, pa.int32())
    return fetched(snapshot, best, names, extra)


def search_share(
    snapshot: Snapshot,
    asked: VectorSearch,
    where: str | None,
    columns: Sequence[str],
    share: int,
    shares: int,
) -> pa.Table:
    """The best rows of a part of the leaves, for one of several processes; see `search`.

    The parts are runs of leaves: where rows are equally near, those of an earlier part come first.
    """
    plan = Plan(snapshot, predicate_of(where, snapshot))
    units = search_units(plan, index_of(snapshot, asked.query.column))
    low, high = len(units) * share // shares, len(units) * (share + 1) // shares
    best = merged(snapshot, asked, search_in_parallel(snapshot, asked, units[low:high]))
    extra = distance_column(best) | {QUERY: pa.array(best.queries, pa.int32())}
    return fetched(snapshot, best, columns, extra)


# What is asked for


def vector_search(
    snapshot: Snapshot,
    vector: Any,
    column: str | None,
    k: int,
    metric: str | None = None,
    nprobes: int | None = None,
    refine_factor: int | None = None,
    ef: int | None = None,
    use_index: bool = True,
) -> VectorSearch:
    """A search as a user describes it. Raises InvalidInput if it makes no sense."""
    column = vector_column(snapshot, column)
    type = snapshot.head.schema.arrow.field(column).type
    vectors, is_single = _vectors(vector, vector_dimension(type) or 0, column)
    index = index_of(snapshot, column)
    built_for = "l2" if index is None else index.metric
    wanted = built_for if metric is None else checked_metric(metric)
    query = VectorQuery(
        column,
        vectors,
        whole_number(k, 1, "k"),
        wanted,
        # An index that was built for another distance would give wrong neighbors.
        bool(use_index) and index is not None and wanted == built_for,
        None if nprobes is None else whole_number(nprobes, 1, "nprobes"),
        None if ef is None else whole_number(ef, 1, "ef"),
    )
    refine = 0
    if query.use_index and index is not None and "FLAT" not in index.kind.name:
        refine = _REFINE if refine_factor is None else refine_factor
    if refine_factor is not None:
        whole_number(refine_factor, 0, "refine_factor")
    return VectorSearch(query, is_single, refine)


def vector_column(snapshot: Snapshot, column: str | None) -> str:
    """The column to search in; without a name, the only one that holds vectors."""
    schema = snapshot.head.schema.arrow
    vectors = [field.name for field in schema if vector_dimension(field.type) is not None]
    if column is None and len(vectors) == 1:
        return str(vectors[0])
    known = ", ".join(vectors) or "none"
    if column is None:
        raise InvalidInput(
            f"say which column to search with `column`: those of vectors are {known}"
        )
    if column not in vectors:
        raise InvalidInput(
            f"there is no column {column!r} of vectors: those of vectors are {known}"
        )
    return column


def index_of(snapshot: Snapshot, column: str) -> IndexDefinition | None:
    """The vector index of a column; of several, the one that was created last."""
    schema = snapshot.head.schema
    indexes = [
        index
        for index in snapshot.head.indexes.values()
        if index.family == VECTOR and schema.name_of(index.column_id) == column
    ]
    return indexes[-1] if indexes else None


def _vectors(vector: Any, dimension: int, column: str) -> tuple[Array, bool]:
    """Query vectors, one in each row, and whether the user gave a single one."""
    try:
        if isinstance(vector, pa.Array | pa.ChunkedArray):
            vector = vector.to_pylist()
        numbers = np.asarray(vector, dtype=np.float32)
    except (ValueError, TypeError):
        raise InvalidInput("a query is a vector of numbers, or a list of such vectors") from None
    if numbers.ndim not in (1, 2) or not len(numbers):
        raise InvalidInput("a query is a vector of numbers, or a list of such vectors")
    if numbers.shape[-1] != dimension:
        raise InvalidInput(
            f"the query has {numbers.shape[-1]} dimensions, and the vectors of {column!r} have "
            f"{dimension}"
        )
    if not np.isfinite(numbers).all():
        raise InvalidInput("a query must not contain NaN or infinity")
    return np.atleast_2d(numbers), numbers.ndim == 1


def selected_columns(snapshot: Snapshot, columns: Sequence[str] | None) -> list[str]:
    """The columns of the result. Raises InvalidInput where one is unknown or has a name of ours."""
    names = checked_columns(columns, snapshot)
    names = snapshot.head.schema.arrow.names if names is None else names
    for name in names:
        if name in (DISTANCE, QUERY, SCORE, RELEVANCE):
            raise InvalidInput(
                f"the result has a column {name!r} of its own: leave the table's out of `columns`"
            )
    return list(names)


def _planned(snapshot: Snapshot, where: str | None, column: str) -> list[ReadUnit]:
    """The leaves to search for a filter; those of filters that were used before are remembered.

    Finding out takes a third of the time of a search in one leaf. A filter that names the time of
    the call means something else each time.
    """
    kept = _plans.setdefault(snapshot, LruCache(_FILTERS))
    fixed = where is None or (isinstance(where, str) and not _TIMES.search(where))
    units = kept.get((where, column)) if fixed else None
    if units is None:
        plan = Plan(snapshot, predicate_of(where, snapshot))
        units = search_units(plan, index_of(snapshot, column))
        if fixed and snapshot.head.transactions == "strong":
            kept.put((where, column), units)
    return units


def search_units(
    plan: Plan, index: IndexDefinition | None, together: bool = True
) -> list[ReadUnit]:
    """The leaves to search; small ones without an index are searched together, if that is asked."""
    leaves, units = plan.snapshot.leaves, []
    indices = plan.indices[leaves.row_counts[plan.indices] != 0]
    rows = leaves.row_counts[indices]
    small = are_small(rows, leaves.byte_counts[indices])
    if index is not None:
        small &= rows < index.min_rows
    given = leaves.given(plan.snapshot.head, indices)
    members = zip(indices.tolist(), leaves.versions(indices), given, strict=True)
    for number, (folder, version), values in members:
        units.append((Member(folder, version, values), plan.residual(number)))
    counts = np.where(small & together, rows, -1).tolist()
    return list(
        grouped(
            LeafToRead(member, where, None if count < 0 else count)
            for (member, where), count in zip(units, counts, strict=True)
        )
    )


# Searching


@functools.cache
def search_pool() -> ThreadPoolExecutor:
    """The threads that search. They live as long as the process: a search takes milliseconds."""
    return ThreadPoolExecutor(SEARCHERS, thread_name_prefix="phalanx-search")


def _in_one_leaf(
    snapshot: Snapshot, asked: VectorSearch, unit: ReadUnit, columns: Sequence[str]
) -> pa.Table | None:
    """A search in a single leaf, which Lance does in one go."""
    query = replace(asked.query, refine_factor=asked.refine or None)
    (leaf,) = open_searched(snapshot.location, snapshot.head.schema, unit.members)
    rows = leaf.nearest_rows(query, unit.where, columns)
    if rows is None:
        return None
    wanted = result_schema(snapshot, columns, {DISTANCE: rows.column(DISTANCE)})
    return rows if rows.schema.equals(wanted) else rows.cast(wanted)


def search_in_parallel(
    snapshot: Snapshot, asked: VectorSearch, units: Sequence[ReadUnit]
) -> list[tuple[Searched, Hits]]:
    """The best rows of every dataset, in the order of the leaves."""
    query = asked.query
    if asked.refine:
        query = replace(query, k=query.k * asked.refine)
    location, schema = snapshot.location, snapshot.head.schema

    def open_unit(unit: ReadUnit) -> list[Searched]:
        return list(open_searched(location, schema, unit.members))

    index = index_of(snapshot, query.column)
    opened = [(unit, dataset) for unit in units for dataset in open_unit(unit)]
    hits = _by_codes(snapshot, index, query, opened) if asked.refine else {}

    def run(number: int) -> tuple[Searched, Hits]:
        unit, dataset = opened[number]
        own = hits.get(number)
        return dataset, dataset.nearest(query, unit.where) if own is None else own

    numbers = range(len(opened))
    left = len(opened) - len(hits)
    return list(search_pool().map(run, numbers) if left > 1 else map(run, numbers))


def _by_codes(
    snapshot: Snapshot,
    index: IndexDefinition | None,
    query: VectorQuery,
    opened: Sequence[tuple[ReadUnit, Searched]],
) -> dict[int, Hits]:
    """Candidates of the leaves that are searched by their codes, by the leaves' numbers."""
    if index is None or len(opened) < _MANY or not shortlist.can_search(index, query):
        return {}
    location = snapshot.location
    numbers = [
        number
        for number, (unit, dataset) in enumerate(opened)
        if unit.where is None and shortlist.has_codes(location, dataset, index)
    ]
    if len(numbers) < _MANY:
        return {}
    leaves = [opened[number][1] for number in numbers]
    run = search_pool().map if len(query.vectors) > 1 else map
    hits = shortlist.candidates(location, leaves, index, query, run)
    return dict(zip(numbers, hits, strict=True))


@dataclass(frozen=True)
class Best:
    """Rows of several datasets, best first: parallel arrays, and the datasets they refer to."""

    datasets: Sequence[Searched]
    #: The columns of such rows.
    rows: Gathered
    sources: Array
    queries: Array
    ids: Array
    distances: Array

    def take(self, order: Array) -> Best:
        columns = (self.sources, self.queries, self.ids, self.distances)
        return Best(self.datasets, self.rows, *(column[order] for column in columns))

    def top(self, k: int) -> Best:
        """The k best for each query: by distance, and where it is the same, by place."""
        order = np.lexsort((self.ids, self.sources, self.distances, self.queries))
        queries = self.queries[order]
        starts = np.searchsorted(queries, queries, side="left")
        return self.take(order[np.arange(len(order)) - starts < k])


def merged(
    snapshot: Snapshot, asked: VectorSearch, groups: Sequence[tuple[Searched, Hits]]
) -> Best:
    """The best rows of all datasets for each query."""
    counts = [len(hits.ids) for _, hits in groups]
    hits = Hits(
        *(
            np.concatenate([getattr(hits, name) for _, hits in groups] or [empty])
            for name, empty in zip(Hits._fields, Hits.none(), strict=True)
        )
    )
    sources = np.repeat(np.arange(len(groups)), counts)
    datasets = [dataset for dataset, _ in groups]
    rows = Gathered(snapshot.location, snapshot.head.schema, datasets)
    best = Best(datasets, rows, sources, hits.queries, hits.ids, hits.distances)
    if asked.refine:
        best = _refined(asked.query, best.top(asked.query.k * asked.refine))
    return best.top(asked.query.k)


def _refined(query: VectorQuery, best: Best) -> Best:
    """The same rows with their true distances."""
    if not len(best.ids):
        return best
    vectors = best.rows.vectors(best.sources, best.ids, query.column)
    distances = vector_distances(query.metric, query.vectors[best.queries], vectors)
    return replace(best, distances=distances)


def fetched(
    snapshot: Snapshot, best: Best, columns: Sequence[str], extra: Mapping[str, pa.Array]
) -> pa.Table:
    """The columns of the best rows, and further ones; the number of a query comes first."""
    schema = result_schema(snapshot, columns, extra)
    if not len(best.ids):
        return schema.empty_table()
    arrays: dict[str, Any] = dict(extra)
    if columns:
        rows = best.rows.rows(best.sources, best.ids, columns)
        arrays |= zip(rows.schema.names, rows.columns, strict=True)
    return pa.table({name: arrays[name] for name in schema.names}).cast(schema)


def result_schema(
    snapshot: Snapshot, columns: Sequence[str], extra: Mapping[str, pa.Array]
) -> pa.Schema:
    """The schema of a result, with the columns that a search adds."""
    whole = snapshot.head.schema.arrow
    fields = [whole.field(name) for name in columns]
    fields += [pa.field(name, array.type) for name, array in extra.items() if name != QUERY]
    return pa.schema([pa.field(QUERY, extra[QUERY].type), *fields] if QUERY in extra else fields)


def distance_column(best: Best) -> dict[str, pa.Array]:
    return {DISTANCE: pa.array(best.distances, pa.float32())}
