"""Which field prunes which leaf."""

import datetime as dt

import pyarrow as pa
import pytest

import phalanx
from phalanx.table.pruning_steps import PruningSteps


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("country", pa.string())])
    table = phalanx.create(tmp_path_factory.mktemp("t") / "t", schema, ["months(ts)", "country"])
    rows = [
        {"id": 1, "ts": dt.datetime(year, month, 5), "country": country}
        for year in (2024, 2025)
        for month in (1, 2, 3)
        for country in ("DE", "US", None)
    ]
    return table.append(rows)


def steps_of(table, where):
    plan = table.scan(where=where).plan()
    return plan, PruningSteps(plan)


def test_field_after_field(table):
    plan, steps = steps_of(table, "ts >= '2025-02-01' AND country = 'US'")
    assert [
        (step.field.field_id, step.spelled, step.before, step.after) for step in steps.steps
    ] == [
        ("ts_year", "year(ts)", 18, 9),
        ("ts_month", "month(ts)", 9, 6),
        ("country", "country", 6, 2),
    ]
    assert [step.rows_pruned for step in steps.steps] == [9, 3, 4]
    assert all(step.bytes_pruned > 0 for step in steps.steps)
    assert steps.steps[2].condition_text == "country = 'US'"
    # What no step prunes is what the plan reads.
    assert (steps.pruned_at < 0).nonzero()[0].tolist() == plan.indices.tolist()


def test_reasons(table):
    plan, steps = steps_of(table, "ts >= '2025-02-01' AND country = 'US'")
    reasons = [reason for _, reason in steps.reasons(range(plan.total))]
    assert reasons[0].startswith("ts_year = 2024 does not fit ts >= ")
    assert reasons[9].startswith("ts_month = 1 does not fit ts >= ")
    assert reasons[12] == "country = NULL does not fit country = 'US'"
    assert reasons[14] is None


@pytest.mark.parametrize(
    "where",
    [
        "country = 'US' OR ts < '2024-02-01'",
        "country IS NULL",
        "country LIKE 'D%' AND id > 0",
        "id = 1",
        "ts BETWEEN '2024-12-01' AND '2025-01-31'",
    ],
)
def test_the_steps_end_at_the_plan(table, where):
    plan, steps = steps_of(table, where)
    assert (steps.pruned_at < 0).nonzero()[0].tolist() == plan.indices.tolist()
    assert sum(step.pruned for step in steps.steps) == plan.pruned


def test_a_filter_that_no_row_satisfies(table):
    plan, steps = steps_of(table, "country = 'US' AND country = 'DE'")
    assert plan.selected == 0
    assert steps.steps[0].field is None
    assert steps.steps[0].pruned == 18
    ((_, reason),) = steps.reasons([3])
    assert reason == "no row satisfies the filter"


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("ts >= '2025-01-01' AND country = 'US'", "ts_year, country"),
        ("ts >= '2025-02-01' AND country IS NOT NULL", "ts_year, ts_month, country"),
        ("ts >= '2024-02-01' AND country >= 'A'", "ts_year, ts_month, country"),
        ("ts >= '2020-01-01' AND country = 'US'", "country"),
        ("ts < '2025-01-01' AND country >= 'A' AND id > 0", "ts_year, country"),
        ("country = 'US' OR ts < '2025-01-01'", "ts_year, country"),
        ("(ts < '2025-01-01' OR id = 1) AND country = 'US'", "country"),
        ("country = 'XX' AND ts >= '2020-01-01'", "country"),
        ("id > 3 AND id < 1 AND country = 'US'", "a filter that no row satisfies"),
        ("ts >= '2020-01-01'", "nothing: every partition can hold matching rows"),
        ("id = 1", "nothing: the filter says nothing about the partition fields"),
    ],
)
def test_only_fields_that_pruned_are_named(table, where, expected):
    assert table.scan(where=where).plan().pruned_by == expected
