"""How many rows a predicate leaves, about."""

import datetime as dt
import random

import pyarrow as pa
import pytest

from phalanx.model import statistics
from phalanx.model.filters import bind
from phalanx.model.parser import parse
from phalanx.model.schema import TableSchema
from phalanx.model.selectivity import share_of

SCHEMA = TableSchema.assign(
    pa.schema(
        [
            ("n", pa.int64()),
            ("d", pa.date32()),
            ("m", pa.decimal128(9, 2)),
            ("x", pa.float64()),
            ("s", pa.string()),
            ("hollow", pa.int32()),
        ]
    )
)
ROWS = 1000
TABLE = pa.table(
    {
        "n": [None if n % 4 == 0 else n - 500 for n in range(ROWS)],
        "d": [dt.date(2020, 1, 1) + dt.timedelta(days=n) for n in range(ROWS)],
        "m": pa.array([n / 100 for n in range(ROWS)]).cast(pa.decimal128(9, 2), safe=False),
        "x": [n / 7 for n in range(ROWS)],
        "s": [str(n) for n in range(ROWS)],
        "hollow": pa.nulls(ROWS, pa.int32()),
    },
    schema=SCHEMA.arrow,
)
KNOWN = statistics.measure(TABLE, statistics.measured_columns(SCHEMA))


def share(text):
    return share_of(bind(parse(text), SCHEMA.column), KNOWN, ROWS)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("d < DATE '2020-04-10'", 0.1),
        ("d >= DATE '2020-04-10' AND d < DATE '2020-07-19'", 0.1),
        ("d < DATE '1999-01-01'", 0),
        ("d < DATE '2120-01-01'", 1),
        ("d = DATE '2020-02-01'", 0.001),
        ("d IN (DATE '2020-02-01', DATE '2020-03-01', DATE '2300-01-01')", 0.002),
        ("m BETWEEN 0.50 AND 1.49", 0.1),
        ("n < 0", 0.375),
        ("n IS NULL", 0.25),
        ("n IS NOT NULL", 0.75),
        ("n < 0 OR n IS NULL", 0.625),
        ("hollow > 3", 0),
        ("hollow IS NULL", 1),
        # The narrowest condition counts, and of alternatives the sum.
        ("d < DATE '2020-04-10' AND m < 5", 0.1),
        ("d < DATE '2020-04-10' OR m < 5", 0.6),
        # Nothing is known of these.
        ("x < 3", 1),
        ("s = '7'", 1),
        ("abs(n) < 3", 1),
    ],
)
def test_share(text, wanted):
    assert share(text) == pytest.approx(wanted, abs=0.005)


def test_without_statistics():
    assert share_of(bind(parse("n < 0"), SCHEMA.column), {}, ROWS) == 1


def test_it_is_a_share_whatever_is_asked_for():
    choose = random.Random(1)
    for _ in range(300):
        parts = [
            f"{choose.choice(['n', 'm', 'hollow', 'x'])} {choose.choice(['<', '>=', '=', '<>'])} "
            f"{choose.randint(-700, 700)}"
            for _ in range(choose.randint(1, 4))
        ]
        assert 0 <= share(choose.choice([" AND ", " OR "]).join(parts)) <= 1
