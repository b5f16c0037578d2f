"""Spark's transforms as entries of partition_by, and back, without Spark."""

import datetime as dt

import pyarrow as pa
import pytest

from phalanx import InvalidInput
from phalanx.model.schema import TableSchema
from phalanx.model.specs import build_spec
from phalanx.spark.transforms import entry_of, reported, types_of

SCHEMA = TableSchema.assign(
    pa.schema(
        [
            ("id", pa.int64()),
            ("ts", pa.timestamp("us", "UTC")),
            ("s", pa.string()),
            ("a b", pa.string()),
            ("at", pa.struct([("city", pa.string())])),
        ]
    )
)


def transform(name, *args):
    arguments = [{"column": list(a)} if isinstance(a, tuple) else {"value": a} for a in args]
    return {"name": name, "args": arguments}


BOTH_WAYS = [
    transform("identity", ("s",)),
    transform("identity", ("a b",)),
    transform("identity", ("at", "city")),
    transform("years", ("ts",)),
    transform("months", ("ts",)),
    transform("days", ("ts",)),
    transform("hours", ("ts",)),
    transform("month", ("ts",)),
    transform("day", ("ts",)),
    transform("hour", ("ts",)),
    transform("bucket", 16, ("id",)),
    transform("multi_bucket", 4, ("id",), ("s",)),
    transform("truncate", 3, ("s",)),
    transform("bucket", 4, ("at", "city")),
    transform("expr", "week", "date_trunc('week', col0)", ("ts",)),
]


@pytest.mark.parametrize("given", BOTH_WAYS, ids=str)
def test_both_ways(given):
    spec = build_spec(1, [entry_of(given)], SCHEMA)
    assert [field.to_json() for field in reported(spec, SCHEMA)] == [given]


def test_year_is_years():
    spec = build_spec(1, [entry_of(transform("year", ("ts",)))], SCHEMA)
    assert reported(spec, SCHEMA)[0].name == "years"


def test_bucket_of_several_columns():
    assert entry_of(transform("bucket", 4, ("id",), ("s",))) == "multi_bucket(4, `id`, `s`)"


def test_fields_of_one_column_come_together():
    spec = build_spec(1, ["s", "year(ts)", "month(ts)", "bucket(4, id)", "hour(ts)"], SCHEMA)
    assert [field.name for field in reported(spec, SCHEMA)] == [
        "identity", "months", "bucket", "hour",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        transform("zorder", ("id",)),
        transform("days", ("ts",), ("id",)),
        transform("days", 3, ("ts",)),
        transform("expr", "week", ("ts",)),
        transform("expr", "week", "col0"),
    ],
    ids=str,
)
def test_refused(given):
    with pytest.raises(InvalidInput):
        entry_of(given)


def field_of(*entries):
    return reported(build_spec(1, list(entries), SCHEMA), SCHEMA)[0]


def test_keys():
    assert field_of("years(ts)").key([1969]) == -1
    assert field_of("months(ts)").key([1969, 12]) == -1
    assert field_of("days(ts)").key([1970, 1, 2]) == 1
    assert field_of("hours(ts)").key([1969, 12, 31, 23]) == -1
    assert field_of("days(ts)").key([None, None, None]) is None
    assert field_of("s").key(["x"]) == "x"
    assert field_of("s").key([None]) is None


@pytest.mark.parametrize("year", [1, 9999])
def test_keys_of_far_years(year):
    days = (dt.date(year, 1, 1) - dt.date(1970, 1, 1)).days
    assert field_of("days(ts)").key([year, 1, 1]) == days


@pytest.mark.parametrize(("year", "days"), [(0, -719528), (-1, -719893), (10000, 2932897)])
def test_keys_of_years_that_python_lacks(year, days):
    assert field_of("days(ts)").key([year, 1, 1]) == days


def test_types():
    fields = reported(build_spec(1, ["s", "id", "days(ts)", "truncate(2, s)"], SCHEMA), SCHEMA)
    assert types_of(fields) == ['"string"', '"long"', '"integer"', '"string"']
