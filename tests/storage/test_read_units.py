"""Which leaves are read together, and what a unit reads. Bundles are in `test_small_leaves`."""

import numpy as np
import pytest

from phalanx.model.predicates import EVERYTHING, NOTHING
from phalanx.storage.read_units import LeafToRead, ReadUnit, are_small, grouped
from phalanx.storage.small_leaves import Member

ROWS, BYTES = 131_072, 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("rows", "size", "small"),
    [
        (1, 0, True),
        (ROWS, BYTES, True),
        (ROWS + 1, 10, False),
        (10, BYTES + 1, False),
        (0, 10, False),
        (-1, 10, False),
        (10, -1, False),
    ],
)
def test_which_are_small(rows, size, small):
    assert are_small(rows, size) == small
    assert are_small(np.array([rows, 1]), np.array([size, 1])).tolist() == [small, True]


def leaf(number, rows=10, where=None):
    return LeafToRead(Member(f"l{number}", number), where, rows)


def numbers(units):
    return [[member.version for member in unit.members] for unit in units]


def test_small_neighbors_with_the_same_filter():
    leaves = [leaf(0), leaf(1), leaf(2, where=NOTHING), leaf(3, where=EVERYTHING), leaf(4), leaf(5)]
    units = list(grouped(leaves))
    assert numbers(units) == [[0, 1], [2], [3], [4, 5]]
    assert [unit.where for unit in units] == [None, NOTHING, EVERYTHING, None]
    assert all(unit.small and unit.fragments is None for unit in units)


def test_a_leaf_that_is_not_small_is_a_unit_of_its_own():
    units = list(grouped([leaf(0), leaf(1, rows=None), leaf(2, rows=None), leaf(3), leaf(4)]))
    assert numbers(units) == [[0], [1], [2], [3, 4]]
    assert [unit.small for unit in units] == [True, False, False, True]


def test_how_many():
    leaves = [leaf(number) for number in range(7)]
    assert numbers(grouped(leaves, most=3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert numbers(grouped(leaves, limit=15)) == [[0, 1], [2, 3], [4, 5], [6]]
    assert numbers(grouped(leaves, limit=0)) == [[number] for number in range(7)]
    assert numbers(grouped([])) == []
    assert len(list(grouped([leaf(number) for number in range(33)]))) == 2


def test_units_are_equal_where_they_read_the_same():
    assert ReadUnit((Member("a", 1),)) == ReadUnit((Member("a", 1),))
    assert ReadUnit((Member("a", 1),)) != ReadUnit((Member("a", 1),), fragments=(0,))
