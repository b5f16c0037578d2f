"""The results of an operation for each leaf, and when they can be reused on a newer snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from phalanx.model.predicates import (
    Predicate,
)
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionSpec
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.table.partitioned_writer import WrittenLeaf
from phalanx.table.plan import PlannedLeaf
from phalanx.transaction.conflicts import still_holds, took_rows_out
from phalanx.transaction.view import View


@dataclass
class LeafResult:
    """The change of one leaf, computed at one version of it."""

    version: int | None
    delta: LeafDelta
    count: int
    #: Rows that the change adds, to this leaf or to others.
    outputs: Sequence[WrittenLeaf] = ()
    #: The spec that these rows were partitioned by.
    spec: PartitionSpec | None = None
    #: Whether rows match whose fragments `delta` does not list. The result then holds at this
    #: version only.
    only_here: bool = False


@dataclass
class WhereMatches:
    """A change to the rows that match a predicate, leaf by leaf."""

    #: The schema that the predicate was bound to.
    schema: TableSchema
    where: Predicate
    isolation: str
    _kept: dict[str, LeafResult] = field(default_factory=dict, kw_only=True)
    _seen: set[str] | None = field(default=None, kw_only=True)

    def _in_scope(self, view: View, leaves: Sequence[PlannedLeaf]) -> list[PlannedLeaf]:
        """The leaves to change: under snapshot isolation only those of the first run.

        If another transaction may have moved rows of the first run to other leaves, the change
        becomes serializable and is computed again on all leaves.
        """
        if view.rows_moved and self.isolation == "snapshot" and self._is_overtaken(view):
            self.isolation = "serializable"
        if self.isolation == "serializable":
            return list(leaves)
        if self._seen is None:
            self._seen = {leaf.row.object_id for leaf in leaves}
        return [leaf for leaf in leaves if leaf.row.object_id in self._seen]

    def _is_overtaken(self, view: View) -> bool:
        """Whether another transaction removed rows from a leaf that this change affects."""
        snapshot = view.current()
        results = {id: result for id, result in self._kept.items() if result.count}
        now = snapshot.leaves.by_id(results)
        return any(
            id not in now
            or took_rows_out(
                Leaf.of(snapshot.location, snapshot.head, now[id]),
                result.version,
                now[id].read_version,
            )
            for id, result in results.items()
        )


def take_out(view: View, leaf: PlannedLeaf, kept: LeafResult) -> None:
    """Record in the view that the rows of a result are removed from their leaf."""
    view.change(leaf.row, kept.delta, kept.count, kept.version)


def result_holds(leaf: Leaf, kept: LeafResult, version: int | None, isolation: str) -> bool:
    """Whether a result of an earlier run can be reused at a version of its leaf."""
    if kept.version is None or version is None:
        return False
    if kept.only_here:
        return kept.version == version
    return still_holds(leaf, kept.delta, kept.version, version, isolation)
