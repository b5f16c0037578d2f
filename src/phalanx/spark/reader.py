"""What the tasks of a scan do: read leaves, or parts of one, as batches in Spark's types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from phalanx.model.schema import TableSchema
from phalanx.spark.types import cast, exchange_type
from phalanx.storage.location import Location
from phalanx.storage.read_units import ReadUnit

if TYPE_CHECKING:
    # Every worker loads this module, and most of them read rows and nothing else.
    from phalanx.spark.handles import Handle

PARTITION, LEAF, ROW_ID = "_partition", "_leaf", "_rowid"
#: How many rows a batch without columns has at most.
_COUNTED = 1 << 20
#: Batches of small leaves are joined up to these sizes: a batch costs Spark as much as thousands of
#: rows.
_JOINED_ROWS, _JOINED_BYTES = 16_384, 4 * 1024 * 1024


@dataclass(frozen=True)
class Piece:
    """What a task reads in one go, and what its rows have in common."""

    unit: ReadUnit
    #: The values of the hidden columns, where they are read.
    partition: str = ""
    leaf: str = ""
    #: The values that the rows are grouped by, where an aggregate is read; None elsewhere.
    group: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class ScanContext:
    """What all tasks of a scan have in common."""

    uri: str
    options: Mapping[str, str] | None
    #: The table's columns that are read or filtered by, with their ids.
    table: TableSchema
    #: The columns wanted, as Spark's JSON. A query without columns wants a dummy one.
    schema: str
    without_columns: bool = False
    limit: int | None = None
    #: Which of the columns wanted are hidden ones, and not the table's own.
    hidden: Sequence[str] = ()

    @cached_property
    def location(self) -> Location:
        return Location(self.uri, self.options)

    @cached_property
    def wanted(self) -> pa.Schema:
        """The columns in the types that Spark takes."""
        fields = json.loads(self.schema)["fields"]
        return pa.schema(
            [pa.field(f["name"], exchange_type(f["type"]), f["nullable"]) for f in fields]
        )

    def batches(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The rows of a piece."""
        if self.without_columns:
            yield from self._counted(piece)
            return
        values = {PARTITION: piece.partition, LEAF: piece.leaf}
        constants = {name: value for name, value in values.items() if name in self.hidden}
        for batch in self._scanned(piece):
            arrays = [
                pa.repeat(constants[field.name], batch.num_rows)
                if field.name in constants
                else cast(batch.column(field.name), field.type, field.name)
                for field in self.wanted
            ]
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(arrays, schema=self.wanted)

    def _scanned(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        columns = [name for name in self.wanted.names if name not in self.hidden]
        row_ids = ROW_ID in self.hidden or not columns
        return piece.unit.scan(
            self.location, self.table, columns, self.limit, in_order=False, row_ids=row_ids
        )

    def _counted(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """As many rows of the dummy column as the piece has rows."""
        left = piece.unit.count(self.location, self.table)
        while left:
            rows = min(left, _COUNTED)
            yield pa.RecordBatch.from_arrays([pa.nulls(rows, pa.int8())], schema=self.wanted)
            left -= rows


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, in fewer batches. Large ones are passed on as they are."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if waiting and (
            rows + batch.num_rows > _JOINED_ROWS or size + batch.nbytes > _JOINED_BYTES
        ):
            yield _one(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _JOINED_ROWS or size >= _JOINED_BYTES:
            yield _one(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _one(waiting)


def limited(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Batches up to the one with which there are rows enough; all if there is no limit."""
    left = limit
    for batch in batches:
        yield batch
        if left is not None:
            left -= batch.num_rows
            if left <= 0:
                return


def _one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


@dataclass(frozen=True)
class ReadTask:
    """A function from nothing to batches, which Spark runs in a Python worker."""

    context: ScanContext
    pieces: Sequence[Piece]

    def __call__(self, nothing: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Their schemas are equal only once they are Spark's: leaves may differ in what is nullable.
        batches = (batch for piece in self.pieces for batch in self.context.batches(piece))
        yield from joined(limited(batches, self.context.limit))
        for _ in nothing:
            pass


@dataclass(frozen=True)
class MetadataTask:
    """A function from nothing to the rows of a metadata table."""

    handle: Handle
    schema: str
    without_columns: bool = False

    def __call__(self, nothing: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from phalanx.spark import metadata_tables  # only here, for the reason above

        assert self.handle.about is not None
        rows = metadata_tables.rows_of(self.handle.snapshot(), self.handle.about)
        fields = json.loads(self.schema)["fields"]
        for batch in rows.combine_chunks().to_batches():
            arrays: list[Any] = [pa.nulls(batch.num_rows, pa.int8())]
            if not self.without_columns:
                arrays = [
                    cast(batch.column(f["name"]), exchange_type(f["type"]), f["name"])
                    for f in fields
                ]
            yield pa.RecordBatch.from_arrays(arrays, [f["name"] for f in fields])
        for _ in nothing:
            pass
