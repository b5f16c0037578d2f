"""`now()` in filters and assignments: one instant, read when the call begins."""

import datetime as dt
import operator
import tempfile
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import phalanx


@pytest.fixture
def table(root):
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])
    table = phalanx.create(root, schema, partition_by=["bucket(4, id)"])
    today = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    rows = [(0, today - dt.timedelta(days=1)), (1, today + dt.timedelta(days=1))]
    table.append(pa.table(list(map(list, zip(*rows, strict=True))), schema=schema))
    return table


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("ts < now()", [0]),
        ("ts > current_timestamp", [1]),
        ("ts > now() AND ts < now()", []),
        ("CAST(ts AS DATE) < current_date", [0]),
    ],
)
def test_a_filter_reads_the_clock(table, where, ids):
    assert sorted(table.scan(where=where).to_arrow()["id"].to_pylist()) == ids


def test_an_update_sets_every_row_to_the_same_instant(table):
    before = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    table.update({"ts": "now()"}, "id >= 0")
    (moment,) = set(table.scan().to_arrow()["ts"].to_pylist())
    assert before <= moment <= dt.datetime.now(dt.UTC).replace(tzinfo=None)


ZONES = [None, "UTC", "America/New_York", "Asia/Kolkata", "+05:30", "-03:00", "Pacific/Kiritimati"]
ENTRIES = ["ts", "days(ts)", "hours(ts)", "hour(ts)", "bucket(4, ts)", "d", "bucket(2, id)"]
ENTRIES += [phalanx.expr("date_trunc('hour', col0)", ["ts"], name="hourly")]
COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


def midnight(day, zone):
    """When a day begins on the clock of a zone."""
    local = dt.datetime.combine(day, dt.time())
    if zone in (None, "UTC"):
        return local.replace(tzinfo=dt.UTC)
    if zone[0] in "+-":
        return dt.datetime.fromisoformat(local.isoformat() + zone)
    return local.replace(tzinfo=ZoneInfo(zone))


def conditions(op, hours, zone):
    """Conditions as SQL and functions of a row's instant, its date and the present instant."""
    compare = COMPARISONS[op]
    span = dt.timedelta(hours=hours)
    plus = f"{'+' if hours >= 0 else '-'} INTERVAL '{abs(hours)} hours'"
    minus = f"{'-' if hours >= 0 else '+'} INTERVAL '{abs(hours)} hours'"
    return {
        f"ts {op} now() {plus}": lambda ts, d, now: compare(ts, now + span),
        f"now() {plus} {FLIPPED[op]} ts": lambda ts, d, now: compare(ts, now + span),
        f"ts {minus} {op} current_timestamp": lambda ts, d, now: compare(ts - span, now),
        f"ts - now() {op} INTERVAL '{hours} hours'": lambda ts, d, now: compare(ts - now, span),
        f"NOT (greatest(ts, now()) {op} now())": lambda ts, d, now: not compare(max(ts, now), now),
        f"CAST(ts AS TIMESTAMP) {op} now()": lambda ts, d, now: compare(ts, now),
        f"ts {op} date_trunc('day', now())": lambda ts, d, now: compare(
            ts, midnight(now.date(), "UTC")
        ),
        f"ts {op} current_date": lambda ts, d, now: compare(ts, midnight(now.date(), zone)),
        f"d {op} current_date": lambda ts, d, now: compare(d, now.date()),
        f"d {op} CAST(now() AS DATE)": lambda ts, d, now: compare(d, now.date()),
        f"d {op} now()": lambda ts, d, now: compare(midnight(d, "UTC"), now),
        f"d {op} now() AND ts {op} now()": lambda ts, d, now: (
            compare(midnight(d, "UTC"), now) and compare(ts, now)
        ),
    }


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_now_is_one_instant_for_columns_of_all_zones(data):
    zone = data.draw(st.sampled_from(ZONES))
    entries = [data.draw(st.sampled_from(ENTRIES))]
    # Half an hour from every time that a condition names.
    hours = data.draw(st.lists(st.integers(-40, 40), min_size=1, max_size=12))
    began = dt.datetime.now(dt.UTC)
    times = [began + dt.timedelta(hours=hour, minutes=30) for hour in hours]
    ts = pa.array(times, pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
    rows = pa.table({"id": range(len(hours)), "ts": ts, "d": [time.date() for time in times]})
    with tempfile.TemporaryDirectory() as folder:
        table = phalanx.create(folder, rows.schema, entries).append(rows)
        for _ in range(8):
            op = data.draw(st.sampled_from(list(COMPARISONS)))
            by = data.draw(st.integers(-30, 30))
            where, holds = data.draw(st.sampled_from(list(conditions(op, by, zone).items())))
            expected = []
            for now in (began, dt.datetime.now(dt.UTC)):
                days = [time.date() for time in times]
                pairs = enumerate(zip(times, days, strict=True))
                expected.append([id for id, (time, day) in pairs if holds(time, day, now)])
            found = sorted(table.scan(where=where).to_arrow()["id"].to_pylist())
            assert found in expected, (where, zone)
            assert table.count(where) == len(found), (where, zone)


@pytest.mark.parametrize("zone", ZONES)
def test_an_update_of_any_zone(root, zone):
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", zone))])
    table = phalanx.create(root, schema, ["hours(ts)"]).append([{"id": 1, "ts": None}])
    before = dt.datetime.now(dt.UTC)
    table.update({"ts": "now()"})
    after = dt.datetime.now(dt.UTC)
    (moment,) = table.scan().to_arrow()["ts"].cast(pa.timestamp("us", "UTC")).to_pylist()
    assert before <= moment <= after
    table.update({"ts": "coalesce(ts, now()) - INTERVAL '1 hour'"})
    assert table.count("ts < now() - INTERVAL '59 minutes'") == 1
    assert table.count("ts < now() - INTERVAL '61 minutes'") == 0
