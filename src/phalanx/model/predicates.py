"""Predicates: which rows a query wants, as a small tree that pruning can reason about.

Two layers:

* **Terms** compute a value from a row: a `Column`, a `Literal`, or a `Call` of a function or
  operator. They come from the parser (`phalanx.model.parser`) or from an engine's own filters.
* **Predicates** say when a row is wanted: `And`, `Or`, `Constant`, and `Restrict(term, values)`,
  which is true for the rows whose term lies in a set of values. NOT has been pushed down and
  every comparison with a constant has become a set, so a predicate is exactly the set of rows
  for which the SQL is TRUE.

`bind` makes a predicate from a parsed term and a schema; `to_sql` spells one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.domains import (
    NULL,
    BooleanDomain,
    Literal,
    TextDomain,
    domain_of,
)
from phalanx.model.sets import (
    ALL_VALUES,
    EMPTY,
    FULL,
    NULL_ONLY,
    ValueSet,
    intersection,
    union,
)


@dataclass(frozen=True)
class Name:
    """A column as it was written, before a schema has given it an identity."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """A column of the table: its field id is what it is, its path what it is called."""

    path: tuple[str, ...]
    field_id: int
    type: pa.DataType
    nullable: bool = True


@dataclass(frozen=True)
class Call:
    """A function or operator applied to terms. `function` is in lower case."""

    function: str
    args: tuple[Term, ...]


Term = Name | Column | Literal | Call


@dataclass(frozen=True)
class Restrict:
    """The rows whose term lies in `values`; `type` is the term's type."""

    term: Term
    type: pa.DataType
    values: ValueSet


@dataclass(frozen=True)
class And:
    children: tuple[Predicate, ...]


@dataclass(frozen=True)
class Or:
    children: tuple[Predicate, ...]


@dataclass(frozen=True)
class Constant:
    value: bool


Predicate = Restrict | And | Or | Constant

EVERYTHING = Constant(True)
NOTHING = Constant(False)

#: `a op b` is `b flipped[op] a`, and NOT (a op b) is `a negated[op] b`.
FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}

#: Functions that the binder takes apart itself.
_CONDITIONS = {
    *FLIPPED,
    "and",
    "or",
    "not",
    "<=>",
    "in",
    "is_null",
    "is_true",
    "is_false",
    "like",
    "ilike",
}

#: Finds the column with a name.
Resolve = Callable[[tuple[str, ...]], Column]


def columns_of(node: Term | Predicate) -> Iterator[Column]:
    """Every column a term or predicate reads, repeats included."""
    match node:
        case Column():
            yield node
        case Call(args=args):
            for arg in args:
                yield from columns_of(arg)
        case Restrict(term=term):
            yield from columns_of(term)
        case And(children=children) | Or(children=children):
            for child in children:
                yield from columns_of(child)


def conjoin(children: Iterable[Predicate]) -> Predicate:
    """AND, flattened, with restrictions on the same term intersected."""
    return _combine(children, And, NOTHING, EVERYTHING, intersection)


def disjoin(children: Iterable[Predicate]) -> Predicate:
    """OR, flattened, with restrictions on the same term united."""
    return _combine(children, Or, EVERYTHING, NOTHING, union)


def _combine(
    children: Iterable[Predicate],
    node: type[And] | type[Or],
    absorbing: Constant,
    neutral: Constant,
    merge: Callable[[Sequence[ValueSet]], ValueSet],
) -> Predicate:
    flat: list[Predicate] = []
    for child in children:
        flat.extend(child.children if isinstance(child, node) else [child])
    grouped: dict[Term | Predicate, list[Predicate]] = {}
    for child in flat:
        if child == absorbing:
            return absorbing
        if child != neutral:
            key = child.term if isinstance(child, Restrict) else child
            grouped.setdefault(key, []).append(child)
    kept = []
    for child, *others in grouped.values():
        if isinstance(child, Restrict):
            sets = [same.values for same in (child, *others) if isinstance(same, Restrict)]
            child = restrict(child.term, child.type, merge(sets) if others else child.values)
        kept.append(child)
    if absorbing in kept:
        return absorbing
    kept = [child for child in kept if child != neutral]
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else node(tuple(kept))


