"""Filters bound to a schema: what they mean, in SQL that reads back as the same."""

import datetime as dt

import pytest

from phalanx.errors import InvalidInput
from phalanx.model.dialect import to_sql
from phalanx.model.filters import bind
from phalanx.model.parser import parse
from phalanx.model.predicates import Constant
from tests.model.conditions import SCHEMA, bound


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        # Numbers.
        ("i > 2.5", "i >= 3"),
        ("i = 2.5", "FALSE"),
        ("i <> 2.5", "i IS NOT NULL"),
        ("5 > i", "i < 5"),
        ("u < 300", "u IS NOT NULL"),
        ("u = -1", "FALSE"),
        ("i = '5'", "i = 5"),
        ("dec > 1.005", "dec >= 1.01"),
        ("f32 = 0.1", "f32 = 0.1"),
        ("f <= 0.1", "f <= 0.1"),
        ("f > 'inf'", "f = 'NaN'"),
        ("f <> 'NaN'", "f < 'NaN'"),
        ("f >= '-inf'", "f IS NOT NULL"),
        # Strings.
        ("s = 'it''s'", "s = 'it''s'"),
        ("s > 'a'", "s > 'a'"),
        ("s <= 'a'", "s <= 'a'"),
        ("s >= ''", "s IS NOT NULL"),
        ("s < ''", "FALSE"),
        ("s = ''", "s = ''"),
        ("s <> ''", "s > ''"),
        # Times.
        ("d = '2025-12-10'", "d = DATE '2025-12-10'"),
        ("d > '2025-12-10T10:00:00'", "d >= DATE '2025-12-11'"),
        ("d < '+12025-01-01'", "d < DATE '+12025-01-01'"),
        ("d64 <= '2025-12-10'", "d64 <= DATE '2025-12-10'"),
        ("d64 > '2025-12-10T10:00:00'", "d64 > TIMESTAMP '2025-12-10T10:00:00'"),
        ("ts <= '2025-12-10'", "ts <= TIMESTAMP '2025-12-10T00:00:00'"),
        ("ts = '2025-12-10T10:00:00+02:00'", "ts = TIMESTAMP '2025-12-10T08:00:00'"),
        ("ny = '2025-12-10'", "ny = TIMESTAMP '2025-12-10T05:00:00Z'"),
        ("ny = '2025-12-10T00:00:00Z'", "ny = TIMESTAMP '2025-12-10T00:00:00Z'"),
        ("t > '10:00'", "t > TIME '10:00:00'"),
        ("bin >= X'00ff'", "bin >= X'00ff'"),
        ("date = '2024-01-15'", "date = '2024-01-15'"),
        # Booleans.
        ("b", "b"),
        ("NOT b", "NOT b"),
        ("b = TRUE", "b"),
        ("b <> TRUE", "NOT b"),
        ("b > FALSE", "b"),
        ("b IN (TRUE, FALSE)", "b IS NOT NULL"),
        ("b IS NOT TRUE", "NOT b OR b IS NULL"),
        ("b IS NOT FALSE", "b OR b IS NULL"),
        ("b IS UNKNOWN", "b IS NULL"),
        # Sets.
        ("s IN ('b', 'a', 'b')", "s IN ('a', 'b')"),
        ("s NOT IN ('b', 'a')", "s NOT IN ('a', 'b')"),
        ("i IN (1, 3)", "i IN (1, 3)"),
        ("i BETWEEN 1 AND 3", "i >= 1 AND i < 4"),
        ("i NOT BETWEEN 1 AND 3", "i < 1 OR i >= 4"),
        ("i BETWEEN 3 AND 1", "FALSE"),
        # Combinations.
        ("i > 1 AND i < 5", "i >= 2 AND i < 5"),
        ("i > 5 AND i < 1", "FALSE"),
        ("i > 1 OR i < 5", "i IS NOT NULL"),
        ("i > 1 OR i <= 1 OR i IS NULL", "TRUE"),
        ("i = 1 OR s = 'a' AND i = 2", "i = 1 OR (s = 'a' AND i = 2)"),
        ("i = 1 AND (i = 1 OR s = 'a')", "i = 1 AND (i = 1 OR s = 'a')"),
        ("(i > 5 OR i < 3) AND s = 'a'", "(i < 3 OR i >= 6) AND s = 'a'"),
        ("i = 1 AND TRUE", "i = 1"),
        ("i = 1 AND FALSE", "FALSE"),
        ("i = 1 OR TRUE", "TRUE"),
        ("NOT (i = 1 OR s = 'a')", "i <> 1 AND s <> 'a'"),
        ("NOT (i = 1 AND NOT s = 'a')", "i <> 1 OR s = 'a'"),
        # Nested columns.
        ("st.x = 5", "st.x = 5"),
        ("ST.X = 5", "st.x = 5"),
        ("st.\"Y z\" = 'a'", "st.\"Y z\" = 'a'"),
        ("l IS NULL", "l IS NULL"),
        ("st IS NOT NULL", "st IS NOT NULL"),
        # A column that cannot be NULL.
        ("id IS NULL", "FALSE"),
        ("id IS NOT NULL", "TRUE"),
        ("id < 5 OR id >= 5", "TRUE"),
        ("id <=> 5", "id = 5"),
        # Terms.
        ("i + 1 > 2.5", "(i + 1) >= 3"),
        ("i / 2 = 1 AND i / 2.0 = 1.5", "(i / 2) = 1 AND (i / 2.0) = 1.5"),
        ("i / 1e2 < 5.", "(i / 100.0) < 5.0"),
        ("upper(s) = 'A'", "upper(s) = 'A'"),
        ("year(ts) = 2025", "date_part('year', ts) = 2025"),
        ("CAST(ts AS DATE) = '2025-12-10'", "CAST(ts AS DATE) = DATE '2025-12-10'"),
        ("i < j", "(i < j)"),
        ("NOT i < j", "NOT (i < j)"),
        ("i IN (j, 5)", "(i IN (j, 5))"),
        ("ts - ts > INTERVAL '1 day'", "((ts - ts) > INTERVAL '1 day')"),
        ("dur > INTERVAL '1 day'", "(dur > INTERVAL '1 day')"),
        ("starts_with(s, 'a')", "starts_with(s, 'a')"),
    ],
)
def test_meaning(text, meaning):
    predicate = bound(text)
    assert to_sql(predicate) == meaning
    assert bound(meaning) == predicate


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("i = NULL", "FALSE"),
        ("NULL <> i", "FALSE"),
        ("NOT (i = NULL)", "FALSE"),
        ("NULL", "FALSE"),
        ("NOT NULL", "FALSE"),
        ("i IN (1, NULL)", "i = 1"),
        ("i IN (NULL)", "FALSE"),
        ("i NOT IN (1, NULL)", "FALSE"),
        ("NOT (i NOT IN (1, NULL))", "i = 1"),
        ("i <=> NULL", "i IS NULL"),
        ("i <=> 5", "i = 5"),
        ("NOT (i <=> 5)", "i <> 5 OR i IS NULL"),
        ("NOT (NULL <=> i)", "i IS NOT NULL"),
        ("NULL <=> NULL", "TRUE"),
        ("i IS DISTINCT FROM 5", "i <> 5 OR i IS NULL"),
        ("NOT (i > 5)", "i < 6"),
        ("(i > 5) IS NOT TRUE", "i < 6 OR i IS NULL"),
        ("(i > 5) IS NULL", "i IS NULL"),
        ("(i > 5) IS NOT NULL", "i IS NOT NULL"),
        ("(i > NULL) IS NULL", "TRUE"),
        ("(i IN (1, NULL)) IS NULL", "i <> 1 OR i IS NULL"),
        ("(i > 5 OR NULL) IS TRUE", "i >= 6"),
        ("(i > 5 AND NULL) IS FALSE", "i < 6"),
        ("(i > 5 AND s = 'a') IS NOT FALSE", "(i >= 6 OR i IS NULL) AND (s = 'a' OR s IS NULL)"),
        ("s LIKE NULL", "FALSE"),
        ("s NOT LIKE NULL", "FALSE"),
        ("5 IS NULL", "FALSE"),
        ("NULL IS NULL", "TRUE"),
        ("i BETWEEN NULL AND 5", "FALSE"),
        ("i NOT BETWEEN NULL AND 5", "i >= 6"),
    ],
)
def test_three_valued_logic(text, meaning):
    assert to_sql(bound(text)) == meaning


