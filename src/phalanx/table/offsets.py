"""Arrays without values, and without the one offset that they should have.

Arrow allows it, and arrow-java sends such arrays: Spark before 4.2 does for lists that are all
empty. But Lance, and some functions of Arrow itself, read that offset, and with it whatever bytes
are there.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

R = TypeVar("R", pa.Table, pa.RecordBatch)


def with_offsets(rows: R) -> R:
    """The same rows, with an offset in every array that lacks it."""
    for index, column in enumerate(rows.schema):
        if pa.types.is_nested(column.type):
            values = rows.column(index)
            chunks = [values] if isinstance(values, pa.Array) else values.chunks
            if any(map(_lacks_offsets, chunks)):
                copies = [pa.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in chunks]
                whole = copies[0] if isinstance(values, pa.Array) else pa.chunked_array(copies)
                rows = rows.set_column(index, column, whole)
    return rows


def _lacks_offsets(array: pa.Array) -> bool:
    types, type = pa.types, array.type
    if isinstance(type, pa.BaseExtensionType):
        return _lacks_offsets(array.storage)
    is_list = types.is_list(type) or types.is_large_list(type) or types.is_map(type)
    is_text = types.is_string(type) or types.is_large_string(type)
    if is_list or is_text or types.is_binary(type) or types.is_large_binary(type):
        offsets = array.buffers()[1]
        if offsets is None or offsets.size == 0:
            return True
    children: list[pa.Array] = []
    if types.is_struct(type):
        children = [array.field(at) for at in range(type.num_fields)]
    elif types.is_map(type):
        children = [array.keys, array.items]
    elif is_list or types.is_fixed_size_list(type):
        children = [array.values]
    return any(map(_lacks_offsets, children))
