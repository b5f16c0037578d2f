"""Sets of values against sets of integers, for which Python has its own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.model.sets import (
    ALL_VALUES,
    EMPTY,
    FULL,
    NULL_ONLY,
    ValueSet,
    intersection,
    union,
)

UNIVERSE = range(-3, 12)
FIXED = settings(derandomize=True, deadline=None)

bounds = st.none() | st.integers(-2, 10)
value_sets = st.builds(ValueSet.of, st.lists(st.tuples(bounds, bounds), max_size=5), st.booleans())


def members(values: ValueSet) -> set[int | None]:
    keys: set[int | None] = {None} if values.null else set()
    for low, high in values.intervals:
        keys |= {x for x in UNIVERSE if (low is None or x >= low) and (high is None or x < high)}
    return keys


@FIXED
@given(value_sets, value_sets)
def test_and_or(a, b):
    assert members(a & b) == members(a) & members(b)
    assert members(a | b) == members(a) | members(b)


@FIXED
@given(st.lists(value_sets, min_size=1, max_size=4))
def test_many_at_once(sets):
    assert members(union(sets)) == set.union(*map(members, sets))
    assert members(intersection(sets)) == set.intersection(*map(members, sets))


@FIXED
@given(value_sets, st.booleans())
def test_complement(values, null):
    other = values.complement(null)
    assert members(other) - {None} == set(UNIVERSE) - members(values)
    assert other.null == null
    assert other.complement(values.null) == values


@FIXED
@given(value_sets, value_sets)
def test_one_form_for_each_set(a, b):
    """Intervals are sorted, not empty and do not touch, so equal sets are equal objects."""
    for values in (a, b, a & b, a | b, a.complement(null=False)):
        ends = [bound for interval in values.intervals for bound in interval]
        inner = ends[1:-1]
        assert None not in inner
        assert inner == sorted(set(inner))
    if members(a) == members(b) and None not in {x for s in (a, b) for i in s.intervals for x in i}:
        assert a == b


@pytest.mark.parametrize(
    ("intervals", "normal"),
    [
        ([(3, 5), (1, 2)], ((1, 2), (3, 5))),
        ([(1, 3), (3, 5)], ((1, 5),)),
        ([(1, 9), (2, 3)], ((1, 9),)),
        ([(5, 5), (6, 2)], ()),
        ([(None, 3), (2, None)], ((None, None),)),
        ([(4, None), (None, 1)], ((None, 1), (4, None))),
        ([("a", "b"), ("b", "b\0")], (("a", "b\0"),)),
    ],
)
def test_of_normalizes(intervals, normal):
    assert ValueSet.of(intervals).intervals == normal


@pytest.mark.parametrize(
    ("values", "is_empty", "is_full", "has_all_values"),
    [
        (EMPTY, True, False, False),
        (NULL_ONLY, False, False, False),
        (ALL_VALUES, False, False, True),
        (FULL, False, True, True),
    ],
)
def test_special_sets(values, is_empty, is_full, has_all_values):
    assert (values.is_empty, values.is_full, values.has_all_values) == (
        is_empty,
        is_full,
        has_all_values,
    )


def test_gaps_of_nothing_is_everything():
    assert list(EMPTY.gaps()) == [(None, None)]
    assert list(ALL_VALUES.gaps()) == []


def test_with_null():
    assert ALL_VALUES.with_null(True) == FULL
    assert FULL.with_null(False) == ALL_VALUES
    assert EMPTY.with_null(False) is EMPTY
