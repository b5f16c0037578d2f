"""Predicates put together without SQL."""

import pyarrow as pa
import pytest

from phalanx.model.dialect import to_sql
from phalanx.model.predicates import (
    EVERYTHING,
    NOTHING,
    And,
    Column,
    Or,
    Predicate,
    Restrict,
    columns_of,
    conjoin,
    disjoin,
    invert,
    restrict,
)
from phalanx.model.sets import ALL_VALUES, EMPTY, FULL, NULL_ONLY, ValueSet
from tests.model.conditions import SCHEMA, bound


def in_i(low: int | None, high: int | None, null: bool = False) -> Predicate:
    return Restrict(SCHEMA.column(("i",)), pa.int32(), ValueSet(((low, high),), null))


A_STRING = Restrict(SCHEMA.column(("s",)), pa.string(), ValueSet((("a", "b"),)))


def test_conjoin():
    assert conjoin([]) == EVERYTHING
    assert conjoin([in_i(1, 5), in_i(3, 9)]) == in_i(3, 5)
    assert conjoin([in_i(1, 3), in_i(5, 9)]) == NOTHING
    assert conjoin([in_i(1, 5), A_STRING]) == And((in_i(1, 5), A_STRING))
    assert conjoin([And((in_i(1, 5), A_STRING)), in_i(3, 9)]) == And((in_i(3, 5), A_STRING))
    assert conjoin([in_i(1, 5), NOTHING]) == NOTHING
    assert conjoin([in_i(1, 5), EVERYTHING]) == in_i(1, 5)


def test_disjoin():
    assert disjoin([]) == NOTHING
    assert disjoin([in_i(1, 5), in_i(3, 9)]) == in_i(1, 9)
    assert disjoin([in_i(1, 5), EVERYTHING]) == EVERYTHING
    assert disjoin([in_i(None, 5, null=True), in_i(5, None)]) == EVERYTHING
    both = Or((And((in_i(1, 5), A_STRING)), in_i(7, 9)))
    assert disjoin([And((in_i(1, 5), A_STRING)), in_i(7, 8), in_i(8, 9)]) == both


def test_invert_is_the_other_rows():
    predicate = bound("(i > 5 AND s = 'a') OR f IS NULL")
    assert to_sql(invert(predicate)) == (
        "((i < 6 OR i IS NULL) OR (s <> 'a' OR s IS NULL)) AND f IS NOT NULL"
    )
    assert invert(invert(predicate)) == predicate
    assert invert(EVERYTHING) == NOTHING


@pytest.mark.parametrize(
    ("values", "nullable", "required"),
    [
        (EMPTY, NOTHING, NOTHING),
        (FULL, EVERYTHING, EVERYTHING),
        (ALL_VALUES, "x IS NOT NULL", EVERYTHING),
        (NULL_ONLY, "x IS NULL", NOTHING),
        (ValueSet(((1, 2),), null=True), "x = 1 OR x IS NULL", "x = 1"),
    ],
)
def test_restrict_simplifies(values, nullable, required):
    for wanted, is_nullable in ((nullable, True), (required, False)):
        column = Column(("x",), 0, pa.int32(), is_nullable)
        simplified = restrict(column, pa.int32(), values)
        assert (to_sql(simplified) if isinstance(wanted, str) else simplified) == wanted


def test_columns_of():
    predicate = bound("i + j > 5 AND (s = 'a' OR upper(date) = 'B')")
    assert {column.path for column in columns_of(predicate)} == {("i",), ("j",), ("s",), ("date",)}
