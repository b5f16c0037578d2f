"""The partitioned writer: splits a stream of rows by partition and writes them to the leaves.

The buffer bounds the memory, whatever the size of the input and the number of partitions. Rows are
buffered by leaf, and when the buffer is full the largest groups are written. So leaves that get
many rows get large files, and rows for small leaves stay in the buffer.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.model import properties, statistics
from phalanx.model.domains import domain_of
from phalanx.model.specs import PartitionSpec
from phalanx.model.statistics import Statistics
from phalanx.storage.lance_types import may_be_sliced
from phalanx.storage.layouts import layout_of
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import Written
from phalanx.storage.new_leaves import NewLeaves, Rules
from phalanx.table.arguments import whole_number
from phalanx.table.constraints import satisfying
from phalanx.transaction.failpoints import reach
from phalanx.transaction.places import Place, find_place
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.tiny_leaves import refuse_new_leaves

#: Bytes of rows that are buffered before some are written. Peak memory is about twice this, plus
#: the chunks that are being split.
BUFFER_BYTES = 256 * 1024 * 1024
#: Bytes of rows for one leaf that are written as a file. Files are about this large, or smaller.
FILE_BYTES = properties.FILE_BYTES.default
#: How many leaves are written concurrently. A thread waits for Lance half of the time, so there are
#: several for each core: with one for each of two cores, 500 leaves take 1.4 times as long.
WRITERS = min(16, 4 * (os.cpu_count() or 2))
#: Groups of at most this many bytes are written by fewer threads: most of their time goes to
#: Python, of which one thread runs at a time, and more threads only take turns more often.
_TINY_BYTES = 16 * 1024
_TINY_WRITERS = min(4, os.cpu_count() or 2)
#: How many new leaves with the same number of rows, if they are tiny, are written together.
_TOGETHER = 256

Keys = tuple[Any, ...]


@dataclass(frozen=True)
class WrittenLeaf:
    """Rows for one leaf, written as files that no version refers to yet."""

    keys: Keys
    written: tuple[Written, ...]
    statistics: Statistics

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.written)


@dataclass
class _Group:
    """The buffered rows of one leaf, and the files written for it so far."""

    place: Place
    waiting: list[pa.Table] = field(default_factory=list)
    size: int = 0
    written: list[Written] = field(default_factory=list)
    statistics: Statistics | None = None


class PartitionedWriter:
    """Writes tables to the leaves of a snapshot's current spec.

    Raises InvalidInput if `buffer_bytes` is less than 1.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        pool: ThreadPoolExecutor,
        buffer_bytes: int = BUFFER_BYTES,
        file_bytes: int = FILE_BYTES,
        appends: bool = False,
        checks: bool = True,
    ) -> None:
        """`appends` says that rows are added beside the existing ones.

        Without `checks`, rows are known to satisfy the constraints of the table.
        """
        buffer_bytes = whole_number(buffer_bytes, 1, "buffer_bytes")
        self._snapshot, self._pool = snapshot, pool
        self._schema, self._spec = snapshot.head.schema, snapshot.head.spec
        self._measured = statistics.measured_columns(self._schema)
        self._new_leaves = NewLeaves()
        # In a tree without metadata a leaf is not written before its columns have ids on main.
        self._can_share = not self._schema.is_by_name and may_be_sliced(self._schema.arrow)
        self._is_shared = layout_of(snapshot.head.properties).SHARED
        self._groups: dict[Keys, _Group] = {}
        self._buffer_bytes, self._file_bytes = buffer_bytes, file_bytes
        self._waiting = 0
        self._new: list[Place] = []
        self._appends, self._checks = appends, checks

    def write(self, tables: Iterable[pa.Table]) -> list[WrittenLeaf]:
        """Split and write all rows, and return the files for a transaction to commit.

        Raises InvalidInput for more new leaves than the table's properties allow, for one whose
        place another client has taken, and for a row that breaks a constraint.
        """
        if self._checks:
            tables = satisfying(tables, self._snapshot)
        for keys, part in self._cut(tables):
            group = self._groups.get(keys)
            if group is None:
                if self._appends:
                    self._snapshot.manifest.check_operation("append", len(self._groups) + 1)
                place = find_place(self._snapshot.leaves, self._snapshot.head, self._spec, keys)
                group = self._groups[keys] = _Group(place)
                if place.row is None:
                    self._new.append(place)
                    refuse_new_leaves(self._snapshot.location.uri, self._snapshot.head, self._new)
                    self._check_place(place)
            size = part.nbytes
            group.waiting.append(part)
            group.size += size
            self._waiting += size
            if group.size >= self._file_bytes:
                self._flush([group])
            elif self._waiting > self._buffer_bytes:
                self._make_room()
        self._flush([group for group in self._groups.values() if group.waiting])
        return [
            WrittenLeaf(keys, tuple(group.written), group.statistics or {})
            for keys, group in self._groups.items()
        ]

    def _cut(self, tables: Iterable[pa.Table]) -> Iterator[tuple[Keys, pa.Table]]:
        """The input split by leaf, in input order; two chunks are split at a time."""
        ahead: deque[Future[list[tuple[Keys, pa.Table]]]] = deque()
        for table in tables:
            ahead.append(self._pool.submit(split, table, self._spec, self._snapshot.head.schema))
            if len(ahead) > 1:
                yield from ahead.popleft().result()
        while ahead:
            yield from ahead.popleft().result()

    def _make_room(self) -> None:
        """Write the largest groups until half of the buffer is free."""
        largest = []
        left = self._waiting
        for group in sorted(self._groups.values(), key=lambda g: g.size, reverse=True):
            if left <= self._buffer_bytes // 2:
                break
            left -= group.size
            largest.append(group)
        self._flush(largest)
        for group in self._groups.values():
            if group.waiting:
                # A part is a slice of its chunk and keeps the whole chunk in memory.
                whole = pa.concat_tables(group.waiting)
                group.waiting = [whole.take(pa.array(np.arange(whole.num_rows)))]

    def _flush(self, groups: list[_Group]) -> None:
        for group in groups:
            self._waiting -= group.size
        alike, others = self._alike(groups)
        jobs = [functools.partial(self._write_groups, share) for share in _shares(others)]
        shares = [alike[i::_TINY_WRITERS] for i in range(_TINY_WRITERS)]
        jobs += [functools.partial(self._write_all_alike, share) for share in shares if share]
        list(self._pool.map(lambda job: job(), jobs))

    def _alike(self, groups: Sequence[_Group]) -> tuple[list[list[_Group]], list[_Group]]:
        """Tiny new leaves that get the same number of rows, and all others."""
        if not self._can_share:
            return [], list(groups)
        by_count: dict[tuple[int, Rules], list[_Group]] = {}
        others = []
        for group in groups:
            leaf = self._leaf(group.place)
            if self._is_tiny_and_new(group) and self._new_leaves.shares(leaf):
                rows = sum(part.num_rows for part in group.waiting)
                by_count.setdefault((rows, self._new_leaves.rules_of(leaf)), []).append(group)
            else:
                others.append(group)
        alike = []
        for same in by_count.values():
            alike += [same[i : i + _TOGETHER] for i in range(0, len(same), _TOGETHER)]
        return alike, others

    def _is_tiny_and_new(self, group: _Group) -> bool:
        return group.place.row is None and not group.written and group.size <= _TINY_BYTES

    def _check_place(self, place: Place) -> None:
        """Refuse a dataset of another client in the place of a new leaf, before rows are written.

        In an object store that would take a request for each leaf. It is refused there when the
        leaf is created.
        """
        location = self._snapshot.location
        if self._is_shared and location.is_local and os.path.exists(location.child(place.folder)):
            self._leaf(place).check_place()

    def _leaf(self, place: Place) -> Leaf:
        snapshot = self._snapshot
        return Leaf.at(snapshot.location, snapshot.head, place.folder, place.spec.id, place.keys)

    def _write_all_alike(self, batches: Sequence[Sequence[_Group]]) -> None:
        for groups in batches:
            self._write_alike(groups)

    def _write_alike(self, groups: Sequence[_Group]) -> None:
        """Write to new leaves that get the same number of rows each."""
        table = pa.concat_tables(part for group in groups for part in group.waiting)
        table = table.combine_chunks()
        leaves = [self._leaf(group.place) for group in groups]
        written = self._new_leaves.write_alike(leaves, table)
        count = table.num_rows // len(groups)
        for number, (group, files) in enumerate(zip(groups, written, strict=True)):
            reach("write.leaf-created")
            group.waiting, group.size = [], 0
            rows = table.slice(number * count, count)
            group.statistics = statistics.measure(rows, self._measured)
            group.written.append(files)
            reach("write.files-written")

    def _write_groups(self, groups: Sequence[_Group]) -> None:
        for group in groups:
            self._write_group(group)

    def _write_group(self, group: _Group) -> None:
        # Lance writes one chunk twice as fast as several.
        table = pa.concat_tables(group.waiting).combine_chunks()
        group.waiting, group.size = [], 0
        place = group.place
        leaf = self._leaf(place)
        if place.row is None:
            writer = self._new_leaves.create(leaf)
            reach("write.leaf-created")
        else:
            writer = leaf.writer(place.row.read_version)
        measured = statistics.measure(table, self._measured)
        known = group.statistics
        group.statistics = measured if known is None else statistics.merge(known, measured)
        group.written.append(writer.write(table))
        reach("write.files-written")


