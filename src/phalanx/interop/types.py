"""Types of columns in other formats: what one cannot hold is refused or widened, never changed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput


def check_parquet(field: pa.Field, name: str | None = None) -> None:
    """Raise InvalidInput for a column that Parquet cannot hold."""
    is_nested, name = name is not None, name or field.name
    type = field.type
    if isinstance(type, pa.BaseExtensionType):
        type = type.storage_type
    if pa.types.is_decimal(type) and type.scale < 0:
        raise InvalidInput(f"column {name!r} is {type}: Parquet has no negative scale")
    if pa.types.is_date64(type) and is_nested:
        raise InvalidInput(f"column {name!r} is {type}: Parquet has dates of whole days only")
    for at in range(type.num_fields):
        check_parquet(type.field(at), f"{name}.{type.field(at).name}")


def whole_days(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """A column as it is; dates that are also a time of day are refused.

    Parquet and Delta have dates of whole days only, and Arrow would drop the rest.
    """
    if not pa.types.is_date64(column.type):
        return column
    try:
        column.cast(pa.date32())
    except pa.ArrowInvalid:
        raise InvalidInput(
            f"column {field.name!r} is {column.type} and holds dates with a time of day: change "
            "its type to a timestamp"
        ) from None
    return column


def relaxed(type: pa.DataType) -> pa.DataType:
    """A type in which NULL is allowed in all parts of a struct, list or map.

    Files are written like that: in a struct that is NULL, Lance returns NULL for fields that must
    not be NULL, and Arrow does not write those.
    """
    t = pa.types
    if t.is_struct(type):
        return pa.struct([_relaxed(inner) for inner in type])
    if t.is_fixed_size_list(type):
        return pa.list_(_relaxed(type.value_field), type.list_size)
    if t.is_large_list(type):
        return pa.large_list(_relaxed(type.value_field))
    if t.is_list(type):
        return pa.list_(_relaxed(type.value_field))
    if t.is_map(type):
        return pa.map_(relaxed(type.key_type), _relaxed(type.item_field))
    return type


def _relaxed(field: pa.Field) -> pa.Field:
    return field.with_type(relaxed(field.type)).with_nullable(True)


def retyped(array: pa.Array, type: pa.DataType) -> pa.Array:
    """The values as a type that differs in where NULL is allowed only. Nothing is checked."""
    return pa.array(_Retyped(array, type))


class _Retyped:
    """An array that says of itself that it has another type."""

    def __init__(self, array: pa.Array, type: pa.DataType) -> None:
        self._array, self._type = array, type

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[Any, Any]:
        _, values = self._array.__arrow_c_array__()
        return self._type.__arrow_c_schema__(), values
