"""Promotion: the wider types that a column may become without changing any value."""

from __future__ import annotations

import pyarrow as pa

_NUMBERS = (
    *(pa.int16(), pa.int32(), pa.int64(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64()),
)


def is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether the new type holds every value of the old one, and is another type."""
    t = pa.types
    if t.is_integer(old) and t.is_integer(new):
        if t.is_signed_integer(old) == t.is_signed_integer(new):
            return bool(new.bit_width > old.bit_width)
        return bool(t.is_signed_integer(new) and new.bit_width > old.bit_width)
    if t.is_floating(old) and t.is_floating(new):
        return bool(new.bit_width > old.bit_width)
    if t.is_decimal(old) and t.is_decimal(new):
        wider = new.precision > old.precision and new.bit_width >= old.bit_width
        return bool(wider and new.scale == old.scale)
    if t.is_date32(old) and t.is_timestamp(new):
        return new.tz is None and new.unit != "ns"
    return False


def promotions(type: pa.DataType) -> list[pa.DataType]:
    """The wider types that the source of a partition field may become, narrowest first.

    Of all wider decimals there are three: one digit more, and the widest of both sizes. A date
    that a table is partitioned by keeps its type.
    """
    wider: tuple[pa.DataType, ...] = _NUMBERS
    if pa.types.is_decimal(type):
        more = {type.precision + 1, 38} if type.precision < 38 else set()
        wider = tuple(pa.decimal128(digits, type.scale) for digits in sorted(more))
        wider += (pa.decimal256(76, type.scale),)
    return [candidate for candidate in wider if is_wider(type, candidate)]