@pytest.mark.parametrize(
    ("pattern", "meaning"),
    [
        ("a%", "s >= 'a' AND s < 'b'"),
        ("ab%%", "s >= 'ab' AND s < 'ac'"),
        ("%", "s IS NOT NULL"),
        ("", "s = ''"),
        ("ab", "s = 'ab'"),
        (r"a\%", "s = 'a%'"),
        (r"a\_%", "s >= 'a_' AND s < 'a`'"),
        (r"a\\%", r"s >= 'a\' AND s < 'a]'"),
        (r"a\b", "s = 'ab'"),
        ("a\\", "s = 'a\\'"),
        ("a_c%", "(s LIKE 'a_c%')"),
        ("%a", "(s LIKE '%a')"),
        ("\U0010ffff%", "s >= '\U0010ffff'"),
    ],
)
def test_like(pattern, meaning):
    predicate = bound(f"s LIKE '{pattern}'")
    assert to_sql(predicate) == meaning
    assert bound(meaning) == predicate


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("s NOT LIKE 'a%'", "s < 'a' OR s >= 'b'"),
        ("s NOT LIKE 'a_'", "NOT (s LIKE 'a_')"),
        ("s LIKE 'x!%y%' ESCAPE '!'", "s >= 'x%y' AND s < 'x%z'"),
        ("s LIKE concat('a', '%')", "s >= 'a' AND s < 'b'"),
        ("s ILIKE 'a%'", "(s ILIKE 'a%')"),
        ("upper(s) LIKE 'A%'", "upper(s) >= 'A' AND upper(s) < 'B'"),
    ],
)
def test_other_likes(text, meaning):
    assert to_sql(bound(text)) == meaning


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5 > 3", True),
        ("'a' = 'b'", False),
        ("1 + 1 = 2", True),
        ("upper('a') IN ('A')", True),
        ("'abc' LIKE 'a%'", True),
        ("NOT TRUE", False),
        ("1 IN (2, NULL)", False),
        ("(1 IN (2, NULL)) IS NULL", True),
    ],
)
def test_constants_are_folded(text, value):
    assert bound(text) == Constant(value)


