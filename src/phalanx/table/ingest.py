"""Input rows: conversion of tables, data frames, streams and dicts to the table's schema.

A column fits if no value changes: it has the same type, a narrower one, another layout of strings
or lists, or values that the table's type can hold (integers in range, whole floats, timestamps that
a coarser unit can express). The rules are the same for every kind of input. Anything else raises
InvalidInput with the name of the column, before a file is written for that batch.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import InvalidInput
from phalanx.model.defaults import without_defaults
from phalanx.model.evolution import missing
from phalanx.model.paths import join_path
from phalanx.model.schema import inner_fields
from phalanx.table.defaults import Moment, new_value, new_values
from phalanx.table.offsets import with_offsets
from phalanx.table.sources import is_pandas, rows_of

#: The largest chunk of input that is processed at a time, in bytes and in rows.
CHUNK_BYTES = 64 * 1024 * 1024
CHUNK_ROWS = 1_000_000
_ARROW_ERRORS = (pa.ArrowException, ValueError, TypeError, OverflowError)


def chunks(
    data: Any,
    schema: pa.Schema,
    buffer_bytes: int = 4 * CHUNK_BYTES,
    moment: Moment | None = None,
) -> Iterator[pa.Table]:
    """The rows of `data` as tables with the given schema, each at most a quarter of the buffer.

    `data` is a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a pandas DataFrame, a
    list of dicts, any object with an Arrow stream (DuckDB, Polars, a Phalanx scan), or one of the
    `phalanx.table.sources`. Defaults are those of `moment`, or of now. Raises InvalidInput if the
    rows do not fit.
    """
    data = rows_of(data)
    size = max(1, min(CHUNK_BYTES, buffer_bytes // 4))
    moment = moment or Moment.now()
    for table in _tables(data, schema, size, moment):
        # Arrow does not reliably count rows without columns.
        if not table.num_columns and table.num_rows:
            raise _no_columns(schema)
        yield conform(table, schema, moment)


@dataclass(frozen=True)
class PartialRows:
    """Rows that may lack columns of the table, all of them or some of them."""

    #: The columns that rows have, in the table's types.
    rows: pa.Table
    #: For a column that not all rows have: which do. The others hold NULL.
    given: Mapping[str, pa.Array]
    #: Whether every column of the table is there.
    has_all_columns: bool

    @property
    def is_whole(self) -> bool:
        """Whether every row has every column."""
        return self.has_all_columns and not self.given

    def whole_rows(self) -> Any:
        """Which rows have every column, as an array of booleans."""
        if self.is_whole:
            return np.ones(self.rows.num_rows, dtype=bool)
        if not self.has_all_columns:
            return np.zeros(self.rows.num_rows, dtype=bool)
        return np.logical_and.reduce([np.asarray(mask) for mask in self.given.values()])

    def missing(self, names: Iterable[str]) -> list[str]:
        """The columns that some rows lack."""
        have = set(self.rows.schema.names) - self.given.keys()
        return [name for name in names if name not in have]

    def new_rows(self, chosen: Any, schema: pa.Schema, moment: Moment) -> pa.Table:
        """Some of the rows as new ones: a column that a row lacks takes its default.

        `chosen` says which, as an array of booleans. Raises InvalidInput if only Spark knows a
        default that is needed.
        """
        mask = pa.array(chosen)
        rows = self.rows if chosen.all() else self.rows.filter(mask)
        for name, given in self.given.items():
            have = given.filter(mask)
            if not rows.num_rows or pc.all(have).as_py():
                continue
            field = schema.field(name)
            filled = _chosen(have, rows.column(name), new_values(field, rows.num_rows, moment))
            rows = rows.set_column(rows.schema.get_field_index(name), field, filled)
        return rows

    def over(self, kept: pa.Table, numbers: Any, schema: pa.Schema) -> pa.Table:
        """Some of the rows, with the values of other rows in the columns that they lack.

        `kept` are those rows, in the order of `numbers`, with the columns that are `missing`.
        """
        places = pa.array(numbers)
        columns = []
        for field in schema:
            name = field.name
            if name not in self.rows.schema.names:
                column = kept.column(name)
            elif name not in self.given:
                column = self.rows.column(name).take(places)
            else:
                mine, mask = self.rows.column(name).take(places), self.given[name].take(places)
                column = _chosen(mask, mine, kept.column(name))
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=schema)


def _chosen(
    mask: pa.Array, one: pa.Array | pa.ChunkedArray, other: pa.Array | pa.ChunkedArray
) -> pa.Array:
    """Values of one column where a mask is set, else of another; for every type."""
    both = pa.concat_arrays([*_parts(one), *_parts(other.cast(one.type))])
    rows = np.arange(len(mask))
    return both.take(pa.array(np.where(np.asarray(mask), rows, rows + len(mask))))


def _parts(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


def partial_rows(data: Any, schema: pa.Schema) -> PartialRows:
    """All rows of `data`, in memory, with the columns that they come with.

    In a list of dicts each row may have columns of its own. Raises InvalidInput where the rows do
    not fit.
    """
    data = rows_of(data)
    given: dict[str, pa.Array] = {}
    if isinstance(data, list) and not data:
        return PartialRows(schema.empty_table(), given, True)
    if isinstance(data, list):
        if not all(isinstance(row, dict) for row in data):
            raise InvalidInput("a list of rows holds dicts, one for each row")
        names = list(dict.fromkeys(name for row in data for name in row))
        for name in names:
            have = [name in row for row in data]
            if not all(have):
                given[name] = pa.array(have, pa.bool_())
    elif is_pandas(data):
        names = [str(name) for name in data.columns]
    else:
        if not isinstance(getattr(data, "schema", None), pa.Schema):
            if not hasattr(data, "__arrow_c_stream__"):
                raise _unreadable(data)
            data = pa.RecordBatchReader.from_stream(data)
        names = list(data.schema.names)
    extra = [name for name in names if name not in schema.names]
    if extra:
        raise _extra(extra, schema)
    fields = [field for field in schema if field.name in names]
    # What a row lacks is filled in later: from the table, or with a default.
    loose = pa.schema(
        [without_defaults(f).with_nullable(f.nullable or f.name in given) for f in fields]
    )
    tables = list(chunks(data, loose)) if fields or not isinstance(data, list) else []
    rows = pa.concat_tables(tables) if tables else loose.empty_table()
    for field in fields:
        if field.name in given and not field.nullable:
            nulls = pc.and_(given[field.name], rows.column(field.name).is_null())
            if pc.any(nulls).as_py():
                raise InvalidInput(f"column {field.name!r} holds NULL, and it must not be NULL")
    return PartialRows(rows, given, len(fields) == len(schema))


def peek(data: Any, schema: pa.Schema) -> tuple[pa.Schema, Any]:
    """The columns of `data` that `schema` lacks, or of which it lacks fields inside; and the rows.

    The rows may be another object than `data`: a stream can be read only once. Arrow infers the
    types of a list of dicts. Raises InvalidInput if a column has no type.
    """
    data = rows_of(data)
    if isinstance(data, list):
        if not all(isinstance(row, dict) for row in data):
            raise InvalidInput("a list of rows holds dicts, one for each row")
        names = dict.fromkeys(name for row in data for name in row)
        values = ((name, [row.get(name) for row in data]) for name in names)
        return _with_types(schema, _inferred(values, schema)), data
    if is_pandas(data):
        values = ((name, data[name]) for name in data.columns)
        return _with_types(schema, _inferred(values, schema)), data
    has_schema = isinstance(getattr(data, "schema", None), pa.Schema)
    if not has_schema and hasattr(data, "__arrow_c_stream__"):
        data = pa.RecordBatchReader.from_stream(data)
    if not isinstance(getattr(data, "schema", None), pa.Schema):
        raise InvalidInput(f"cannot read rows from {type(data).__name__}")
    return _with_types(schema, data.schema), data


def _inferred(columns: Iterable[tuple[Any, Any]], schema: pa.Schema) -> Iterator[pa.Field]:
    """Columns of Python values that may be new, or have new fields inside, in Arrow's types."""
    for name, values in columns:
        known = schema.field(name).type if name in schema.names else None
        if known is not None and not inner_fields(known):
            continue
        try:
            yield pa.field(name, pa.array(values, from_pandas=not isinstance(values, list)).type)
        except _ARROW_ERRORS as error:
            if known is None:
                raise _untyped(name, values, error) from None


