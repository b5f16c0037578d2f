"""Aggregates beside the data: from the manifest where it has the answer, else in the tasks.

COUNT(*) needs the row counts of leaves, COUNT(column) their null counts, MIN and MAX exact
statistics or a partition column. All of it holds for a leaf only where its partition values decide
the filter. A bound that is zero does not tell -0.0 from 0.0. No leaf is opened for these answers.

The other leaves are read by tasks that aggregate their rows, and Spark combines the parts. What a
task would not compute exactly as Spark does is left to Spark.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.calendar import is_utc
from phalanx.model.domains import FloatDomain, domain_of
from phalanx.model.predicates import Column
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionField
from phalanx.model.statistics import ColumnStatistics, Statistics
from phalanx.model.transforms import Identity, Transform
from phalanx.spark.aggregate_tasks import AggregateFunction, AggregateTask
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
from phalanx.spark.requests import Request
from phalanx.spark.tasks import Cluster, ScanSettings, command_of
from phalanx.spark.terms import ColumnTerm, Term, term_of
from phalanx.spark.types import SparkType, is_finer, spark_schema, spark_type
from phalanx.storage.records import LeafRow
from phalanx.table.plan import Plan, values_of
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import read_statistics

#: Up to how many groups for each core have tasks of their own, and need no shuffle. A task costs
#: about 10 ms, and a shuffle of some groups about 40.
_KEYS_PER_CORE = 4
#: With fewer rows it does not matter who groups them.
_MANY_ROWS = 100_000
#: If there are fewer rows to a group, tasks return nearly as many rows as they read.
_ROWS_OF_A_GROUP = 4
#: Up to here, doubles hold every whole number.
_EXACT_IN_DOUBLE = 2**53


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
    averages = [node["of"] for node in request.functions if node["name"] == "AVG"]
    if averages:
        return {"refused": not all(_is_a_quotient(request, node) for node in averages)}
    try:
        return _Answer(request).reply()
    except (_Unknown, Untranslatable, InvalidInput):  # a hidden column, for example
        return {}


def _is_a_quotient(request: Aggregate, node: Expression) -> bool:
    """Whether AVG is exactly the quotient of SUM and COUNT, which Spark asks for instead.

    Its AVG of integers adds up doubles, so the sum must be one that a double holds.
    """
    snapshot = request.table.snapshot()
    try:
        type = _aggregated(node, snapshot.head.schema).type
    except Untranslatable:
        return False
    if not pa.types.is_integer(type):
        return True
    counts = snapshot.leaves.row_counts
    return bool(np.all(counts >= 0)) and int(counts.sum()) << type.bit_width <= _EXACT_IN_DOUBLE


@dataclass(frozen=True)
class _Leaf:
    """What is known of one leaf."""

    snapshot: Snapshot
    row: LeafRow
    statistics: Statistics

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """The values of its partition fields."""
        return values_of(self.snapshot, self.row)


#: What an aggregate or group is in one leaf.
_Of = Callable[[_Leaf], Any]


@dataclass(frozen=True)
class _Function:
    """One aggregate function."""

    name: str
    type: SparkType
    #: Its value in a leaf that is known. Raises _Unknown.
    of: _Of
    #: What it is of where rows are read; None for COUNT(*), and for what tasks do not compute.
    term: Term | None = None
    #: Whether tasks compute it.
    computed: bool = True

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


@dataclass(frozen=True)
class _Grouping:
    """One of the expressions that rows are grouped by."""

    type: SparkType
    #: Its value in a leaf, where all rows of a leaf have the same.
    of: _Of | None
    #: What tasks compute it by, where they differ.
    term: Term | None = None
    #: Whether Spark can take it for a key of tasks.
    is_key: bool = False


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
        types = [group.type for group in groups] + [function.type for function in functions]
        known: dict[tuple[Any, ...], list[Any]] = {}
        doubtful: dict[int, tuple[Any, ...]] = {}
        # Whether the manifest can have the answer for any leaf.
        may_know = all(group.of for group in groups) and all(
            function.of is not _unknown for function in functions
        )
        for leaf, certain in self._leaves(may_know and self._needs_statistics):
            key = tuple(_one_nan(group.of(leaf)) if group.of else None for group in groups)
            try:
                if not (certain and may_know):
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
        terms = [group.term for group in groups] + [function.term for function in functions]
        read = frozenset().union(*(term.columns for term in terms if term is not None))
        columns = [name for name in self._schema.tagged.names if name in read]
        tasks = self._tasks(doubtful, groups, functions, columns, rows, json.dumps(schema))
        most = len(rows) if not doubtful else self._plan.rows if groups else len(tasks["tasks"])
        return {
            "rows": [[spelled(cell) for cell in row] for row in rows] if not doubtful else [],
            **tasks,
            "most": most,
            "complete": not doubtful,
            "schema": schema,
            "selected": len(self._plan.to_read),
            "total": self._plan.total,
            "summary": self._summary(len(doubtful), columns),
        }

    def _summary(self, read: int, columns: Sequence[str]) -> str:
        answered = "answered from the manifest"
        left = len(self._plan.to_read)
        parts = [f"partitions {self._plan.selected}/{self._plan.total}"]
        if read:
            parts.append(f"pruned by: {self._plan.pruned_by if self._plan.pruned else 'nothing'}")
        if left < self._plan.selected:
            skipped = self._plan.selected - left
            parts.append(f"{skipped} skipped by bounds of {self._plan.bounded_columns}")
        if read:
            parts.append(f"columns [{', '.join(columns)}]")
            answered = f"{left - read:,} {answered} and {read:,} read"
        return ", ".join([*parts, answered, f"version {self._snapshot.sequence}"])

    def _leaves(self, with_statistics: bool) -> Iterator[tuple[_Leaf, bool]]:
        """The leaves with rows, each with whether all of its rows match."""
        indices = self._plan.to_read
        rows = self._snapshot.leaves.rows(indices)
        known: Mapping[str, Statistics] = {}
        if with_statistics:
            known = read_statistics(self._snapshot, rows)
        for row, certain in zip(rows, self._plan.certain[indices].tolist(), strict=True):
            if row.row_count != 0:
                leaf = _Leaf(self._snapshot, row, known.get(row.object_id, {}))
                yield leaf, certain and row.row_count is not None

    def _tasks(
        self,
        doubtful: Mapping[int, tuple[Any, ...]],
        groups: Sequence[_Grouping],
        functions: Sequence[_Function],
        columns: Sequence[str],
        known: Sequence[tuple[Any, ...]],
        schema: str,
    ) -> Reply:
        """Tasks that read leaves; the first also returns the rows that are known already."""
        if not doubtful:
            return {"keys": [], "tasks": []}
        if not all(function.computed for function in functions):
            raise _Unknown
        terms = tuple(group.term for group in groups)
        if self._are_many_groups(terms, sorted(doubtful)):
            raise _Unknown
        wants = tuple(AggregateFunction(function.name, function.term) for function in functions)
        whole = spark_schema(self._schema.arrow)
        wanted = [field for field in whole["fields"] if field["name"] in columns]
        scan = ScanSettings(
            schema=json.dumps({"type": "struct", "fields": wanted}),
            cluster=self._request.cluster,
            filters=self._request.filters,
        )
        planner = Planner(self._snapshot, scan, self._request.zone)
        location = self._snapshot.location

        def commands(leaves: Sequence[int], rows: Sequence[tuple[Any, ...]]) -> Iterator[str]:
            for pieces in planner.pieces(np.array(leaves, np.int64), doubtful) or [[]]:
                task = AggregateTask(
                    location.uri,
                    location.options,
                    planner.seen_through(pieces),
                    pieces,
                    terms,
                    wants,
                    tuple(rows),
                    schema,
                )
                yield command_of(task, schema)
                rows = ()

        keyed = [at for at, group in enumerate(groups) if group.is_key]
        parts = _by_key(keyed, doubtful, known)
        if not keyed or len(parts) > _KEYS_PER_CORE * self._request.cluster.cores:
            packed = commands(sorted(doubtful), known)
            return {"keys": [], "tasks": [{"command": command} for command in packed]}
        return {
            "keys": keyed,
            "tasks": [
                {"command": command, "key": [spelled(cell) for cell in key]}
                for key, (leaves, rows) in parts.items()
                for command in commands(leaves, rows)
            ],
        }

    # Groups

    def _are_many_groups(self, terms: Iterable[Term | None], indices: Sequence[int]) -> bool:
        """Whether a column of whole numbers has so many values that rows are hardly grouped.

        How many there are is not known: it is taken for likely that most numbers between the bounds
        of the column are there. If that is wrong, Spark groups the rows itself.
        """
        numbers = [t for t in terms if isinstance(t, ColumnTerm) and pa.types.is_integer(t.type)]
        leaves = self._snapshot.leaves.rows(indices) if numbers else []
        rows = sum(leaf.row_count or 0 for leaf in leaves)
        if rows < _MANY_ROWS:
            return False
        known = read_statistics(self._snapshot, leaves)
        for term in numbers:
            id = self._schema.column(term.path).field_id
            parts = [known.get(leaf.object_id, {}).get(id) for leaf in leaves]
            lows = [part.low for part in parts if part is not None and part.low is not None]
            highs = [part.high for part in parts if part is not None and part.high is not None]
            if lows and max(highs) - min(lows) >= rows / _ROWS_OF_A_GROUP:
                return True
        return False

    def _group(self, node: Expression) -> _Grouping:
        if "column" in node:
            column = self._schema.column(tuple(node["column"]))
            if is_finer(column.type):
                raise _Unknown
            type = spark_type(column.type, ".".join(column.path))
            try:
                value = self._value_of(column, Identity)
                return _Grouping(type, value, is_key=not pa.types.is_floating(column.type))
            except _Unknown:
                if not _is_grouped_alike(column.type):
                    raise
                return _Grouping(type, None, term_of(node, self._schema))
        source = without_cast(node["args"][0]) if node.get("call") == "EXTRACT" else {}
        if "column" in source:
            column = self._schema.column(tuple(source["column"]))
            part = PARTS.get(node["field"].upper())
            zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
            if part is None or (zoned and not is_utc(self._request.zone)):
                raise _Unknown
            return _Grouping("integer", self._value_of(column, part))
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
            return _Function("COUNT", "long", lambda leaf: leaf.row.row_count)
        if name not in ("COUNT", "MIN", "MAX", "SUM"):
            raise _Unknown
        if name == "SUM":
            term = _aggregated(node["of"], self._schema)
            return _Function(name, _sum_type(term.type), _unknown, term)
        if "column" not in node["of"]:
            term = _aggregated(node["of"], self._schema)
            type = "long" if name == "COUNT" else spark_type(term.type, name)
            return _Function(name, type, _unknown, term)
        column = self._schema.column(tuple(node["of"]["column"]))
        read: Term | None = None
        with contextlib.suppress(Untranslatable):
            read = term_of(node["of"], self._schema)
        if name == "COUNT":
            return _Function(name, "long", self._count(column), read, read is not None)
        type = spark_type(column.type, ".".join(column.path))
        computed = read is not None and _is_ordered(column.type)
        return _Function(name, type, self._extreme(column, name == "MIN"), read, computed)

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


def _aggregated(node: Expression, schema: TableSchema) -> Term:
    """What a function aggregates. Raises Untranslatable for a constant: no column is read."""
    term = term_of(node, schema)
    if not term.columns:
        raise Untranslatable("an aggregate of a constant")
    return term


def _by_key(
    keyed: Sequence[int],
    doubtful: Mapping[int, tuple[Any, ...]],
    known: Sequence[tuple[Any, ...]],
) -> dict[tuple[Any, ...], tuple[list[int], list[tuple[Any, ...]]]]:
    """The leaves to read and the rows that are known, by the values of some of the groups."""
    parts: dict[tuple[Any, ...], tuple[list[int], list[tuple[Any, ...]]]] = {}
    for leaf in sorted(doubtful):
        key = tuple(doubtful[leaf][at] for at in keyed)
        parts.setdefault(key, ([], []))[0].append(leaf)
    for row in known:
        parts.setdefault(tuple(row[at] for at in keyed), ([], []))[1].append(row)
    return parts


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


def _unknown(leaf: _Leaf) -> Any:
    """What the manifest knows of no leaf."""
    raise _Unknown


def _sum_type(type: pa.DataType) -> SparkType:
    """The type of a sum's parts. Those of decimals are of the type of what is summed."""
    if pa.types.is_signed_integer(type):
        return "long"
    if pa.types.is_floating(type):
        return "double"
    if pa.types.is_decimal(type):
        return spark_type(type, "SUM")
    raise _Unknown


def _is_ordered(type: pa.DataType) -> bool:
    """Whether Arrow computes the least and greatest value, and orders values as Spark does."""
    t = pa.types
    return (_is_grouped_alike(type) and not t.is_boolean(type)) or bool(t.is_floating(type))


def _is_grouped_alike(type: pa.DataType) -> bool:
    """Whether two values are equal to Arrow if they are to Spark."""
    t = pa.types
    known = (
        t.is_integer,
        t.is_boolean,
        t.is_decimal,
        t.is_string,
        t.is_large_string,
        t.is_date,
        t.is_timestamp,
    )
    return any(is_one(type) for is_one in known)
