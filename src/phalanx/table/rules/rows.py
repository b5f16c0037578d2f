"""Rows of the manifest, whatever they stand for: ids that occur twice, and metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phalanx.storage.head import HEAD_ID
from phalanx.storage.manifest_update import NAMESPACE, TABLE
from phalanx.storage.names import is_leaf_id, is_spec
from phalanx.storage.raw_manifest import RawRow
from phalanx.table.rules.draft import Draft
from phalanx.table.rules.rule import Problem, RepairOutcome, Rule
from phalanx.table.rules.state import TableState

_ROWS_LOST = RepairOutcome(
    "rows-lost", "Of two rows of a leaf with different versions, one was removed."
)


class RowTwice(Rule):
    """Several rows have the same id."""

    kind = "row-twice"
    remedy = "the row that was written last stays"
    outcomes = (_ROWS_LOST,)

    def find(self, state: TableState) -> Iterator[Problem]:
        for id, twins in state.twins().items():
            if id != HEAD_ID:
                yield self.problem(f"{1 + len(twins)} rows have the same id", id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        for problem in problems:
            kept = draft.existing_row(problem.where)
            for row in draft.remove_twins(problem.where):
                if row.type == TABLE and row.version != kept.version:
                    what = (
                        f"version {row.version} of the leaf in {row.location} is not part of the "
                        "table now: rows that only it has can be read there with plain Lance"
                    )
                    draft.given_up.append(Problem(_ROWS_LOST.kind, what, row.id))


class MetadataUnreadable(Rule):
    """A row's metadata is not a flat map of strings, so stock clients fail on it."""

    kind = "metadata-unreadable"
    remedy = "rewritten from the columns, for leaves and namespaces"

    def find(self, state: TableState) -> Iterator[Problem]:
        twins = (row for rows in state.twins().values() for row in rows)
        for row in (*state.rows(), *twins):
            if row.metadata is None:
                what = "the metadata is not a flat map of strings, and stock clients fail on it"
                yield self.problem(what, row.id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        for problem in problems:
            row = draft.row(problem.where)
            if row is None:
                continue
            spec = draft.spec_of(row) if _is_ours(row) else None
            if spec is not None:
                # The rules for values and versions write the copies that are missing then.
                row.metadata = {"partition_spec": spec.dumps()} if is_spec(row.id) else {}
                draft.put(row)


def _is_ours(row: RawRow) -> bool:
    return row.type == NAMESPACE or (row.type == TABLE and is_leaf_id(row.id))


class CopyStale(Rule):
    """The metadata of a leaf or namespace has a copy of a value that the row does not have."""

    kind = "copy-differs"
    remedy = "removed"

    def find(self, state: TableState) -> Iterator[Problem]:
        if not state.head.ours:
            return
        leaves = (row for row, _ in state.known_leaves())
        namespaces = (row for row in state.namespaces() if state.spec_of(row) is not None)
        for row in (*leaves, *namespaces):
            copies = row.copies()
            if copies and not copies <= state.expected_copies(row):
                yield self.problem(
                    "the metadata has a copy of a value that the row does not have", row.id
                )

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        for problem in problems:
            row = draft.existing_row(problem.where)
            draft.write_copies(row)
