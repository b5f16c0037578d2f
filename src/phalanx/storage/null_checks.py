"""Checks for NULL of columns that are read anyway: they are made on the rows that were read.

Engines ask for `IS NOT NULL` of every column that they join by. A filter makes Lance read columns
in two steps, which takes twice as long. That pays where rows are wide, or the column has an index:
there the check is left to Lance.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from phalanx.model.predicates import And, Column, Predicate, Restrict, conjoin


def split(
    where: Predicate | None, columns: Collection[str]
) -> tuple[Predicate | None, tuple[str, ...]]:
    """What is left of a predicate for Lance, and the columns, of those read, that must have values.

    The predicate holds for a row if both parts do.
    """
    if where is None:
        return None, ()
    parts = where.children if isinstance(where, And) else (where,)
    checked = [part for part in parts if _is_check(part, columns)]
    if not checked:
        return where, ()
    rest = [part for part in parts if part not in checked]
    return conjoin(rest) if rest else None, tuple(
        part.term.path[0]
        for part in checked
        if isinstance(part, Restrict) and isinstance(part.term, Column)
    )


def _is_check(part: Predicate, columns: Collection[str]) -> bool:
    """Whether a predicate is `IS NOT NULL` of a column that is read."""
    return (
        isinstance(part, Restrict)
        and isinstance(part.term, Column)
        and len(part.term.path) == 1
        and part.term.path[0] in columns
        and part.values.has_all_values
        and not part.values.null
        and not pa.types.is_nested(part.term.type)
    )


def without_nulls(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The rows that have values in some columns."""
    for name in names:
        column = batch.column(name)
        if column.null_count:
            batch = batch.filter(column.is_valid())
    return batch
