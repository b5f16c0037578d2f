"""Conditions on columns that are read anyway: they are tested on the rows that were read.

Engines ask for `IS NOT NULL` of every column that they join by, and for the keys that the other
side of a join has: `IN` with thousands of values. A filter makes Lance read columns in two steps,
and Lance compares every row with a long list of values. Both take longer than to read all
rows, unless rows are wide or the column has an index: there the condition is left to Lance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from phalanx.model.domains import Domain, domain_of
from phalanx.model.predicates import And, Column, Predicate, Restrict, conjoin
from phalanx.model.sets import Interval

#: How many ranges of neighbors the values of a list have at least that is tested here, and how many
#: values it has at most.
_FEWEST, _MOST = 16, 10_000


class RowCheck(NamedTuple):
    """A condition on one column."""

    column: str
    #: The values that it may have; None for all but NULL.
    values: pa.Array | None = None

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that meet it."""
        column = batch.column(self.column)
        if self.values is not None:
            return batch.filter(pc.is_in(column, self.values, skip_nulls=True))
        return batch.filter(column.is_valid()) if column.null_count else batch


def split(
    where: Predicate | None, columns: Collection[str]
) -> tuple[Predicate | None, tuple[RowCheck, ...]]:
    """What is left of a predicate for Lance, and the conditions on columns that are read.

    The predicate holds for a row if both parts do.
    """
    if where is None:
        return None, ()
    rest, checks = [], []
    for part in where.children if isinstance(where, And) else (where,):
        check = _check(part, columns)
        if check is None:
            rest.append(part)
        else:
            checks.append(check)
    if not checks:
        return where, ()
    return conjoin(rest) if rest else None, tuple(checks)


def _check(part: Predicate, columns: Collection[str]) -> RowCheck | None:
    """A predicate as a condition on a column that is read; None if it is none."""
    if (
        not isinstance(part, Restrict)
        or not isinstance(part.term, Column)
        or len(part.term.path) != 1
        or part.term.path[0] not in columns
        or part.values.null
        or pa.types.is_nested(part.term.type)
    ):
        return None
    (name,), values = part.term.path, part.values
    if values.has_all_values:
        return RowCheck(name)
    domain = domain_of(part.term.type)
    # Both zeros are one key, and so are all NaN.
    if domain.type != part.term.type or pa.types.is_floating(domain.type):
        return None
    keys = _keys(domain, values.intervals) if len(values.intervals) >= _FEWEST else []
    try:
        return RowCheck(name, domain.array(keys)) if keys else None
    except (pa.ArrowInvalid, OverflowError):  # one that the column cannot hold
        return None


def _keys(domain: Domain, intervals: Sequence[Interval]) -> list[object]:
    """The keys in intervals; no keys if they are too many, or cannot be listed."""
    keys: list[object] = []
    for low, high in intervals:
        if isinstance(low, int) and isinstance(high, int):
            keys += range(low, min(high, low + _MOST + 1))
        else:
            keys.append(domain.single((low, high)))
        if len(keys) > _MOST or keys[-1] is None:
            return []
    return keys


def passing(batch: pa.RecordBatch, checks: Iterable[RowCheck]) -> pa.RecordBatch:
    """The rows that meet all conditions."""
    for check in checks:
        batch = check.of(batch)
    return batch
