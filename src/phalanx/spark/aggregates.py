"""Aggregates that the manifest answers: no leaf is opened for them.

COUNT(*) needs the row counts of leaves, COUNT(column) their null counts, MIN and MAX exact
statistics or a partition column. All of it holds for a leaf only where its partition values decide
the filter. A bound that is zero does not tell -0.0 from 0.0. The other leaves are read, and Spark
combines the parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import InvalidInput
from phalanx.model.calendar import is_utc
from phalanx.model.domains import FloatDomain, domain_of
from phalanx.model.predicates import Column
from phalanx.model.schema import TableSchema, extract
from phalanx.model.specs import PartitionField
from phalanx.model.statistics import ColumnStatistics, Statistics
from phalanx.model.transforms import Identity, Transform
from phalanx.spark.dispatch import Reply, operation
from phalanx.spark.filters import (
    PARTS,
    Expression,
    Untranslatable,
    conjunction_of,
    without_cast,
)
from phalanx.spark.handles import Handle
from phalanx.spark.planner import Planner, spelled
from phalanx.spark.reader import Piece
from phalanx.spark.requests import Request
from phalanx.spark.tasks import Cluster, ScanSettings, command_of
from phalanx.spark.types import SparkType, cast, exchange_type, is_finer, spark_schema, spark_type
from phalanx.storage.location import Location
from phalanx.storage.records import LeafRow
from phalanx.table.plan import Plan, values_of
from phalanx.transaction.view import read_statistics


class _Unknown(Exception):
    """The manifest does not know it."""


@dataclass(frozen=True, kw_only=True)
class Aggregate(Request):
    """An aggregation over the rows that match all filters."""

    table: Handle
    filters: Sequence[Expression]
    #: What rows are grouped by.
    groups: Sequence[Expression]
    #: Aggregate functions: the `name` of each, and the expression that it is `of`.
    functions: Sequence[Expression]
    cluster: Cluster


@operation(Aggregate)
def aggregate(request: Aggregate) -> Reply:
    """The rows of an aggregation, or tasks that compute them; nothing where Spark must do it."""
    if request.table.about is not None:
        return {}
    try:
        return _Answer(request).reply()
    except (_Unknown, Untranslatable, InvalidInput):  # a hidden column, for example
        return {}


@dataclass(frozen=True)
class _Leaf:
    """What is known of one leaf."""

    row: LeafRow
    values: Mapping[str, Any]
    statistics: Statistics


#: What an aggregate or group is in one leaf.
_Of = Callable[[_Leaf], Any]


@dataclass(frozen=True)
class _Function:
    """One aggregate function."""

    name: str
    type: SparkType
    #: The column that it is of; None for COUNT(*).
    column: Column | None
    #: Its value in a leaf that is known. Raises _Unknown.
    of: _Of

    def combine(self, a: Any, b: Any) -> Any:
        if self.name == "COUNT":
            return a + b
        if a is None or b is None:
            return b if a is None else a
        # Spark's NaN is above every number.
        if a != a or b != b:
            is_other = (a != a) == (self.name == "MIN")
            return b if is_other else a
        return min(a, b) if self.name == "MIN" else max(a, b)


class _Answer:
    """Works out an aggregation. Every method raises _Unknown where Spark must do it all."""

    def __init__(self, request: Aggregate) -> None:
        self._request = request
        self._snapshot = snapshot = request.table.snapshot()
        self._schema = snapshot.head.schema
        predicate = conjunction_of(request.filters, self._schema, request.zone)
        self._plan = Plan(snapshot, predicate)
        self._needs_statistics = False

    def reply(self) -> Reply:
        groups = [self._group(node) for node in self._request.groups]
        functions = [self._function(node) for node in self._request.functions]
        types = [type for type, _ in groups] + [function.type for function in functions]
        known: dict[tuple[Any, ...], list[Any]] = {}
        doubtful: dict[int, tuple[Any, ...]] = {}
        for leaf, certain in self._leaves():
            key = tuple(_one_nan(of(leaf)) for _, of in groups)
            try:
                if not certain:
                    raise _Unknown
                values = [function.of(leaf) for function in functions]
            except _Unknown:
                doubtful[leaf.row.index] = key
                continue
            if key in known:
                pairs = zip(functions, known[key], values, strict=True)
                values = [function.combine(a, b) for function, a, b in pairs]
            known[key] = values
        if not groups and not known and not doubtful:
            known[()] = [0 if function.name == "COUNT" else None for function in functions]
        rows = [(*key, *values) for key, values in known.items()]
        fields = [
            {"name": f"c{at}", "type": type, "nullable": True, "metadata": {}}
            for at, type in enumerate(types)
        ]
        schema = {"type": "struct", "fields": fields}
        return {
            "rows": [[spelled(cell) for cell in row] for row in rows] if not doubtful else [],
            "tasks": self._tasks(doubtful, functions, rows, json.dumps(schema)),
            "complete": not doubtful,
            "schema": schema,
            "summary": self._summary(len(doubtful)),
        }

    def _summary(self, read: int) -> str:
        known = self._plan.selected - read
        how = "answered from the manifest"
        if read:
            how = f"{known:,} {how} and {read:,} read"
        return (
            f"partitions {self._plan.selected}/{self._plan.total}, {how}, "
            f"version {self._snapshot.sequence}"
        )

    def _leaves(self) -> Iterator[tuple[_Leaf, bool]]:
        """The leaves with rows, each with whether all of its rows match."""
        indices = self._plan.indices
        rows = self._snapshot.leaves.rows(indices)
        known: Mapping[str, Statistics] = {}
        if self._needs_statistics:
            known = read_statistics(self._snapshot, rows)
        for row, certain in zip(rows, self._plan.certain[indices].tolist(), strict=True):
            if row.row_count != 0:
                values = values_of(self._snapshot, row)
                leaf = _Leaf(row, values, known.get(row.object_id, {}))
                yield leaf, certain and row.row_count is not None

    def _tasks(
        self,
        doubtful: Mapping[int, tuple[Any, ...]],
        functions: Sequence[_Function],
        known: Sequence[tuple[Any, ...]],
        schema: str,
    ) -> list[str]:
        """Tasks that read leaves; the first also returns the rows that are known already."""
        if not doubtful:
            return []
        if any(function.name != "COUNT" and not _is_ordered(function) for function in functions):
            raise _Unknown
        columns = {f.column.path[0] for f in functions if f.column is not None}
        whole = spark_schema(self._schema.arrow)
        wanted = [field for field in whole["fields"] if field["name"] in columns]
        scan = ScanSettings(
            schema=json.dumps({"type": "struct", "fields": wanted}),
            cluster=self._request.cluster,
            filters=self._request.filters,
        )
        planner = Planner(self._snapshot, scan, self._request.zone)
        wants = tuple(_Wanted(f.name, f.column.path if f.column else None) for f in functions)
        location = self._snapshot.location
        commands: list[str] = []
        for pieces in planner.pieces(np.array(sorted(doubtful)), doubtful):
            rows = () if commands else tuple(known)
            task = AggregateTask(
                location.uri,
                location.options,
                planner.seen_through(pieces),
                pieces,
                wants,
                rows,
                schema,
            )
            commands.append(command_of(task, schema))
        return commands

    # Groups

    def _group(self, node: Expression) -> tuple[SparkType, _Of]:
        if "column" in node:
            column = self._schema.column(tuple(node["column"]))
            if is_finer(column.type):
                raise _Unknown
            type = spark_type(column.type, ".".join(column.path))
            return type, self._value_of(column, Identity)
        source = without_cast(node["args"][0]) if node.get("call") == "EXTRACT" else {}
        if "column" in source:
            column = self._schema.column(tuple(source["column"]))
            part = PARTS.get(node["field"].upper())
            zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
            if part is None or (zoned and not is_utc(self._request.zone)):
                raise _Unknown
            return "integer", self._value_of(column, part)
        raise _Unknown

    def _value_of(self, column: Column, kind: type[Transform] | str) -> _Of:
        """The value of a partition field, which every selected leaf must have."""
        fields = {}
        for spec in self._snapshot.head.specs:
            field_ids = [f.field_id for f in spec.fields if _is(f, column, kind)]
            fields[spec.id] = field_ids[0] if field_ids else None
        used = {int(id) for id in self._snapshot.leaves.spec_ids[self._plan.indices]}
        if any(fields[id] is None for id in used):
            raise _Unknown

        def value(leaf: _Leaf) -> Any:
            key = leaf.values[fields[leaf.row.spec_id] or ""]
            if isinstance(key, int) and _is_a_time(column.type) and kind is Identity:
                raise Untranslatable("a time that Python lacks")
            return key

        return value

    # Functions

    def _function(self, node: Expression) -> _Function:
        name = node["name"]
        if name == "COUNT_STAR":
            return _Function("COUNT", "long", None, lambda leaf: leaf.row.row_count)
        if name not in ("COUNT", "MIN", "MAX") or "column" not in node["of"]:
            raise _Unknown
        column = self._schema.column(tuple(node["of"]["column"]))
        if name == "COUNT":
            return _Function(name, "long", column, self._count(column))
        type = spark_type(column.type, ".".join(column.path))
        return _Function(name, type, column, self._extreme(column, name == "MIN"))

    def _count(self, column: Column) -> _Of:
        if not column.nullable:
            return lambda leaf: leaf.row.row_count
        try:
            value = self._value_of(column, Identity)
            return lambda leaf: 0 if value(leaf) is None else leaf.row.row_count
        except _Unknown:
            self._needs_statistics = True

        def counted(leaf: _Leaf) -> int:
            statistics = leaf.statistics.get(column.field_id)
            if statistics is None or statistics.null_count is None or leaf.row.row_count is None:
                raise _Unknown
            return leaf.row.row_count - statistics.null_count

        return counted

    def _extreme(self, column: Column, least: bool) -> _Of:
        if is_finer(column.type):
            raise _Unknown
        is_float = isinstance(domain_of(column.type), FloatDomain)
        try:
            if not is_float:  # a partition does not tell -0.0 from 0.0
                return self._value_of(column, Identity)
        except _Unknown:
            pass
        self._needs_statistics = True
        # Floats are bounded as doubles.
        domain = domain_of(pa.float64() if is_float else column.type)

        def extreme(leaf: _Leaf) -> Any:
            known: ColumnStatistics | None = leaf.statistics.get(column.field_id)
            if known is None or not known.exact:
                raise _Unknown
            key = known.low if least else known.high
            if known.has_nan and (not least or key is None):
                return _NAN
            if key is None:
                if known.null_count != leaf.row.row_count:
                    raise _Unknown
                return None
            try:
                value = domain.array([key])[0].as_py()
            except (ValueError, OverflowError):  # a date that Python lacks
                raise _Unknown from None
            if is_float and value == 0:  # the key of both zeros
                raise _Unknown
            return value

        return extreme


def _is(field: PartitionField, column: Column, kind: type[Transform] | str) -> bool:
    if field.source_ids != (column.field_id,):
        return False
    return (
        field.transform.kind == kind if isinstance(kind, str) else isinstance(field.transform, kind)
    )


_NAN = float("nan")


def _is_a_time(type: pa.DataType) -> bool:
    return bool(pa.types.is_date(type) or pa.types.is_timestamp(type))


def _one_nan(value: Any) -> Any:
    """A value of a group. All NaN are one group, so they become one object."""
    return _NAN if isinstance(value, float) and value != value else value


def _is_ordered(function: _Function) -> bool:
    """Whether Arrow computes the least and greatest value, and orders values as Spark does."""
    assert function.column is not None
    t, type = pa.types, function.column.type
    known = (
        t.is_integer,
        t.is_decimal,
        t.is_floating,
        t.is_string,
        t.is_large_string,
        t.is_date,
        t.is_timestamp,
    )
    return any(is_one(type) for is_one in known)


@dataclass(frozen=True)
class _Wanted:
    """A function that a task computes: COUNT, MIN or MAX, and of which column."""

    name: str
    path: tuple[str, ...] | None

    def of(self, batch: pa.RecordBatch, type: pa.DataType) -> pa.Array:
        """Its value over a batch, as an array of one."""
        if self.path is None:
            return pa.array([batch.num_rows], type)
        column = extract(batch, self.path)
        if self.name == "COUNT":
            return pa.array([len(column) - column.null_count], type)
        return self.over(cast(column, type, ".".join(self.path)))

    def of_nothing(self, type: pa.DataType) -> pa.Array:
        return pa.array([0 if self.name == "COUNT" else None], type)

    def over(self, parts: pa.Array) -> pa.Array:
        """Several values combined."""
        if self.name == "COUNT":
            return pa.array([pc.sum(parts, min_count=0).as_py()], parts.type)
        is_float = pa.types.is_floating(parts.type)
        if is_float and self.name == "MAX" and pc.any(pc.is_nan(parts)).as_py():
            # Spark's NaN is above every number, and Arrow leaves it out.
            return pa.array([_NAN], parts.type)
        extreme = pc.min_max(parts)["min" if self.name == "MIN" else "max"]
        return pa.repeat(extreme, 1) if extreme.is_valid else pa.array([None], parts.type)


@dataclass(frozen=True)
class AggregateTask:
    """A function from nothing to rows of groups and aggregates, which Spark combines."""

    uri: str
    options: Mapping[str, str] | None
    #: The table's columns that are read or filtered by, with their ids.
    table: TableSchema
    pieces: Sequence[Piece]
    functions: Sequence[_Wanted]
    #: Rows that the manifest has answered.
    known: Sequence[tuple[Any, ...]]
    #: The columns of the rows, as Spark's JSON.
    schema: str

    def __call__(self, nothing: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fields = json.loads(self.schema)["fields"]
        schema = pa.schema([pa.field(f["name"], exchange_type(f["type"])) for f in fields])
        if self.known:
            columns = zip(*self.known, strict=True)
            arrays = [
                pa.array(list(cells), f.type) for cells, f in zip(columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        location = Location(self.uri, self.options)
        for piece in self.pieces:
            group = piece.group or ()
            arrays = [
                pa.array([cell], f.type) for cell, f in zip(group, list(schema), strict=False)
            ]
            types = [f.type for f in list(schema)[len(group) :]]
            values = self._values(location, piece, types)
            if values is not None:
                yield pa.RecordBatch.from_arrays([*arrays, *values], schema=schema)
        for _ in nothing:
            pass

    def _values(
        self, location: Location, piece: Piece, types: Sequence[pa.DataType]
    ) -> list[pa.Array] | None:
        """The aggregates of one piece; None for a group that no row is in."""
        columns = list(dict.fromkeys(f.path[0] for f in self.functions if f.path is not None))
        if not columns:
            count = piece.unit.count(location, self.table)
            return [pa.array([count], type) for type in types] if count or not piece.group else None
        parts = [
            [f.of(batch, type) for f, type in zip(self.functions, types, strict=True)]
            for batch in piece.unit.scan(location, self.table, columns, in_order=False)
            if batch.num_rows
        ]
        if not parts and piece.group:
            return None
        parts.append([f.of_nothing(type) for f, type in zip(self.functions, types, strict=True)])
        columns_of_parts = [pa.concat_arrays(values) for values in zip(*parts, strict=True)]
        return [f.over(values) for f, values in zip(self.functions, columns_of_parts, strict=True)]
