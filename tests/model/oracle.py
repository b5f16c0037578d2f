"""Filters in plain Python: what a row means for a filter, decided one row at a time.

Nothing here uses the sets, domains or transforms of `phalanx.model`: it is the second opinion
that pruning is held against. A term is its SQL and a function from a row to a value that Python
orders as SQL would (None is NULL); a condition is its SQL and a function from a row to True,
False or None.
"""

import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

Row = dict[str, Any]
UTC_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
EPOCH = dt.datetime(1970, 1, 1)
DAY = 86_400


@dataclass(frozen=True)
class Term:
    """`family` says what its values are: number, float16/32/64, text, bytes, bool, time, clock."""

    sql: str
    value: Callable[[Row], Any]
    family: str
    zone: str | None = None


@dataclass(frozen=True)
class Condition:
    sql: str
    holds: Callable[[Row], bool | None]

    def __repr__(self) -> str:
        return self.sql


# Values that Python orders as SQL does ----------------------------------------------------


def float_order(value: float) -> tuple[bool, float]:
    """NaN is one value above all others, -0.0 is 0.0."""
    return (True, 0.0) if math.isnan(value) else (False, value)


def rounded(text: str, bits: int) -> tuple[bool, float]:
    """A number as the nearest float of so many bits."""
    value = float(text)
    try:
        value = struct.unpack(_FORMATS[bits], struct.pack(_FORMATS[bits], value))[0]
    except OverflowError:
        value = math.copysign(math.inf, value)
    return float_order(value)


_FORMATS = {16: "<e", 32: "<f", 64: "<d"}


def local(seconds: Fraction, zone: str | None) -> dt.datetime:
    """What a clock shows at an instant, without fractions of a second."""
    moment = UTC_EPOCH + dt.timedelta(seconds=math.floor(seconds))
    return moment.astimezone(ZoneInfo(zone or "UTC")).replace(tzinfo=None, fold=0)


def instant(clock: dt.datetime, zone: str | None) -> Fraction:
    """When a clock shows this."""
    moment = clock.replace(tzinfo=ZoneInfo(zone or "UTC")).astimezone(dt.UTC) - UTC_EPOCH
    return Fraction(moment.days * DAY + moment.seconds)


