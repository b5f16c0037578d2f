"""Pruning against a row-by-row oracle: random tables, specs and filters.

`PHALANX_EXAMPLES=5000` tries that many tables, with new random ones each time; without it the
same few hundred are tried on every run.
"""

import os
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings

from phalanx.model.dialect import Dialect, to_sql
from phalanx.model.filters import bind
from phalanx.model.parser import parse
from phalanx.model.predicates import Column, Predicate
from phalanx.model.pruning import PartitionColumn, column_of, prune
from phalanx.model.spelling import quote, sql_literal, value_text
from tests.model.tables import Table, cases

EXAMPLES = int(os.environ.get("PHALANX_EXAMPLES", "500"))
FILTERS = 8
COMMON = settings(
    max_examples=EXAMPLES,
    derandomize="PHALANX_EXAMPLES" not in os.environ,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
_CONTEXT = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))


class DataFusion(Dialect):
    """SQL that DataFusion reads as it is meant: every constant has its type."""

    def name(self, column: Column) -> str:
        first, *inner = column.path
        return f'"{first}"' + "".join(f"['{part}']" for part in inner)

    def constant(self, key: Any, type: pa.DataType) -> str:
        t = pa.types
        if t.is_timestamp(type):
            zone = f'Some("{type.tz}")' if type.tz else "None"
            return f"arrow_cast({key}, 'Timestamp({_UNITS[type.unit]}, {zone})')"
        if t.is_time(type):
            stored = f"arrow_cast({key}, 'Int{type.bit_width}')"
            return f"arrow_cast({stored}, 'Time{type.bit_width}({_UNITS[type.unit]})')"
        if t.is_date(type):
            return f"arrow_cast({key}, 'Date{type.bit_width}')"
        if t.is_decimal(type):
            target = f"Decimal{type.bit_width}({type.precision}, {type.scale})"
            return f"arrow_cast({quote(value_text(key, type))}, '{target}')"
        if t.is_floating(type):
            return f"arrow_cast({quote(value_text(key, type))}, 'Float{type.bit_width}')"
        if t.is_uint64(type):
            return f"arrow_cast('{key}', 'UInt64')"
        return sql_literal(key, type)


def one_zero(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows without -0.0, which IN takes for another value than 0.0 (not so in Lance)."""
    columns = [
        pa.array([None if v is None else v + 0.0 for v in column.to_pylist()], pa.float64())
        if pa.types.is_floating(column.type)
        else column
        for column in batch.columns
    ]
    columns = [column.cast(f.type) for column, f in zip(columns, batch.schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def selected(predicate: Predicate, batch: pa.RecordBatch) -> set[int]:
    """The rows that DataFusion finds with a filter of ours."""
    frame = _CONTEXT.create_dataframe([[one_zero(batch)]])
    text = DataFusion().predicate(predicate)
    parts = frame.select(frame.parse_sql_expr(text).alias("r")).collect()
    answers = [answer for part in parts for answer in part.column(0).to_pylist()]
    return {i for i, answer in enumerate(answers) if answer}


def split(table: Table) -> tuple[dict[str, PartitionColumn], list[set[int]]]:
    """The rows of each leaf, and the leaves' partition values."""
    whole = {f.field_id: column_of(f.apply(table.batch, table.schema)) for f in table.spec.fields}
    leaves: dict[tuple[int, ...], set[int]] = {}
    for row in range(table.batch.num_rows):
        key = tuple(int(column.codes[row]) for column in whole.values())
        leaves.setdefault(key, set()).add(row)
    columns = {
        name: PartitionColumn(column.values, np.array([key[i] for key in leaves], dtype=np.int32))
        for i, (name, column) in enumerate(whole.items())
    }
    return columns, list(leaves.values())


@COMMON
@given(cases(FILTERS))
def test_every_leaf_is_judged_right(case):
    table, conditions = case
    columns, leaves = split(table)
    for condition in conditions:
        wanted = {i for i, row in enumerate(table.rows) if condition.holds(row) is True}
        predicate = bind(parse(condition.sql), table.schema.column)
        assert bind(parse(to_sql(predicate)), table.schema.column) == predicate

        verdict = prune(predicate, table.spec, table.schema, columns, len(leaves))
        masks = [selected(residual, table.batch) for residual in verdict.residuals]
        for i, rows in enumerate(leaves):
            if not verdict.maybe[i]:
                assert not rows & wanted, f"{condition}: leaf {i} is not empty"
                assert not verdict.always[i]
            elif verdict.always[i]:
                assert rows <= wanted, f"{condition}: leaf {i} has other rows too"
            else:
                assert rows & masks[verdict.residual[i]] == rows & wanted, condition
