"""Writing: tasks write files that nobody sees, and one transaction makes them part of the table."""

from __future__ import annotations

import json
import pickle
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model import statistics
from phalanx.model.predicates import Predicate
from phalanx.spark import features
from phalanx.spark.conf import (
    DISTRIBUTION,
    FILE_BYTES,
    ISOLATION,
    OVERWRITE_MODE,
    REPLACE_WHERE,
    TRANSACTION_ID,
    is_given,
    resolve,
)
from phalanx.spark.dispatch import Reply, operation
from phalanx.spark.filters import Expression, Untranslatable, conjunction_of
from phalanx.spark.handles import Handle
from phalanx.spark.requests import Request
from phalanx.spark.staging import Stage
from phalanx.spark.streaming import sink
from phalanx.spark.tasks import command_of, message
from phalanx.spark.transforms import reported
from phalanx.spark.types import cast
from phalanx.table import ingest
from phalanx.table.defaults import Moment, new_values
from phalanx.table.partitioned_writer import WRITERS, PartitionedWriter, WrittenLeaf
from phalanx.table.table import Table
from phalanx.table.transaction import TableTransaction
from phalanx.transaction.epochs import Epoch
from phalanx.transaction.snapshot import Snapshot

#: About how many bytes of shuffled rows Spark gives to one writing task.
_TASK_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class Job:
    """A write between its calls. Spark sends it back with the commit."""

    table: Handle | Stage
    #: `append`, or what is replaced: the `table`, `partitions` that get rows, or rows `where`.
    mode: str
    filters: Sequence[Expression]
    zone: str
    transaction_id: str
    isolation: str
    file_bytes: int
    #: A time before the first file was written.
    started: float
    #: The id of the stream that writes, from its checkpoint; its commits name their epochs.
    query: str | None = None

    def predicate(self, snapshot: Snapshot) -> Predicate | None:
        """The rows that are replaced, where a filter says which."""
        if self.mode != "where":
            return None
        return conjunction_of(self.filters, snapshot.head.schema, self.zone)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "table": self.table.to_json()}


@dataclass(frozen=True, kw_only=True)
class StartWrite(Request):
    """Rows that are to be written, and how."""

    table: Handle | Stage
    mode: str
    #: Whether the write itself creates the table, at a path that has none.
    is_first: bool = False
    filters: Sequence[Expression]
    #: The columns of the rows, as Spark's JSON.
    schema: str
    #: The id of the stream that writes, if one does.
    query: str | None
    #: Whether Spark knows the functions that partition transforms are.
    functions: bool
    options: Mapping[str, str]
    conf: Mapping[str, str]


@operation(StartWrite)
def start_write(request: StartWrite) -> Reply:
    """Decide how rows are written: which task gets which, and what it does with them.

    Raises InvalidInput for options that the write cannot follow.
    """
    _check_replaced(request)
    target, schema = request.table, json.loads(request.schema)
    if request.query is not None:
        target = sink.target(target, request.options)
    snapshot = target.changed()
    named = is_given(TRANSACTION_ID, request.options)
    snapshot.manifest.check_appendable(snapshot.head, named)
    head = snapshot.head
    if request.query is not None:
        schema = sink.fitted(schema, head.schema.arrow)
    places = request.options, request.conf, head.properties
    clusters = resolve(DISTRIBUTION, *places) == "hash"
    transforms = reported(head.spec, head.schema) if clusters else []
    if not request.functions:
        transforms = [transform for transform in transforms if transform.name == "identity"]
    job = Job(
        target,
        request.mode,
        request.filters,
        request.zone,
        resolve(TRANSACTION_ID, request.options) or uuid.uuid4().hex,
        resolve(ISOLATION, *places),
        resolve(FILE_BYTES, *places),
        time.time(),
        request.query,
    )
    return {
        "command": command_of(WriteTask(job, Moment.at(job.started, job.zone))),
        "job": job.to_json(),
        "clustering": [one.to_json() for one in transforms if one.can_be_computed],
        "task_bytes": _TASK_BYTES,
        "schema": schema,
    }


def _check_replaced(request: StartWrite) -> None:
    """Raise InvalidInput for options that say what is replaced, where something else would be.

    Those that Spark's plan follows do not arrive here. At a path without a table there is nothing
    to replace, and an append replaces nothing in any mode.
    """
    options, is_staged = request.options, isinstance(request.table, Stage)
    mode = resolve(OVERWRITE_MODE, options)
    filters = is_given(REPLACE_WHERE, options)
    if request.is_first:
        return
    if filters and mode is not None:
        raise InvalidInput(
            "a write replaces what matches a condition, or partitions: give only one of the "
            f"options {REPLACE_WHERE.option} and {OVERWRITE_MODE.option}"
        )
    if filters or (mode is not None and (is_staged or request.mode != "append")):
        name = REPLACE_WHERE.option if filters else OVERWRITE_MODE.option
        raise InvalidInput(
            f"the option {name} is for mode('overwrite') with insertInto or save: for this write "
            "use writeTo(t).overwrite(condition) or writeTo(t).overwritePartitions()"
        )


