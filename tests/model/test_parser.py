"""SQL text to terms: what each form means, and where the text stops making sense."""

from decimal import Decimal

import pytest

from phalanx.errors import InvalidInput
from phalanx.model.literals import FALSE, NULL, TRUE, Literal
from phalanx.model.parser import parse
from phalanx.model.predicates import Call, Name, Term

A, B = Name(("a",)), Name(("b",))
X = Literal("string", "x")


def number(value: int | str) -> Literal:
    return Literal("number", value if isinstance(value, int) else Decimal(value))


def call(function: str, *args: Term) -> Call:
    return Call(function, args)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("a = 1", call("=", A, number(1))),
        ("a == 1", call("=", A, number(1))),
        ("a <> 1", call("<>", A, number(1))),
        ("a != 1", call("<>", A, number(1))),
        ("a <=> NULL", call("<=>", A, NULL)),
        ("a<=1", call("<=", A, number(1))),
        ("1 >= a", call(">=", number(1), A)),
        ("a IS NULL", call("is_null", A)),
        ("a IS NOT NULL", call("not", call("is_null", A))),
        ("a IS UNKNOWN", call("is_null", A)),
        ("a IS TRUE", call("is_true", A)),
        ("a IS NOT FALSE", call("not", call("is_false", A))),
        ("a IS DISTINCT FROM 1", call("not", call("<=>", A, number(1)))),
        ("a IS NOT DISTINCT FROM 1", call("<=>", A, number(1))),
        ("a IN (1, NULL)", call("in", A, number(1), NULL)),
        ("a NOT IN (1)", call("not", call("in", A, number(1)))),
        (
            "a BETWEEN 1 AND 2 AND b",
            call("and", call("and", call(">=", A, number(1)), call("<=", A, number(2))), B),
        ),
        (
            "a NOT BETWEEN 1 AND 2",
            call("not", call("and", call(">=", A, number(1)), call("<=", A, number(2)))),
        ),
        ("a LIKE 'x'", call("like", A, X)),
        ("a NOT LIKE 'x'", call("not", call("like", A, X))),
        ("a ILIKE 'x'", call("ilike", A, X)),
        ("a like 'x' and not b", call("and", call("like", A, X), call("not", B))),
    ],
)
def test_comparisons(text, term):
    assert parse(text) == term


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("a OR b AND a", call("or", A, call("and", B, A))),
        ("(a OR b) AND a", call("and", call("or", A, B), A)),
        ("NOT a = 1", call("not", call("=", A, number(1)))),
        ("NOT NOT a", call("not", call("not", A))),
        ("NOT(a)", call("not", A)),
        ("a OR b OR a", call("or", A, B, A)),
        ("a + 1 * 2", call("+", A, call("*", number(1), number(2)))),
        ("(a + 1) * 2", call("*", call("+", A, number(1)), number(2))),
        ("a - 1 - 2", call("-", call("-", A, number(1)), number(2))),
        ("a - -1", call("-", A, number(-1))),
        ("-a % 2", call("%", call("negate", A), number(2))),
        ("a || 'x'", call("||", A, X)),
        ("a + 1 > b", call(">", call("+", A, number(1)), B)),
        ("a = 1 IS TRUE", call("is_true", call("=", A, number(1)))),
    ],
)
def test_precedence(text, term):
    assert parse(text) == term


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("TRUE", TRUE),
        ("false", FALSE),
        ("Null", NULL),
        ("5", number(5)),
        ("-5", number(-5)),
        ("- - 5", number(5)),
        ("+5", number(5)),
        ("5.", number("5")),
        (".5", number("0.5")),
        ("1e3", number("1e3")),
        ("1.5E-3", number("0.0015")),
        (
            "-0.1234567890123456789012345678901234567890",
            number("-0.1234567890123456789012345678901234567890"),
        ),
        ("99999999999999999999999999999999999999", number(10**38 - 1)),
        ("'it''s'", Literal("string", "it's")),
        ("''", Literal("string", "")),
        ("'a\nb\0\\'", Literal("string", "a\nb\0\\")),
        ("X'00fF'", Literal("binary", b"\0\xff")),
        ("x''", Literal("binary", b"")),
        ("DATE '1970-01-02'", Literal("date", 1)),
        ("TIMESTAMP '1970-01-01T00:00:01'", Literal("timestamp", 10**9)),
        ("timestamp '1970-01-01 00:00:01+00:00'", Literal("timestamp", 10**9, zoned=True)),
        ("TIMESTAMP '1970-01-02'", Literal("timestamp", 86_400 * 10**9)),
        ("TIME '00:00:01'", Literal("time", 10**9)),
        ("INTERVAL '1 day'", Literal("interval", "1 day")),
    ],
)
def test_constants(text, literal):
    assert parse(text) == literal


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("_a1", ("_a1",)),
        ("größe", ("größe",)),
        ("日付", ("日付",)),
        ("a.b.c", ("a", "b", "c")),
        ('"a b"', ("a b",)),
        ('"a""b"."c"', ('a"b', "c")),
        ("`a``b`", ("a`b",)),
        ('"NULL"', ("NULL",)),
        # Names of types are names of columns too.
        ("date", ("date",)),
        ("Timestamp", ("Timestamp",)),
        ("year", ("year",)),
    ],
)
def test_names(text, path):
    assert parse(text) == Name(path)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("UPPER(a)", call("upper", A)),
        ("now()", call("now")),
        ("CURRENT_TIMESTAMP", call("current_timestamp")),
        ("current_date()", call("current_date")),
        ("year(a)", call("date_part", Literal("string", "year"), A)),
        ("EXTRACT(YEAR FROM a)", call("date_part", Literal("string", "year"), A)),
        ("date_part('YEAR', a)", call("date_part", Literal("string", "year"), A)),
        ("date_trunc('Week', a)", call("date_trunc", Literal("string", "week"), A)),
        ("CAST(a AS date)", call("cast:DATE", A)),
        ("cast(a as decimal(10, 2))", call("cast:DECIMAL(10, 2)", A)),
        ("CAST(a AS double precision)", call("cast:DOUBLE PRECISION", A)),
        ("concat(a, 'x', b)", call("concat", A, X, B)),
        ("date = date '1970-01-02'", call("=", Name(("date",)), Literal("date", 1))),
    ],
)
def test_functions(text, term):
    assert parse(text) == term


