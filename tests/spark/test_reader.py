"""What tasks send to Spark."""

import pyarrow as pa

from phalanx.spark.reader import joined


def batches(*sizes, width=1):
    """Batches with consecutive numbers, and a text of some length in each row."""
    start = 0
    for size in sizes:
        text = ["x" * width] * size
        numbers = pa.array(range(start, start + size), pa.int64())
        yield pa.record_batch({"n": numbers, "text": pa.array(text, pa.string())})
        start += size


def test_small_batches_are_joined():
    result = list(joined(batches(10_000, 6_000, 384, 1, 16_384, 20_000, 5, 0, 7)))
    assert [batch.num_rows for batch in result] == [16_384, 1, 16_384, 20_000, 12]
    numbers = [n for batch in result for n in batch.column("n").to_pylist()]
    assert numbers == list(range(52_781))


def test_wide_rows_are_not_joined_beyond_some_megabytes():
    result = list(joined(batches(100, 100, 100, width=20_000)))
    assert [batch.num_rows for batch in result] == [200, 100]


def test_none():
    assert list(joined([])) == []


def test_one_is_not_copied():
    (batch,) = batches(5)
    assert next(joined([batch])) is batch
