"""Set properties: change or remove table properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from phalanx.errors import InvalidInput
from phalanx.model.properties import check_changes
from phalanx.transaction.view import View


@dataclass
class SetProperties:
    """Set table properties; None removes one. Running it raises InvalidInput for a bad value."""

    name = "properties"
    values: Mapping[str, str | None]

    def run(self, view: View) -> None:
        check_changes(self.values, view.head.schema.tagged.names, bool(view.head.constraints))
        merged = {**view.head.properties, **self.values}
        kept = {key: value for key, value in merged.items() if value is not None}
        head = replace(view.head, properties=kept).with_features()
        if view.is_weak and head.materializes != view.head.materializes:
            raise InvalidInput(
                f"the table {view.base.location.uri} is weak, and what its files hold cannot be "
                "changed: make_strong() it first"
            )
        view.change_head(properties=kept, reader_features=head.reader_features)
