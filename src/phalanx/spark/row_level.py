"""DELETE, UPDATE and MERGE: tasks say which rows go and write those that come."""

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

import numpy as np
import pyarrow as pa

from phalanx.model.predicates import EVERYTHING, Predicate, conjoin
from phalanx.spark.conf import ISOLATION, TRANSACTION_ID, resolve
from phalanx.spark.dispatch import Reply, Request, operation
from phalanx.spark.filters import Expression, Untranslatable, predicate_of
from phalanx.spark.handles import Handle
from phalanx.spark.reader import LEAF, ROW_ID
from phalanx.spark.tasks import command_of
from phalanx.spark.writer import MESSAGE, fitting, together
from phalanx.table.operations.change_rows import ChangeRows
from phalanx.table.partitioned_writer import WRITERS, PartitionedWriter, WrittenLeaf
from phalanx.table.table import Table
from phalanx.table.transaction import TableTransaction
from phalanx.transaction.snapshot import Snapshot

OP, DELETE = "_op", 0
#: The rows of one leaf that go, by their ids.
Gone = dict[str, Any]


@dataclass(frozen=True)
class ChangeJob:
    """What a commit must know of the change that it ends."""

    table: Mapping[str, Any]
    command: str
    filters: Sequence[Expression]
    zone: str
    transaction_id: str
    isolation: str
    #: A time before the first file was written.
    started: float

    def scope(self, snapshot: Snapshot) -> Predicate:
        """A predicate that every row which Spark has looked at satisfies."""
        found = []
        for filter in self.filters:
            try:
                found.append(predicate_of(filter, snapshot.head.schema, self.zone))
            except Untranslatable:
                continue
        return conjoin(found) if found else EVERYTHING


@operation
def start_changes(request: Request) -> Reply:
    """Decide how rows are changed."""
    handle = Handle.from_json(request["table"])
    head = handle.snapshot().head
    head.check_writable()
    handle.snapshot().refuse_weak("changed row by row in Spark")
    options = request["options"]
    job = ChangeJob(
        request["table"],
        request["command"],
        request["filters"],
        request["zone"],
        resolve(TRANSACTION_ID, options) or uuid.uuid4().hex,
        resolve(ISOLATION, options, request["conf"], head.properties),
        time.time(),
    )
    message = json.dumps({"type": "struct", "fields": [MESSAGE]})
    return {"command": command_of(ChangeTask(job), message), "job": vars(job)}


@dataclass(frozen=True)
class ChangeTask:
    """A function from rows that go and come to one message."""

    job: ChangeJob

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gone: dict[str, list[Any]] = {}
        written = self._write(_coming(batches, gone))
        ids: Gone = {leaf: np.concatenate(found) for leaf, found in gone.items()}
        message = pickle.dumps((written, ids))
        yield pa.record_batch([pa.array([message], pa.binary())], names=["message"])

    def _write(self, coming: Iterator[pa.RecordBatch]) -> list[WrittenLeaf]:
        snapshot = Handle.from_json(self.job.table).snapshot()
        with ThreadPoolExecutor(WRITERS) as pool:
            tables = fitting(coming, snapshot.head.schema.arrow)
            return PartitionedWriter(snapshot, pool).write(tables)


def _coming(
    batches: Iterable[pa.RecordBatch], gone: dict[str, list[Any]]
) -> Iterator[pa.RecordBatch]:
    """The rows that come; those that go are noted by the way."""
    for batch in batches:
        ops = np.asarray(batch.column(OP))
        going = batch.filter(pa.array(ops == DELETE))
        leaves = going.column(LEAF).dictionary_encode()
        ids, codes = np.asarray(going.column(ROW_ID)), np.asarray(leaves.indices)
        for code, leaf in enumerate(leaves.dictionary.to_pylist()):
            gone.setdefault(leaf, []).append(ids[codes == code])
        coming = batch.filter(pa.array(ops != DELETE))
        if coming.num_rows:
            yield coming


@operation
def commit_changes(request: Request) -> Reply:
    """Make all changes part of the table, in one transaction."""
    job = ChangeJob(**request["job"])
    snapshot = Handle.from_json(job.table).snapshot()
    messages = [pickle.loads(base64.b64decode(message)) for message in request["messages"]]
    written = together([found for found, _ in messages])
    gone: dict[str, list[Any]] = {}
    for _, ids in messages:
        for leaf, found in ids.items():
            gone.setdefault(leaf, []).append(found)
    deleted = {leaf: np.unique(np.concatenate(found)) for leaf, found in gone.items()}
    if not written and not deleted:
        return {}
    change = ChangeRows(job.command, snapshot, deleted, written, job.isolation)
    table, id = Table(snapshot), job.transaction_id
    with TableTransaction(table, id, job.isolation, None, started=job.started) as tx:
        tx.change_rows(change, job.scope(snapshot))
    return {"version": table.version}
