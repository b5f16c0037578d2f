"""Leaves for the tests of pruning: made from partition values, judged, and shown as text."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from phalanx.model.dialect import to_sql
from phalanx.model.filters import bind
from phalanx.model.parser import parse
from phalanx.model.pruning import PartitionColumn, Verdict, column_of, prune
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionSpec

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
