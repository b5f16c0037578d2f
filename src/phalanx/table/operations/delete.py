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
        opened = [leaf for leaf in leaves if leaf.where is not None or self.isolation == "snapshot"]
        results = view.pool.map(lambda leaf: self._work_out(snapshot, leaf), opened)
        by_id = {leaf.row.object_id: r for leaf, r in zip(opened, results, strict=True)}
        whole = [leaf.row for leaf in leaves if _is_whole(leaf, by_id.get(leaf.row.object_id))]
        view.remove(whole)
        for leaf in opened:
            result = by_id[leaf.row.object_id]
            if result is not None and result.count and not _is_whole(leaf, result):
                take_out(view, leaf, result)
        self.deleted = view.counts.removed - before

    def _work_out(self, snapshot: Snapshot, leaf: PlannedLeaf) -> LeafResult | None:
        """The change in one leaf; None if the whole leaf is removed without being opened."""
        at = Leaf.of(snapshot.location, snapshot.head, leaf.row)
        kept = self._kept.get(leaf.row.object_id)
        if leaf.where is None:
            return self._whole(at, leaf, kept)
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


def _is_whole(leaf: PlannedLeaf, result: LeafResult | None) -> bool:
    """Whether a change removes all rows of a leaf."""
    return result is None or (result.count > 0 and result.count == leaf.row.row_count)
