"""What Spark's cost-based optimizer is told: bounds and counts of NULL by column."""

import datetime as dt

import pytest

from tests.spark.needs import needs


@pytest.fixture
def costs(spark):
    spark.conf.set("spark.sql.cbo.enabled", "true")
    yield
    spark.conf.unset("spark.sql.cbo.enabled")


@pytest.fixture
def events(lake):
    lake.sql(
        "CREATE TABLE {db}.t (id BIGINT, day DATE, ts TIMESTAMP, f FLOAT, d DECIMAL(9, 2), "
        "s STRING, country STRING, n INT) PARTITIONED BY (country)"
    )
    lake.sql(
        "INSERT INTO {db}.t SELECT id, date_add(DATE '2026-01-01', int(id % 31)), "
        "timestamp_seconds(id), float(id) / 4, CAST(id AS DECIMAL(9, 2)), concat('s', id), "
        "element_at(array('DE', 'US'), int(id % 2) + 1), if(id % 4 = 0, NULL, int(-id)) "
        "FROM range(1000)"
    )
    return lake


def statistics_of(frame):
    """What the plan knows of each column: its bounds as Spark holds them, and its NULLs."""
    found = {}
    stats = frame._jdf.queryExecution().optimizedPlan().stats().attributeStats()
    entries = stats.iterator()
    while entries.hasNext():
        entry = entries.next()
        column = entry._2()
        bounds = [column.min(), column.max()]
        found[entry._1().name()] = tuple(
            [str(bound.get()) if bound.isDefined() else None for bound in bounds]
            + [int(str(column.nullCount().get())) if column.nullCount().isDefined() else None]
        )
    return found


def test_bounds(events, costs):
    micros = 999 * 1_000_000
    first = (dt.date(2026, 1, 1) - dt.date(1970, 1, 1)).days
    assert statistics_of(events.sql("SELECT * FROM {db}.t")) == {
        "id": ("0", "999", 0),
        "day": (str(first), str(first + 30), 0),
        "ts": ("0", str(micros), 0),
        "f": ("0.0", "249.75", 0),
        "d": ("0.00", "999.00", 0),
        "n": ("-999", "-1", 250),
    }


@needs("partial_insert")
def test_only_leaves_that_are_read_count(events, costs):
    events.sql("INSERT INTO {db}.t (id, country) VALUES (5000, 'FR')")
    rows = events.sql("SELECT id, n FROM {db}.t WHERE country = 'DE'")
    assert statistics_of(rows) == {"id": ("0", "998", 0), "n": ("-998", "-2", 250)}


@needs("partial_insert")
def test_nothing_is_said_where_a_leaf_does_not_know(events, costs):
    events.sql("ALTER TABLE {db}.t ADD COLUMN more INT")
    events.sql("INSERT INTO {db}.t (id, f, more) VALUES (1, float('NaN'), 7)")
    known = statistics_of(events.sql("SELECT id, f, more FROM {db}.t"))
    assert known == {"id": ("0", "999", 0)}


def test_an_empty_table(lake, costs):
    lake.sql("CREATE TABLE {db}.t (id INT)")
    assert statistics_of(lake.sql("SELECT * FROM {db}.t")) == {}


def test_they_are_not_asked_for_without_the_optimizer(events):
    assert statistics_of(events.sql("SELECT * FROM {db}.t")) == {}
