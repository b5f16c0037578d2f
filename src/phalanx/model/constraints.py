"""Constraints: conditions that every row of a table satisfies, or does not decide.

They are kept among the properties of a table, each as the SQL that it was written in. Such a
property is a constraint only where the table has the writer feature `constraints`: before there was
one, the names of these properties were free.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from phalanx.model.schema import TableSchema

PREFIX = "constraint."


def constraints_in(properties: Mapping[str, str]) -> dict[str, str]:
    """The conditions in SQL, by the names of the constraints, of a table that has the feature."""
    return {
        key.removeprefix(PREFIX): sql for key, sql in properties.items() if key.startswith(PREFIX)
    }


def with_constraints(
    properties: Mapping[str, str], constraints: Mapping[str, str]
) -> dict[str, str]:
    """Properties with these constraints in the place of those that they have."""
    others = {key: value for key, value in properties.items() if not key.startswith(PREFIX)}
    return others | {PREFIX + name: sql for name, sql in constraints.items()}


def broken_by(
    constraints: Mapping[str, str], before: TableSchema, after: TableSchema
) -> tuple[str, str] | None:
    """A constraint that names a column which a change drops or renames, and that column."""
    gone = {
        column.path[-1]
        for id, column in before.columns.items()
        if id not in after.columns or after.columns[id].path[-1] != column.path[-1]
    }
    for name, sql in constraints.items():
        for column in gone:
            if re.search(rf"(?<!\w){re.escape(column)}(?!\w)", sql, re.IGNORECASE):
                return name, column
    return None
