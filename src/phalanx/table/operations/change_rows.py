"""Change rows by their ids, for the row-level operations of Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phalanx.errors import ConflictError
from phalanx.storage.leaf import Leaf
from phalanx.table.operations.leaf_results import (
    LeafResult,
)
from phalanx.table.partitioned_writer import WrittenLeaf
from phalanx.transaction.conflicts import still_holds
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import View


@dataclass
class ChangeRows:
    """Delete rows by the ids they have in a snapshot, and add others.

    Running it raises ConflictError if another transaction has changed one of these rows.
    """

    name: str
    base: Snapshot
    #: Row ids, by the object id of their leaf.
    deleted: Mapping[str, Any]
    written: Sequence[WrittenLeaf]
    isolation: str
    _kept: dict[str, LeafResult] = field(default_factory=dict)

    def run(self, view: View) -> None:
        view.check_schema(self.base.head.schema)
        current = view.current()
        before = self.base.leaves.by_id(self.deleted)
        now = current.leaves.by_id(self.deleted)
        for id, ids in self.deleted.items():
            was, row = before.get(id), now.get(id)
            if was is None or row is None or was.read_version is None or row.read_version is None:
                raise self._conflict(id)
            at = Leaf.of(current.location, current.head, row)
            kept = self._kept.get(id)
            if kept is None:
                delta, count = at.delete_rows(was.read_version, ids)
                reach("change.marked")
                kept = self._kept[id] = LeafResult(was.read_version, delta, count)
            if not still_holds(at, kept.delta, was.read_version, row.read_version, self.isolation):
                raise self._conflict(id)
            if kept.count == row.row_count:
                view.remove([row])
            elif kept.count:
                view.change(row, kept.delta, kept.count)
        spec = view.spec_like(self.base.head.spec)
        for leaf in self.written:
            place = view.place(spec, leaf.keys)
            view.append(place, leaf.written, leaf.statistics)

    def _conflict(self, leaf: str) -> ConflictError:
        return ConflictError(
            f"rows of {self.base.location.uri} that this {self.name} changes were changed by "
            f"another transaction (in the leaf {leaf}): nothing was changed, try again"
        )
