"""Mend a damaged table.

The rules mend a draft of it in memory, one after the other, and then look at the draft again: what
they still find cannot be mended. Only then is anything written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from phalanx.errors import CorruptTable, InvalidInput
from phalanx.storage import forms, raw_manifest
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.storage.main_branch import MainBranch
from phalanx.storage.manifest import ManifestVersion, SwapLost
from phalanx.storage.raw_manifest import RawManifest, with_newest
from phalanx.table.check import manifest_unreadable
from phalanx.table.rules import RULES
from phalanx.table.rules.draft import Draft
from phalanx.table.rules.rule import Problem
from phalanx.table.rules.stray import KEEP, TAKE, Stray, check_choice
from phalanx.table.rules.survey import Survey
from phalanx.table.strays import settle
from phalanx.transaction.failpoints import reach
from phalanx.transaction.swap import Proposal, swap_head

#: What begins the part of a problem's text that says how to decide on rows that are in doubt.
_ADVICE = ": repair "


@dataclass(frozen=True)
class RepairReport:
    """What `repair` has mended, or would, and what it cannot mend."""

    dry_run: bool
    mended: list[Problem]
    unmended: list[Problem]

    @property
    def ok(self) -> bool:
        """Whether nothing is left that repair cannot mend."""
        return not self.unmended

    def without(self, failed: Collection[Problem], reason: str) -> RepairReport:
        """This report after some of the problems could not be mended after all."""
        kept = [problem for problem in self.mended if problem not in failed]
        told = [replace(problem, what=f"{problem.what}; {reason}") for problem in failed]
        return replace(self, mended=kept, unmended=[*self.unmended, *told])

    def decided(self, stray: str) -> RepairReport:
        """This report, with what becomes of rows in doubt instead of how to decide on them."""
        done = "its rows were added to the table" if stray == TAKE else "its rows were given up"
        mended = [
            replace(problem, what=f"{what}: {done}") if advice else problem
            for problem in self.mended
            for what, advice, _ in [problem.what.partition(_ADVICE)]
        ]
        return replace(self, mended=mended)

    def __str__(self) -> str:
        if not self.mended and not self.unmended:
            return "nothing to repair"
        verb = "would mend" if self.dry_run else "mended"
        lines = [f"{verb} {problem}" for problem in self.mended]
        return "\n".join([*lines, *(f"cannot mend {problem}" for problem in self.unmended)])


def repair_table(location: Location, dry_run: bool = False, stray: str = KEEP) -> RepairReport:
    """Mend what copies and earlier versions of the manifest can tell, and say what they cannot.

    `stray` says what to do with rows of which only a person can say whether they belong to the
    table: "keep" reports them, "take" adds them to the table, "drop" gives them up.

    What is written goes through one transaction, and another one for stray rows, so concurrent
    readers see the table as it was before or after. Raises TableNotFound where there is no table,
    UnsupportedTable where it is not ours to write, InvalidInput for another choice, and
    ConflictError where others kept writing.
    """
    check_choice(stray)
    other = forms.read_other(location)
    if other is not None:
        other.head().check_writable(location.uri)
    repair = _Repair(location, stray)
    # Files are looked at before others have to wait for the lock.
    draft, report = repair.draft(dry_run)
    if report.unmended:
        # What others change during the look can seem to be damage.
        repair = _Repair(location, stray)
        draft, report = repair.draft(dry_run)
    if dry_run or draft is None:
        return report.decided(stray)
    if draft.has_changes:
        report = swap_head(location, "repair", repair.decide)
    if repair.strays:
        try:
            settle(location, repair.strays, take=stray == TAKE)
        except InvalidInput as error:
            report = report.without({stray.problem for stray in repair.strays}, str(error))
    return report.decided(stray)


class _Repair:
    """A repair, worked out again on what is there by then where others come first."""

    def __init__(self, location: Location, stray: str) -> None:
        self._location, self._survey, self._stray = location, Survey(location), stray
        #: The stray rows to take in or to give up after the repair.
        self.strays: list[Stray] = []

    def draft(self, dry_run: bool = False) -> tuple[Draft | None, RepairReport]:
        """The table as it should be, and what is mended by that."""

        def draft_of(manifest: RawManifest) -> tuple[Draft, RepairReport]:
            draft = Draft(manifest, self._survey, self._stray)
            return draft, mend(draft, dry_run)

        try:
            draft, report = with_newest(self._location, draft_of, statistics=True)
        except CorruptTable as error:
            return None, RepairReport(dry_run, [], [manifest_unreadable(error)])
        self.strays = draft.strays
        return draft, report

    def decide(self) -> Proposal[RepairReport] | RepairReport:
        draft, report = self.draft()
        if draft is None or not draft.has_changes:
            return report
        base = self._prepare(draft)

        def then(_: ManifestVersion | None) -> RepairReport:
            reach("repair.rows-written")
            return self._finish(draft, report)

        if not draft.has_new_rows:
            return self._finish(draft, report)
        update = draft.update()
        return Proposal(base, draft.head, update, then)

    def _prepare(self, draft: Draft) -> ManifestVersion:
        """Make the manifest one that rows can be merged into.

        Returns the version to merge into. Raises SwapLost where others have written meanwhile.
        """
        version = draft.manifest.version
        if draft.removed_twins:
            raw_manifest.remove_rows(self._location, draft.removed_twins)
            version += 1
            reach("repair.rows-removed")
        if draft.new_columns:
            raw_manifest.add_columns(self._location, draft.new_columns)
            version += 1
            reach("repair.columns-added")
        manifest = ManifestVersion(self._location)
        if manifest.version != version:
            raise SwapLost("others have written meanwhile")
        return manifest

    def _finish(self, draft: Draft, report: RepairReport) -> RepairReport:
        """Write what the rows of the manifest do not hold."""
        ManifestVersion(self._location).publish(draft.head)
        reach("repair.published")
        raw_manifest.create_missing_indexes(self._location)
        for name, row in draft.new_mains.items():
            Leaf(self._location, name, draft.head.schema).create()
            MainBranch(self._location, name).publish(row.version)
        return report


def mend(draft: Draft, dry_run: bool = False) -> RepairReport:
    """Let the rules mend a draft. Nothing is written yet."""
    problems: list[Problem] = []
    for rule in RULES:
        rule_problems = list(rule.find(draft)) if rule.remedy else []
        if rule_problems:
            rule.mend(draft, rule_problems)
            problems += rule_problems
    rules = [rule for rule in RULES if rule.remedy or not rule.harmless]
    left = [problem for rule in rules for problem in rule.find(draft)]
    again = {(problem.kind, problem.where) for problem in left}
    gone = [problem for problem in problems if (problem.kind, problem.where) not in again]
    return RepairReport(
        dry_run,
        [problem for problem in gone if problem not in draft.undecided] + draft.mended,
        [problem for problem in left if not problem.harmless] + draft.given_up,
    )
