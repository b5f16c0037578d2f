"""Set properties of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phalanx.model.properties import check_changes
from phalanx.transaction.view import View


@dataclass
class SetProperties:
    """Set properties of the table; None takes one away."""

    name = "properties"
    values: Mapping[str, str | None]

    def run(self, view: View) -> None:
        check_changes(self.values)
        merged = {**view.head.properties, **self.values}
        kept = {key: value for key, value in merged.items() if value is not None}
        view.change_head(properties=kept)
