"""Leaves for the tests of pruning: made from partition values, judged, and shown as text."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from phalanx.model import hashing
from phalanx.model.dialect import to_sql
from phalanx.model.filters import bind
from phalanx.model.parser import parse
from phalanx.model.pruning import PartitionColumn, Verdict, column_of, prune
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionSpec, build_spec

Leaf = tuple[Any, ...]


def columns_of_leaves(spec: PartitionSpec, leaves: Sequence[Leaf]) -> dict[str, PartitionColumn]:
    return {
        field.field_id: column_of(pa.array([leaf[i] for leaf in leaves], field.result_type))
        for i, field in enumerate(spec.fields)
    }


def judge(where: str, spec: PartitionSpec, schema: TableSchema, leaves: Sequence[Leaf]) -> Verdict:
    predicate = bind(parse(where), schema.column)
    return prune(predicate, spec, schema, columns_of_leaves(spec, leaves), len(leaves))


def left_over(
    where: str, spec: PartitionSpec, schema: TableSchema, leaves: Sequence[Leaf]
) -> dict[Leaf, str | None]:
    """The leaves that are read, each with its residual filter (None: every row is wanted)."""
    verdict = judge(where, spec, schema, leaves)
    return {
        leaf: None if verdict.always[i] else to_sql(verdict.residuals[verdict.residual[i]])
        for i, leaf in enumerate(leaves)
        if verdict.maybe[i]
    }


#: The columns of the examples.
EVENTS = TableSchema.assign(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("event_date", pa.date32()),
            pa.field("country", pa.string()),
            pa.field("user_id", pa.string()),
            pa.field("ts", pa.timestamp("us")),
            pa.field("utc", pa.timestamp("us", "UTC")),
            pa.field("ny", pa.timestamp("us", "America/New_York")),
            pa.field("s", pa.string()),
            pa.field("i", pa.int32()),
            pa.field("year", pa.int32()),
            pa.field("month", pa.int32()),
            pa.field("day", pa.int32()),
            pa.field("date", pa.string()),
            pa.field("hour", pa.int32()),
            pa.field("region", pa.string()),
            pa.field("event_type", pa.string()),
            pa.field("price", pa.decimal128(9, 2)),
            pa.field("f", pa.float64()),
            pa.field("b", pa.bool_()),
        ]
    )
)


#: Leaves of days(ts).
DAYS = [
    (2024, 12, 10),
    (2025, 11, 10),
    (2025, 12, 9),
    (2025, 12, 10),
    (2025, 12, 11),
    (2026, 12, 10),
]


def reads(where: str, by: list[Any], leaves: list[Any]) -> dict[Any, str | None]:
    """The leaves of `EVENTS` that are read; one with a single value is no tuple."""
    spec = build_spec(1, by, EVENTS)
    tuples: list[Leaf] = [leaf if isinstance(leaf, tuple) else (leaf,) for leaf in leaves]
    residuals = left_over(where, spec, EVENTS, tuples)
    return {leaves[tuples.index(leaf)]: residual for leaf, residual in residuals.items()}


def day(text: str) -> dt.date:
    return dt.date.fromisoformat(text)


def bucket(value: Any, count: int) -> int:
    return hashing.bucket(hashing.murmur3(pa.array([value])), count)[0].as_py()
