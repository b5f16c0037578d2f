"""Candidates for the nearest rows of many leaves at once, from the codes of their indexes.

Lance takes almost a millisecond to search a leaf, however small it is. All leaves of an IVF_PQ
index share centroids and codebook, so the codes of many leaves are searched like those of one: they
are kept in memory, sorted by centroid. What is found are candidates with estimated distances; the
caller compares them with the vectors themselves. So this decides how fast the best rows are found,
and not which distance they have.

Leaves with deleted rows, with rows that the index does not cover, or with a filter are searched by
Lance.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from phalanx.lru import LruCache
from phalanx.model.indexes import IndexDefinition
from phalanx.storage import index_models
from phalanx.storage.lance_errors import LANCE_ERRORS
from phalanx.storage.lance_private import pq_codes
from phalanx.storage.leaf_indexes import built_fragments
from phalanx.storage.location import Location
from phalanx.storage.searched import Array, Hits, Searched, VectorQuery

log = logging.getLogger("phalanx")

#: The only kind whose files are read here, and the distances that its codes estimate.
KIND, METRICS = "IVF_PQ", ("l2", "cosine")
#: How many centroids are looked at if the query does not say.
_PROBES = 20
#: So many vectors, at least, are searched together.
_BATCH = 8
#: Products of matrices up to this size are computed by one thread of BLAS. More threads, which wait
#: for each other, are slower where several searches share the cores.
_PRODUCT = 262_144
#: How far sums of 32-bit numbers are off, at most.
_ROUNDING = 1e-5
#: How many bytes of codes a process keeps, for leaves and for many of them together.
_LEAF_BYTES = 512 * 1024 * 1024
_TOGETHER_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True)
class _Codes:
    """The codes of one leaf, sorted by centroid. Without rows if the leaf is not searched here."""

    ids: Array
    codes: Array
    starts: Array

    @property
    def size(self) -> int:
        return int(self.ids.nbytes + self.codes.nbytes + self.starts.nbytes) + 100


@dataclass(frozen=True)
class _Together:
    """The codes of many leaves, sorted by centroid."""

    sources: Array
    ids: Array
    #: Numbers of entries in a table of distances, one for each part of a vector.
    entries: Array
    starts: Array

    @property
    def size(self) -> int:
        return int(self.sources.nbytes + self.ids.nbytes + self.entries.nbytes)


_codes: LruCache[tuple[Any, ...], _Codes] = LruCache(_LEAF_BYTES, lambda codes: codes.size)
_together: LruCache[str, _Together] = LruCache(_TOGETHER_BYTES, lambda codes: codes.size)


def can_search(definition: IndexDefinition | None, query: VectorQuery) -> bool:
    """Whether there are codes that estimate the distances of a query."""
    if definition is None or definition.model is None or not query.use_index:
        return False
    return definition.kind.name == KIND and query.metric in METRICS


def has_codes(location: Location, leaf: Searched, definition: IndexDefinition) -> bool:
    """Whether a leaf can be searched by its codes alone: an index covers exactly its rows."""
    return bool(len(_codes_of(location, leaf, definition).ids))


def _codes_of(location: Location, leaf: Searched, definition: IndexDefinition) -> _Codes:
    key = (leaf.uri, int(leaf.handle.version), definition.name, definition.model)
    codes = _codes.get(key)
    if codes is None:
        codes = _read(location, leaf, definition)
        _codes.put(key, codes)
    return codes


def _read(location: Location, leaf: Searched, definition: IndexDefinition) -> _Codes:
    none = _Codes(np.zeros(0, np.uint64), np.zeros((0, 0), np.uint8), np.zeros(0, np.int64))
    if not leaf.is_fixed_leaf:
        return none
    fragments = leaf.handle.get_fragments()
    segments = built_fragments(leaf.handle, definition.name)
    live = frozenset(fragment.fragment_id for fragment in fragments)
    if list(segments.values()) != [live] or any(f.num_deletions for f in fragments):
        return none
    (segment,) = segments
    try:
        parts = pq_codes(leaf.uri, segment, location.options)
    except (*LANCE_ERRORS, KeyError, IndexError) as error:
        log.debug("the codes of %s are left to Lance: %s", leaf.uri, location.reason(error))
        return none
    partitions = int(definition.parameters["num_partitions"])
    if parts is None or len(parts[2]) != partitions + 1:
        return none
    return _Codes(*parts)


def candidates(
    location: Location,
    leaves: Sequence[Searched],
    definition: IndexDefinition,
    query: VectorQuery,
    run: Callable[..., Iterable[Hits]] = map,
) -> list[Hits]:
    """For each leaf the candidates among the nearest `query.k` rows of all of them.

    `run` is `map`, or that of a pool of threads.
    """
    assert definition.model is not None
    model = index_models.load(location, definition.model)
    centroids = _matrix(model.centroids)
    width = int(definition.parameters["num_sub_vectors"])
    dimension = centroids.shape[1]
    codebook = _matrix(model.codebook).reshape(width, 256, dimension // width)
    together = _sorted(location, leaves, definition)
    if len(query.vectors) < _BATCH:
        nearest = functools.partial(_nearest, centroids, codebook, together, query)
        hits = _numbered([nearest(vector) for vector in query.vectors])
    else:
        hits = _Batch(centroids, codebook, together, query).nearest(run)
    queries, rows, distances = hits
    sources = together.sources[rows]
    order = np.argsort(sources, kind="stable")
    bounds = np.searchsorted(sources[order], np.arange(len(leaves) + 1))
    return [
        Hits(queries[mine], together.ids[rows[mine]], distances[mine])
        for low, high in pairwise(bounds.tolist())
        for mine in (order[low:high],)
    ]


def _numbered(results: Sequence[tuple[Array, Array]]) -> Hits:
    """The results of queries, which are numbered, as one; ids are numbers of rows."""
    counts = [len(rows) for rows, _ in results]
    return Hits(
        np.repeat(np.arange(len(results), dtype=np.int32), counts),
        np.concatenate([rows for rows, _ in results]),
        np.concatenate([distances for _, distances in results]),
    )


def _matrix(vectors: Any) -> Array:
    numbers: Array = np.asarray(vectors.flatten()).astype(np.float32)
    return numbers.reshape(len(vectors), -1)


def _sorted(
    location: Location, leaves: Sequence[Searched], definition: IndexDefinition
) -> _Together:
    """The codes of some leaves, sorted by centroid; those of one centroid in the leaves' order."""
    names = [[leaf.uri, int(leaf.handle.version)] for leaf in leaves]
    identity = json.dumps([definition.name, definition.model, names])
    key = hashlib.blake2b(identity.encode(), digest_size=20).hexdigest()
    together = _together.get(key)
    if together is None:
        parts = [_codes_of(location, leaf, definition) for leaf in leaves]
        lengths = np.stack([np.diff(part.starts) for part in parts])
        numbers = np.arange(lengths.shape[1])
        centroids = np.concatenate([np.repeat(numbers, row) for row in lengths])
        order = np.argsort(centroids, kind="stable")
        sizes = [len(part.ids) for part in parts]
        sources = np.repeat(np.arange(len(parts), dtype=np.int32), sizes)[order]
        ids = np.concatenate([part.ids for part in parts])[order]
        codes = np.concatenate([part.codes for part in parts])[order]
        offsets = 256 * np.arange(codes.shape[1], dtype=np.uint16)
        starts = np.concatenate([[0], np.cumsum(lengths.sum(axis=0))])
        together = _Together(sources, ids, codes + offsets, starts)
        _together.put(key, together)
    return together


