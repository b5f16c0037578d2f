"""Lance schemas whose fields have the ids we say.

Lance numbers the fields of a new dataset from 0, and its Python API has no way to say otherwise.
A schema can be pickled, though, and what it is pickled as is one protobuf message for each field;
there the ids are changed. Only two kinds of protobuf values occur in such a message: numbers and
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from lance.schema import LanceSchema

from phalanx.errors import InvalidInput
from phalanx.model.schema import TableSchema

#: The members of Lance's `Field` message: its id, and its parent's (-1 for none).
_ID, _PARENT = 3, 4
_NONE = 2**64 - 1
_Message = list[tuple[int, int, Any]]


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


def with_ids(schema: LanceSchema, ids: Mapping[int, int]) -> LanceSchema:
    """The schema with every field's id replaced by the one that `ids` gives for it."""
    pickled: Any = schema.__reduce__()
    metadata, *fields = pickled[1]
    changed = []
    for raw in fields:
        message = _parse(bytes(raw))
        parent = _get(message, _PARENT)
        message = _put(message, _ID, ids[_get(message, _ID)])
        message = _put(message, _PARENT, parent if parent == _NONE else ids[parent])
        changed.append(_spell(message))
    return LanceSchema._from_protos(metadata, *changed)


def _get(message: _Message, number: int) -> int:
    return next((value for found, _, value in message if found == number), 0)


def _put(message: _Message, number: int, value: int) -> _Message:
    kept = [part for part in message if part[0] != number]
    return sorted([*kept, (number, 0, value)], key=lambda part: part[0])


def _parse(raw: bytes) -> _Message:
    found: _Message = []
    position = 0
    while position < len(raw):
        key, position = _number(raw, position)
        value: Any
        value, position = _number(raw, position)
        if key & 7 == 2:
            end = position + value
            value, position = raw[position:end], end
        elif key & 7 != 0:
            raise ValueError(f"a field of a Lance schema has a value of kind {key & 7}")
        found.append((key >> 3, key & 7, value))
    return found


def _number(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position


def _spell(message: _Message) -> bytes:
    return b"".join(
        part
        for number, kind, value in message
        for part in (
            _varint(number << 3 | kind),
            _varint(value) if kind == 0 else _varint(len(value)) + value,
        )
    )


def _varint(value: int) -> bytes:
    return bytes(_digits(value))


def _digits(value: int) -> Iterator[int]:
    while value > 127:
        yield value & 127 | 128
        value >>= 7
    yield value
