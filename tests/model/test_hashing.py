"""Our hash against mmh3, over canonical bytes that are written out a second time here."""

import datetime as dt
import decimal
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.errors import InvalidInput
from phalanx.model import hashing
from phalanx.model.hashing import bucket, murmur3, murmur3_multi

INT_MIN = -(2**31)


def eight(value: int) -> bytes:
    return (value % 2**64).to_bytes(8, "little")


def double(value: float) -> bytes:
    if value != value:
        return bytes.fromhex("000000000000f87f")
    return struct.pack("<d", 0.0 if value == 0 else value)


def big_endian(value: int) -> bytes:
    for size in range(1, 34):
        try:
            return value.to_bytes(size, "big", signed=True)
        except OverflowError:
            continue
    raise AssertionError(value)


@dataclass(frozen=True)
class Case:
    """A type, the values to try it with, and the canonical bytes of each."""

    type: pa.DataType
    values: st.SearchStrategy[Any]
    encode: Callable[[Any], bytes]

    def array(self, values: list[Any]) -> pa.Array:
        if isinstance(self.type, pa.BaseExtensionType):
            storage = pa.array(values, self.type.storage_type)
            return pa.ExtensionArray.from_storage(self.type, storage)
        if pa.types.is_decimal(self.type):
            return decimals(values, self.type)
        if pa.types.is_dictionary(self.type):
            return pa.array(values, self.type.value_type).dictionary_encode().cast(self.type)
        if pa.types.is_float16(self.type):
            halves = [None if value is None else np.float16(value) for value in values]
            return pa.array(halves, self.type)
        return pa.array(values, self.type)

    def hash(self, value: Any) -> int | None:
        return None if value is None else mmh3.hash(self.encode(value), 0)


def decimals(unscaled: list[int | None], type_: pa.DataType) -> pa.Array:
    """Build from unscaled values: all bits of the type are used, whatever its precision."""
    width = type_.byte_width
    data = b"".join((value or 0).to_bytes(width, "little", signed=True) for value in unscaled)
    present = np.array([value is not None for value in unscaled], np.bool_)
    valid = np.packbits(present, bitorder="little")
    buffers = [pa.py_buffer(valid.tobytes()), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, len(unscaled), buffers)


def signed(bits: int) -> st.SearchStrategy[int]:
    edges = [edge + step for power in range(7, bits, 8) for edge in (2**power,) for step in (-1, 0)]
    edges = [0, -1, 1, *edges, *(-edge for edge in edges), -(2 ** (bits - 1))]
    inside = [edge for edge in edges if -(2 ** (bits - 1)) <= edge < 2 ** (bits - 1)]
    return st.sampled_from(inside) | st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.sampled_from([0, 2 ** (bits - 1), 2**bits - 1]) | st.integers(0, 2**bits - 1)


def scaled(multiply: int = 1, divide: int = 1) -> Callable[[int], bytes]:
    return lambda value: eight(value * multiply // divide)


texts = st.text(max_size=20)
octets = st.binary(max_size=20) | st.binary(min_size=100, max_size=140)

CASES = {
    str(case.type): case
    for case in [
        *(Case(getattr(pa, f"int{bits}")(), signed(bits), eight) for bits in (8, 16, 32, 64)),
        *(Case(getattr(pa, f"uint{bits}")(), unsigned(bits), eight) for bits in (8, 16, 32, 64)),
        Case(pa.bool_(), st.booleans(), eight),
        Case(pa.float16(), st.floats(width=16), double),
        Case(pa.float32(), st.floats(width=32), double),
        Case(pa.float64(), st.floats(), double),
        Case(pa.date32(), signed(32), eight),
        Case(pa.date64(), signed(40), scaled(divide=86_400_000)),
        Case(pa.time32("s"), st.integers(0, 86_399), scaled(1_000_000)),
        Case(pa.time32("ms"), st.integers(0, 86_399_999), scaled(1_000)),
        Case(pa.time64("us"), st.integers(0, 86_399_999_999), eight),
        Case(pa.time64("ns"), st.integers(0, 86_399_999_999_999), scaled(divide=1_000)),
        Case(pa.timestamp("s"), signed(64), scaled(1_000_000)),
        Case(pa.timestamp("ms", "UTC"), signed(64), scaled(1_000)),
        Case(pa.timestamp("us"), signed(64), eight),
        Case(pa.timestamp("us", "America/New_York"), signed(64), eight),
        Case(pa.timestamp("ns", "Asia/Kolkata"), signed(64), scaled(divide=1_000)),
        Case(pa.decimal32(9, 2), signed(32), big_endian),
        Case(pa.decimal64(18, 2), signed(64), big_endian),
        Case(pa.decimal128(38, 2), signed(64) | signed(128), big_endian),
        Case(pa.decimal256(76, 2), signed(64) | signed(128) | signed(256), big_endian),
        Case(pa.string(), texts, str.encode),
        Case(pa.large_string(), texts, str.encode),
        Case(pa.string_view(), texts, str.encode),
        Case(pa.binary(), octets, bytes),
        Case(pa.large_binary(), octets, bytes),
        Case(pa.binary_view(), octets, bytes),
        *(
            Case(pa.binary(size), st.binary(min_size=size, max_size=size), bytes)
            for size in (0, 1, 4, 7)
        ),
        Case(pa.uuid(), st.binary(min_size=16, max_size=16), bytes),
        Case(pa.json_(), texts, str.encode),
        Case(pa.dictionary(pa.int16(), pa.string()), texts, str.encode),
        Case(pa.dictionary(pa.int32(), pa.int64()), signed(64), eight),
    ]
}

some_examples = settings(max_examples=40, deadline=None)
every_type = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def columns(case: Case, min_size: int = 0, max_size: int = 30) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | case.values, min_size=min_size, max_size=max_size)


