"""Whether the rows of others keep what their schema promises.

A schema that another client has declared may say NOT NULL where rows are NULL: a leaf has a schema
of its own, and only that one is enforced by Lance. Filters rely on NOT NULL, so that a table of
ours may have it only where it is true.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa

from phalanx.model.schema import TableSchema
from phalanx.storage.head import Head
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.storage.records import LeafRow

#: How many leaves are read at a time.
_WORKERS = 8


def proven_schema(location: Location, head: Head, leaves: Sequence[LeafRow]) -> TableSchema:
    """The schema of a head, in which columns are NOT NULL only if no row of any leaf is NULL.

    All rows of the columns in question are read. A column with a NULL where there must not be one,
    be it in a field inside of it, becomes nullable as a whole.
    """
    required = [field for field in head.schema.arrow if _requires(field)]
    if not required:
        return head.schema
    loose = head.schema.all_nullable()
    readable = replace(head, schema=loose)

    def broken_in(row: LeafRow) -> set[str]:
        left = {field.name: field for field in required}
        batches = Leaf.of(location, readable, row).scan(row.read_version, list(left), None)
        for batch in batches:
            for name in [n for n, field in left.items() if _breaks(batch.column(n), field)]:
                del left[name]
        return {field.name for field in required} - left.keys()

    with ThreadPoolExecutor(_WORKERS) as pool:
        broken = set().union(*pool.map(broken_in, leaves))
    fields = [
        tolerant if field.name in broken else field
        for field, tolerant in zip(head.schema.tagged, loose.tagged, strict=True)
    ]
    return TableSchema(pa.schema(fields, metadata=head.schema.tagged.metadata))


def _requires(field: pa.Field) -> bool:
    """Whether a field, or one inside of it, must not be NULL."""
    return not field.nullable or any(_requires(child) for child in _inside(field.type))


def _inside(type: pa.DataType) -> list[pa.Field]:
    """The fields inside of a type that may be NULL by themselves."""
    t = pa.types
    if t.is_map(type):
        return [type.item_field]
    if t.is_struct(type):
        return [type.field(i) for i in range(type.num_fields)]
    if t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type):
        return [type.value_field]
    return []


def _breaks(array: pa.Array, field: pa.Field) -> bool:
    """Whether values are NULL where a field, or one inside of it, must not be."""
    if not field.nullable and array.null_count:
        return True
    children = _inside(field.type)
    if not any(_requires(child) for child in children):
        return False
    # What is inside of a NULL is no value.
    array = array.drop_null()
    if pa.types.is_struct(field.type):
        values = [array.field(i) for i in range(len(children))]
    else:
        values = [array.items if pa.types.is_map(field.type) else array.flatten()]
    return any(_breaks(*pair) for pair in zip(values, children, strict=True))
