"""Times as text: in the zone of the session, unless they name their own."""

import datetime as dt

import pytest

from phalanx import InvalidInput
from phalanx.spark.times import moment_of


@pytest.mark.parametrize(
    ("text", "zone", "hours"),
    [
        ("2026-11-15 12:00:00", "UTC", 12),
        ("2026-11-15 12:00:00", "Asia/Tokyo", 3),
        ("2026-11-15T12:00", "-03:00", 15),
        ("2026-11-15 12:00:00+01:00", "Asia/Tokyo", 11),
        ("2026-11-15 12:00:00Z", "Asia/Tokyo", 12),
        ("2026-11-15", "Asia/Tokyo", -9),
        ("2026-11-15", "America/New_York", 5),
    ],
)
def test_a_time(text, zone, hours):
    assert moment_of(text, zone) == dt.datetime(2026, 11, 15, tzinfo=dt.UTC) + dt.timedelta(
        hours=hours
    )


def test_a_time_that_clocks_show_twice_or_never():
    """As Spark reads them: the first of two, and an hour later."""
    twice, never = "2026-11-01 01:30:00", "2026-03-08 02:30:00"
    assert moment_of(twice, "America/New_York") == dt.datetime(2026, 11, 1, 5, 30, tzinfo=dt.UTC)
    assert moment_of(never, "America/New_York") == dt.datetime(2026, 3, 8, 7, 30, tzinfo=dt.UTC)


@pytest.mark.parametrize("text", ["", "7 days", "release", "2026-13-01", "12:00", "+999999-01-01"])
def test_what_is_no_time(text):
    assert moment_of(text, "UTC") is None


def test_a_zone_that_is_none():
    with pytest.raises(InvalidInput, match="unknown time zone"):
        moment_of("2026-11-15 12:00:00", "Mars/Olympus")