def _simplified(node: Predicate) -> Predicate:
    if isinstance(node, Restrict):
        if node.values.is_empty:
            return NOTHING
        if node.values.is_full:
            return EVERYTHING
    return node


def invert(node: Predicate) -> Predicate:
    """The rows that a predicate does not want. (NOT in SQL leaves out those it is NULL for.)"""
    match node:
        case Constant(value=value):
            return Constant(not value)
        case And(children=children):
            return disjoin(invert(child) for child in children)
        case Or(children=children):
            return conjoin(invert(child) for child in children)
        case Restrict(term=term, type=type, values=values):
            return restrict(term, type, values.complement(null=not values.null))
    raise AssertionError(node)


def restrict(term: Term, type: pa.DataType, values: ValueSet) -> Predicate:
    """A restriction, simplified. A column that cannot be NULL counts NULL as wanted."""
    if isinstance(term, Column) and not term.nullable:
        if not values.intervals:
            return NOTHING
        values = values.with_null(True) if values.has_all_values else values.with_null(False)
    return _simplified(Restrict(term, type, values))


def bind(term: Term, resolve: Resolve, now: dt.datetime | None = None) -> Predicate:
    """The predicate that a parsed boolean term means.

    `now` is the instant that `now()` and `current_date` stand for; without it they are refused.
    Raises InvalidInput for an unknown column, a volatile function, a comparison between kinds
    that have no order in common, or a term that is not a boolean.
    """
    from phalanx.model.expressions import freeze, refuse_volatile

    try:
        frozen = term if now is None else freeze(term, now)
        refuse_volatile(frozen)
        return _Binder().predicate(resolve_names(frozen, resolve), negated=False)
    except RecursionError:
        raise InvalidInput("the filter is nested too deeply") from None


def resolve_names(term: Term, resolve: Resolve) -> Term:
    """The term with every name replaced by the column it names."""
    match term:
        case Name(path=path):
            return resolve(path)
        case Call(function=function, args=args):
            return Call(function, tuple(resolve_names(arg, resolve) for arg in args))
    return term


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
                inner_function in _CONDITIONS
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
                found = self.predicate(inner, negated=term.function == "is_false")
                return invert(found) if negated else found
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
        from phalanx.model.expressions import type_of

        return term, type_of(term)

    def _boolean(self, term: Term, values: ValueSet) -> Predicate:
        term, type = self._typed(term)
        if not pa.types.is_boolean(type):
            raise InvalidInput(f"{to_text(term)} is no condition: it is of type {type}")
        constant = self._constant(term)
        if isinstance(constant, Literal):
            point = NULL_ONLY if constant.kind == "null" else BooleanDomain().point(constant.value)
            return Constant(not (values & point).is_empty)
        return restrict(term, type, values)

    def _constant(self, term: Term) -> Term:
        """A literal where the term reads no column, else the term."""
        if isinstance(term, Call) and next(columns_of(term), None) is None:
            from phalanx.model.expressions import fold

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
        values = ValueSet.of(interval for found in sets for interval in found.intervals)
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


def like_prefix(pattern: str) -> tuple[str, str]:
    """The characters before the first wildcard, unescaped, and the pattern from there on."""
    prefix = ""
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char in "%_":
            break
        if char == "\\" and position + 1 < len(pattern):
            position += 1
            char = pattern[position]
        prefix += char
        position += 1
    rest = pattern[position:]
    return prefix, "%" if rest and not rest.strip("%") else rest


# Spelling ------------------------------------------------------------------------------------

_INFIX = {"+", "-", "*", "/", "%", "||", "=", "<>", "<", "<=", ">", ">="}


