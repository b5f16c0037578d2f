"""What a user passes as a filter: SQL text, a pyarrow expression, or tuples."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import InvalidInput
from phalanx.model.arrow_filters import sql_term_of, term_of, weaker_term_of
from phalanx.model.filters import bind
from phalanx.model.literals import Literal, lit
from phalanx.model.parser import Values, parse
from phalanx.model.paths import join_path, split_path
from phalanx.model.predicates import EVERYTHING, Call, Name, Predicate, Term, conjoin
from phalanx.storage.head import Head
from phalanx.transaction.snapshot import Snapshot

#: SQL text; a pyarrow expression; a tuple `(column, operator, value)` or a list of them, all of
#: which must hold; a list of such lists, one of which must hold.
Filter: TypeAlias = str | pc.Expression | tuple[str, str, Any] | Sequence[Any]
#: Values for `?` in SQL text, in order, or for `:name`, by name. IN takes a list as one of them.
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class WeakerFilter:
    """A pyarrow expression that is applied to the rows later: no row that matches is left out."""

    expression: pc.Expression


@dataclass(frozen=True)
class SqlFilter:
    """A pyarrow expression that an engine has made of a filter in SQL, and that means that SQL."""

    expression: pc.Expression


_OPERATORS = {"==": "=", "!=": "<>", **{op: op for op in ("=", "<>", "<", "<=", ">", ">=")}}


def predicate_of(
    where: Filter | WeakerFilter | SqlFilter | Predicate | None,
    snapshot: Snapshot,
    params: Parameters | None = None,
) -> Predicate:
    """A filter bound to the table's schema; `now()` in it is the time of this call.

    Raises InvalidInput for a filter that is none, or that does not fit the schema.
    """
    if params is not None and not isinstance(where, str):
        raise InvalidInput("params are for a filter in SQL text, in the place of ? or :name")
    if where is None:
        return EVERYTHING
    if isinstance(where, Predicate):
        return where
    head = snapshot.head
    try:
        term = _term(where, head, params)
        return conjoin([bind(term, _Names(head).find, dt.datetime.now(dt.UTC))])
    except InvalidInput:
        if isinstance(where, WeakerFilter):
            return EVERYTHING
        raise


def _term(where: Any, head: Head, params: Parameters | None) -> Term:
    if isinstance(where, str):
        return parse(where, _literals(params))
    if isinstance(where, pc.Expression):
        return term_of(where, _Names(head).type_of)
    if isinstance(where, SqlFilter):
        return sql_term_of(where.expression, _Names(head).type_of)
    if isinstance(where, WeakerFilter):
        return weaker_term_of(where.expression, _Names(head).type_of)
    if isinstance(where, tuple | list):
        return _alternatives(where, head.schema.tagged.names)
    raise InvalidInput(
        f"a filter is SQL text, a pyarrow expression or tuples, not {type(where).__name__}"
    )


def _alternatives(where: Sequence[Any], names: Sequence[str]) -> Term:
    """Tuples as pyarrow takes them: a list holds where all hold, a list of lists where one does.

    `names` are those of the columns.
    """
    if where and isinstance(where[0], str):
        return _condition(where, names)
    if not where:
        raise InvalidInput("a filter of tuples is empty: leave it out to select every row")
    if all(isinstance(part, list) for part in where):
        parts = [_alternatives(part, names) for part in where]
        return parts[0] if len(parts) == 1 else Call("or", tuple(parts))
    conditions = [_condition(part, names) for part in where]
    return conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions))


def _condition(part: Any, names: Sequence[str]) -> Term:
    if not (isinstance(part, tuple | list) and len(part) == 3 and isinstance(part[0], str)):
        raise InvalidInput(f"a filter is made of tuples such as ('id', '>=', 7), not {part!r}")
    column, op, value = part
    name = Name((column,) if column in names else split_path(column))
    match op.lower().strip() if isinstance(op, str) else op:
        case "in" | "not in":
            if isinstance(value, str) or not hasattr(value, "__iter__"):
                raise InvalidInput(f"{op!r} takes a list of values, not {value!r}")
            literals = [lit(item) for item in value]
            inside: Term = Call("in", (name, *literals)) if literals else Literal("boolean", False)
            return inside if op.lower().strip() == "in" else Call("not", (inside,))
        case "=" | "==" if value is None:
            return Call("is_null", (name,))
        case "!=" | "<>" if value is None:
            return Call("not", (Call("is_null", (name,)),))
        case known if known in _OPERATORS:
            return Call(_OPERATORS[known], (name, lit(value)))
    known_operators = ", ".join([*_OPERATORS, "in", "not in"])
    raise InvalidInput(f"unknown operator {op!r} in a filter: there are {known_operators}")


def _literals(params: Parameters | None) -> Sequence[Values] | Mapping[str, Values]:
    if params is None:
        return ()
    if isinstance(params, Mapping):
        return {name: _values(value) for name, value in params.items()}
    if isinstance(params, str) or not isinstance(params, Sequence):
        raise InvalidInput("params is a list of values for ?, or a dict of values for :name")
    return [_values(value) for value in params]


def _values(value: Any) -> Values:
    """A constant, or those of a list, a tuple, a set or an array."""
    if isinstance(value, list | tuple | set | frozenset | np.ndarray | pa.Array | pa.ChunkedArray):
        return tuple(lit(item) for item in value)
    return lit(value)


class _Names:
    """The names that a filter may use: columns, and partition fields that SQL can express."""

    def __init__(self, head: Head) -> None:
        self._head = head

    def find(self, path: tuple[str, ...]) -> Any:
        """The column with a name, or what a partition field computes from its columns.

        Raises InvalidInput if there is neither.
        """
        try:
            return self._head.schema.column(path)
        except InvalidInput:
            term = self._partition_field(path)
            if term is None:
                raise
            return term

    def type_of(self, path: tuple[str, ...]) -> pa.DataType | None:
        try:
            return self._head.schema.column(path).type
        except InvalidInput:
            return None

    def _partition_field(self, path: tuple[str, ...]) -> Term | None:
        for spec in reversed(self._head.specs):
            for field in spec.fields if len(path) == 1 else ():
                if field.field_id != path[0]:
                    continue
                columns = [c for c in field.sources(self._head.schema) if c is not None]
                if len(columns) < len(field.source_ids):
                    continue
                term = field.transform.term(columns)
                if term is None:
                    names = ", ".join(join_path(column.path) for column in columns)
                    raise InvalidInput(
                        f"{path[0]!r} is a partition field: filter by its source, {names}"
                    )
                return term
        return None