def _nearest(
    centroids: Array, codebook: Array, together: _Together, query: VectorQuery, vector: Array
) -> tuple[Array, Array]:
    """Numbers of the rows whose codes are nearest to a vector, and the estimated distances."""
    if query.metric == "cosine":
        vector = vector / (np.linalg.norm(vector) or 1.0)
    order = np.argsort(((centroids - vector) ** 2).sum(axis=1))
    counts = np.cumsum(np.diff(together.starts)[order])
    # So many centroids as were asked for, and more if they do not have rows enough.
    enough = int(np.searchsorted(counts, min(query.k, counts[-1]))) + 1
    probes = min(max(query.nprobes or _PROBES, enough), len(centroids))
    chosen = order[:probes]
    # What is coded is the difference of a vector from its centroid.
    width, _, length = codebook.shape
    rest = (vector - centroids[chosen]).reshape(probes, width, length).transpose(1, 0, 2)
    distances_of_parts = (
        (rest**2).sum(axis=2)[:, :, None]
        - 2 * (rest @ codebook.transpose(0, 2, 1))
        + (codebook**2).sum(axis=2)[:, None, :]
    )
    tables = np.ascontiguousarray(distances_of_parts.transpose(1, 0, 2)).reshape(probes, -1)
    rows, distances = [], []
    for table, centroid in zip(tables, chosen.tolist(), strict=True):
        low, high = together.starts[centroid], together.starts[centroid + 1]
        if high > low:
            distances.append(table.take(together.entries[low:high]).sum(axis=1))
            rows.append(np.arange(low, high))
    if not rows:
        return np.zeros(0, np.int64), np.zeros(0, np.float32)
    numbers, estimates = np.concatenate(rows), np.concatenate(distances)
    if len(numbers) > query.k:
        best = np.argpartition(estimates, query.k - 1)[: query.k]
        numbers, estimates = numbers[best], estimates[best]
    return numbers, estimates


