"""How a plan came about: which partition field prunes which leaves, one field after the other.

The leaves of each spec are judged by its first field alone, then by the first two, and so on. A
leaf is pruned by the first field with which no row of it can match.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from phalanx.model.dialect import to_text
from phalanx.model.predicates import And, Predicate, columns_of, conjoin
from phalanx.model.pruning import prune
from phalanx.model.specs import PartitionField, PartitionSpec
from phalanx.model.spelling import shown_value
from phalanx.storage.records import LeafRow
from phalanx.table.plan import Plan

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PruningStep:
    """What one field of one spec prunes, after the fields before it."""

    spec: PartitionSpec
    #: None for the step that needs no field: a filter that no row satisfies.
    field: PartitionField | None
    #: How the field is written, such as `bucket(16, id)`.
    spelled: str
    #: The part of the filter that is about the field's columns; None if there is none.
    condition: Predicate | None
    before: int
    after: int
    rows_pruned: int
    bytes_pruned: int

    @property
    def pruned(self) -> int:
        return self.before - self.after

    @property
    def condition_text(self) -> str | None:
        return None if self.condition is None else to_text(self.condition)


class PruningSteps:
    """The steps of a plan, and for each leaf the one that prunes it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        #: For each leaf of the snapshot, the place in `steps` of the one that prunes it, or -1.
        self.pruned_at = np.full(plan.total, -1, dtype=np.int64)
        #: For each leaf, how many fields of its spec it takes to prune it, or -1.
        self.depth = np.full(plan.total, -1, dtype=np.int64)
        self.steps: list[PruningStep] = []
        for spec in sorted(plan.snapshot.head.specs, key=lambda spec: spec.id):
            low, high = plan.snapshot.leaves.range_of(spec.id)
            if low < high:
                self._walk(spec, low, high)

    def selected(self, depth: int | None = None) -> Array:
        """A mask of the leaves that are left after the first `depth` fields; None for all."""
        pruned = self.depth >= 0
        return ~pruned if depth is None else ~(pruned & (self.depth <= depth))

    def _walk(self, spec: PartitionSpec, low: int, high: int) -> None:
        plan, leaves = self.plan, self.plan.snapshot.leaves
        schema, columns = plan.snapshot.head.schema, leaves.columns_of(spec)
        alive = np.ones(high - low, dtype=bool)
        for depth in range(len(spec.fields) + 1):
            prefix = PartitionSpec(spec.id, spec.fields[:depth])
            maybe = prune(plan.predicate, prefix, schema, columns, high - low).maybe
            gone = alive & ~maybe
            field = spec.fields[depth - 1] if depth else None
            if field is None and not gone.any():
                continue
            here = low + np.flatnonzero(gone)
            self.pruned_at[here], self.depth[here] = len(self.steps), depth
            self.steps.append(
                PruningStep(
                    spec=spec,
                    field=field,
                    spelled="" if field is None else field.spell(schema),
                    condition=plan.predicate if field is None else self._about(field),
                    before=int(alive.sum()),
                    after=int((alive & maybe).sum()),
                    rows_pruned=_total(leaves.row_counts[here]),
                    bytes_pruned=_total(leaves.byte_counts[here]),
                )
            )
            alive &= maybe

    def _about(self, field: PartitionField) -> Predicate | None:
        """The conditions that name a source of the field."""
        sources = set(field.source_ids)
        conditions = [
            part
            for part in self._conditions
            if sources & {column.field_id for column in columns_of(part)}
        ]
        return conjoin(conditions) if conditions else None

    @cached_property
    def _conditions(self) -> tuple[Predicate, ...]:
        predicate = self.plan.predicate
        return predicate.children if isinstance(predicate, And) else (predicate,)

    def reason(self, row: LeafRow) -> str | None:
        """Why a leaf is pruned, in words; None for a leaf that is read."""
        place = int(self.pruned_at[row.index])
        if place < 0:
            return None
        step = self.steps[place]
        if step.field is None:
            return "no row satisfies the filter"
        key = row.keys[step.spec.fields.index(step.field)]
        value = shown_value(key, step.field.result_type)
        wanted = "the filter" if step.condition is None else step.condition_text
        return f"{step.field.field_id} = {value} does not fit {wanted}"

    def reasons(self, indices: Any) -> Iterator[tuple[LeafRow, str | None]]:
        """Some leaves, and why each is pruned."""
        for row in self.plan.snapshot.leaves.rows(indices):
            yield row, self.reason(row)


def _total(counts: Array) -> int:
    """A sum that leaves out what the manifest does not know."""
    return int(counts[counts > 0].sum())
