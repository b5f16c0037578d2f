"""A leaf read through the table's schema, with fields matched by id.

A leaf keeps the schema it was written with until it is next written. Its readers see the table's
schema: a renamed column has its new name, a widened column its new type, a column that was added
later has its default, and a dropped column is not there. The same is true for filters. A column
that was dropped and added again has another id and does not show the old values.

A leaf that another client has written may have a type that the table's type does not hold. Such a
column cannot be read, and neither can filters on it; the other columns can.

A column whose value the leaf's partition gives is never read from files: some of them may lack it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from lance.schema import LanceSchema

from phalanx.errors import UnsupportedTable
from phalanx.lru import LruCache
from phalanx.model.conversion import Convert, Unfit, conversion
from phalanx.model.defaults import absent, default_of, repeated
from phalanx.model.domains import domain_of
from phalanx.model.literals import quote
from phalanx.model.partition_columns import Given
from phalanx.model.paths import join_path
from phalanx.model.predicates import Column, Predicate
from phalanx.model.schema import TableSchema, field_id, inner_fields, untagged
from phalanx.model.spelling import arrow_literal, type_name
from phalanx.storage.field_ids import ids_of
from phalanx.storage.lance_sql import Lance

ROW_ID = "_rowid"
ADDRESS = "_rowaddr"
#: How many low bits of a row's address hold its offset in its fragment; the rest is the fragment
#: id.
FRAGMENT_BITS = 32
#: How many selections of columns a mapping caches.
_READINGS = 256


class UnfitValue(UnsupportedTable):
    """A value of a leaf is none of the table's type, although most are."""


class LeafMapping:
    """How a leaf with one schema is read as if it had the table's."""

    def __init__(self, physical: TableSchema, schema: TableSchema, uri: str) -> None:
        """`uri` is of the leaf; of any leaf with the same schema if all columns can be read."""
        self._schema = schema
        self._fields = {field_id(field): field for field in physical.tagged}
        self._names = {field_id(field): field.name for field in schema.tagged}
        self._sources: dict[str, _Source | None] = {}
        #: Why columns cannot be read, by their names.
        self.unfit: dict[str, str] = {}
        for field in schema.tagged:
            try:
                self._sources[field.name] = _source(field, self._fields)
            except Unfit as unfit:
                self.unfit[field.name] = _unfit_text(uri, [field.name, *unfit.path], unfit)
        self._dialect = _LeafDialect(physical.columns, schema, self.unfit)
        self._readings: LruCache[tuple[str, ...], Reading] = LruCache(_READINGS)

    def reading(self, names: Sequence[str], given: Given = ()) -> Reading:
        """How some of the table's columns are read from a leaf whose partition gives some.

        Raises UnsupportedTable for a column whose values are none of the table's type.
        """
        values = self._given(names, [given])
        if not values:
            return self._plain_reading(tuple(names))
        return self._reading(names, {name: _Constant(array[0]) for name, array in values.items()})

    def reading_together(self, names: Sequence[str], given: Sequence[Given]) -> Reading:
        """How they are read from several leaves in one dataset, given the columns by fragment."""
        values = self._given(names, given)
        if not values:
            return self._plain_reading(tuple(names))
        return self._reading(names, {name: _ByFragment(array) for name, array in values.items()})

    def _plain_reading(self, names: tuple[str, ...]) -> Reading:
        reading = self._readings.get(names)
        if reading is None:
            reading = self._reading(names, {})
            self._readings.put(names, reading)
        return reading

    def _reading(self, names: Sequence[str], given: Mapping[str, _Values]) -> Reading:
        for name in names:
            if name in self.unfit and name not in given:
                raise UnsupportedTable(self.unfit[name])
        fields = [self._schema.arrow.field(name) for name in names]
        return Reading(fields, [given.get(name) or self._sources.get(name) for name in names])

    def _given(self, names: Sequence[str], given: Sequence[Given]) -> dict[str, pa.Array]:
        """The values of the columns among `names` that are given, one for each leaf."""
        ids = [id for id, _ in given[0]] if given else []
        numbers = {self._names.get(id): number for number, id in enumerate(ids)}
        return {
            name: self._keys(name, [values[numbers[name]][1] for values in given])
            for name in names
            if name in numbers
        }

    def _keys(self, name: str, keys: Sequence[Any]) -> pa.Array:
        return domain_of(self._schema.arrow.field(name).type).array(keys)

    def filter(self, where: Predicate, given: Given = ()) -> str:
        """A predicate on the table's columns as a filter on the leaf's.

        Raises UnsupportedTable as `reading` does.
        """
        return self._dialect.knowing(given).predicate(where)

    @property
    def held_ids(self) -> Iterable[int]:
        """The ids of the columns that the leaf has, those inside of structs included."""
        return self._dialect.held_ids

    def needs_no_files(self, given: Given = ()) -> bool:
        """Whether the leaf's files need no rewrite to hold the table's columns.

        That is so if they hold every column unchanged, except columns that are NULL without a file
        and those that the partition gives.
        """
        known = {id for id, _ in given}
        columns = (field for field in self._schema.tagged if field_id(field) not in known)
        return all(_is_held(field, self._fields) for field in columns)