def _untyped(name: Any, values: Iterable[Any], error: Exception) -> InvalidInput:
    types = sorted({type(value).__name__ for value in values if value is not None})
    if len(types) < 2:
        return InvalidInput(f"column {name!r} has no type of its own: {error}")
    kinds = f"{', '.join(types[:-1])} and {types[-1]}"
    return InvalidInput(f"column {name!r} holds {kinds}: make all of its values one type first")


def with_schema(data: Any) -> tuple[pa.Schema, Any]:
    """The schema that rows come with, and the rows, which may be another object than `data`.

    Raises InvalidInput if a column has no type, or if there are no columns.
    """
    data = rows_of(data)
    if not isinstance(getattr(data, "schema", None), pa.Schema):
        columns, data = peek(data, pa.schema([]))
    else:
        columns = data.schema.remove_metadata()
        _with_types(pa.schema([]), columns)
    columns = pa.schema([field.with_type(_storable(field.type)) for field in columns])
    if not len(columns):
        raise InvalidInput(
            f"a table is created from a pyarrow.Schema or from rows, and {type(data).__name__} has "
            "no columns"
        )
    return columns, data


def _storable(type: pa.DataType) -> pa.DataType:
    """A type as a table has it: strings and lists that are views are plain ones."""
    t = pa.types
    if t.is_string_view(type):
        return pa.string()
    if t.is_binary_view(type):
        return pa.binary()
    if t.is_struct(type):
        return pa.struct([field.with_type(_storable(field.type)) for field in type])
    if t.is_list_view(type) or t.is_list(type):
        return pa.list_(type.value_field.with_type(_storable(type.value_type)))
    if t.is_large_list(type) or t.is_large_list_view(type):
        return pa.large_list(type.value_field.with_type(_storable(type.value_type)))
    return type


