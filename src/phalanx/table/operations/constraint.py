"""Constraints: add and drop conditions that rows must satisfy."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.errors import ConflictError, InvalidInput
from phalanx.model.constraints import PREFIX, constraints_of
from phalanx.transaction.view import View


@dataclass
class AddConstraint:
    """Add a condition that the rows of one version satisfy.

    Running it raises InvalidInput where the name is taken or the table is weak, and ConflictError
    on another version: nobody has looked at its rows.
    """

    name = "add constraint"
    constraint: str
    sql: str
    validated: int

    def run(self, view: View) -> None:
        view.base.refuse_weak("given a constraint")
        if self.constraint in constraints_of(view.head.properties):
            raise InvalidInput(
                f"the table {view.base.location.uri} has a constraint {self.constraint!r} already"
            )
        if view.base.sequence != self.validated:
            raise ConflictError(
                f"the table {view.base.location.uri} was changed while its rows were checked: "
                "nothing was changed, try again"
            )
        properties = {**view.head.properties, PREFIX + self.constraint: self.sql}
        view.change_head(properties=properties)


@dataclass
class DropConstraint:
    """Drop a condition. Running it raises InvalidInput where there is none of that name."""

    name = "drop constraint"
    constraint: str
    if_exists: bool

    def run(self, view: View) -> None:
        kept = dict(view.head.properties)
        if kept.pop(PREFIX + self.constraint, None) is not None:
            view.change_head(properties=kept)
        elif not self.if_exists:
            raise InvalidInput(
                f"the table {view.base.location.uri} has no constraint {self.constraint!r}"
            )
