"""The proleptic Gregorian calendar on plain integers and numpy arrays: days since 1970-01-01.

Python's own dates stop at the years 1 and 9999; Arrow's do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Int = Any  # an int, or a numpy array of them

#: Units of a second in each Arrow time unit.
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
#: The years that DataFusion can take a timestamp apart in.
FIRST_YEAR, LAST_YEAR = -262_143, 262_142


def ticks_per_day(type: pa.DataType) -> int:
    """How many keys of a date or timestamp type make a day."""
    if pa.types.is_date32(type):
        return 1
    if pa.types.is_date64(type):
        return 86_400_000
    return 86_400 * PER_SECOND[type.unit]


def days_of(year: Int, month: Int, day: Int) -> Int:
    """Days since the epoch of a date; a month beyond 12 runs into the next year."""
    index = year * 12 + (month - 1)
    year, month = index // 12, index % 12 + 1
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil_of(days: Int) -> tuple[Int, Int, Int]:
    """Year, month and day of a number of days since the epoch."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    part = (5 * of_year + 2) // 153
    day = of_year - (153 * part + 2) // 5 + 1
    month = (part + 2) % 12 + 1
    return year + era * 400 + (month <= 2), month, day


def year_of(days: int) -> int:
    return int(civil_of(days)[0])


def day_of(days: int) -> int:
    return int(civil_of(days)[2])


def month_index(days: int) -> int:
    """Months since the year 0."""
    year, month, _ = civil_of(days)
    return int(year * 12 + month - 1)


def spans(
    type: pa.DataType,
    year: np.ndarray[Any, Any],
    month: np.ndarray[Any, Any] | None = None,
    day: np.ndarray[Any, Any] | None = None,
    hour: np.ndarray[Any, Any] | None = None,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The first and last key of each year, month, day or hour, whichever is the finest given."""
    year = year.astype(np.int64)
    if month is None:
        start, end = days_of(year, 1, 1), days_of(year + 1, 1, 1)
    elif day is None:
        start, end = days_of(year, month, 1), days_of(year, month + 1, 1)
    else:
        start = days_of(year, month, day)
        end = start + 1
    each = ticks_per_day(type)
    if hour is not None:
        each //= 24
        start = start * 24 + hour
        end = start + 1
    bound = (2**63 - 1) // each
    first = np.where(start < -bound, -(2**63), np.clip(start, -bound, bound) * each)
    last = np.where(end > bound, 2**63 - 1, np.clip(end, -bound, bound) * each - 1)
    return first, last
