"""Leaves that are not read because the bounds of a column rule out every row of them.

Partition values prune leaves first. What is left is judged by the statistics that the manifest has
of each leaf: of a table by days, a filter on an id that grows with time reads the days that have
such ids. Statistics belong to a version of a leaf. They are only trusted for that version, so a
transaction that has changed a leaf reads it in any case, and so does everybody in a weak table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import CorruptTable, TableNotFound
from phalanx.lru import LruCache
from phalanx.model import statistics
from phalanx.model.bounds import bounded_columns, may_match
from phalanx.model.predicates import Predicate
from phalanx.model.statistics import ColumnStatistics
from phalanx.storage.manifest import LeafStatistics
from phalanx.storage.manifest_update import READ_VERSION, STATISTICS
from phalanx.transaction.snapshot import Snapshot

#: More leaves are not looked at: after each change of the table, that takes longer than it saves.
_MOST_LEAVES = 2_000
#: Up to so many leaves, their statistics are looked up by id. Beyond, all of them are read.
_BY_ID = 64

#: The bounds of a column by leaf and version.
_Bounds = dict[tuple[str, int], ColumnStatistics]


class _Statistics:
    """The statistics of leaves in one snapshot, decoded column by column."""

    def __init__(self, table: pa.Table) -> None:
        known = LeafStatistics.of(table)
        self._leaves = list(zip(known.ids, table.column(READ_VERSION).to_pylist(), strict=True))
        self._parents = np.asarray(pc.list_parent_indices(known.cells))
        self._entries = pc.list_flatten(known.cells)
        self._ids = np.asarray(pc.struct_field(self._entries, "field_id"))
        self._columns: dict[tuple[int, pa.DataType], _Bounds] = {}

    def of(self, field_id: int, snapshot: Snapshot) -> _Bounds:
        """The bounds of a column, as keys of the type that it has in a snapshot."""
        column = field_id, snapshot.head.schema.columns[field_id].type
        if column not in self._columns:
            places = np.flatnonzero(self._ids == field_id)
            rows = self._entries.take(pa.array(places)).to_pylist()
            leaves = [self._leaves[parent] for parent in self._parents[places].tolist()]
            known = [statistics.from_rows([row], snapshot.head.schema) for row in rows]
            self._columns[column] = {
                leaf: one[field_id] for leaf, one in zip(leaves, known, strict=True) if one
            }
        return self._columns[column]


#: The statistics of whole snapshots that were looked at last, by table and transaction.
_recent: LruCache[tuple[str, str], _Statistics] = LruCache(4)


def may_hold(snapshot: Snapshot, predicate: Predicate, indices: Any) -> Any:
    """Those of some leaves that may hold a row which satisfies a predicate.

    Leaves are given by their indices in the snapshot.
    """
    leaves, head = snapshot.leaves, snapshot.head
    ids = {column.field_id for column in bounded_columns(predicate)}
    ids &= {column.field_id for column in statistics.measured_columns(head.schema)}
    if not ids or not 0 < len(indices) <= _MOST_LEAVES:
        return indices
    if head.transactions == "weak" or not snapshot.manifest.has_column(STATISTICS):
        return indices
    chosen = pa.array(indices)
    names = leaves.ids.take(chosen).to_pylist()
    try:
        stored = _statistics(snapshot, names)
    except (TableNotFound, CorruptTable):
        return indices  # the leaves themselves may still be there, and else say so better
    bounds = {id: stored.of(id, snapshot) for id in ids}
    versions = leaves.read_versions.take(chosen).to_pylist()
    kept = []
    for name, version, count in zip(
        names, versions, leaves.row_counts[indices].tolist(), strict=True
    ):
        leaf = (name, version)
        known = {id: column[leaf] for id, column in bounds.items() if leaf in column}
        kept.append(may_match(predicate, known, None if count < 0 else count))
    return indices[np.array(kept, dtype=bool)]


def _statistics(snapshot: Snapshot, ids: list[str]) -> _Statistics:
    key = snapshot.location.uri, snapshot.head.transaction_id
    stored = _recent.get(key)
    if stored is None:
        columns, few = ["object_id", READ_VERSION, STATISTICS], len(ids) <= _BY_ID
        is_part = few and len(ids) < len(snapshot.leaves)
        stored = _Statistics(snapshot.manifest.leaves(columns, ids=ids if is_part else None))
        if not is_part:
            _recent.put(key, stored)
    return stored
