"""`CALL <catalog>.system.import_parquet(…)`: Spark's workers read files and write leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from phalanx.interop import parquet
from phalanx.interop.incoming import refuse_existing
from phalanx.interop.tree import Tree, TreeFile
from phalanx.spark.procedures.base import (
    PARTITION_BY,
    PATH,
    TABLE,
    Distributed,
    Invocation,
    Rows,
    Work,
    register,
)
from phalanx.spark.staging import Stage
from phalanx.spark.tasks import Cluster, command_of, message
from phalanx.spark.writer import together
from phalanx.table import ingest
from phalanx.table.partitioned_writer import WRITERS, PartitionedWriter


@register
class ImportParquetProcedure(Distributed):
    """Makes a table of a tree of Parquet files."""

    name = "import_parquet"
    description = "Create a table from a tree of Parquet files, in one transaction."
    parameters = (TABLE, PATH, PARTITION_BY)
    result: ClassVar = {"version": "BIGINT", "partitions": "BIGINT", "rows": "BIGINT"}

    def call(self, invocation: Invocation) -> Work:
        location = invocation.new_location
        refuse_existing(location)
        tree, schema = parquet.source(invocation["path"])
        partition_by = invocation.partition_by
        if partition_by is None:
            partition_by = list(tree.partition_columns)
        stage = Stage.make(location, False, schema, partition_by, None, {})
        parts = _parts(tree.files, invocation.cluster)
        return Work([command_of(ImportTask(stage, tree.only(part))) for part in parts], stage)

    def go_on(self, state: Any, messages: Sequence[Any], cluster: Cluster) -> Rows:
        stage: Stage = state
        written = together(messages)
        snapshot = stage.commit(written)
        rows = sum(leaf.rows for leaf in written)
        return [{"version": snapshot.sequence, "partitions": len(written), "rows": rows}]


@dataclass(frozen=True)
class ImportTask:
    """A function from nothing to one message: the leaves that the rows of some files are in."""

    stage: Stage
    tree: Tree

    def __call__(self, nothing: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = self.stage.snapshot()
        tables = ingest.chunks(self.tree.reader(), snapshot.head.schema.arrow)
        with ThreadPoolExecutor(WRITERS) as pool:
            yield message(PartitionedWriter(snapshot, pool).write(tables))
        for _ in nothing:
            pass


def _parts(files: Sequence[TreeFile], cluster: Cluster) -> list[list[TreeFile]]:
    """Files in parts of about the same size, in their order, a few for each core.

    Neighbors have the same partition values, and so a leaf gets few files.
    """
    total = sum(file.bytes for file in files)
    most = max(total // (2 * max(1, cluster.cores)), 1)
    parts: list[list[TreeFile]] = [[]]
    size = 0
    for file in files:
        if parts[-1] and size + file.bytes > most:
            parts.append([])
            size = 0
        parts[-1].append(file)
        size += file.bytes
    return parts
