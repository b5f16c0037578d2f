"""Compaction of one leaf: merges small files into larger ones and drops deleted rows.

Only adjacent fragments are merged, so rows that were written together stay together. Lance places
new fragments after those that stay. The table's own indexes are built again for rows that have
moved. Fragments covered by an index of another client are left alone, because their rows would no
longer be where the index says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from lance.fragment import FragmentMetadata

from phalanx.errors import CorruptTable
from phalanx.model import statistics
from phalanx.model.ordering import Ordering
from phalanx.model.schema import TableSchema
from phalanx.model.statistics import Statistics
from phalanx.storage.leaf import BATCH_BYTES, Leaf, fragment_size
from phalanx.storage.leaf_delta import LeafDelta, Rewritten, Written
from phalanx.storage.records import FragmentSize

#: A file of at least this fraction of the target size is left alone.
_ENOUGH = 0.75
#: A file of more than this multiple of the target size is split.
_TOO_LARGE = 2.0
#: How many bytes of rows are sorted at a time.
SORT_BYTES = 256 * 1024 * 1024
#: Fragments of at most this many bytes in total are read in one go.
_SMALL_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Target:
    """The desired size of files."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class LeafFragments:
    """The fragments and indexes of one version of a leaf."""

    fragments: tuple[FragmentSize, ...]
    #: The names of the indexes of other clients.
    indexes: tuple[str, ...]
    #: Whether the version has the table's current schema.
    current: bool
    #: Whether rows have ids that they must keep when they move: another client has made the leaf.
    stable_ids: bool


def look(leaf: Leaf, version: int | None, own: Collection[str] = ()) -> LeafFragments:
    """Describe the fragments of a version, and its indexes except the table's `own`."""
    handle = leaf.open(version)
    indexes = [index for index in handle.describe_indices() if index.name not in own]
    covered = {id for index in indexes for segment in index.segments for id in segment.fragment_ids}
    metadata = [fragment.metadata for fragment in handle.get_fragments()]
    fragments = tuple(fragment_size(fragment, fragment.id in covered) for fragment in metadata)
    names = tuple(sorted({index.name for index in indexes}))
    return LeafFragments(fragments, names, leaf.is_current(handle), handle.has_stable_row_ids)


def is_due(fragment: FragmentSize, target: Target) -> bool:
    """Whether a fragment should be rewritten, provided that a rewrite can improve it."""
    if fragment.indexed:
        return False
    small = fragment.rows < _ENOUGH * target.rows and fragment.live_bytes < _ENOUGH * target.bytes
    return small or bool(fragment.deletions) or is_too_large(fragment, target)


def is_too_large(fragment: FragmentSize, target: Target) -> bool:
    return fragment.rows > _TOO_LARGE * target.rows or (
        fragment.live_bytes > _TOO_LARGE * target.bytes and fragment.rows > 1
    )


def groups(fragments: Sequence[FragmentSize], target: Target) -> list[tuple[FragmentSize, ...]]:
    """Group the fragments that are worth rewriting; each group becomes one file or a few."""
    runs: list[list[FragmentSize]] = [[]]
    rows = size = 0
    for fragment in fragments:
        if not is_due(fragment, target):
            runs.append([])
            continue
        if rows + fragment.rows > target.rows or size + fragment.live_bytes > target.bytes:
            runs.append([])
        if not runs[-1]:
            rows = size = 0
        runs[-1].append(fragment)
        rows, size = rows + fragment.rows, size + fragment.live_bytes
    return [tuple(run) for run in runs if _is_worth_it(run, target)]


def _is_worth_it(run: Sequence[FragmentSize], target: Target) -> bool:
    if len(run) > 1:
        return True
    return bool(run) and (bool(run[0].deletions) or is_too_large(run[0], target))


def rewrite(
    leaf: Leaf,
    version: int,
    chosen: Sequence[Sequence[int]],
    target: Target,
    ordering: Ordering | None = None,
    measure: bool = False,
) -> tuple[LeafDelta, Statistics | None]:
    """Rewrite the rows of some groups of fragments into new files; nothing refers to them yet.

    With `measure`, the statistics of those rows are returned as well. A leaf with an earlier schema
    is rewritten as a whole, with the table's schema. Raises CorruptTable if fewer or more rows are
    read than the fragments should have.
    """
    handle = leaf.open(version)
    old = {fragment.fragment_id: fragment.metadata for fragment in handle.get_fragments()}
    current = leaf.is_current(handle)
    assert current or sorted(old) == sorted(id for ids in chosen for id in ids), leaf.uri
    writer = leaf.writer(version)
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
            new = writer.write_stream(rows, target.rows, target.bytes)
        if new.rows != live:
            raise CorruptTable(
                f"the leaf {leaf.uri} should have {live} rows in the fragments {list(ids)}, but "
                f"{new.rows} were read: nothing was changed, run check()"
            )
        rewritten.append(Rewritten(before, new))
    delta = LeafDelta(rewritten=tuple(rewritten), replaced=not current)
    return delta, None if meter is None else meter.measured


def _rows(
    leaf: Leaf, version: int, ids: Sequence[int], fragments: Sequence[FragmentMetadata]
) -> Iterator[pa.RecordBatch]:
    """The rows of fragments, with the table's types."""
    schema, whole = leaf.schema.arrow, _size(fragments) <= _SMALL_BYTES
    for batch in leaf.scan(version, schema.names, None, whole=whole, fragments=list(ids)):
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _size(fragments: Sequence[FragmentMetadata]) -> int:
    return sum(file.file_size_bytes or 0 for f in fragments for file in f.files)


def _ordered(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, ordering: Ordering
) -> Iterator[pa.RecordBatch]:
    """The rows in order; more than `SORT_BYTES` of them are sorted in several runs."""
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
    """Measures the statistics of rows as they pass through."""

    def __init__(self, schema: TableSchema) -> None:
        self._columns = statistics.measured_columns(schema)
        self.measured: dict[int, Any] | None = None

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            more = statistics.measure(pa.Table.from_batches([batch]), self._columns)
            self.measured = more if self.measured is None else statistics.merge(self.measured, more)
            yield batch