def small_blocks(rows: int, few: int) -> Any:
    """Make block ends and the way of long values show in short arrays."""
    return mock.patch.multiple(hashing, _BLOCK_ROWS=rows, _FEW_ROWS=few)


block_sizes = st.sampled_from([1, 5, 1000])
few_rows = st.sampled_from([0, 2, 32])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((pa.scalar(34, type_), 2017239379) for type_ in (pa.int8(), pa.int32(), pa.uint64())),
        (pa.scalar(34, pa.int64()), 2017239379),
        *(
            (pa.scalar(decimal.Decimal("14.20"), type_), -500754589)
            for type_ in (
                pa.decimal32(9, 2),
                pa.decimal64(18, 2),
                pa.decimal128(38, 2),
                pa.decimal256(76, 2),
            )
        ),
        (pa.scalar(dt.date(2017, 11, 16), pa.date32()), -653330422),
        (pa.scalar(dt.date(2017, 11, 16), pa.date64()), -653330422),
        *(
            (pa.scalar(dt.time(22, 31, 8), type_), -662762989)
            for type_ in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
        ),
        *(
            (pa.scalar(dt.datetime(2017, 11, 16, 22, 31, 8), pa.timestamp(unit)), -2047944441)
            for unit in ("s", "ms", "us", "ns")
        ),
        (
            pa.scalar(
                dt.datetime.fromisoformat("2017-11-16T14:31:08-08:00"),
                pa.timestamp("us", "America/Los_Angeles"),
            ),
            -2047944441,
        ),
        (pa.scalar("iceberg"), 1210000089),
        (pa.scalar("iceberg", pa.large_string()), 1210000089),
        (pa.scalar(b"\x00\x01\x02\x03"), -188683207),
        (pa.scalar(b"\x00\x01\x02\x03", pa.binary(4)), -188683207),
        (pa.scalar(uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes), 1488055340),
    ],
    ids=str,
)
def test_known_values(value, expected):
    assert murmur3(pa.array([value.as_py()], value.type)).to_pylist() == [expected]


def test_known_uuid():
    value = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes
    array = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([value], pa.binary(16)))
    assert murmur3(array).to_pylist() == [1488055340]


@every_type
@some_examples
@given(data=st.data())
def test_every_type_agrees_with_mmh3(case, data):
    values = data.draw(columns(case))
    with small_blocks(data.draw(block_sizes), data.draw(few_rows)):
        result = murmur3(case.array(values))
    result.validate(full=True)
    assert result.type == pa.int32()
    assert result.to_pylist() == [case.hash(value) for value in values]


@every_type
@some_examples
@given(data=st.data())
def test_slices(case, data):
    values = data.draw(columns(case, min_size=1))
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    array = case.array(values).slice(start, stop - start)
    with small_blocks(data.draw(block_sizes), data.draw(few_rows)):
        assert murmur3(array).to_pylist() == [case.hash(value) for value in values[start:stop]]


@every_type
@some_examples
@given(data=st.data())
def test_chunks(case, data):
    parts = data.draw(st.lists(columns(case, max_size=8), max_size=4))
    chunked = pa.chunked_array([case.array(part) for part in parts], case.type)
    with small_blocks(data.draw(block_sizes), data.draw(few_rows)):
        result = murmur3(chunked)
    assert isinstance(result, pa.Int32Array)
    assert result.to_pylist() == [case.hash(value) for part in parts for value in part]


