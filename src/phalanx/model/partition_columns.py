"""Partition columns that files need not hold, because the partition says what is in them.

All rows of a leaf have the same partition values. An identity field has the value of its column,
so the column can be left out of the files and read from the metadata. That is done only where the
value comes back exactly as it was: not for floats, in which -0.0 and 0.0 are one partition value,
and not for columns inside structs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phalanx.model.domains import Key, domain_of
from phalanx.model.schema import TableSchema, field_id
from phalanx.model.specs import PartitionSpec
from phalanx.model.transforms import Identity

#: The columns of a leaf whose values its partition gives: field ids, and keys of the table's types.
Given = tuple[tuple[int, Key | None], ...]


@dataclass(frozen=True)
class StoredColumns:
    """Which columns the files of a spec's leaves hold, and which their partitions give."""

    #: What new files hold, in this order.
    schema: TableSchema
    #: The numbers of the fields of the spec that give a column, by the column's field id.
    given: Mapping[int, int]


def stored_columns(
    schema: TableSchema, spec: PartitionSpec, materialize: bool | None, all_given: bool = False
) -> StoredColumns:
    """Which columns new files of a spec hold.

    With `materialize` they hold all, those of identity fields last. Without, they lack those that
    the partition gives. With None they hold all, in the table's order. With `all_given` the
    partition also gives values that do not come back exactly, because nothing else does.
    """
    sources = _identity_sources(schema, spec)
    types = {id: schema.columns[id].type for id in sources}
    given = {id: number for id, number in sources.items() if all_given or _is_exact(types[id])}
    if materialize is None or not sources:
        return StoredColumns(schema, given)
    fields = {field_id(field): field for field in schema.tagged}
    if materialize:
        order = [id for id in fields if id not in sources] + list(sources)
    else:
        # A file without columns would not say how many rows it has.
        order = [id for id in fields if id not in given] or list(fields)[:1]
    chosen = pa.schema([fields[id] for id in order], metadata=schema.tagged.metadata)
    return StoredColumns(TableSchema(chosen), given)


def given_values(
    columns: StoredColumns, schema: TableSchema, spec: PartitionSpec, keys: Sequence[Any]
) -> Given:
    """The columns that the partition with these keys gives, with their values."""
    return tuple(
        (id, _key(keys[number], spec.fields[number].result_type, schema.columns[id].type))
        for id, number in columns.given.items()
    )


def _key(key: Key | None, have: pa.DataType, want: pa.DataType) -> Key | None:
    """A key of one type as a key of another that holds the same values.

    After a rollback the column has its earlier type, and the partition field keeps the wider one.
    """
    if key is None or have == want:
        return key
    return domain_of(want).key(domain_of(have).array([key]).cast(want)[0])


def _identity_sources(schema: TableSchema, spec: PartitionSpec) -> dict[int, int]:
    """The columns of identity fields, by id, with the numbers of the fields in the spec."""
    sources: dict[int, int] = {}
    for number, field in enumerate(spec.fields):
        (column, *more) = field.sources(schema)
        is_identity = isinstance(field.transform, Identity) and not more
        if is_identity and column is not None and len(column.path) == 1:
            sources.setdefault(column.field_id, number)
    return sources


def _is_exact(type: pa.DataType) -> bool:
    """Whether the key of a value gives back the value itself."""
    t = pa.types
    is_number = t.is_integer(type) or t.is_boolean(type) or t.is_decimal(type)
    is_text = t.is_string(type) or t.is_large_string(type)
    is_time = t.is_date(type) or t.is_time(type) or t.is_timestamp(type)
    return bool(is_number or is_text or is_time)
