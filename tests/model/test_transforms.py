"""The eight transforms and custom expressions: values, types, projections, JSON."""

import datetime as dt
import itertools
import math
from decimal import Decimal
from typing import Any

import mmh3
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.errors import InvalidInput
from phalanx.model import hashing
from phalanx.model.dialect import term_to_sql
from phalanx.model.domains import domain_of
from phalanx.model.predicates import Column
from phalanx.model.sets import ALL_VALUES, EMPTY, FULL, NULL_ONLY, ValueSet
from phalanx.model.transforms import (
    Bucket,
    Day,
    Expression,
    FloorTruncate,
    Hash,
    Hour,
    Identity,
    ModBucket,
    Month,
    MultiBucket,
    Truncate,
    Year,
    from_json,
)

ALL = [Identity(), Year(), Month(), Day(), Hour(), Bucket(4), MultiBucket(4), Truncate(10)]
ALL += [ModBucket(4), Hash(), FloorTruncate(10)]
NEW_YORK = "America/New_York"
MOMENTS = [
    dt.datetime(2025, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(2026, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59),
    dt.datetime(1, 1, 1),
    dt.datetime(9999, 12, 31, 23),
    None,
]


def parts(name: str) -> list[int | None]:
    return [None if moment is None else getattr(moment, name) for moment in MOMENTS]


TIMES = [pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us")]
DATES = [pa.date32(), pa.date64()]


@pytest.mark.parametrize(
    ("transform", "type"),
    [
        *itertools.product([Year(), Month(), Day(), Hour()], TIMES),
        *itertools.product([Year(), Month(), Day()], DATES),
    ],
    ids=str,
)
def test_parts_of_time(transform, type):
    if pa.types.is_date(type):
        array = pa.array([None if m is None else m.date() for m in MOMENTS], type)
    else:
        whole = [m and m.replace(microsecond=0) for m in MOMENTS]
        array = pa.array(MOMENTS if type.unit == "us" else whole, type)
    values = transform.apply([array])
    assert values.type == pa.int32()
    assert values.to_pylist() == parts(transform.kind)


def test_time_is_cut_in_utc():
    """New Year's Eve in New York is New Year's Day in UTC."""
    moment = dt.datetime(2026, 1, 1, 3)
    zoned = pa.array([moment], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", NEW_YORK))
    values = [transform.apply([zoned])[0].as_py() for transform in (Year(), Month(), Day(), Hour())]
    assert values == [2026, 1, 1, 3]


def test_years_beyond_arrow():
    """Arrow takes years apart up to 32767. The calendar comes round every 400 years."""
    leap_day = (dt.date(2000, 2, 29) - dt.date(1970, 1, 1)).days
    days = [leap_day + 495 * 146_097, leap_day - 250 * 146_097, None]
    dates = pa.array(days, pa.int32()).view(pa.date32())
    assert Year().apply([dates]).to_pylist() == [200_000, -98_000, None]
    assert Month().apply([dates]).to_pylist() == [2, 2, None]
    assert Day().apply([dates]).to_pylist() == [29, 29, None]
    late = pa.array([days[0] * 86_400 + 7 * 3_600 + 1]).view(pa.timestamp("s", NEW_YORK))
    assert Hour().apply([late]).to_pylist() == [7]
    with pytest.raises(InvalidInput) as error:
        Year().apply([pa.array([2**31 - 1], pa.int32()).view(pa.date32())])
    assert str(error.value) == (
        "year takes dates of the years -262143 to 262142, and there is one of the year 5881580"
    )


@pytest.mark.parametrize(
    ("width", "array", "expected"),
    [
        (
            10,
            pa.array([123, 9, 0, -1, -9, -10, -19, None], pa.int32()),
            [120, 0, 0, 0, 0, -10, -10, None],
        ),
        (10, pa.array([-128, 127], pa.int8()), [-120, 120]),
        (1, pa.array([-5, 5], pa.int64()), [-5, 5]),
        (
            100,
            pa.array([-(2**63), 2**63 - 1], pa.int64()),
            [-9223372036854775800, 9223372036854775800],
        ),
        (7, pa.array([2**64 - 1, 6], pa.uint64()), [(2**64 - 1) // 7 * 7, 0]),
        (2**31 - 1, pa.array([127], pa.int8()), [0]),
        (
            10,
            pa.array(
                [Decimal("19.99"), Decimal("-19.99"), Decimal("-0.01"), None], pa.decimal128(9, 2)
            ),
            [Decimal("10.00"), Decimal("-10.00"), Decimal("0.00"), None],
        ),
        (10, pa.array([Decimal(10**30 + 2)], pa.decimal256(40, 0)), [Decimal(10**30)]),
        (10, pa.array([12.5, -12.5, 9.99, None]), [10.0, -10.0, 0.0, None]),
        (2, pa.array([3.5, -0.5], pa.float32()), [2.0, 0.0]),
        (
            3,
            pa.array(["abcdef", "ab", "", None, "äöüß", "日本語日", "😀😀😀😀"]),
            ["abc", "ab", "", None, "äöü", "日本語", "😀😀😀"],
        ),
        (1, pa.array(["ab"], pa.large_string()), ["a"]),
        (1, pa.array(["ab"], pa.string_view()), ["a"]),
    ],
    ids=str,
)
def test_truncate(width, array, expected):
    values = Truncate(width).apply([array])
    assert values.type == array.type
    assert values.to_pylist() == expected


def test_truncate_of_endless_floats_is_nan():
    values = Truncate(10).apply([pa.array([math.inf, -math.inf, math.nan])]).to_pylist()
    assert all(math.isnan(value) for value in values)


def test_identity_knows_one_zero_and_one_nan():
    array = pa.array([0.0, -0.0, math.nan, None], pa.float32())
    values = Identity().apply([array])
    assert str(values.to_pylist()) == "[0.0, 0.0, nan, None]"
    assert values.type == pa.float32()


def test_buckets_are_hashes():
    numbers = pa.array([34, None, -1], pa.int32())
    words = pa.array(["iceberg", None, None])
    assert Bucket(16).apply([numbers]).to_pylist()[:2] == [2017239379 % 16, None]
    assert Bucket(16).apply([words]).to_pylist() == [1210000089 % 16, None, None]
    both = MultiBucket(16).apply([numbers, words])
    assert both.to_pylist()[1] is None
    assert both.to_pylist()[2] == Bucket(16).apply([numbers]).to_pylist()[2]
    assert both.to_pylist()[0] == abs(hashing.murmur3_multi([numbers, words])[0].as_py()) % 16


# Types ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transform", "type", "result"),
    [
        (Identity(), pa.string(), pa.string()),
        (Identity(), pa.timestamp("us", NEW_YORK), pa.timestamp("us", NEW_YORK)),
        (Identity(), pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (Truncate(5), pa.decimal128(9, 2), pa.decimal128(9, 2)),
        (Truncate(5), pa.int8(), pa.int8()),
        (Year(), pa.date32(), pa.int32()),
        (Hour(), pa.timestamp("s"), pa.int32()),
        (Bucket(3), pa.binary(), pa.int32()),
        (Bucket(3), pa.uuid(), pa.int32()),
        (Expression("upper(col0)"), pa.string(), pa.string()),
    ],
    ids=str,
)
def test_result_types(transform, type, result):
    assert transform.result_type([type]) == result
    assert transform.value_type([type]) == result


LIST, MAP = pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32())
STRUCT = pa.struct([("x", pa.int32())])


@pytest.mark.parametrize(
    ("transform", "type", "message"),
    [
        (Identity(), LIST, "identity cannot partition by a column of type list<item: int32>"),
        (Identity(), MAP, "identity cannot partition by a column of type map<string, int32>"),
        (Identity(), STRUCT, "identity cannot partition by a column of type struct<x: int32>"),
        (
            Identity(),
            pa.binary(),
            "identity cannot partition by a column of type binary: bucket it instead",
        ),
        (
            Identity(),
            pa.binary(4),
            "identity cannot partition by a column of type fixed_size_binary[4]: bucket it instead",
        ),
        (
            Identity(),
            pa.uuid(),
            "identity cannot partition by a column of type extension<arrow.uuid>"
            ": bucket it instead",
        ),
        (Identity(), pa.null(), "identity cannot partition by a column of type null"),
        (Truncate(2), LIST, "truncate needs a string or number column, not list<item: int32>"),
        (Truncate(2), pa.binary(), "truncate needs a string or number column, not binary"),
        (Truncate(2), pa.date32(), "truncate needs a string or number column, not date32[day]"),
        (Truncate(2), pa.bool_(), "truncate needs a string or number column, not bool"),
        (
            Truncate(2),
            pa.decimal128(5, -2),
            "truncate needs a scale that is not negative, unlike decimal128(5, -2)",
        ),
        (Year(), pa.string(), "year needs a date or timestamp column, not string"),
        (Month(), pa.time64("us"), "month needs a date or timestamp column, not time64[us]"),
        (Hour(), pa.date32(), "hour needs a timestamp column, not date32[day]"),
        (Bucket(2), LIST, "Values of type list<item: int32> cannot be hashed."),
        (MultiBucket(2), STRUCT, "Values of type struct<x: int32> cannot be hashed."),
    ],
    ids=str,
)
def test_refused_types(transform, type, message):
    with pytest.raises(InvalidInput) as error:
        transform.result_type([type])
    assert str(error.value) == message


@pytest.mark.parametrize("number", [0, -1, 2**31, 1.5, True, "4", None])
@pytest.mark.parametrize(
    ("make", "what"), [(Bucket, "num_buckets"), (MultiBucket, "num_buckets"), (Truncate, "width")]
)
def test_parameters_are_whole_and_positive(make, what, number):
    with pytest.raises(InvalidInput) as error:
        make(number)
    assert str(error.value) == f"{what} must be a whole number from 1 to 2147483647, not {number}"


def test_multi_bucket_needs_a_column():
    with pytest.raises(InvalidInput, match="multi_bucket needs at least one column"):
        MultiBucket(2).result_type([])


# JSON and spelling ------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", ALL, ids=str)
def test_json_both_ways(transform):
    assert from_json(transform.to_json()) == transform


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"type": "minute"}, "unknown partition transform 'minute'"),
        ({}, "unknown partition transform None"),
        ({"type": "bucket"}, "the transform 'bucket' needs num_buckets"),
        ({"type": "multi_bucket"}, "the transform 'multi_bucket' needs num_buckets"),
        ({"type": "truncate"}, "the transform 'truncate' needs width"),
        (
            {"type": "truncate", "width": 0},
            "width must be a whole number from 1 to 2147483647, not 0",
        ),
        (
            {"type": "bucket", "num_buckets": "16"},
            "num_buckets must be a whole number from 1 to 2147483647, not 16",
        ),
    ],
)
def test_broken_json(value, message):
    with pytest.raises(InvalidInput) as error:
        from_json(value)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("transform", "spelled"),
    [
        (Identity(), "ts"),
        (Year(), "year(ts)"),
        (Bucket(16), "bucket(16, ts)"),
        (Truncate(3), "truncate(3, ts)"),
        (MultiBucket(8), "multi_bucket(8, ts, col0)"),
        (Expression("concat(col0, col1, col10, 'xcol0')"), "concat(ts, col0, col10, 'xcol0')"),
    ],
    ids=str,
)
def test_spell(transform, spelled):
    names = ["ts", "col0"] if isinstance(transform, MultiBucket | Expression) else ["ts"]
    assert transform.spell(names) == spelled


