"""Compaction of one leaf: small files become large ones, and deleted rows leave them.

Only neighbors are put together, so rows that were written together stay together; Lance puts what
is new behind the fragments that stay. Fragments that an index covers stay as they are: their rows
would no longer be where the index says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phalanx.errors import CorruptTable
from phalanx.model import statistics
from phalanx.model.ordering import Ordering
from phalanx.model.schema import TableSchema
from phalanx.model.statistics import Statistics
from phalanx.storage.leaf import BATCH_BYTES, Fragment, Leaf, LeafDelta, Rewritten, Written

#: From which part of the target on a file is large enough to be left alone.
_ENOUGH = 0.75
#: From how many times the target on a file is cut.
_TOO_LARGE = 2.0
#: Rows that are sorted at a time, in bytes.
SORT_BYTES = 256 * 1024 * 1024
#: Fragments up to this size in all are read in one go.
_SMALL_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Target:
    """How large files should be."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class Part:
    """One fragment, as compaction sees it."""

    id: int
    #: Rows that are not deleted.
    rows: int
    deleted: int
    #: Bytes of its files.
    bytes: int
    files: int = 1
    #: Whether an index has its rows.
    indexed: bool = False

    @property
    def live_bytes(self) -> int:
        return self.bytes * self.rows // max(1, self.rows + self.deleted)

    def is_due(self, target: Target) -> bool:
        """Whether it should not stay as it is, if there is a way to better it."""
        if self.indexed:
            return False
        small = self.rows < _ENOUGH * target.rows and self.live_bytes < _ENOUGH * target.bytes
        return small or bool(self.deleted) or self.is_too_large(target)

    def is_too_large(self, target: Target) -> bool:
        return self.rows > _TOO_LARGE * target.rows or (
            self.live_bytes > _TOO_LARGE * target.bytes and self.rows > 1
        )


@dataclass(frozen=True)
class Contents:
    """What a version of a leaf is made of."""

    parts: tuple[Part, ...]
    #: The names of its indexes.
    indexes: tuple[str, ...]
    #: Whether it has the table's schema for its own.
    current: bool = True


def look(leaf: Leaf, version: int | None) -> Contents:
    """The fragments of a version."""
    handle = leaf.open(version)
    indexes = handle.describe_indices()
    covered = {id for index in indexes for part in index.segments for id in part.fragment_ids}
    parts = []
    for fragment in handle.get_fragments():
        known = fragment.metadata
        deleted = known.num_deletions
        parts.append(
            Part(
                known.id,
                known.physical_rows - deleted,
                deleted,
                sum(file.file_size_bytes or 0 for file in known.files),
                len(known.files),
                known.id in covered,
            )
        )
    names = tuple(sorted({index.name for index in indexes}))
    return Contents(tuple(parts), names, leaf.is_current(handle))


def groups(parts: Sequence[Part], target: Target) -> list[tuple[Part, ...]]:
    """The fragments that are worth rewriting, each group into one file or a few."""
    found: list[list[Part]] = [[]]
    rows = size = 0
    for part in parts:
        if not part.is_due(target):
            found.append([])
            continue
        if rows + part.rows > target.rows or size + part.live_bytes > target.bytes:
            found.append([])
        if not found[-1]:
            rows = size = 0
        found[-1].append(part)
        rows, size = rows + part.rows, size + part.live_bytes
    return [tuple(group) for group in found if _is_worth_it(group, target)]


def _is_worth_it(group: Sequence[Part], target: Target) -> bool:
    if len(group) > 1:
        return True
    return bool(group) and (bool(group[0].deleted) or group[0].is_too_large(target))


def rewrite(
    leaf: Leaf,
    version: int,
    chosen: Sequence[Sequence[int]],
    target: Target,
    ordering: Ordering | None = None,
    measure: bool = False,
) -> tuple[LeafDelta, Statistics | None]:
    """Write the rows of some groups of fragments anew; nothing refers to the files yet.

    With `measure` also the statistics of those rows. A leaf of an earlier schema is written whole,
    with the table's.
    """
    handle = leaf.open(version)
    old = {fragment.fragment_id: fragment.metadata for fragment in handle.get_fragments()}
    current = leaf.is_current(handle)
    assert current or sorted(old) == sorted(id for ids in chosen for id in ids), leaf.uri
    writable = handle if current else leaf.writable(version)
    meter = _Meter(leaf.schema) if measure else None
    rewritten = []
    for ids in chosen:
        before = tuple(old[id] for id in ids)
        batches = _rows(leaf, version, ids, before)
        if meter is not None:
            batches = meter.watch(batches)
        if ordering is not None:
            batches = _ordered(batches, leaf.schema.arrow, ordering)
        live = sum(f.physical_rows - f.num_deletions for f in before)
        new = Written(())
        if live:
            rows = list(batches) if _size(before) <= _SMALL_BYTES else batches
            new = leaf.write_stream(rows, writable, target.rows, target.bytes)
        if new.rows != live:
            raise CorruptTable(
                f"the leaf {leaf.uri} should have {live} rows in the fragments {list(ids)}, and "
                f"{new.rows} were read: nothing was changed, run check()"
            )
        rewritten.append(Rewritten(before, new))
    delta = LeafDelta(rewritten=tuple(rewritten), replaced=not current)
    return delta, None if meter is None else meter.found


def _rows(
    leaf: Leaf, version: int, ids: Sequence[int], fragments: Sequence[Fragment]
) -> Iterator[pa.RecordBatch]:
    """The rows of fragments, with the table's types."""
    schema, whole = leaf.schema.arrow, _size(fragments) <= _SMALL_BYTES
    for batch in leaf.scan(version, schema.names, None, whole=whole, fragments=list(ids)):
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _size(fragments: Sequence[Fragment]) -> int:
    return sum(file.file_size_bytes or 0 for f in fragments for file in f.files)


def _ordered(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, ordering: Ordering
) -> Iterator[pa.RecordBatch]:
    """The rows in order; those of more than `SORT_BYTES` in several runs."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= SORT_BYTES:
            yield from _run(waiting, schema, ordering)
            waiting, size = [], 0
    if waiting:
        yield from _run(waiting, schema, ordering)


def _run(
    batches: list[pa.RecordBatch], schema: pa.Schema, ordering: Ordering
) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(batches, schema)
    batches.clear()
    ordered = table.take(ordering.order(table)).combine_chunks()
    rows = max(1, table.num_rows * BATCH_BYTES // max(1, table.nbytes))
    yield from ordered.to_batches(max_chunksize=rows)


class _Meter:
    """Statistics of rows that go by."""

    def __init__(self, schema: TableSchema) -> None:
        self._columns = statistics.measured_columns(schema)
        self.found: dict[int, Any] | None = None

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            more = statistics.measure(pa.Table.from_batches([batch]), self._columns)
            self.found = more if self.found is None else statistics.merge(self.found, more)
            yield batch
