"""Key filters: which leaves may hold a value, without asking them.

To ask the index of a leaf for a value takes Lance a third of a millisecond, nearly all of it for
preparing the question. If a key is no partition column, every leaf is asked, and all but one have
no such row. So once a leaf has been asked in vain several times, the values of its column are read
and hashed into a bit set (a Bloom filter with two bits a value). A leaf that lacks one of them has
no such value; where both are set, the index decides. A filter belongs to a version that never
changes, and is kept in memory only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.lru import LruCache
from phalanx.model.hashing import murmur3
from phalanx.model.schema import TableSchema
from phalanx.storage.files import is_lasting
from phalanx.storage.location import Location
from phalanx.storage.small_leaves import Member

#: How often a leaf is asked in vain before its values are read, and how many rows it has at most.
_ASKED, _MOST_ROWS = 16, 2_097_152
#: A filter has at least so many bits for each row: of values that a leaf does not have, at most 1.4
#: in a hundred pass nevertheless.
_BITS = 16
#: Spreads the bits of a hash, so that its upper ones give another place than its lower ones.
_SPREAD = np.uint32(0x9E3779B1)
#: How many bytes of filters a process keeps, and for how many leaves it counts questions.
_BYTES, _COUNTED = 256 * 1024 * 1024, 65_536
Array = np.ndarray[Any, Any]


class KeyFilter:
    """The hashes of all values of a column in a version of a leaf."""

    def __init__(self, hashes: Sequence[Array]) -> None:
        rows = sum(map(len, hashes))
        width = max(3, (_BITS * rows - 1).bit_length())
        self._mask, self._shift = np.uint32((1 << width) - 1), np.uint32(32 - width)
        flags = np.zeros(1 << width, np.bool_)
        for some in hashes:
            flags[self._first(some)] = True
            flags[self._second(some)] = True
        self._bits = np.packbits(flags)

    @property
    def size(self) -> int:
        return int(self._bits.nbytes)

    def may_hold(self, hashes: Array) -> bool:
        """Whether one of some values may be there."""
        for places in (self._first, self._second):
            at = places(hashes)
            hashes = hashes[(self._bits[at >> 3] & (128 >> (at & 7))) != 0]
            if not len(hashes):
                return False
        return True

    def _first(self, hashes: Array) -> Array:
        return hashes & self._mask

    def _second(self, hashes: Array) -> Array:
        return (hashes * _SPREAD) >> self._shift


_Key = tuple[Any, ...]
_filters: LruCache[_Key, KeyFilter] = LruCache(_BYTES, lambda filter: filter.size)
_asked: LruCache[_Key, int] = LruCache(_COUNTED)


def hashes_of(values: Any) -> Array:
    """The hashes of values as filters know them; NULL has none."""
    hashes: Array = murmur3(values).drop_null().to_numpy().view(np.uint32)
    return hashes


def can_filter(type: pa.DataType) -> bool:
    """Whether values of a type are equal only if they have the same hash."""
    types = pa.types
    is_text = types.is_string(type) or types.is_large_string(type) or types.is_binary(type)
    return bool(is_text or types.is_integer(type) or types.is_date(type))


def may_hold(
    location: Location, schema: TableSchema, member: Member, column: str, hashes: Array
) -> bool:
    """Whether a leaf may hold one of some values. True as long as there is no filter."""
    key = _key(location, schema, member, column)
    filter = None if key is None else _filters.get(key)
    return filter is None or filter.may_hold(hashes)


def note(location: Location, schema: TableSchema, member: Member, column: str) -> None:
    """Count a question that a leaf was asked in vain; the last of several makes its filter."""
    key = _key(location, schema, member, column)
    if key is None:
        return
    asked = (_asked.get(key) or 0) + 1
    _asked.put(key, asked)
    # Several threads may ask at once: only one of them sees this number.
    leaf = member.leaf(location, schema)
    if asked == _ASKED and leaf.count(member.version, None) <= _MOST_ROWS:
        batches = leaf.scan(member.version, [column], None)
        _filters.put(key, KeyFilter([hashes_of(batch.column(0)) for batch in batches]))


def _key(location: Location, schema: TableSchema, member: Member, column: str) -> _Key | None:
    """What identifies the values of a column; None if they may change."""
    if member.version is None or not is_lasting(member.version):
        return None
    options = tuple(sorted((location.options or {}).items()))
    field_id = schema.column((column,)).field_id
    return location.uri, options, member.folder, member.version, field_id
