"""Procedures that change how a table is laid out; the larger ones run in Spark's workers."""

from __future__ import annotations

import itertools
import json
import pickle
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
    Arguments,
    Cluster,
    Distributed,
    Parameter,
    Procedure,
    Rows,
    Work,
    lines,
    register,
    table_of,
)
from phalanx.spark.tasks import command_of
from phalanx.spark.transforms import entries_of
from phalanx.spark.warehouse import Warehouse
from phalanx.spark.writer import MESSAGE
from phalanx.table import optimize, rewrite
from phalanx.table.partitioned_writer import WRITERS
from phalanx.transaction.snapshot import Snapshot

WHERE = Parameter("where", "STRING", "which partitions: those that may hold such rows", "null")
#: What a step of rewrite moves at most: one task does it.
_STEP_BYTES = 512 * 1024 * 1024


class EvolvePartitioning(Procedure):
    name = "evolve_partitioning"
    description = "Partition by other fields from now on; rows that are there stay where they are."
    parameters = (
        TABLE,
        Parameter("partition_by", "STRING", "the fields, such as 'days(ts), bucket(16, id)'"),
    )
    result: ClassVar = {"version": "BIGINT", "spec": "STRING"}

    def call(self, warehouse: Warehouse, arguments: Arguments, cluster: Cluster) -> Work | Rows:
        table = table_of(warehouse, arguments)
        table.evolve_partitioning(entries_of(arguments["partition_by"] or ""))
        fields = ", ".join(table.spec.spell(table._snapshot.head.schema))
        return [{"version": table.version, "spec": f"v{table.spec.id}: {fields or 'nothing'}"}]


class Advise(Procedure):
    name = "advise"
    description = (
        "Say which partitions are too small, too large or skewed, and what would be better."
    )
    parameters = (TABLE,)
    result: ClassVar = {"report": "STRING"}

    def call(self, warehouse: Warehouse, arguments: Arguments, cluster: Cluster) -> Work | Rows:
        return lines(table_of(warehouse, arguments).advise())


class Optimize(Distributed):
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

    def call(self, warehouse: Warehouse, arguments: Arguments, cluster: Cluster) -> Work | Rows:
        with ThreadPoolExecutor(WRITERS) as pool:
            job, found = optimize.begin(
                table_of(warehouse, arguments)._snapshot,
                arguments["where"],
                arguments["target_rows"],
                arguments["target_bytes"],
                bool(arguments["dry_run"]),
                _sorting(arguments["sort_by"]),
                _names(arguments["zorder_by"]),
                pool,
            )
            if arguments["dry_run"]:
                return self._rows(job)
            return self._round(job, found, cluster, pool)

    def go_on(self, state: Any, messages: Sequence[Any], cluster: Cluster) -> Work | Rows:
        job, started = state
        done = [one for message in messages for one in message]
        with ThreadPoolExecutor(WRITERS) as pool:
            for at in range(0, len(done), optimize.GROUP_LEAVES):
                base = Snapshot.latest(job.location)
                job.finish(base, done[at : at + optimize.GROUP_LEAVES], pool, started)
            return self._round(job, job.next(pool), cluster, pool)

    def _round(
        self,
        job: optimize.Optimizing,
        found: optimize.OptimizePlan | None,
        cluster: Cluster,
        pool: Executor,
    ) -> Work | Rows:
        if found is None or not found.tasks:
            job.end(pool)
            return self._rows(job)
        commands = [message_of(Compacting(part)) for part in _parts(found.tasks, cluster)]
        return Work(commands, (job, time.time()))

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


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip().strip("`") for name in text.split(",")]


def _sorting(text: str | None) -> list[str | tuple[str, str]] | None:
    """`ts DESC, id` as `optimize` takes it."""
    found: list[str | tuple[str, str]] = []
    for entry in _names(text) or ():
        name, _, order = entry.partition(" ")
        match order.strip().upper():
            case "" | "ASC":
                found.append(name)
            case "DESC":
                found.append((name, "descending"))
            case _:
                raise InvalidInput(f"cannot sort by {entry!r}: write a column, and DESC after it")
    return found or None


class Rewrite(Distributed):
    name = "rewrite"
    description = "Move rows of earlier specs into the partitions of the newest, step by step."
    parameters = (
        TABLE,
        WHERE,
        Parameter("step_rows", "BIGINT", "rows of a step at most", "null"),
        Parameter("step_bytes", "BIGINT", "bytes of a step at most", "null"),
        Parameter("max_steps", "INT", "steps at most; call it again to go on", "null"),
        DRY_RUN,
    )
    result: ClassVar = {
        "rows": "BIGINT",
        "bytes": "BIGINT",
        "steps": "BIGINT",
        "partitions": "BIGINT",
        "left": "BIGINT",
        "notes": "STRING",
    }

    def call(self, warehouse: Warehouse, arguments: Arguments, cluster: Cluster) -> Work | Rows:
        job, newest = rewrite.begin(
            table_of(warehouse, arguments)._snapshot,
            arguments["where"],
            arguments["step_rows"],
            arguments["step_bytes"] or _STEP_BYTES,
            arguments["max_steps"],
            bool(arguments["dry_run"]),
        )
        if arguments["dry_run"]:
            return self._rows(job)
        return self._round(job, newest, cluster)

    def go_on(self, state: Any, messages: Sequence[Any], cluster: Cluster) -> Work | Rows:
        job, started = state
        with ThreadPoolExecutor(WRITERS) as pool:
            for moved in messages:
                job.finish(Snapshot.latest(job.location), moved, pool, started)
        return self._round(job, job.next(), cluster)

    def _round(
        self, job: rewrite.Rewriting, newest: Snapshot | None, cluster: Cluster
    ) -> Work | Rows:
        """As many steps as are done at a time: few are in vain where others change rows."""
        steps: list[rewrite.RewriteStep] = []
        if newest is not None:
            most = 2 * cluster.cores
            if job.limit is not None:
                most = min(most, job.limit - job.report.steps)
            steps = list(itertools.islice(rewrite.plan(newest, job.where, job.bounds), most))
        if not steps:
            with ThreadPoolExecutor(WRITERS) as pool:
                job.end(pool)
            return self._rows(job)
        return Work([message_of(Moving(step)) for step in steps], (job, time.time()))

    def _rows(self, job: rewrite.Rewriting) -> Rows:
        report = job.report
        return [
            {
                "rows": report.rows,
                "bytes": report.bytes,
                "steps": report.steps,
                "partitions": report.leaves,
                "left": report.left,
                "notes": "; ".join(report.notes),
            }
        ]


# What workers do


@dataclass(frozen=True)
class Compacting:
    """A function from nothing to one message: what was written for some leaves."""

    tasks: Sequence[optimize.LeafTask]

    def __call__(self, nothing: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ThreadPoolExecutor(2) as pool:
            yield _message(list(pool.map(optimize.compact, self.tasks)))
        for _ in nothing:
            pass


@dataclass(frozen=True)
class Moving:
    """The same for a step of rewrite."""

    step: rewrite.RewriteStep

    def __call__(self, nothing: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _message(rewrite.move(self.step))
        for _ in nothing:
            pass


def _message(value: Any) -> pa.RecordBatch:
    return pa.record_batch([pa.array([pickle.dumps(value)], pa.binary())], names=["message"])


def message_of(work: Any) -> str:
    """The command of a function that yields one message."""
    return command_of(work, json.dumps({"type": "struct", "fields": [MESSAGE]}))


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


for _made in (EvolvePartitioning(), Optimize(), Rewrite(), Advise()):
    register(_made)