def _with_types(schema: pa.Schema, fields: Iterable[pa.Field]) -> pa.Schema:
    """The columns that `schema` lacks, or of which it lacks fields inside.

    Raises InvalidInput for a new column, or field, that holds only NULL.
    """
    columns = {field.name: pa.field(field.name, field.type) for field in fields}
    new = list(missing(schema, pa.schema(columns.values())))
    for path, type in new:
        if pa.types.is_null(type):
            name = join_path(path)
            raise InvalidInput(f"column {name!r} is new and has no type: cast it first")
    return pa.schema([columns[name] for name in dict.fromkeys(path[0] for path, _ in new)])


def _tables(data: Any, schema: pa.Schema, size: int, moment: Moment) -> Iterator[pa.Table]:
    if is_pandas(data):
        data = _from_pandas(data, schema)
    if isinstance(data, list):
        data = _from_rows(data, schema, moment)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        check_columns(data.schema, schema, moment)
        yield from _sliced(with_offsets(data), size)
        return
    yield from gathered(_batches(data, schema, moment), size)


def _batches(data: Any, schema: pa.Schema, moment: Moment) -> Iterator[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatchReader):
        reader: Iterable[pa.RecordBatch] = data
        check_columns(data.schema, schema, moment)
    elif hasattr(data, "to_batches") and hasattr(data, "schema"):  # a pyarrow Dataset
        check_columns(data.schema, schema, moment)
        reader = data.to_batches()
    elif hasattr(data, "__arrow_c_stream__"):
        stream = pa.RecordBatchReader.from_stream(data)
        check_columns(stream.schema, schema, moment)
        reader = stream
    else:
        raise _unreadable(data)
    yield from reader


