"""What the tasks of an aggregation do: read leaves, and aggregate their rows in part.

Spark groups and combines what tasks return: it adds up counts and sums, and takes the least and the
greatest of the rest. So a task may return several rows for one group, and a row that was read is
itself such a part. A task combines rows only where that is exact: not where a sum could have more
digits than its type, and not where Arrow's greatest value is not Spark's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phalanx.model.schema import TableSchema
from phalanx.spark.reader import Piece, joined
from phalanx.spark.terms import Term
from phalanx.spark.types import cast, exchange_type
from phalanx.storage.location import Location

#: How many rows are combined at a time, at least: few of them may have a group in common.
_TOGETHER = 1 << 17
#: How many rows of groups a task keeps to combine them with others.
_MOST_KEPT = 1 << 18
#: How many bytes it keeps, whatever the number of rows.
_MOST_BYTES = 32 * 1024 * 1024
#: Which share of the rows may be left after they were combined, for that to be worthwhile.
_WORTHWHILE = 0.5
#: From how many rows on that is found out.
_MANY = 4096
#: The share of a limit that a sum of doubles may reach: they are rounded.
_SURELY = 0.999
#: How many rows a batch has at most.
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class AggregateFunction:
    """A function that a task computes: COUNT, MIN, MAX or SUM of a term; COUNT(*) has none."""

    name: str
    term: Term | None

    def parts(self, batch: pa.RecordBatch, type: pa.DataType) -> pa.Array:
        """What it is for each row alone."""
        if self.term is None:
            return pa.repeat(pa.scalar(1, type), batch.num_rows)
        values = self.term.of(batch)
        if isinstance(values, pa.Scalar):
            values = pa.repeat(values, batch.num_rows)
        if self.name == "COUNT":
            return pc.is_valid(values).cast(type)
        return cast(values, type, self.name)

    @property
    def combined_by(self) -> str:
        """The function of Arrow that combines parts."""
        return "sum" if self.name in ("COUNT", "SUM") else self.name.lower()

    def of_nothing(self, type: pa.DataType) -> pa.Array:
        return pa.array([0 if self.name == "COUNT" else None], type)

    def is_exact(self, parts: pa.ChunkedArray) -> bool:
        """Whether Arrow combines these parts as Spark would, all of them or any."""
        t, type = pa.types, parts.type
        if self.name == "MAX" and t.is_floating(type):
            # Spark's NaN is above every number, and Arrow leaves it out.
            return not pc.any(pc.is_nan(parts), min_count=0).as_py()
        if self.name != "SUM" or t.is_floating(type):
            return True
        scale, limit = 0, 2.0 ** (type.bit_width - 1)
        if t.is_decimal(type):
            scale, limit = type.scale, 10.0**type.precision
        total = pc.sum(pc.abs(parts.cast(pa.float64(), safe=False)), min_count=0).as_py()
        return bool(total * 10.0**scale < limit * _SURELY)


@dataclass(frozen=True)
class AggregateTask:
    """A function from nothing to rows of groups and aggregates, which Spark combines."""

    uri: str
    options: Mapping[str, str] | None
    #: The table's columns that are read or filtered by, with their ids.
    table: TableSchema
    pieces: Sequence[Piece]
    #: What rows are grouped by; None where the group of a piece has the value.
    groups: Sequence[Term | None]
    functions: Sequence[AggregateFunction]
    #: Rows that the manifest has answered.
    known: Sequence[tuple[Any, ...]]
    #: The columns of the rows, as Spark's JSON.
    schema: str

    @cached_property
    def _types(self) -> pa.Schema:
        fields = json.loads(self.schema)["fields"]
        return pa.schema([pa.field(f["name"], exchange_type(f["type"])) for f in fields])

    @cached_property
    def _columns(self) -> list[str]:
        """The columns to read."""
        terms = [*self.groups, *(function.term for function in self.functions)]
        used = [term.columns for term in terms if term is not None]
        return sorted(frozenset().union(*used))

    def __call__(self, nothing: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups = _Groups(self._types, self._types.names[: len(self.groups)], self.functions)
        if self.known:
            columns = zip(*self.known, strict=True)
            arrays = [
                pa.array(list(cells), f.type) for cells, f in zip(columns, self._types, strict=True)
            ]
            yield from groups.add(pa.Table.from_arrays(arrays, schema=self._types))
        location = Location(self.uri, self.options)
        for group, pieces in groupby(self.pieces, lambda piece: piece.group):
            for rows in self._rows(location, pieces, group):
                yield from groups.add(rows)
        if not self.groups:  # then there is a row for no rows too
            types = self._types.types
            nothings = [f.of_nothing(t) for f, t in zip(self.functions, types, strict=True)]
            yield from groups.add(pa.Table.from_arrays(nothings, schema=self._types))
        yield from groups.rest()
        for _ in nothing:
            pass

    def _rows(
        self, location: Location, pieces: Iterable[Piece], group: tuple[Any, ...] | None
    ) -> Iterator[pa.Table]:
        """The rows of pieces with the same group, combined by the terms as far as that helps."""
        names, types = self._types.names, self._types.types
        given = {
            names[at]: pa.scalar((group or ())[at], types[at])
            for at, term in enumerate(self.groups)
            if term is None
        }
        if not self._columns:  # then there are only functions that count rows
            count = sum(piece.unit.count(location, self.table) for piece in pieces)
            if count:
                counts = dict.fromkeys(names[len(self.groups) :], pa.scalar(count, pa.int64()))
                yield self._table(given | counts, 1)
            return
        parts: Iterator[pa.Table] = (
            self._parts(batch) for piece in pieces for batch in self._read(location, piece)
        )
        if given:
            by = [name for name, term in zip(names, self.groups, strict=False) if term is not None]
            types_of_parts = pa.schema([field for field in self._types if field.name not in given])
            parts = _combined(parts, _Groups(types_of_parts, by, self.functions))
        for rows in parts:
            columns = dict(zip(rows.column_names, rows.columns, strict=True))
            yield self._table(given | columns, len(rows))

    def _read(self, location: Location, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, in batches that are worth the calls to Arrow."""
        columns = self._columns
        return joined(
            pa.RecordBatch.from_arrays([batch.column(name) for name in columns], columns)
            for batch in piece.unit.scan(location, self.table, columns, in_order=False)
            if batch.num_rows
        )

    def _parts(self, batch: pa.RecordBatch) -> pa.Table:
        """Rows as parts: what each is grouped by, and what the functions are for it alone."""
        names, types = self._types.names, self._types.types
        by = {
            name: _array(term.of(batch), batch.num_rows)
            for name, term in zip(names, self.groups, strict=False)
            if term is not None
        }
        parts = {
            names[at]: function.parts(batch, types[at])
            for at, function in enumerate(self.functions, len(self.groups))
        }
        return pa.table(by | parts)

    def _table(self, columns: Mapping[str, Any], rows: int) -> pa.Table:
        arrays = [_array(columns[name], rows) for name in self._types.names]
        return pa.Table.from_arrays(arrays, schema=self._types)


