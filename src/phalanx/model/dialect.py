"""Terms and predicates as SQL text.

A `Dialect` says how names and constants are written; the rest of SQL is the same for everyone who
reads it: our own parser, DataFusion, Lance, and people.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from phalanx.model.domains import Domain, FloatDomain, TemporalDomain, TextDomain, domain_of
from phalanx.model.literals import Literal, spell_literal
from phalanx.model.predicates import (
    INFIX,
    And,
    Call,
    Column,
    Constant,
    Name,
    Or,
    Predicate,
    Restrict,
    Term,
)
from phalanx.model.spelling import shortened, sql_literal

_KEYWORDS = """
AND OR NOT IN IS NULL TRUE FALSE LIKE ILIKE BETWEEN CAST EXTRACT DISTINCT FROM ESCAPE UNKNOWN
AS CASE WHEN THEN ELSE END CURRENT_TIMESTAMP CURRENT_DATE CURRENT_TIME
"""
#: Words that are never a column's name unless they are quoted.
RESERVED = frozenset(_KEYWORDS.split())


class Dialect:
    """How to write names and typed constants. The default is the SQL our own parser reads."""

    def name(self, column: Column) -> str:
        return ".".join(_quoted(part) for part in column.path)

    def constant(self, key: Any, type: pa.DataType) -> str:
        return sql_literal(key, type)

    def literal(self, literal: Literal) -> str:
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
        if function in INFIX:
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
        clauses = self._clauses(node)
        text = " OR ".join(clauses)
        needs_parentheses = len(clauses) > 1 or " AND " in text
        return f"({text})" if nested and needs_parentheses else text

    def _clauses(self, node: Restrict) -> list[str]:
        """A restriction as clauses to be joined by OR."""
        term, values = self.term(node.term), node.values
        clauses: list[str] = []
        if values.has_all_values:
            clauses.append(f"{term} IS NOT NULL")
        elif pa.types.is_boolean(node.type):
            if values.intervals:
                wants_true = values.intervals[0][0] == 1
                clauses.append(term if wants_true else f"NOT {term}")
        else:
            clauses.extend(self._value_clauses(term, node))
        if values.null:
            clauses.append(f"{term} IS NULL")
        return clauses or ["FALSE"]

    def _value_clauses(self, term: str, node: Restrict) -> list[str]:
        type, intervals, domain = node.type, node.values.intervals, domain_of(node.type)
        holes = [domain.single(gap) for gap in node.values.gaps()]
        if len(intervals) > 1 and None not in holes:
            return [_equal(term, [self.constant(key, type) for key in holes], negated=True)]
        singles = [domain.single(interval) for interval in intervals]
        points = [key for key in singles if key is not None]
        clauses = [_equal(term, [self.constant(key, type) for key in points])] if points else []
        for (low, high), single in zip(intervals, singles, strict=True):
            if single is not None:
                continue
            bounds = []
            if low is not None:
                op, key = _lower(low, domain)
                bounds.append(f"{term} {op} {self.constant(key, type)}")
            if high is not None:
                op, key = _upper(high, domain)
                bounds.append(f"{term} {op} {self.constant(key, type)}")
            text = " AND ".join(bounds)
            clauses.append(f"({text})" if len(intervals) > 1 and len(bounds) > 1 else text)
        return clauses


class _ForPeople(Dialect):
    """SQL for plans and messages: long constants are shortened."""

    def constant(self, key: Any, type: pa.DataType) -> str:
        return shortened(super().constant(key, type))

    def literal(self, literal: Literal) -> str:
        return shortened(super().literal(literal))


_SQL, _PEOPLE = Dialect(), _ForPeople()


def to_sql(node: Predicate) -> str:
    """The predicate as SQL that a person reads and `phalanx.model.parser` parses back."""
    return _SQL.predicate(node)


def term_to_sql(term: Term) -> str:
    """The term as SQL that `phalanx.model.parser` parses back."""
    return _SQL.term(term)


def to_text(node: Predicate | Term) -> str:
    """A predicate or a term for people to read. It need not parse."""
    return _PEOPLE.predicate(node) if isinstance(node, Predicate) else _PEOPLE.term(node)


def _quoted(part: str) -> str:
    if part.isidentifier() and part.isascii() and part.upper() not in RESERVED:
        return part
    return '"' + part.replace('"', '""') + '"'


def _equal(term: str, constants: list[str], negated: bool = False) -> str:
    if len(constants) == 1:
        return f"{term} {'<>' if negated else '='} {constants[0]}"
    return f"{term} {'NOT IN' if negated else 'IN'} ({', '.join(constants)})"


def _lower(key: Any, domain: Domain) -> tuple[str, Any]:
    before = _predecessor(key, domain)
    return (">=", key) if before is None else (">", before)


def _upper(key: Any, domain: Domain) -> tuple[str, Any]:
    before = _predecessor(key, domain)
    return ("<", key) if before is None else ("<=", before)


def _predecessor(key: Any, domain: Domain) -> Any | None:
    """The key before, where it reads better: without a final NUL, or with fewer digits."""
    if isinstance(domain, TextDomain):
        return key[:-1] if key.endswith("\0") else None
    if isinstance(key, bytes):
        return key[:-1] if key.endswith(b"\0") else None
    if isinstance(domain, FloatDomain | TemporalDomain):
        here, before = sql_literal(key, domain.type), sql_literal(key - 1, domain.type)
        return key - 1 if len(before) < len(here) else None
    return None