def truncated(seconds: Fraction, unit: str, zone: str | None) -> Fraction:
    clock = local(seconds, zone).replace(minute=0, second=0)
    match unit:
        case "hour":
            return instant(clock, zone)
        case "week":
            clock -= dt.timedelta(days=clock.weekday())
        case "month":
            clock = clock.replace(day=1)
        case "quarter":
            clock = clock.replace(day=1, month=(clock.month - 1) // 3 * 3 + 1)
        case "year":
            clock = clock.replace(day=1, month=1)
    return instant(clock.replace(hour=0), zone)


# Terms --------------------------------------------------------------------------------------


def applied(sql: str, family: str, function: Callable[[Any], Any], term: Term) -> Term:
    """A function of one term that is NULL where the term is; `{}` in `sql` is the term."""

    def value(row: Row) -> Any:
        argument = term.value(row)
        return None if argument is None else function(argument)

    zone = term.zone if family == "time" and "CAST" not in sql else None
    return Term(sql.format(term.sql), value, family, zone)


def functions_of(term: Term, whole: bool, small: bool, has_clock: bool) -> list[Term]:
    """What SQL functions make of a column: `whole` numbers, `small` ones, times with a clock."""
    match term.family:
        case "number" if whole and small:
            return [
                applied("abs({})", "number", abs, term),
                applied("{} + 1", "number", lambda v: v + 1, term),
                applied("2 * {}", "number", lambda v: 2 * v, term),
                applied("(- {})", "number", lambda v: -v, term),
                applied("({} % 7)", "number", lambda v: int(math.fmod(v, 7)), term),
                applied(f"({term.sql} - {{}} % 10)", "number", _toward_zero, term),
                applied("({} / 4)", "number", lambda v: int(v / 4), term),
            ]
        case "text":
            return [
                applied("upper({})", "text", str.upper, term),
                applied("left({}, 2)", "text", lambda v: v[:2], term),
                applied("substr({}, 1, 1)", "text", lambda v: v[:1], term),
                applied("character_length({})", "number", len, term),
                applied("({} || 'x')", "text", lambda v: v + "x", term),
            ]
        case "float32" | "float64":
            return [applied("floor({})", term.family, _floor, term)]
        case "time":
            zone = term.zone
            parts = ["year", "month", "day"] + ["hour"] * has_clock
            return [
                *(
                    applied(f"date_part('{p}', {{}})", "number", _part(p, zone), term)
                    for p in parts
                ),
                applied("year({})", "number", _part("year", zone), term),
                applied("EXTRACT(MONTH FROM {})", "number", _part("month", zone), term),
                applied(
                    "CAST({} AS DATE)",
                    "time",
                    lambda v: Fraction((local(v, zone) - EPOCH).days * DAY),
                    term,
                ),
                *(
                    applied(f"date_trunc('{u}', {{}})", "time", _truncated(u, zone), term)
                    for u in ["year", "quarter", "month", "week", "day"]
                ),
            ]
    return []


def _toward_zero(value: Any) -> Any:
    return value - int(math.fmod(value, 10))


def _floor(value: tuple[bool, float]) -> tuple[bool, float]:
    nan, number = value
    return (nan, number if math.isinf(number) else float(math.floor(number)))


def _part(part: str, zone: str | None) -> Callable[[Fraction], int]:
    return lambda seconds: getattr(local(seconds, zone), part)


def _truncated(unit: str, zone: str | None) -> Callable[[Fraction], Fraction]:
    return lambda seconds: truncated(seconds, unit, zone)


# Constants ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constant:
    """How a constant is written, and the value it has beside a term's values."""

    sql: str
    value: Any


NULL = Constant("NULL", None)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def number(value: Fraction | int) -> Constant:
    with localcontext(prec=100):
        text = f"{Decimal(value.numerator) / Decimal(value.denominator):f}"
    return Constant(text, Fraction(text))


def time_text(clock: dt.datetime, nanos: int, between: str = "T") -> str:
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return clock.isoformat(sep=between) + fraction


# Conditions in three-valued logic -----------------------------------------------------------

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compared(op: str, left: Any, right: Any) -> bool | None:
    if op == "<=>":
        return (left is None) == (right is None) and (left is None or left == right)
    return None if left is None or right is None else COMPARISONS[op](left, right)


def comparison(left: Term, op: str, right: Constant | Term, flip: bool = False) -> Condition:
    """`left op right`, written the other way round with `flip`."""

    def holds(row: Row) -> bool | None:
        other = right.value(row) if isinstance(right, Term) else right.value
        return compared(op, left.value(row), other)

    flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
    return Condition(
        f"{right.sql} {flipped} {left.sql}" if flip else f"{left.sql} {op} {right.sql}", holds
    )


def any_of(values: list[bool | None]) -> bool | None:
    return True if True in values else None if None in values else False


def all_of(values: list[bool | None]) -> bool | None:
    return False if False in values else None if None in values else True


def opposite(value: bool | None) -> bool | None:
    return None if value is None else not value


def conjunction(conditions: list[Condition]) -> Condition:
    text = " AND ".join(f"({c.sql})" for c in conditions)
    return Condition(text, lambda row: all_of([c.holds(row) for c in conditions]))


def disjunction(conditions: list[Condition]) -> Condition:
    text = " OR ".join(f"({c.sql})" for c in conditions)
    return Condition(text, lambda row: any_of([c.holds(row) for c in conditions]))


def negation(condition: Condition) -> Condition:
    return Condition(f"NOT ({condition.sql})", lambda row: opposite(condition.holds(row)))


def is_truth(condition: Condition, wanted: bool | None, negated: bool) -> Condition:
    word = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[wanted]
    text = f"({condition.sql}) IS {'NOT ' * negated}{word}"
    return Condition(text, lambda row: (condition.holds(row) is wanted) != negated)


def is_null(term: Term, negated: bool) -> Condition:
    text = f"{term.sql} IS {'NOT ' * negated}NULL"
    return Condition(text, lambda row: (term.value(row) is None) != negated)


def membership(term: Term, constants: list[Constant], negated: bool) -> Condition:
    def holds(row: Row) -> bool | None:
        value = term.value(row)
        answer = any_of([compared("=", value, constant.value) for constant in constants])
        return opposite(answer) if negated else answer

    listed = ", ".join(constant.sql for constant in constants)
    return Condition(f"{term.sql} {'NOT ' * negated}IN ({listed})", holds)


def between(term: Term, low: Constant, high: Constant, negated: bool) -> Condition:
    def holds(row: Row) -> bool | None:
        value = term.value(row)
        answer = all_of([compared(">=", value, low.value), compared("<=", value, high.value)])
        return opposite(answer) if negated else answer

    return Condition(f"{term.sql} {'NOT ' * negated}BETWEEN {low.sql} AND {high.sql}", holds)


def like(term: Term, pattern: str, negated: bool) -> Condition:
    """% is any text, _ any character, and a backslash makes the next character plain."""
    regex, characters = "", iter(pattern)
    for char in characters:
        if char == "\\":
            regex += re.escape(next(characters, "\\"))
        else:
            regex += {"%": ".*", "_": "."}.get(char) or re.escape(char)

    def holds(row: Row) -> bool | None:
        value = term.value(row)
        if value is None:
            return None
        return bool(re.fullmatch(regex, value, re.DOTALL)) != negated

    return Condition(f"{term.sql} {'NOT ' * negated}LIKE {quoted(pattern)}", holds)


def truth(term: Term) -> Condition:
    """A boolean column as a condition."""
    return Condition(term.sql, lambda row: None if (v := term.value(row)) is None else bool(v))
