"""Column statistics of a leaf: counts of NULL, and bounds that say how far to trust them.

Bounds are keys (see `phalanx.model.domains`), stored as bytes. Long strings are cut, and a delete
may have removed the rows that held a bound. Then bounds only enclose the values, and `exact` is
false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.model.domains import BytesDomain, FloatDomain, TextDomain, after_prefix, domain_of
from phalanx.model.predicates import Column
from phalanx.model.schema import TableSchema

#: How many columns have statistics, from the left.
MAX_COLUMNS = 32
#: How many characters (or bytes) of a string are kept in a bound.
MAX_LENGTH = 64
#: A bound of timestamps has at least this many bytes, and a bound of dates has fewer.
_TIME_BYTES = 8

#: How they are stored in the manifest.
ARROW_TYPE = pa.list_(
    pa.field(
        "item",
        pa.struct(
            [
                pa.field("field_id", pa.int32(), nullable=False),
                pa.field("min", pa.binary()),
                pa.field("max", pa.binary()),
                pa.field("null_count", pa.int64()),
                pa.field("exact", pa.bool_()),
                pa.field("has_nan", pa.bool_()),
            ]
        ),
    )
)


@dataclass(frozen=True)
class ColumnStatistics:
    """One column of one leaf. `low` and `high` are keys; None where nothing is known."""

    null_count: int | None
    low: Any = None
    high: Any = None
    exact: bool = True
    has_nan: bool = False

    @property
    def is_unbounded(self) -> bool:
        """Whether there may be values, and nothing is known of them."""
        return self.low is None and not self.exact

    def merge(self, other: ColumnStatistics) -> ColumnStatistics:
        """The statistics of both sets of rows together."""
        lows = [key for key in (self.low, other.low) if key is not None]
        highs = [key for key in (self.high, other.high) if key is not None]
        unbounded = self.is_unbounded or other.is_unbounded
        return ColumnStatistics(
            None
            if self.null_count is None or other.null_count is None
            else self.null_count + other.null_count,
            None if unbounded else min(lows, default=None),
            None if unbounded else max(highs, default=None),
            self.exact and other.exact,
            self.has_nan or other.has_nan,
        )

    def loosened(self) -> ColumnStatistics:
        """The statistics after a delete: bounds enclose all values, but may not be exact."""
        return replace(self, exact=False, null_count=None)


Statistics = Mapping[int, ColumnStatistics]


def measured_columns(schema: TableSchema) -> list[Column]:
    """The columns that have statistics: the first top-level ones."""
    return [c for c in schema.columns.values() if len(c.path) == 1][:MAX_COLUMNS]


def measure(table: pa.Table, columns: Iterable[Column]) -> dict[int, ColumnStatistics]:
    """The statistics of some rows."""
    return {c.field_id: _measure(_whole(table.column(c.path[0])), c.type) for c in columns}


def _whole(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A column as one array if it is one: Arrow computes that faster."""
    return column.chunk(0) if column.num_chunks == 1 else column


def _measure(column: pa.ChunkedArray | pa.Array, type: pa.DataType) -> ColumnStatistics:
    if pa.types.is_dictionary(column.type):  # NULL may be among its values
        column = column.cast(column.type.value_type)
    nulls = column.null_count
    # Floats are bounded as doubles, so that widening the column leaves the bounds valid.
    domain = domain_of(pa.float64() if pa.types.is_floating(type) else type)
    if not domain.ordered or nulls == len(column) or isinstance(type, pa.BaseExtensionType):
        return ColumnStatistics(nulls)
    if pa.types.is_duration(column.type):
        return ColumnStatistics(nulls)
    if pa.types.is_float16(column.type):  # Arrow has no minimum of these
        column = column.cast(pa.float32())
    has_nan = False
    if isinstance(domain, FloatDomain):
        has_nan = bool(pc.any(pc.is_nan(column)).as_py())
    # One row is its own bounds, and most leaves have one where there are very many.
    least, most = (column[0],) * 2 if len(column) == 1 else pc.min_max(column).values()
    if not least.is_valid:
        return ColumnStatistics(nulls, has_nan=has_nan)
    if has_nan and least.as_py() != least.as_py():  # nothing but NaN
        return ColumnStatistics(nulls, has_nan=True)
    low, high = domain.key(least), domain.key(most)
    if isinstance(domain, TextDomain | BytesDomain):
        return _cut(ColumnStatistics(nulls, low, high))
    return ColumnStatistics(nulls, low, high, has_nan=has_nan)


