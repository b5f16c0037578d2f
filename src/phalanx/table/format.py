"""Numbers as people read them, in reports and plans."""

from __future__ import annotations


def count_text(number: int, thing: str) -> str:
    """A number of things for people."""
    many = "leaves" if thing == "leaf" else f"{thing}s"
    return f"{number:,} {thing if number == 1 else many}"


def size_text(size: int) -> str:
    """Bytes for people."""
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
