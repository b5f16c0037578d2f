"""The leaves of a snapshot as a tree: one level for each partition field, with sizes added up.

Everything is computed over columns, so a table with 100,000 leaves is no problem: a caller asks for
the children of one node at a time, and for as many as it shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phalanx.errors import InvalidInput
from phalanx.model.domains import domain_of
from phalanx.model.specs import PartitionField, PartitionSpec
from phalanx.model.spelling import shown_text, value_text
from phalanx.table.advise import LEAF_BYTES
from phalanx.transaction.snapshot import Snapshot

Array = np.ndarray[Any, Any]
#: Below this size a leaf costs more to open than to read, as `advise` says.
SMALL_BYTES = LEAF_BYTES // 16
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
    #: How many leaves are smaller than a leaf should be.
    small: int
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
        return f"{self.field}={'NULL' if self.value is None else shown_text(self.value)}"

    @property
    def skew(self) -> float | None:
        """How many times the median the largest leaf has; None where there is nothing to say."""
        return self.largest / self.median if self.leaves > 1 and self.median > 0 else None

    def measure(self, by: str) -> int:
        """One of MEASURES. Raises InvalidInput for any other word."""
        _check_measure(by)
        return int(getattr(self, by))


@dataclass(frozen=True)
class Children:
    """Nodes below another, and what was left out, added up."""

    nodes: tuple[TreeNode, ...]
    #: How many nodes there are beside those, and what they hold.
    more: int
    rest: dict[str, int]


@dataclass
class Branch:
    """A node with those below it that are drawn, and the others added up."""

    node: TreeNode
    children: list[Branch] = field(default_factory=list)
    more: int = 0
    rest: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LevelSizes:
    """One level below a node: how many nodes, and how large they are."""

    spec_id: int
    depth: int
    field: str
    #: How the field is written, such as `bucket(16, id)`.
    spelled: str
    nodes: int
    median_rows: int
    largest_rows: int
    median_bytes: int
    largest_bytes: int
    median_files: int


class PartitionTree:
    """The tree of one snapshot's leaves."""

    def __init__(
        self, snapshot: Snapshot, selected: Array | None = None, small_bytes: int = SMALL_BYTES
    ) -> None:
        """`selected` is a mask of leaves that a plan reads; None for all of them."""
        self._small_bytes = small_bytes
        self._snapshot, self._leaves = snapshot, snapshot.leaves
        self._selected = np.ones(len(self._leaves), bool) if selected is None else selected

    def roots(self) -> list[TreeNode]:
        """One node for each spec that has leaves, oldest first."""
        nodes = []
        for id in sorted(self._leaves.specs):
            low, high = self._leaves.range_of(id)
            if low < high:
                members = np.arange(low, high)
                nodes += self._level(self._leaves.specs[id], 0, members).nodes()
        return nodes

    def node(self, leaf: int, depth: int) -> TreeNode:
        """The node of a leaf at a depth. Raises InvalidInput where there is none."""
        spec, members = self._members(leaf, depth)
        (node,) = self._level(spec, depth, members).nodes()
        return node

    def path(self, leaf: int, depth: int) -> list[TreeNode]:
        """The nodes from a spec down to the node of a leaf at a depth."""
        return [self.node(leaf, level) for level in range(depth + 1)]

    def children(self, parent: TreeNode, by: str = "rows", limit: int | None = None) -> Children:
        """The nodes below another in the order of their values, the largest `limit` of them.

        Raises InvalidInput for a measure that there is not.
        """
        _check_measure(by)
        if parent.is_leaf:
            return Children((), 0, dict.fromkeys(MEASURES, 0))
        spec, members = self._members(parent.leaf, parent.depth)
        level = self._level(spec, parent.depth + 1, members, self._codes(spec, parent.depth + 1))
        if limit is None or len(level) <= limit:
            return Children(tuple(level.nodes()), 0, dict.fromkeys(MEASURES, 0))
        # Of equally large nodes the first is kept.
        order = np.lexsort((np.arange(len(level)), -level.columns[by]))
        kept, left = np.sort(order[:limit]), order[limit:]
        return Children(tuple(level.nodes(kept)), len(left), level.sums(left))

    def branch(
        self, parent: TreeNode, by: str = "rows", smallest: float = 0.0, most: int | None = None
    ) -> Branch:
        """Everything below a node that is worth drawing, all levels at once.

        Nodes with less than the share `smallest` of the parent are left out, and the smallest ones
        of a level with more than `most`; so is what is below them. Raises InvalidInput for an
        unknown measure.
        """
        _check_measure(by)
        spec, members = self._members(parent.leaf, parent.depth)
        top = Branch(parent)
        above = np.zeros(len(members), dtype=np.int64)
        drawn: dict[int, Branch] = {0: top}
        for depth in range(parent.depth + 1, len(spec.fields) + 1):
            level = self._level(spec, depth, members, self._codes(spec, depth), above)
            parents = above[level.first]
            sizes = level.columns[by]
            worth = np.flatnonzero(
                np.isin(parents, list(drawn)) & (sizes >= smallest * parent.measure(by))
            )
            if most is not None and len(worth) > most:
                # Equally large nodes are drawn or left out together.
                worth = worth[sizes[worth] > np.sort(sizes[worth])[-most - 1]]
            for owner in drawn:
                left = np.setdiff1d(np.flatnonzero(parents == owner), worth)
                if len(left):
                    drawn[owner].more, drawn[owner].rest = len(left), level.sums(left)
            branches = [Branch(node) for node in level.nodes(worth)]
            for owner, branch in zip(parents[worth].tolist(), branches, strict=True):
                drawn[owner].children.append(branch)
            drawn = dict(zip(worth.tolist(), branches, strict=True))
            above = level.groups
            if not drawn:
                break
        return top

    def levels(self, parent: TreeNode) -> list[LevelSizes]:
        """How many nodes there are on each level below a node, and how large they are."""
        spec, members = self._members(parent.leaf, parent.depth)
        above = np.zeros(len(members), dtype=np.int64)
        levels = []
        for depth in range(parent.depth + 1, len(spec.fields) + 1):
            level = self._level(spec, depth, members, self._codes(spec, depth), above)
            above, field = level.groups, spec.fields[depth - 1]
            rows, sizes, files = (np.sort(level.columns[n]) for n in ("rows", "bytes", "files"))
            middle = (len(level) - 1) // 2
            levels.append(
                LevelSizes(
                    spec_id=spec.id,
                    depth=depth,
                    field=field.field_id,
                    spelled=field.spell(self._snapshot.head.schema),
                    nodes=len(level),
                    median_rows=int(rows[middle]),
                    largest_rows=int(rows[-1]),
                    median_bytes=int(sizes[middle]),
                    largest_bytes=int(sizes[-1]),
                    median_files=int(files[middle]),
                )
            )
        return levels

    def _codes(self, spec: PartitionSpec, depth: int) -> Array:
        """The codes of all leaves in the field at a depth."""
        return self._leaves.column(spec.fields[depth - 1].column_name).codes

    def _members(self, leaf: int, depth: int) -> tuple[PartitionSpec, Array]:
        if not 0 <= leaf < len(self._leaves):
            raise InvalidInput(f"there is no leaf {leaf}: the table has {len(self._leaves):,}")
        (row,) = self._leaves.rows([leaf])
        spec = self._leaves.specs[row.spec_id]
        if not 0 <= depth <= len(spec.fields):
            raise InvalidInput(f"the partitions of spec v{spec.id} have {len(spec.fields)} levels")
        return spec, self._leaves.find_all(spec, row.keys[:depth])

    def _level(
        self,
        spec: PartitionSpec,
        depth: int,
        members: Array,
        codes: Array | None = None,
        above: Array | None = None,
    ) -> _Level:
        """The members in groups by their codes, within the groups `above`, or all as one group."""
        keys = np.zeros(len(members), dtype=np.int64)
        if codes is not None:
            keys = codes[members].astype(np.int64) + 1
        if above is not None:
            keys += above * (int(keys.max(initial=0)) + 1)
        unique, first, groups = np.unique(keys, return_index=True, return_inverse=True)
        leaves, count = self._leaves, len(unique)
        sizes, rows = leaves.byte_counts[members], leaves.row_counts[members]
        # By group, then by size: the last of a group is its largest leaf.
        order = np.lexsort((sizes, groups))
        ends = np.cumsum(np.bincount(groups, minlength=count))
        starts = np.concatenate([[0], ends[:-1]])
        chosen = self._selected[members]

        def total(numbers: Array) -> Array:
            sums = np.zeros(count, dtype=np.int64)
            np.add.at(sums, groups, np.maximum(numbers, 0))
            return sums

        columns = {
            "leaf": members[first],
            "leaves": ends - starts,
            "rows": total(rows),
            "bytes": total(sizes),
            "files": total(leaves.fragment_counts[members]),
            "unknown": total(((rows < 0) | (sizes < 0)).astype(np.int64)),
            "small": total(((sizes >= 0) & (sizes < self._small_bytes)).astype(np.int64)),
            "largest": np.maximum(sizes[order[ends - 1]], 0),
            "median": np.maximum(sizes[order[(starts + ends - 1) // 2]], 0),
            "selected": total(chosen.astype(np.int64)),
            "selected_rows": total(np.where(chosen, rows, 0)),
            "selected_bytes": total(np.where(chosen, sizes, 0)),
        }
        return _Level(self._snapshot, spec, depth, columns, first, groups)


@dataclass(frozen=True)
class _Level:
    """Groups of leaves at one depth, as columns with one entry for each group."""

    snapshot: Snapshot
    spec: PartitionSpec
    depth: int
    columns: dict[str, Array]
    #: For each group, the place of its first leaf among the members.
    first: Array
    #: For each member, the number of its group.
    groups: Array

    def __len__(self) -> int:
        return len(self.first)

    def sums(self, groups: Array) -> dict[str, int]:
        """What some groups hold together."""
        return {name: int(self.columns[name][groups].sum()) for name in (*MEASURES, "selected")}

    def nodes(self, groups: Array | None = None) -> list[TreeNode]:
        """Some groups as nodes, or all."""
        columns = self.columns
        if groups is not None:
            columns = {name: numbers[groups] for name, numbers in columns.items()}
        cells = {name: numbers.tolist() for name, numbers in columns.items()}
        field = self.spec.fields[self.depth - 1] if self.depth else None
        values = (
            [None] * len(cells["leaf"]) if field is None else self._values(cells["leaf"], field)
        )
        return [
            TreeNode(
                spec_id=self.spec.id,
                depth=self.depth,
                field=None if field is None else field.field_id,
                value=value,
                is_leaf=self.depth == len(self.spec.fields),
                **{name: numbers[n] for name, numbers in cells.items()},
            )
            for n, value in enumerate(values)
        ]

    def _values(self, leaves: list[int], field: PartitionField) -> list[str | None]:
        column = self.snapshot.leaves.column(field.column_name)
        domain = domain_of(column.values.type)
        return [
            None if code < 0 else value_text(domain.key(column.values[code]), field.result_type)
            for code in column.codes[leaves].tolist()
        ]


def _check_measure(by: str) -> None:
    if by not in MEASURES:
        raise InvalidInput(f"{by!r} is not a measure: there are {', '.join(MEASURES)}")
