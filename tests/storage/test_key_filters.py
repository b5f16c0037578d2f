"""Key filters: no value that is there is ever said to be missing."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.storage.key_filters import KeyFilter, can_filter, hashes_of


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers(1, 5))
def test_every_value_that_is_there_may_be_there(values, parts):
    array = pa.array(values, pa.int64())
    cuts = np.array_split(np.arange(len(values)), parts)
    filter = KeyFilter([hashes_of(array.take(pa.array(cut, pa.int64()))) for cut in cuts])
    for value in values:
        assert filter.may_hold(hashes_of(pa.array([value], pa.int64())))
        assert filter.may_hold(hashes_of(pa.array([0, value], pa.int64())))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text()))
def test_texts(values):
    filter = KeyFilter([hashes_of(pa.array([*values, None], pa.string()))])
    assert all(filter.may_hold(hashes_of(pa.array([v], pa.large_string()))) for v in values)


def test_most_other_values_are_known_not_to_be_there():
    filter = KeyFilter([hashes_of(pa.array(range(10_000)))])
    others = [filter.may_hold(hashes_of(pa.array([n]))) for n in range(10_000, 12_000)]
    assert sum(others) < 200
    assert filter.size <= 4 * 10_000


def test_no_values():
    filter = KeyFilter([])
    assert not filter.may_hold(hashes_of(pa.array([1])))
    assert not filter.may_hold(hashes_of(pa.array([], pa.int64())))


def test_a_wider_number_has_the_same_hash():
    assert (hashes_of(pa.array([7, -7], pa.int8())) == hashes_of(pa.array([7, -7]))).all()


@pytest.mark.parametrize("type", [pa.float64(), pa.decimal128(5, 2), pa.bool_(), pa.timestamp("s")])
def test_types_without_filters(type):
    assert not can_filter(type)