def _cut(bounds: ColumnStatistics) -> ColumnStatistics:
    """Bounds of strings, cut to a length that a manifest can carry."""
    low, high, exact = bounds.low, bounds.high, True
    if len(low) > MAX_LENGTH:
        low, exact = low[:MAX_LENGTH], False
    if len(high) > MAX_LENGTH:
        exact = False
        high = (
            after_prefix(high[:MAX_LENGTH])
            if isinstance(high, str)
            else _bytes_after(high[:MAX_LENGTH])
        )
        if high is None:
            return ColumnStatistics(bounds.null_count, exact=False)
    return ColumnStatistics(bounds.null_count, low, high, exact)


def _bytes_after(prefix: bytes) -> bytes | None:
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


def merge(a: Statistics, b: Statistics) -> dict[int, ColumnStatistics]:
    """Statistics of two sets of rows together: only columns that both know."""
    return {id: a[id].merge(b[id]) for id in a if id in b}


def to_rows(statistics: Statistics, schema: TableSchema) -> list[dict[str, Any]]:
    """As `ARROW_TYPE` wants them, for the columns that the schema has."""
    columns = schema.columns
    return [
        {
            "field_id": id,
            "min": _to_bytes(column.low, columns[id].type),
            "max": _to_bytes(column.high, columns[id].type),
            "null_count": column.null_count,
            "exact": column.exact,
            "has_nan": column.has_nan,
        }
        for id, column in statistics.items()
        if id in columns
    ]


def from_rows(rows: Iterable[Mapping[str, Any]] | None, schema: TableSchema) -> Statistics:
    """The inverse of `to_rows`, for the columns that the schema still has."""
    statistics = {}
    for row in rows or ():
        column = schema.columns.get(row["field_id"])
        if column is not None and not _is_of_a_date(row, column.type):
            statistics[column.field_id] = ColumnStatistics(
                row["null_count"],
                _from_bytes(row["min"], column.type),
                _from_bytes(row["max"], column.type),
                row["exact"],
                row["has_nan"],
            )
    return statistics


def seen(statistics: Statistics, before: TableSchema, now: TableSchema) -> Statistics:
    """Statistics under another schema, without columns of dates that have become timestamps."""
    if before == now:
        return statistics
    changed = {
        id
        for id, column in now.columns.items()
        if pa.types.is_timestamp(column.type)
        and id in before.columns
        and not pa.types.is_timestamp(before.columns[id].type)
    }
    return {id: known for id, known in statistics.items() if id not in changed}


def _is_of_a_date(row: Mapping[str, Any], type: pa.DataType) -> bool:
    """Whether the bounds of a timestamp column were written when it was a date column."""
    if not pa.types.is_timestamp(type):
        return False
    return any(bound is not None and len(bound) < _TIME_BYTES for bound in (row["min"], row["max"]))


def _to_bytes(key: Any, type: pa.DataType) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    least = _TIME_BYTES if pa.types.is_timestamp(type) else 0
    length = max((int(key).bit_length() + 8) // 8, least)
    return int(key).to_bytes(length, "big", signed=True)


def _from_bytes(data: bytes | None, type: pa.DataType) -> Any:
    if data is None:
        return None
    domain = domain_of(type)
    if isinstance(domain, TextDomain):
        return data.decode()
    if isinstance(domain, BytesDomain):
        return data
    return int.from_bytes(data, "big", signed=True)


def are_complete(cells: pa.ListArray, schema: TableSchema) -> np.ndarray[Any, Any]:
    """Which leaves have exact statistics of every measured column; `cells` as in the manifest."""
    wanted = [column.field_id for column in measured_columns(schema)]
    parents = np.asarray(pc.list_parent_indices(cells))
    entries = pc.list_flatten(cells)
    tight = pc.and_(
        pc.fill_null(pc.struct_field(entries, "exact"), False),
        pc.is_valid(pc.struct_field(entries, "null_count")),
    )
    measured = pc.is_in(pc.struct_field(entries, "field_id"), pa.array(wanted, pa.int32()))
    counted = np.asarray(pc.and_(tight, measured))
    complete: np.ndarray[Any, Any] = np.bincount(parents[counted], minlength=len(cells))
    return complete >= len(wanted)
