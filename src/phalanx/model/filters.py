"""Filters: what a parsed condition means for the rows of a table.

`bind` turns a term into a predicate. Names become columns, constants are computed, NOT is pushed
down to the comparisons, and a comparison with a constant becomes a set of values.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.dialect import to_text
from phalanx.model.domains import BooleanDomain, TextDomain, domain_of
from phalanx.model.expressions import evaluate_predicate, fold, type_of, volatile_functions
from phalanx.model.literals import NULL, Literal
from phalanx.model.predicates import (
    CONDITIONS,
    FLIPPED,
    NEGATED,
    NOTHING,
    Call,
    Column,
    Constant,
    Predicate,
    Resolve,
    Term,
    columns_of,
    conjoin,
    disjoin,
    invert,
    is_syntax,
    like_prefix,
    resolve_names,
    restrict,
)
from phalanx.model.schema import extract
from phalanx.model.sets import ALL_VALUES, EMPTY, NULL_ONLY, ValueSet
from phalanx.model.spelling import type_name

#: Functions of the clock: `freeze` replaces them by constants.
_CLOCK = {"now", "current_timestamp", "current_date", "current_time", "today"}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY_NANOS = 86_400 * 1_000_000_000


def bind(term: Term, resolve: Resolve, now: dt.datetime | None = None) -> Predicate:
    """The predicate that a parsed boolean term means.

    `now` is the instant that `now()` and `current_date` stand for; without it they are refused.
    Raises InvalidInput for an unknown column, a volatile function, a comparison between kinds
    that have no order in common, or a term that is not a boolean.
    """
    try:
        term = resolve_names(term, resolve)
        frozen = term if now is None else freeze(term, now)
        refuse_volatile(frozen)
        return _Binder().predicate(frozen, negated=False)
    except RecursionError:
        raise InvalidInput("the filter is nested too deeply") from None


def freeze(term: Term, now: dt.datetime, zoned: bool = False) -> Term:
    """The term with `now()` and the other functions of the clock replaced by constants.

    All of them stand for the instant `now`, an aware datetime. `now()` is a timestamp with a zone
    if `zoned`, and in a comparison that reads a column with one: there UTC's clock would be read as
    the column's. Otherwise it has none, like the columns beside it, and shows UTC's clock. Dates
    and times of the day are always UTC's. Raises InvalidInput where one is called with arguments.
    """
    if not isinstance(term, Call):
        return term
    if term.function not in _CLOCK:
        if term.function not in ("and", "or", "not"):
            zoned = zoned or any(_has_zone(column) for column in columns_of(term))
        args = tuple(freeze(arg, now, zoned) for arg in term.args)
        return Call(term.function, _in_one_zone(args) if term.function == "-" else args)
    if term.args:
        raise InvalidInput(f"cannot evaluate {to_text(term)}: {term.function} takes no arguments")
    nanos = (now - _EPOCH) // dt.timedelta(microseconds=1) * 1_000
    days, clock = divmod(nanos, _DAY_NANOS)
    match term.function:
        case "current_date" | "today":
            return Literal("date", days)
        case "current_time":
            return Literal("time", clock)
    return Literal("timestamp", nanos, zoned)


def _in_one_zone(args: tuple[Term, ...]) -> tuple[Term, ...]:
    """A column and an instant with the column's zone: DataFusion subtracts no others."""
    zones = {arg.type.tz for arg in args if isinstance(arg, Column) and _has_zone(arg)}
    if len(zones) != 1:
        return args
    type = Literal("string", type_name(pa.timestamp("ns", *zones)))
    return tuple(
        Call("arrow_cast", (arg, type)) if isinstance(arg, Literal) and arg.zoned else arg
        for arg in args
    )


def _has_zone(column: Column) -> bool:
    return bool(pa.types.is_timestamp(column.type) and column.type.tz is not None)


def refuse_volatile(term: Term) -> None:
    """Raise InvalidInput where a filter would give another answer for the same row."""
    if isinstance(term, Call):
        # Most filters are made of operators alone: DataFusion need not be loaded for them.
        if not is_syntax(term) and term.function in volatile_functions():
            raise InvalidInput(f"{term.function}() is volatile and cannot be used in a filter")
        for arg in term.args:
            refuse_volatile(arg)


