"""Lance schemas whose fields have the ids we say.

Lance numbers the fields of a new dataset from 0, and its Python API has no way to say otherwise.
`phalanx.storage.lance_private` changes them in what a schema is pickled as.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from lance.schema import LanceSchema

from phalanx.errors import InvalidInput
from phalanx.model.schema import TableSchema
from phalanx.storage.lance_private import with_ids


@lru_cache(maxsize=64)
def lance_schema(schema: TableSchema) -> LanceSchema:
    """The schema of a new leaf, with the table's field ids."""
    plain = LanceSchema.from_pyarrow(schema.stored)
    given, wanted = ids_of(plain), schema.field_ids
    if given == wanted:
        return plain
    if len(given) == len(wanted):
        made = with_ids(plain, dict(zip(given, wanted, strict=True)))
        if ids_of(made) == wanted:
            return made
    raise InvalidInput(
        f"a leaf cannot be made: Lance numbers the fields of this schema {given}, "
        f"the table {wanted}"
    )


def ids_of(schema: LanceSchema) -> list[int]:
    """Every field's id, depth first."""

    def walk(field: Any) -> Iterator[int]:
        yield field.id()
        for child in field.children():
            yield from walk(child)

    return [id for field in schema.fields() for id in walk(field)]
