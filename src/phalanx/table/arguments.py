"""Checks of arguments that several public calls share."""

from __future__ import annotations

from phalanx.errors import InvalidInput

#: A larger number means the same: no table has so many rows or bytes. Lance takes no larger one.
LARGEST = 2**63 - 1


def positive(value: int | None, default: int, name: str) -> int:
    """The value of an argument, or its default. Raises InvalidInput for anything below 1."""
    return default if value is None else whole_number(value, 1, name)


def whole_number(value: int, least: int, name: str) -> int:
    """The value of an argument, at most LARGEST. Raises InvalidInput for anything below `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"{name} is a whole number from {least}, not {value!r}")
    return min(value, LARGEST)
