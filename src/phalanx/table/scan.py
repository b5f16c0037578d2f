"""Scans: the rows of a snapshot, cut down to some columns and those that match a filter."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.predicates import NOTHING, Predicate
from phalanx.storage import small_leaves
from phalanx.storage.leaf import BATCH_BYTES
from phalanx.storage.read_units import LeafToRead, ReadUnit, grouped
from phalanx.storage.small_leaves import Member
from phalanx.table.arguments import positive, whole_number
from phalanx.table.filters import Filter, Parameters, SqlFilter, WeakerFilter, predicate_of
from phalanx.table.plan import Plan
from phalanx.table.sample import sample
from phalanx.transaction.snapshot import Snapshot

#: Units (leaves, or small ones together) that are read at a time.
READERS = 8
#: What may wait between a reading thread and the caller: batches, small ones put together.
WAITING_BATCHES = 2
HANDED_OVER_BYTES = BATCH_BYTES
#: So many leaves are not worth a thread of their own each.
_FEW = 4


class Scan:
    """A description of rows to read. Nothing is read until rows or counts are asked for."""

    def __init__(
        self,
        snapshot: Snapshot,
        columns: str | Sequence[str] | None = None,
        where: Filter | WeakerFilter | SqlFilter | Predicate | None = None,
        limit: int | None = None,
        params: Parameters | None = None,
    ) -> None:
        """Raises InvalidInput for an unknown column, an unparsable filter or a negative limit."""
        self._snapshot = snapshot
        self._limit = None if limit is None else whole_number(limit, 0, "a limit")
        self._columns = checked_columns(columns, snapshot)
        self._predicate = predicate_of(where, snapshot, params)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        whole = self._snapshot.head.schema.arrow
        if self._columns is None:
            return whole
        return pa.schema([whole.field(name) for name in self._columns], metadata=whole.metadata)

    @cached_property
    def _plan(self) -> Plan:
        return Plan(self._snapshot, NOTHING if self._limit == 0 else self._predicate)

    def plan(self) -> Plan:
        """What would be read: `total`, `selected`, `pruned` and the `leaves`."""
        return self._plan

    def explain(self) -> str:
        """The plan in words."""
        return self._plan.explain(self.schema.names)

    def count(self) -> int:
        """How many rows there are; leaves that match whole are counted from the manifest."""
        with self._snapshot.location.naming_failures():
            return self._counted()

    def _counted(self) -> int:
        plan, leaves = self._plan, self._snapshot.leaves
        counts = leaves.row_counts[plan.indices]
        known = plan.certain[plan.indices] & (counts >= 0)
        total = int(counts[known].sum())
        if self._limit is not None and total >= self._limit:
            return self._limit
        doubtful = plan.indices[~known]
        if len(doubtful):
            with _pool() as pool:
                total += sum(pool.map(self._count, self._units(doubtful)))
        return total if self._limit is None else min(total, self._limit)

    def _count(self, unit: ReadUnit) -> int:
        return unit.count(self._snapshot.location, self._snapshot.head.schema)

    def to_arrow(self) -> pa.Table:
        """All rows as one table."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def sample(self, n: int, seed: int | None = None) -> pa.Table:
        """Some rows, each with the same chance, in random order; all of them if there are fewer.

        The same seed draws the same rows of a snapshot. Only leaves from which rows are drawn are
        read. Raises InvalidInput for a scan with a limit or without columns.
        """
        whole_number(n, 0, "the size of a sample")
        if self._limit is not None:
            raise InvalidInput("a sample of a scan with a limit is not random: leave the limit out")
        if not len(self.schema):
            raise InvalidInput("a sample needs columns")
        with self._snapshot.location.naming_failures():
            return sample(self._plan, self.schema, n, seed)

    def to_pandas(self, **options: Any) -> Any:
        """All rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> Any:
        """All rows as a Polars DataFrame. Polars must be installed."""
        import polars

        return polars.from_arrow(self.to_arrow())

    def to_numpy(self) -> Any:
        """The values of the only column as a NumPy array.

        Lists of a fixed size, such as embeddings, give an array of two dimensions. Raises
        InvalidInput for more columns than one.
        """
        if len(self.schema) != 1:
            raise InvalidInput(
                f"a NumPy array has the values of one column, and there are {len(self.schema)}: "
                "name it, as in scan(columns='x')"
            )
        column = self.to_arrow().column(0).combine_chunks()
        if pa.types.is_fixed_size_list(column.type) and not column.null_count:
            values = column.flatten().to_numpy(zero_copy_only=False)
            return values.reshape(len(column), column.type.list_size)
        return column.to_numpy(zero_copy_only=False)

    def to_reader(self, ordered: bool = True) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches(ordered))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_batches(
        self, ordered: bool = True, *, batch_size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows in batches, read from several leaves at a time in bounded memory.

        In order of the partition values, and within a leaf as written; `ordered=False` yields
        batches as they come. With `batch_size`, every batch but the last has so many rows.
        """
        if batch_size is None:
            return self._batches(ordered)
        return _sized(self._batches(ordered), positive(batch_size, 1, "batch_size"))

    def _batches(self, ordered: bool) -> Iterator[pa.RecordBatch]:
        left = self._limit
        units = self._units(self._plan.indices)
        stream = _ordered(self, units) if ordered else _unordered(self, units)
        with self._snapshot.location.naming_failures(), contextlib.closing(stream):
            for batch in stream:
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                if batch.num_rows:
                    yield batch
                if left == 0:
                    return

    def _units(self, indices: Any) -> Iterator[ReadUnit]:
        """Leaves as they are read, in their order: there are units enough for all threads."""
        most = min(small_leaves.LARGEST, max(_FEW, len(indices) // READERS))
        return grouped(self._leaves(indices), most, self._limit)

    def _leaves(self, indices: Any) -> Iterator[LeafToRead]:
        leaves = self._snapshot.leaves
        for start in range(0, len(indices), 1024):
            chosen = indices[start : start + 1024]
            rows = leaves.row_counts[chosen]
            small = self._plan.are_small(chosen)
            counts = np.where(small, rows, -1).tolist()
            given = leaves.given(self._snapshot.head, chosen)
            members = zip(chosen.tolist(), leaves.versions(chosen), given, counts, strict=True)
            for index, (folder, version), values, count in members:
                where, rows_if_small = self._plan.residual(index), None if count < 0 else count
                yield LeafToRead(Member(folder, version, values), where, rows_if_small)

    def _read(self, unit: ReadUnit, in_order: bool) -> Generator[pa.RecordBatch, None, None]:
        """The rows of a unit, with the types of the scan."""
        location, schema = self._snapshot.location, self._snapshot.head.schema
        for batch in unit.scan(location, schema, self.schema.names, self._limit, in_order):
            yield _as(batch, self.schema)

    def __repr__(self) -> str:
        return f"<scan: {self._plan.selected} of {self._plan.total} partitions>"


def checked_columns(columns: str | Sequence[str] | None, snapshot: Snapshot) -> list[str] | None:
    """Names of columns. Raises InvalidInput if one is unknown or named twice."""
    if columns is None:
        return None
    if not isinstance(columns, Iterable):
        raise InvalidInput(f"columns is a name or a list of names, such as [{str(columns)!r}]")
    columns = [columns] if isinstance(columns, str) else list(columns)
    known = snapshot.head.schema.tagged.names
    for name in columns:
        if name not in known:
            raise InvalidInput(f"unknown column {name!r}: the table has {', '.join(known)}")
    if len(set(columns)) < len(columns):
        raise InvalidInput("a column is asked for twice")
    return columns


def _sized(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Rows in batches of the same size; the last one may be smaller."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        while rows >= size:
            table = pa.Table.from_batches(waiting)
            yield _one(table.slice(0, size))
            waiting = table.slice(size).to_batches()
            rows -= size
    if rows:
        yield _one(pa.Table.from_batches(waiting))


def _one(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if not len(schema):
        # A batch without columns still has a number of rows.
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    if batch.schema.names == schema.names and batch.schema.types == schema.types:
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    return pa.RecordBatch.from_arrays(
        [batch.column(field.name).cast(field.type) for field in schema], schema=schema
    )


@contextlib.contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """Threads that read. At the end those under way are waited for, and the others never start."""
    pool = ThreadPoolExecutor(READERS)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class _Channel:
    """A short queue from a reading thread to the scan; either side may give up."""

    def __init__(self, size: int) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(size)
        self._closed = threading.Event()

    def put(self, item: Any) -> bool:
        """False where nobody wants more."""
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def get(self) -> Any:
        return self._queue.get()

    def close(self) -> None:
        self._closed.set()


#: What a reading thread hands over: batches, and whether they are a unit's last. Or an error.
_Item = tuple[list[pa.RecordBatch], bool] | BaseException


def _feed(scan: Scan, unit: ReadUnit, channel: _Channel, in_order: bool) -> None:
    """Read a unit into a channel; an error travels the same way as a batch."""
    try:
        with contextlib.closing(scan._read(unit, in_order)) as batches:
            ready: list[pa.RecordBatch] = []
            size = 0
            for batch in batches:
                ready.append(batch)
                size += batch.nbytes
                if size >= HANDED_OVER_BYTES:
                    if not channel.put((ready, False)):
                        return
                    ready, size = [], 0
        channel.put((ready, True))
    except BaseException as error:
        channel.put(error)


def _take(channel: _Channel) -> tuple[list[pa.RecordBatch], bool]:
    item: _Item = channel.get()
    if isinstance(item, BaseException):
        raise item
    return item


def _ordered(scan: Scan, units: Iterable[ReadUnit]) -> Generator[pa.RecordBatch, None, None]:
    """Unit after unit; the next ones are being read meanwhile."""
    with _pool() as pool:
        running: deque[_Channel] = deque()
        upcoming = iter(units)

        def start() -> None:
            unit = next(upcoming, None)
            if unit is not None:
                running.append(_Channel(WAITING_BATCHES))
                pool.submit(_feed, scan, unit, running[-1], True)

        try:
            for _ in range(READERS + 4):
                start()
            while running:
                last = False
                while not last:
                    batches, last = _take(running[0])
                    yield from batches
                running.popleft()
                start()
        finally:
            for channel in running:
                channel.close()


def _unordered(scan: Scan, units: Iterable[ReadUnit]) -> Generator[pa.RecordBatch, None, None]:
    """Batches as they come."""
    with _pool() as pool:
        channel = _Channel(READERS * WAITING_BATCHES)
        upcoming = iter(units)
        running = 0

        def start() -> int:
            unit = next(upcoming, None)
            if unit is None:
                return 0
            pool.submit(_feed, scan, unit, channel, False)
            return 1

        try:
            running = sum(start() for _ in range(READERS + 4))
            while running:
                batches, last = _take(channel)
                yield from batches
                if last:
                    running += start() - 1
        finally:
            channel.close()
