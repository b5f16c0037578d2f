"""Arguments of public calls, checked before anything is done."""

from __future__ import annotations

from phalanx.errors import InvalidInput


def positive(given: int | None, default: int, name: str) -> int:
    """A bound that somebody gave, or the usual one. Raises InvalidInput for what is none."""
    if given is None:
        return default
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise InvalidInput(f"{name} is a whole number from 1, not {given!r}")
    return given
