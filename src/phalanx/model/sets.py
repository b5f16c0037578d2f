"""Sets of column values: what a predicate lets through, as something one can compute with.

A set is a sorted list of disjoint half-open intervals over the keys of one type (see
`phalanx.model.domains`), plus whether NULL belongs to it. Half-open intervals are enough,
because every key has a successor: `x <= 5` is `[.., 6)`, `s = 'a'` is `['a', 'a\\0')`.

Sets say when a predicate is TRUE. Three-valued logic needs no more than that once NOT has been
pushed down to the comparisons: `x <> 5` is all keys but 5, without NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

#: A key, or None for "no bound on this side".
Bound = Any
Interval = tuple[Bound, Bound]


@dataclass(frozen=True)
class ValueSet:
    """Some values of one type, and perhaps NULL."""

    intervals: tuple[Interval, ...] = ()
    null: bool = False

    @staticmethod
    def of(intervals: Iterable[Interval], null: bool = False) -> ValueSet:
        """A set from intervals in any order, overlapping or empty ones included."""
        return ValueSet(_normalize(intervals), null)

    @property
    def is_empty(self) -> bool:
        return not self.intervals and not self.null

    @property
    def is_full(self) -> bool:
        """Every value and NULL."""
        return self.null and self.has_all_values

    @property
    def has_all_values(self) -> bool:
        """Every value that is not NULL."""
        return self.intervals == ((None, None),)

    def __and__(self, other: ValueSet) -> ValueSet:
        shared = []
        mine, theirs = iter(self.intervals), iter(other.intervals)
        a, b = next(mine, None), next(theirs, None)
        while a is not None and b is not None:
            low, high = _max_low(a[0], b[0]), _min_high(a[1], b[1])
            if low is None or high is None or low < high:
                shared.append((low, high))
            if high == a[1]:
                a = next(mine, None)
            else:
                b = next(theirs, None)
        return ValueSet(tuple(shared), self.null and other.null)

    def __or__(self, other: ValueSet) -> ValueSet:
        return ValueSet(_normalize((*self.intervals, *other.intervals)), self.null or other.null)

    def complement(self, null: bool) -> ValueSet:
        """All keys that are not in this set, with NULL if the caller wants it."""
        return ValueSet(tuple(self.gaps()), null)

    def gaps(self) -> Iterator[Interval]:
        """The intervals between the intervals."""
        low: Bound = None
        first = True
        for start, end in self.intervals:
            if start is not None:
                yield (None if first else low, start)
            if end is None:
                return
            low, first = end, False
        yield (None if first else low, None)

    def with_null(self, null: bool) -> ValueSet:
        return self if self.null == null else ValueSet(self.intervals, null)


EMPTY = ValueSet()
NULL_ONLY = ValueSet((), True)
ALL_VALUES = ValueSet(((None, None),), False)
FULL = ValueSet(((None, None),), True)


def union(sets: Sequence[ValueSet]) -> ValueSet:
    """What lies in any of many sets, sorted once."""
    return ValueSet.of((i for s in sets for i in s.intervals), any(s.null for s in sets))


def intersection(sets: Sequence[ValueSet]) -> ValueSet:
    """What lies in all of many sets: outside of every gap."""
    gaps = ValueSet.of(gap for s in sets for gap in s.gaps())
    return gaps.complement(null=all(s.null for s in sets))


def _max_low(a: Bound, b: Bound) -> Bound:
    if a is None:
        return b
    return a if b is None or a >= b else b


def _min_high(a: Bound, b: Bound) -> Bound:
    if a is None:
        return b
    return a if b is None or a <= b else b


def _normalize(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    kept = [(low, high) for low, high in intervals if low is None or high is None or low < high]
    unbounded = [interval for interval in kept if interval[0] is None]
    bounded = sorted((i for i in kept if i[0] is not None), key=lambda i: i[0])
    merged: list[Interval] = []
    for low, high in unbounded + bounded:
        if merged:
            last_low, last_high = merged[-1]
            if last_high is None:
                break
            if low is None or low <= last_high:
                merged[-1] = (last_low, None if high is None else max(last_high, high))
                continue
        merged.append((low, high))
    return tuple(merged)
