"""The hash of the earlier specification: `md5_int`, and the buckets that are made of it.

`md5_int` is the first 8 bytes of the MD5 digest as a signed big-endian 64-bit integer. A string is
hashed as its UTF-8 bytes and a binary value as it is. Any other value is hashed as the text that
DataFusion casts it to, so that a number of a wider type has the same hash.

The specification also says that this equals `cast(substr(md5(col), 1, 8) as bigint)`. It does not:
`md5` returns hexadecimal digits, 8 of which are only 4 bytes and are no decimal number. The first
definition is the one that can be computed, and the one that counts here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.model.expressions import evaluate_custom

_DIGEST_BYTES = 8


def md5_int(array: pa.Array) -> pa.Array:
    """The hash of each value as int64; NULL for NULL."""
    return _mapped(hashed_bytes(array), _hash)


def md5_bucket(parts: Sequence[pa.Array | str], length: int, num_buckets: int) -> pa.Array:
    """The bucket of each row as int64: `abs(md5_int(concat(parts…))) % num_buckets`.

    A part is a column, or a constant text. The result is NULL where any column is NULL. A column of
    the type null has been removed from the table and is passed over; if all columns have been
    removed, every bucket is NULL. `abs` cannot overflow: it is not limited to 64 bits.
    """
    columns = [part for part in parts if not isinstance(part, str)]
    present = [part for part in columns if not pa.types.is_null(part.type)]
    if not present:
        return pa.nulls(length, pa.int64())
    texts = [
        pa.repeat(part.encode(), length) if isinstance(part, str) else hashed_bytes(part)
        for part in parts
        if isinstance(part, str) or not pa.types.is_null(part.type)
    ]
    joined = pc.binary_join_element_wise(*texts, pa.scalar(b"", pa.large_binary()))
    return _mapped(joined, lambda value: abs(_hash(value)) % num_buckets)


def is_exact(type: pa.DataType) -> bool:
    """Whether every client must hash the values of a type as the same bytes.

    The specification does not say how other types are spelled, such as floats and timestamps.
    """
    t = pa.types
    if t.is_dictionary(type):
        return is_exact(type.value_type)
    return bool(
        t.is_integer(type)
        or t.is_date32(type)
        or t.is_string(type)
        or t.is_large_string(type)
        or t.is_string_view(type)
        or t.is_binary(type)
        or t.is_large_binary(type)
        or t.is_binary_view(type)
        or t.is_fixed_size_binary(type)
    )


def _hash(value: bytes) -> int:
    digest = hashlib.md5(value, usedforsecurity=False).digest()
    return int.from_bytes(digest[:_DIGEST_BYTES], "big", signed=True)


def _mapped(values: pa.Array, function: Callable[[bytes], int]) -> pa.Array:
    """A function of each value as int64, called once for each distinct value; NULL for NULL."""
    encoded = values.dictionary_encode()
    results = [function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(results, pa.int64()).take(encoded.indices)


def hashed_bytes(array: pa.Array) -> pa.Array:
    """The bytes that the hash of each value is taken of, as large_binary."""
    t, type = pa.types, array.type
    if t.is_dictionary(type):
        return hashed_bytes(array.cast(type.value_type))
    if isinstance(type, pa.BaseExtensionType):
        return hashed_bytes(array.storage)
    if t.is_null(type):
        return pa.nulls(len(array), pa.large_binary())
    if t.is_floating(type):
        # A float is the double of the same value, as a double that it is promoted to will be.
        wide = np.asarray(array.cast(pa.float64()).fill_null(0.0)) + 0.0
        array = pa.array(wide, mask=np.asarray(array.is_null()), from_pandas=False)
    elif is_exact(type) and not t.is_integer(type) and not t.is_date32(type):
        return array.cast(pa.large_binary())
    return evaluate_custom("arrow_cast(col0, 'LargeUtf8')", [array]).cast(pa.large_binary())