@dataclass(frozen=True)
class WriteTask:
    """A function from batches of rows to one message, which Spark runs in a Python worker."""

    job: Job
    #: The time of the defaults, the same for all tasks.
    moment: Moment

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield message(self._write(batches))

    def _write(self, batches: Iterable[pa.RecordBatch]) -> list[WrittenLeaf]:
        snapshot = self.job.table.snapshot()
        tables = fitting(batches, snapshot.head.schema.arrow, self.moment)
        with ThreadPoolExecutor(WRITERS) as pool:
            writer = PartitionedWriter(
                snapshot,
                pool,
                file_bytes=self.job.file_bytes,
                appends=self.job.mode == "append",
                checks=not spark_checks(is_stream=self.job.query is not None),
            )
            return writer.write(tables)


def spark_checks(is_stream: bool = False) -> bool:
    """Whether Spark itself checks the constraints of a table: not for a stream, and not always."""
    return features.has("constraints") and not is_stream


def fitting(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, moment: Moment
) -> Iterator[pa.Table]:
    """Spark's rows in the table's columns and types, in chunks of a size to be written.

    Missing columns are filled with their defaults, or NULL: Spark itself fills them in, but not
    for a stream. Raises InvalidInput for a value that
    the table's type cannot hold, and for NULL where it must not be.
    """
    for table in ingest.gathered(batches):
        columns = [_fitted(table, column, moment) for column in schema]
        yield pa.Table.from_arrays(columns, schema=schema)


def _fitted(table: pa.Table, column: pa.Field, moment: Moment) -> pa.ChunkedArray:
    if column.name in table.schema.names:
        chunks = table.column(column.name).chunks
        fitted = [cast(chunk, column.type, column.name) for chunk in chunks]
    else:
        fitted = [new_values(column, table.num_rows, moment)]
    for chunk in fitted:
        ingest.refuse_nulls(chunk, column)
    return pa.chunked_array(fitted, column.type)


@dataclass(frozen=True, kw_only=True)
class CommitWrite(Request):
    """A job, and what its tasks have written; for a stream also the epoch."""

    job: Job
    messages: Sequence[bytes]
    epoch: int | None = None


@operation(CommitWrite)
def commit_write(request: CommitWrite) -> Reply:
    """Make what all tasks have written part of the table, in one transaction.

    An epoch of a stream lands once. One that adds nothing is no transaction.
    """
    job = request.job
    snapshot = job.table.changed()
    written = together(_sent(request.messages))
    table = Table(snapshot)
    # A tree of others has no place for the id of a transaction.
    id, epoch = None if snapshot.manifest.is_listed else job.transaction_id, None
    if job.query is not None:
        if not written and job.mode == "append":
            return {"rows": 0, "leaves": 0, "version": table.version}
        assert request.epoch is not None
        epoch = Epoch(job.query, request.epoch)
    with TableTransaction(table, id, job.isolation, None, epoch, job.started) as tx:
        tx.add(written, job.mode, job.predicate(snapshot))
    return {
        "rows": sum(leaf.rows for leaf in written),
        "leaves": len(written),
        "version": table.version,
    }


@dataclass(frozen=True, kw_only=True)
class CommitStaged(Request):
    """A staged table, and what tasks have written for it."""

    table: Stage
    messages: Sequence[bytes] = ()


@operation(CommitStaged)
def commit_staged(request: CommitStaged) -> Reply:
    """Create or replace a table that was staged, together with its rows."""
    snapshot = request.table.commit(together(_sent(request.messages)))
    return {"version": snapshot.sequence}


def _sent(messages: Sequence[bytes]) -> list[list[WrittenLeaf]]:
    return [pickle.loads(message) for message in messages]


def together(parts: Sequence[Sequence[WrittenLeaf]]) -> list[WrittenLeaf]:
    """What several tasks have written, leaf by leaf."""
    leaves: dict[tuple[Any, ...], WrittenLeaf] = {}
    for part in parts:
        for leaf in part:
            known = leaves.get(leaf.keys)
            if known is not None:
                merged = statistics.merge(known.statistics, leaf.statistics)
                leaf = WrittenLeaf(leaf.keys, (*known.written, *leaf.written), merged)
            leaves[leaf.keys] = leaf
    return list(leaves.values())


@dataclass(frozen=True, kw_only=True)
class CanDelete(Request):
    """A table, or one that is staged, and filters."""

    table: Handle | Stage
    filters: Sequence[Expression]


@operation(CanDelete)
def can_delete(request: CanDelete) -> Reply:
    """Whether rows can be deleted by filters without Spark's help."""
    snapshot = request.table.changed()
    try:
        conjunction_of(request.filters, snapshot.head.schema, request.zone)
    except Untranslatable:
        return {"possible": False}
    return {"possible": True}


@dataclass(frozen=True, kw_only=True)
class DeleteWhere(Request):
    """The rows of a table that match all filters."""

    table: Handle
    filters: Sequence[Expression]
    conf: Mapping[str, str]


@operation(DeleteWhere)
def delete(request: DeleteWhere) -> Reply:
    """Delete the rows that match filters."""
    snapshot = request.table.changed()
    where = conjunction_of(request.filters, snapshot.head.schema, request.zone)
    isolation = resolve(ISOLATION, None, request.conf, snapshot.head.properties)
    # From the snapshot that the filters are of: the transaction notices what has changed since.
    with Table(snapshot).transaction(isolation=isolation) as tx:
        tx.delete_where(where)
    return {}
