"""Types of columns in other formats: what one cannot hold is refused or widened, never changed."""

from __future__ import annotations

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
