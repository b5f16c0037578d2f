"""Rollback: restore an earlier snapshot, as a new one."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.model.properties import restored
from phalanx.model.schema import column_names
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Version
from phalanx.transaction.view import View, read_statistics


@dataclass
class Rollback:
    """Restore the rows, schema, spec, indexes and constraints of an earlier snapshot, as a new one.

    Running it raises TableNotFound if there is no such version, and InvalidInput if the table is
    weak or was weak then.
    """

    name = "rollback"
    version: Version

    def run(self, view: View) -> None:
        view.base.refuse_weak("rolled back")
        target = view.base.find(self.version)
        leaves = target.leaves.under(view.head.specs)
        rows = leaves.rows()
        stats = read_statistics(target, rows)
        keep = {row.object_id for row in rows}
        current = view.current()
        view.remove([row for row in current.leaves.rows() if row.object_id not in keep])
        reach("rollback.removed")
        for row in rows:
            place = view.place(leaves.specs[row.spec_id], row.keys)
            view.restore(place, row, stats.get(row.object_id, {}))
        # Only these are restored: ids that were assigned since must not be assigned again.
        head = target.head
        constrained = view.head.constrained(head.constraints)
        view.change_head(
            schema=head.schema,
            spec_id=head.spec_id,
            indexes=head.indexes,
            properties=restored(
                constrained.properties,
                head.properties,
                column_names(view.head.schema, head.schema),
            ),
            writer_features=constrained.writer_features,
        )
