"""Values of a type as those of another, with the fields inside matched by id.

A field that was renamed or moved keeps its values, one that was widened is cast, one that was
dropped is left out, and one that was added is NULL: a field inside another has no default of its
own. This holds at any depth, inside structs, lists and maps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from phalanx.model.promotion import keeps_values
from phalanx.model.schema import field_id, inner_fields, untagged

#: Returns the values of an array in another type.
Convert = Callable[[pa.Array], pa.Array]


class Unfit(Exception):
    """A type has values that are none of the wanted type."""

    def __init__(self, have: pa.DataType, want: pa.DataType) -> None:
        #: The names of the fields that lead to the types, from the outside in.
        self.path: list[str] = []
        self.have, self.want = have, want


def conversion(have: pa.DataType, want: pa.DataType) -> Convert | None:
    """The conversion of values from one type to another; None if none is needed.

    All fields inside the types have ids. Raises Unfit where values would change.
    """
    if have.equals(want, check_metadata=True):
        return None
    t = pa.types
    if t.is_struct(have) and t.is_struct(want):
        return _struct(have, want)
    if _are_lists_alike(have, want) or (t.is_map(have) and t.is_map(want)):
        own, wanted = inner_fields(have), inner_fields(want)
        # A list whose elements have another id is no list of ours: only its type tells what it has.
        if wanted and [*map(field_id, own.values())] == [*map(field_id, wanted.values())]:
            parts = [_inside(name, own[name], field) for name, field in wanted.items()]
            return _unless_same(have, want, parts, _map if t.is_map(want) else _list)
    if have == want:
        return None
    if not keeps_values(have, want):
        raise Unfit(have, want)
    plain = untagged(want)
    return lambda array: array.cast(plain)


def _are_lists_alike(have: pa.DataType, want: pa.DataType) -> bool:
    t = pa.types
    if t.is_fixed_size_list(have) and t.is_fixed_size_list(want):
        return bool(have.list_size == want.list_size)
    return all(t.is_list(type) or t.is_large_list(type) for type in (have, want))


def _inside(name: str, have: pa.Field, want: pa.Field) -> Convert | None:
    try:
        return conversion(have.type, want.type)
    except Unfit as unfit:
        unfit.path.insert(0, name)
        raise


def _struct(have: pa.DataType, want: pa.DataType) -> Convert | None:
    places = {field_id(have.field(at)): at for at in range(have.num_fields)}
    parts: list[tuple[int | None, Convert | None]] = []
    for field in want:
        at = places.get(field_id(field))
        parts.append((at, None if at is None else _inside(field.name, have.field(at), field)))
    is_same = [(at, None) for at in range(have.num_fields)] == parts
    plain = untagged(want)
    if is_same and untagged(have) == plain:
        return None

    def convert(array: pa.Array) -> pa.Array:
        arrays = []
        for field, (at, part) in zip(plain, parts, strict=True):
            if at is None:
                arrays.append(pa.nulls(len(array), field.type))
            else:
                arrays.append(_applied(part, array.field(at)))
        names = [field.name for field in plain]
        struct = pa.StructArray.from_arrays(arrays, names, mask=array.is_null())
        # Where the struct is NULL, fields that are not nullable may be NULL as well.
        children = [struct.field(at) for at in range(len(arrays))]
        return pa.Array.from_buffers(plain, len(struct), struct.buffers()[:1], children=children)

    return convert


_Build = Callable[[pa.Array, Sequence[Convert | None], pa.DataType], pa.Array]


def _unless_same(
    have: pa.DataType, want: pa.DataType, parts: Sequence[Convert | None], build: _Build
) -> Convert | None:
    plain = untagged(want)
    if untagged(have) == plain and not any(parts):
        return None
    return lambda array: build(array, parts, plain)


def _list(array: pa.Array, parts: Sequence[Convert | None], type: pa.DataType) -> pa.Array:
    (element,) = parts
    if not len(array):
        return pa.array([], type)
    if pa.types.is_fixed_size_list(type):
        size = type.list_size
        values = array.values.slice(array.offset * size, len(array) * size)
        children, buffers = [_applied(element, values)], []
    else:
        offsets, used = _offsets(array, np.int64 if pa.types.is_large_list(type) else np.int32)
        children, buffers = [_applied(element, array.values.slice(*used))], [offsets]
    return pa.Array.from_buffers(type, len(array), [_validity(array), *buffers], children=children)


def _map(array: pa.Array, parts: Sequence[Convert | None], type: pa.DataType) -> pa.Array:
    if not len(array):
        return pa.array([], type)
    offsets, used = _offsets(array, np.int32)
    # Unlike `keys` and `items`, the entries know where in their buffers they begin.
    entries = array.values.slice(*used)
    children = [_applied(part, entries.field(at)) for at, part in enumerate(parts)]
    pair = pa.struct([type.key_field, type.item_field])
    entries = pa.Array.from_buffers(pair, len(entries), [None], children=children)
    buffers = [_validity(array), offsets]
    return pa.Array.from_buffers(type, len(array), buffers, children=[entries])


def _applied(convert: Convert | None, array: pa.Array) -> pa.Array:
    return array if convert is None else convert(array)


def _offsets(array: pa.Array, type: type[np.signedinteger]) -> tuple[pa.Buffer, tuple[int, int]]:
    """The offsets of lists or maps from 0 on, and which of the values they use: start and length.

    A list that is NULL may have values, too.
    """
    offsets = np.asarray(array.offsets)
    start = int(offsets[0])
    return pa.py_buffer((offsets - start).astype(type)), (start, int(offsets[-1]) - start)


def _validity(array: pa.Array) -> pa.Buffer | None:
    """Which values are not NULL, from bit 0 on; None if all are."""
    if not array.null_count:
        return None
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
