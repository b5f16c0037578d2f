"""Which types hold the values of others."""

import pyarrow as pa
import pytest

from phalanx.model.promotion import keeps_values


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        (pa.int32(), pa.int64(), False),
        (pa.uint32(), pa.int64(), False),
        (pa.string(), pa.large_string(), True),
        (pa.binary(), pa.large_binary(), True),
        (pa.list_(pa.int32()), pa.large_list(pa.int64()), False),
        (pa.list_(pa.field("item", pa.int8(), nullable=False)), pa.list_(pa.int8()), True),
        (pa.list_(pa.float32(), 2), pa.list_(pa.float64(), 2), False),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int16()), False),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), False),
        (pa.list_(pa.struct([("a", pa.int8())])), pa.list_(pa.struct([("a", pa.int16())])), False),
    ],
)
def test_values_are_kept(old, new, both):
    assert keeps_values(old, new)
    assert keeps_values(new, old) is both


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.string(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.int64(), pa.float64()),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("ns")),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3)),
        (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())])),
        (pa.list_(pa.int8()), pa.int8()),
    ],
)
def test_values_are_not_kept(old, new):
    assert not keeps_values(old, new)
    assert not keeps_values(new, old)
