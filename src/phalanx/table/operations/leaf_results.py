"""What an operation has worked out for each leaf, and when that still holds."""

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
    """What was worked out for one leaf at one version."""

    version: int | None
    delta: LeafDelta
    count: int
    #: Rows that the change puts back, here or in other leaves.
    outputs: Sequence[WrittenLeaf] = ()
    #: The spec that those were cut by.
    spec: PartitionSpec | None = None
    #: Whether rows were chosen whose fragments `delta` does not name: what was worked out then
    #: holds at this one version.
    only_here: bool = False


@dataclass
class WhereMatches:
    """A change to the rows that match a predicate, leaf by leaf."""

    #: The schema that the predicate is of.
    schema: TableSchema
    where: Predicate
    isolation: str
    _kept: dict[str, LeafResult] = field(default_factory=dict, kw_only=True)
    _seen: set[str] | None = field(default=None, kw_only=True)

    def _in_scope(self, view: View, leaves: Sequence[PlannedLeaf]) -> list[PlannedLeaf]:
        """Under snapshot isolation, leaves that have come since the first run are not looked at.

        Unless rows of the first run may be there now, because somebody has changed or moved them:
        then the change is worked out anew, on all that is there.
        """
        if view.rows_moved and self.isolation == "snapshot" and self._is_overtaken(view):
            self.isolation = "serializable"
        if self.isolation == "serializable":
            return list(leaves)
        if self._seen is None:
            self._seen = {leaf.row.object_id for leaf in leaves}
        return [leaf for leaf in leaves if leaf.row.object_id in self._seen]

    def _is_overtaken(self, view: View) -> bool:
        """Whether somebody has taken rows out of a leaf that this change takes rows out of."""
        snapshot, kept = view.current(), {id: k for id, k in self._kept.items() if k.count}
        now = snapshot.leaves.by_id(kept)
        return any(
            id not in now
            or took_rows_out(
                Leaf(snapshot.location, now[id].location, snapshot.head.schema),
                one.version,
                now[id].read_version,
            )
            for id, one in kept.items()
        )


def take_out(view: View, leaf: PlannedLeaf, kept: LeafResult) -> None:
    view.change(leaf.row, kept.delta, kept.count, kept.version)


def result_holds(leaf: Leaf, kept: LeafResult, version: int | None, isolation: str) -> bool:
    if kept.version is None or version is None:
        return False
    if kept.only_here:
        return kept.version == version
    return still_holds(leaf, kept.delta, kept.version, version, isolation)
