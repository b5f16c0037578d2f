"""Stray rows: rows in the folders of a table of which only a person can say whether they belong.

Other clients have committed them to the main branch of a leaf, or they were part of a leaf that was
lost and then written again.
"""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.errors import InvalidInput
from phalanx.table.rules.rule import Problem

#: What a repair does with stray rows: report them, add them to the table, or give them up.
KEEP, TAKE, DROP = CHOICES = ("keep", "take", "drop")


def check_choice(choice: str) -> None:
    """Raise InvalidInput for anything but one of the choices."""
    if choice not in CHOICES:
        raise InvalidInput(f"stray is 'keep', 'take' or 'drop', not {choice!r}")


@dataclass(frozen=True)
class Stray:
    """Stray rows of one leaf."""

    problem: Problem
    folder: str
    #: What each part is known by to a transaction that settles it.
    keys: tuple[str, ...]
    #: Versions of the leaf, each with the fragments that hold the rows; None for all of them.
    parts: tuple[tuple[int | None, tuple[int, ...] | None], ...]
    #: Whether they are on main, so that the leaf is published over them once they are settled.
    on_main: bool = False
    #: Whether the rows were only added, and can be added to the table.
    can_be_taken: bool = True
