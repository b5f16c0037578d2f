"""Spark's filters as the model's predicates.

Spark sends an expression of its connector API as JSON: `{"column": […]}`, `{"value": …, "type":
…}` or `{"call": …, "args": […]}`. What means exactly the same in the model is translated; for
everything else `Untranslatable` is raised, and Spark applies the filter itself.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.calendar import UNITS, is_utc
from phalanx.model.filters import bind
from phalanx.model.literals import FALSE, NULL, TRUE, Literal
from phalanx.model.predicates import Call, Name, Predicate, Term, conjoin
from phalanx.model.schema import TableSchema

Expression = Mapping[str, Any]

_SAME = {"=", "<>", "<", "<=", ">", ">=", "<=>"}
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: What EXTRACT can take from a time, by the name that Spark has for it.
PARTS = {name.upper(): name for name in UNITS}
#: Whole numbers, with their bits.
_NUMBERS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DAY = 86_400 * 1_000_000_000


class Untranslatable(Exception):
    """The model has no predicate that means the same as the filter."""


def predicate_of(filter: Expression, schema: TableSchema, zone: str) -> Predicate:
    """A filter as a predicate. Raises Untranslatable."""
    try:
        return bind(_Translator(schema, zone).term(filter), schema.column)
    except InvalidInput as error:
        raise Untranslatable(str(error)) from None


def conjunction_of(filters: Sequence[Expression], schema: TableSchema, zone: str) -> Predicate:
    """All filters as one predicate. Raises Untranslatable if any of them cannot be translated."""
    return conjoin([predicate_of(filter, schema, zone) for filter in filters])


class _Translator:
    def __init__(self, schema: TableSchema, zone: str) -> None:
        self._schema, self._utc = schema, is_utc(zone)

    def term(self, node: Expression) -> Term:
        if "column" in node:
            return Name(tuple(node["column"]))
        if "type" in node:
            return _literal(node["value"], json.loads(node["type"]))
        name, args = node["call"], node["args"]
        match name:
            case "AND" | "OR" | "NOT":
                return Call(name.lower(), tuple(self.term(arg) for arg in args))
            case "ALWAYS_TRUE":
                return TRUE
            case "ALWAYS_FALSE":
                return FALSE
            case "IS_NULL":
                return Call("is_null", (self.term(args[0]),))
            case "IS_NOT_NULL":
                return Call("not", (Call("is_null", (self.term(args[0]),)),))
            case "STARTS_WITH" | "ENDS_WITH" | "CONTAINS":
                return self._like(name, args)
            case "IN":
                if _is_date_of(args[0]):
                    same = [self._dates("=", args[0], item) for item in args[1:]]
                    return Call("or", tuple(same)) if len(same) > 1 else same[0]
                return Call("in", tuple(self.term(arg) for arg in args))
            case "EXTRACT":
                return self._part(node["field"], args[0])
            case "%":
                return self._remainder(*args)
        if name in _SAME:
            left, right = args
            if _is_date_of(right):
                left, right, name = right, left, _FLIPPED.get(name, name)
            if _is_date_of(left):
                return self._dates(name, left, right)
            return Call(name, (self.term(left), self.term(right)))
        raise Untranslatable(name)

    def _like(self, name: str, args: Sequence[Expression]) -> Term:
        text = self.term(args[1])
        if not isinstance(text, Literal) or text.kind != "string":
            raise Untranslatable(name)
        pattern = text.value
        for special in ("\\", "%", "_"):
            pattern = pattern.replace(special, "\\" + special)
        pattern = pattern if name == "STARTS_WITH" else "%" + pattern
        pattern = pattern if name == "ENDS_WITH" else pattern + "%"
        return Call("like", (self.term(args[0]), Literal("string", pattern)))

    def _part(self, field: str, source: Expression) -> Term:
        """`year(ts)`, which means the same as a partition field only if the session is in UTC."""
        part, source = PARTS.get(field.upper()), without_cast(source)
        if part is None or "column" not in source:
            raise Untranslatable(field)
        self._check_zone(source)
        return Call("date_part", (Literal("string", part), self.term(source)))

    def _remainder(self, source: Expression, divisor: Expression) -> Term:
        """`c % n` of a whole number by a positive one: no value of `c` makes it fail."""
        cast = json.loads(source["to"]) if source.get("call") == "CAST" else "long"
        source = source["args"][0] if source.get("call") == "CAST" else source
        if "column" not in source or not pa.types.is_signed_integer(self._type(source)):
            raise Untranslatable("a remainder of something else than a column of whole numbers")
        if _bits(cast) < self._type(source).bit_width:
            raise Untranslatable("a cast that not all values survive")
        by, largest = self.term(divisor), 2 ** (self._type(source).bit_width - 1) - 1
        if not isinstance(by, Literal) or not isinstance(by.value, int) or by.value < 1:
            raise Untranslatable("a remainder by something else than a positive whole number")
        if by.value > largest:  # Lance takes it as a value of the column's type
            raise Untranslatable("a remainder by a number that the column cannot hold")
        return Call("%", (self.term(source), by))

    def _dates(self, op: str, cast: Expression, other: Expression) -> Term:
        """`CAST(ts AS DATE) < d` as a range of instants."""
        column = cast["args"][0]
        if not pa.types.is_timestamp(self._type(column)):
            raise Untranslatable("a cast to a date")
        self._check_zone(column)
        day = self.term(other)
        if not isinstance(day, Literal) or day.kind != "date":
            raise Untranslatable("a date that is not a constant")
        name, zoned = self.term(column), self._type(column).tz is not None
        first = Literal("timestamp", day.value * _DAY, zoned)
        after = Literal("timestamp", (day.value + 1) * _DAY, zoned)
        match op:
            case "=":
                return Call("and", (Call(">=", (name, first)), Call("<", (name, after))))
            case "<>":
                return Call("or", (Call("<", (name, first)), Call(">=", (name, after))))
            case "<":
                return Call("<", (name, first))
            case "<=":
                return Call("<", (name, after))
            case ">":
                return Call(">=", (name, after))
            case ">=":
                return Call(">=", (name, first))
        raise Untranslatable(op)

    def _type(self, column: Expression) -> pa.DataType:
        return self._schema.column(tuple(column["column"])).type

    def _check_zone(self, column: Expression) -> None:
        type = self._type(column)
        if pa.types.is_timestamp(type) and type.tz is not None and not self._utc:
            raise Untranslatable("the session's time zone is not UTC")


def without_cast(node: Expression) -> Expression:
    """The column under a cast to a date: Spark's `year(ts)` is `year(CAST(ts AS DATE))`."""
    source: Expression = node["args"][0] if _is_date_of(node) else node
    return source


