"""The manifest's columns, the indexes on them, and the copies in the table's metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phalanx.storage.manifest import GUARD_KEY, published_texts
from phalanx.storage.raw_manifest import fits
from phalanx.table.rules.draft import Draft
from phalanx.table.rules.recall import recall
from phalanx.table.rules.rule import Problem, Rule
from phalanx.table.rules.state import TableState


class ColumnMissing(Rule):
    """The manifest has lost a column."""

    kind = "column-missing"
    remedy = "restored from the last whole manifest, or else from the rows' metadata"

    def find(self, state: TableState) -> Iterator[Problem]:
        for column in state.manifest.expected_columns():
            if column.name not in state.columns:
                yield self.problem("the manifest has lost a column", column.name)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        missing = {problem.where for problem in problems}
        for column in draft.manifest.expected_columns():
            if column.name in missing:
                draft.add_column(column)
        recall(draft)


class ColumnType(Rule):
    """A column of the manifest has another type than it should.

    No write of ours changes a type like that, so its values cannot be trusted.
    """

    kind = "column-type"

    def find(self, state: TableState) -> Iterator[Problem]:
        for column in state.manifest.expected_columns():
            have = state.columns.get(column.name)
            if have is not None and not fits(have, column.type):
                what = f"a column of the manifest is {have}, not {column.type}"
                yield self.problem(what, column.name)


class IndexMissing(Rule):
    """A column of a manifest of over 10,000 rows has no index, or one that cannot be used."""

    kind = "index-missing"
    remedy = "created again"
    harmless = True

    def find(self, state: TableState) -> Iterator[Problem]:
        for column in sorted(state.unindexed) if state.head.ours else ():
            yield self.problem("a column of the manifest has no index", column)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        draft.create_indexes(problem.where for problem in problems)


class PublishedCopyDiffers(Rule):
    """The schema or a spec in the table's metadata is not that of the head row."""

    kind = "copy-differs"
    remedy = "taken from the head row"

    def find(self, state: TableState) -> Iterator[Problem]:
        for key, text in published_texts(state.head).items() if state.head.ours else ():
            if key != GUARD_KEY and state.metadata.get(key) != text:
                yield self.problem("the table's metadata disagrees with the head row", key)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        texts = published_texts(draft.head)
        for problem in problems:
            draft.publish(problem.where, texts[problem.where])


class GuardMissing(Rule):
    """The guard that keeps other clients from rewriting the manifest is not set."""

    kind = "guard-missing"
    remedy = "set again"

    def find(self, state: TableState) -> Iterator[Problem]:
        if state.head.ours and state.metadata.get(GUARD_KEY, "0") == "0":
            yield self.problem("other clients may rewrite the manifest", GUARD_KEY)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        draft.publish(GUARD_KEY, published_texts(draft.head)[GUARD_KEY])