class Reading:
    """How some of the table's columns are read from a leaf."""

    def __init__(
        self, fields: Sequence[pa.Field], sources: Sequence[_Source | _Values | None]
    ) -> None:
        self._columns = list(zip(fields, sources, strict=True))
        #: The names of the table's columns.
        self.names = [field.name for field in fields]
        #: The names of the leaf's columns to read.
        self.columns = [source.name for source in sources if isinstance(source, _Source)]
        #: Whether the values of a column are converted.
        self.converts = any(isinstance(s, _Source) and s.convert is not None for s in sources)
        #: Whether row ids must be read to show how many rows there are.
        self.is_counted = bool(fields and not self.columns)
        #: Whether the addresses of rows are read, too: they tell the leaf that a row is of.
        self.by_address = any(isinstance(source, _ByFragment) for source in sources)
        #: Whether they need no conversion to be the table's.
        self.is_same = all(
            isinstance(source, _Source) and source.name == field.name and source.convert is None
            for field, source in self._columns
        )

    def batch(self, batch: pa.RecordBatch, row_ids: bool) -> pa.RecordBatch:
        """Convert rows of the leaf to rows of the table."""
        if self.is_same:
            return batch
        fields = [field for field, _ in self._columns]
        arrays = [
            constant(field, batch.num_rows) if source is None else source.array(batch)
            for field, source in self._columns
        ]
        if row_ids:
            fields.append(batch.schema.field(ROW_ID))
            arrays.append(batch.column(ROW_ID))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


class _Constant:
    """A column that has one value in all rows."""

    def __init__(self, value: pa.Scalar) -> None:
        self._value = value

    def array(self, batch: pa.RecordBatch) -> pa.Array:
        value = self._value if self._value.is_valid else None
        return repeated(value, self._value.type, batch.num_rows)


class _ByFragment:
    """A column that has one value in all rows of a fragment."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def array(self, batch: pa.RecordBatch) -> pa.Array:
        fragments = np.asarray(batch.column(ADDRESS)) >> FRAGMENT_BITS
        if len(fragments) and bool((fragments == fragments[0]).all()):
            return _Constant(self._values[int(fragments[0])]).array(batch)
        return self._values.take(pa.array(fragments))


_Values = _Constant | _ByFragment


class _Source:
    """A column of a leaf, and its conversion to the table's column; None if it needs none."""

    def __init__(self, name: str, convert: Convert | None) -> None:
        self.name, self.convert = name, convert

    def array(self, batch: pa.RecordBatch) -> pa.Array:
        array = batch.column(self.name)
        if self.convert is None:
            return array
        try:
            return self.convert(array)
        except pa.ArrowInvalid as error:
            raise UnfitValue(f"the column {self.name!r} cannot be read: {error}") from None


def _source(field: pa.Field, physical: dict[int, pa.Field]) -> _Source | None:
    """The column of a leaf that holds a field of the table; None if the leaf has none."""
    own = physical.get(field_id(field))
    return None if own is None else _Source(own.name, conversion(own.type, field.type))


def _unfit_text(uri: str, path: Sequence[str], unfit: Unfit) -> str:
    return (
        f"the leaf {uri} has the column {join_path(path)!r} as {unfit.have}, which the table's "
        f"{unfit.want} cannot hold unchanged: give the table a schema with a type that holds both, "
        "or write the leaf again"
    )


def _is_held(field: pa.Field, physical: dict[int, pa.Field]) -> bool:
    """Whether files hold the values of a field, or need not because it is NULL without them."""
    own = physical.get(field_id(field))
    if own is None:
        return bool(field.nullable) and default_of(field) is None
    return _is_type_held(field.type, own.type)