def _shares(groups: Sequence[_Group]) -> list[Sequence[_Group]]:
    """Groups of rows by the thread that writes them: tiny ones are dealt to a few."""
    tiny = [group for group in groups if group.size <= _TINY_BYTES]
    shares: list[Sequence[_Group]] = [[group] for group in groups if group.size > _TINY_BYTES]
    return shares + [tiny[i::_TINY_WRITERS] for i in range(min(_TINY_WRITERS, len(tiny)))]


def split(table: pa.Table, spec: PartitionSpec, schema: Any) -> list[tuple[Keys, pa.Table]]:
    """Split a table by partition values; each part keeps the order of its rows."""
    if not table.num_rows:
        return []
    if not spec.fields:
        return [((), table)]
    table = table.combine_chunks()
    return split_by(table, [field.apply(table, schema) for field in spec.fields])


def split_by(table: pa.Table, values: list[pa.Array]) -> list[tuple[Keys, pa.Table]]:
    """Split a table by the values of one array or more; each part keeps the order of its rows."""
    codes, count = _group_codes(values)
    order, counts = _ordered(codes, count)
    if order is not None:
        table = table.take(pa.array(order))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    firsts = starts if order is None else order[starts]
    heads = [array.take(pa.array(firsts)) for array in values]
    domains = [domain_of(array.type) for array in values]
    parts = []
    for i in range(count):
        keys = tuple(
            domain.key(head[i]) if head[i].is_valid else None
            for domain, head in zip(domains, heads, strict=True)
        )
        parts.append((keys, table.slice(int(starts[i]), int(counts[i]))))
    return parts


