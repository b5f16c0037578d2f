"""Leaves that another client has written: do they have the columns that its table says?

Each leaf has a schema of its own, and nothing but the client keeps it in line with the table's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa

from phalanx.model.paths import join_path
from phalanx.model.schema import TableSchema
from phalanx.storage.field_ids import ids_of
from phalanx.storage.head import Head
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.storage.mapping import mapping_of
from phalanx.storage.records import LeafRow


def contradictions(
    location: Location, head: Head, row: LeafRow, handle: Any | None = None
) -> list[str]:
    """What is wrong with the columns of a leaf, one sentence each; `handle` is its version, open.

    Raises InvalidInput for a leaf outside of the table's root, and CorruptTable for one that cannot
    be opened.
    """
    leaf = Leaf.of(location, head, row)
    if handle is None:
        handle = leaf.open(row.read_version)
    return list(_contradictions(leaf, handle, head, row.spec_id))


def _contradictions(leaf: Leaf, handle: Any, head: Head, spec_id: int) -> Iterator[str]:
    schema, given = head.schema, {id for id, _ in leaf.given}
    if not schema.is_by_name:
        yield from _other_ids(handle, schema, leaf.uri)
    mapping = mapping_of(handle.lance_schema, handle, schema)
    names = {schema.name_of(id) for id in given}
    yield from (text for name, text in mapping.unfit.items() if name not in names)
    spec = head.spec_of(spec_id)
    held = set(mapping.held_ids) | given
    sources = {column for field in spec.fields for column in field.sources(schema) if column}
    for column in sorted(sources, key=lambda column: column.path):
        if column.field_id not in held:
            yield (
                f"the leaf {leaf.uri} has no column {join_path(column.path)!r}, which the table is "
                "partitioned by: its client must write it with that column"
            )


def _other_ids(handle: Any, schema: TableSchema, uri: str) -> Iterator[str]:
    """Columns that have the id of another one: they would be read as that one, or as NULL.

    The specification says that ids are consistent.
    """
    own = _numbered(handle.schema, tuple(ids_of(handle.lance_schema)))
    table = {column.path: column.field_id for column in schema.places}
    for column in own.places:
        expected = table.get(column.path, column.field_id)
        if expected != column.field_id:
            yield (
                f"the leaf {uri} has the id {column.field_id} for the column "
                f"{join_path(column.path)}, and the table has {expected}: its client must write it "
                "with the ids of the table"
            )


@lru_cache(maxsize=128)
def _numbered(schema: pa.Schema, ids: tuple[int, ...]) -> TableSchema:
    """The schema of a leaf with its ids: most leaves of a table have the same."""
    return TableSchema.numbered(schema, ids)
