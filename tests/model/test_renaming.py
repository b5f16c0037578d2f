"""Filters that are kept as text, after a rename."""

import pyarrow as pa
import pytest

from phalanx.errors import InvalidInput
from phalanx.model.evolution import rename_column
from phalanx.model.parser import parse
from phalanx.model.renaming import renamed_filter
from phalanx.model.schema import TableSchema

BEFORE = TableSchema.numbered(
    pa.schema([("a", pa.int64()), ("b", pa.string()), ("s", pa.struct([("a", pa.int64())]))]),
    [1, 2, 3, 4],
)


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        ("a = 1", "x = 1"),
        ("A = 1 OR b = 'a'", "x = 1 OR b = 'a'"),
        ("b = 'a' -- a", "b = 'a' -- a"),
        ("s.a = 1", "s.a = 1"),
        ("a_bucket = 1", "a_bucket = 1"),
        ("a > now()", "x > now()"),
    ],
)
def test_names_of_columns_change_and_nothing_else(text, renamed):
    result = renamed_filter(text, BEFORE, rename_column(BEFORE, ("a",), "x"))
    assert parse(result) == parse(renamed)
    assert result == text or text != renamed


def test_names_that_change_places():
    after = rename_column(BEFORE, ("a",), "c")
    after = rename_column(after, ("b",), "a")
    after = rename_column(after, ("c",), "b")
    result = renamed_filter("a = 1 AND b = 'x'", BEFORE, after)
    assert parse(result) == parse("b = 1 AND a = 'x'")


def test_a_column_that_was_dropped():
    with pytest.raises(InvalidInput, match="'b' was dropped"):
        renamed_filter("b = 'x'", BEFORE, BEFORE.only(["a"]))
