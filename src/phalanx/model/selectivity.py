"""About how many rows of a leaf satisfy a predicate, judged by the bounds of its columns.

Values are taken to be spread evenly between the bounds. That may be far from true, so an estimate
may decide how rows are joined, but never which rows are read.
"""

from __future__ import annotations

from phalanx.model.domains import IntegerDomain, domain_of
from phalanx.model.predicates import And, Column, Constant, Or, Predicate, Restrict
from phalanx.model.sets import ValueSet
from phalanx.model.statistics import ColumnStatistics, Statistics


def share_of(predicate: Predicate, statistics: Statistics, rows: int) -> float:
    """About which share of some rows satisfies a predicate; 1 where nothing is known.

    Columns may depend on each other, so of several conditions only the narrowest one counts.
    """
    match predicate:
        case Constant(value=value):
            return float(value)
        case And(children=children):
            return min(share_of(child, statistics, rows) for child in children)
        case Or(children=children):
            return min(1.0, sum(share_of(child, statistics, rows) for child in children))
        case Restrict(term=Column(field_id=id, type=type), values=values):
            known = statistics.get(id)
            # Other types are not numbers that one could count between two bounds.
            if known and predicate.type == type and isinstance(domain_of(type), IntegerDomain):
                return _share_of_values(values, known, rows)
    return 1.0


def _share_of_values(values: ValueSet, known: ColumnStatistics, rows: int) -> float:
    nulls = min(1.0, (known.null_count or 0) / max(1, rows))
    if known.low is None or known.high is None:
        return float(values.null) if nulls == 1 else 1.0
    low, end = known.low, known.high + 1
    inside = sum(
        max(0, (end if b is None else min(b, end)) - (low if a is None else max(a, low)))
        for a, b in values.intervals
    )
    return float(inside / (end - low) * (1 - nulls) + nulls * values.null)
