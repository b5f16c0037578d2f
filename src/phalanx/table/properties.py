"""Properties of a table that mean something to Phalanx: what they may be, and what they say."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping

from phalanx.errors import InvalidInput

#: When leaf versions are published on their main branches.
ANCHOR = "anchor"
#: How long a snapshot is kept after it was the newest, and how many of the newest are always.
KEEP_SNAPSHOTS = "retention.snapshots"
KEEP_AT_LEAST = "retention.min_snapshots"

#: How long that is, where the table does not say.
DEFAULT_AGE = dt.timedelta(days=7)

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_SPAN = re.compile(r"(\d{1,9})\s*(second|minute|hour|day|week)s?")


def span_of(text: str) -> dt.timedelta:
    """A span of time such as '7 days'. Raises InvalidInput where the text is none."""
    match = _SPAN.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidInput(f"{text!r} is no span of time: write it like '7 days' or '12 hours'")
    try:
        return dt.timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    except OverflowError:
        raise InvalidInput(f"{text!r} is too long a span of time") from None


def _anchor(value: str) -> str:
    allowed = ("maintenance", "commit", "never")
    if value not in allowed:
        raise InvalidInput(f"the property {ANCHOR} is one of {', '.join(allowed)}, not {value!r}")
    return value


def _age(value: str) -> dt.timedelta:
    try:
        return span_of(value)
    except InvalidInput as error:
        raise InvalidInput(f"the property {KEEP_SNAPSHOTS}: {error}") from None


def _at_least(value: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
        raise InvalidInput(f"the property {KEEP_AT_LEAST} is a whole number from 1, not {value!r}")
    return int(value)


_MEANINGS: dict[str, Callable[[str], object]] = {
    ANCHOR: _anchor,
    KEEP_SNAPSHOTS: _age,
    KEEP_AT_LEAST: _at_least,
}


def check_properties(values: Mapping[str, str | None]) -> None:
    """Refuse values that a property does not take. Raises InvalidInput."""
    for key, value in values.items():
        if not isinstance(key, str) or not isinstance(value, str | None):
            raise InvalidInput("properties are strings")
        meaning = _MEANINGS.get(key)
        if meaning is None and key.startswith("retention."):
            known = ", ".join(name for name in _MEANINGS if name.startswith("retention."))
            raise InvalidInput(f"there is no property {key}: there is {known}")
        if meaning is not None and value is not None:
            meaning(value)


def snapshot_age(properties: Mapping[str, str]) -> dt.timedelta:
    """How long snapshots are kept after they were the newest."""
    return _age(properties[KEEP_SNAPSHOTS]) if KEEP_SNAPSHOTS in properties else DEFAULT_AGE


def snapshots_at_least(properties: Mapping[str, str]) -> int:
    """How many of the newest snapshots are kept, however old they are."""
    return _at_least(properties.get(KEEP_AT_LEAST, "1"))
