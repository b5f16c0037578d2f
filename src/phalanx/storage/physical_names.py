"""The names that columns have in the files of leaves.

Lance reads a dot or a backtick in the name of a column as part of a path. So a column with one in
its name has another name in the leaves: `a.b` is stored as `a_b`, or as `a_b_2` if the table has a
column `a_b`. Columns are matched by id, so it does not matter if that name changes later. Fields
inside a column keep their names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from phalanx.model.schema import RESERVED_NAMES

_SPECIAL = re.compile(r"[.`]")


@lru_cache(maxsize=256)
def physical_names(names: tuple[str, ...]) -> dict[str, str]:
    """The names in files, by those in the table. They follow from all columns that files hold."""
    taken = {*RESERVED_NAMES, *(name for name in names if not _SPECIAL.search(name))}
    physical = {}
    for name in names:
        stored = stem = _SPECIAL.sub("_", name)
        number = 2
        while stem != name and stored in taken:
            stored, number = f"{stem}_{number}", number + 1
        taken.add(stored)
        physical[name] = stored
    return physical


def physical_schema(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """A schema with the names in files, of which `names` are all columns; itself if they agree."""
    physical = physical_names(tuple(names))
    if all(physical[name] == name for name in schema.names):
        return schema
    fields = [field.with_name(physical[field.name]) for field in schema]
    return pa.schema(fields, metadata=schema.metadata)
