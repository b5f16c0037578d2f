"""Constraints: conditions that every row of a table satisfies, or does not decide.

They are kept among the properties of a table, each as the SQL that it was written in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from phalanx.model.schema import TableSchema

PREFIX = "constraint."


def constraints_of(properties: Mapping[str, str]) -> dict[str, str]:
    """The conditions in SQL, by the names of the constraints."""
    return {
        key.removeprefix(PREFIX): sql for key, sql in properties.items() if key.startswith(PREFIX)
    }


def broken_by(
    properties: Mapping[str, str], before: TableSchema, after: TableSchema
) -> tuple[str, str] | None:
    """A constraint that names a column which a change drops or renames, and that column."""
    gone = {
        column.path[-1]
        for id, column in before.columns.items()
        if id not in after.columns or after.columns[id].path[-1] != column.path[-1]
    }
    for name, sql in constraints_of(properties).items():
        for column in gone:
            if re.search(rf"(?<!\w){re.escape(column)}(?!\w)", sql, re.IGNORECASE):
                return name, column
    return None
