"""md5_int and the buckets of the earlier specification, against hashlib."""

import datetime as dt
import hashlib
from decimal import Decimal

import pyarrow as pa
import pytest

from phalanx.errors import InvalidInput
from phalanx.model import md5
from phalanx.model.domains import domain_of
from phalanx.model.sets import ALL_VALUES, FULL
from phalanx.model.transforms import Expression, Md5Bucket, expression

BUCKET = "abs(md5_int(col0)) % 16"
MULTI = "abs(md5_int(concat(col0, col1))) % 16"


def by_hand(text):
    """The first 8 bytes of the digest as a signed big-endian integer."""
    digest = hashlib.md5(text if isinstance(text, bytes) else text.encode()).digest()
    number = int(digest[:8].hex(), 16)
    return number - 2**64 if number >= 2**63 else number


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (pa.array([0, 42, -7, None], pa.int64()), ["0", "42", "-7", None]),
        (pa.array([-(2**63), 2**63 - 1]), ["-9223372036854775808", "9223372036854775807"]),
        (pa.array([42, -7], pa.int8()), ["42", "-7"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([1.5, -2.25, 5.0, -0.0]), ["1.5", "-2.25", "5.0", "0.0"]),
        (pa.array([1.5, 0.1], pa.float32()), ["1.5", "0.10000000149011612"]),
        (pa.array(["", "a", "é😀", None]), ["", "a", "é😀", None]),
        (pa.array(["a", "a"]).dictionary_encode(), ["a", "a"]),
        (pa.array([b"\x00\xff", b""]), [b"\x00\xff", b""]),
        (pa.array([b"\x00\xff"], pa.binary(2)), [b"\x00\xff"]),
        (pa.array([dt.date(2025, 12, 10), dt.date(1969, 7, 20)]), ["2025-12-10", "1969-07-20"]),
        (pa.array([Decimal("14.20"), Decimal("-0.01")]), ["14.20", "-0.01"]),
        (pa.array([True, False]), ["true", "false"]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_values(array, texts):
    wanted = [None if text is None else by_hand(text) for text in texts]
    assert md5.md5_int(array).to_pylist() == wanted


def test_known_value():
    """Computed with md5sum: the definition cannot drift together with the test."""
    # echo -n a | md5sum: 0cc175b9c0f1b6a8 31c399e269772661
    assert md5.md5_int(pa.array(["a"])).to_pylist() == [0x0CC175B9C0F1B6A8]
    # echo -n 5 | md5sum: e4da3b7fbbce2345 d7772b0674a318d5, whose first bit is set
    assert md5.md5_int(pa.array([5])).to_pylist() == [0xE4DA3B7FBBCE2345 - 2**64]


def test_abs_of_the_lowest_number_does_not_overflow(monkeypatch):
    monkeypatch.setattr(md5, "_hash", lambda value: -(2**63))
    assert md5.md5_bucket([pa.array(["x"])], 1, 10).to_pylist() == [2**63 % 10]


class TestRecognition:
    @pytest.mark.parametrize(
        "sql", [BUCKET, MULTI, "ABS(md5_int(col0))%7", "( abs(md5_int(col0)) ) % 3"]
    )
    def test_known_forms(self, sql):
        assert isinstance(expression(sql), Md5Bucket)
        assert expression(sql).sql == sql

    @pytest.mark.parametrize(
        "sql",
        [
            "md5_int(col0) % 16",
            "abs(md5_int(col0)) % 0",
            "abs(md5_int(col0)) % col1",
            "abs(md5_int(upper(col0))) % 16",
            "abs(md5_int(concat('a'))) % 16",
            "abs(md5_int(col0)) +",
            "upper(col0)",
        ],
    )
    def test_other_expressions(self, sql):
        assert type(expression(sql)) is Expression

    def test_too_few_columns(self):
        with pytest.raises(InvalidInput, match="needs 2 columns"):
            expression(MULTI).result_type([pa.int64()])


class TestBuckets:
    def test_one_column(self):
        buckets = expression(BUCKET).apply([pa.array([5, -7, None])])
        assert buckets.type == pa.int64()
        assert buckets.to_pylist() == [abs(by_hand("5")) % 16, abs(by_hand("-7")) % 16, None]

    def test_several_columns_are_null_if_any_is(self):
        buckets = expression(MULTI).apply([pa.array([1, None, 2]), pa.array(["a", "b", None])])
        assert buckets.to_pylist() == [abs(by_hand("1a")) % 16, None, None]

    def test_removed_columns_are_passed_over(self):
        apply = expression(MULTI).apply
        assert apply([pa.nulls(1), pa.array(["b"])]).to_pylist() == [abs(by_hand("b")) % 16]
        assert apply([pa.nulls(1), pa.nulls(1)]).to_pylist() == [None]

    @pytest.mark.parametrize("wide", [pa.int16(), pa.int32(), pa.int64()])
    def test_promotion_moves_no_row(self, wide):
        narrow = pa.array([-128, -1, 0, 5, 127], pa.int8())
        apply = expression(BUCKET).apply
        assert apply([narrow]).equals(apply([narrow.cast(wide)]))

    def test_no_rows(self):
        assert expression(MULTI).apply([pa.array([], pa.int64()), pa.array([], pa.string())]) == (
            pa.array([], pa.int64())
        )


class TestProjection:
    def points(self, type, *keys):
        return domain_of(type).points(list(keys))

    def test_equality_names_one_bucket(self):
        bucket = abs(by_hand("5")) % 16
        projected = expression(BUCKET).project([self.points(pa.int32(), 5)], [pa.int32()])
        assert projected == self.points(pa.int64(), bucket)

    def test_null(self):
        values = self.points(pa.int32()).with_null(True)
        projected = expression(BUCKET).project([values], [pa.int32()])
        assert projected == self.points(pa.int64()).with_null(True)

    def test_a_range_names_none(self):
        values = domain_of(pa.int64()).points([1])
        wide = values.complement(null=False)
        assert expression(BUCKET).project([wide], [pa.int64()]) == ALL_VALUES

    def test_null_in_several_columns_may_be_null_or_passed_over(self):
        null = self.points(pa.int64()).with_null(True)
        text = self.points(pa.string(), "b")
        projected = expression(MULTI).project([null, text], [pa.int64(), pa.string()])
        bucket = abs(by_hand("b")) % 16
        assert projected == self.points(pa.int64(), bucket).with_null(True)

    def test_what_is_not_specified_is_not_pruned(self):
        values = domain_of(pa.float64()).points([domain_of(pa.float64()).key(pa.scalar(1.5))])
        assert expression(BUCKET).project([values], [pa.float64()]) == FULL
