"""Aggregates that the manifest answers: no leaf is opened for them.

COUNT(*) needs the row counts of leaves, COUNT(column) their null counts, MIN and MAX exact
statistics or a partition column. All of it holds only where partition values decide the filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.domains import FloatDomain, domain_of
from phalanx.model.predicates import Column
from phalanx.model.specs import PartitionField
from phalanx.model.statistics import ColumnStatistics, Statistics
from phalanx.model.transforms import Identity, Transform
from phalanx.spark.door import Reply, Request, operation
from phalanx.spark.filters import PARTS, Untranslatable, conjunction_of, is_utc, without_cast
from phalanx.spark.handles import Handle
from phalanx.spark.planner import spelled
from phalanx.spark.types import SparkType, spark_type
from phalanx.storage.leaves import LeafRow
from phalanx.table.plan import Plan, values_of
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import read_statistics


class _Unknown(Exception):
    """The manifest does not know it."""


@operation
def aggregate(request: Request) -> Reply:
    """The rows of an aggregation, or nothing where leaves must be read for it."""
    handle = Handle.from_json(request["table"])
    if handle.about is not None:
        return {}
    try:
        return _Answer(handle.snapshot(), request).reply()
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


class _Answer:
    def __init__(self, snapshot: Snapshot, request: Request) -> None:
        self._snapshot, self._request = snapshot, request
        self._schema = snapshot.head.schema
        predicate = conjunction_of(request["filters"], self._schema, request["zone"])
        self._plan = plan = Plan(snapshot, predicate)
        counts = snapshot.leaves.row_counts[plan.indices]
        if not bool(np.all(plan.certain[plan.indices])) or bool(np.any(counts < 0)):
            raise _Unknown
        self._needs_statistics = False

    def reply(self) -> Reply:
        groups = [self._group(node) for node in self._request["groups"]]
        functions = [self._function(node) for node in self._request["functions"]]
        found: dict[tuple[Any, ...], list[Any]] = {}
        for leaf in self._leaves():
            key = tuple(of(leaf) for _, of in groups)
            values = [of(leaf) for _, of, _ in functions]
            known = found.get(key)
            if known is not None:
                pairs = zip(functions, known, values, strict=True)
                values = [combine(a, b) for (_, _, combine), a, b in pairs]
            found[key] = values
        if not groups and not found:
            found[()] = [0 if combine is _sum else None for _, _, combine in functions]
        rows = [[spelled(cell) for cell in (*key, *values)] for key, values in found.items()]
        types = [type for type, _ in groups] + [type for type, _, _ in functions]
        selected, total = self._plan.selected, self._plan.total
        return {
            "rows": rows,
            "schema": {
                "type": "struct",
                "fields": [
                    {"name": f"c{at}", "type": type, "nullable": True, "metadata": {}}
                    for at, type in enumerate(types)
                ],
            },
            "summary": f"partitions {selected}/{total}, answered from the manifest, "
            f"version {self._snapshot.sequence}",
        }

    def _leaves(self) -> list[_Leaf]:
        rows = [self._snapshot.leaves.row(int(index)) for index in self._plan.indices]
        known: Mapping[str, Statistics] = {}
        if self._needs_statistics:
            known = read_statistics(self._snapshot, rows)
        return [
            _Leaf(row, values_of(self._snapshot, row), known.get(row.object_id, {}))
            for row in rows
            if row.row_count
        ]

    # Groups

    def _group(self, node: Mapping[str, Any]) -> tuple[SparkType, _Of]:
        if "column" in node:
            column = self._schema.column(tuple(node["column"]))
            type = spark_type(column.type, ".".join(column.path))
            return type, self._value_of(column, Identity)
        source = without_cast(node["args"][0]) if node.get("call") == "EXTRACT" else {}
        if "column" in source:
            column = self._schema.column(tuple(source["column"]))
            part = PARTS.get(node["field"].upper())
            zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
            if part is None or (zoned and not is_utc(self._request["zone"])):
                raise _Unknown
            return "integer", self._value_of(column, part)
        raise _Unknown

    def _value_of(self, column: Column, kind: type[Transform] | str) -> _Of:
        """The value of a partition field, which every leaf that is counted must have."""
        fields = {}
        for spec in self._snapshot.head.specs:
            found = [f for f in spec.fields if _is(f, column, kind)]
            fields[spec.id] = found[0].field_id if found else None
        used = {int(id) for id in self._snapshot.leaves.spec_ids[self._plan.indices]}
        if any(fields[id] is None for id in used):
            raise _Unknown
        return lambda leaf: leaf.values[fields[leaf.row.spec_id] or ""]

    # Functions

    def _function(self, node: Mapping[str, Any]) -> tuple[SparkType, _Of, Callable[..., Any]]:
        name = node["name"]
        if name == "COUNT_STAR":
            return "long", lambda leaf: leaf.row.row_count, _sum
        if name not in ("COUNT", "MIN", "MAX") or "column" not in node["of"]:
            raise _Unknown
        column = self._schema.column(tuple(node["of"]["column"]))
        if name == "COUNT":
            return "long", self._count(column), _sum
        type = spark_type(column.type, ".".join(column.path))
        return type, self._extreme(column, name == "MIN"), _least if name == "MIN" else _greatest

    def _count(self, column: Column) -> _Of:
        if not column.nullable:
            return lambda leaf: leaf.row.row_count
        try:
            value = self._value_of(column, Identity)
            return lambda leaf: 0 if value(leaf) is None else leaf.row.row_count
        except _Unknown:
            self._needs_statistics = True

        def counted(leaf: _Leaf) -> int:
            found = leaf.statistics.get(column.field_id)
            if found is None or found.null_count is None or leaf.row.row_count is None:
                raise _Unknown
            return leaf.row.row_count - found.null_count

        return counted

    def _extreme(self, column: Column, least: bool) -> _Of:
        if isinstance(domain_of(column.type), FloatDomain) or _is_finer(column.type):
            # Spark's NaN is above every number and its zeros are two; statistics say less.
            raise _Unknown
        try:
            return self._value_of(column, Identity)
        except _Unknown:
            self._needs_statistics = True
        domain = domain_of(column.type)

        def found(leaf: _Leaf) -> Any:
            known: ColumnStatistics | None = leaf.statistics.get(column.field_id)
            if known is None or not known.exact:
                raise _Unknown
            key = known.low if least else known.high
            if key is None:
                if known.null_count != leaf.row.row_count:
                    raise _Unknown
                return None
            try:
                return domain.array([key])[0].as_py()
            except (ValueError, OverflowError):  # a date that Python lacks
                raise _Unknown from None

        return found


def _is(field: PartitionField, column: Column, kind: type[Transform] | str) -> bool:
    if field.source_ids != (column.field_id,):
        return False
    return (
        field.transform.kind == kind if isinstance(kind, str) else isinstance(field.transform, kind)
    )


def _is_finer(type: pa.DataType) -> bool:
    """Whether values may be finer than Spark's microseconds."""
    t = pa.types
    return bool(t.is_timestamp(type) or t.is_time(type)) and type.unit == "ns"


def _sum(a: int, b: int) -> int:
    return a + b


def _least(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else min(a, b)


def _greatest(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else max(a, b)