def column(type: pa.DataType) -> Column:
    return Column(("c",), 0, type)


@pytest.mark.parametrize(
    ("transform", "type", "sql"),
    [
        (Identity(), pa.string(), "c"),
        (Year(), pa.timestamp("us"), "date_part('year', c)"),
        (Day(), pa.timestamp("us", "UTC"), "date_part('day', c)"),
        (Month(), pa.date32(), "date_part('month', c)"),
        # date_part looks at the column's own clock, the transform at UTC's.
        (Year(), pa.timestamp("us", NEW_YORK), None),
        (Truncate(3), pa.string(), "left(c, 3)"),
        (Truncate(10), pa.int32(), "(c - (c % 10))"),
        (Truncate(10), pa.float64(), None),
        (Bucket(4), pa.int32(), None),
        (Expression("date_trunc('week', col0)"), pa.timestamp("us"), "date_trunc('week', c)"),
        (Expression("CASE WHEN col0 > 1 THEN 1 END"), pa.int32(), None),
        (Expression("col0.x"), STRUCT, None),
        (Expression("(col0 + 1) * 2"), pa.int32(), "((c + 1) * 2)"),
        (Expression("col0 - (col0 - 1)"), pa.int32(), "(c - (c - 1))"),
        # DataFusion's = binds tighter here, ours does not.
        (Expression("col0 IS DISTINCT FROM col0 = col0"), pa.bool_(), None),
    ],
    ids=str,
)
def test_terms(transform, type, sql):
    term = transform.term([column(type)])
    assert (None if term is None else term_to_sql(term)) == sql


