"""Predicates in Lance's SQL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from phalanx.model.dialect import Dialect
from phalanx.model.domains import FloatDomain, domain_of
from phalanx.model.literals import Literal, quote
from phalanx.model.predicates import Column, Restrict
from phalanx.model.spelling import arrow_literal


class Lance(Dialect):
    """Lance's SQL: names in backticks, every constant with its exact type.

    Lance sorts a NaN whose sign bit is set below all numbers; Phalanx sorts every NaN above them.
    """

    def _restrict(self, node: Restrict, nested: bool) -> str:
        domain, values = domain_of(node.type), node.values
        if not isinstance(domain, FloatDomain) or values.has_all_values or not values.intervals:
            return super()._restrict(node, nested)
        term = self.term(node.term)
        text = super()._restrict(replace(node, values=values.with_null(False)), nested=True)
        if not (values & domain.point(domain.highest)).is_empty:
            text = f"{text} OR isnan({term})"
        elif values.intervals[0][0] is None:
            text = f"{text} AND NOT isnan({term})"
        if values.null:
            text = f"{text} OR {term} IS NULL"
        return f"({text})" if nested else text

    def name(self, column: Column) -> str:
        return ".".join("`" + part.replace("`", "``") + "`" for part in column.path)

    def constant(self, key: Any, type: pa.DataType) -> str:
        return arrow_literal(key, type)

    def literal(self, literal: Literal) -> str:
        match literal.kind:
            case "interval":
                return f"arrow_cast({quote(literal.value)}, 'Interval(MonthDayNano)')"
            case "date":
                return arrow_literal(literal.value, pa.date32())
            case "timestamp":
                zone, count = "UTC" if literal.zoned else None, literal.value
                if -(2**63) <= count < 2**63:
                    return arrow_literal(count, pa.timestamp("ns", zone))
                return arrow_literal(count // 1_000, pa.timestamp("us", zone))
        return super().literal(literal)

    def _call(self, function: str, args: list[str]) -> str:
        text = super()._call(function, args)
        # Some unquoted functions have a special syntax in SQL, which Lance does not support.
        if text.startswith(f"{function}("):
            return f"`{function}`" + text.removeprefix(function)
        return text