@pytest.mark.parametrize(
    ("pattern", "escape", "written"),
    [
        ("a!%b%", "!", "a\\%b%"),
        ("a!!b", "!", "a\\!b"),
        ("a\\b", "!", "a\\\\b"),
        ("a!", "!", "a!"),
        ("a\\%b", "\\", "a\\%b"),
    ],
)
def test_like_escape(pattern, escape, written):
    text = f"a LIKE '{pattern}' ESCAPE '{escape}'"
    assert parse(text) == call("like", A, Literal("string", written))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a column, a value or a function, found the end"),
        ("a =", "expected a column, a value or a function, found the end"),
        ("a = = 1", "expected a column, a value or a function, found '=' at position 5"),
        ("a b", "expected the end or an operator, found 'b' at position 3"),
        ("(a", "expected ), found the end"),
        ("a ~ b", "unexpected '~' at position 3"),
        ("a = 'x", 'unexpected "\'" at position 5'),
        ("a IN ()", "expected a column, a value or a function, found ')' at position 7"),
        ("a IN 1", "expected (, found '1' at position 6"),
        ("a IS 1", "expected NULL, TRUE, FALSE or DISTINCT FROM, found '1' at position 6"),
        ("a NOT b", "expected IN, LIKE or BETWEEN, found 'b' at position 7"),
        ("a BETWEEN 1 OR 2", "expected AND, found 'OR' at position 13"),
        ("a. = 1", "expected a field name, found '=' at position 4"),
        ("EXTRACT(", "expected a part of a date, such as YEAR, found the end"),
        ("EXTRACT(YEAR a)", "expected FROM, found 'a' at position 14"),
        ("CAST(a AS 5)", "expected a type, found '5' at position 11"),
        ("CAST(a AS DECIMAL(x))", "expected a whole number, found 'x' at position 19"),
        ("X'0'", "expected hexadecimal digits in X'…', found \"X'0'\" at position 1"),
        ("a = AND (1)", "expected a column, a value or a function, found 'AND' at position 5"),
        ("CASE WHEN a THEN 1 END", "found 'CASE' at position 1"),
        ("a IN (SELECT 1)", "expected ), found '1' at position 14"),
        ("12abc = a", "unexpected '2' at position 2"),
    ],
)
def test_errors_say_where(text, message):
    with pytest.raises(InvalidInput) as error:
        parse(text)
    assert str(error.value).startswith(f"cannot parse the filter {text!r}: ")
    assert str(error.value).endswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a > DATE '2025-02-30'", "'2025-02-30' is not a date: write 2025-12-31"),
        ("a > TIME '99:00:00'", "'99:00:00' is not a time: write 23:59:59"),
        ("a = 1e99999", "the number 1e99999… has more than 1000 digits"),
        (
            "a LIKE b ESCAPE '!'",
            "LIKE … ESCAPE needs a constant pattern and one escape character",
        ),
        (
            "a LIKE 'x' ESCAPE '!!'",
            "LIKE … ESCAPE needs a constant pattern and one escape character",
        ),
        ("(" * 10_000, "cannot parse the filter: it is nested too deeply"),
        ("NOT " * 10_000, "cannot parse the filter: it is nested too deeply"),
    ],
)
def test_other_errors(text, message):
    with pytest.raises(InvalidInput) as error:
        parse(text)
    assert str(error.value) == message


def test_only_text_is_parsed():
    with pytest.raises(InvalidInput, match="a filter is SQL text, not int"):
        parse(5)
