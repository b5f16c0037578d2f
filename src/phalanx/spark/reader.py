"""Reading in a task: some leaves, or parts of one, as batches in Spark's types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from phalanx.model.predicates import Predicate
from phalanx.spark.types import cast, exchange_type
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location

if TYPE_CHECKING:
    # What reads rows is loaded in every worker, and most workers read nothing else.
    from phalanx.spark.handles import Handle

PARTITION, LEAF, ROW_ID = "_partition", "_leaf", "_rowid"


@dataclass(frozen=True)
class Piece:
    """A leaf, or some fragments of one."""

    folder: str
    version: int | None
    where: Predicate | None
    fragments: tuple[int, ...] | None = None
    #: The number of rows, where the leaf is small enough to be read in one go.
    whole: int | None = None
    partition: str = ""
    leaf: str = ""


@dataclass(frozen=True)
class ReadTask:
    """A function from nothing to batches, which Spark runs in a Python worker."""

    uri: str
    options: Mapping[str, str] | None
    pieces: Sequence[Piece]
    #: The columns wanted, as Spark's JSON; a query without columns wants a dummy one.
    schema: str
    without_columns: bool = False
    limit: int | None = None

    def __call__(self, nothing: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in self.pieces:
            yield from self._read(piece)
        for _ in nothing:
            pass

    def _read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        location = Location(self.uri, self.options)
        wanted = pa.schema(
            [
                pa.field(field["name"], exchange_type(field["type"]), field["nullable"])
                for field in json.loads(self.schema)["fields"]
            ]
        )
        special = {PARTITION: piece.partition, LEAF: piece.leaf}
        names = [] if self.without_columns else wanted.names
        columns = [name for name in names if name not in (PARTITION, LEAF, ROW_ID)]
        row_ids = ROW_ID in names or not columns
        batches = Leaf(location, piece.folder).scan(
            piece.version,
            columns,
            piece.where,
            self.limit,
            in_order=False,
            batch_rows=piece.whole,
            fragments=piece.fragments,
            row_ids=row_ids,
        )
        for batch in batches:
            count = batch.num_rows
            if not count:
                continue
            if self.without_columns:
                arrays = [pa.nulls(count, pa.int8())]
            else:
                arrays = [
                    pa.repeat(special[field.name], count)
                    if field.name in special
                    else cast(batch.column(field.name), field.type, field.name)
                    for field in wanted
                ]
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


@dataclass(frozen=True)
class AboutTask:
    """The same for a table about a table."""

    handle: Handle
    schema: str
    without_columns: bool = False

    def __call__(self, nothing: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from phalanx.spark import about

        assert self.handle.about is not None
        rows = about.rows_of(self.handle.snapshot(), self.handle.about)
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
