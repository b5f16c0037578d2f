"""Expressions that tasks evaluate: what is taken, and that Arrow's results are exact."""

import json
import operator
from decimal import Decimal, localcontext

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.errors import InvalidInput
from phalanx.model.schema import TableSchema
from phalanx.spark.filters import Untranslatable
from phalanx.spark.terms import term_of

SCHEMA = TableSchema.assign(
    pa.schema(
        [
            ("d", pa.decimal128(15, 2)),
            ("e", pa.decimal128(20, 3)),
            ("x", pa.float64()),
            ("f", pa.float32()),
            ("i", pa.int32()),
            ("l", pa.int64()),
            ("ns", pa.timestamp("ns")),
        ]
    )
)


def column(name):
    return {"column": [name]}


def call(name, *args):
    return {"call": name, "args": args}


def cast(node, to):
    return {"call": "CAST", "to": json.dumps(to), "args": [node]}


def constant(value, type):
    return {"value": value, "type": json.dumps(type)}


ONE = constant("1", "decimal(1,0)")


@pytest.mark.parametrize(
    ("node", "type"),
    [
        (column("d"), pa.decimal128(15, 2)),
        (call("-", ONE, column("d")), pa.decimal128(16, 2)),
        (call("*", column("d"), call("-", ONE, column("d"))), pa.decimal128(32, 4)),
        # Spark's type has room for 38 digits: it cuts whole ones.
        (
            call("*", call("*", column("d"), column("d")), call("+", ONE, column("d"))),
            pa.decimal128(38, 6),
        ),
        (cast(column("i"), "decimal(10,0)"), pa.decimal128(10, 0)),
        (cast(column("d"), "decimal(20,4)"), pa.decimal128(20, 4)),
        (cast(column("i"), "long"), pa.int64()),
        (call("+", column("x"), cast(column("f"), "double")), pa.float64()),
        (call("*", column("x"), constant("0.5", "double")), pa.float64()),
    ],
)
def test_types(node, type):
    assert term_of(node, SCHEMA).type == type


@pytest.mark.parametrize(
    "node",
    [
        call("+", column("i"), column("i")),  # an overflow is Spark's to judge
        call("/", column("d"), column("d")),
        call(
            "*", column("e"), call("*", column("d"), column("d"))
        ),  # more than 6 digits after the point would be cut
        call("+", column("x"), column("l")),
        cast(column("l"), "double"),
        cast(column("l"), "integer"),
        cast(column("d"), "decimal(10,2)"),
        cast(column("x"), "decimal(10,2)"),
        cast(column("d"), "double"),
        constant(None, "double"),
        constant("a", "string"),
        column("ns"),
        column("missing"),
        cast(column("i"), "interval month"),
        {"call": "?", "args": [], "text": "rand()"},
    ],
)
def test_what_is_left_to_spark(node):
    with pytest.raises(Untranslatable):
        term_of(node, SCHEMA)


hundredths = st.integers(-(10**15) + 1, 10**15 - 1).map(lambda n: Decimal(n).scaleb(-2))


@given(st.lists(st.none() | hundredths, min_size=1))
def test_products_are_exact(values):
    """Whatever the number of digits that the values have or could have."""
    batch = pa.record_batch({"d": pa.array(values, pa.decimal128(15, 2))})
    term = term_of(call("*", column("d"), call("-", ONE, column("d"))), SCHEMA)
    result = term.of(batch)
    assert result.type == term.type
    with localcontext(prec=40):
        wanted = [None if value is None else value * (1 - value) for value in values]
        assert result.to_pylist() == wanted


def test_too_many_digits():
    most = Decimal(10**15 - 1).scaleb(-2)
    batch = pa.record_batch({"d": pa.array([most], pa.decimal128(15, 2))})
    square = call("*", column("d"), column("d"))
    with pytest.raises(InvalidInput, match="NUMERIC_VALUE_OUT_OF_RANGE"):
        term_of(call("*", square, column("d")), SCHEMA).of(batch)


long_numbers = st.integers(-(10**19) + 1, 10**19 - 1).map(Decimal)


@given(st.lists(st.tuples(st.none() | long_numbers, st.none() | long_numbers), min_size=1))
def test_long_numbers_whose_results_fit(pairs):
    """Also where the longest are in different rows, and where there are only NULLs."""
    schema = pa.schema([("a", pa.decimal128(38, 0)), ("b", pa.decimal128(38, 0))])
    columns = [pa.array(side, pa.decimal128(38, 0)) for side in zip(*pairs, strict=True)]
    batch = pa.record_batch(columns, schema=schema)
    table = TableSchema.assign(schema)
    with localcontext(prec=80):
        for sign, of in (("*", operator.mul), ("+", operator.add), ("-", operator.sub)):
            result = term_of(call(sign, column("a"), column("b")), table).of(batch)
            wanted = [None if a is None or b is None else of(a, b) for a, b in pairs]
            assert result.to_pylist() == wanted
