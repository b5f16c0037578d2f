"""`CALL <catalog>.system.create_index(…)`, `refresh_indexes(…)` and `drop_index(…)`."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.indexes import KINDS
from phalanx.spark.procedures.base import (
    TABLE,
    WHERE,
    Distributed,
    Invocation,
    Parameter,
    Procedure,
    Rows,
    Work,
    register,
)
from phalanx.spark.tasks import Cluster, command_of, message
from phalanx.table import indexes
from phalanx.table.indexes import BUILDERS, Indexing, IndexTask
from phalanx.transaction.snapshot import Snapshot

_RESULT = {"indexes": "STRING", "partitions": "BIGINT", "version": "BIGINT", "notes": "STRING"}


class Building(Distributed):
    """Builds indexes in Spark's workers, and commits them in one transaction."""

    result: ClassVar[Mapping[str, str]] = _RESULT

    def go_on(self, state: Any, messages: Sequence[Any], cluster: Cluster) -> Work | Rows:
        job, changed, started = state
        done = [leaf for leaves in messages for leaf in leaves]
        with ThreadPoolExecutor(BUILDERS) as pool:
            newest = Snapshot.latest(job.location)
            overtaken = job.finish(newest, changed, done, pool, started)
            if not overtaken or not job.goes_on:
                return self._rows(job)
            return self._round(job, Snapshot.latest(job.location), cluster, pool, set(overtaken))

    def _round(
        self,
        job: Indexing,
        newest: Snapshot,
        cluster: Cluster,
        pool: Executor,
        only: Collection[str] | None = None,
    ) -> Work | Rows:
        """The next round of work, or the end."""
        started = time.time()
        changed, tasks = job.prepare(newest, pool, only)
        if not tasks:
            if changed:
                job.finish(newest, changed, [], pool, started)
            return self._rows(job)
        commands = [command_of(BuildIndexTask(part)) for part in _parts(tasks, cluster)]
        return Work(commands, (job, changed, started))

    def _rows(self, job: Indexing) -> Rows:
        report = job.report
        return [
            {
                "indexes": ", ".join(report.indexes),
                "partitions": report.leaves,
                "version": report.version,
                "notes": "; ".join(report.notes),
            }
        ]


@register
class CreateIndexProcedure(Building):
    """Creates an index."""

    name = "create_index"
    description = "Create an index on a column, and build it in every partition."
    parameters = (
        TABLE,
        Parameter("column", "STRING", "the column"),
        Parameter("kind", "STRING", "the kind of the index, such as 'BTREE' or 'IVF_PQ'"),
        Parameter("name", "STRING", "the name; by default the column's with _idx", "null"),
        WHERE,
        Parameter("min_rows", "BIGINT", "leave out partitions with fewer rows", "null"),
        Parameter("options", "STRING", "such as 'metric=cosine, num_partitions=256'", "null"),
    )

    def call(self, invocation: Invocation) -> Work | Rows:
        newest = Snapshot.latest(invocation.open()._snapshot.location)
        definition = indexes.begin(
            newest,
            invocation["column"],
            invocation["kind"],
            invocation["name"],
            invocation["where"],
            invocation["min_rows"],
            options_of(invocation["options"], invocation["kind"]),
        )
        job = Indexing(newest.location, (definition.name,), definition)
        with ThreadPoolExecutor(BUILDERS) as pool:
            return self._round(job, newest, invocation.cluster, pool)


@register
class RefreshIndexesProcedure(Building):
    """Builds what indexes lack."""

    name = "refresh_indexes"
    description = "Build what indexes lack: rows that were written since, and new partitions."
    parameters = (
        TABLE,
        Parameter("name", "STRING", "the index; all of them, if none is given", "null"),
        WHERE,
    )

    def call(self, invocation: Invocation) -> Work | Rows:
        newest, name = invocation.open()._snapshot, invocation["name"]
        indexes.check_indexable(newest)
        names = tuple(newest.head.indexes)
        if name is not None:
            names = (indexes.named(newest, name).name,)
        job = Indexing(newest.location, names, where=invocation["where"])
        with ThreadPoolExecutor(BUILDERS) as pool:
            return self._round(job, newest, invocation.cluster, pool)


@register
class DropIndexProcedure(Procedure):
    """Drops an index."""

    name = "drop_index"
    description = "Drop an index."
    parameters = (TABLE, Parameter("name", "STRING", "the index"))
    result: ClassVar = {"version": "BIGINT"}

    def call(self, invocation: Invocation) -> Rows:
        return [{"version": invocation.open().drop_index(invocation["name"]).version}]


def options_of(text: str | None, kind: str) -> dict[str, Any]:
    """`metric=cosine, num_partitions=256` as `Table.create_index` takes it."""
    known = KINDS.get(kind.upper()) if isinstance(kind, str) else None
    types = {} if known is None else known.parameters
    options: dict[str, Any] = {}
    for entry in (text or "").split(","):
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not entry.strip():
            continue
        if not equals or not name:
            raise InvalidInput(f"options are written 'name=value, …', not {entry.strip()!r}")
        try:
            options[name] = _typed(value, types.get(name, str))
        except ValueError:
            raise InvalidInput(f"the option {name} cannot be {value!r}") from None
    return options


def _typed(text: str, type: type) -> Any:
    if type is not bool:
        return type(text)
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


@dataclass(frozen=True)
class BuildIndexTask:
    """A function from nothing to one message: what was built in some leaves."""

    tasks: Sequence[IndexTask]

    def __call__(self, nothing: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ThreadPoolExecutor(2) as pool:
            yield message(list(pool.map(indexes.build, self.tasks)))
        for _ in nothing:
            pass


def _parts(tasks: Sequence[IndexTask], cluster: Cluster) -> list[list[IndexTask]]:
    """Tasks in parts of about as many rows, a few for each core."""
    total = sum(task.rows for task in tasks)
    most = max(total // (4 * max(1, cluster.cores)), max(task.rows for task in tasks))
    parts: list[list[IndexTask]] = [[]]
    rows = 0
    for task in tasks:
        if parts[-1] and rows + task.rows > most:
            parts.append([])
            rows = 0
        parts[-1].append(task)
        rows += task.rows
    return parts