class _Batch:
    """Many vectors, searched together: centroid by centroid, and not vector by vector.

    The codes of a centroid are made vectors again, once for all queries that look at it. Their
    distances are then products of matrices, which takes less than to add up the distances of parts
    for each query.
    """

    def __init__(
        self, centroids: Array, codebook: Array, together: _Together, query: VectorQuery
    ) -> None:
        self._centroids, self._together, self._k = centroids, together, query.k
        self._parts = np.ascontiguousarray(codebook.reshape(-1, codebook.shape[2]))
        self._vectors = query.vectors
        if query.metric == "cosine":
            lengths = np.linalg.norm(query.vectors, axis=1, keepdims=True)
            self._vectors = query.vectors / np.where(lengths == 0, 1, lengths)
        near = np.stack([((centroids - vector) ** 2).sum(axis=1) for vector in self._vectors])
        order = np.argsort(near, axis=1)
        counts = np.cumsum(np.diff(together.starts)[order], axis=1)
        # As for one vector: more centroids than asked for, if they do not have rows enough.
        enough = (counts < np.minimum(query.k, counts[:, -1:])).sum(axis=1) + 1
        probes = np.maximum(query.nprobes or _PROBES, enough)
        chosen = np.arange(len(centroids)) < probes[:, None]
        self._visits = self._grouped(order, chosen)
        # The first centroid with rows: the k-th distance there bounds that of all.
        first = np.argmax(counts > 0, axis=1)
        self._first_visits = self._grouped(order, np.arange(len(centroids)) == first[:, None])
        self._bounds = np.full(len(self._vectors), np.inf, np.float32)

    def _grouped(self, order: Array, chosen: Array) -> list[tuple[int, Array]]:
        """Centroids that are looked at, each with the numbers of its queries."""
        queries, _ = np.nonzero(chosen)
        centroids = order[chosen]
        by_centroid = np.argsort(centroids, kind="stable")
        numbers, starts = np.unique(centroids[by_centroid], return_index=True)
        groups = np.split(queries[by_centroid], starts[1:])
        return list(zip(numbers.tolist(), groups, strict=True))

    def nearest(self, run: Callable[..., Iterable[Hits]] = map) -> Hits:
        """The numbers of the k nearest rows of each query, and the estimated distances."""
        for bounds in run(self._bound, self._first_visits):
            self._bounds[bounds.queries] = bounds.distances
        hits = list(run(self._visit, self._visits))
        queries, rows, distances = (
            np.concatenate([getattr(part, name) for part in hits]) for name in Hits._fields
        )
        order = np.lexsort((distances, queries))
        places = np.arange(len(order)) - np.searchsorted(queries[order], queries[order])
        best = order[places < self._k]
        return Hits(queries[best].astype(np.int32), rows[best], distances[best])

    def _bound(self, visit: tuple[int, Array]) -> Hits:
        """For each query of a centroid a bound for the distance of its k-th row, if there is one.

        Distances are rounded, each time in another way: relative to the numbers they are made of.
        """
        centroid, queries = visit
        distances = self._distances(centroid, queries)
        if distances.shape[1] < self._k:
            return Hits.none()
        kth = np.partition(distances, self._k - 1, axis=1)[:, self._k - 1]
        away = ((self._centroids[centroid] - self._vectors[queries]) ** 2).sum(axis=1)
        bounds = kth + _ROUNDING * (np.abs(kth) + 4 * away)
        return Hits(queries, np.zeros(len(kth), np.uint64), bounds)

    def _visit(self, visit: tuple[int, Array]) -> Hits:
        """The rows of a centroid that are not farther than the bound of a query."""
        centroid, queries = visit
        distances = self._distances(centroid, queries)
        at, rows = np.nonzero(distances <= self._bounds[queries][:, None])
        return Hits(queries[at], rows + self._together.starts[centroid], distances[at, rows])

    def _distances(self, centroid: int, queries: Array) -> Array:
        """The estimated distances of all rows of a centroid, in one row for each query."""
        low, high = self._together.starts[centroid], self._together.starts[centroid + 1]
        # What is coded is the difference of a vector from its centroid.
        codes = self._together.entries[low:high]
        rest = self._parts.take(codes, axis=0).reshape(high - low, -1)
        away = self._centroids[centroid] - self._vectors[queries]
        double = np.ascontiguousarray(2 * away.T)
        products = np.empty((high - low, len(queries)), np.float32)
        step = max(1, _PRODUCT // double.size)
        for start in range(0, high - low, step):
            np.matmul(rest[start : start + step], double, out=products[start : start + step])
        distances: Array = np.ascontiguousarray(products.T)
        distances += np.einsum("ij,ij->i", rest, rest)
        distances += (away**2).sum(axis=1)[:, None]
        return distances
