"""Predicates: which rows a query wants, as a small tree that pruning can reason about.

Two layers:

* **Terms** compute a value from a row: a `Column`, a `Literal`, or a `Call` of a function or
  operator. They come from the parser (`phalanx.model.parser`) or from an engine's own filters.
* **Predicates** say when a row is wanted: `And`, `Or`, `Constant`, and `Restrict(term, values)`,
  which is true for the rows whose term lies in a set of values. NOT has been pushed down and
  every comparison with a constant has become a set, so a predicate is exactly the set of rows
  for which the SQL is TRUE.

`phalanx.model.filters` makes a predicate from a parsed term and a schema;
`phalanx.model.dialect` writes one as SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from phalanx.model.literals import Literal
from phalanx.model.sets import ValueSet, intersection, union


@dataclass(frozen=True)
class Name:
    """A column as it was written, before it is looked up in a schema."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """A column of the table. Its field id identifies it; its path is its present name."""

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

INFIX = frozenset({*FLIPPED, "+", "-", "*", "/", "%", "||"})
#: Calls that are TRUE, FALSE or NULL by themselves.
CONDITIONS = frozenset(
    {*FLIPPED, "and", "or", "not", "<=>", "in", "is_null", "is_true", "is_false", "like", "ilike"}
)

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


def is_syntax(call: Call) -> bool:
    """Whether a call is an operator or another part of SQL's grammar, and not a function."""
    name = call.function
    return name in INFIX or name in CONDITIONS or name == "negate" or name.startswith("cast:")


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
    """A restriction, simplified. For a column that cannot be NULL, NULL makes no difference."""
    if isinstance(term, Column) and not term.nullable:
        if not values.intervals:
            return NOTHING
        values = values.with_null(True) if values.has_all_values else values.with_null(False)
    return _simplified(Restrict(term, type, values))


def resolve_names(term: Term, resolve: Resolve) -> Term:
    """The term with every name replaced by the column it names."""
    match term:
        case Name(path=path):
            return resolve(path)
        case Call(function=function, args=args):
            return Call(function, tuple(resolve_names(arg, resolve) for arg in args))
    return term


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
