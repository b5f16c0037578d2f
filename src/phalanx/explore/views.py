"""What the page of the explorer asks about a table, as plain values for JSON.

The page shows a part of a table at a time, and asks for that part: a table with 100,000 leaves is
added up here. Every answer is about one version, which the page names, so that what it shows fits
together while others write. Values of rows and partitions are text here and stay text in the page.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from phalanx.errors import InvalidInput
from phalanx.lru import LruCache
from phalanx.storage.records import LeafRow
from phalanx.table.advise import Action, BetterSpec, Finding, advise
from phalanx.table.cells import cell_text, json_value, rows_of
from phalanx.table.check import check_table
from phalanx.table.describe import description_of
from phalanx.table.diff import difference
from phalanx.table.filters import predicate_of
from phalanx.table.plan import Plan, partition_name
from phalanx.table.pruning_steps import PruningSteps
from phalanx.table.scan import Scan
from phalanx.table.table import Table
from phalanx.table.tree import MEASURES, Branch, LevelSizes, PartitionTree, TreeNode
from phalanx.transaction.snapshot import Snapshot

#: Nodes below this share of what is shown are narrower than a pixel or two, and are added up.
_SMALLEST_SHARE = 1 / 1_000
#: How many nodes of each level are drawn at most.
_MOST_NODES = 400
#: How many characters of a partition value are sent: enough for a label and its tooltip.
_LABEL = 200
_MOST_ROWS = 200
_MOST_TRANSACTIONS = 2_000
_MOST_LEAVES = 200
#: How many changes of the schema are looked at, newest first: each opens a version.
_MOST_CHANGES = 25
#: Operations that change columns or the partitioning.
_SCHEMA_CHANGES = frozenset(
    {
        *("create", "evolve partitioning", "add column", "drop column", "rename column"),
        *("change type", "make nullable", "move column", "reorder columns", "replace"),
        *("rollback", "transaction", "set default"),
    }
)


class Views:
    """Answers about one table. Every method changes nothing, and may be called from any thread."""

    def __init__(self, table: Table) -> None:
        self._newest: Snapshot = table._snapshot
        self._snapshots: LruCache[int, Snapshot] = LruCache(8)
        self._steps: LruCache[tuple[int, str], PruningSteps] = LruCache(8)
        self._lock = threading.Lock()

    # Snapshots

    def _latest(self) -> Snapshot:
        """The newest snapshot; the one that is known is advanced to it."""
        with self._lock:
            self._newest = Snapshot.latest(self._newest.location, self._newest)
            self._snapshots.put(self._newest.sequence, self._newest)
            return self._newest

    def _at(self, version: int | None) -> Snapshot:
        """A version; None for the newest. Raises TableNotFound if there is none.

        Weak tables, and those of other clients, are only read as they are now.
        """
        head = self._newest.head
        if version is None or head.transactions == "weak" or not head.ours:
            return self._latest()
        snapshot = self._snapshots.get(version)
        if snapshot is None:
            snapshot = self._latest().find(version)
            self._snapshots.put(version, snapshot)
        return snapshot

    # The table

    def table(self, version: int | None = None) -> dict[str, Any]:
        """The facts about a version, and which versions there are."""
        snapshot = self._at(version)
        facts = json_value(dataclasses.asdict(description_of(snapshot)))
        facts["newest"] = self._newest.sequence
        facts["measures"] = list(MEASURES)
        facts["has_sizes"] = bool((snapshot.leaves.row_counts >= 0).all())
        return dict(facts)

    # The partition tree

    def tree(
        self,
        version: int | None = None,
        *,
        by: str = "rows",
        leaf: int | None = None,
        depth: int = 0,
        where: str | None = None,
        step: int | None = None,
    ) -> dict[str, Any]:
        """A node with everything below it that is wide enough to be seen; by default the table.

        With a filter, nodes say how many of their leaves it leaves, after the first `step` fields
        of each spec. Raises InvalidInput for a filter or a node that does not exist.
        """
        snapshot = self._at(version)
        selected = None if not where else self._pruning(snapshot, where).selected(step)
        tree = PartitionTree(snapshot, selected)
        if leaf is None:
            roots = tree.roots()
            path: list[TreeNode] = []
        else:
            path = tree.path(leaf, depth)
            roots = [path[-1]]
        total = sum(root.measure(by) for root in roots) or 1
        branches = [
            tree.branch(root, by, _SMALLEST_SHARE * total / (root.measure(by) or 1), _MOST_NODES)
            for root in roots
        ]
        return {
            "version": snapshot.sequence,
            "by": by,
            "levels": [_level(level) for root in roots for level in tree.levels(root)],
            "path": [_node(node) for node in path],
            "branches": [_branch(branch) for branch in branches],
        }

    # Pruning

    def _pruning(self, snapshot: Snapshot, where: str) -> PruningSteps:
        key = (snapshot.sequence, where)
        steps = self._steps.get(key)
        if steps is None:
            steps = PruningSteps(Plan(snapshot, predicate_of(where, snapshot)))
            self._steps.put(key, steps)
        return steps

    def prune(self, where: str, version: int | None = None) -> dict[str, Any]:
        """What a filter leaves to read, and what each partition field prunes.

        Raises InvalidInput for a filter that does not fit the table.
        """
        snapshot = self._at(version)
        steps = self._pruning(snapshot, where)
        plan = steps.plan
        pruned = np.flatnonzero(steps.pruned_at >= 0)
        return {
            "version": snapshot.sequence,
            "total": plan.total,
            "selected": plan.selected,
            "rows": plan.rows,
            "bytes": plan.bytes,
            "all_rows": _known_sum(snapshot.leaves.row_counts),
            "all_bytes": _known_sum(snapshot.leaves.byte_counts),
            "certain": int(plan.certain[plan.indices].sum()),
            "steps": [
                {
                    "spec": step.spec.id,
                    "depth": 0 if step.field is None else step.spec.fields.index(step.field) + 1,
                    "field": None if step.field is None else step.field.field_id,
                    "spelled": step.spelled,
                    "condition": step.condition_text,
                    "before": step.before,
                    "after": step.after,
                    "rows_pruned": step.rows_pruned,
                    "bytes_pruned": step.bytes_pruned,
                }
                for step in steps.steps
            ],
            "read": [
                {
                    "leaf": planned.row.index,
                    "name": self._name(snapshot, planned.row),
                    "rows": planned.rows,
                    "residual": planned.residual,
                }
                for planned in plan.first_leaves(20)
            ],
            "pruned": [
                {
                    "leaf": row.index,
                    "name": self._name(snapshot, row),
                    "rows": row.row_count,
                    "reason": reason,
                }
                for row, reason in steps.reasons(_spread(pruned, 20))
            ],
        }

    # A leaf

    def leaf(
        self, leaf: int, version: int | None = None, *, where: str | None = None, limit: int = 50
    ) -> dict[str, Any]:
        """One leaf: where it is, how large, whether a filter reads it, and its first rows.

        Raises InvalidInput if there is no such leaf, and CorruptTable if it cannot be read.
        """
        snapshot = self._at(version)
        if not 0 <= leaf < len(snapshot.leaves):
            raise InvalidInput(f"there is no leaf {leaf}: the table has {len(snapshot.leaves):,}")
        (row,) = snapshot.leaves.rows([leaf])
        scan = Scan(
            snapshot.with_leaves(snapshot.leaves.only(leaf)), limit=min(max(limit, 0), _MOST_ROWS)
        )
        with snapshot.location.naming_failures():
            rows = [values for batch in scan.to_batches() for values in rows_of(batch)]
        names = scan.schema.names
        return {
            "version": snapshot.sequence,
            "leaf": leaf,
            "name": self._name(snapshot, row),
            "spec": row.spec_id,
            "uri": snapshot.location.child(row.location),
            "lance_version": None if row.read_version is None else str(row.read_version),
            "rows": row.row_count,
            "bytes": row.byte_count,
            "files": row.fragment_count,
            "reason": self._pruning(snapshot, where).reason(row) if where else None,
            "columns": [{"name": field.name, "type": str(field.type)} for field in scan.schema],
            "cells": [
                [
                    None if values[name] is None else cell_text(values[name], _LABEL)
                    for name in names
                ]
                for values in rows
            ],
        }

    def _name(self, snapshot: Snapshot, row: LeafRow) -> str:
        spec = snapshot.leaves.specs[row.spec_id]
        return partition_name(spec, row, lambda text: cell_text(text, _LABEL))

    # History

    def history(self) -> dict[str, Any]:
        """The transactions that are remembered, oldest first, and the tags."""
        snapshot = self._latest()
        records = sorted(snapshot.manifest.transactions(), key=lambda record: record.sequence)
        tags: dict[int, list[str]] = {}
        for name, tag in sorted(snapshot.tags().items()):
            tags.setdefault(tag.version, []).append(name)
        is_kept = snapshot.head.transactions == "strong" and snapshot.head.ours
        return {
            "newest": snapshot.sequence,
            "oldest": snapshot.head.oldest,
            "total": len(records),
            "transactions": [
                {
                    "version": record.sequence,
                    "committed_at": record.committed_at.isoformat(),
                    "operation": record.operation,
                    "rows_added": record.rows_added or 0,
                    "rows_removed": record.rows_removed or 0,
                    "leaves": record.leaves or 0,
                    "tags": tags.get(record.sequence, []),
                    "can_open": is_kept
                    and (record.sequence >= snapshot.head.oldest or record.sequence in tags),
                }
                for record in records[-_MOST_TRANSACTIONS:]
            ],
        }

    def diff(self, before: int, after: int) -> dict[str, Any]:
        """What changed between two versions. Raises TableNotFound if one of them is gone."""
        report = difference(self._at(before), self._at(after), _MOST_LEAVES)
        shown = dataclasses.asdict(report)
        shown["more"] = report.added + report.removed + report.changed - len(report.leaves)
        shown["same"] = report.same
        return dict(json_value(shown))

    def schema(self) -> dict[str, Any]:
        """The columns and specs of now, and how they came about."""
        snapshot = self._latest()
        description = description_of(snapshot)
        return {
            "version": snapshot.sequence,
            "columns": [json_value(dataclasses.asdict(column)) for column in description.columns],
            "specs": [json_value(dataclasses.asdict(spec)) for spec in description.specs],
            "changes": list(self._schema_changes(snapshot)),
        }

    def _schema_changes(self, snapshot: Snapshot) -> Iterator[dict[str, Any]]:
        """Versions that changed columns or the partitioning, newest first."""
        if snapshot.head.transactions == "weak":
            return
        records = [
            record
            for record in snapshot.manifest.transactions()
            if record.operation in _SCHEMA_CHANGES and snapshot.can_open(record.sequence)
        ]
        records.sort(key=lambda record: -record.sequence)
        for record in records[:_MOST_CHANGES]:
            before = record.sequence - 1
            changes: dict[str, Any] = {"columns": [], "partition_by": None}
            if before >= 1 and snapshot.can_open(before):
                report = difference(self._at(before), self._at(record.sequence), 0)
                changes["columns"] = list(report.columns)
                if report.partition_by_before != report.partition_by_after:
                    changes["partition_by"] = [
                        list(report.partition_by_before),
                        list(report.partition_by_after),
                    ]
                if not changes["columns"] and changes["partition_by"] is None:
                    continue
            yield {
                "version": record.sequence,
                "committed_at": record.committed_at.isoformat(),
                "operation": record.operation,
                **changes,
            }

    # Upkeep

    def advise(self) -> dict[str, Any]:
        """What `advise` says, with the calls in Python for what to do."""
        advice = advise(self._latest())
        parts: list[Finding | BetterSpec] = [*advice.findings]
        if advice.better is not None:
            parts.append(advice.better)
        return {
            "ok": advice.ok,
            "findings": [
                {
                    "kind": part.kind if isinstance(part, Finding) else "better",
                    "text": part.text if isinstance(part, Finding) else str(part),
                    "examples": list(part.examples) if isinstance(part, Finding) else [],
                    "actions": [_call(action) for action in part.actions],
                }
                for part in parts
            ],
        }

    def check(self) -> dict[str, Any]:
        """What `check` says. It looks at every leaf, so it may take a while."""
        location = self._newest.location
        with location.naming_failures():
            report = check_table(location)
        return {
            "ok": report.ok,
            "leaves": report.leaves,
            "snapshots": report.snapshots,
            "files": report.files,
            "problems": [
                {
                    "kind": problem.kind,
                    "what": problem.what,
                    "where": problem.where,
                    "harmless": problem.harmless,
                }
                for problem in report.problems[:_MOST_LEAVES]
            ],
            "more": max(0, len(report.problems) - _MOST_LEAVES),
        }


def _call(action: Action) -> str:
    return str(action)


def _known_sum(counts: Any) -> int | None:
    return None if bool((counts < 0).any()) else int(counts.sum())


def _spread(indices: Any, count: int) -> Any:
    """Some of the indices, from all over."""
    if len(indices) <= count:
        return indices
    return indices[np.linspace(0, len(indices) - 1, count).astype(np.int64)]


def _node(node: TreeNode) -> dict[str, Any]:
    """A node in JSON. `leaf` and `depth` are what the page asks for it by."""
    value = node.value
    return {
        "leaf": node.leaf,
        "depth": node.depth,
        "spec": node.spec_id,
        "field": node.field,
        "value": value if value is None or len(value) <= _LABEL else value[:_LABEL] + "…",
        "is_leaf": node.is_leaf,
        "leaves": node.leaves,
        "rows": node.rows,
        "bytes": node.bytes,
        "files": node.files,
        "unknown": node.unknown,
        "small": node.small,
        "skew": node.skew,
        "largest": node.largest,
        "median": node.median,
        "selected": node.selected,
        "selected_rows": node.selected_rows,
        "selected_bytes": node.selected_bytes,
    }


def _level(level: LevelSizes) -> dict[str, Any]:
    shown = dataclasses.asdict(level)
    shown["spec"] = shown.pop("spec_id")
    return shown


def _branch(branch: Branch) -> dict[str, Any]:
    shown: dict[str, Any] = _node(branch.node)
    shown["children"] = [_branch(child) for child in branch.children]
    if branch.more:
        rest: Mapping[str, int] = branch.rest
        shown["more"] = {"nodes": branch.more, **rest}
    return shown
