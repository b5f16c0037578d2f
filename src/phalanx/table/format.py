"""Numbers as text, for reports and plans."""

from __future__ import annotations


def count_text(number: int, thing: str) -> str:
    """A number of things, such as "1,000 rows" or "1 leaf"."""
    many = "leaves" if thing == "leaf" else f"{thing}s"
    return f"{number:,} {thing if number == 1 else many}"


def size_text(size: int) -> str:
    """A number of bytes, such as "12 B" or "3.4 MB"."""
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
