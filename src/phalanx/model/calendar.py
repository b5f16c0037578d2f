"""The calendar of partitions: dates as numbers, units of time from year to hour, and UTC.

Instants are the integers that Arrow stores, or numpy arrays of them: ticks since 1970-01-01 in UTC.
Dates are those of the proleptic Gregorian calendar. Python's own end with the years 1 and 9999;
Arrow's do not.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import pyarrow as pa

#: An int, or a numpy array of them.
Int = Any

#: Ticks of a second in each of Arrow's time units.
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
#: The years whose timestamps DataFusion can take apart.
FIRST_YEAR, LAST_YEAR = -262_143, 262_142

_EPOCH_YEAR = 1970


def ticks_per_day(type: pa.DataType) -> int:
    """How many ticks of a date or timestamp type make a day."""
    if pa.types.is_date32(type):
        return 1
    if pa.types.is_date64(type):
        return 86_400_000
    return 86_400 * PER_SECOND[type.unit]


def days_of(year: Int, month: Int, day: Int) -> Int:
    """Days from 1970-01-01 to a date; months beyond 12 run on into the next years."""
    index = year * 12 + (month - 1)
    year, month = index // 12, index % 12 + 1
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil_of(days: Int) -> tuple[Int, Int, Int]:
    """Year, month and day of the date that is some days after 1970-01-01."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    part = (5 * of_year + 2) // 153
    day = of_year - (153 * part + 2) // 5 + 1
    month = (part + 2) % 12 + 1
    return year + era * 400 + (month <= 2), month, day


class Unit(Enum):
    """A unit of time that a partition field takes from a column, coarsest first.

    A unit has two numbers. Its *part* is what the field holds: a year, a month 1 to 12, a day 1 to
    31, an hour 0 to 23. Its *number* counts units since 1970-01-01T00 and says which year, month,
    day or hour it is; it takes the parts of all coarser units to know it.

    This is the only place where the units are listed. Their transforms register themselves in
    `phalanx.model.transforms.EXTRACTS`.
    """

    YEAR = ("year", 365.25, None)
    MONTH = ("month", 30.44, 12)
    DAY = ("day", 1.0, 62)
    HOUR = ("hour", 1 / 24, 24)

    def __init__(self, singular: str, days: float, cycle: int | None) -> None:
        self.singular = singular
        #: The name for this unit together with all coarser ones: `days` is year, month and day.
        self.plural = f"{singular}s"
        #: How many days it has, on average.
        self.days = days
        #: How many in a row surely have every part there is; None where parts never come again.
        self.cycle = cycle

    @property
    def hierarchy(self) -> tuple[Unit, ...]:
        """The units from the year down to this one."""
        units = tuple(Unit)
        return units[: units.index(self) + 1]

    @property
    def finer(self) -> tuple[Unit, ...]:
        """The units below this one, coarsest first."""
        return tuple(Unit)[len(self.hierarchy) :]

    def number(self, year: Int, month: Int = 1, day: Int = 1, hour: Int = 0) -> Int:
        """The number of the unit that the parts of its hierarchy name."""
        match self:
            case Unit.YEAR:
                return year - _EPOCH_YEAR
            case Unit.MONTH:
                return (year - _EPOCH_YEAR) * 12 + month - 1
            case Unit.DAY:
                return days_of(year, month, day)
            case Unit.HOUR:
                return days_of(year, month, day) * 24 + hour

    def number_at(self, instant: Int, per_day: int) -> Int:
        """The number of the unit that an instant falls into; `per_day` ticks make a day."""
        match self:
            case Unit.YEAR | Unit.MONTH:
                year, month, _ = civil_of(instant // per_day)
                return self.number(year, month)
            case Unit.DAY:
                return instant // per_day
            case Unit.HOUR:
                return instant // (per_day // 24)

    def part(self, number: Int) -> Int:
        """The part of the unit with a number."""
        match self:
            case Unit.YEAR:
                return number + _EPOCH_YEAR
            case Unit.MONTH:
                return number % 12 + 1
            case Unit.DAY:
                return civil_of(number)[2]
            case Unit.HOUR:
                return number % 24


#: The units by their names, and by the names for their hierarchies.
UNITS = {unit.singular: unit for unit in Unit}
PLURALS = {unit.plural: unit for unit in Unit}


#: Names for UTC: those of the time zone database, Java's `UT`, and ISO 8601's `Z`.
_UTC_NAMES = frozenset(
    {"UTC", "UCT", "UT", "Z", "Zulu", "Universal", "Greenwich", "GMT", "GMT0"}
    | {"Etc/UTC", "Etc/UCT", "Etc/Zulu", "Etc/Universal", "Etc/Greenwich", "Etc/GMT", "Etc/GMT0"}
    | {"Etc/GMT+0", "Etc/GMT-0"}
)
#: An offset of nothing, by itself or as Java writes it: `+00:00`, `-0000`, `UTC+0`, `GMT-00:00`.
_ZERO_OFFSET = re.compile(r"(UTC|GMT|UT)?[+-](0{1,2}(:00){0,2}|0000(00)?)")


def is_utc(zone: str) -> bool:
    """Whether a time zone's clock has always shown UTC.

    Zones that agree with UTC only today or only in winter do not count: London and Lisbon have
    summer time, Abidjan and Reykjavik once had local time, and `right/UTC` counts leap seconds.
    Names are case-sensitive, as they are in Java and in the time zone database. A name that is not
    recognized makes queries slower; one that is recognized wrongly would make them lose rows.
    """
    return zone in _UTC_NAMES or _ZERO_OFFSET.fullmatch(zone) is not None
