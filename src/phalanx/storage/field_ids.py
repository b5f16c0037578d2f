"""Lance schemas with the table's field ids.

Lance numbers the fields of a new dataset from 0, and its Python API cannot set other ids.
`phalanx.storage.lance_private` changes them in the pickled form of a schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
from lance.schema import LanceSchema

from phalanx.errors import InvalidInput
from phalanx.model.schema import TableSchema, field_id
from phalanx.storage.compression import marked
from phalanx.storage.lance_private import with_ids
from phalanx.storage.physical_names import physical_schema


@lru_cache(maxsize=64)
def lance_schema(schema: TableSchema, compressed: frozenset[int] = frozenset()) -> LanceSchema:
    """The schema of a new leaf, with the table's field ids.

    `compressed` are the ids of columns that Lance is told to compress. Raises InvalidInput if
    Lance's schema cannot have these ids.
    """
    stored = physical_schema(schema.stored, schema.tagged.names)
    if compressed:
        ids = (field_id(field) for field in schema.tagged)
        pairs = zip(stored, ids, strict=True)
        fields = [marked(field) if id in compressed else field for field, id in pairs]
        stored = pa.schema(fields, metadata=stored.metadata)
    plain = LanceSchema.from_pyarrow(stored)
    lance_ids, table_ids = ids_of(plain), schema.field_ids
    if lance_ids == table_ids:
        return plain
    if len(lance_ids) == len(table_ids):
        renumbered = with_ids(plain, dict(zip(lance_ids, table_ids, strict=True)))
        if ids_of(renumbered) == table_ids:
            return renumbered
    raise InvalidInput(
        f"a leaf cannot be made: Lance numbers the fields of this schema {lance_ids}, "
        f"the table {table_ids}"
    )


def ids_of(schema: LanceSchema) -> list[int]:
    """Every field's id, depth first."""

    def walk(field: Any) -> Iterator[int]:
        yield field.id()
        for child in field.children():
            yield from walk(child)

    return [id for field in schema.fields() for id in walk(field)]
