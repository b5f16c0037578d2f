"""Scans as datasets of Ray: a read task for a leaf, or for several small ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from phalanx.table.shards import Shard, ShardReader, packed


class RayRows(Datasource):  # type: ignore[misc]
    """The rows of a scan, as Ray Data reads them."""

    def __init__(self, reader: ShardReader, shards: Sequence[Shard], is_fixed: bool) -> None:
        """`is_fixed` says whether the numbers of rows are certain: not those of a weak table."""
        super().__init__()
        self._reader, self._shards, self._is_fixed = reader, shards, is_fixed

    def get_name(self) -> str:
        """What Ray calls its tasks."""
        return "Phalanx"

    def estimate_inmemory_data_size(self) -> int:
        """The bytes of the files that are read; those of columns that are left out included."""
        return sum(shard.bytes for shard in self._shards)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """About as many tasks as Ray asks for, but at most one for each shard."""
        share = -(-self.estimate_inmemory_data_size() // max(1, parallelism))
        # Without rows there is still a schema.
        runs = list(packed(self._shards, share)) or [[]]
        return [self._task(run, per_task_row_limit) for run in runs]

    def _task(self, shards: Sequence[Shard], limit: int | None) -> ReadTask:
        # Ray takes this number for granted when it counts.
        known = self._is_fixed and all(shard.leaf.where is None for shard in shards)
        rows = sum(shard.rows for shard in shards) if known else None
        metadata = BlockMetadata(
            num_rows=rows,
            size_bytes=sum(shard.bytes for shard in shards),
            exec_stats=None,
            input_files=None,
        )
        read = partial(_tables, self._reader, tuple(shards))
        return ReadTask(read, metadata, schema=self._reader.schema, per_task_row_limit=limit)


def _tables(reader: ShardReader, shards: Sequence[Shard]) -> Iterator[pa.Table]:
    """The blocks of a task."""
    for batch in reader.batches(shards):
        yield pa.Table.from_batches([batch])
    if not shards:
        yield reader.schema.empty_table()
