"""Checks of arguments that several public calls share."""

from __future__ import annotations

from phalanx.errors import InvalidInput


def positive(value: int | None, default: int, name: str) -> int:
    """The value of an argument, or its default. Raises InvalidInput for anything below 1."""
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(f"{name} is a whole number from 1, not {value!r}")
    return value