# Projections ------------------------------------------------------------------------------------


def label(value: Any) -> str | None:
    return None if isinstance(value, list) else str(value)


def interval_sets(keys: list[Any]) -> st.SearchStrategy[ValueSet]:
    bound = st.none() | st.sampled_from(keys)
    intervals = st.lists(st.tuples(bound, bound), max_size=3)
    return st.builds(ValueSet.of, intervals, st.booleans())


def contains(values: ValueSet, key: Any) -> bool:
    if key is None:
        return values.null
    return any(
        (low is None or key >= low) and (high is None or key < high)
        for low, high in values.intervals
    )


def days(first: str, count: int) -> list[int]:
    start = (dt.date.fromisoformat(first) - dt.date(1970, 1, 1)).days
    return list(range(start, start + count))


WORDS = ["".join(w) for n in range(4) for w in itertools.product("\0ab", repeat=n)]
DENSE = [
    (Identity(), pa.int32(), list(range(-20, 20))),
    (Truncate(10), pa.int32(), list(range(-39, 40))),
    (Truncate(3), pa.int8(), list(range(-128, 128))),
    (Truncate(2), pa.decimal128(9, 1), list(range(-59, 60))),
    (Truncate(1), pa.string(), WORDS),
    (Truncate(2), pa.string(), WORDS),
    (Year(), pa.date32(), days("2023-01-01", 365 + 366 + 365)),
    (Year(), pa.date32(), days("1968-01-01", 366 + 365 + 365)),
    (Expression("left(col0, 2)"), pa.string(), WORDS),
    (Expression("col0 / 4"), pa.int32(), list(range(-23, 24))),
    (Expression("date_trunc('month', col0)"), pa.date32(), days("2023-11-01", 30 + 31 + 31)),
    (Expression("cast(col0 as date)"), pa.date32(), days("2023-11-01", 10)),
]


