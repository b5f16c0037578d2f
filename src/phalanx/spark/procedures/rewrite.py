"""`CALL <catalog>.system.rewrite(…)`: Spark's workers move rows to the newest spec."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from phalanx.spark.procedures.base import (
    DRY_RUN,
    TABLE,
    WHERE,
    Distributed,
    Invocation,
    Parameter,
    Rows,
    Work,
    register,
)
from phalanx.spark.procedures.optimize import commit_compacted, compact_commands
from phalanx.spark.tasks import Cluster, command_of, message
from phalanx.table import optimize, rewrite
from phalanx.table.partitioned_writer import WRITERS
from phalanx.transaction.snapshot import Snapshot

#: How many bytes a step moves at most: one task does it.
_STEP_BYTES = 512 * 1024 * 1024


@register
class RewriteProcedure(Distributed):
    """Moves rows of earlier specs."""

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
        "columns": "BIGINT",
        "notes": "STRING",
    }

    def call(self, invocation: Invocation) -> Work | Rows:
        job, newest = rewrite.begin(
            invocation.open()._snapshot,
            invocation["where"],
            invocation["step_rows"],
            invocation["step_bytes"] or _STEP_BYTES,
            invocation["max_steps"],
            bool(invocation["dry_run"]),
        )
        if invocation["dry_run"]:
            with ThreadPoolExecutor(WRITERS) as pool:
                if (columns := rewrite.begin_columns(job, newest, pool)) is not None:
                    job.count(columns[0].report)
            return self._rows(job)
        return self._round(job, newest, invocation.cluster)

    def go_on(self, state: Any, messages: Sequence[Any], cluster: Cluster) -> Work | Rows:
        job, columns, started = state
        with ThreadPoolExecutor(WRITERS) as pool:
            if columns is not None:
                commit_compacted(columns, messages, pool, started)
                return self._columns_round(job, columns, columns.next(pool), cluster, pool)
            for moved in messages:
                job.finish(Snapshot.latest(job.location), moved, pool, started)
        return self._round(job, job.next(), cluster)

    def _round(
        self, job: rewrite.Rewriting, newest: Snapshot | None, cluster: Cluster
    ) -> Work | Rows:
        """The next round of work, or the end.

        A round has few steps: where others change rows meanwhile, little was in vain.
        """
        steps: list[rewrite.RewriteStep] = []
        if newest is not None:
            most = 2 * cluster.cores
            if job.limit is not None:
                most = min(most, job.limit - job.report.steps)
            steps = list(itertools.islice(rewrite.plan(newest, job.where, job.bounds), most))
        if not steps:
            with ThreadPoolExecutor(WRITERS) as pool:
                job.end(pool)
                columns = rewrite.begin_columns(job, Snapshot.latest(job.location), pool)
                if columns is not None:
                    return self._columns_round(job, *columns, cluster, pool)
            return self._rows(job)
        return Work([command_of(MoveTask(step)) for step in steps], (job, None, time.time()))

    def _columns_round(
        self,
        job: rewrite.Rewriting,
        columns: optimize.Optimizing,
        plan: optimize.OptimizePlan | None,
        cluster: Cluster,
        pool: Executor,
    ) -> Work | Rows:
        """The next round of leaves that have other columns than new files, or the end."""
        if plan is None or not plan.tasks:
            columns.end(pool)
            job.count(columns.report)
            return self._rows(job)
        return Work(compact_commands(plan, cluster), (job, columns, time.time()))

    def _rows(self, job: rewrite.Rewriting) -> Rows:
        report = job.report
        return [
            {
                "rows": report.rows,
                "bytes": report.bytes,
                "steps": report.steps,
                "partitions": report.leaves,
                "left": report.left,
                "columns": report.columns,
                "notes": "; ".join(report.notes),
            }
        ]


@dataclass(frozen=True)
class MoveTask:
    """A function from nothing to one message: what one step has written."""

    step: rewrite.RewriteStep

    def __call__(self, nothing: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield message(rewrite.move(self.step))
        for _ in nothing:
            pass
