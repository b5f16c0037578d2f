"""The leaves of a snapshot as a tree: one level for each partition field, with sizes added up.

Everything is computed over columns, so a table with 100,000 leaves is no problem: a caller asks for
the children of one node at a time, and for as many as it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phalanx.errors import InvalidInput
from phalanx.model.domains import domain_of
from phalanx.model.specs import PartitionSpec
from phalanx.model.spelling import value_text
from phalanx.transaction.snapshot import Snapshot

Array = np.ndarray[Any, Any]
#: What nodes can be ordered and drawn by.
MEASURES = ("rows", "bytes", "files", "leaves")


@dataclass(frozen=True)
class TreeNode:
    """The leaves that share their first `depth` partition values, under one spec.

    The first of these leaves and the depth identify it within one snapshot.
    """

    spec_id: int
    depth: int
    #: The index of its first leaf in the snapshot.
    leaf: int
    #: The id of the field that its last value belongs to; None for a whole spec.
    field: str | None
    #: Its last value as text; None for NULL, and for a whole spec.
    value: str | None
    leaves: int
    #: Sums over its leaves; leaves of which the manifest does not know the sizes are left out.
    rows: int
    bytes: int
    files: int
    #: How many such leaves there are.
    unknown: int
    #: The sizes of its largest leaf, and of the one in the middle, in bytes.
    largest: int
    median: int
    #: How many of its leaves, and their rows and bytes, are selected by a plan; all without one.
    selected: int
    selected_rows: int
    selected_bytes: int
    #: Whether there is a level below.
    is_leaf: bool

    @property
    def name(self) -> str:
        if self.field is None:
            return f"spec v{self.spec_id}"
        return f"{self.field}={'NULL' if self.value is None else self.value}"

    @property
    def skew(self) -> float | None:
        """How many times the median the largest leaf has; None where there is nothing to say."""
        return self.largest / self.median if self.leaves > 1 and self.median > 0 else None

    def measure(self, by: str) -> int:
        return int(getattr(self, by))


@dataclass(frozen=True)
class Children:
    """Nodes below another, and what was left out, added up."""

    nodes: tuple[TreeNode, ...]
    #: How many nodes there are beside those, and what they hold.
    more: int
    rest: dict[str, int]


class PartitionTree:
    """The tree of one snapshot's leaves."""

    def __init__(self, snapshot: Snapshot, selected: Array | None = None) -> None:
        """`selected` is a mask of leaves that a plan reads; None for all of them."""
        self._snapshot, self._leaves = snapshot, snapshot.leaves
        self._selected = np.ones(len(self._leaves), bool) if selected is None else selected

    def roots(self) -> list[TreeNode]:
        """One node for each spec that has leaves, oldest first."""
        nodes = []
        for id in sorted(self._leaves.specs):
            low, high = self._leaves.range_of(id)
            if low < high:
                nodes += self._nodes(
                    self._leaves.specs[id], 0, np.arange(low, high), np.zeros(high - low, np.int64)
                )
        return nodes

    def node(self, leaf: int, depth: int) -> TreeNode:
        """The node of a leaf at a depth. Raises InvalidInput where there is none."""
        spec, members = self._members(leaf, depth)
        codes: Array = np.zeros(len(members), np.int64)
        if depth:
            codes = self._leaves.column(spec.fields[depth - 1].column_name).codes[members]
        (node,) = self._nodes(spec, depth, members, codes)
        return node

    def path(self, leaf: int, depth: int) -> list[TreeNode]:
        """The nodes from a spec down to the node of a leaf at a depth."""
        return [self.node(leaf, level) for level in range(depth + 1)]

    def children(self, parent: TreeNode, by: str = "rows", limit: int | None = None) -> Children:
        """The nodes below another in the order of their values, the largest `limit` of them.

        Raises InvalidInput for a measure that there is not.
        """
        if by not in MEASURES:
            raise InvalidInput(f"{by!r} is no measure: there are {', '.join(MEASURES)}")
        if parent.is_leaf:
            return Children((), 0, dict.fromkeys(MEASURES, 0))
        spec, members = self._members(parent.leaf, parent.depth)
        column = self._leaves.column(spec.fields[parent.depth].column_name)
        nodes = self._nodes(spec, parent.depth + 1, members, column.codes[members])
        if limit is None or len(nodes) <= limit:
            return Children(tuple(nodes), 0, dict.fromkeys(MEASURES, 0))
        largest = sorted(range(len(nodes)), key=lambda n: (-nodes[n].measure(by), n))
        kept, left = sorted(largest[:limit]), largest[limit:]
        rest = {name: sum(nodes[n].measure(name) for n in left) for name in MEASURES}
        rest["selected"] = sum(nodes[n].selected for n in left)
        return Children(tuple(nodes[n] for n in kept), len(left), rest)

    def _members(self, leaf: int, depth: int) -> tuple[PartitionSpec, Array]:
        if not 0 <= leaf < len(self._leaves):
            raise InvalidInput(f"there is no leaf {leaf}: the table has {len(self._leaves):,}")
        (row,) = self._leaves.rows([leaf])
        spec = self._leaves.specs[row.spec_id]
        if not 0 <= depth <= len(spec.fields):
            raise InvalidInput(f"the partitions of spec v{spec.id} have {len(spec.fields)} levels")
        return spec, self._leaves.find_all(spec, row.keys[:depth])

    def _nodes(
        self, spec: PartitionSpec, depth: int, members: Array, codes: Array
    ) -> list[TreeNode]:
        """The members grouped by their codes, one node each, in the order of the codes."""
        unique, first, groups = np.unique(codes, return_index=True, return_inverse=True)
        leaves, count = self._leaves, len(unique)
        sizes = leaves.byte_counts[members]
        # By group, then by size: the last of a group is its largest leaf.
        order = np.lexsort((sizes, groups))
        ends = np.cumsum(np.bincount(groups, minlength=count))
        starts = np.concatenate([[0], ends[:-1]])
        chosen = self._selected[members]

        def total(numbers: Array) -> Array:
            sums = np.zeros(count, dtype=np.int64)
            np.add.at(sums, groups, np.maximum(numbers, 0))
            return sums

        rows, files = leaves.row_counts[members], leaves.fragment_counts[members]
        columns = {
            "leaf": members[first],
            "leaves": ends - starts,
            "rows": total(rows),
            "bytes": total(sizes),
            "files": total(files),
            "unknown": total(((rows < 0) | (sizes < 0)).astype(np.int64)),
            "largest": np.maximum(sizes[order[ends - 1]], 0),
            "median": np.maximum(sizes[order[(starts + ends - 1) // 2]], 0),
            "selected": total(chosen.astype(np.int64)),
            "selected_rows": total(np.where(chosen, rows, 0)),
            "selected_bytes": total(np.where(chosen, sizes, 0)),
        }
        field = spec.fields[depth - 1] if depth else None
        values: Sequence[str | None] = [None] * count
        if field is not None:
            column = leaves.column(field.column_name)
            domain = domain_of(column.values.type)
            values = [
                None if code < 0 else value_text(domain.key(column.values[code]), field.result_type)
                for code in unique.tolist()
            ]
        cells = {name: numbers.tolist() for name, numbers in columns.items()}
        return [
            TreeNode(
                spec_id=spec.id,
                depth=depth,
                field=None if field is None else field.field_id,
                value=values[n],
                is_leaf=depth == len(spec.fields),
                **{name: numbers[n] for name, numbers in cells.items()},
            )
            for n in range(count)
        ]