def _is_type_held(want: pa.DataType, have: pa.DataType) -> bool:
    """The same for two types of one field."""
    wanted, own = _inner_ids(want), _inner_ids(have)
    if not wanted or not own:
        return bool(have == want)
    if pa.types.is_struct(want) and pa.types.is_struct(have):
        # If a struct has none of its original fields left, files do not show where it is NULL.
        stays = not wanted.keys().isdisjoint(own)
        return stays and all(_is_held(field, own) for field in wanted.values())
    if want.id != have.id or wanted.keys() != own.keys():
        return False
    # Where files lack a field, Lance fills it in inside structs and lists, but nowhere else.
    if not pa.types.is_list(want) and not _all_ids(want) <= _all_ids(have):
        return False
    return all(_is_type_held(field.type, own[id].type) for id, field in wanted.items())


def _inner_ids(type: pa.DataType) -> dict[int, pa.Field]:
    return {field_id(field): field for field in inner_fields(type).values()}


def _all_ids(type: pa.DataType) -> set[int]:
    """The ids of all fields inside a type."""
    inside = _inner_ids(type)
    return inside.keys() | {id for field in inside.values() for id in _all_ids(field.type)}


def constant(field: pa.Field, rows: int) -> pa.Array:
    """The values of a column in rows that were written without it, in the types of a batch."""
    return absent(field.with_type(untagged(field.type)), rows)


class _LeafDialect(Lance):
    """Lance's SQL, with a leaf's columns instead of the table's."""

    def __init__(
        self, physical: dict[int, Column], schema: TableSchema, unfit: Mapping[str, str]
    ) -> None:
        #: The leaf's columns by field id, including those inside structs.
        self._physical, self._unfit = physical, unfit
        self._defaults: dict[int, pa.Scalar] = {}
        self._given: Mapping[int, Any] = {}
        for field in schema.tagged:
            self._add_default(field, default_of(field))

    @property
    def held_ids(self) -> Iterable[int]:
        return self._physical.keys()

    def _add_default(self, field: pa.Field, value: pa.Scalar | None) -> None:
        """Keep the default of a column, and for a struct the values of its fields."""
        if value is None or not value.is_valid:
            return
        self._defaults[field_id(field)] = value
        if pa.types.is_struct(field.type):
            for at, child in enumerate(inner_fields(field.type).values()):
                self._add_default(child, value[at])

    def knowing(self, given: Given) -> _LeafDialect:
        """The same for a leaf whose partition gives some columns."""
        if not given:
            return self
        other = copy.copy(self)
        other._given = dict(given)
        return other

    def name(self, column: Column) -> str:
        if column.field_id in self._given:
            return _literal(self._given[column.field_id], column.type)
        if column.path[0] in self._unfit:
            raise UnsupportedTable(self._unfit[column.path[0]])
        own = self._physical.get(column.field_id)
        if own is None:
            return self._default(column)
        text = super().name(own)
        if own.type == column.type or pa.types.is_nested(column.type):
            return text
        return f"arrow_cast({text}, {quote(type_name(column.type))})"

    def _default(self, column: Column) -> str:
        value = self._defaults.get(column.field_id)
        if value is not None:
            domain = domain_of(column.type)
            # Of other values it is asked only whether they are NULL.
            return _literal(domain.key(value), column.type) if domain.ordered else "TRUE"
        return _literal(None, column.type)


def _literal(key: Any, type: pa.DataType) -> str:
    if key is not None:
        return arrow_literal(key, type)
    name = type_name(type)
    return f"arrow_cast(NULL, {quote(name)})" if name else "NULL"


#: For how many table schemas mappings are cached, and for how many leaf schemas of each.
_SCHEMAS, _SHAPES = 32, 8
_mappings: LruCache[TableSchema, list[tuple[LanceSchema, LeafMapping]]] = LruCache(_SCHEMAS)


def mapping_of(physical: LanceSchema, handle: Any, schema: TableSchema) -> LeafMapping:
    """The mapping from a leaf's schema to the table's. Most leaves of a table share one."""
    mappings = _mappings.get(schema) or []
    for shape, mapping in mappings:
        if shape == physical:
            return mapping
    if schema.is_by_name:
        own = schema.ids_for(handle.schema)
    else:
        own = TableSchema.numbered(handle.schema, ids_of(physical))
    mapping = LeafMapping(own, schema, handle.uri)
    if not mapping.unfit:  # what it says would name another leaf
        _mappings.put(schema, [(physical, mapping), *mappings][:_SHAPES])
    return mapping
