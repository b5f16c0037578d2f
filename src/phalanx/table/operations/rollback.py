"""Rollback: make an earlier snapshot the newest again."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Version
from phalanx.transaction.view import View, read_statistics


@dataclass
class Rollback:
    """Make an earlier snapshot the newest again."""

    name = "rollback"
    version: Version

    def run(self, view: View) -> None:
        view.base.refuse_weak("rolled back")
        target = view.base.find(self.version)
        leaves = target.leaves.under(view.head.specs)
        wanted = leaves.rows()
        stats = read_statistics(target, wanted)
        keep = {row.object_id for row in wanted}
        current = view.current()
        for row in current.leaves.rows():
            if row.object_id not in keep:
                view.remove(row)
        reach("rollback.removed")
        for row in wanted:
            place = view.place(leaves.specs[row.spec_id], row.keys)
            view.restore(place, row, stats.get(row.object_id, {}))
        # What has been handed out is never handed out again: only these two go back.
        view.change_head(schema=target.head.schema, spec_id=target.head.spec_id)
