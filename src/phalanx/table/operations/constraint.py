"""Constraints: add and drop conditions that rows must satisfy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phalanx.errors import ConflictError, InvalidInput
from phalanx.model.constraints import PREFIX
from phalanx.transaction.view import View


@dataclass
class AddConstraint:
    """Add a condition that the rows of one version satisfy.

    Running it raises InvalidInput where the name is taken, the table is weak or its transaction has
    changed rows, and ConflictError on another version: nobody has looked at its rows.
    """

    name = "add constraint"
    constraint: str
    sql: str
    validated: int

    def run(self, view: View) -> None:
        view.base.refuse_weak("given a constraint")
        known = view.head.constraints
        if self.constraint in known:
            raise InvalidInput(
                f"the table {view.base.location.uri} has a constraint {self.constraint!r} already"
            )
        free = [key for key in view.head.properties if key.startswith(PREFIX) and not known]
        if free:
            raise InvalidInput(
                f"the property {free[0]!r} of {view.base.location.uri} is older than constraints, "
                f"and would become one: remove it first, with set_properties({{{free[0]!r}: None}})"
            )
        if view.counts.leaves or "schema" in view.head_changes:
            raise InvalidInput(
                f"the rows of {view.base.location.uri} were checked before this transaction "
                f"changed them: add the constraint {self.constraint!r} in one of its own"
            )
        if view.base.sequence != self.validated:
            raise ConflictError(
                f"the table {view.base.location.uri} was changed while its rows were checked: "
                "nothing was changed, try again"
            )
        _constrain(view, {**known, self.constraint: self.sql})


@dataclass
class DropConstraint:
    """Drop a condition. Running it raises InvalidInput where there is none of that name."""

    name = "drop constraint"
    constraint: str
    if_exists: bool

    def run(self, view: View) -> None:
        kept = view.head.constraints
        if kept.pop(self.constraint, None) is not None:
            _constrain(view, kept)
        elif not self.if_exists:
            raise InvalidInput(
                f"the table {view.base.location.uri} has no constraint {self.constraint!r}"
            )


def _constrain(view: View, constraints: Mapping[str, str]) -> None:
    head = view.head.constrained(constraints)
    view.change_head(properties=head.properties, writer_features=head.writer_features)
