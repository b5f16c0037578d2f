"""The calendar: dates as numbers, the units from year to hour, and which zones are UTC."""

import datetime as dt
import zoneinfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.errors import InvalidInput
from phalanx.model.calendar import (
    PLURALS,
    UNITS,
    Unit,
    civil_of,
    days_of,
    is_utc,
    ticks_per_day,
)
from phalanx.model.expressions import evaluate_custom
from phalanx.model.transforms import EXTRACTS, Day, Hour, Identity, Month, Year, common_unit

EPOCH = dt.date(1970, 1, 1)
SECONDS = pa.timestamp("s")


@given(st.dates())
def test_dates_are_those_of_python(date):
    days = (date - EPOCH).days
    assert days_of(date.year, date.month, date.day) == days
    assert civil_of(days) == (date.year, date.month, date.day)


@given(st.integers(-(10**8), 10**8))
def test_dates_reach_beyond_those_of_python(days):
    assert days_of(*civil_of(days)) == days


def test_months_run_on_into_other_years():
    assert days_of(2025, 14, 1) == days_of(2026, 2, 1)
    assert days_of(2025, 0, 1) == days_of(2024, 12, 1)


class TestUnits:
    def test_from_the_coarsest_to_the_finest(self):
        assert list(UNITS) == ["year", "month", "day", "hour"]
        assert list(PLURALS) == ["years", "months", "days", "hours"]
        assert Unit.DAY.hierarchy == (Unit.YEAR, Unit.MONTH, Unit.DAY)
        assert Unit.MONTH.finer == (Unit.DAY, Unit.HOUR)
        assert Unit.HOUR.finer == ()

    def test_each_has_a_transform(self):
        assert {Unit.YEAR: Year, Unit.MONTH: Month, Unit.DAY: Day, Unit.HOUR: Hour} == EXTRACTS
        for unit, transform in EXTRACTS.items():
            assert (transform.kind, transform.suffix) == (unit.singular, f"_{unit.singular}")

    @given(st.datetimes())
    def test_the_number_of_a_unit_follows_from_an_instant_or_from_parts(self, moment):
        seconds = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(seconds=1)
        parts = (moment.year, moment.month, moment.day, moment.hour)
        for unit in Unit:
            named = parts[: len(unit.hierarchy)]
            number = unit.number_at(seconds, ticks_per_day(SECONDS))
            assert number == unit.number(*named)
            assert unit.part(number) == named[-1]

    def test_numbers_are_counted_from_the_epoch(self):
        assert [unit.number_at(0, 86_400) for unit in Unit] == [0, 0, 0, 0]
        assert [unit.number_at(-1, 86_400) for unit in Unit] == [-1, -1, -1, -1]

    def test_arrays_count_like_single_instants(self):
        instants = np.array([-(10**9), -1, 0, 86_399, 10**9])
        for unit in Unit:
            numbers = unit.number_at(instants, 86_400)
            assert numbers.tolist() == [unit.number_at(int(i), 86_400) for i in instants]
            assert unit.part(numbers).tolist() == [unit.part(int(n)) for n in numbers]

    @pytest.mark.parametrize("unit", [unit for unit in Unit if unit.cycle])
    @given(start=st.integers(-10_000, 10_000))
    def test_a_cycle_has_every_part(self, unit, start):
        parts = {unit.part(number) for number in range(start, start + unit.cycle)}
        assert len(parts) == {Unit.MONTH: 12, Unit.DAY: 31, Unit.HOUR: 24}[unit]

    @pytest.mark.parametrize(
        ("transforms", "unit"),
        [
            ([Year()], Unit.YEAR),
            ([Year(), Month(), Day()], Unit.DAY),
            ([Year(), Day()], Unit.YEAR),
            ([Year(), Month(), Identity()], Unit.MONTH),
            ([Month(), Day()], None),
            ([], None),
        ],
    )
    def test_what_transforms_name_together(self, transforms, unit):
        assert common_unit(transforms) == unit


UTC = [
    "UTC",
    "UCT",
    "UT",
    "Z",
    "Zulu",
    "GMT",
    "GMT0",
    "Greenwich",
    "Universal",
    "Etc/UTC",
    "Etc/UCT",
    "Etc/GMT",
    "Etc/GMT0",
    "Etc/GMT+0",
    "Etc/GMT-0",
    "Etc/Zulu",
    "Etc/Greenwich",
    "Etc/Universal",
    "+00:00",
    "-00:00",
    "+0000",
    "+00",
    "+0",
    "+0:00",
    "+00:00:00",
    "UTC+0",
    "UTC-00:00",
    "GMT+0",
    "GMT-0",
    "GMT+00:00",
    "UT+0",
]
OTHERS = [
    "Europe/London",
    "Europe/Lisbon",
    "Africa/Abidjan",
    "Atlantic/Reykjavik",
    "WET",
    "Factory",
    "right/UTC",
    "Etc/GMT+1",
    "Etc/GMT-14",
    "+00:01",
    "-00:00:01",
    "+01:00",
    "UTC+1",
    "GMT+10",
    "+000",
    "+",
    "UTC+",
    "UTC+00:30",
    "utc",
    "Europe/UTC",
]


class TestUtc:
    @pytest.mark.parametrize("zone", UTC)
    def test_is(self, zone):
        assert is_utc(zone)

    @pytest.mark.parametrize("zone", [*OTHERS, "", "UTC "])
    def test_is_not(self, zone):
        assert not is_utc(zone)

    def test_agrees_with_the_time_zone_database(self):
        moments = [dt.datetime(year, month, 1) for year in range(1840, 2100, 4) for month in (1, 7)]
        # Two names mean what the machine is set to, and one that nobody has set it.
        zones = zoneinfo.available_timezones() - {"localtime", "posixrules", "Factory"}
        assert len(zones) > 400
        for zone in zones:
            clock = zoneinfo.ZoneInfo(zone)
            always = all(clock.utcoffset(moment) == dt.timedelta(0) for moment in moments)
            assert is_utc(zone) == always, zone

    def test_agrees_with_datafusion_where_that_knows_the_zone(self):
        known = []
        for zone in UTC:
            column = pa.array([0, 10**9, -(10**9)], pa.timestamp("s", zone))
            try:
                hours = evaluate_custom("date_part('hour', col0)", [column])
            except InvalidInput:
                continue
            known.append(zone)
            assert hours.to_pylist() == [0, 1, 22], zone
        assert {"UTC", "Etc/GMT", "Zulu", "Greenwich", "+00:00", "-00:00"} <= set(known)