@pytest.mark.parametrize(("transform", "type", "keys"), DENSE, ids=label)
def test_projections_are_exact(transform, type, keys):
    """Over every value there is, a monotonic transform says exactly which partitions are meant."""
    domain = domain_of(type)
    array = domain.array([*keys, None])
    applied = transform.apply([array])
    target = domain_of(applied.type)
    values = [target.key(v) if v.is_valid else None for v in applied]
    rows = list(zip([*keys, None], values, strict=True))

    @settings(derandomize=True, deadline=None)
    @given(interval_sets(keys))
    def check(wanted: ValueSet) -> None:
        inside = {value for key, value in rows if contains(wanted, key)}
        outside = {value for key, value in rows if not contains(wanted, key)}
        projected = transform.project([wanted], [type])
        strictly = transform.project_strictly(0, wanted, [type])
        assert {v for v in values if contains(projected, v)} == inside
        assert {v for v in values if contains(strictly, v)} == set(values) - outside

    check()


HOURS = [int(h * 3600) for h in range(-60, 60)]
SOUND = [
    (Month(), pa.date32(), days("2023-01-01", 800)),
    (Day(), pa.date32(), days("2023-12-01", 100)),
    (Hour(), pa.timestamp("s"), HOURS),
    (Hour(), pa.timestamp("s", NEW_YORK), HOURS),
    (Bucket(3), pa.int32(), list(range(-30, 30))),
    (Bucket(3), pa.string(), WORDS),
    (ModBucket(3), pa.int32(), list(range(-30, 30))),
    (ModBucket(5), pa.string(), WORDS),
    (Hash(), pa.string(), WORDS),
    (Hash(), pa.int32(), list(range(-5, 5))),
    (FloorTruncate(10), pa.int32(), list(range(-35, 35))),
    (FloorTruncate(7), pa.int8(), list(range(-128, 128))),
    (FloorTruncate(2), pa.string(), WORDS),
    (
        Truncate(2),
        pa.float32(),
        [
            domain_of(pa.float32()).key(pa.scalar(v, pa.float32()))
            for v in (-math.inf, -7.5, -2.0, -0.5, 0.0, 1.9, 2.0, 8.0, math.inf, math.nan)
        ],
    ),
    (Expression("abs(col0)"), pa.int8(), list(range(-100, 100))),
    (
        Expression("date_trunc('hour', col0)"),
        pa.timestamp("s", NEW_YORK),
        [1762059600 + 1800 * h for h in range(-10, 10)],
    ),
    (
        Expression("date_part('hour', col0)"),
        pa.timestamp("s", NEW_YORK),
        [1762059600 + 1800 * h for h in range(-60, 60)],
    ),
    (Expression("coalesce(col0, 7)"), pa.int32(), list(range(5, 9))),
    (Expression("upper(col0)"), pa.string(), WORDS),
    (Expression("10 / col0"), pa.int32(), [-2, -1, 1, 2]),
]


