"""Paths of columns as text: `s.x` is the field `x` of the struct `s`, `` `s.x` `` a column.

A part that has a dot or a backtick in it is quoted with backticks, and a backtick inside is
doubled, as in SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_QUOTED = r"`(?:[^`]|``)+`"
_PATH = re.compile(rf"(?:{_QUOTED}|[^.`]+)(?:\.(?:{_QUOTED}|[^.`]+))*")
_PART = re.compile(rf"{_QUOTED}|[^.`]+")


def split_path(text: str) -> tuple[str, ...]:
    """The parts of a path. Text that is no path, such as one with a lone backtick, is one part."""
    if "`" not in text:
        return tuple(text.split("."))
    if _PATH.fullmatch(text) is None:
        return (text,)
    parts = _PART.findall(text)
    return tuple(p[1:-1].replace("``", "`") if p.startswith("`") else p for p in parts)


def join_path(parts: Iterable[str]) -> str:
    """The path of some parts, the inverse of `split_path`."""
    return ".".join(_quoted(part) if "." in part or "`" in part else part for part in parts)


def _quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`"
