"""Datasets that are searched: a leaf, or many small leaves as one.

A search asks a dataset for the ids of its best rows, and later for columns of the few that are left
when the results of all datasets are put together. Rows are seen through the table's schema.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from phalanx.lru import LruCache
from phalanx.model.partition_columns import Given
from phalanx.model.predicates import Predicate
from phalanx.model.schema import TableSchema
from phalanx.storage import small_leaves
from phalanx.storage.files import is_lasting
from phalanx.storage.lance_private import take_rows
from phalanx.storage.leaf import evaluating, open_leaf
from phalanx.storage.leaf_indexes import covered_fragments
from phalanx.storage.location import Location
from phalanx.storage.mapping import ROW_ID, LeafMapping, Reading, mapping_of
from phalanx.storage.small_leaves import Member

DISTANCE, SCORE = "_distance", "_score"
#: The column that says which query of several a row was found for.
QUERY = "query_index"
#: How many leaves stay open between searches.
_OPEN = 1_024
#: Of how many it is remembered whether an index covers them.
_REMEMBERED = 16_384
#: So many leaves are worth putting together, if rows are taken from them.
_MANY = 3
#: How many low bits of a row's id hold its place in its fragment.
_FRAGMENT_BITS = 32
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
            # Lance looks for more rows than k if it refines them.
            "ef": None if self.ef is None else max(self.ef, self.k * (self.refine_factor or 1)),
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

    def __init__(
        self,
        location: Location,
        uri: str,
        handle: Any,
        mapping: LeafMapping,
        member: Member | None = None,
    ) -> None:
        """`member` is the leaf that this is; None for several as one."""
        self._location, self.uri = location, uri
        self.handle, self.mapping, self.member = handle, mapping, member

    def reading(self, columns: Sequence[str]) -> Reading:
        """How some of the table's columns are read from it."""
        return self.mapping.reading(columns, self.given)

    @property
    def given(self) -> Given:
        """The columns that its partition gives; several leaves as one have none."""
        return () if self.member is None else self.member.given

    def evaluating(self, where: Predicate | None) -> AbstractContextManager[str | None]:
        """The filter of a predicate, in a context that translates Lance's errors."""
        return evaluating(self._location, self.uri, self.mapping, where, self.given)

    @property
    def is_fixed_leaf(self) -> bool:
        """Whether it is a leaf at a version that never changes, with ids that are places."""
        version = None if self.member is None else self.member.version
        return is_lasting(version) and not self.handle.has_stable_row_ids

    def nearest(self, query: VectorQuery, where: Predicate | None) -> Hits:
        """The ids of the nearest rows that satisfy a predicate; rows without a vector are none."""
        table = self._nearest(query, where, [], with_row_id=True)
        if table is None:
            return self._equally_near(query, where)
        count = table.num_rows
        queries = np.zeros(count, np.int32)
        if QUERY in table.schema.names:
            queries = table.column(QUERY).to_numpy()
        return Hits(queries, table.column(ROW_ID).to_numpy(), table.column(DISTANCE).to_numpy())

    def _equally_near(self, query: VectorQuery, where: Predicate | None) -> Hits:
        """Rows of a leaf without the column: all of them hold its default, if it has one."""
        one = pa.record_batch({ROW_ID: pa.array([0], pa.uint64())})
        value = self.reading([query.column]).batch(one, False).column(0)[0]
        if not value.is_valid:
            return Hits.none()
        with self.evaluating(where) as filter:
            rows = self.handle.scanner(
                columns=[], filter=filter, with_row_id=True, limit=query.k
            ).to_table()
        ids, count = rows.column(ROW_ID).to_numpy(), len(query.vectors)
        vector = np.asarray(value.as_py(), np.float32)
        near = vector_distances(
            query.metric, query.vectors, np.broadcast_to(vector, (count, len(vector)))
        )
        queries = np.repeat(np.arange(count, dtype=np.int32), len(ids))
        return Hits(queries, np.tile(ids, count), np.repeat(near.astype(np.float32), len(ids)))

    def nearest_rows(
        self, query: VectorQuery, where: Predicate | None, columns: Sequence[str]
    ) -> pa.Table | None:
        """Columns of the nearest rows, in one go; None if the leaf has no such column."""
        reading = self.reading(columns)
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
        with self.evaluating(where) as filter:
            return self.handle.scanner(
                columns=[*columns, DISTANCE],
                filter=filter,
                prefilter=True,
                nearest=options,
                with_row_id=with_row_id,
                disable_scoring_autoprojection=True,
            ).to_table()

    def is_covered_by(self, index: str) -> bool:
        """Whether an index of the table covers every row of the leaf."""
        key = (self.uri, int(self.handle.version), index)
        covered = _covered.get(key)
        if covered is None:
            fragments = frozenset().union(*covered_fragments(self.handle, index).values())
            live = {fragment.fragment_id for fragment in self.handle.get_fragments()}
            covered = live <= fragments
            if self.is_fixed_leaf:
                _covered.put(key, covered)
        return covered

    def count(self, where: Predicate | None) -> int:
        """How many rows satisfy a predicate."""
        with self.evaluating(where) as filter:
            return int(self.handle.count_rows(filter))

    def matching(
        self, where: Predicate | None, columns: Sequence[str], limit: int | None = None
    ) -> pa.Table:
        """Columns of the rows that satisfy a predicate, or of some of them, in one go."""
        reading = self.reading(columns)
        with self.evaluating(where) as filter:
            rows = self.handle.scanner(
                columns=reading.columns,
                filter=filter,
                limit=limit,
                with_row_id=not reading.columns,
            ).to_table()
        return pa.Table.from_batches([reading.batch(_one_batch(rows), False)])

    def rows(self, ids: Array, columns: Sequence[str]) -> pa.Table:
        """Columns of some rows by their ids, in that order."""
        reading = self.reading(columns)
        rows = pa.table({ROW_ID: ids})
        if reading.columns:
            with self.evaluating(None):
                rows = take_rows(self.handle, ids, reading.columns)
        return pa.Table.from_batches([reading.batch(_one_batch(rows), False)]).select(list(columns))


