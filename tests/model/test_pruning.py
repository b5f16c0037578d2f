"""Pruning over columns: the parts, evolution, odd leaves, and many of everything."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from phalanx.model.dialect import to_sql
from phalanx.model.domains import domain_of
from phalanx.model.filters import bind
from phalanx.model.parser import parse
from phalanx.model.predicates import Constant
from phalanx.model.pruning import PartitionColumn, column_of, prune
from phalanx.model.schema import TableSchema
from phalanx.model.sets import ALL_VALUES, EMPTY, FULL, NULL_ONLY, ValueSet
from phalanx.model.specs import PartitionField, PartitionSpec, build_spec, expr
from phalanx.model.transforms import Identity, Truncate
from tests.model.leaves import columns_of_leaves, judge, left_over

SCHEMA = TableSchema.assign(
    pa.schema(
        [
            ("a", pa.int32()),
            ("b", pa.int32()),
            ("s", pa.string()),
            ("ts", pa.timestamp("us")),
            ("f", pa.float64()),
        ]
    )
)

# Columns of partition values ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["b", None, "a", "b", "é", ""]),
        pa.array([3, None, -1, 3], pa.int8()),
        pa.array([1.5, math.nan, None, -math.inf, 0.0]),
        pa.array([1.5, None, -2.0]).cast(pa.float16()),
        pa.array([True, None, False]),
        pa.array([None, None], pa.string()),
        pa.array([], pa.int32()),
        pa.array(["b", None, "a"]).dictionary_encode(),
        pa.chunked_array([["b", None], ["a", "b"]]),
        pa.chunked_array([], pa.string()),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), pa.array(["b", None, "a"])),
        pa.array([dt.date(1969, 1, 1), None, dt.date(2025, 1, 1)]),
    ],
    ids=str,
)
def test_column_of(array):
    column = column_of(array)
    domain = domain_of(column.values.type)
    keys = [domain.key(value) for value in column.values]
    assert keys == sorted(set(keys))
    shown = [str(value) for value in column.arrow().to_pylist()]
    assert shown == [str(value) for value in array.to_pylist()]
    assert column.codes.dtype == np.int32


NUMBERS = column_of(pa.array([5, None, 1, 9, 5, 3], pa.int32()))


@pytest.mark.parametrize(
    ("wanted", "leaves"),
    [
        (FULL, [0, 1, 2, 3, 4, 5]),
        (ALL_VALUES, [0, 2, 3, 4, 5]),
        (NULL_ONLY, [1]),
        (EMPTY, []),
        (ValueSet(((5, 6),)), [0, 4]),
        (ValueSet(((4, 5),)), []),
        (ValueSet(((None, 4),), null=True), [1, 2, 5]),
        (ValueSet(((4, None),)), [0, 3, 4]),
        (ValueSet(((1, 2), (3, 4), (5, 6), (9, 10)), null=True), [0, 1, 2, 3, 4, 5]),
        (ValueSet(((1, 2), (3, 4), (7, 8), (9, 10))), [2, 3, 5]),
    ],
    ids=str,
)
def test_mask(wanted, leaves):
    assert np.flatnonzero(NUMBERS.mask(wanted)).tolist() == leaves


def test_column_parts():
    assert NUMBERS.numbers().tolist() == [5, 0, 1, 9, 5, 3]
    assert NUMBERS.is_null.tolist() == [False, True, False, False, False, False]
    assert NUMBERS.take(np.array([3, 1])).arrow().to_pylist() == [9, None]
    assert NUMBERS.code_ranges(ValueSet(((2, 6),))) == [(1, 3)]
    assert NUMBERS.code_ranges(ValueSet(((6, 7),))) == []


# Verdicts -----------------------------------------------------------------------------------------


def test_verdict():
    spec = build_spec(1, ["a"], SCHEMA)
    verdict = judge("a < 3 AND b = 1 OR a = 5", spec, SCHEMA, [(1,), (2,), (5,), (7,), (None,)])
    assert verdict.maybe.tolist() == [True, True, True, False, False]
    assert verdict.always.tolist() == [False, False, True, False, False]
    assert [to_sql(residual) for residual in verdict.residuals] == ["b = 1"]
    assert verdict.residual[:2].tolist() == [0, 0]


def test_no_leaves():
    verdict = judge("a = 1", build_spec(1, ["a"], SCHEMA), SCHEMA, [])
    assert len(verdict.maybe) == len(verdict.always) == len(verdict.residual) == 0
    assert verdict.residuals == (Constant(True),)


@pytest.mark.parametrize(("where", "maybe"), [("TRUE", True), ("FALSE", False)])
def test_constants(where, maybe):
    verdict = judge(where, build_spec(1, ["a"], SCHEMA), SCHEMA, [(1,), (None,)])
    assert verdict.maybe.tolist() == verdict.always.tolist() == [maybe, maybe]


def test_contradictions_show_in_what_is_left():
    """Neither condition is impossible here, but together they are."""
    spec = build_spec(1, ["s"], SCHEMA)
    where = "(s = 'x' OR a = 1) AND (s = 'y' OR a = 2)"
    assert left_over(where, spec, SCHEMA, [("x",), ("y",), ("z",)]) == {
        ("x",): "a = 2",
        ("y",): "a = 1",
    }


def test_the_conditions_around_count():
    spec = build_spec(1, ["truncate(10, a)", "s"], SCHEMA)
    where = "a >= 10 AND (a < 15 AND s = 'x' OR a < 10 AND s = 'y')"
    leaves = [(0, "x"), (0, "y"), (10, "x"), (10, "y"), (20, "x")]
    assert left_over(where, spec, SCHEMA, leaves) == {(10, "x"): "a < 15"}
    # Each could be true in the partition 10, but not both.
    where = "a >= 15 AND (a < 12 OR s = 'x')"
    assert left_over(where, spec, SCHEMA, leaves) == {(10, "x"): "a >= 15", (20, "x"): None}


def test_two_conditions_on_one_column_count_together():
    """The year and the end of a range are different terms of the same column."""
    spec = build_spec(1, [expr("date_trunc('week', col0)", ["ts"], "week")], SCHEMA)
    before, new_year, january, later = (
        (dt.datetime(*day),)
        for day in [(2024, 12, 23), (2024, 12, 30), (2025, 1, 13), (2025, 1, 20)]
    )
    for where in (
        "date_part('year', ts) = 2025 AND ts < '2025-01-20'",
        "ts < '2025-01-20' AND date_part('year', ts) = 2025",
    ):
        left = left_over(where, spec, SCHEMA, [before, new_year, january, later])
        assert left == {new_year: "date_part('year', ts) = 2025", january: None}


def test_many_conditions():
    """More combinations of answers than a table has room for."""
    spec = build_spec(1, ["a", "b"], SCHEMA)
    leaves = [(i, i % 7) for i in range(300)]
    where = " OR ".join(f"(a = {i} AND f > {i})" for i in range(0, 300, 3))
    left = left_over(where, spec, SCHEMA, leaves)
    assert left == {(i, i % 7): f"f > {float(i)}" for i in range(0, 300, 3)}


def test_many_values():
    spec = build_spec(1, ["days(ts)"], SCHEMA)
    days = [dt.date(2025, 1, 1) + dt.timedelta(days=n) for n in range(300)]
    leaves = [(d.year, d.month, d.day) for d in days]
    wanted = ", ".join(f"'{d}'" for d in days[::2])
    assert set(left_over(f"ts IN ({wanted})", spec, SCHEMA, leaves)) == set(leaves[::2])
    not_wanted = left_over(f"ts NOT IN ({wanted})", spec, SCHEMA, leaves)
    assert {leaf for leaf, residual in not_wanted.items() if residual is None} == set(leaves[1::2])


def test_a_long_list_of_strings():
    spec = build_spec(1, ["bucket(1000, s)"], SCHEMA)
    names = [f"name{i}" for i in range(50)]
    listed = ", ".join(f"'{name}'" for name in names)
    left = left_over(f"s IN ({listed})", spec, SCHEMA, [(i,) for i in range(1000)])
    (field,) = spec.fields
    assert {leaf[0] for leaf in left} == set(field.transform.apply([pa.array(names)]).to_pylist())


# Terms that fields compute ------------------------------------------------------------------------


def test_terms_of_several_fields():
    spec = build_spec(1, ["a", "b", "year(ts)"], SCHEMA)
    leaves = [(1, 2, 2024), (1, 3, 2025), (None, 3, 2025), (2, None, 2025)]
    assert left_over("a + b = 4", spec, SCHEMA, leaves) == {(1, 3, 2025): None}
    assert left_over("a < b", spec, SCHEMA, leaves) == {(1, 2, 2024): None, (1, 3, 2025): None}
    assert left_over("(a < b) IS NULL", spec, SCHEMA, leaves) == {
        (None, 3, 2025): None,
        (2, None, 2025): None,
    }
    assert left_over("a + year(ts) = 2026", spec, SCHEMA, leaves) == {(1, 3, 2025): None}
    assert left_over("a * f > 1", spec, SCHEMA, leaves) == dict.fromkeys(leaves, "(a * f) > 1.0")


def test_a_term_that_fails_in_one_leaf():
    spec = build_spec(1, ["a"], SCHEMA)
    assert left_over("10 / a = 5", spec, SCHEMA, [(0,), (2,)]) == {
        (0,): "(10 / a) = 5",
        (2,): "(10 / a) = 5",
    }


def test_floats_are_not_taken_for_their_partition():
    """The partition 0.0 holds -0.0 too, and 1 / -0.0 is not 1 / 0.0."""
    spec = build_spec(1, ["f"], SCHEMA)
    assert left_over("1.0 / f > 0", spec, SCHEMA, [(0.0,)]) == {(0.0,): "(1.0 / f) > 0.0"}
    assert left_over("f = 0", spec, SCHEMA, [(0.0,)]) == {(0.0,): None}


def test_years_that_date_part_does_not_know():
    """date_part is NULL for a timestamp beyond the year 262142; a comparison is not."""
    spec = build_spec(1, ["ts"], SCHEMA)
    late = pa.array([2**63 - 1, 0, None], pa.int64()).view(pa.timestamp("us"))
    columns = {"ts": column_of(late)}
    for where, maybe in [
        ("date_part('year', ts) > 2000", [False, False, False]),
        ("date_part('year', ts) IS NULL", [True, False, True]),
        ("ts > '2000-01-01'", [True, False, False]),
    ]:
        verdict = prune(bind(parse(where), SCHEMA.column), spec, SCHEMA, columns, 3)
        assert verdict.maybe.tolist() == maybe, where


def test_the_last_day_of_a_type():
    schema = TableSchema.assign(pa.schema([("ts", pa.timestamp("ns"))]))
    spec = build_spec(1, ["days(ts)"], schema)
    first, last = (1677, 9, 21), (2262, 4, 11)
    assert left_over("ts > '2262-04-11T10:00:00'", spec, schema, [first, last]) == {
        last: "ts > TIMESTAMP '2262-04-11T10:00:00'"
    }
    assert left_over("ts < '1677-09-21T10:00:00'", spec, schema, [first, last]).keys() == {first}
    assert left_over("ts >= '2262-04-11'", spec, schema, [first, last]) == {last: None}


# Evolution ----------------------------------------------------------------------------------------


def test_a_dropped_source_prunes_nothing():
    spec = build_spec(1, ["a", "multi_bucket(4, a, b)", "s"], SCHEMA)
    left = TableSchema(pa.schema([f for f in SCHEMA.tagged if f.name != "a"]))
    leaves = [(1, 0, "x"), (2, 3, "y")]
    assert left_over("b = 1 AND s = 'x'", spec, left, leaves) == {(1, 0, "x"): "b = 1"}


def test_a_renamed_source_is_the_same():
    spec = build_spec(1, ["a"], SCHEMA)
    fields = [f.with_name("z") if f.name == "a" else f for f in SCHEMA.tagged]
    renamed = TableSchema(pa.schema(fields))
    assert left_over("z = 1", spec, renamed, [(1,), (2,)]) == {(1,): None}


@pytest.mark.parametrize(
    ("narrow", "wide", "values", "where", "wanted"),
    [
        (pa.int8(), pa.int64(), [1, 100], "x > 99.5", [100]),
        (pa.float32(), pa.float64(), [0.5, 1.5], "x = 1.5", [1.5]),
        (pa.float32(), pa.float64(), [0.5, 1.5], "x < 1", [0.5]),
        (pa.timestamp("s"), pa.timestamp("us"), [0, 60], "x >= '1970-01-01T00:00:30'", [60]),
        (pa.string(), pa.large_string(), ["a", "b"], "x = 'b'", ["b"]),
    ],
    ids=str,
)
def test_a_widened_source(narrow, wide, values, where, wanted):
    """Partition values of the narrow type are compared with constants of the wide one."""
    spec = build_spec(1, ["x"], TableSchema.assign(pa.schema([("x", narrow)])))
    schema = TableSchema.assign(pa.schema([("x", wide)]))
    column = column_of(pa.array(values, narrow))
    verdict = prune(bind(parse(where), schema.column), spec, schema, {"x": column}, len(values))
    assert [v for v, maybe in zip(values, verdict.maybe, strict=True) if maybe] == wanted
    assert (verdict.always == verdict.maybe).all()


def test_a_source_of_another_kind_prunes_nothing():
    field = PartitionField("x", (0,), Truncate(10), pa.int32())
    schema = TableSchema.assign(pa.schema([("x", pa.date32())]))
    verdict = prune(
        bind(parse("x = '2025-01-01'"), schema.column),
        PartitionSpec(1, (field,)),
        schema,
        {"x": column_of(pa.array([0, 10], pa.int32()))},
        2,
    )
    assert verdict.maybe.all()
    assert not verdict.always.any()


def test_values_of_another_type_than_the_source():
    """Another client may have stored strings for numbers: they tell nothing."""
    field = PartitionField("a", (0,), Identity(), pa.string())
    column = column_of(pa.array(["2", "10"]))
    verdict = prune(
        bind(parse("a = 10"), SCHEMA.column), PartitionSpec(1, (field,)), SCHEMA, {"a": column}, 2
    )
    assert verdict.maybe.all()
    assert not verdict.always.any()


def test_an_expression_declared_with_another_type():
    field = PartitionField(
        "m", (3,), expr_transform("date_trunc('month', col0)"), pa.timestamp("s")
    )
    values = pa.array([dt.datetime(2025, 11, 1), dt.datetime(2025, 12, 1)], pa.timestamp("s"))
    verdict = prune(
        bind(parse("ts >= '2025-12-10'"), SCHEMA.column),
        PartitionSpec(1, (field,)),
        SCHEMA,
        {"m": column_of(values)},
        2,
    )
    assert verdict.maybe.tolist() == [False, True]


def expr_transform(sql: str):
    schema = TableSchema.assign(pa.schema([("ts", pa.timestamp("us"))]))
    return build_spec(1, [expr(sql, ["ts"], "m")], schema).fields[0].transform


def test_masks_do_not_change_the_columns():
    spec = build_spec(1, ["a", "s"], SCHEMA)
    columns = columns_of_leaves(spec, [(1, "x"), (None, "y")])
    before = {name: column.codes.copy() for name, column in columns.items()}
    for where in ("a = 1 OR s = 'y'", "NOT (a = 1 AND s <> 'x')", "a IS NULL AND upper(s) = 'Y'"):
        prune(bind(parse(where), SCHEMA.column), spec, SCHEMA, columns, 2)
    assert all((columns[name].codes == codes).all() for name, codes in before.items())


def test_dictionary_columns():
    """A column of dictionary type is cut, compared and shown like one of the values' type."""
    types = {
        "price": pa.dictionary(pa.int32(), pa.decimal128(9, 2)),
        "day": pa.dictionary(pa.int32(), pa.date32()),
    }
    schema = TableSchema.assign(pa.schema(types))
    spec = build_spec(1, ["truncate(10, price)", "day"], schema)
    leaves = [(Decimal("0.00"), dt.date(2025, 12, 10)), (Decimal("10.00"), dt.date(2025, 12, 11))]
    assert left_over("price >= 15", spec, schema, leaves) == {leaves[1]: "price >= 15.00"}
    assert left_over("price < 10", spec, schema, leaves) == {leaves[0]: None}
    assert left_over("day = '2025-12-11'", spec, schema, leaves) == {leaves[1]: None}
    unpartitioned = build_spec(2, [], schema)
    assert left_over("day = '2025-12-11'", unpartitioned, schema, [()]) == {
        (): "day = DATE '2025-12-11'"
    }


def test_read_only_codes():
    """Codes come from a memory-mapped file, which cannot be written to."""
    spec = build_spec(1, ["a"], SCHEMA)
    codes = np.array([0, 1, -1], dtype=np.int32)
    codes.flags.writeable = False
    column = PartitionColumn(pa.array([1, 2], pa.int32()), codes)
    verdict = prune(bind(parse("a = 2 OR b = 1"), SCHEMA.column), spec, SCHEMA, {"a": column}, 3)
    assert verdict.maybe.tolist() == [True, True, True]
    assert verdict.always.tolist() == [False, True, False]
