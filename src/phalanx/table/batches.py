"""Batches of rows: cut to a size, and given the types of a schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def sized(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Rows in batches of the same size; the last one may be smaller."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        while rows >= size:
            table = pa.Table.from_batches(waiting)
            yield one_batch(table.slice(0, size))
            waiting = table.slice(size).to_batches()
            rows -= size
    if rows:
        yield one_batch(pa.Table.from_batches(waiting))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table, which has some, as one batch."""
    (batch,) = table.combine_chunks().to_batches()
    return batch


def with_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the types and the metadata of a schema."""
    if not len(schema):
        # A batch without columns still has a number of rows.
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    if batch.schema.names == schema.names and batch.schema.types == schema.types:
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    return pa.RecordBatch.from_arrays(
        [batch.column(field.name).cast(field.type) for field in schema], schema=schema
    )
