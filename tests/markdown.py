"""Tables of the docs, to be compared with what the code declares."""

from pathlib import Path
from typing import Any

from phalanx.model.properties import Kind


def table_under(path: Path, heading: str) -> list[dict[str, str]]:
    """The rows of the first table after a heading, by the names of its columns."""
    lines = path.read_text(encoding="utf-8").splitlines()
    lines = lines[lines.index(heading) :]
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    names, _, *rows = table
    return [dict(zip(names, row, strict=True)) for row in rows]


def code(default: Any, kind: Kind[Any]) -> str:
    """A default as the tables show it."""
    return "" if default is None else f"`{kind.spell(default)}`"
