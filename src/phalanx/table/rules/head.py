"""The head row and the transactions that made it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phalanx.storage.head import HEAD_ID
from phalanx.storage.manifest_update import TRANSACTION
from phalanx.storage.names import transaction_row
from phalanx.table.rules.draft import Draft
from phalanx.table.rules.recall import LEAF_MISSING, ROW_MISSING, recall
from phalanx.table.rules.rule import Problem, Rule
from phalanx.table.rules.state import TableState


class HeadTwice(Rule):
    """There are several head rows."""

    kind = "head-twice"
    remedy = "the one with the highest version stays"

    def find(self, state: TableState) -> Iterator[Problem]:
        twins = state.twins().get(HEAD_ID)
        if twins:
            yield self.problem(f"there are {1 + len(twins)} head rows", HEAD_ID)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        draft.remove_twins(HEAD_ID)
        draft.renew_head()


class HeadMissing(Rule):
    """The head row is missing."""

    kind = "head-missing"
    remedy = "restored from the last whole manifest, or else from the table's metadata"
    outcomes = (ROW_MISSING, LEAF_MISSING)

    def find(self, state: TableState) -> Iterator[Problem]:
        if state.head.ours and state.head_row is None:
            yield self.problem("there is no head row", HEAD_ID)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        draft.renew_head()
        recall(draft)


class HeadDamaged(Rule):
    """The head row has lost its version."""

    kind = "head-damaged"
    remedy = "restored from the row's metadata"

    def find(self, state: TableState) -> Iterator[Problem]:
        if state.head_row is not None and not state.head_row.has_version:
            yield self.problem("the head row has lost its version", HEAD_ID)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        draft.renew_head()
        recall(draft)


class TransactionLost(Rule):
    """A transaction has no version or time, neither in its columns nor in its metadata."""

    kind = "transaction-lost"
    remedy = "removed from the history"

    def find(self, state: TableState) -> Iterator[Problem]:
        if not state.head.ours or not {"sequence", "committed_at"} <= state.columns.keys():
            return
        for row in state.of_type(TRANSACTION):
            if row.sequence is None or row.committed_at is None:
                yield self.problem("the version of a transaction is not known", row.id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        for problem in problems:
            row = draft.existing_row(problem.where)
            draft.remove(row)


class TransactionMissing(Rule):
    """The newest transaction has no row, and no earlier manifest has one."""

    kind = "transaction-missing"
    remedy = "the transaction of the repair takes its place"

    def find(self, state: TableState) -> Iterator[Problem]:
        id = transaction_row(state.head.transaction_id)
        if not state.head.ours or state.head_row is None or state.row(id) is not None:
            return
        if id not in state.history.lost:
            yield self.problem("the newest transaction has no row", id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        draft.renew_head()