def matches(predicate: Predicate, table: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """For each row of a table, whether a predicate is true."""
    columns = {c.field_id: extract(table, c.path) for c in columns_of(predicate)}
    answers = evaluate_predicate(predicate, columns, table.num_rows)
    return np.asarray(answers.fill_null(False)).astype(bool)


class _Binder:
    def predicate(self, term: Term, negated: bool) -> Predicate:
        match term:
            case Call(function="and" | "or", args=args):
                together = conjoin if (term.function == "and") != negated else disjoin
                return together(self.predicate(arg, negated) for arg in args)
            case Call(function="not", args=(inner,)):
                return self.predicate(inner, not negated)
            case Call(function=op, args=(left, right)) if op in FLIPPED:
                return self._comparison(op, left, right, negated)
            case Call(function="<=>", args=(left, right)):
                return self._same(left, right, negated)
            case Call(function="in", args=(inner, *items)):
                return self._membership(inner, items, negated, term)
            case Call(function="is_null", args=(Call(function=inner_function) as inner,)) if (
                inner_function in CONDITIONS
            ):
                true, false = self.predicate(inner, False), self.predicate(inner, True)
                return disjoin([true, false]) if negated else invert(disjoin([true, false]))
            case Call(function="is_null", args=(inner,)):
                inner = self._constant(inner)
                if isinstance(inner, Literal):
                    return Constant((inner.kind == "null") != negated)
                inner, type = self._typed(inner)
                return restrict(inner, type, ALL_VALUES if negated else NULL_ONLY)
            case Call(function="is_true" | "is_false", args=(inner,)):
                condition = self.predicate(inner, negated=term.function == "is_false")
                return invert(condition) if negated else condition
            case Call(function="like" | "ilike", args=(inner, pattern)):
                return self._like(inner, self._constant(pattern), negated, term.function)
            case Literal(kind="null"):
                return NOTHING
            case Literal(kind="boolean", value=value):
                return Constant(value != negated)
        return self._boolean(term, BooleanDomain().point(0 if negated else 1))

    def _typed(self, term: Term) -> tuple[Term, pa.DataType]:
        if isinstance(term, Column):
            return term, term.type
        return term, type_of(term)

    def _boolean(self, term: Term, values: ValueSet) -> Predicate:
        term, type = self._typed(term)
        if not pa.types.is_boolean(type):
            raise InvalidInput(f"{to_text(term)} is not a condition: it is of type {type}")
        constant = self._constant(term)
        if isinstance(constant, Literal):
            point = NULL_ONLY if constant.kind == "null" else BooleanDomain().point(constant.value)
            return Constant(not (values & point).is_empty)
        return restrict(term, type, values)

    def _constant(self, term: Term) -> Term:
        """A literal where the term reads no column, else the term."""
        if isinstance(term, Call) and next(columns_of(term), None) is None:
            return fold(term)
        return term

    def _comparison(self, op: str, left: Term, right: Term, negated: bool) -> Predicate:
        left, right = self._constant(left), self._constant(right)
        if isinstance(left, Literal) and not isinstance(right, Literal):
            left, right, op = right, left, FLIPPED[op]
        if _comparable(right) and not isinstance(left, Literal):
            if right == NULL:
                return NOTHING
            left, type = self._typed(left)
            domain = domain_of(type)
            values = domain.compare(NEGATED[op] if negated else op, right)
            return restrict(left, type, values)
        if NULL in (left, right):
            return NOTHING
        return self._boolean(Call(op, (left, right)), BooleanDomain().point(0 if negated else 1))

    def _same(self, left: Term, right: Term, negated: bool) -> Predicate:
        left, right = self._constant(left), self._constant(right)
        if isinstance(left, Literal):
            left, right = right, left
        if _comparable(right) and not isinstance(left, Literal):
            left, type = self._typed(left)
            values = NULL_ONLY if right.kind == "null" else domain_of(type).compare("=", right)
            if negated:
                values = values.complement(null=not values.null)
            return restrict(left, type, values)
        call = Call("<=>", (left, right))
        return self._boolean(call, BooleanDomain().point(0 if negated else 1))

    def _membership(self, inner: Term, items: list[Term], negated: bool, term: Call) -> Predicate:
        inner = self._constant(inner)
        constants = [self._constant(item) for item in items]
        literals = [item for item in constants if _comparable(item)]
        if len(literals) < len(constants) or isinstance(inner, Literal):
            return self._boolean(term, BooleanDomain().point(0 if negated else 1))
        inner, type = self._typed(inner)
        domain = domain_of(type)
        sets = [domain.compare("=", item) for item in literals if item.kind != "null"]
        values = ValueSet.of(interval for points in sets for interval in points.intervals)
        if negated:
            has_null = len(sets) < len(literals)
            values = EMPTY if has_null else values.complement(null=False)
        return restrict(inner, type, values)

    def _like(self, inner: Term, pattern: Term, negated: bool, function: str) -> Predicate:
        inner = self._constant(inner)
        if NULL in (inner, pattern):
            return NOTHING
        inner, type = self._typed(inner)
        domain = domain_of(type)
        if not isinstance(domain, TextDomain):
            raise InvalidInput(f"LIKE needs a string, and {to_text(inner)} is {type}")
        term = Call(function, (inner, pattern))
        if (
            function == "ilike"
            or isinstance(inner, Literal)
            or not isinstance(pattern, Literal)
            or pattern.kind != "string"
        ):
            return self._boolean(term, BooleanDomain().point(0 if negated else 1))
        prefix, rest = like_prefix(pattern.value)
        if rest == "":
            values = domain.point(prefix)
        elif rest == "%":
            values = domain.prefix(prefix)
        else:
            return restrict(term, pa.bool_(), BooleanDomain().point(0 if negated else 1))
        return restrict(inner, type, values.complement(null=False) if negated else values)


def _comparable(term: Term) -> TypeGuard[Literal]:
    """Whether a term is a constant that a column's domain can place; intervals are not."""
    return isinstance(term, Literal) and term.kind != "interval"