def _group_codes(values: list[pa.Array]) -> tuple[np.ndarray[Any, Any], int]:
    """A group number for each row, equal for rows of the same leaf, and the number of groups."""
    combined: np.ndarray[Any, Any] | None = None
    size = 1
    for array in values:
        encoded = array.dictionary_encode()
        codes = np.asarray(encoded.indices.fill_null(-1)).astype(np.int64) + 1
        width = len(encoded.dictionary) + 1
        if combined is None:
            combined, size = codes, width
            continue
        if size * width >= 2**62:
            combined, size = _compact(combined)
        combined, size = combined * width + codes, size * width
    assert combined is not None
    return _compact(combined)


def _compact(codes: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], int]:
    """The codes renumbered from 0 without gaps, and how many distinct ones there are."""
    encoded = pa.array(codes).dictionary_encode()
    return np.asarray(encoded.indices), len(encoded.dictionary)


def _ordered(
    codes: np.ndarray[Any, Any], count: int
) -> tuple[np.ndarray[Any, Any] | None, np.ndarray[Any, Any]]:
    """The order that makes each group contiguous (None if all are already), and the group sizes."""
    counts = np.bincount(codes, minlength=count)
    if count == 1 or bool(np.all(codes[1:] >= codes[:-1])):
        return None, counts
    # numpy uses a radix sort for 16-bit integers, which is several times faster.
    small = codes.astype(np.uint16) if count <= 2**16 else codes
    return np.argsort(small, kind="stable"), counts
