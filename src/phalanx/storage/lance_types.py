"""What Lance can store: types that it rejects, and arrays that need another memory layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.schema import TableSchema, field_id, inner_fields
from phalanx.storage import lance_errors
from phalanx.storage.field_ids import lance_schema

#: What the metadata of a field says if its values are stored apart.
_BLOB = b"lance-encoding:blob"


def check_storable(schema: TableSchema, before: TableSchema | None = None) -> None:
    """Raise InvalidInput for a column that Lance rejects, or accepts but cannot read back.

    `before` is the schema that a table has: blobs in it are only refused where they are read.
    """
    for column in schema.arrow:
        _check_field(column, column.name)
        _check_structs(column, column.name, False)
    for column in schema.tagged:
        if before is None or field_id(column) not in before.id_set:
            _check_blobs(column, column.name)
    try:
        lance_schema(schema)
    except (ValueError, OSError) as error:
        reason = lance_errors.reason(error)
        raise InvalidInput(f"Lance cannot store this schema: {reason}") from None


def _check_field(column: pa.Field, name: str) -> None:
    type, t = column.type, pa.types
    if isinstance(type, pa.BaseExtensionType):
        type = type.storage_type
    children = [type.field(i) for i in range(type.num_fields)]
    unstorable = InvalidInput(f"column {name!r} has the type {type}, which Lance cannot store")
    if t.is_string_view(type) or t.is_binary_view(type):
        raise unstorable
    if t.is_struct(type) and len({child.name for child in children}) < max(1, len(children)):
        raise unstorable
    if t.is_fixed_size_list(type) and not _has_fixed_width(type.value_type):
        raise unstorable
    for child in children:
        _check_field(child, f"{name}.{child.name}")


def _check_structs(column: pa.Field, name: str, in_list: bool) -> None:
    """Raise InvalidInput for a struct in a list or map that may be NULL and starts with two lists.

    Lance takes the NULLs of a struct from its first field, and miscounts them through two lists:
    it writes `[[NULL], []]` and fails to read it.
    """
    type, t = column.type, pa.types
    if in_list and column.nullable and t.is_struct(type) and _first_lists(type) > 1:
        raise InvalidInput(
            f"column {name!r} is a struct in a list or map whose first field is a list of lists, "
            "and Lance could not read it where it is NULL: put another field first"
        )
    for child_name, child in inner_fields(type).items():
        _check_structs(child, f"{name}.{child_name}", in_list or not t.is_struct(type))


def _check_blobs(column: pa.Field, name: str) -> None:
    """Raise InvalidInput for a blob: its values are in no scan, plain Lance has another call."""
    if (column.metadata or {}).get(_BLOB, b"").lower() == b"true":
        raise InvalidInput(
            f"column {name!r} is a blob ({_BLOB.decode()}), which no scan reads: leave that out of "
            "its metadata, and its values are stored with the others"
        )
    for child_name, child in inner_fields(column.type).items():
        _check_blobs(child, f"{name}.{child_name}")


def _first_lists(type: pa.DataType) -> int:
    """How many lists there are around the first value in a type."""
    inside = next(iter(inner_fields(type).values()), None)
    if inside is None:
        return 0
    return (not pa.types.is_struct(type)) + _first_lists(inside.type)


def _has_fixed_width(type: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(type):
        return _has_fixed_width(type.value_type)
    t = pa.types
    return bool(t.is_primitive(type) or t.is_decimal(type) or t.is_fixed_size_binary(type))


def stored_table(table: pa.Table) -> pa.Table:
    """Rows in the memory layout that Lance accepts."""
    return _aligned(_unsliced(table))


def stored_batches(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows that were read, with the columns and the memory layout to write them in."""
    for batch in batches:
        columns = [batch.column(name) for name in schema.names]
        table = pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, schema=schema)])
        yield from stored_table(table).to_batches()


def may_be_sliced(schema: pa.Schema) -> bool:
    """Whether Lance writes parts of a table as they are, without a copy of each."""
    return not any(_fails_in_slices(column.type) for column in schema)


def cut(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of which none crosses a multiple of `size`, so that Lance, which
    begins a file there, writes no part of one."""
    left = size
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            count = min(left, batch.num_rows - start)
            whole = count == batch.num_rows
            yield batch if whole else batch.take(pa.array(np.arange(start, start + count)))
            start += count
            left = left - count or size


def _unsliced(table: pa.Table) -> pa.Table:
    """The rows with a copy of the columns of which Lance fails to write slices."""
    for index, column in enumerate(table.schema):
        if _fails_in_slices(column.type):
            rows = pa.array(np.arange(table.num_rows))
            table = table.set_column(index, column, table.column(index).take(rows))
    return table


def _aligned(table: pa.Table) -> pa.Table:
    """The rows with decimals aligned to 16 bytes for Lance: Arrow streams align to 8 only."""
    for index, column in enumerate(table.schema):
        if _has_decimal(column.type):
            chunks = [_aligned_array(chunk) for chunk in table.column(index).chunks]
            table = table.set_column(index, column, pa.chunked_array(chunks, column.type))
    return table


def _aligned_array(array: pa.Array) -> pa.Array:
    if any(buffer is not None and buffer.address % 16 for buffer in array.buffers()):
        return pa.concat_arrays([array, array.slice(0, 0)])
    return array


def _has_decimal(type: pa.DataType) -> bool:
    if pa.types.is_dictionary(type):
        return _has_decimal(type.value_type)
    if pa.types.is_decimal(type):
        return True
    return any(_has_decimal(type.field(i).type) for i in range(type.num_fields))


def _fails_in_slices(type: pa.DataType, inside: bool = False) -> bool:
    """Whether a type has a struct or a boolean inside a struct.

    Where both may be NULL, Lance takes the NULLs of a slice for those of the whole array.
    """
    is_struct = bool(pa.types.is_struct(type))
    if inside and (is_struct or pa.types.is_boolean(type)):
        return True
    return any(
        _fails_in_slices(type.field(i).type, inside or is_struct) for i in range(type.num_fields)
    )