def _array(values: Any, rows: int) -> Any:
    return pa.repeat(values, rows) if isinstance(values, pa.Scalar) else values


def _combined(tables: Iterable[pa.Table], groups: _Groups) -> Iterator[pa.Table]:
    """The rows of all tables, combined."""
    for table in tables:
        yield from map(_as_table, groups.add(table))
    yield from map(_as_table, groups.rest())


def _as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


class _Groups:
    """The rows of a task, combined where that is exact and leaves clearly fewer of them."""

    def __init__(
        self, types: pa.Schema, by: Sequence[str], functions: Sequence[AggregateFunction]
    ) -> None:
        self._types, self._by = types, list(by)
        self._functions = dict(zip(types.names[len(by) :], functions, strict=True))
        self._kept: list[pa.Table] = []
        self._rows = self._bytes = self._combined_rows = 0
        self._worthwhile = True

    def combined(self, rows: pa.Table) -> pa.Table:
        """One row for each group, or the rows themselves."""
        exact = self._worthwhile and all(
            function.is_exact(rows[name]) for name, function in self._functions.items()
        )
        if not exact:
            return rows
        how = [(name, function.combined_by) for name, function in self._functions.items()]
        result = rows.group_by(self._by, use_threads=False).aggregate(how)
        many = len(rows) >= _MANY and len(result) > len(rows) * _WORTHWHILE
        self._worthwhile = not many
        columns = {name: result[name] for name in self._by}
        for name, function in how:
            columns[name] = result[f"{name}_{function}"].cast(self._types.field(name).type)
        return pa.table(columns)

    def add(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Keep rows. Many new ones are combined, and if too many are left, all are returned."""
        self._kept.append(rows)
        self._rows += len(rows)
        self._bytes += rows.nbytes
        if not self._worthwhile:
            yield from self.rest()
            return
        new = self._rows - self._combined_rows
        if new >= max(_TOGETHER, self._combined_rows) or self._bytes >= _MOST_BYTES:
            self._combine()
            # So that at least half of what is combined next is new.
            if self._rows >= _MOST_KEPT or self._bytes >= _MOST_BYTES / 2 or not self._worthwhile:
                yield from self._emptied()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The rows that are kept, combined."""
        if self._rows:
            self._combine()
            yield from self._emptied()

    def _combine(self) -> None:
        self._keep(self.combined(pa.concat_tables(self._kept).select(self._types.names)))

    def _emptied(self) -> Iterator[pa.RecordBatch]:
        rows = pa.concat_tables(self._kept)
        self._keep()
        yield from rows.combine_chunks().to_batches(_BATCH_ROWS)

    def _keep(self, *tables: pa.Table) -> None:
        self._kept = list(tables)
        self._rows = self._combined_rows = sum(map(len, tables))
        self._bytes = sum(table.nbytes for table in tables)
