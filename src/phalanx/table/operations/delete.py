"""Delete: remove the rows that match a predicate."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.errors import ConflictError
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.table.operations.leaf_results import (
    LeafResult,
    WhereMatches,
    result_holds,
    take_out,
)
from phalanx.table.plan import Plan, PlannedLeaf
from phalanx.transaction.conflicts import same_rows, still_holds
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import View


@dataclass
class Delete(WhereMatches):
    """Remove the rows that match a predicate."""

    name = "delete"
    deleted: int = 0

    def run(self, view: View) -> None:
        view.check_schema(self.schema)
        snapshot, before = view.current(), view.counts.removed
        leaves = self._in_scope(view, Plan(snapshot, self.where).leaves)
        results = list(view.pool.map(lambda leaf: self._work_out(snapshot, leaf), leaves))
        for leaf, result in zip(leaves, results, strict=True):
            self._record(view, leaf, result)
        self.deleted = view.counts.removed - before

    def _work_out(self, snapshot: Snapshot, leaf: PlannedLeaf) -> LeafResult | None:
        """The change in one leaf; None if the whole leaf is removed without being opened."""
        at = Leaf(snapshot.location, leaf.row.location, snapshot.head.schema)
        kept = self._kept.get(leaf.row.object_id)
        if leaf.where is None:
            return self._whole(at, leaf, kept) if self.isolation == "snapshot" else None
        version = at.newest() if leaf.version is None else leaf.version
        if kept is None or not result_holds(at, kept, version, self.isolation):
            delta, count = at.delete(version, leaf.where)
            reach("delete.marked")
            kept = self._kept[leaf.row.object_id] = LeafResult(version, delta, count)
        return kept

    def _whole(self, at: Leaf, leaf: PlannedLeaf, kept: LeafResult | None) -> LeafResult | None:
        """The change in a leaf that matches whole, under snapshot isolation.

        Only the rows that the leaf had at the first run are removed. None if these are all rows.
        Raises ConflictError if another transaction has changed some of them.
        """
        if kept is None:
            self._kept[leaf.row.object_id] = LeafResult(leaf.version, LeafDelta(), leaf.rows or 0)
            return None
        if leaf.version is None or kept.version is None:
            return None
        if same_rows(at, kept.version, leaf.version):
            return None
        delta = LeafDelta(removed=at.fragment_ids(kept.version))
        if not still_holds(at, delta, kept.version, leaf.version, self.isolation):
            raise ConflictError(
                f"rows of {at.uri} that this delete matches were changed by another transaction: "
                "nothing was deleted, try again"
            )
        return LeafResult(leaf.version, delta, kept.count)

    def _record(self, view: View, leaf: PlannedLeaf, result: LeafResult | None) -> None:
        if result is None or (result.count and result.count == leaf.row.row_count):
            view.remove(leaf.row)
        elif result.count:
            take_out(view, leaf, result)