def _missing(field: pa.Field) -> InvalidInput:
    return InvalidInput(f"column {field.name!r} is missing, and it must not be NULL")


def _unreadable(data: Any) -> InvalidInput:
    return InvalidInput(
        f"cannot read rows from {type(data).__name__}: give a pyarrow Table, "
        "RecordBatchReader or Dataset, a data frame, a list of dicts or the path of a file"
    )


def _from_pandas(frame: Any, schema: pa.Schema) -> pa.Table:
    if not frame.columns.is_unique:
        raise InvalidInput("a column appears twice in the rows")
    if len(frame) and not len(frame.columns):
        raise _no_columns(schema)
    columns = {}
    for name in frame.columns:
        column = frame[name]
        type = schema.field(name).type if name in schema.names else None
        if type is not None and column.dtype == object:
            columns[name] = _from_values(column, type, name)
            continue
        try:
            array = pa.Array.from_pandas(column)
        except _ARROW_ERRORS as error:
            raise InvalidInput(f"column {name!r} does not fit {type}: {error}") from None
        columns[str(name)] = array
    return pa.table(columns)


def _from_rows(rows: list[Any], schema: pa.Schema, moment: Moment) -> pa.Table:
    if not all(isinstance(row, dict) for row in rows):
        raise InvalidInput("a list of rows holds dicts, one for each row")
    unknown = {name for row in rows for name in row} - set(schema.names)
    if unknown:
        raise _extra(sorted(map(str, unknown)), schema)
    columns = {}
    for field in schema:
        array = _from_values([row.get(field.name) for row in rows], field.type, field.name)
        present = [field.name in row for row in rows]
        default = None if all(present) else new_value(field, moment)
        if rows and default is None and not (field.nullable or any(present)):
            raise _missing(field)
        if default is not None:
            array = _chosen(pa.array(present), array, pa.repeat(default, len(rows)))
        columns[field.name] = array
    return pa.table(columns)


def _from_values(values: Any, type: pa.DataType, name: str) -> pa.Array:
    """Python values as an array of a type.

    Raises InvalidInput for a value that does not fit, including those that Arrow would truncate,
    such as 1.5 to 1.
    """
    try:
        array = pa.array(values, type, from_pandas=not isinstance(values, list))
    except _ARROW_ERRORS as error:
        text = next((value for value in values if isinstance(value, str)), None)
        python = _python_type(type)
        if text is not None and python is not None:
            raise InvalidInput(
                f"column {name!r} is {type}, and text is not cast to it: write "
                f"{python}.fromisoformat({str(text)!r})"
            ) from None
        raise InvalidInput(f"column {name!r} does not fit {type}: {error}") from None
    if not (_is_text(type) or pa.types.is_floating(type)):
        for value, stored in zip(values, array.to_pylist(), strict=True):
            if not _is_unchanged(value, stored, type):
                raise InvalidInput(f"column {name!r} does not fit {type}: {value!r} would change")
    return array


def _python_type(type: pa.DataType) -> str | None:
    """The Python type of dates, times or timestamps; None for another type."""
    if pa.types.is_date(type):
        return "datetime.date"
    if pa.types.is_time(type):
        return "datetime.time"
    return "datetime.datetime" if pa.types.is_timestamp(type) else None


