"""Replace: a new schema, spec and rows for a table, which keeps its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.errors import ConflictError
from phalanx.storage.head import Head
from phalanx.table.partitioned_writer import WrittenLeaf
from phalanx.transaction.view import View


@dataclass
class Replace:
    """Replace all rows, the schema, the spec and the properties, and drop all indexes.

    Running it raises ConflictError if another transaction replaced the table first, and
    InvalidInput if the table is weak.
    """

    name = "replace"
    #: The new head, which the files were written for.
    head: Head
    written: Sequence[WrittenLeaf]

    def run(self, view: View) -> None:
        view.base.refuse_weak("replaced")
        current, spec = view.current(), self.head.spec
        old = view.base.head
        if old.specs != self.head.specs[:-1] or old.max_field_id >= min(self.head.schema.field_ids):
            # Ids that were assigned meanwhile stay in use, even after a rollback of the schema.
            raise ConflictError(
                f"the table {view.base.location.uri} was replaced in between: try again"
            )
        view.remove(current.leaves.rows())
        changed = ("schema", "max_field_id", "properties", "indexes", "writer_features")
        features = old.reader_features | self.head.reader_features
        view.change_head(
            **{name: getattr(self.head, name) for name in changed}, reader_features=features
        )
        view.add_spec(spec)
        for leaf in self.written:
            view.append(view.place(spec, leaf.keys), leaf.written, leaf.statistics)
