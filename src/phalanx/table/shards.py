"""Shards: the rows of a scan, divided among readers that know nothing of each other.

A shard is a leaf, or some fragments of a large one. All readers make the same shards of a snapshot
and divide them in the same way, so that every row is read by exactly one of them. What a reader
needs is a value that can be sent to another process: it names the version of every leaf, and no
manifest is read there.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from phalanx.model.predicates import columns_of
from phalanx.model.schema import TableSchema
from phalanx.storage.leaf import fragments_of
from phalanx.storage.location import Location
from phalanx.storage.read_units import LeafToRead, ReadUnit, grouped
from phalanx.storage.small_leaves import Member
from phalanx.table.batches import with_types
from phalanx.table.plan import Plan

#: A leaf is cut if it has more than this part of the rows that one reader should get.
_PARTS = 4


@dataclass(frozen=True)
class Shard:
    """A leaf, or some of its fragments."""

    leaf: LeafToRead
    #: Its rows and bytes before any filter, as far as the manifest knows.
    rows: int
    bytes: int
    #: The fragments to read, by their ids; None for all.
    fragments: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ShardReader:
    """Reads shards of one scan, in any process."""

    location: Location
    #: The columns of the table that are read or filtered by.
    table: TableSchema
    #: The columns of the scan.
    schema: pa.Schema

    @staticmethod
    def of(plan: Plan, schema: pa.Schema) -> ShardReader:
        where = {column.path[0] for column in columns_of(plan.predicate)}
        location = plan.snapshot.location
        return ShardReader(
            # What is declared about a tree has made the plan, and is not needed any more.
            Location(location.uri, location.options),
            plan.snapshot.head.schema.only(where.union(schema.names)),
            schema,
        )

    def streams(self, shards: Iterable[Shard]) -> Iterator[Iterator[pa.RecordBatch]]:
        """The rows of shards, in their order; small leaves that are neighbors are one stream."""
        for whole, run in groupby(shards, lambda shard: shard.fragments is None):
            if whole:
                yield from map(self._read, grouped(shard.leaf for shard in run))
                continue
            for shard in run:
                leaf = shard.leaf
                yield self._read(ReadUnit((leaf.member,), leaf.where, fragments=shard.fragments))

    def batches(self, shards: Iterable[Shard]) -> Iterator[pa.RecordBatch]:
        """The rows of shards, one after the other."""
        for stream in self.streams(shards):
            yield from stream

    def _read(self, unit: ReadUnit) -> Iterator[pa.RecordBatch]:
        with self.location.naming_failures():
            for batch in unit.scan(self.location, self.table, self.schema.names):
                if batch.num_rows:
                    yield with_types(batch, self.schema)


def shards_of(plan: Plan, readers: int = 1) -> list[Shard]:
    """The shards of a plan, in the order of its leaves, small enough for so many readers.

    The leaves of a weak table are not cut: which fragments they have may change meanwhile.
    """
    leaves, head = plan.snapshot.leaves, plan.snapshot.head
    indices = plan.indices[leaves.row_counts[plan.indices] != 0]
    rows, sizes = leaves.row_counts[indices], leaves.byte_counts[indices]
    fragments = leaves.fragment_counts[indices]
    most = max(1, int(rows[rows > 0].sum()) // (_PARTS * readers))
    is_cut = (rows > most) & (fragments > 1) & (head.transactions == "strong")
    numbers = (indices, rows, sizes, plan.are_small(indices), is_cut)
    members = zip(leaves.versions(indices), leaves.given(head, indices), strict=True)
    shards: list[Shard] = []
    for ((folder, version), given), index, count, size, small, cut in zip(
        members, *(column.tolist() for column in numbers), strict=True
    ):
        where = plan.residual(index)
        leaf = LeafToRead(Member(folder, version, given), where, count if small else None)
        # A leaf of unknown size counts as one row.
        shard = Shard(leaf, max(1, count), max(1, size))
        shards += _cut(plan.snapshot.location, shard, most) if cut else [shard]
    return shards


def _cut(location: Location, shard: Shard, most: int) -> Iterator[Shard]:
    """Runs of a leaf's fragments, each with at most so many rows, or with one fragment."""
    member, where, _ = shard.leaf
    ids: list[int] = []
    rows = size = 0
    for fragment in fragments_of(location, member.folder, member.version):
        if ids and rows + fragment.rows > most:
            yield Shard(LeafToRead(member, where, None), rows, size, tuple(ids))
            ids, rows, size = [], 0, 0
        ids.append(fragment.id)
        rows += fragment.rows
        size += fragment.bytes
    if ids:
        yield Shard(LeafToRead(member, where, None), rows, size, tuple(ids))


def divided(shards: Sequence[Shard], readers: int) -> list[list[Shard]]:
    """For each reader its shards, in their order: each has about as many rows as the others.

    The largest shard goes first, and always to the reader with the fewest rows.
    """
    loads = [(0, reader) for reader in range(readers)]
    mine: list[list[int]] = [[] for _ in range(readers)]
    for number in sorted(range(len(shards)), key=lambda number: -shards[number].rows):
        load, reader = heapq.heappop(loads)
        mine[reader].append(number)
        heapq.heappush(loads, (load + shards[number].rows, reader))
    return [[shards[number] for number in sorted(numbers)] for numbers in mine]


def packed(shards: Iterable[Shard], bytes: int) -> Iterator[list[Shard]]:
    """Shards in runs of at most so many bytes; a larger shard is a run of its own."""
    run: list[Shard] = []
    size = 0
    for shard in shards:
        if run and size + shard.bytes > bytes:
            yield run
            run, size = [], 0
        run.append(shard)
        size += shard.bytes
    if run:
        yield run