@every_type
def test_empty_and_all_null(case):
    assert murmur3(case.array([])) == pa.array([], pa.int32())
    assert murmur3(pa.chunked_array([], case.type)) == pa.array([], pa.int32())
    assert murmur3(pa.nulls(3, case.type)) == pa.nulls(3, pa.int32())
    assert murmur3(pa.nulls(9, case.type).slice(2, 5)) == pa.nulls(5, pa.int32())


def test_null_type():
    assert murmur3(pa.nulls(4)) == pa.nulls(4, pa.int32())
    assert murmur3(pa.chunked_array([pa.nulls(1), pa.nulls(2)])) == pa.nulls(3, pa.int32())


@settings(deadline=None)
@given(data=st.data())
def test_several_columns(data):
    cases = data.draw(st.lists(st.sampled_from(list(CASES.values())), min_size=1, max_size=4))
    rows = data.draw(st.integers(0, 40))
    drawn = [data.draw(columns(case, rows, rows)) for case in cases]
    arrays = [chopped(case.array(values), data) for case, values in zip(cases, drawn, strict=True)]
    with small_blocks(data.draw(block_sizes), data.draw(few_rows)):
        result = murmur3_multi(arrays)
    assert result.to_pylist() == [joined_hash(cases, row) for row in zip(*drawn, strict=True)]


def chopped(array: pa.Array, data: st.DataObject) -> pa.Array | pa.ChunkedArray:
    if data.draw(st.booleans()):
        return array
    cut = data.draw(st.integers(0, len(array)))
    return pa.chunked_array([array[:cut], array[cut:]], array.type)


def joined_hash(cases: list[Case], row: tuple[Any, ...]) -> int | None:
    parts = [case.encode(v) for case, v in zip(cases, row, strict=True) if v is not None]
    return mmh3.hash(b"".join(parts), 0) if parts else None


def test_several_columns_skip_nulls_and_join_bytes():
    words = pa.array(["ab", None, "ab", None])
    more = pa.array(["c", "c", None, None])
    expected = [mmh3.hash(text, 0) for text in ("abc", "c", "ab")]
    assert murmur3_multi([words, more]).to_pylist() == [*expected, None]
    assert murmur3_multi([words, pa.nulls(4), more]).to_pylist() == [*expected, None]
    assert murmur3_multi([pa.nulls(2), pa.nulls(2)]) == pa.nulls(2, pa.int32())


def test_many_rows_of_mixed_lengths():
    numbers = range(70_000)
    texts = [str(n) * (1 + n % 7) for n in numbers] + ["long " * 50_000]
    array = pa.array(texts)
    assert murmur3(array).to_pylist() == [mmh3.hash(text, 0) for text in texts]
    longs = pa.array([*numbers, -1])
    assert murmur3_multi([array, longs, array]).to_pylist() == [
        mmh3.hash(text.encode() + eight(n) + text.encode(), 0)
        for text, n in zip(texts, longs.to_pylist(), strict=True)
    ]


def test_values_at_the_end_of_their_memory():
    text = b"abcdefgh"
    for size in range(len(text) + 1):
        buffers = [None, pa.py_buffer(struct.pack("<2i", 0, size)), pa.py_buffer(text[:size])]
        array = pa.Array.from_buffers(pa.binary(), 1, buffers)
        assert murmur3(array).to_pylist() == [mmh3.hash(text[:size], 0)]


def test_widening_never_moves_a_row():
    small = pa.array([-128, -1, 0, 1, 127, None], pa.int8())
    wider = [pa.int16(), pa.int32(), pa.int64()]
    assert all(murmur3(small.cast(type_)) == murmur3(small) for type_ in wider)
    halves = pa.array([np.float16(x) for x in (-1.5, -0.0, 0.0, float("inf"), float("nan"))])
    assert all(murmur3(halves.cast(t)) == murmur3(halves) for t in (pa.float32(), pa.float64()))
    days = pa.array([-20000, -1, 0, 19000], pa.date32())
    assert murmur3(days.cast(pa.date64())) == murmur3(days)


@pytest.mark.filterwarnings("error")
def test_zeros_and_nans_are_one():
    other_nans = np.array([0xFFF8000000000001, 0x7FF0000000000001], np.uint64).view(np.float64)
    zeros = murmur3(pa.array([0.0, -0.0])).to_pylist()
    nans = murmur3(pa.array(np.array([np.nan, *other_nans]))).to_pylist()
    assert zeros[0] == zeros[1]
    assert len(set(nans)) == 1


def test_nanoseconds_round_down():
    instants = pa.array([-1, -1000, -1001], pa.timestamp("ns"))
    assert murmur3(instants) == murmur3(pa.array([-1, -1, -2], pa.timestamp("us")))


