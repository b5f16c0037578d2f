"""murmur3 (x86, 32 bits, seed 0) over whole Arrow columns: the hash behind `bucket`.

A value is hashed through its canonical bytes. They depend on the value, not on the width of the
type it is stored in, so that widening a column never moves a row to another bucket.

    type                                  canonical bytes
    ------------------------------------  ------------------------------------------------------
    int8 … int64, uint8 … uint64          8 bytes, little-endian two's complement; a uint64 above
                                          2^63 - 1 gives its own 8 bytes
    bool                                  0 or 1, as an integer
    float16, float32, float64             the 8 little-endian bytes of the double; -0.0 is 0.0,
                                          every NaN is 0x7ff8000000000000
    date32, date64                        days since 1970-01-01, as an integer
    time32, time64                        microseconds since midnight, as an integer
    timestamp, any unit, any zone         microseconds since 1970-01-01T00:00:00 UTC, as an
                                          integer; nanoseconds are rounded down; the low 64 bits
                                          where the microseconds exceed 64
    decimal32, 64, 128, 256               the unscaled value, shortest big-endian two's complement
                                          (at least 1 byte)
    string, large_string, string_view     UTF-8
    binary, large_binary, binary_view,    as they are
    fixed_size_binary
    dictionary                            those of the value
    extension types (uuid)                those of the storage
    null                                  none: every row is NULL

Other types (lists, structs, maps, durations, …) have no canonical bytes and are refused, except by
`murmur3_any`, for which the bytes of a list, struct or map are those of its elements, each after
its length as 4 little-endian bytes. The length of NULL is -1. An entry of a map is a struct.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phalanx.errors import InvalidInput

__all__ = ["bucket", "hexadecimal", "mod_bucket", "murmur3", "murmur3_any", "murmur3_multi"]

Bools: TypeAlias = NDArray[np.bool_]
Words: TypeAlias = NDArray[np.uint32]
Longs: TypeAlias = NDArray[np.int64]

_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_STEP = np.uint32(5)
_STEP_ADD = np.uint32(0xE6546B64)
_FINAL_1 = np.uint32(0x85EBCA6B)
_FINAL_2 = np.uint32(0xC2B2AE35)

_BLOCK_ROWS = 1 << 15
"""Rows hashed at a time: few enough for the working arrays to stay in the processor's cache."""

_FEW_ROWS = 32
"""At this number of rows a loop over words in Python beats one numpy call per word."""

_PAD = 4
"""Bytes after the last value of a column, so that whole words can be read at its very end."""

_MICROS_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MILLIS_PER_DAY = 86_400_000
_MAX_INT32 = 2**31 - 1


def murmur3(array: Any) -> pa.Int32Array:
    """Hash each value of a `pa.Array` or `pa.ChunkedArray`; NULL stays NULL.

    Raises:
        InvalidInput: the type has no canonical bytes.
    """
    if pa.types.is_dictionary(_type_of(array)):
        _encoder_for(array.type)
        hashes = [_murmur3_dictionary(chunk) for chunk in _chunks_of(array)]
        return pa.concat_arrays([pa.array([], pa.int32()), *hashes])
    return murmur3_multi([array])


def murmur3_multi(arrays: Sequence[Any]) -> pa.Int32Array:
    """Hash each row of several columns: the canonical bytes of its non-NULL values, joined.

    A row is NULL only where all columns are.

    Raises:
        InvalidInput: a type has no canonical bytes, the lengths differ, or there is no column.
    """
    encoders = [_encoder_for(_type_of(array)) for array in arrays]
    if not encoders:
        raise InvalidInput("A hash over several columns needs at least one column.")
    rows = len(arrays[0])
    if any(len(array) != rows for array in arrays):
        lengths = ", ".join(str(len(array)) for array in arrays)
        raise InvalidInput(f"Columns that are hashed together differ in length: {lengths}.")

    hashes = np.empty(rows, np.uint32)
    valid = np.zeros(rows, np.bool_)
    start = 0
    for pieces in _aligned_pieces(arrays):
        stop = start + len(pieces[0])
        hasher = _Hasher(stop - start)
        for piece, encode in zip(pieces, encoders, strict=True):
            column = encode(piece)
            if column is None:
                continue
            column.feed(hasher)
            if column.valid is None:
                valid[start:stop] = True
            else:
                valid[start:stop] |= column.valid
        hashes[start:stop] = hasher.digest()
        start = stop
    return _int32_array(hashes.view(np.int32), valid)


