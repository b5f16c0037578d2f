"""Namespaces: there is one for every spec and every level above a leaf, with the leaf's values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phalanx.storage.manifest_update import NAMESPACE
from phalanx.storage.names import is_spec
from phalanx.storage.raw_manifest import RawRow, agree
from phalanx.table.rules.draft import Draft
from phalanx.table.rules.rule import Problem, Rule
from phalanx.table.rules.state import NamespaceUse, TableState


class NamespaceMissing(Rule):
    """A namespace of a leaf or a spec is missing."""

    kind = "namespace-missing"
    remedy = "written again"

    def find(self, state: TableState) -> Iterator[Problem]:
        existing, uses = {row.id for row in state.namespaces()}, state.namespaces_in_use()
        for id in uses:
            if id not in existing:
                yield self.problem("a leaf has no such namespace above it", id)
        for spec in state.head.specs if state.head.ours else ():
            if spec.namespace not in existing and spec.namespace not in uses:
                yield self.problem("a spec has no such namespace", spec.namespace)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        specs = {spec.namespace: spec for spec in draft.head.specs}
        uses = draft.namespaces_in_use()
        for problem in problems:
            id = problem.where
            if id in specs:
                draft.put(RawRow(id, NAMESPACE, None, {"partition_spec": specs[id].dumps()}))
            else:
                draft.write_copies(RawRow(id, NAMESPACE, None, {}, values=uses[id].values()))


class NamespaceValueDiffers(Rule):
    """A namespace has other partition values than the leaves in it."""

    kind = "value-differs"
    remedy = "taken from the leaves"

    def find(self, state: TableState) -> Iterator[Problem]:
        uses = state.namespaces_in_use()
        for row in state.namespaces():
            use = uses.get(row.id)
            if use is not None and self._differs(state, row, use):
                yield self.problem("a namespace has other values than the leaves in it", row.id)

    def _differs(self, state: TableState, row: RawRow, use: NamespaceUse) -> bool:
        columns, fields = state.columns, use.spec.fields[: use.depth]
        expected = use.values()
        for field in fields:
            key = row.values.get(field.field_id)
            if field.column_name in columns and key != expected.get(field.field_id):
                return True
        if not state.head.ours:
            return False  # another client's namespaces may say more than ours do
        if not row.values.keys() <= expected.keys():
            return True
        if not fields or fields[-1].column_name not in columns or row.metadata is None:
            return False
        own = fields[-1]
        key = row.values.get(own.field_id)
        return not agree(key, row.value_copy(own), own.result_type)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        uses = draft.namespaces_in_use()
        for problem in problems:
            row = draft.existing_row(problem.where)
            row.values = uses[row.id].values()
            draft.write_copies(row)


class NamespaceEmpty(Rule):
    """A namespace has no leaf in it.

    It stays: a writer may be about to put one there.
    """

    kind = "namespace-empty"
    harmless = True

    def find(self, state: TableState) -> Iterator[Problem]:
        uses = state.namespaces_in_use()
        for row in state.namespaces():
            if row.id not in uses and not is_spec(row.id) and state.spec_of(row) is not None:
                yield self.problem("a namespace has no leaf in it", row.id)
