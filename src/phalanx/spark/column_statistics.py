"""What the manifest knows of the columns of a scan, for Spark's cost-based optimizer.

Bounds enclose the values of all leaves that are read; they may be wider than what a filter leaves.
Spark works with numbers and times only. How many different values there are is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa

from phalanx.model.domains import FloatDomain, domain_of
from phalanx.model.predicates import Column
from phalanx.model.statistics import ColumnStatistics, Statistics
from phalanx.spark.dispatch import Reply, operation
from phalanx.spark.planner import PlanScan, planner_of, spelled
from phalanx.spark.types import is_finer
from phalanx.storage.records import LeafRow
from phalanx.transaction.view import read_statistics


@operation(PlanScan)
def column_statistics(request: PlanScan) -> Reply:
    """Bounds and counts of NULL by column, where all leaves of a scan have them."""
    if request.table.about is not None:
        return {"columns": {}}
    snapshot = request.table.snapshot()
    planner = planner_of(request.table, request.scan, request.zone)
    leaves = [row for row in planner.leaves if row.row_count != 0]
    known = read_statistics(snapshot, leaves)
    by_leaf = [(leaf, known.get(leaf.object_id, {})) for leaf in leaves]
    columns = {}
    for name in planner.columns:
        column = snapshot.head.schema.column((name,))
        if _is_measured(column) and (reply := _of_all(column, by_leaf)) is not None:
            columns[name] = reply
    return {"columns": columns}


def _is_measured(column: Column) -> bool:
    """Whether the bounds of a column mean something to Spark."""
    type, kinds = column.type, pa.types
    is_number = kinds.is_integer(type) or kinds.is_floating(type) or kinds.is_decimal(type)
    return is_number or ((kinds.is_date(type) or kinds.is_timestamp(type)) and not is_finer(type))


def _of_all(column: Column, by_leaf: Sequence[tuple[LeafRow, Statistics]]) -> Reply | None:
    """What is known of a column in all leaves; None if one of them knows nothing."""
    parts: list[ColumnStatistics] = []
    for leaf, statistics in by_leaf:
        part = statistics.get(column.field_id)
        if part is None or (part.low is None and part.null_count != leaf.row_count):
            return None
        parts.append(part)
    if not parts or any(part.has_nan for part in parts):  # NaN is above every bound
        return None
    whole = reduce(ColumnStatistics.merge, parts)
    try:
        low, high = (_value(column, key) for key in (whole.low, whole.high))
    except (ValueError, OverflowError):  # a date that Python lacks
        return None
    return {"min": low, "max": high, "nulls": whole.null_count}


def _value(column: Column, key: Any) -> Any:
    """A bound as Spark's side reads it."""
    if key is None:
        return None
    domain = domain_of(column.type)
    if isinstance(domain, FloatDomain):  # floats are bounded as doubles
        domain = domain_of(pa.float64())
    return spelled(domain.array([key])[0].as_py())