def vector_distances(metric: str, one: Array, other: Array) -> Array:
    """The distances between pairs of vectors, as Lance defines them."""
    products = np.einsum("ij,ij->i", one, other)
    if metric == "dot":
        return np.asarray(1 - products)
    if metric == "cosine":
        lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        return np.asarray(1 - products / np.where(lengths == 0, np.nan, lengths))
    differences = one - other
    return np.asarray(np.einsum("ij,ij->i", differences, differences))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


_handles: LruCache[tuple[Any, ...], Any] = LruCache(_OPEN)
_covered: LruCache[tuple[str, int, str], bool] = LruCache(_REMEMBERED)


def open_searched(
    location: Location, schema: TableSchema, members: Sequence[Member]
) -> Iterator[Searched]:
    """Leaves as they are searched: many small ones together, as far as that is possible."""
    leaves = {location.child(member.folder): member for member in members}
    for uri, shape, handle in small_leaves.opened(location, members, _open):
        mapping = mapping_of(shape, handle, schema)
        yield Searched(location, uri, handle, mapping, leaves.get(uri))


class Gathered:
    """Rows of many datasets by their ids: all at once where that is possible.

    Taking a few rows from a leaf takes longer than reading them. So leaves are put together as one
    dataset, which is remembered: the next search is likely to look at the same ones.
    """

    def __init__(self, location: Location, schema: TableSchema, datasets: Sequence[Searched]):
        self._location, self._schema, self._datasets = location, schema, datasets

    def rows(self, sources: Array, ids: Array, columns: Sequence[str]) -> pa.Table:
        """Columns of rows, in this order; `sources` are numbers of datasets."""
        touched = np.unique(sources)
        whole = self._whole if len(touched) >= _MANY else None
        if whole is not None:
            dataset, numbers = whole
            known = numbers.ids(sources, ids)
            if known is not None:
                return dataset.rows(known, columns)
        parts, order = [], []
        for source in touched.tolist():
            mine = np.flatnonzero(sources == source)
            parts.append(self._datasets[source].rows(ids[mine], columns))
            order.append(mine)
        rows = pa.concat_tables(parts, promote_options="permissive")
        return rows.take(pa.array(np.argsort(np.concatenate(order))))

    def vectors(self, sources: Array, ids: Array, column: str) -> Array:
        """The vectors of rows, one in each row of the result."""
        values = self.rows(sources, ids, [column]).column(0).combine_chunks()
        numbers: Array = values.flatten().to_numpy(zero_copy_only=False)
        return numbers.astype(np.float32, copy=False).reshape(len(ids), -1)

    @cached_property
    def _whole(self) -> tuple[Searched, _Numbers] | None:
        # A column that partitions give is in none of their files.
        leaves = [(n, d) for n, d in enumerate(self._datasets) if d.is_fixed_leaf and not d.given]
        if len(leaves) < _MANY:
            return None
        members = [dataset.member for _, dataset in leaves if dataset.member is not None]
        options = sorted((self._location.options or {}).items())
        identity = json.dumps([self._location.uri, options, *members])
        name = hashlib.blake2b(identity.encode(), digest_size=20).hexdigest()
        known = _gathered.get(name)
        if known is None:
            handles = [dataset.handle for _, dataset in leaves]
            made = small_leaves.gathered(self._location, members, handles, f"{name}-rows")
            known = (None,) if made is None else made
            _gathered.put(name, known)
        if known[0] is None:
            return None
        handle, shape, places = known
        mapping = mapping_of(shape, handle, self._schema)
        dataset = Searched(self._location, self._location.child("*"), handle, mapping)
        return dataset, _Numbers([number for number, _ in leaves], places)


class _Numbers:
    """Where fragments of leaves are in the dataset that holds them all."""

    def __init__(self, sources: Sequence[int], places: Sequence[Mapping[int, int]]) -> None:
        pairs = [
            (source << _FRAGMENT_BITS | fragment, place)
            for source, leaf in zip(sources, places, strict=True)
            for fragment, place in leaf.items()
        ]
        #: Numbers of a dataset and a fragment as one, sorted, and their places.
        self._keys, self._places = np.array(sorted(pairs), np.uint64).reshape(-1, 2).T

    def ids(self, sources: Array, ids: Array) -> Array | None:
        """The ids that rows have there; None if one is not there."""
        bits = np.uint64(_FRAGMENT_BITS)
        keys = sources.astype(np.uint64) << bits | ids >> bits
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        if not len(self._keys) or (self._keys[at] != keys).any():
            return None
        offsets = ids & np.uint64(2**_FRAGMENT_BITS - 1)
        places: Array = self._places[at] << bits | offsets
        return places


_gathered: LruCache[str, tuple[Any, ...]] = LruCache(16)


def _open(location: Location, folder: str, version: int | None) -> Any:
    """A leaf, opened once if the version never changes."""
    if not is_lasting(version):
        return open_leaf(location, folder, version)
    key = (location.uri, folder, version, tuple(sorted((location.options or {}).items())))
    handle = _handles.get(key)
    if handle is None:
        handle = open_leaf(location, folder, version)
        _handles.put(key, handle)
    return handle
