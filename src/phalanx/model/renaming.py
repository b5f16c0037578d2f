"""Filters that are kept as text, after the columns that they name were renamed."""

from __future__ import annotations

from phalanx.errors import InvalidInput
from phalanx.model.dialect import term_to_sql
from phalanx.model.parser import parse
from phalanx.model.predicates import Call, Name, Term
from phalanx.model.schema import TableSchema


def renamed_filter(text: str, before: TableSchema, after: TableSchema) -> str:
    """A filter with the names that its columns have in a later schema.

    Other names, such as those of partition fields, stay as they are, and so does the text if no
    name has changed. Raises InvalidInput if a column was dropped.
    """
    term = parse(text)
    changed = _renamed(term, before, after)
    return text if changed == term else term_to_sql(changed)


def _renamed(term: Term, before: TableSchema, after: TableSchema) -> Term:
    if isinstance(term, Call):
        return Call(term.function, tuple(_renamed(part, before, after) for part in term.args))
    if not isinstance(term, Name):
        return term
    try:
        column = before.column(term.path)
    except InvalidInput:
        return term
    now = after.columns.get(column.field_id)
    if now is None:
        raise InvalidInput(f"the column {'.'.join(column.path)!r} was dropped")
    return term if now.path == column.path else Name(now.path)
