"""Expressions that tasks evaluate: what is taken, and that Arrow's results are exact."""

import json
from decimal import Decimal, localcontext

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    with pytest.raises(pa.ArrowInvalid):
        term_of(call("*", square, column("d")), SCHEMA).of(batch)
