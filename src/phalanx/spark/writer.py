"""Writing: tasks write files that nobody sees, and one transaction makes them the table's."""

from __future__ import annotations

import base64
import json
import pickle
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phalanx.model import statistics
from phalanx.model.predicates import Predicate
from phalanx.model.schema import absent
from phalanx.spark.conf import DISTRIBUTION, FILE_BYTES, ISOLATION, TRANSACTION_ID, resolve
from phalanx.spark.dispatch import Reply, Request, operation
from phalanx.spark.filters import Expression, Untranslatable, conjunction_of
from phalanx.spark.handles import Handle
from phalanx.spark.staging import Stage
from phalanx.spark.streaming import sink
from phalanx.spark.tasks import command_of
from phalanx.spark.transforms import reported
from phalanx.spark.types import cast
from phalanx.table import ingest
from phalanx.table.partitioned_writer import WRITERS, PartitionedWriter, WrittenLeaf
from phalanx.table.table import Table
from phalanx.table.transaction import TableTransaction, all_match
from phalanx.transaction.epochs import Epoch
from phalanx.transaction.snapshot import Snapshot

#: How many bytes of shuffled rows Spark gives to one writing task, about.
_TASK_BYTES = 128 * 1024 * 1024


def target_of(value: Mapping[str, Any]) -> Handle | Stage:
    """What is written to: a table, or one that is about to be made."""
    return Stage.from_json(value) if "head" in value else Handle.from_json(value)


@dataclass(frozen=True)
class Job:
    """What a commit must know of the write that it ends."""

    table: Mapping[str, Any]
    mode: str
    filters: Sequence[Expression]
    zone: str
    transaction_id: str
    isolation: str
    file_bytes: int
    #: A time before the first file was written.
    started: float
    #: The stream that writes, by the id that its checkpoint has; its commits name their epochs.
    query: str | None = None

    def predicate(self, snapshot: Snapshot) -> Predicate | None:
        """The rows that are replaced, where a filter says which."""
        if self.mode != "where":
            return None
        return conjunction_of(self.filters, snapshot.head.schema, self.zone)


@operation
def start_write(request: Request) -> Reply:
    """Decide how rows are written: which task gets which, and what it does with them."""
    target, options = target_of(request["table"]), request["options"]
    query, schema = request.get("query"), json.loads(request["schema"])
    if query is not None:
        target = sink.target(target, options)
    head = target.snapshot().head
    head.check_writable()
    if query is not None:
        schema = sink.fitted(schema, head.schema.arrow)
    places = options, request["conf"], head.properties
    clusters = resolve(DISTRIBUTION, *places) == "hash"
    fields = reported(head.spec, head.schema) if clusters else []
    if not request["functions"]:
        fields = [field for field in fields if field.name == "identity"]
    job = Job(
        target.to_json(),
        request["mode"],
        request["filters"],
        request["zone"],
        resolve(TRANSACTION_ID, options) or uuid.uuid4().hex,
        resolve(ISOLATION, *places),
        resolve(FILE_BYTES, *places),
        time.time(),
        query,
    )
    task = WriteTask(job)
    message = json.dumps({"type": "struct", "fields": [MESSAGE]})
    return {
        "command": command_of(task, message),
        "job": vars(job),
        "clustering": [field.to_json() for field in fields if field.can_be_computed],
        "task_bytes": _TASK_BYTES,
        "schema": schema,
    }


MESSAGE = {"name": "message", "type": "binary", "nullable": False, "metadata": {}}


@dataclass(frozen=True)
class WriteTask:
    """A function from batches of rows to one message, which Spark runs in a Python worker."""

    job: Job

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        message = pickle.dumps(self._write(batches))
        yield pa.record_batch([pa.array([message], pa.binary())], names=["message"])

    def _write(self, batches: Iterable[pa.RecordBatch]) -> list[WrittenLeaf]:
        snapshot = target_of(self.job.table).snapshot()
        tables = fitting(batches, snapshot.head.schema.arrow)
        predicate = self.job.predicate(snapshot)
        if predicate is not None:
            tables = all_match(tables, predicate)
        with ThreadPoolExecutor(WRITERS) as pool:
            writer = PartitionedWriter(snapshot, pool, file_bytes=self.job.file_bytes)
            return writer.write(tables)


def fitting(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterable[pa.Table]:
    """Spark's batches in the table's types, in chunks of a size to be written."""

    def typed() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [
                cast(batch.column(f.name), f.type, f.name)
                if f.name in batch.schema.names
                else absent(f, batch.num_rows)
                for f in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return ingest.chunks(pa.RecordBatchReader.from_batches(schema, typed()), schema)


@operation
def commit_write(request: Request) -> Reply:
    """Make what all tasks have written part of the table, in one transaction.

    An epoch of a stream lands once. One that adds nothing is no transaction.
    """
    job = Job(**request["job"])
    handle = Handle.from_json(job.table)
    snapshot = handle.snapshot()
    written = together(_sent(request["messages"]))
    table = Table(snapshot)
    id, epoch = job.transaction_id, None
    if job.query is not None:
        if not written and job.mode == "append":
            return {"rows": 0, "leaves": 0, "version": table.version}
        epoch = Epoch(job.query, request["epoch"])
    with TableTransaction(table, id, job.isolation, None, epoch, job.started) as tx:
        tx.add(written, job.mode, job.predicate(snapshot))
    return {
        "rows": sum(leaf.rows for leaf in written),
        "leaves": len(written),
        "version": table.version,
    }


@operation
def commit_staged(request: Request) -> Reply:
    """Make the table that was prepared, with what has been written for it."""
    stage = Stage.from_json(request["table"])
    made = stage.commit(together(_sent(request.get("messages") or ())))
    return {"version": made.sequence}


def _sent(messages: Sequence[str]) -> list[list[WrittenLeaf]]:
    return [pickle.loads(base64.b64decode(message)) for message in messages]


def together(parts: Sequence[Sequence[WrittenLeaf]]) -> list[WrittenLeaf]:
    """What tasks have written, leaf by leaf."""
    found: dict[tuple[Any, ...], WrittenLeaf] = {}
    for part in parts:
        for leaf in part:
            known = found.get(leaf.keys)
            if known is not None:
                merged = statistics.merge(known.statistics, leaf.statistics)
                leaf = WrittenLeaf(leaf.keys, (*known.written, *leaf.written), merged)
            found[leaf.keys] = leaf
    return list(found.values())


@operation
def can_delete(request: Request) -> Reply:
    """Whether rows can be deleted by filters without Spark's help."""
    snapshot = target_of(request["table"]).snapshot()
    try:
        conjunction_of(request["filters"], snapshot.head.schema, request["zone"])
    except Untranslatable:
        return {"possible": False}
    return {"possible": True}


@operation
def delete(request: Request) -> Reply:
    """Delete the rows that match filters."""
    snapshot = Handle.from_json(request["table"]).snapshot()
    where = conjunction_of(request["filters"], snapshot.head.schema, request["zone"])
    isolation = resolve(ISOLATION, None, request["conf"], snapshot.head.properties)
    # From the snapshot that the filters are of: the transaction sees what has changed since.
    with Table(snapshot).transaction(isolation=isolation) as tx:
        tx.delete_where(where)
    return {}
