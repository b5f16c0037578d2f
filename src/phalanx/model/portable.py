"""Conditions that mean the same to Spark and to Phalanx.

The SQL of a constraint is Spark's. Some of it is SQL of filters too, but has another meaning there:
`x / 2` of integers, `log(x)`, text in double quotes, a backslash in a string. This module lets only
that through which both compute alike for every row: comparisons of a column with a constant or with
a column of its type, IN, BETWEEN, IS NULL, AND, OR and NOT.
"""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.literals import Literal
from phalanx.model.parser import parse
from phalanx.model.paths import join_path
from phalanx.model.predicates import FLIPPED, Call, Column, Name, Term
from phalanx.model.schema import TableSchema

#: The start of the keys by which Spark's own type and metadata of a column are kept, as JSON.
_SPARK = b"spark:"
_CHAR = re.compile(rb'"char\(')

#: Strings without an escape, and quoted names.
_QUOTED = re.compile(r"'[^'\\]*'|`[^`]*`")
_MARK = "\0"
#: What Spark reads in another way, or in a way that depends on its configuration: names or strings
#: in double quotes, backslashes, comments, doubles, and a quote that is doubled within quotes.
_OTHERWISE = re.compile(
    rf"""["'\\`]|--|/\*|(?<![\w.])(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE]|{_MARK}\s*{_MARK}"""
)
_DATE = re.compile(r"\bDATE\s*'([^']*)'", re.IGNORECASE)
_PLAIN_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
#: Spark compares a 64-bit integer as a decimal of 20 digits, and a decimal has at most 38.
_MOST_DIGITS = 18

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_TEXTS = (pa.string(), pa.large_string())


def parse_portable(sql: str, schema: TableSchema) -> Term:
    """The term of a condition that Spark and Phalanx decide alike for every row of a table.

    Raises InvalidInput for any other condition.
    """
    rest = _QUOTED.sub(_MARK, sql)
    other = _OTHERWISE.search(rest)
    if _MARK in sql or other is not None:
        shown = _MARK if other is None else other.group().replace(_MARK, "'")
        raise InvalidInput(f"Spark reads {shown!r} in another way")
    for text in _DATE.findall(sql):
        if not _PLAIN_DATE.fullmatch(text):
            raise InvalidInput(f"Spark may read the date {text!r} in another way")
    term = parse(sql)
    try:
        _Check(schema).condition(term)
    except RecursionError:
        raise InvalidInput("it is nested too deeply") from None
    return term


class _Check:
    """Refuses terms that are not known to mean the same."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema

    def condition(self, term: Term) -> None:
        match term:
            case Call(function="and" | "or" | "not", args=args):
                for arg in args:
                    self.condition(arg)
            case Call(function="is_null", args=(Name() as name,)):
                self._column(name)
            case Call(function="in", args=(Name() as name, *items)) if _are_literals(items):
                for item in items:
                    self._comparison(name, item)
            case Call(function=op, args=(left, right)) if op in FLIPPED or op == "<=>":
                self._comparison(left, right)
            case Literal(kind="boolean" | "null"):
                pass
            case Name():
                if not pa.types.is_boolean(self._column(term).type):
                    raise InvalidInput(f"{_text(term)} is not a condition")
            case _:
                raise InvalidInput(f"{_text(term)} may mean something else to Spark")

    def _comparison(self, left: Term, right: Term) -> None:
        if isinstance(left, Literal):
            left, right = right, left
        if not isinstance(left, Name) or not isinstance(right, Name | Literal):
            other = right if isinstance(left, Name) else left
            raise InvalidInput(f"{_text(other)} may mean something else to Spark")
        column = self._comparable(left)
        if isinstance(right, Name):
            same = _are_alike(column.type, self._comparable(right).type)
        else:
            same = right.kind == "null" or _fits(right, column.type)
        if not same:
            raise InvalidInput(
                f"Spark may compare {_text(left)}, which is {column.type}, with {_text(right)} as "
                "another type"
            )

    def _column(self, name: Name) -> Column:
        if len(name.path) > 1:
            raise InvalidInput(f"Spark may read {_text(name)} as something else than a field")
        return self._schema.column(name.path)

    def _comparable(self, name: Name) -> Column:
        """The column with a name. Raises InvalidInput for CHAR(n), which Spark pads."""
        column = self._column(name)
        metadata = self._schema.arrow.field(column.path[0]).metadata or {}
        if any(_CHAR.search(value) for key, value in metadata.items() if key.startswith(_SPARK)):
            raise InvalidInput(f"Spark pads {_text(name)} with blanks")
        return column


def _are_literals(items: list[Term]) -> bool:
    return all(isinstance(item, Literal) for item in items)


def _are_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two columns are compared without a cast that loses anything, and have no NaN."""
    if one in _INTEGERS:
        return other in _INTEGERS
    if one in _TEXTS:
        return other in _TEXTS
    t = pa.types
    is_timestamp = t.is_timestamp(one) and one.unit == "us"
    plain = t.is_boolean(one) or t.is_date32(one) or t.is_decimal128(one) or is_timestamp
    return bool(plain and one == other)


def _fits(literal: Literal, type: pa.DataType) -> bool:
    """Whether Spark compares a column of this type with a constant as its domain does."""
    t = pa.types
    match literal.kind:
        case "string":
            return type in _TEXTS
        case "boolean":
            return bool(t.is_boolean(type))
        case "date":
            return bool(t.is_date32(type))
        case "number":
            return _fits_number(literal.value, type)
    return False


def _fits_number(number: int | Decimal, type: pa.DataType) -> bool:
    t = pa.types
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        return False
    whole, scale = _digits(number)
    if type in _INTEGERS:
        return isinstance(number, int) or whole + scale <= _MOST_DIGITS
    if t.is_decimal128(type):
        most = type.precision - type.scale
        return bool(type.scale <= _MOST_DIGITS and whole <= most and scale <= type.scale)
    if t.is_float32(type):
        # Spark compares both as doubles.
        return bool(Decimal(float(np.float32(number))) == number)
    return bool(t.is_float64(type))


def _digits(number: int | Decimal) -> tuple[int, int]:
    """How many digits a number has before the point, and after it."""
    text = str(number) if isinstance(number, int) else f"{number:f}"
    before, _, after = text.lstrip("-").partition(".")
    return len(before.lstrip("0")), len(after)


def _text(term: Term) -> str:
    """What an error calls a term."""
    match term:
        case Name(path=path):
            return join_path(path)
        case Call(function=function):
            return function.upper().partition(":")[0]
    return f"the constant {term.value!r}" if isinstance(term, Literal) else repr(term)
