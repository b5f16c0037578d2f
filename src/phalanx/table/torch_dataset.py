"""Scans as datasets of PyTorch: batches of tensors, divided among ranks and workers.

Which rank reads a shard follows from the snapshot alone, and not from the epoch: ranks that
disagree about the epoch still read every row once. Which worker of a rank reads it follows from the
number of workers. Shuffling changes the order in which a worker reads its shards, and the order of
rows within a window.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.distributed
from torch.utils.data import IterableDataset, get_worker_info

from phalanx.errors import InvalidInput, PhalanxError
from phalanx.table.arguments import positive, whole_number
from phalanx.table.batches import one_batch, sized
from phalanx.table.shards import Shard, ShardReader, divided

#: How many shards are read at a time if their rows are shuffled.
_MIXED = 4
#: How many rows and bytes are shuffled at a time, at most.
_WINDOW_ROWS, _WINDOW_BYTES = 262_144, 256 * 1024 * 1024

#: A column of a batch: a tensor of numbers, or a list of anything else.
Column: TypeAlias = "torch.Tensor | list[Any]"


class TorchRows(IterableDataset):  # type: ignore[misc]
    """The rows of a scan that one rank reads, as batches: a mapping of columns for each.

    It is for a DataLoader with `batch_size=None`, whose workers share the rows of the rank. Workers
    must be started by "spawn" or "forkserver".
    """

    def __init__(
        self,
        reader: ShardReader,
        shards: Sequence[Shard],
        batch_size: int,
        shuffle: bool,
        seed: int,
        rank: int,
    ) -> None:
        """`shards` are those of the rank. Raises InvalidInput for a bad size or seed."""
        super().__init__()
        self._reader, self._shards, self._rank = reader, tuple(shards), rank
        self._batch_size = positive(batch_size, 1, "batch_size")
        self._shuffle, self._seed = bool(shuffle), whole_number(seed, 0, "a seed")
        # Workers that outlive an epoch have copies of the dataset, and share this number.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        self._process = os.getpid()

    def set_epoch(self, epoch: int) -> None:
        """Shuffle the rows in another order from the next iteration on."""
        self._epoch.fill_(whole_number(epoch, 0, "an epoch"))

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        # A copy in another process belongs to that process; one that was forked does not.
        self.__dict__.update(state, _process=os.getpid())

    def __iter__(self) -> Iterator[dict[str, Column]]:
        """The rows of this worker. Raises PhalanxError in a forked process."""
        if os.getpid() != self._process:
            raise PhalanxError(
                "Lance does not work in a forked process: start the workers with "
                'DataLoader(…, multiprocessing_context="spawn")'
            )
        worker = get_worker_info()
        shards, number = self._shards, 0
        if worker is not None:
            number = worker.id
            shards = tuple(divided(shards, worker.num_workers)[number])
        batches = self._mixed(shards, number) if self._shuffle else self._reader.batches(shards)
        for batch in sized(batches, self._batch_size):
            columns = zip(batch.schema.names, batch.columns, strict=True)
            yield {name: tensor(column, name) for name, column in columns}

    def _mixed(self, shards: Sequence[Shard], worker: int) -> Iterator[pa.RecordBatch]:
        """Rows of several shards at a time, in random order within a window."""
        chance = np.random.default_rng([self._seed, int(self._epoch), self._rank, worker])
        upcoming = self._reader.streams(shards[n] for n in chance.permutation(len(shards)))
        window: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in _in_turn(upcoming):
            window.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _WINDOW_ROWS or size >= _WINDOW_BYTES:
                yield _shuffled(window, chance)
                window, rows, size = [], 0, 0
        if window:
            yield _shuffled(window, chance)


def rank_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The number of this rank and how many there are: those given, or those of PyTorch."""
    if rank is None and world_size is None:
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return 0, 1
        return distributed.get_rank(), distributed.get_world_size()
    if rank is None or world_size is None:
        raise InvalidInput("rank and world_size go together: pass both, or none of them")
    whole_number(world_size, 1, "world_size")
    if whole_number(rank, 0, "rank") >= world_size:
        raise InvalidInput(f"rank is below world_size, which is {world_size}, and not {rank}")
    return rank, world_size


def _in_turn(upcoming: Iterator[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """A batch of each of some streams in turn; where one ends, the next stream takes its place."""
    running = deque(islice(upcoming, _MIXED))
    while running:
        stream = running.popleft()
        batch = next(stream, None)
        if batch is None:
            running.extend(islice(upcoming, 1))
        else:
            running.append(stream)
            yield batch


def _shuffled(batches: Sequence[pa.RecordBatch], chance: np.random.Generator) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches)
    return one_batch(table.take(pa.array(chance.permutation(table.num_rows))))


# Tensors


def tensor(column: pa.Array, name: str) -> Column:
    """The values of a column. Numbers without NULL are not copied.

    Numbers and booleans make a tensor, fixed-size lists of them one with more dimensions. NULL is
    NaN where numbers are floating; otherwise it has no place in a tensor, and InvalidInput is
    raised. Anything else makes a list of Python values, in which NULL is None.
    """
    shape, type = [len(column)], column.type
    while pa.types.is_fixed_size_list(type):
        shape.append(type.list_size)
        type = type.value_type
    if not _is_number(type):
        values: list[Any] = column.to_pylist()
        return values
    return _flat(column, name).reshape(shape)


def _is_number(type: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(type) or types.is_floating(type) or types.is_boolean(type))


def _flat(column: pa.Array, name: str) -> torch.Tensor:
    """The numbers of a column as one dimension; those of a NULL list are NULL."""
    missing = None
    while pa.types.is_fixed_size_list(column.type):
        length = column.type.list_size
        if column.null_count:
            nulls = np.asarray(column.is_null())
            missing = nulls if missing is None else missing | nulls
        missing = None if missing is None else np.repeat(missing, length)
        column = column.values.slice(column.offset * length, len(column) * length)
    if missing is not None:
        column = pc.if_else(pa.array(missing), pa.scalar(None, column.type), column)
    if column.null_count:
        if not pa.types.is_floating(column.type):
            raise InvalidInput(
                f"column {name!r} holds NULL, which a tensor of {column.type} cannot: leave such "
                f'rows out with where="{name} IS NOT NULL"'
            )
        column = column.fill_null(math.nan)
    if pa.types.is_boolean(column.type):
        # Arrow packs booleans into bits.
        return torch.from_numpy(column.to_numpy(zero_copy_only=False))
    return torch.from_dlpack(column)
