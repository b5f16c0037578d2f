"""What new rows hold in columns that they come without."""

from __future__ import annotations

import getpass
import time
from dataclasses import dataclass

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.defaults import evaluated, new_default_of, repeated


@dataclass(frozen=True)
class Moment:
    """When, as whom and where a statement runs: what `current_date()` and `current_user()` mean."""

    #: The time since the epoch.
    nanoseconds: int
    user: str | None
    #: The time zone of dates, and of timestamps without one.
    zone: str

    @staticmethod
    def now() -> Moment:
        return Moment.at(time.time())

    @staticmethod
    def at(seconds: float, zone: str = "UTC") -> Moment:
        """A moment of the user of this process, in whole microseconds as in Spark."""
        try:
            user = getpass.getuser()
        except (OSError, KeyError, ImportError):  # the system does not know the user
            user = None
        return Moment(int(seconds * 1_000_000) * 1_000, user, zone)


def new_value(field: pa.Field, moment: Moment) -> pa.Scalar | None:
    """The value of a column in new rows that come without it; None stands for NULL.

    Raises InvalidInput if only Spark can tell.
    """
    default = new_default_of(field)
    if default is None:
        return None
    value = default.value
    if value is None:
        assert default.sql is not None
        value = evaluated(default.sql, field.type, moment.nanoseconds, moment.user, moment.zone)
    if value is None:
        raise InvalidInput(
            f"column {field.name!r} is missing, and its default {default.sql} is known only to "
            "Spark: give the column, or write through Spark"
        )
    return value if value.is_valid else None


def new_values(field: pa.Field, rows: int, moment: Moment) -> pa.Array:
    """A column of new rows that come without it. Raises InvalidInput if only Spark can tell."""
    return repeated(new_value(field, moment), field.type, rows)
