"""`CALL <catalog>.system.optimize(…)`: Spark's workers compact leaves."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.spark.procedures.base import (
    DRY_RUN,
    TABLE,
    WHERE,
    Distributed,
    Invocation,
    Parameter,
    Rows,
    Work,
    names_of,
    register,
)
from phalanx.spark.tasks import Cluster, command_of, message
from phalanx.table import optimize
from phalanx.table.partitioned_writer import WRITERS
from phalanx.transaction.snapshot import Snapshot


@register
class OptimizeProcedure(Distributed):
    """Compacts leaves, and sorts them if asked."""

    name = "optimize"
    description = "Put the rows of each partition into fewer, larger files, sorted if asked."
    parameters = (
        TABLE,
        WHERE,
        Parameter("target_rows", "BIGINT", "rows of a file, about", "null"),
        Parameter("target_bytes", "BIGINT", "bytes of a file, about", "null"),
        Parameter("sort_by", "STRING", "columns to sort by, such as 'ts DESC, id'", "null"),
        Parameter("zorder_by", "STRING", "columns to order by together: 'x, y'", "null"),
        DRY_RUN,
    )
    result: ClassVar = {
        "partitions": "BIGINT",
        "rewritten": "BIGINT",
        "files_before": "BIGINT",
        "files_after": "BIGINT",
        "bytes_before": "BIGINT",
        "bytes_after": "BIGINT",
        "notes": "STRING",
    }

    def call(self, invocation: Invocation) -> Work | Rows:
        with ThreadPoolExecutor(WRITERS) as pool:
            job, plan = optimize.begin(
                invocation.open()._snapshot,
                invocation["where"],
                invocation["target_rows"],
                invocation["target_bytes"],
                bool(invocation["dry_run"]),
                _sorting(invocation["sort_by"]),
                names_of(invocation["zorder_by"]),
                pool,
            )
            if invocation["dry_run"]:
                return self._rows(job)
            return self._round(job, plan, invocation.cluster, pool)

    def go_on(self, state: Any, messages: Sequence[Any], cluster: Cluster) -> Work | Rows:
        job, started = state
        with ThreadPoolExecutor(WRITERS) as pool:
            commit_compacted(job, messages, pool, started)
            return self._round(job, job.next(pool), cluster, pool)

    def _round(
        self,
        job: optimize.Optimizing,
        plan: optimize.OptimizePlan | None,
        cluster: Cluster,
        pool: Executor,
    ) -> Work | Rows:
        """The next round of work, or the end."""
        if plan is None or not plan.tasks:
            job.end(pool)
            return self._rows(job)
        return Work(compact_commands(plan, cluster), (job, time.time()))

    def _rows(self, job: optimize.Optimizing) -> Rows:
        report = job.report
        return [
            {
                "partitions": report.leaves,
                "rewritten": report.rewritten,
                "files_before": report.files_before,
                "files_after": report.files_after,
                "bytes_before": report.bytes_before,
                "bytes_after": report.bytes_after,
                "notes": "; ".join(report.notes),
            }
        ]


def compact_commands(plan: optimize.OptimizePlan, cluster: Cluster) -> list[str]:
    """The work of a plan, for Spark's workers."""
    return [command_of(CompactTask(part)) for part in _parts(plan.tasks, cluster)]


def commit_compacted(
    job: optimize.Optimizing, messages: Sequence[Any], pool: Executor, started: float
) -> None:
    """Commit what the workers have written, in groups of leaves."""
    compacted = [leaf for leaves in messages for leaf in leaves]
    for at in range(0, len(compacted), optimize.GROUP_LEAVES):
        base = Snapshot.latest(job.location)
        job.finish(base, compacted[at : at + optimize.GROUP_LEAVES], pool, started)


def _sorting(text: str | None) -> list[str | tuple[str, str]] | None:
    """`ts DESC, id` as `Table.optimize` takes it."""
    columns: list[str | tuple[str, str]] = []
    for entry in names_of(text) or ():
        name, _, order = entry.partition(" ")
        match order.strip().upper():
            case "" | "ASC":
                columns.append(name)
            case "DESC":
                columns.append((name, "descending"))
            case _:
                raise InvalidInput(f"cannot sort by {entry!r}: write a column, and DESC after it")
    return columns or None


@dataclass(frozen=True)
class CompactTask:
    """A function from nothing to one message: what was written for some leaves."""

    tasks: Sequence[optimize.LeafTask]

    def __call__(self, nothing: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ThreadPoolExecutor(2) as pool:
            yield message(list(pool.map(optimize.compact, self.tasks)))
        for _ in nothing:
            pass


def _parts(tasks: Sequence[optimize.LeafTask], cluster: Cluster) -> list[list[optimize.LeafTask]]:
    """Tasks in parts of about the same size, a few for each core."""
    sizes = [task.bytes for task in tasks]
    most = max(sum(sizes) // (4 * max(1, cluster.cores)), max(sizes))
    parts: list[list[optimize.LeafTask]] = [[]]
    weight = 0
    for task, size in zip(tasks, sizes, strict=True):
        if parts[-1] and weight + size > most:
            parts.append([])
            weight = 0
        parts[-1].append(task)
        weight += size
    return parts
