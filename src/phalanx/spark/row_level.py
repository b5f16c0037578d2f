"""DELETE, UPDATE and MERGE: tasks name the rows that go and write the new ones."""

from __future__ import annotations

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
from phalanx.spark.dispatch import Reply, operation
from phalanx.spark.filters import Expression, Untranslatable, predicate_of
from phalanx.spark.handles import Handle
from phalanx.spark.reader import LEAF, ROW_ID
from phalanx.spark.requests import Request
from phalanx.spark.tasks import command_of, message
from phalanx.spark.writer import fitting, spark_checks, together
from phalanx.table.defaults import Moment
from phalanx.table.operations.change_rows import ChangeRows
from phalanx.table.partitioned_writer import WRITERS, PartitionedWriter, WrittenLeaf
from phalanx.table.table import Table
from phalanx.table.transaction import TableTransaction
from phalanx.transaction.snapshot import Snapshot

#: The column that says what happens to a row, and its value for one that goes.
OP, DELETE = "_op", 0
#: The ids of deleted rows, by leaf.
Deleted = dict[str, Any]


@dataclass(frozen=True)
class ChangeJob:
    """A change between its calls. Spark sends it back with the commit."""

    table: Handle
    #: `delete`, `update` or `merge`.
    command: str
    filters: Sequence[Expression]
    zone: str
    transaction_id: str
    isolation: str
    #: A time before the first file was written.
    started: float

    def scope(self, snapshot: Snapshot) -> Predicate:
        """A predicate that is true of every row that Spark has looked at."""
        predicates = []
        for filter in self.filters:
            try:
                predicates.append(predicate_of(filter, snapshot.head.schema, self.zone))
            except Untranslatable:
                continue
        return conjoin(predicates) if predicates else EVERYTHING

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "table": self.table.to_json()}


@dataclass(frozen=True, kw_only=True)
class StartChanges(Request):
    """A statement that changes rows, with the filters by which Spark reads them."""

    table: Handle
    command: str
    filters: Sequence[Expression]
    options: Mapping[str, str]
    conf: Mapping[str, str]


@operation(StartChanges)
def start_changes(request: StartChanges) -> Reply:
    """Decide how rows are changed."""
    snapshot = request.table.changed()
    snapshot.check_writable()
    snapshot.refuse_weak("changed row by row in Spark")
    job = ChangeJob(
        request.table,
        request.command,
        request.filters,
        request.zone,
        resolve(TRANSACTION_ID, request.options) or uuid.uuid4().hex,
        resolve(ISOLATION, request.options, request.conf, snapshot.head.properties),
        time.time(),
    )
    return {"command": command_of(ChangeTask(job)), "job": job.to_json()}


@dataclass(frozen=True)
class ChangeTask:
    """A function from deleted and new rows to one message."""

    job: ChangeJob

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deleted: dict[str, list[Any]] = {}
        written = self._write(_new_rows(batches, deleted))
        ids: Deleted = {leaf: np.concatenate(parts) for leaf, parts in deleted.items()}
        yield message((written, ids))

    def _write(self, rows: Iterator[pa.RecordBatch]) -> list[WrittenLeaf]:
        snapshot = self.job.table.snapshot()
        with ThreadPoolExecutor(WRITERS) as pool:
            moment = Moment.at(self.job.started, self.job.zone)
            tables = fitting(rows, snapshot.head.schema.arrow, moment)
            return PartitionedWriter(snapshot, pool, checks=not spark_checks()).write(tables)


def _new_rows(
    batches: Iterable[pa.RecordBatch], deleted: dict[str, list[Any]]
) -> Iterator[pa.RecordBatch]:
    """The new rows among all. The ids of the others are collected in `deleted`."""
    for batch in batches:
        ops = np.asarray(batch.column(OP))
        going = batch.filter(pa.array(ops == DELETE))
        leaves = going.column(LEAF).dictionary_encode()
        ids, codes = np.asarray(going.column(ROW_ID)), np.asarray(leaves.indices)
        for code, leaf in enumerate(leaves.dictionary.to_pylist()):
            deleted.setdefault(leaf, []).append(ids[codes == code])
        new = batch.filter(pa.array(ops != DELETE))
        if new.num_rows:
            yield new


@dataclass(frozen=True, kw_only=True)
class CommitChanges(Request):
    """A job, and what its tasks have written and deleted."""

    job: ChangeJob
    messages: Sequence[bytes]


@operation(CommitChanges)
def commit_changes(request: CommitChanges) -> Reply:
    """Make all changes part of the table, in one transaction."""
    job = request.job
    snapshot = job.table.changed()
    messages: list[tuple[list[WrittenLeaf], Deleted]] = [
        pickle.loads(message) for message in request.messages
    ]
    written = together([leaves for leaves, _ in messages])
    parts: dict[str, list[Any]] = {}
    for _, deleted in messages:
        for leaf, ids in deleted.items():
            parts.setdefault(leaf, []).append(ids)
    gone = {leaf: np.unique(np.concatenate(ids)) for leaf, ids in parts.items()}
    if not written and not gone:
        return {}
    change = ChangeRows(job.command, snapshot, gone, written, job.isolation)
    table, id = Table(snapshot), job.transaction_id
    with TableTransaction(table, id, job.isolation, None, started=job.started) as tx:
        tx.change_rows(change, job.scope(snapshot))
    return {"version": table.version}
