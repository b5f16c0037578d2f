"""Scans: the rows of a snapshot, cut down to some columns and those that match a filter."""

from __future__ import annotations

import contextlib
import queue
import re
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import InvalidInput, PhalanxError
from phalanx.model.predicates import NOTHING, Predicate
from phalanx.storage import small_leaves
from phalanx.storage.leaf import BATCH_BYTES
from phalanx.storage.read_units import LeafToRead, ReadUnit, grouped
from phalanx.storage.small_leaves import Member
from phalanx.table.arguments import positive, whole_number
from phalanx.table.batches import sized, with_types
from phalanx.table.filters import Filter, Parameters, SqlFilter, WeakerFilter, predicate_of
from phalanx.table.lookup import Lookup, wanted_values
from phalanx.table.plan import Plan
from phalanx.table.sample import sample
from phalanx.table.shards import ShardReader, divided, shards_of
from phalanx.transaction.snapshot import Snapshot

if TYPE_CHECKING:
    from phalanx.table.torch_dataset import TorchRows

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
        doubtful = np.intersect1d(plan.indices[~known], plan.to_read)
        units = self._units(doubtful)
        if len(doubtful) and (wanted := wanted_values(plan)) is not None:
            lookup = Lookup(self._snapshot, wanted, list(units))
            total += sum(count for count in lookup.counts if count is not None)
            units = iter(lookup.uncounted)
        left = list(units)
        if left:
            with _pool() as pool:
                total += sum(pool.map(self._count, left))
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

    def to_torch(
        self,
        batch_size: int = 1024,
        *,
        shuffle: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> TorchRows:
        """The rows as a dataset of PyTorch, which yields batches: a dict of columns for each.

        The rows are divided among ranks, and on each among the workers of a DataLoader (with
        `batch_size=None`), leaf by leaf; of a large leaf each may read some files. Every row is
        read once, if all ranks scan the same version. See `docs/python.md` for what becomes of
        types and NULL.

        Args:
            batch_size: How many rows a batch has. The last one of each worker may be smaller.
            shuffle: Read leaves in random order, and mix rows. `set_epoch` changes the order.
            seed: The same seed and epoch give the same order.
            rank: The number of this process, from 0; None asks `torch.distributed`.
            world_size: How many processes there are.

        Raises:
            InvalidInput: An argument makes no sense, the scan has a limit or no columns, or ranks
                would share a weak table, which has no versions.
            PhalanxError: PyTorch is not installed.
        """
        try:
            from phalanx.table.torch_dataset import TorchRows, rank_of
        except ModuleNotFoundError as error:
            raise PhalanxError(_missing("to_torch", "PyTorch", "torch", error)) from None

        reader = self._shard_reader("a dataset of PyTorch")
        rank, world_size = rank_of(rank, world_size)
        if world_size > 1:
            self._snapshot.refuse_weak("divided among several ranks")
        with self._snapshot.location.naming_failures():
            shards = divided(shards_of(self._plan, world_size), world_size)[rank]
        return TorchRows(reader, shards, batch_size, shuffle, seed, rank)

    def to_ray(self, **options: Any) -> Any:
        """The rows as a Dataset of Ray, read by a task for each leaf, or for several small ones.

        Options are those of `ray.data.read_datasource`.

        Raises:
            InvalidInput: The scan has a limit or no columns.
            PhalanxError: Ray is not installed.
        """
        try:
            import ray.data

            from phalanx.table.ray_datasource import RayRows
        except ModuleNotFoundError as error:
            raise PhalanxError(_missing("to_ray", "Ray", "ray", error)) from None

        reader = self._shard_reader("a dataset of Ray")
        with self._snapshot.location.naming_failures():
            shards = shards_of(self._plan)
        is_fixed = self._snapshot.head.transactions == "strong"
        return ray.data.read_datasource(RayRows(reader, shards, is_fixed), **options)

    def _shard_reader(self, what: str) -> ShardReader:
        if self._limit is not None:
            raise InvalidInput(f"{what} is read by several processes: leave the limit out")
        if not len(self.schema):
            raise InvalidInput(f"{what} needs columns")
        return ShardReader.of(self._plan, self.schema)

    def to_reader(self, ordered: bool = True) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches(ordered))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches, as `to_batches` returns them."""
        return self.to_batches()

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
        return sized(self._batches(ordered), positive(batch_size, 1, "batch_size"))

    def _batches(self, ordered: bool) -> Iterator[pa.RecordBatch]:
        left = self._limit
        with (
            self._snapshot.location.naming_failures(),
            contextlib.closing(self._stream(ordered)) as stream,
        ):
            for batch in stream:
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                if batch.num_rows:
                    yield batch
                if left == 0:
                    return

    def _stream(self, ordered: bool) -> Generator[pa.RecordBatch, None, None]:
        units: Iterable[ReadUnit] = self._units(self._plan.to_read)
        if self.schema.names and (wanted := wanted_values(self._plan)) is not None:
            lookup = Lookup(self._snapshot, wanted, list(units))
            tables = lookup.few_rows(self.schema.names)
            if tables is not None:
                batches = (batch for table in tables for batch in table.to_batches())
                yield from (with_types(batch, self.schema) for batch in batches)
                return
            units = lookup.matching
        yield from _ordered(self, units) if ordered else _unordered(self, units)

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
            yield with_types(batch, self.schema)

    def __repr__(self) -> str:
        return f"<scan: {self._plan.selected} of {self._plan.total} partitions>"


def _missing(call: str, library: str, extra: str, error: ModuleNotFoundError) -> str:
    return f"{call} needs {library} ({error}): pip install 'phalanx[{extra}]'"


def checked_columns(columns: str | Sequence[str] | None, snapshot: Snapshot) -> list[str] | None:
    """Names of columns. Raises InvalidInput if one is unknown or named twice."""
    if columns is None:
        return None
    if isinstance(columns, pc.Expression):
        columns = [columns]
    if not isinstance(columns, Iterable):
        raise InvalidInput(f"columns is a name or a list of names, such as [{str(columns)!r}]")
    columns = [columns] if isinstance(columns, str) else list(columns)
    known = snapshot.head.schema.tagged.names
    for name in columns:
        if isinstance(name, pc.Expression):
            raise InvalidInput(f"{name} is not a column name: give a filter as where=…")
        if name not in known:
            hint = f"; give a filter as where={name!r}" if _looks_like_filter(name) else ""
            raise InvalidInput(f"unknown column {name!r}: the table has {', '.join(known)}{hint}")
    if len(set(columns)) < len(columns):
        raise InvalidInput("a column is asked for twice")
    return columns


_OPERATOR = re.compile(r"[=<>]|\b(IN|IS|LIKE|BETWEEN)\b", re.IGNORECASE)


def _looks_like_filter(text: Any) -> bool:
    return isinstance(text, str) and " " in text and _OPERATOR.search(text) is not None


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
