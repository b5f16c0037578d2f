"""Statistics of rows: one row is measured like many."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from phalanx.model.schema import TableSchema
from phalanx.model.statistics import measure, measured_columns

NAN = float("nan")
VALUES = [
    pa.array([7, -3, None]),
    pa.array([1.5, NAN, -0.0, 0.0, None, float("inf")]),
    pa.array([NAN, 1.0], pa.float32()),
    pa.array(["a", "long " * 100, "", None]),
    pa.array([b"x", b"\xff" * 100]),
    pa.array([True, False, None]),
    pa.array([dt.date(2024, 1, 2), None]),
    pa.array([dt.datetime(2024, 1, 2, tzinfo=dt.UTC)]),
    pa.array([Decimal("1.50"), Decimal("-2.25")]),
    pa.array(["a", "b"]).dictionary_encode(),
    pa.array([dt.timedelta(1)]),
    pa.array([[1], None]),
]


@pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values.type))
def test_one_row_is_measured_like_many(values):
    schema = pa.schema([("c", values.type)])
    columns = measured_columns(TableSchema.assign(schema))
    for index in range(len(values)):
        one = pa.table([values.slice(index, 1)], schema)
        twice = pa.concat_tables([one, one])
        (single,), (double,) = measure(one, columns).values(), measure(twice, columns).values()
        assert (single.low, single.high) == (double.low, double.high)
        assert (single.exact, single.has_nan) == (double.exact, double.has_nan)
        assert double.null_count == 2 * single.null_count
        (whole,) = measure(twice.combine_chunks(), columns).values()
        assert whole == double