@pytest.mark.parametrize(("transform", "type", "keys"), SOUND, ids=label)
def test_projections_are_sound(transform, type, keys):
    domain = domain_of(type)
    applied = transform.apply([domain.array([*keys, None])])
    target = domain_of(applied.type)
    values = [target.key(v) if v.is_valid else None for v in applied]
    rows = list(zip([*keys, None], values, strict=True))

    @settings(derandomize=True, deadline=None)
    @given(interval_sets(keys))
    def check(wanted: ValueSet) -> None:
        projected = transform.project([wanted], [type])
        strictly = transform.project_strictly(0, wanted, [type])
        for key, value in rows:
            assert contains(projected, value) or not contains(wanted, key)
            assert contains(wanted, key) or not contains(strictly, value)

    check()


@pytest.mark.parametrize(
    ("transform", "array", "values"),
    [
        (ModBucket(7), pa.array(["iceberg", "b", None]), [mmh3.hash("iceberg") % 7, 4, None]),
        (ModBucket(16), pa.array([34]), [2017239379 % 16]),
        (Hash(), pa.array(["iceberg", None]), ["481f22d9", None]),
        (Hash(), pa.array([b"\0\1\2\3"]), [f"{-188683207 & 0xFFFFFFFF:08x}"]),
        (FloorTruncate(10), pa.array([123, -5, -10, 0, None]), [120, -10, -10, 0, None]),
        (FloorTruncate(10), pa.array([-128, 127], pa.int8()), [-128, 120]),
        (FloorTruncate(3), pa.array(["abcdef", "é😀xy", ""]), ["abc", "é😀x", ""]),
    ],
    ids=str,
)
def test_functions_of_key_value_namespaces(transform, array, values):
    assert transform.apply([array]).to_pylist() == values


def test_a_bucket_is_never_negative_and_has_no_absolute_value():
    texts = [str(number) for number in range(500)]
    buckets = ModBucket(7).apply([pa.array(texts)]).to_pylist()
    assert buckets == [mmh3.hash(text) % 7 for text in texts]
    assert buckets != Bucket(7).apply([pa.array(texts)]).to_pylist()
    assert min(buckets) == 0


@pytest.mark.parametrize("partition", [-10, 0])
def test_a_negative_number_may_be_rounded_either_way(partition):
    """Another client may read `value - (value mod width)` as SQL does."""
    projected = FloorTruncate(10).project([INT.point(-5)], [pa.int32()])
    assert contains(projected, partition)
    assert not contains(projected, 10)
    assert not contains(FloorTruncate(10).project_strictly(0, INT.point(-5), [pa.int32()]), -10)


INT = domain_of(pa.int32())