def _is_unchanged(value: Any, stored: Any, type: pa.DataType) -> bool:
    """Whether an Arrow array of this type stores a Python value as it is."""
    t = pa.types
    if value is None or stored is None or t.is_floating(type) or _is_text(type):
        return True
    if isinstance(type, pa.BaseExtensionType):
        return True
    if t.is_dictionary(type):
        return _is_unchanged(value, stored, type.value_type)
    if t.is_struct(type) and isinstance(value, Mapping):
        return all(
            key in stored and _is_unchanged(value[key], stored[key], type.field(key).type)
            for key in value
        )
    if t.is_map(type):
        pairs = value.items() if isinstance(value, Mapping) else value
        return all(
            _is_unchanged(pair[0], key, type.key_type)
            and _is_unchanged(pair[1], item, type.item_type)
            for pair, (key, item) in zip(pairs, stored, strict=True)
        )
    if _is_list(type):
        pairs = zip(value, stored, strict=True)
        return all(_is_unchanged(a, b, type.value_type) for a, b in pairs)
    if t.is_timestamp(type) and type.tz and getattr(value, "tzinfo", stored) is None:
        value = value.replace(tzinfo=dt.UTC)  # Arrow reads a datetime without a zone as UTC
    return bool(value == stored)


def _sliced(table: pa.Table, size: int) -> Iterator[pa.Table]:
    """Slices of at most about `size` bytes."""
    row_bytes = max(1, table.nbytes // max(1, table.num_rows))
    rows = max(1, min(CHUNK_ROWS, size // row_bytes))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def gathered(batches: Iterable[pa.RecordBatch], size: int = CHUNK_BYTES) -> Iterator[pa.Table]:
    """Tables of about `size` bytes: small batches are combined, large ones sliced."""
    pending: list[pa.RecordBatch] = []
    pending_bytes = rows = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        batch = with_offsets(batch)
        if batch.nbytes > size or batch.num_rows > CHUNK_ROWS:
            if pending:
                yield pa.Table.from_batches(pending)
            pending, pending_bytes, rows = [], 0, 0
            yield from _sliced(pa.Table.from_batches([batch]), size)
            continue
        pending.append(batch)
        pending_bytes, rows = pending_bytes + batch.nbytes, rows + batch.num_rows
        if pending_bytes >= size or rows >= CHUNK_ROWS:
            yield pa.Table.from_batches(pending)
            pending, pending_bytes, rows = [], 0, 0
    if pending:
        yield pa.Table.from_batches(pending)


def check_columns(columns: pa.Schema, schema: pa.Schema, moment: Moment) -> None:
    """Check the columns of input rows against the schema of a table.

    Raises InvalidInput for a column that is unknown, repeated, missing but required, missing with a
    default that only Spark knows, or of a type that does not fit.
    """
    extra = [name for name in columns.names if name not in schema.names]
    if extra:
        raise _extra(extra, schema)
    if len(set(columns.names)) < len(columns.names):
        raise InvalidInput("a column appears twice in the rows")
    for field in schema:
        if field.name not in columns.names:
            if new_value(field, moment) is None and not field.nullable:
                raise _missing(field)
            continue
        type = columns.field(field.name).type
        if not fits(type, field.type):
            raise InvalidInput(
                f"column {field.name!r} is {type}, and the table has {field.type}: cast it first"
            )


def _no_columns(schema: pa.Schema) -> InvalidInput:
    return InvalidInput(f"the rows have no column: the table has {', '.join(schema.names)}")


def _extra(names: list[str], schema: pa.Schema) -> InvalidInput:
    return InvalidInput(
        f"the table has no column {', '.join(map(repr, names))}: it has {', '.join(schema.names)}"
    )


def conform(table: pa.Table, schema: pa.Schema, moment: Moment | None = None) -> pa.Table:
    """The rows with the columns of `schema`, in its order and with its types.

    Missing columns get their default, or NULL. Raises InvalidInput if the rows do not fit.
    """
    moment = moment or Moment.now()
    check_columns(table.schema, schema, moment)
    columns = []
    for field in schema:
        if field.name not in table.schema.names:
            columns.append(pa.chunked_array([new_values(field, table.num_rows, moment)]))
            continue
        column = table.column(field.name)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except _ARROW_ERRORS as error:
                raise InvalidInput(
                    f"column {field.name!r} does not fit {field.type}: {error}"
                ) from None
        for chunk in column.chunks:
            refuse_nulls(chunk, field)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def refuse_nulls(array: pa.Array, field: pa.Field) -> None:
    """Refuse NULL in a column that must not be NULL, and in such fields inside it."""
    if not field.nullable and array.null_count:
        raise InvalidInput(f"column {field.name!r} holds NULL, and it must not be NULL")
    _refuse_null_inside(array, field.name)


def _refuse_null_inside(array: pa.Array, name: str) -> None:
    """Raise InvalidInput for NULL in a field of a struct, list or map that must not be NULL."""
    type, t = array.type, pa.types
    if not t.is_nested(type) or not _requires_something(type):
        return
    fields = [type.field(i) for i in range(type.num_fields)]
    if t.is_struct(type) or t.is_map(type):
        array = array.filter(array.is_valid())
    if t.is_struct(type):
        children = [array.field(i) for i in range(type.num_fields)]
    elif t.is_map(type):
        children, fields = [array.keys, array.items], [type.key_field, type.item_field]
    else:
        children = [array.flatten()]
    for child, field in zip(children, fields, strict=True):
        inner = f"{name}.{field.name}"
        if not field.nullable and child.null_count:
            raise InvalidInput(f"column {inner!r} holds NULL, and it must not be NULL")
        _refuse_null_inside(child, inner)


def _requires_something(type: pa.DataType) -> bool:
    fields = [type.field(i) for i in range(type.num_fields)]
    return any(not field.nullable or _requires_something(field.type) for field in fields)


def fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a column of type `source` may be cast to `target`.

    It may if the cast fails for every value that would change, as Arrow's casts of integers and
    timestamps do. A cast to a narrower float drops digits silently, so it is not allowed whatever
    the values.
    """
    t = pa.types
    if source == target or t.is_null(source):
        return True
    if t.is_dictionary(source):
        return fits(source.value_type, target)
    if t.is_dictionary(target):
        return fits(source, target.value_type)
    if t.is_integer(source):
        return bool(t.is_integer(target) or t.is_floating(target))
    if t.is_floating(source):
        wider = bool(t.is_floating(target)) and source.bit_width <= target.bit_width
        return wider or bool(t.is_integer(target))
    if t.is_decimal(source):
        return (
            bool(t.is_decimal(target))
            and source.scale <= target.scale
            and source.precision - source.scale <= target.precision - target.scale
        )
    if _is_text(source):
        return _is_text(target)
    if _is_bytes(source):
        return _is_bytes(target)
    if t.is_timestamp(source):
        return bool(t.is_timestamp(target)) and (source.tz is None) == (target.tz is None)
    if _is_list(source):
        return _is_list(target) and fits(source.value_type, target.value_type)
    if t.is_struct(source):
        return bool(t.is_struct(target)) and _fits_struct(source, target)
    if t.is_map(source):
        return (
            bool(t.is_map(target))
            and fits(source.key_type, target.key_type)
            and fits(source.item_type, target.item_type)
        )
    return False


def _fits_struct(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether all fields of a struct have a place in another, and the others there may be NULL."""
    have, wanted = ({f.name: f for f in type} for type in (source, target))
    return (
        have.keys() <= wanted.keys()
        and len(have) == source.num_fields
        and all(fits(field.type, wanted[name].type) for name, field in have.items())
        and all(field.nullable for name, field in wanted.items() if name not in have)
    )


def _is_text(type: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_string(type) or t.is_large_string(type) or t.is_string_view(type))


def _is_bytes(type: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_binary(type) or t.is_large_binary(type) or t.is_binary_view(type))


def _is_list(type: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type))