def test_folding_reaches_the_comparison():
    assert bound("ts > TIMESTAMP '2025-12-10' + INTERVAL '1 hour'") == bound(
        "ts > '2025-12-10T01:00:00'"
    )
    assert bound("i > abs(-3)") == bound("i > 3")


NOW = dt.datetime(2026, 3, 29, 23, 30, 15, 250_000, tzinfo=dt.timezone(dt.timedelta(hours=-2)))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("ts >= now()", "ts >= TIMESTAMP '2026-03-30T01:30:15.25'"),
        ("ts >= current_timestamp", "ts >= TIMESTAMP '2026-03-30T01:30:15.25'"),
        ("ts > now() AND ts < current_timestamp", "FALSE"),
        ("d = current_date", "d = DATE '2026-03-30'"),
        ("d = today()", "d = DATE '2026-03-30'"),
        ("ts > now() - INTERVAL '1 day'", "ts > TIMESTAMP '2026-03-29T01:30:15.25'"),
        ("current_time > TIME '01:30:15' AND current_time < TIME '01:30:16'", "TRUE"),
    ],
)
def test_now_is_the_instant_that_the_caller_gives(text, meaning):
    assert bind(parse(text), SCHEMA.column, NOW) == bound(meaning)


def test_now_is_an_instant_also_where_a_row_is_needed_to_know_the_value():
    assert "now" not in to_sql(bind(parse("ts - now() < INTERVAL '1 day'"), SCHEMA.column, NOW))


@pytest.mark.parametrize("function", ["now", "current_timestamp", "current_date", "current_time"])
def test_without_an_instant_the_clock_is_refused(function):
    with pytest.raises(InvalidInput, match=rf"{function}\(\) is volatile and cannot be used"):
        bound(f"{function}() = {function}()")


def test_the_clock_takes_no_arguments():
    with pytest.raises(InvalidInput, match=r"cannot evaluate now\(1\): now takes no arguments"):
        bind(parse("ts > now(1)"), SCHEMA.column, NOW)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope = 5", "unknown column 'nope': the table has id, i, j, u, f,"),
        ("st.nope = 5", "unknown column 'st.nope': the table has id, i,"),
        ("i = 'five'", "cannot compare a value of type int32 with 'five'"),
        ("s = 5", "cannot compare a value of type string with 5"),
        ("s > DATE '2025-12-10'", "cannot compare a value of type string with DATE '2025-12-10'"),
        ("upper(s) = 5", "cannot compare a value of type string with 5"),
        ("i IN (1, 'x')", "cannot compare a value of type int32 with 'x'"),
        ("l = 5", "values of type list<item: int32> can only be tested with IS [NOT] NULL"),
        ("i LIKE 'a%'", "LIKE needs a string, and i is int32"),
        ("i", "i is not a condition: it is of type int32"),
        ("i + 1", "(i + 1) is not a condition: it is of type int64"),
        ("'text'", "'text' is not a condition: it is of type string"),
        ("i AND b", "i is not a condition: it is of type int32"),
        ("random() < 0.5", "random() is volatile and cannot be used in a filter"),
        ("s = cast(uuid() as varchar)", "uuid() is volatile and cannot be used in a filter"),
        ("nope(i) = 5", "cannot evaluate nope(i): Invalid function 'nope'."),
        (
            "sum(i) > 5",
            "cannot evaluate sum(i): a filter looks at one row, so it has no aggregate",
        ),
        ("1 / 0 = 1", "cannot evaluate (1 / 0): Arrow error: Divide by zero error"),
        ("i + " * 5_000 + "1 = 1", "the filter is nested too deeply"),
    ],
)
def test_refused(text, message):
    with pytest.raises(InvalidInput) as error:
        bound(text)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
