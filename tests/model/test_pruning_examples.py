"""The filters of the specification and of its predecessors: which leaves they read."""

import datetime as dt

from phalanx.model.specs import build_spec
from tests.model.leaves import DAYS, EVENTS, bucket, day, left_over, reads

# The examples of seed 000 -----------------------------------------------------------------------

BY_DATE_AND_COUNTRY = ["event_date", "country"]
DATES_AND_COUNTRIES = [
    (day("2025-12-10"), "US"),
    (day("2025-12-10"), "CN"),
    (day("2025-12-11"), "US"),
    (day("2025-12-11"), "FR"),
]


def test_000_identity_equality_and_inequality():
    scanned = reads(
        "event_date = '2025-12-11' AND country != 'FR'", BY_DATE_AND_COUNTRY, DATES_AND_COUNTRIES
    )
    assert scanned == {(day("2025-12-11"), "US"): None}


def test_000_identity_equality():
    scanned = reads("country = 'US'", BY_DATE_AND_COUNTRY, DATES_AND_COUNTRIES)
    assert scanned == {(day("2025-12-10"), "US"): None, (day("2025-12-11"), "US"): None}


def test_000_a_range_of_time_is_the_days_it_touches():
    where = "ts >= '2025-12-10T10:00:00Z' AND ts < '2025-12-11T00:00:00Z'"
    residual = "ts >= TIMESTAMP '2025-12-10T10:00:00' AND ts < TIMESTAMP '2025-12-11T00:00:00'"
    assert reads(where, ["year(ts)", "month(ts)", "day(ts)"], DAYS) == {(2025, 12, 10): residual}


def test_000_bucket_equality():
    scanned = reads("user_id = 'some_user_id'", ["bucket(100, user_id)"], list(range(100)))
    assert scanned == {bucket("some_user_id", 100): "user_id = 'some_user_id'"}


def test_000_bucket_cannot_use_ranges():
    scanned = reads("user_id > 'some_user_id'", ["bucket(4, user_id)"], [0, 1, 2, 3, None])
    assert scanned == dict.fromkeys(range(4), "user_id > 'some_user_id'")


def test_000_truncate_of_strings():
    leaves = ["ab", "abc", "abd", "b", None]
    by = ["truncate(3, s)"]
    assert reads("s = 'abcdef'", by, leaves) == {"abc": "s = 'abcdef'"}
    assert reads("s LIKE 'abc%'", by, leaves) == {"abc": None}


def test_000_truncate_of_numbers():
    """`i > 125` leaves out what is below: the partition 120 holds 126 to 129."""
    scanned = reads("i > 125", ["truncate(10, i)"], [100, 110, 120, 130, 140, None])
    assert scanned == {120: "i >= 126", 130: None, 140: None}


# The examples of seeds 001 and 004 ---------------------------------------------------------------

V1 = build_spec(1, ["event_date"], EVENTS)
V2 = build_spec(2, ["year(event_date)", "country"], EVENTS, [V1])
V1_LEAVES = [(day("2025-12-10"),), (day("2025-12-11"),)]
V2_LEAVES = [(2024, "US"), (2025, "US"), (2025, "CN"), (2025, None)]


def test_004_appendix_d():
    where = "event_date = '2025-12-10' AND country = 'US'"
    # v1 knows nothing of countries: that filter is left to the scan.
    assert left_over(where, V1, EVENTS, V1_LEAVES) == {(day("2025-12-10"),): "country = 'US'"}
    # v2 knows the year: which day it was is left to the scan.
    assert left_over(where, V2, EVENTS, V2_LEAVES) == {
        (2025, "US"): "event_date = DATE '2025-12-10'"
    }


def test_004_across_spec_versions():
    where = "event_date = '2025-12-10'"
    assert left_over(where, V1, EVENTS, V1_LEAVES) == {(day("2025-12-10"),): None}
    left = left_over(where, V2, EVENTS, V2_LEAVES)
    assert left == dict.fromkeys(V2_LEAVES[1:], "event_date = DATE '2025-12-10'")


# The examples of seed 003 -------------------------------------------------------------------------

CALENDAR = [
    (d.year, d.month, d.day)
    for d in (dt.date(2022, 1, 1) + dt.timedelta(days=n) for n in range(4 * 365 + 1))
]
HIVE_DAYS = ["year", "month", "day"]


def test_003_single_partition_filter():
    days = [str(dt.date(2022, 1, 1) + dt.timedelta(days=n)) for n in range(1000)]
    assert reads("date = '2024-01-15'", ["date"], days) == {"2024-01-15": None}


def test_003_range_on_a_partition_column():
    scanned = reads("year = 2024 AND month BETWEEN 1 AND 3", HIVE_DAYS, CALENDAR)
    assert scanned == {leaf: None for leaf in CALENDAR if leaf[0] == 2024 and leaf[1] <= 3}
    assert len(scanned) == 91


def test_003_in_clause():
    regions = ["US", "CA", *(f"R{n}" for n in range(48))]
    assert reads("region IN ('US', 'CA')", ["region"], regions) == {"US": None, "CA": None}


def test_003_multi_level_pruning():
    scanned = reads("year = 2024 AND month = 1 AND day BETWEEN 10 AND 15", HIVE_DAYS, CALENDAR)
    assert scanned == {(2024, 1, d): None for d in range(10, 16)}


def test_003_year_alone():
    scanned = reads("year = 2024", HIVE_DAYS, CALENDAR)
    assert scanned == {leaf: None for leaf in CALENDAR if leaf[0] == 2024}


def test_003_partition_and_data_filter():
    leaves = [(date, hour) for date in ("2024-01-01", "2024-01-02") for hour in range(24)]
    scanned = reads("date = '2024-01-01' AND event_type = 'login'", ["date", "hour"], leaves)
    assert scanned == {("2024-01-01", hour): "event_type = 'login'" for hour in range(24)}