def test_dictionaries_with_null_or_unused_values():
    dictionary = pa.array(["a", None, "b", "unused"])
    indices = pa.array([0, 1, None, 2, 0, 0], pa.int8())
    array = pa.DictionaryArray.from_arrays(indices, dictionary)
    expected = murmur3(pa.array(["a", None, None, "b", "a", "a"]))
    assert murmur3(array) == expected
    assert murmur3(array.slice(3, 2)) == expected.slice(3, 2)
    assert murmur3_multi([array]) == expected
    chunks = pa.chunked_array([array, pa.array(["z"]).dictionary_encode().cast(array.type)])
    assert murmur3(chunks) == murmur3(pa.array(["a", None, None, "b", "a", "a", "z"]))


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(pa.int32()),
        pa.struct([("a", pa.int32())]),
        pa.map_(pa.string(), pa.int32()),
        pa.duration("us"),
        pa.dictionary(pa.int8(), pa.list_(pa.int32())),
        pa.fixed_shape_tensor(pa.float32(), [2]),
    ],
    ids=str,
)
def test_other_types_are_refused_even_when_empty(type_):
    empty = pa.chunked_array([], type_)
    with pytest.raises(InvalidInput, match="cannot be hashed"):
        murmur3(empty)
    with pytest.raises(InvalidInput, match="cannot be hashed"):
        murmur3_multi([pa.chunked_array([], pa.int32()), empty])


def test_bad_arguments():
    with pytest.raises(InvalidInput, match="not list"):
        murmur3([1, 2])
    with pytest.raises(InvalidInput, match="at least one column"):
        murmur3_multi([])
    with pytest.raises(InvalidInput, match="differ in length: 1, 2"):
        murmur3_multi([pa.array([1]), pa.array([1, 2])])
    with pytest.raises(InvalidInput, match="int32 hashes, not from int64"):
        bucket(pa.array([1]), 4)
    for number in (0, -1, 2**31):
        with pytest.raises(InvalidInput, match="number of buckets"):
            bucket(pa.array([1], pa.int32()), number)


@settings(deadline=None)
@given(
    st.lists(st.none() | signed(32), max_size=30),
    st.sampled_from([1, 2, 3, 16, 2**31 - 1]) | st.integers(1, 2**31 - 1),
    st.integers(0, 30),
)
def test_bucket(values, number, start):
    hashes = pa.array(values, pa.int32()).slice(start)
    result = bucket(hashes, number)
    assert result.type == pa.int32()
    assert result.to_pylist() == [
        None if value is None else abs(value) % number for value in values[start:]
    ]
    assert bucket(pa.chunked_array([hashes[:3], hashes[3:]]), number) == result


def test_bucket_of_the_smallest_hash():
    hashes = pa.array([INT_MIN, INT_MIN + 1, 2**31 - 1, None], pa.int32())
    assert bucket(hashes, 2**31 - 1).to_pylist() == [1, 0, 0, None]
    assert bucket(hashes, 10).to_pylist() == [8, 7, 7, None]
    assert bucket(pa.array([], pa.int32()), 10) == pa.array([], pa.int32())


def _length_prefixed(*elements):
    return b"".join(
        struct.pack("<i", -1) if e is None else struct.pack("<i", len(e)) + e for e in elements
    )


def _long(number):
    return number.to_bytes(8, "little", signed=True)


@pytest.mark.parametrize(
    ("value", "type", "canonical"),
    [
        ([1, None, 2], pa.list_(pa.int32()), _length_prefixed(_long(1), None, _long(2))),
        ([], pa.large_list(pa.string()), b""),
        ([1.5, -0.0], pa.list_(pa.float32(), 2), None),
        (
            {"a": 7, "b": "x"},
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
            _length_prefixed(_long(7), b"x"),
        ),
        (
            [("k", 1), ("l", None)],
            pa.map_(pa.string(), pa.int64()),
            _length_prefixed(_length_prefixed(b"k", _long(1)), _length_prefixed(b"l", None)),
        ),
        (
            [["a"], None],
            pa.list_(pa.list_(pa.string())),
            _length_prefixed(_length_prefixed(b"a"), None),
        ),
    ],
    ids=str,
)
def test_nested_values_are_hashed_over_their_elements(value, type, canonical):
    if canonical is None:
        canonical = _length_prefixed(struct.pack("<d", 1.5), struct.pack("<d", 0.0))
    array = pa.array([None, value, None], type)
    assert hashing.murmur3_any(array).to_pylist() == [None, mmh3.hash(canonical), None]
    assert hashing.murmur3_any(array.slice(1)).to_pylist() == [mmh3.hash(canonical), None]


def test_elements_without_canonical_bytes_are_refused():
    with pytest.raises(InvalidInput, match="cannot be hashed"):
        hashing.murmur3_any(pa.nulls(0, pa.list_(pa.duration("s"))))
