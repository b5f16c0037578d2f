"""Compression of data files beyond what Lance does by itself.

Lance packs integers and shortens text, both of which are fast to read. zstd makes text a quarter
smaller or more, and is as fast to write and to scan at its first level and in larger chunks than
Lance's own. Numbers and times that are about in order, or repeat, become half as large, and take
twice as long to read; others become larger than by Lance's packing, and vectors stay as they are.
So some rows are tried. A file says itself how it is encoded: readers never ask for a property.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from lance.fragment import write_fragments

from phalanx.lru import LruCache
from phalanx.model.properties import COLUMN_COMPRESSION, COMPRESSION
from phalanx.model.schema import TableSchema, field_id

#: How many bytes of a column are tried. One is left alone until as many are written to a leaf.
SAMPLE_BYTES = 256 * 1024
#: A column of text is compressed if its sample shrinks to this part of what Lance makes of it.
WORTH_IT = 0.85
#: The same for numbers and times, which are slower to read if they are compressed. Keys that Lance
#: packs into few bytes have little to gain, so each value must also save some bytes.
WORTH_MORE = 2 / 3
WORTH_BYTES = 2
#: What Lance's own metadata of a field says. Its chunks of text have 4 KB by default, in which
#: little repeats. A row that is looked up is read with its chunk. Higher levels of zstd take longer
#: and make little smaller: 3 % of source code, nothing of JSON.
_KEY = b"lance-encoding:compression"
_MARK = {
    _KEY: b"zstd",
    b"lance-encoding:compression-level": b"1",
    b"lance-encoding:minichunk-size": b"32768",
}

#: Whether columns have turned out to be worth it, by the table's id and the column's.
_tried: LruCache[tuple[str, int], bool] = LruCache(1024)


@dataclass(frozen=True)
class Compression:
    """What the properties of a table say about the compression of its columns."""

    default: str = "none"
    #: The id of the table: a column is tried once.
    table: str = ""
    #: The word for some columns, by their ids.
    words: tuple[tuple[int, str], ...] = ()

    @staticmethod
    def of(properties: Mapping[str, str], schema: TableSchema, table: str) -> Compression:
        words = COLUMN_COMPRESSION.by_column(properties)
        ids = ((field_id(field), words.get(field.name)) for field in schema.tagged)
        chosen = tuple((id, word) for id, word in ids if word is not None)
        return Compression(COMPRESSION.of(properties), table, chosen)

    @property
    def is_off(self) -> bool:
        return self.default == "none" and all(word == "none" for _, word in self.words)

    def columns(self, schema: TableSchema, rows: pa.Table) -> set[int]:
        """The ids of the columns of a file to compress. Some of its rows are tried.

        A column whose own metadata tells Lance how to compress it is left alone.
        """
        chosen, tried = _choices(self, schema)
        worth_it = (id for name, id in tried if _is_worth_it(rows[name], (self.table, id)))
        return {*chosen, *worth_it}


@lru_cache(maxsize=64)
def _choices(
    compression: Compression, schema: TableSchema
) -> tuple[frozenset[int], tuple[tuple[str, int], ...]]:
    """The ids of the columns that are compressed anyway, and the columns that are tried."""
    words, chosen, tried = dict(compression.words), set(), []
    for field in schema.tagged:
        id = field_id(field)
        told = _KEY in (field.metadata or {})
        word = words.get(id, "none" if told else compression.default)
        if word == "auto" and (_is_text(field.type) or _is_number(field.type)):
            tried.append((field.name, id))
        elif word == "zstd" and (id in words or _may_shrink(field.type)):
            chosen.add(id)
    return frozenset(chosen), tuple(tried)


NO_COMPRESSION = Compression()


def marked(field: pa.Field) -> pa.Field:
    """A field that Lance compresses, with everything inside it."""
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([marked(inner) for inner in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(marked(kind.key_field), marked(kind.item_field), kind.keys_sorted)
    elif pa.types.is_list(kind):
        kind = pa.list_(marked(kind.value_field))
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(marked(kind.value_field))
    return field.with_type(kind).with_metadata({**(field.metadata or {}), **_MARK})


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _may_shrink(kind: pa.DataType) -> bool:
    """Whether zstd may beat Lance's own encodings, as it does not for integers and vectors."""
    if pa.types.is_nested(kind):
        return not pa.types.is_fixed_size_list(kind)
    return _is_text(kind) or pa.types.is_floating(kind)


def _is_number(kind: pa.DataType) -> bool:
    """Whether values are numbers or times of four bytes or more."""
    return bool(
        (pa.types.is_integer(kind) and kind.bit_width >= 32)
        or (pa.types.is_floating(kind) and kind.bit_width >= 32)
        or pa.types.is_decimal(kind)
        or pa.types.is_temporal(kind)
    )


def _is_worth_it(column: Any, key: tuple[str, int]) -> bool:
    """Whether a column gains by compression: the first rows are written both ways."""
    known = _tried.get(key)
    if known is None and column.nbytes >= SAMPLE_BYTES:
        rows = max(1, len(column) * SAMPLE_BYTES // column.nbytes)
        sample = column.slice(0, rows)
        plain = pa.field("sample", column.type)
        before, after = _size(sample, plain), _size(sample, marked(plain))
        if _is_text(column.type):
            known = after <= WORTH_IT * before
        else:
            known = after <= WORTH_MORE * before and before - after >= WORTH_BYTES * rows
        _tried.put(key, known)
    return bool(known)


def _size(column: Any, field: pa.Field) -> int:
    """The bytes of a data file with one column."""
    schema = pa.schema([field])
    table = pa.table([column], schema=schema)
    place = f"memory://phalanx/{uuid.uuid4().hex}"
    fragments = write_fragments(table, place, schema=schema, mode="create")
    return sum(file.file_size_bytes or 0 for part in fragments for file in part.files)
