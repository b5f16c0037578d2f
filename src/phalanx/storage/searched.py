"""Datasets that are searched: a leaf, or many small leaves as one.

A search asks a dataset for the ids of its best rows, and later for columns of the few that are left
when the results of all datasets are put together. Rows are seen through the table's schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from phalanx.lru import LruCache
from phalanx.model.predicates import Predicate
from phalanx.model.schema import TableSchema
from phalanx.storage import small_leaves
from phalanx.storage.files import DETACHED
from phalanx.storage.lance_private import take_rows
from phalanx.storage.leaf import evaluating, open_leaf
from phalanx.storage.location import Location
from phalanx.storage.mapping import ROW_ID, LeafMapping, Reading, mapping_of
from phalanx.storage.small_leaves import Member

DISTANCE, SCORE = "_distance", "_score"
#: The column that says which query of several a row was found for.
QUERY = "query_index"
#: How many leaves stay open between searches.
_OPEN = 1_024
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class VectorQuery:
    """Vectors whose nearest neighbors are searched for."""

    column: str
    #: One vector in each row.
    vectors: Array
    #: How many neighbors of each vector to find in a dataset.
    k: int
    metric: str
    use_index: bool = True
    nprobes: int | None = None
    ef: int | None = None
    refine_factor: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        values = {
            "k": self.k,
            "metric": self.metric,
            "use_index": self.use_index,
            "nprobes": self.nprobes,
            "ef": self.ef,
            "refine_factor": self.refine_factor,
        }
        return {name: value for name, value in values.items() if value is not None}


class Hits(NamedTuple):
    """Rows that were found: parallel arrays."""

    queries: Array
    ids: Array
    distances: Array

    @staticmethod
    def none() -> Hits:
        return Hits(np.zeros(0, np.int32), np.zeros(0, np.uint64), np.zeros(0, np.float32))


class Searched:
    """A dataset that is open."""

    def __init__(self, location: Location, uri: str, handle: Any, mapping: LeafMapping) -> None:
        self._location, self.uri = location, uri
        self.handle, self.mapping = handle, mapping

    def reading(self, columns: Sequence[str]) -> Reading:
        """How some of the table's columns are read from it."""
        return self.mapping.reading(columns)

    def nearest(self, query: VectorQuery, where: Predicate | None) -> Hits:
        """The ids of the nearest rows that satisfy a predicate; rows without a vector are none."""
        table = self._nearest(query, where, [], with_row_id=True)
        if table is None:
            return Hits.none()
        count = table.num_rows
        queries = np.zeros(count, np.int32)
        if QUERY in table.schema.names:
            queries = table.column(QUERY).to_numpy()
        return Hits(queries, table.column(ROW_ID).to_numpy(), table.column(DISTANCE).to_numpy())

    def nearest_rows(
        self, query: VectorQuery, where: Predicate | None, columns: Sequence[str]
    ) -> pa.Table | None:
        """Columns of the nearest rows, in one go; None if the leaf has no such column."""
        reading = self.mapping.reading(columns)
        # A row must have something to show how many there are.
        table = self._nearest(query, where, reading.columns, with_row_id=not reading.columns)
        if table is None:
            return None
        distances = table.column(DISTANCE)
        rows = _one_batch(table)
        columns_read = pa.Table.from_batches([reading.batch(rows, False)]).select(list(columns))
        return columns_read.append_column(DISTANCE, distances.combine_chunks())

    def _nearest(
        self, query: VectorQuery, where: Predicate | None, columns: list[str], with_row_id: bool
    ) -> pa.Table | None:
        held = self.mapping.reading([query.column])
        if not held.columns or held.converts:
            return None
        vectors = query.vectors
        options = {
            "column": held.columns[0],
            "q": vectors[0] if len(vectors) == 1 else vectors,
            **query.options,
        }
        with evaluating(self._location, self.uri, self.mapping, where) as filter:
            return self.handle.scanner(
                columns=[*columns, DISTANCE],
                filter=filter,
                prefilter=True,
                nearest=options,
                with_row_id=with_row_id,
                disable_scoring_autoprojection=True,
            ).to_table()

    def rows(self, ids: Array, columns: Sequence[str]) -> pa.Table:
        """Columns of some rows by their ids, in that order."""
        reading = self.mapping.reading(columns)
        rows = pa.table({ROW_ID: ids})
        if reading.columns:
            with evaluating(self._location, self.uri, self.mapping, None):
                rows = take_rows(self.handle, ids, reading.columns)
        return pa.Table.from_batches([reading.batch(_one_batch(rows), False)]).select(list(columns))

    def vectors(self, ids: Array, column: str) -> Array:
        """The vectors of some rows by their ids, one in each row of the result."""
        values = self.rows(ids, [column]).column(0).combine_chunks()
        numbers: Array = values.flatten().to_numpy(zero_copy_only=False)
        return numbers.astype(np.float32, copy=False).reshape(len(ids), -1)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


_handles: LruCache[tuple[Any, ...], Any] = LruCache(_OPEN)


def open_searched(
    location: Location, schema: TableSchema, members: Sequence[Member]
) -> Iterator[Searched]:
    """Leaves as they are searched: many small ones together, as far as that is possible."""
    for uri, shape, handle in small_leaves.opened(location, members, _open):
        yield Searched(location, uri, handle, mapping_of(shape, handle, schema))


def _open(location: Location, folder: str, version: int | None) -> Any:
    """A leaf, opened once: a detached version never changes."""
    if version is None or version < DETACHED:
        return open_leaf(location, folder, version)
    key = (location.uri, folder, version, tuple(sorted((location.options or {}).items())))
    handle = _handles.get(key)
    if handle is None:
        handle = open_leaf(location, folder, version)
        _handles.put(key, handle)
    return handle
