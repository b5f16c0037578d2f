"""Replace: another schema, spec and rows in the place of a table's, with its history kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.errors import ConflictError
from phalanx.storage.head import Head
from phalanx.table.partitioned_writer import WrittenLeaf
from phalanx.transaction.view import View


@dataclass
class Replace:
    """Take all rows out, and go on with another schema, spec and properties, and other rows."""

    name = "replace"
    head: Head
    written: Sequence[WrittenLeaf]

    def run(self, view: View) -> None:
        view.base.refuse_weak("replaced")
        current, spec = view.current(), self.head.spec
        taken = view.base.head
        if taken.specs != self.head.specs[:-1] or taken.max_field_id >= min(
            self.head.schema.field_ids
        ):
            # A rollback takes the schema back, but never what has been handed out since.
            raise ConflictError(
                f"the table {view.base.location.uri} was replaced in between: try again"
            )
        for row in current.leaves.rows():
            view.remove(row)
        changed = ("schema", "max_field_id", "properties")
        view.change_head(**{name: getattr(self.head, name) for name in changed})
        view.add_spec(spec)
        for leaf in self.written:
            view.append(view.place(spec, leaf.keys), leaf.written, leaf.statistics)