def murmur3_any(array: Any) -> pa.Int32Array:
    """Like `murmur3`, also for lists, structs and maps, which take much longer.

    Raises:
        InvalidInput: a type has no canonical bytes.
    """
    type_ = _type_of(array)
    if not pa.types.is_nested(type_):
        return murmur3(array)
    _check_elements(type_)
    texts = [text for chunk in _chunks_of(array) for text in _element_bytes(chunk)]
    return murmur3(pa.array(texts, pa.large_binary()))


def _check_elements(type_: Any) -> None:
    """Raise InvalidInput for a type that is or has in it one without canonical bytes."""
    if not pa.types.is_nested(type_):
        _encoder_for(type_)
    for index in range(type_.num_fields):
        _check_elements(type_.field(index).type)


def _element_bytes(array: Any) -> list[bytes | None]:
    """The canonical bytes of each value; None for NULL."""
    types = pa.types
    if not types.is_nested(array.type):
        return _plain_bytes(array)
    valid = array.is_valid().to_pylist()
    if types.is_struct(array.type):
        columns = [_element_bytes(part) for part in array.flatten()]
        return [
            b"".join(_prefixed(column[row]) for column in columns) if valid[row] else None
            for row in range(len(array))
        ]
    parts = [value.values if value.is_valid else None for value in array]
    offsets = [0, *itertools.accumulate(len(part or ()) for part in parts)]
    present = [part for part in parts if part is not None]
    elements = _element_bytes(pa.concat_arrays(present)) if present else []
    return [
        b"".join(map(_prefixed, elements[offsets[row] : offsets[row + 1]])) if valid[row] else None
        for row in range(len(array))
    ]


def _prefixed(text: bytes | None) -> bytes:
    return struct.pack("<i", -1) if text is None else struct.pack("<i", len(text)) + text


def _plain_bytes(array: Any) -> list[bytes | None]:
    column = _encoder_for(array.type)(array)
    if column is None:
        return [None] * len(array)
    valid = [True] * len(array) if column.valid is None else column.valid.tolist()
    if isinstance(column, _LongColumn):
        texts = [value.to_bytes(8, "little", signed=True) for value in column.values.tolist()]
    else:
        ends = (column.starts + column.lengths).tolist()
        pairs = zip(column.starts.tolist(), ends, strict=True)
        texts = [column.data[start:end].tobytes() for start, end in pairs]
    return [text if ok else None for text, ok in zip(texts, valid, strict=True)]


def hexadecimal(hashes: Any) -> pa.StringArray:
    """Hashes as 8 hexadecimal digits each; NULL stays NULL."""
    numbers = hashes.to_pylist()
    return pa.array(
        [None if number is None else f"{number & 0xFFFFFFFF:08x}" for number in numbers],
        pa.string(),
    )


def mod_bucket(hashes: Any, num_buckets: int) -> pa.Int32Array:
    """Turn hashes into bucket numbers: the signed hash modulo `num_buckets`, never negative.

    Raises:
        InvalidInput: `num_buckets` is not between 1 and 2^31 - 1, or `hashes` is not int32.
    """
    return _buckets(hashes, num_buckets, lambda longs: longs % num_buckets)


def bucket(hashes: Any, num_buckets: int) -> pa.Int32Array:
    """Turn hashes into bucket numbers 0 … `num_buckets` - 1; NULL stays NULL.

    Raises:
        InvalidInput: `num_buckets` is not between 1 and 2^31 - 1, or `hashes` is not int32.
    """
    # int32 has no absolute value of its minimum, int64 does.
    return _buckets(hashes, num_buckets, lambda longs: np.abs(longs) % num_buckets)


