"""Timelines: a row for every version that a leaf had, the newest of which is the leaf's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phalanx.storage.manifest_update import READ_VERSION, VERSION
from phalanx.storage.names import leaf_version, version_id
from phalanx.storage.raw_manifest import RawRow
from phalanx.table.rules.draft import Draft
from phalanx.table.rules.lost import lost_leaves
from phalanx.table.rules.rule import Problem, RepairOutcome, Rule
from phalanx.table.rules.state import TableState

_ROWS_LOST = RepairOutcome(
    "rows-lost", "The timeline of a leaf named a newer version than its row, which was removed."
)


class TimelineMissing(Rule):
    """The version that a leaf is at has no row in its timeline."""

    kind = "timeline-missing"
    remedy = "written again from the leaf's row"

    def find(self, state: TableState) -> Iterator[Problem]:
        timelines = state.timelines()
        for leaf, _ in state.known_leaves() if state.has_timelines else ():
            number = leaf.columns.get("version_number")
            if number not in timelines.get(leaf.id, {}):
                what = f"the leaf is at number {number}, which has no row"
                yield self.problem(what, leaf.id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        timelines = draft.timelines()
        for problem in problems:
            leaf = draft.existing_row(problem.where)
            numbers = timelines.get(leaf.id, {})
            if "version_number" not in leaf.columns:
                draft.set_column(leaf, "version_number", max(numbers, default=1))
            if leaf.columns["version_number"] not in numbers:
                _write_newest(draft, leaf)


class TimelineDiffers(Rule):
    """The newest row of a timeline names another version than the leaf's row."""

    kind = "timeline-differs"
    remedy = "taken from the leaf's row; newer rows are removed"
    outcomes = (_ROWS_LOST,)

    def find(self, state: TableState) -> Iterator[Problem]:
        timelines = state.timelines()
        for leaf in state.leaves() if state.has_timelines else ():
            newest = leaf.columns.get("version_number")
            for number, row in timelines.get(leaf.id, {}).items():
                if number > (newest or 0):
                    yield self.problem("it is newer than the leaf's own row", row.id)
                elif number == newest and _version(row) != _version(leaf):
                    what = "the newest row of the timeline names another version than the leaf"
                    yield self.problem(what, row.id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        for problem in problems:
            row = draft.existing_row(problem.where)
            leaf, number = _leaf_of(draft, row)
            if leaf is not None and number == leaf.columns.get("version_number"):
                _write_newest(draft, leaf)
                continue
            if leaf is not None and number == max(draft.timelines()[leaf.id]):
                _tell_of_lost_rows(draft, leaf, row)
            draft.remove(row)


class TimelineUnknown(Rule):
    """A timeline belongs to a leaf of which nothing else is there, neither files nor namespace."""

    kind = "timeline-unknown"
    remedy = "removed"

    def find(self, state: TableState) -> Iterator[Problem]:
        if not state.has_timelines:
            return
        leaves = {row.id for row in state.leaves()} | set(lost_leaves(state))
        for row in state.of_type(VERSION):
            version = leaf_version(row.id)
            if version is None or version[0] not in leaves:
                yield self.problem("a version of a leaf of which nothing else is there", row.id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        _remove(draft, problems)


class TimelineLost(Rule):
    """A row of a timeline names no version."""

    kind = "timeline-lost"
    remedy = "removed"

    def find(self, state: TableState) -> Iterator[Problem]:
        timelines = state.timelines()
        for leaf in state.leaves() if state.has_timelines else ():
            newest = leaf.columns.get("version_number")
            for number, row in timelines.get(leaf.id, {}).items():
                if _version(row) is None and number != newest:
                    yield self.problem("which version it was is not known", row.id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        _remove(draft, problems)


def _version(row: RawRow) -> int | None:
    return row.columns.get(READ_VERSION)


def _leaf_of(state: TableState, row: RawRow) -> tuple[RawRow | None, int]:
    """The leaf that a row of a timeline belongs to, and the number of the row."""
    leaf, number = leaf_version(row.id) or ("", 0)
    return state.row(leaf), number


def _write_newest(draft: Draft, leaf: RawRow) -> None:
    """Write the newest row of a leaf's timeline, where it is known which version that is."""
    version = _version(leaf)
    if version is not None:
        id = version_id(leaf.id, leaf.columns["version_number"])
        draft.put(RawRow(id, VERSION, None, {}, columns={READ_VERSION: version}))


def _tell_of_lost_rows(draft: Draft, leaf: RawRow, row: RawRow) -> None:
    """Say that a version is given up, if it is there and the leaf is at another one."""
    version = _version(row)
    replaced = draft.history.replaced.get(leaf.id)
    if replaced is not None and replaced.row.version == version:
        return  # `LeafReplaced` asks what becomes of its rows
    if version not in (None, _version(leaf)) and draft.survey.is_whole(leaf, version):
        what = (
            f"version {version} of the leaf in {leaf.location} is not part of the table now: rows "
            "that only it has can be read there with plain Lance"
        )
        draft.given_up.append(Problem(_ROWS_LOST.kind, what, leaf.id))


def _remove(draft: Draft, problems: Sequence[Problem]) -> None:
    for problem in problems:
        draft.remove(draft.existing_row(problem.where))