class Dialect:
    """How to write names and typed constants. The default is the SQL our own parser reads."""

    def name(self, column: Column) -> str:
        return ".".join(_quoted(part) for part in column.path)

    def constant(self, key: Any, type: pa.DataType) -> str:
        from phalanx.model.spelling import sql_literal

        return sql_literal(key, type)

    def literal(self, literal: Literal) -> str:
        from phalanx.model.spelling import spell_literal

        return spell_literal(literal)

    def term(self, term: Term) -> str:
        match term:
            case Column():
                return self.name(term)
            case Name(path=path):
                return ".".join(_quoted(part) for part in path)
            case Literal():
                return self.literal(term)
            case Call():
                return self._call(term.function, [self.term(arg) for arg in term.args])
        raise AssertionError(term)

    def _call(self, function: str, args: list[str]) -> str:
        if function in _INFIX:
            return f"({args[0]} {function} {args[1]})"
        match function:
            case "and" | "or":
                return "(" + f" {function.upper()} ".join(args) + ")"
            case "not":
                return f"(NOT {args[0]})"
            case "negate":
                return f"(- {args[0]})"
            case "<=>":
                return f"({args[0]} IS NOT DISTINCT FROM {args[1]})"
            case "is_null":
                return f"({args[0]} IS NULL)"
            case "is_true" | "is_false":
                return f"({args[0]} IS {function[3:].upper()})"
            case "in":
                return f"({args[0]} IN ({', '.join(args[1:])}))"
            case "like" | "ilike":
                return f"({args[0]} {function.upper()} {args[1]})"
        if function.startswith("cast:"):
            return f"CAST({args[0]} AS {function[5:]})"
        return f"{function}({', '.join(args)})"

    def predicate(self, node: Predicate, nested: bool = False) -> str:
        match node:
            case Constant(value=value):
                return "TRUE" if value else "FALSE"
            case And(children=children):
                text = " AND ".join(self.predicate(c, nested=True) for c in children)
                return f"({text})" if nested else text
            case Or(children=children):
                text = " OR ".join(self.predicate(c, nested=True) for c in children)
                return f"({text})" if nested else text
            case Restrict():
                return self._restrict(node, nested)
        raise AssertionError(node)

    def _restrict(self, node: Restrict, nested: bool) -> str:
        from phalanx.model.spelling import clauses

        term = self.term(node.term)
        parts = clauses(term, node, self.constant)
        text = " OR ".join(parts) if len(parts) > 1 else parts[0]
        needs = len(parts) > 1 or " AND " in text
        return f"({text})" if nested and needs else text


SQL = Dialect()


def to_sql(node: Predicate) -> str:
    """The predicate as SQL that a person reads and `phalanx.model.parser` parses back."""
    return SQL.predicate(node)


def term_to_sql(term: Term) -> str:
    return SQL.term(term)


class _ForPeople(Dialect):
    """The same with long constants cut, for plans and messages."""

    def constant(self, key: Any, type: pa.DataType) -> str:
        from phalanx.model.spelling import shortened

        return shortened(super().constant(key, type))

    def literal(self, literal: Literal) -> str:
        from phalanx.model.spelling import shortened

        return shortened(super().literal(literal))


def to_text(node: Predicate | Term) -> str:
    """A predicate or a term for people to read. It need not parse."""
    people = _ForPeople()
    return people.predicate(node) if isinstance(node, Predicate) else people.term(node)


def _quoted(part: str) -> str:
    if part.isidentifier() and part.isascii() and part.upper() not in RESERVED:
        return part
    return '"' + part.replace('"', '""') + '"'


_KEYWORDS = """
AND OR NOT IN IS NULL TRUE FALSE LIKE ILIKE BETWEEN CAST EXTRACT DISTINCT FROM ESCAPE UNKNOWN
AS CASE WHEN THEN ELSE END CURRENT_TIMESTAMP CURRENT_DATE CURRENT_TIME
"""
#: Words that are never a column's name unless they are quoted.
RESERVED = frozenset(_KEYWORDS.split())

__all__ = [
    "EVERYTHING",
    "FULL",
    "NOTHING",
    "And",
    "Call",
    "Column",
    "Constant",
    "Dialect",
    "Name",
    "Or",
    "Predicate",
    "Restrict",
    "Term",
    "bind",
    "columns_of",
    "conjoin",
    "disjoin",
    "restrict",
    "term_to_sql",
    "to_sql",
    "to_text",
]
