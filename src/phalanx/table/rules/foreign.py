"""Commits of other clients on the main branches of leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phalanx.storage.main_branch import ForeignCommit
from phalanx.table.format import count_text
from phalanx.table.rules.draft import Draft
from phalanx.table.rules.rule import Problem, Rule
from phalanx.table.rules.state import TableState
from phalanx.table.rules.stray import Stray


class ForeignCommits(Rule):
    """Another client has committed to the main branch of a leaf, and the table does not have that.

    Only a person can decide whether its rows belong to the table.
    """

    kind = "foreign-commits"
    remedy = "taken in or dropped, if `stray` says so"

    def find(self, state: TableState) -> Iterator[Problem]:
        for stray in self._strays(state):
            yield stray.problem

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        for stray in self._strays(draft):
            draft.add_stray(stray)

    def _strays(self, state: TableState) -> Iterator[Stray]:
        settled = state.settled()
        for folder in state.folders():
            commits = [commit for commit in folder.foreign if commit.id not in settled]
            if commits:
                can_be_taken = all(commit.fragments is not None for commit in commits)
                problem = self.problem(_what(commits, can_be_taken), folder.name)
                yield Stray(
                    problem,
                    folder.name,
                    tuple(commit.id for commit in commits),
                    tuple((commit.version, commit.fragments) for commit in commits),
                    on_main=True,
                    can_be_taken=can_be_taken,
                )


class ForeignIndexes(Rule):
    """Another client has created an index on the main branch of a leaf, and the table has none.

    No row is affected, and the next publication of the leaf drops it. `take_over_index` makes it an
    index of the table.
    """

    kind = "foreign-index"
    harmless = True

    def find(self, state: TableState) -> Iterator[Problem]:
        for folder in state.folders():
            for index in folder.foreign_indexes:
                if index.name not in state.head.indexes:
                    what = f"the index {index.name!r} ({index.kind}) of another client is on main"
                    yield self.problem(f"{what}: take_over_index() it", folder.name)


def _what(commits: Sequence[ForeignCommit], can_be_taken: bool) -> str:
    added = sum(commit.rows_added for commit in commits)
    removed = sum(commit.rows_removed for commit in commits)
    done = [f"{count_text(added, 'row')} added"] if added or not removed else []
    done += [f"{count_text(removed, 'row')} removed"] if removed else []
    if can_be_taken:
        advice = "repair with stray='take' adds the rows to the table, with 'drop' main loses them"
    else:
        advice = (
            "repair cannot take in what changed more than it added, so make these changes through "
            "the table; with stray='drop' main loses them"
        )
    what = f"{count_text(len(commits), 'commit')} of another client on main, {' and '.join(done)}"
    return f"{what}, which the table does not have: {advice}"
