"""Whether rows may satisfy a predicate, judged by the bounds of their columns.

Bounds enclose all values of a column, also where they are not exact (see
`phalanx.model.statistics`). So they can tell that no row matches, and never that one does. What
they say nothing about may match.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from phalanx.model.domains import FloatDomain, domain_of
from phalanx.model.predicates import And, Column, Constant, Or, Predicate, Restrict
from phalanx.model.sets import ValueSet
from phalanx.model.statistics import ColumnStatistics


def bounded_columns(predicate: Predicate) -> Iterator[Column]:
    """The columns whose bounds may tell that no row satisfies a predicate, repeats included."""
    match predicate:
        case And(children=children) | Or(children=children):
            for child in children:
                yield from bounded_columns(child)
        case Restrict(term=Column(path=(_,)) as column, type=type) if type == column.type:
            yield column


def may_match(
    predicate: Predicate, statistics: Mapping[int, ColumnStatistics], rows: int | None
) -> bool:
    """Whether one of some rows may satisfy a predicate. `rows` is their number, if it is known."""
    match predicate:
        case Constant(value=value):
            return value
        case And(children=children):
            return all(may_match(child, statistics, rows) for child in children)
        case Or(children=children):
            return any(may_match(child, statistics, rows) for child in children)
        case Restrict(term=Column(path=(_,), field_id=id) as column, type=type, values=values):
            known = statistics.get(id)
            if known is not None and type == column.type:
                return _may_hold(known, type, values, rows)
    return True


def _may_hold(
    known: ColumnStatistics, type: pa.DataType, values: ValueSet, rows: int | None
) -> bool:
    """Whether a column may hold one of some values."""
    if values.null and known.null_count != 0:
        return True
    if not values.intervals or (rows is not None and known.null_count == rows):
        return False
    low, high = _keys(known, type)
    # Intervals are sorted and apart: the first that ends after the least key decides.
    bounded = len(values.intervals) - (values.intervals[-1][1] is None)
    at = 0
    if low is not None:
        at = bisect_right(values.intervals, low, 0, bounded, key=lambda interval: interval[1])
    if at == len(values.intervals):
        return False
    start = values.intervals[at][0]
    return start is None or high is None or bool(start <= high)


def _keys(known: ColumnStatistics, type: pa.DataType) -> tuple[Any, Any]:
    """The least and the greatest key of a type that a column may hold; None for unknown."""
    low, high = known.low, known.high
    domain = domain_of(type)
    if not isinstance(domain, FloatDomain):
        return low, high
    if low is None or high is None:
        return None, None
    if type.bit_width < 64:  # bounds of all floats are those of doubles
        doubles = FloatDomain(pa.float64())
        low, high = (domain.key(pa.scalar(doubles.value(key), pa.float64())) for key in (low, high))
    # NaN is greater than every other number.
    return low, None if known.has_nan is not False else high
