"""A leaf seen through the table's schema, field id by field id.

A leaf keeps the schema it was written with until it is next written. Whoever reads it sees the
table's: a column that was renamed by its new name, one that was widened in its new type, one
that came later as its default, one that was dropped not at all. The same goes for filters. A
column that was dropped and added again has another id, and does not show the old values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from lance.schema import LanceSchema

from phalanx.lru import LruCache
from phalanx.model.domains import domain_of
from phalanx.model.predicates import Column, Predicate
from phalanx.model.schema import TableSchema, absent, default_of, field_id
from phalanx.model.spelling import arrow_literal, quote, type_name
from phalanx.storage.field_ids import ids_of
from phalanx.storage.lance_sql import Lance

ROW_ID = "_rowid"
#: For how many choices of columns a mapping remembers how they are read.
_READINGS = 256
_Convert = Callable[[pa.Array], pa.Array]


class LeafMapping:
    """How a leaf with one schema is read as if it had another."""

    def __init__(self, physical: TableSchema, schema: TableSchema) -> None:
        self._schema = schema
        #: The leaf's columns by field id, those inside structs too.
        self._there = physical.columns
        self._fields = {field_id(field): field for field in physical.tagged}
        self._sources = {field.name: _source(field, self._fields) for field in schema.tagged}
        self._dialect = _Seen(self._there, schema)
        self._readings: LruCache[tuple[str, ...], Reading] = LruCache(_READINGS)

    def reading(self, names: Sequence[str]) -> Reading:
        """How some of the table's columns are read."""
        key = tuple(names)
        reading = self._readings.get(key)
        if reading is None:
            fields = [self._schema.arrow.field(name) for name in key]
            reading = Reading(fields, [self._sources[name] for name in key])
            self._readings.put(key, reading)
        return reading

    def filter(self, where: Predicate) -> str:
        """A predicate on the table's columns as a filter on the leaf's."""
        return self._dialect.predicate(where)

    @cached_property
    def needs_no_files(self) -> bool:
        """Whether the leaf's files hold the table's columns as they are, or NULL for some."""
        return all(_is_held(field, self._fields) for field in self._schema.tagged)


class Reading:
    """What of a leaf is read for some of the table's columns, and what is made of it."""

    def __init__(self, fields: Sequence[pa.Field], sources: Sequence[_Source | None]) -> None:
        self._columns = list(zip(fields, sources, strict=True))
        #: The leaf's columns.
        self.columns = [source.name for source in sources if source is not None]
        #: Whether they are just as they are in the table.
        self.is_same = all(
            source is not None and source.name == field.name and source.convert is None
            for field, source in self._columns
        )

    def batch(self, batch: pa.RecordBatch, row_ids: bool) -> pa.RecordBatch:
        """Rows of the leaf as rows of the table."""
        if self.is_same:
            return batch
        fields = [field for field, _ in self._columns]
        arrays = [_array(batch, field, source) for field, source in self._columns]
        if row_ids:
            fields.append(batch.schema.field(ROW_ID))
            arrays.append(batch.column(ROW_ID))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _array(batch: pa.RecordBatch, field: pa.Field, source: _Source | None) -> pa.Array:
    if source is None:
        return constant(field, batch.num_rows)
    found = batch.column(source.name)
    return found if source.convert is None else source.convert(found)


class _Source:
    """A column of a leaf, and what is done to it to make it the table's."""

    def __init__(self, name: str, convert: _Convert | None) -> None:
        self.name, self.convert = name, convert


def _source(field: pa.Field, there: dict[int, pa.Field]) -> _Source | None:
    found = there.get(field_id(field))
    return None if found is None else _Source(found.name, _conversion(found, field))


def _conversion(have: pa.Field, want: pa.Field) -> _Convert | None:
    """What makes values of one field those of another with the same id; None for nothing."""
    if have.type.equals(want.type, check_metadata=True):
        return None
    if not (pa.types.is_struct(have.type) and pa.types.is_struct(want.type)):
        if have.type == want.type:
            return None
        return lambda array: array.cast(_plain(want))
    there = {field_id(f): f for f in _children(have)}
    sources = [(child, _source(child, there)) for child in _children(want)]
    names, type = [child.name for child in _children(want)], _plain(want)

    def convert(array: pa.Array) -> pa.Array:
        arrays = []
        for child, source in sources:
            if source is None:
                arrays.append(constant(child, len(array)))
            else:
                part = array.field(source.name)
                arrays.append(part if source.convert is None else source.convert(part))
        made = pa.StructArray.from_arrays(arrays, names, mask=array.is_null())
        # Where the struct is NULL, so may be fields of it that must not be.
        parts = [made.field(i) for i in range(len(names))]
        return pa.Array.from_buffers(type, len(made), made.buffers()[:1], children=parts)

    return convert


def _is_held(field: pa.Field, there: dict[int, pa.Field]) -> bool:
    """Whether files hold the values of a field, or nothing for a field that is NULL then."""
    found = there.get(field_id(field))
    if found is None:
        return bool(field.nullable) and default_of(field) is None
    if not (pa.types.is_struct(found.type) and pa.types.is_struct(field.type)):
        return bool(found.type == field.type)
    inside = {field_id(child): child for child in _children(found)}
    # Of a struct without any field that it had, files do not tell where it is NULL.
    stays = any(field_id(child) in inside for child in _children(field))
    return stays and all(_is_held(child, inside) for child in _children(field))


def _children(field: pa.Field) -> list[pa.Field]:
    return [field.type.field(i) for i in range(field.type.num_fields)]


def _plain(field: pa.Field) -> pa.DataType:
    return TableSchema(pa.schema([field])).arrow.field(0).type


def constant(field: pa.Field, rows: int) -> pa.Array:
    """What a column holds in rows that were written without it, in the types of a batch."""
    return absent(field.with_type(_plain(field)), rows)


class _Seen(Lance):
    """Lance's SQL, with a leaf's columns in the place of the table's."""

    def __init__(self, there: dict[int, Column], schema: TableSchema) -> None:
        self._there = there
        self._defaults = {field_id(field): default_of(field) for field in schema.tagged}

    def name(self, column: Column) -> str:
        found = self._there.get(column.field_id)
        if found is None:
            return self._default(column)
        text = super().name(found)
        if found.type == column.type or pa.types.is_nested(column.type):
            return text
        return f"arrow_cast({text}, {quote(type_name(column.type))})"

    def _default(self, column: Column) -> str:
        value = self._defaults.get(column.field_id)
        if value is not None:
            return arrow_literal(domain_of(column.type).key(value), column.type)
        name = type_name(column.type)
        return f"arrow_cast(NULL, {quote(name)})" if name else "NULL"


#: Of how many table schemas, and of how many leaf schemas for each, mappings are kept.
_SCHEMAS, _SHAPES = 32, 8
_mappings: LruCache[TableSchema, list[tuple[LanceSchema, LeafMapping]]] = LruCache(_SCHEMAS)


def mapping_of(physical: LanceSchema, handle: Any, schema: TableSchema) -> LeafMapping:
    """How a leaf with a schema is read through a table's. Most leaves of a table share one."""
    known = _mappings.get(schema) or []
    for shape, mapping in known:
        if shape == physical:
            return mapping
    mapping = LeafMapping(TableSchema.numbered(handle.schema, ids_of(physical)), schema)
    _mappings.put(schema, [(physical, mapping), *known][:_SHAPES])
    return mapping