def _is_date_of(node: Expression) -> bool:
    """Whether an expression is `CAST(<timestamp column> AS DATE)`."""
    return (
        node.get("call") == "CAST"
        and json.loads(node["to"]) == "date"
        and "column" in node["args"][0]
    )


def _literal(value: Any, type: Any) -> Literal:
    if value is None:
        return NULL
    if _bits(type):
        return Literal("number", int(value))
    if isinstance(type, str) and type.startswith("decimal"):
        return Literal("number", Decimal(value))
    match type:
        case "boolean":
            return TRUE if value else FALSE
        case "string" | "string collate UTF8_BINARY":
            return Literal("string", value)
        case "binary":
            return Literal("binary", base64.b64decode(value))
        case "date":
            return Literal("date", int(value))
        case "timestamp" | "timestamp_ntz":
            return Literal("timestamp", int(value) * 1_000, zoned=type == "timestamp")
        case "float" | "double":
            return Literal("number", _exactly(value, type))
    raise Untranslatable(f"a constant of type {type}")


def _bits(type: Any) -> int:
    """How many bits a type of whole numbers has; 0 for other types, some of which are dicts."""
    return _NUMBERS.get(type, 0) if isinstance(type, str) else 0


def _exactly(text: str, type: str) -> Decimal:
    """The exact value of a float, which its shortest spelling only approximates."""
    number = float(text)
    if type == "float":
        (number,) = struct.unpack("<f", struct.pack("<f", number))
    exact = Decimal(number)
    if not exact.is_finite():
        raise Untranslatable(text)
    return exact
