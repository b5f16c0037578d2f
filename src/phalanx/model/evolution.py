"""Changes of a schema, as values. None of them moves a row or changes what one means.

A field keeps its id whatever it is called, wherever it stands and however wide it becomes; a new
one gets an id that no field has ever had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.conversion import conversion
from phalanx.model.defaults import (
    Default,
    carried,
    default_of,
    with_default,
    with_new_default,
)
from phalanx.model.paths import join_path, split_path
from phalanx.model.predicates import Column
from phalanx.model.promotion import is_wider
from phalanx.model.schema import (
    KEY,
    TableSchema,
    check_name,
    check_zones,
    field_id,
    inner_fields,
    with_inner_fields,
)
from phalanx.model.specs import PartitionField, PartitionSpec
from phalanx.model.transforms import Expression, FloorTruncate, Identity, Truncate

#: A column: its name, or for a field of a struct `a.b` or `("a", "b")`. Inside lists and maps
#: `element`, `key` and `value` are parts of the path: `a.element.b`, `m.value.b`. A part with a
#: dot is quoted with backticks, unless the text is the name of a column.
Path = str | Sequence[str]
_Fields = list[pa.Field]


def find(schema: TableSchema, path: Path) -> Column:
    """The column, or the field inside of one, with a path. Raises InvalidInput if there is none."""
    if isinstance(path, str) and path in schema.tagged.names:
        return schema.place((path,))
    return schema.place(_parts(path))


def add_column(
    schema: TableSchema,
    path: Path,
    type: pa.DataType | str,
    next_id: int,
    default: Any = None,
    nullable: bool = True,
    first: bool = False,
    after: str | None = None,
) -> TableSchema:
    """The schema with one more column, or one more field in a struct at any depth.

    Existing rows hold `default`. Raises InvalidInput where the name is taken or the default
    does not fit.
    """
    parents, name = _split(schema, path)
    type = _type(type)
    check_zones(type, name)
    field = pa.field(name, type, nullable)
    value = None if default is None else _scalar(default, type, name)
    if value is not None and not value.is_valid:
        value = None
    if parents and (value is not None or not nullable):
        raise InvalidInput(
            f"a field of a struct, such as {join_path((*parents, name))!r}, is NULL in existing "
            "rows: it can have no default and must be nullable"
        )
    if not nullable and value is None:
        raise InvalidInput(
            f"column {name!r} must not be NULL, and existing rows have no value for it: "
            "give a default"
        )
    field = with_default(field, value)
    numbers = iter(range(next_id, 2**31))
    (tagged,) = TableSchema.numbered(pa.schema([field]), numbers).tagged

    def change(fields: _Fields) -> _Fields:
        _check_free(name, fields, parents)
        return _placed(fields, tagged, first, after)

    return _changed(schema, parents, change)


def drop_column(schema: TableSchema, path: Path) -> TableSchema:
    """The schema without a column, or without a field of a struct.

    Raises InvalidInput where nothing would be left.
    """
    column = _owned(schema, path)

    def change(fields: _Fields) -> _Fields:
        left = [field for field in fields if field.name != column.path[-1]]
        if not left:
            owner = f"the struct {join_path(column.path[:-1])!r}" if column.path[1:] else "a table"
            raise InvalidInput(f"cannot drop {_spelled(column)}: {owner} needs at least one field")
        return left

    return _changed(schema, column.path[:-1], change)


def rename_column(schema: TableSchema, path: Path, name: str) -> TableSchema:
    """The schema with another name for a column. Raises InvalidInput where it is taken."""
    column = _owned(schema, path)

    def change(fields: _Fields) -> _Fields:
        others = [field for field in fields if field.name != column.path[-1]]
        _check_free(name, others, column.path[:-1])
        return [f.with_name(name) if f.name == column.path[-1] else f for f in fields]

    return _changed(schema, column.path[:-1], change)


def change_type(schema: TableSchema, path: Path, type: pa.DataType | str) -> TableSchema:
    """The schema with a wider type for a column; its own type changes nothing.

    Raises InvalidInput for any other type.
    """
    column, wanted = _not_in_key(schema, find(schema, path)), _type(type)
    if column.type == wanted:
        return schema
    if not is_wider(column.type, wanted):
        raise InvalidInput(
            f"column {_spelled(column)} is {column.type} and cannot become {wanted}: a type can "
            "only be widened (integers, float to double, decimals to more digits, date to "
            "timestamp)"
        )
    return _changed_field(schema, column, lambda field: field.with_type(wanted))


def set_default(schema: TableSchema, path: Path, default: Any) -> TableSchema:
    """The schema with another default for new rows; existing rows keep their values.

    `default` is a value or a `Default`; None for none. Raises InvalidInput where it does not fit,
    and for a field of a struct.
    """
    column = find(schema, path)
    if len(column.path) > 1:
        raise InvalidInput(
            f"{_spelled(column)} is inside another column, where nothing can have a default"
        )
    name = column.path[0]
    if isinstance(default, Default):
        if default.value is not None:
            default = replace(default, value=_scalar(default.value, column.type, name))
    elif default is not None:
        default = Default(_scalar(default, column.type, name))
    return _changed_field(schema, column, lambda field: with_new_default(field, default))


def make_nullable(schema: TableSchema, path: Path) -> TableSchema:
    """The schema in which a column may be NULL."""
    column = _not_in_key(schema, find(schema, path))
    return _changed_field(schema, column, lambda field: field.with_nullable(True))


def describe_column(
    schema: TableSchema, path: Path, texts: Mapping[str, str | None]
) -> TableSchema:
    """The schema with texts about a column, such as its comment; None removes one.

    Raises InvalidInput for a text about the elements of a list, or the keys and values of a map.
    """
    column = find(schema, path)
    if any(text is not None for text in texts.values()):
        column = _owned(schema, path)

    def change(field: pa.Field) -> pa.Field:
        metadata = dict(field.metadata or {})
        for key, text in texts.items():
            metadata.pop(key.encode(), None)
            if text is not None:
                metadata[key.encode()] = text.encode()
        return field.with_metadata(metadata)

    return _changed_field(schema, column, change)


def move_column(
    schema: TableSchema, path: Path, first: bool = False, after: str | None = None
) -> TableSchema:
    """The schema with a column in another place among its siblings."""
    column = _owned(schema, path)
    if first == (after is not None):
        raise InvalidInput("say where the column goes: first=True, or after another one")

    def change(fields: _Fields) -> _Fields:
        (moved,) = [field for field in fields if field.name == column.path[-1]]
        return _placed([f for f in fields if f is not moved], moved, first, after)

    return _changed(schema, column.path[:-1], change)


def reorder_columns(schema: TableSchema, names: Sequence[str]) -> TableSchema:
    """The schema with its columns in another order. Raises InvalidInput unless all are named."""
    have = schema.tagged.names
    if isinstance(names, str) or sorted(names) != sorted(have):
        raise InvalidInput(f"reorder_columns takes every column once: {', '.join(have)}")
    fields = [schema.tagged.field(name) for name in names]
    return TableSchema(pa.schema(fields, metadata=schema.tagged.metadata))


def add_missing(schema: TableSchema, data: pa.Schema, next_id: int) -> TableSchema:
    """The schema, plus the columns that only the data has, and such fields inside of others."""
    for path, type in missing(schema.arrow, data):
        schema = add_column(schema, path, _storable(type), next_id)
        next_id = max(next_id, *schema.field_ids) + 1
    return schema


def missing(schema: pa.Schema, data: pa.Schema) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """The paths and types of the fields that only the data has, outermost ones."""
    have = {field.name: field for field in schema}
    yield from _missing(have, {field.name: field for field in data}, ())


def _missing(
    have: Mapping[str, pa.Field], data: Mapping[str, pa.Field], parents: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    for name, field in data.items():
        path, own = (*parents, name), have.get(name)
        if own is None:
            yield path, field.type
            continue
        inside = inner_fields(field.type)
        # The elements of a list stand for those of another kind of list, but for nothing else.
        if pa.types.is_struct(own.type) == pa.types.is_struct(field.type):
            known = inner_fields(own.type)
            if pa.types.is_struct(own.type) or known.keys() == inside.keys():
                yield from _missing(known, inside, path)


def widen_specs(
    specs: Iterable[PartitionSpec], before: TableSchema, after: TableSchema, column: Column
) -> tuple[PartitionSpec, ...]:
    """The specs of a table after one of its columns has become wider.

    Partition values stay the same, and rows stay where they are. Raises InvalidInput where the
    types alone show that they would not; for `unproven_fields` only the rows can show it.
    """
    return tuple(
        replace(spec, fields=tuple(_widened(f, before, after, column) for f in spec.fields))
        for spec in specs
    )


def _widened(
    field: PartitionField, before: TableSchema, after: TableSchema, column: Column
) -> PartitionField:
    if column.field_id not in field.source_ids:
        return field
    wanted = after.columns[column.field_id].type
    if pa.types.is_date(column.type):
        raise InvalidInput(
            f"column {_spelled(column)} cannot become {wanted}: the table is or was partitioned by "
            f"{field.spell(before)}, and rows would belong elsewhere"
        )
    if not isinstance(field.transform, Identity | Truncate | FloorTruncate | Expression):
        return field
    sources = field.sources(after)
    types = [pa.null() if source is None else source.type for source in sources]
    try:
        result = field.transform.value_type(types)
    except InvalidInput as error:
        raise InvalidInput(
            f"column {_spelled(column)} cannot become {wanted}: the table is or was partitioned by "
            f"{field.spell(before)}, and {error}"
        ) from None
    if isinstance(field.transform, Expression) and result != field.result_type:
        raise InvalidInput(
            f"column {_spelled(column)} cannot become {wanted}: the table is or was partitioned by "
            f"{field.spell(before)}, which would give {result} and not {field.result_type}"
        )
    return replace(field, result_type=result)


def unproven_fields(spec: PartitionSpec, column: Column) -> tuple[int, ...]:
    """Which fields of a spec may give other values for the same rows once a column is wider."""
    return tuple(
        number
        for number, field in enumerate(spec.fields)
        if column.field_id in field.source_ids
        and not field.transform.resists_promotion(column.type)
    )


def fits_files(written: TableSchema, schema: TableSchema) -> bool:
    """Whether files that were written for one schema can be read unchanged under another.

    They can if columns were only moved, made nullable, or added with NULL as their default.
    """
    now = {field_id(field): field for field in schema.tagged}
    for field in written.tagged:
        present = now.pop(field_id(field), None)
        if present is None:
            return False
        if not present.equals(field.with_nullable(field.nullable or present.nullable), True):
            return False
    return all(field.nullable and default_of(field) is None for field in now.values())


def _parts(path: Path) -> tuple[str, ...]:
    if isinstance(path, str):
        return split_path(path)
    if not isinstance(path, Sequence) or not all(isinstance(part, str) for part in path):
        raise InvalidInput(
            f"a column is a name, such as 'a' or 'a.b' for a field of it, not {path!r}"
        )
    return tuple(path)


def _split(schema: TableSchema, path: Path) -> tuple[tuple[str, ...], str]:
    """Where a new field goes, and its name."""
    parts = _parts(path)
    if len(parts) < 2:
        return (), parts[0] if parts else ""
    parent = schema.place(parts[:-1])
    if not pa.types.is_struct(parent.type):
        raise InvalidInput(f"column {_spelled(parent)} is {parent.type} and has no fields")
    return _not_in_key(schema, parent).path, parts[-1]


def _owned(schema: TableSchema, path: Path) -> Column:
    """A column or a field of a struct, which has a name and a place among others.

    Raises InvalidInput for the elements of a list, and for the keys and values of a map.
    """
    column = _not_in_key(schema, find(schema, path))
    owner = column.path[:-1]
    if owner and not pa.types.is_struct(schema.place(owner).type):
        raise InvalidInput(
            f"{_spelled(column)} is what {join_path(owner)!r} consists of: only its type can change"
        )
    return column


def _not_in_key(schema: TableSchema, column: Column) -> Column:
    """The column itself. Raises InvalidInput for the keys of a map, and what is inside them."""
    for length in range(1, len(column.path)):
        is_key = column.path[length] == KEY
        if is_key and pa.types.is_map(schema.place(column.path[:length]).type):
            raise InvalidInput(
                f"{_spelled(column)} belongs to the keys of a map, which cannot change: two keys "
                "could become the same"
            )
    return column


def _changed(
    schema: TableSchema, parents: Sequence[str], change: Callable[[_Fields], _Fields]
) -> TableSchema:
    """The schema with the fields of one struct, or its columns, changed."""
    before = {field_id(field): field for field in schema.tagged}
    fields = [
        _with_its_defaults(before.get(field_id(field)), field)
        for field in _within({field.name: field for field in schema.tagged}, parents, change)
    ]
    return TableSchema(pa.schema(fields, metadata=schema.tagged.metadata))


def _with_its_defaults(before: pa.Field | None, field: pa.Field) -> pa.Field:
    """A column whose type may have changed, with defaults of that type."""
    convert = None if before is None else conversion(before.type, field.type)
    return field if convert is None else carried(before, field, convert)


def _changed_field(
    schema: TableSchema, column: Column, change: Callable[[pa.Field], pa.Field]
) -> TableSchema:
    def changed(field: pa.Field) -> pa.Field:
        return change(field) if field_id(field) == column.field_id else field

    return _changed(schema, column.path[:-1], lambda fields: [changed(field) for field in fields])


def _within(
    fields: Mapping[str, pa.Field], parents: Sequence[str], change: Callable[[_Fields], _Fields]
) -> _Fields:
    """Fields by their names, with those inside the field that `parents` lead to changed."""
    if not parents:
        return change(list(fields.values()))

    def changed(field: pa.Field) -> pa.Field:
        inside = _within(inner_fields(field.type), parents[1:], change)
        return field.with_type(with_inner_fields(field.type, inside))

    return [changed(f) if name == parents[0] else f for name, f in fields.items()]


def _check_free(name: str, fields: _Fields, parents: Sequence[str]) -> None:
    """Refuse a name that a column cannot have, or that another one has."""
    if name in [field.name for field in fields]:
        owner = f"{join_path(parents)!r} has a field" if parents else "the table has a column"
        raise InvalidInput(f"{owner} {name!r} already")
    check_name(name, set())


def _placed(fields: _Fields, field: pa.Field, first: bool, after: str | None) -> _Fields:
    """Fields with one more, at the place that is asked for, or at the end."""
    if first and after is not None:
        raise InvalidInput("a column goes first or after another one, not both")
    if first:
        return [field, *fields]
    if after is None:
        return [*fields, field]
    names = [known.name for known in fields]
    if after not in names:
        raise InvalidInput(f"unknown column {after!r} to come after: there are {', '.join(names)}")
    at = names.index(after) + 1
    return [*fields[:at], field, *fields[at:]]


def _type(type: pa.DataType | str) -> pa.DataType:
    if isinstance(type, str):
        try:
            return pa.type_for_alias(type)
        except ValueError:
            raise InvalidInput(f"unknown type {type!r}: give a pyarrow type") from None
    if not isinstance(type, pa.DataType):
        raise InvalidInput(f"a column's type is a pyarrow type, not {type!r}")
    return type


def _storable(type: pa.DataType) -> pa.DataType:
    """The type in which a column stores values of a type that exists only in memory."""
    t = pa.types
    if t.is_dictionary(type):
        return _storable(type.value_type)
    if t.is_string_view(type):
        return pa.string()
    return pa.binary() if t.is_binary_view(type) else type


def _scalar(value: Any, type: pa.DataType, name: str) -> pa.Scalar:
    """A default in the column's type. Raises InvalidInput where it would change."""
    try:
        scalar = value.cast(type) if isinstance(value, pa.Scalar) else pa.scalar(value, type)
        same = isinstance(value, pa.Scalar) or _is_same(value, scalar.as_py())
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(
            f"the default {value!r} of {name!r} does not fit {type}: {error}"
        ) from None
    if not same:
        raise InvalidInput(f"the default {value!r} of {name!r} does not fit {type}")
    return scalar


def _is_same(value: Any, held: Any) -> bool:
    """Whether a column holds the Python value it was given; a float may have lost digits."""
    if isinstance(held, float) and isinstance(value, int | float):
        return True
    if isinstance(held, dict):
        given = dict(value)
        return given.keys() <= held.keys() and all(_is_same(given[k], held[k]) for k in given)
    if isinstance(held, list | tuple):
        items = list(value.items() if isinstance(value, Mapping) else value)
        return len(items) == len(held) and all(map(_is_same, items, held))
    return bool(value == held)


def _spelled(column: Column) -> str:
    return repr(join_path(column.path))
