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


def keeps_values(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of one type is the same value in another, which may be the same type.

    Types that differ only in how values lie in memory hold the same values. Inside of other types,
    nothing is said about NULL.
    """
    t = pa.types
    if old == new or is_wider(old, new):
        return True
    if t.is_dictionary(old):
        return keeps_values(old.value_type, new)
    if any(kind(old) and kind(new) for kind in (_is_text, _is_binary)):
        return True
    if t.is_map(old) and t.is_map(new):
        pairs = [(old.key_type, new.key_type), (old.item_type, new.item_type)]
    elif _is_list(old) and _is_list(new):
        pairs = [(old.value_type, new.value_type)]
    elif t.is_fixed_size_list(old) and t.is_fixed_size_list(new):
        pairs = [(old.value_type, new.value_type)] if old.list_size == new.list_size else []
    elif t.is_struct(old) and t.is_struct(new):
        names = [[type.field(i).name for i in range(type.num_fields)] for type in (old, new)]
        both = range(old.num_fields) if names[0] == names[1] else ()
        pairs = [(old.field(i).type, new.field(i).type) for i in both]
    else:
        pairs = []
    return bool(pairs) and all(keeps_values(*pair) for pair in pairs)


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def _is_binary(type: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type) or pa.types.is_large_binary(type))


def _is_list(type: pa.DataType) -> bool:
    return bool(pa.types.is_list(type) or pa.types.is_large_list(type))


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
