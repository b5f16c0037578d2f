"""Times that users write as text: without a zone of their own they are in that of the session."""

from __future__ import annotations

import datetime as dt

from phalanx.errors import InvalidInput
from phalanx.model.domains import local_to_utc
from phalanx.model.literals import parse_timestamp
from phalanx.transaction.snapshot import Snapshot, Version

_DAY = 86_400 * 1_000_000_000


def moment_of(text: str, zone: str) -> dt.datetime | None:
    """The time that a text spells, such as `2026-11-15 12:00:00`; None if it spells none.

    A date means its first instant. Raises InvalidInput for a zone that is unknown.
    """
    try:
        literal = parse_timestamp(text)
    except InvalidInput:
        return None
    nanos = literal.value * (_DAY if literal.kind == "date" else 1)
    if not literal.zoned:
        nanos = local_to_utc(nanos, zone)
    try:
        return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=nanos // 1_000)
    except OverflowError:
        return None


def version_of(text: str, zone: str, newest: Snapshot) -> Version:
    """A version as users name one: by its number, by a tag, or by a time."""
    if text.isdecimal():
        return int(text)
    if text in newest.tags():
        return text
    return moment_of(text, zone) or text
