"""The order of rows within a file: by some columns, or along a curve through several.

Rows that are near each other in a filter's columns lie near each other in a file that is ordered
by them, so a reader that looks for a few of them reads few pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import InvalidInput
from phalanx.model.domains import domain_of
from phalanx.model.schema import TableSchema

#: Columns of a Z-order at most: with more, each has too few bits to be of use.
_MOST_COLUMNS = 8
_KEY_BITS = 63


@dataclass(frozen=True)
class Ordering:
    """Columns to order rows by, each with whether it descends; `zorder` treats all alike."""

    columns: tuple[tuple[str, bool], ...]
    zorder: bool = False

    @staticmethod
    def of(sort_by: Any, zorder_by: Any, schema: TableSchema) -> Ordering | None:
        """What a user has asked for; None to leave rows in the order that they have.

        An entry of `sort_by` is a name, or a pair of a name and "ascending" or "descending".
        Raises InvalidInput for an unknown column, or one whose values have no order.
        """
        if sort_by is not None and zorder_by is not None:
            raise InvalidInput("rows are sorted or Z-ordered: give sort_by or zorder_by, not both")
        if zorder_by is not None:
            entries = [(name, False) for name in _listed(zorder_by, "zorder_by")]
            if not 2 <= len(entries) <= _MOST_COLUMNS:
                raise InvalidInput(f"zorder_by takes 2 to {_MOST_COLUMNS} columns: sort_by takes 1")
        elif sort_by is not None:
            entries = [_sort_key(entry) for entry in _listed(sort_by, "sort_by")]
        else:
            return None
        names = []
        for name, _ in entries:
            names.append(_checked(name, schema))
        if len(set(names)) < len(names):
            raise InvalidInput("a column to order by is given twice")
        columns = tuple((name, down) for name, (_, down) in zip(names, entries, strict=True))
        return Ordering(columns, zorder_by is not None)

    def check(self, schema: TableSchema) -> None:
        """Raise InvalidInput where the table does not have a column, or no longer has it."""
        for name, _ in self.columns:
            _checked(name, schema)

    def order(self, table: pa.Table) -> pa.Array:
        """The numbers of the rows in this order. The sort is stable, and NULL comes last."""
        if self.zorder:
            return pa.array(np.argsort(self._curve(table), kind="stable"))
        keys = {str(i): _sortable(table.column(name)) for i, (name, _) in enumerate(self.columns)}
        directions = [
            (str(i), "descending" if down else "ascending")
            for i, (_, down) in enumerate(self.columns)
        ]
        # Arrow's sort is not stable: the rows' own numbers decide last.
        numbers = pa.array(np.arange(table.num_rows))
        return pc.sort_indices(
            pa.table({**keys, "row": numbers}),
            sort_keys=[*directions, ("row", "ascending")],
        )

    def _curve(self, table: pa.Table) -> np.ndarray[Any, Any]:
        """Where each row is on the Z-curve through the ranks of its values."""
        bits = _KEY_BITS // len(self.columns)
        key = np.zeros(table.num_rows, np.uint64)
        ranks = [_rank(table.column(name), bits) for name, _ in self.columns]
        one, place = np.uint64(1), 0
        for bit in range(bits):
            for rank in reversed(ranks):
                key |= ((rank >> np.uint64(bit)) & one) << np.uint64(place)
                place += 1
        return key

    def __str__(self) -> str:
        names = ", ".join(f"{name} descending" if down else name for name, down in self.columns)
        return f"Z-ordered by {names}" if self.zorder else f"sorted by {names}"


def _listed(columns: Any, what: str) -> Sequence[Any]:
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        raise InvalidInput(f"{what} is a list of columns, such as ['id']")
    return columns


def _sort_key(entry: Any) -> tuple[Any, bool]:
    if isinstance(entry, str):
        return entry, False
    match entry:
        case [str(name), "ascending" | "descending" as direction]:
            return name, direction == "descending"
    raise InvalidInput(f"sort_by takes names, or pairs such as ('id', 'descending'), not {entry!r}")


def _checked(name: Any, schema: TableSchema) -> str:
    if name not in schema.tagged.names:
        known = ", ".join(schema.tagged.names)
        raise InvalidInput(f"unknown column {name!r}: the table has {known}")
    type = schema.column((name,)).type
    if pa.types.is_nested(type) or not domain_of(type).ordered:
        raise InvalidInput(f"cannot order by {name!r}: values of the type {type} have no order")
    return str(name)


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as Arrow can sort it."""
    t = pa.types
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array(
            [chunk.storage for chunk in column.chunks], column.type.storage_type
        )
    if t.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if t.is_float16(column.type):
        return column.cast(pa.float32())
    return column.cast(pa.int64()) if t.is_duration(column.type) else column


def _rank(column: pa.ChunkedArray, bits: int) -> np.ndarray[Any, Any]:
    """The ranks of values, spread over so many bits; NULL is above all."""
    ranks = pc.rank(_sortable(column), tiebreaker="dense")
    distances = np.asarray(ranks).astype(np.float64) - 1
    highest = distances.max(initial=0)
    # At 2**52 a float still holds every whole number.
    scale = (2 ** min(bits, 31) - 1) / highest if highest else 0
    return (distances * scale).astype(np.uint64)