def _buckets(hashes: Any, num_buckets: int, number_of: Callable[[Longs], Longs]) -> pa.Int32Array:
    if not 1 <= num_buckets <= _MAX_INT32:
        raise InvalidInput(
            f"The number of buckets must be between 1 and {_MAX_INT32}, not {num_buckets}."
        )
    if _type_of(hashes) != pa.int32():
        raise InvalidInput(f"Buckets are made from int32 hashes, not from {hashes.type}.")
    numbers = np.zeros(len(hashes), np.int32)
    valid = np.ones(len(hashes), np.bool_)
    start = 0
    for chunk in _chunks_of(hashes):
        stop = start + len(chunk)
        numbers[start:stop] = number_of(_values(chunk, np.int32).astype(np.int64))
        chunk_valid = _validity(chunk)
        if chunk_valid is not None:
            valid[start:stop] = chunk_valid
        start = stop
    return _int32_array(numbers, valid)


# --- the hash ------------------------------------------------------------------------------


class _Hasher:
    """The state of murmur3 for many rows at once, fed column by column.

    murmur3 reads words of 4 bytes. Bytes that do not fill a word yet wait in `pending`, which is
    None as long as every row stands at a word boundary.
    """

    def __init__(self, rows: int) -> None:
        self.hash: Words = np.zeros(rows, np.uint32)
        self.length: Words = np.zeros(rows, np.uint32)
        self.pending: NDArray[np.uint64] | None = None
        self.pending_bits: NDArray[np.uint64] = np.zeros(0, np.uint64)

    def feed_words(self, word: Words, rows: Any) -> None:
        """Feed one full word to each of `rows` (a slice, or an array of row numbers)."""
        if self.pending is not None:
            joined = self.pending[rows] | (word.astype(np.uint64) << self.pending_bits[rows])
            self.pending[rows] = joined >> np.uint64(32)
            word = joined.astype(np.uint32)
        self.hash[rows] = _step(self.hash[rows], word)

    def feed_longs(self, values: Longs, valid: Bools | None) -> None:
        """Feed 8 bytes to every row that is valid."""
        words = values.view(np.uint32).reshape(-1, 2)
        if valid is None:
            self.length += np.uint32(8)
            self.feed_words(words[:, 0], slice(None))
            self.feed_words(words[:, 1], slice(None))
        elif self.pending is None:
            # Hashing all rows and keeping some is faster than gathering and scattering some.
            self.length += valid.astype(np.uint32) << np.uint32(3)
            fed = _step(_step(self.hash, words[:, 0]), words[:, 1])
            self.hash = np.where(valid, fed, self.hash)
        else:
            self.length += valid.astype(np.uint32) << np.uint32(3)
            rows = np.flatnonzero(valid)
            self.feed_words(words[rows, 0], rows)
            self.feed_words(words[rows, 1], rows)

    def feed_rest(self, word: Words, size: NDArray[np.uint64]) -> None:
        """Feed the last 0 to 3 bytes of a value to every row; the bytes above `size` are 0."""
        bits = size << np.uint64(3)
        if self.pending is None:
            if bits.any():
                self.pending = word.astype(np.uint64)
                self.pending_bits = bits
            return
        joined = self.pending | (word.astype(np.uint64) << self.pending_bits)
        bits += self.pending_bits
        full = bits >= 32
        self.hash = np.where(full, _step(self.hash, joined.astype(np.uint32)), self.hash)
        self.pending = np.where(full, joined >> np.uint64(32), joined)
        self.pending_bits = np.where(full, bits - np.uint64(32), bits)

    def feed_long(self, row: int, data: NDArray[np.uint8]) -> None:
        """Feed many bytes to one row."""
        if self.pending is None:
            self.pending = np.zeros(len(self.hash), np.uint64)
            self.pending_bits = np.zeros(len(self.hash), np.uint64)
        waiting = int(self.pending[row]).to_bytes(8, "little")[: int(self.pending_bits[row]) // 8]
        if waiting:
            data = np.concatenate([np.frombuffer(waiting, np.uint8), data])
        body_bytes = len(data) & ~3
        body = np.frombuffer(np.ascontiguousarray(data[:body_bytes]), np.uint32)
        hash_ = int(self.hash[row])
        for word in _scramble(body).tolist():
            hash_ ^= word
            hash_ = (((hash_ << 13) | (hash_ >> 19)) * 5 + 0xE6546B64) & 0xFFFFFFFF
        self.hash[row] = hash_
        rest = data[body_bytes:].tobytes()
        self.pending[row] = int.from_bytes(rest, "little")
        self.pending_bits[row] = 8 * len(rest)

    def digest(self) -> Words:
        """The finished hashes."""
        result = self.hash
        if self.pending is not None:
            # A row without pending bytes has 0 here, and 0 scrambles to 0.
            result = result ^ _scramble(self.pending.astype(np.uint32))
        result = result ^ self.length
        result ^= result >> np.uint32(16)
        result *= _FINAL_1
        result ^= result >> np.uint32(13)
        result *= _FINAL_2
        result ^= result >> np.uint32(16)
        return result


def _scramble(word: Words) -> Words:
    word = word * _C1
    word = _rotate_left(word, 15)
    word *= _C2
    return word


def _step(hash_: Words, word: Words) -> Words:
    mixed = _scramble(word)
    mixed ^= hash_
    mixed = _rotate_left(mixed, 13)
    mixed *= _STEP
    mixed += _STEP_ADD
    return mixed


def _rotate_left(word: Words, bits: int) -> Words:
    high = word << np.uint32(bits)
    high |= word >> np.uint32(32 - bits)
    return high


# --- encoded columns -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _LongColumn:
    """Values of 8 bytes each."""

    values: Longs
    valid: Bools | None

    def feed(self, hasher: _Hasher) -> None:
        hasher.feed_longs(self.values, self.valid)


@dataclass(frozen=True, slots=True)
class _BytesColumn:
    """Values of any length: row i is `data[starts[i] : starts[i] + lengths[i]]`.

    At least `_PAD` readable bytes follow the last value in `data`.
    """

    data: NDArray[np.uint8]
    starts: Longs
    lengths: Longs
    valid: Bools | None

    def feed(self, hasher: _Hasher) -> None:
        lengths = self.lengths if self.valid is None else self.lengths * self.valid
        hasher.length += lengths.astype(np.uint32)
        full_words = lengths >> 2
        rest = lengths & 3
        # The 4 bytes at every position, aligned or not.
        words: Words = np.ndarray(len(self.data) - 3, np.uint32, self.data, strides=(1,))

        shared = int(full_words.min()) if len(lengths) > _FEW_ROWS else 0
        for index in range(shared):
            hasher.feed_words(words[self.starts + 4 * index], slice(None))
        rows = np.flatnonzero(full_words > shared)
        for index in range(shared, int(full_words.max())):
            if len(rows) <= _FEW_ROWS:
                for row in rows.tolist():
                    start, stop = self.starts[row] + 4 * index, self.starts[row] + lengths[row]
                    hasher.feed_long(row, self.data[start:stop])
                rest[rows] = 0
                break
            hasher.feed_words(words[self.starts[rows] + 4 * index], rows)
            rows = rows[full_words[rows] > index + 1]

        # Rows of feed_long are past their rest; their word is masked to nothing.
        mask = (np.uint32(1) << (rest.astype(np.uint32) << np.uint32(3))) - np.uint32(1)
        hasher.feed_rest(words[self.starts + 4 * full_words] & mask, rest.astype(np.uint64))


_Column: TypeAlias = _LongColumn | _BytesColumn | None
_Encoder: TypeAlias = Callable[[Any], _Column]


# --- encoders ------------------------------------------------------------------------------


def _encoder_for(type_: Any) -> _Encoder:
    """The function that turns arrays of a type into canonical bytes."""
    types = pa.types
    if types.is_null(type_):
        return lambda array: None
    if types.is_boolean(type_):
        return _encode_bool
    if types.is_integer(type_):
        return _long_encoder(type_.to_pandas_dtype())
    if types.is_floating(type_):
        return _float_encoder(type_.to_pandas_dtype())
    if types.is_date32(type_):
        return _long_encoder(np.int32)
    if types.is_date64(type_):
        return _long_encoder(np.int64, divide=_MILLIS_PER_DAY)
    if types.is_time32(type_):
        return _long_encoder(np.int32, multiply=_MICROS_PER_UNIT[type_.unit])
    if types.is_time64(type_) or types.is_timestamp(type_):
        if type_.unit == "ns":
            return _long_encoder(np.int64, divide=1_000)
        return _long_encoder(np.int64, multiply=_MICROS_PER_UNIT[type_.unit])
    if types.is_decimal(type_):
        return _encode_decimal
    if types.is_string(type_) or types.is_binary(type_):
        return _offsets_encoder(np.int32)
    if types.is_large_string(type_) or types.is_large_binary(type_):
        return _offsets_encoder(np.int64)
    if types.is_string_view(type_):
        return lambda array: _encode_offsets(array.cast(pa.large_string()), np.int64)
    if types.is_binary_view(type_):
        return lambda array: _encode_offsets(array.cast(pa.large_binary()), np.int64)
    if types.is_fixed_size_binary(type_):
        return _encode_fixed_size
    if types.is_dictionary(type_):
        encode_value = _encoder_for(type_.value_type)
        return lambda array: encode_value(array.dictionary_decode())
    if isinstance(type_, pa.BaseExtensionType):
        encode_storage = _encoder_for(type_.storage_type)
        return lambda array: encode_storage(array.storage)
    raise InvalidInput(f"Values of type {type_} cannot be hashed.")


def _long_encoder(dtype: Any, multiply: int = 1, divide: int = 1) -> _Encoder:
    def encode(array: Any) -> _Column:
        values = _values(array, dtype)
        longs: Longs = values.view(np.int64) if values.itemsize == 8 else values.astype(np.int64)
        if multiply != 1:
            longs = longs * multiply
        if divide != 1:
            longs = longs // divide
        return _LongColumn(longs, _validity(array))

    return encode


def _float_encoder(dtype: Any) -> _Encoder:
    def encode(array: Any) -> _Column:
        # Signalling NaNs, also those that lie under NULLs, are no reason for a warning.
        with np.errstate(invalid="ignore"):
            doubles = _values(array, dtype).astype(np.float64)
            doubles += 0.0  # -0.0 + 0.0 is 0.0
        doubles[np.isnan(doubles)] = np.nan
        return _LongColumn(doubles.view(np.int64), _validity(array))

    return encode


def _encode_bool(array: Any) -> _Column:
    bits = _bits(array.buffers()[1], array.offset, len(array))
    return _LongColumn(bits.astype(np.int64), _validity(array))


def _encode_decimal(array: Any) -> _Column:
    """Cut each big-endian value to its last bytes: leading sign bytes do not count."""
    width = array.type.byte_width
    if width < 8:
        limbs = _values(array, np.int32).astype(np.int64).reshape(-1, 1)
    else:
        limbs = _values(array, np.int64, per_row=width // 8).reshape(-1, width // 8)
    rows, count = limbs.shape

    # A value of b bits without its sign needs b // 8 + 1 bytes.
    sign = limbs[:, -1] >> 63
    lengths = np.ones(rows, np.int64)
    for index in range(count):
        magnitude = (limbs[:, index] ^ sign).view(np.uint64)
        size = np.full(rows, 8 * index + 1, np.int64)
        for bits in range(8, 65, 8):
            size += magnitude >= np.uint64(1 << (bits - 1))
        lengths = np.where(magnitude != 0, size, lengths)

    # The pad after the last row keeps the reads of whole words inside.
    big_endian = np.zeros((rows + 1) * count, np.int64)
    big_endian[:-count] = limbs[:, ::-1].byteswap().reshape(-1)
    ends = np.arange(1, rows + 1, dtype=np.int64) * (8 * count)
    return _BytesColumn(big_endian.view(np.uint8), ends - lengths, lengths, _validity(array))


def _offsets_encoder(dtype: Any) -> _Encoder:
    return lambda array: _encode_offsets(array, dtype)


def _encode_offsets(array: Any, dtype: Any) -> _Column:
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = _items(offsets_buffer, dtype, array.offset, len(array) + 1)
    first = int(offsets[0])
    data = _padded(data_buffer, first, int(offsets[-1]))
    starts = offsets[:-1].astype(np.int64)
    lengths = offsets[1:].astype(np.int64) - starts
    return _BytesColumn(data, starts - first, lengths, _validity(array))


def _encode_fixed_size(array: Any) -> _Column:
    width = array.type.byte_width
    first = array.offset * width
    data = _padded(array.buffers()[1], first, first + len(array) * width)
    starts = np.arange(len(array), dtype=np.int64) * width
    return _BytesColumn(data, starts, np.full(len(array), width, np.int64), _validity(array))


def _murmur3_dictionary(array: Any) -> pa.Int32Array:
    if len(array.dictionary) > len(array):
        return murmur3_multi([array])
    return murmur3(array.dictionary).take(array.indices)


# --- Arrow memory --------------------------------------------------------------------------
# Buffers are read directly: the conversions of pyarrow import pandas where it is installed,
# which costs a fresh process more than the hashes do.


def _type_of(array: Any) -> Any:
    if not isinstance(array, pa.Array | pa.ChunkedArray):
        raise InvalidInput(f"Only pyarrow arrays can be hashed, not {type(array).__name__}.")
    return array.type


def _chunks_of(array: Any) -> list[Any]:
    return list(array.chunks) if isinstance(array, pa.ChunkedArray) else [array]


def _aligned_pieces(arrays: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Cut columns of equal length into rows of pieces: each lies in one chunk and one block."""
    chunk_ends: set[int] = set()
    for array in arrays:
        end = 0
        for chunk in _chunks_of(array):
            end += len(chunk)
            chunk_ends.add(end)
    ends: list[int] = []
    start = 0
    for end in sorted(chunk_ends):
        ends.extend(range(start + _BLOCK_ROWS, end, _BLOCK_ROWS))
        if end > start:
            ends.append(end)
        start = end
    return zip(*(_pieces(_chunks_of(array), ends) for array in arrays), strict=True)


def _pieces(chunks: list[Any], ends: list[int]) -> Iterator[Any]:
    remaining = iter(chunks)
    chunk = None
    chunk_start = chunk_end = start = 0
    for end in ends:
        while end > chunk_end:
            chunk = next(remaining)
            chunk_start, chunk_end = chunk_end, chunk_end + len(chunk)
        assert chunk is not None
        yield chunk.slice(start - chunk_start, end - start)
        start = end


def _values(array: Any, dtype: Any, per_row: int = 1) -> NDArray[Any]:
    """The fixed-width values of an array, without a copy; arbitrary where NULL."""
    first = array.offset * per_row
    return _items(array.buffers()[1], dtype, first, len(array) * per_row)


def _items(buffer: Any, dtype: Any, first: int, count: int) -> NDArray[Any]:
    if count == 0:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, count, first * np.dtype(dtype).itemsize)


def _validity(array: Any) -> Bools | None:
    """Which rows are not NULL, or None where all are."""
    if array.null_count == 0:
        return None
    return _bits(array.buffers()[0], array.offset, len(array))


def _bits(buffer: Any, offset: int, length: int) -> Bools:
    first_byte = offset // 8
    octets = np.frombuffer(buffer, np.uint8)[first_byte : (offset + length + 7) // 8]
    bits = np.unpackbits(octets, bitorder="little")[offset % 8 :][:length]
    return bits.view(np.bool_)


def _padded(buffer: Any, start: int, stop: int) -> NDArray[np.uint8]:
    """The bytes from `start` to `stop`, and `_PAD` more."""
    if buffer is not None and stop + _PAD <= buffer.size:
        return np.frombuffer(buffer, np.uint8)[start : stop + _PAD]
    data = np.zeros(stop - start + _PAD, np.uint8)
    if stop > start:
        data[:-_PAD] = np.frombuffer(buffer, np.uint8)[start:stop]
    return data


def _int32_array(values: NDArray[np.int32], valid: Bools) -> pa.Int32Array:
    validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.int32(), len(values), [validity, pa.py_buffer(values)])