@pytest.mark.parametrize(
    ("transform", "wanted", "projected"),
    [
        (Month(), ("2025-11-15", "2026-02-01"), {11, 12, 1}),
        (Month(), ("2025-02-01", "2026-01-01"), set(range(2, 13))),
        (Month(), ("2025-01-31", "2025-12-01"), set(range(1, 12))),
        (Day(), ("2025-02-27", "2025-03-03"), {27, 28, 1, 2}),
    ],
    ids=str,
)
def test_short_ranges_name_their_parts(transform, wanted, projected):
    low, high = (days(day, 1)[0] for day in wanted)
    parts = transform.project([ValueSet(((low, high),))], [pa.date32()])
    assert set(INT.enumerate(parts, 50)) == projected


def test_long_ranges_tell_nothing_of_the_month():
    low, high = days("2025-01-31", 1)[0], days("2026-01-01", 1)[0]
    assert Month().project([ValueSet(((low, high),))], [pa.date32()]) == ALL_VALUES


def test_all_but_a_short_range_is_certain_in_the_other_months():
    low, high = days("2025-12-01", 1)[0], days("2025-12-15", 1)[0]
    others = Month().project_strictly(0, ValueSet(((None, low), (high, None))), [pa.date32()])
    assert set(range(1, 13)) - {12} == {m for m in range(1, 13) if contains(others, m)}


def test_bucket_of_one_value():
    wanted = ValueSet(((34, 35),))
    assert Bucket(16).project([wanted], [pa.int32()]) == INT.point(2017239379 % 16)
    certain = Bucket(16).project_strictly(0, wanted.complement(null=False), [pa.int32()])
    assert certain == INT.point(2017239379 % 16).complement(null=False)


def test_bucket_of_a_range():
    few = Bucket(100).project([ValueSet(((0, 5),))], [pa.int64()])
    assert set(INT.enumerate(few, 10)) == set(Bucket(100).apply([pa.array(range(5))]).to_pylist())
    many = Bucket(100).project([ValueSet(((0, 10**6),))], [pa.int64()])
    assert many == ALL_VALUES


def test_multi_bucket_needs_every_source():
    types = [pa.int32(), pa.string()]
    five, word = ValueSet(((5, 6),)), ValueSet((("a", "a\0"),))
    rows = [pa.array([5, 5], pa.int32()), pa.array(["a", None])]
    exact, without = MultiBucket(50).apply(rows).to_pylist()
    assert MultiBucket(50).project([five, word], types) == INT.point(exact)
    assert MultiBucket(50).project([five, NULL_ONLY], types) == INT.point(without)
    assert MultiBucket(50).project([five, FULL], types) == ALL_VALUES
    assert MultiBucket(50).project([NULL_ONLY, FULL], types) == FULL
    assert MultiBucket(50).project([NULL_ONLY, NULL_ONLY], types) == NULL_ONLY


def test_multi_bucket_null_means_all_sources_are():
    types = [pa.int32(), pa.string()]
    assert MultiBucket(50).project_strictly(0, NULL_ONLY, types) == NULL_ONLY
    assert MultiBucket(50).project_strictly(1, ALL_VALUES, types) == EMPTY


def test_expression_of_two_columns():
    joined = Expression("concat(col0, col1)")
    types = [pa.string(), pa.string()]
    a, b = ValueSet((("a", "a\0"),)), ValueSet((("b", "b\0"), ("c", "c\0")))
    assert joined.project([a, b], types) == domain_of(pa.string()).points(["ab", "ac"])
    assert joined.project([a, FULL], types) == FULL


def test_expression_that_fails_tells_nothing():
    assert Expression("10 / col0").project([ValueSet(((0, 1),))], [pa.int32()]) == FULL


def test_expression_is_null_at_the_ends_of_time():
    """date_part gives NULL beyond the year 262142, so NULL may hold late rows."""
    year = Expression("date_part('year', col0)")
    late = ValueSet(((0, None),))
    assert year.project([late], [pa.timestamp("us")]) == ValueSet(((1970, None),), null=True)
    assert year.project([late], [pa.timestamp("ns")]) == ValueSet(((1970, None),))
