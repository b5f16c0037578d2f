"""Is the table whole? `check` looks at everything and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from phalanx.errors import CorruptTable, InvalidInput
from phalanx.storage import forms
from phalanx.storage.foreign_leaves import contradictions
from phalanx.storage.location import MANIFEST, Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.raw_manifest import RawManifest, with_newest
from phalanx.storage.records import LeafRow
from phalanx.table.format import count_text, size_text
from phalanx.table.rules import RULES
from phalanx.table.rules.files import (
    FileDamaged,
    FileMissing,
    FileRule,
    LeafMissing,
    SchemaDrift,
    VersionMissing,
)
from phalanx.table.rules.leaves import LeafOutside, outside_text
from phalanx.table.rules.rule import HarmlessProblem, Problem, Rule
from phalanx.table.rules.state import TableState
from phalanx.table.rules.survey import FolderNeeds, Survey
from phalanx.transaction.snapshot import Snapshot

#: The one kind of problem that no rule finds: without a manifest there is nothing to look at.
MANIFEST_UNREADABLE = "manifest-unreadable"
#: What is said of a table that another client has made in another form.
OTHER_FORM = "other-form"
#: What keeps a leaf from being read.
_READABLE: tuple[FileRule, ...] = (LeafMissing(), VersionMissing(), FileMissing(), FileDamaged())
#: How many leaves are looked at at a time.
_WORKERS = 8


@dataclass(frozen=True)
class CheckReport:
    """What `check` has looked at, and which problems there are."""

    problems: list[Problem]
    leaves: int = 0
    snapshots: int = 0
    files: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong. Leftovers of failed writes are problems that do no harm."""
        return not self.damage

    @property
    def damage(self) -> list[Problem]:
        return [problem for problem in self.problems if not problem.harmless]

    @property
    def is_blind(self) -> bool:
        """Whether the manifest could not be read, so that nothing else was looked at."""
        return any(problem.kind == MANIFEST_UNREADABLE for problem in self.problems)

    def confirming(self, earlier: CheckReport) -> CheckReport:
        """This report without the damage that an earlier one does not have."""
        confirmed = _confirmed(self.damage, earlier.damage)
        return replace(self, problems=[p for p in self.problems if p.harmless or p in confirmed])

    def __str__(self) -> str:
        counts = {"leaf": self.leaves, "snapshot": self.snapshots, "file": self.files}
        seen = ", ".join(count_text(number, thing) for thing, number in counts.items())
        state = "ok" if self.ok else count_text(len(self.damage), "problem")
        return "\n".join([f"{state}: {seen}", *map(str, self.damage), *self._leftovers()])

    def _leftovers(self) -> Iterator[str]:
        """What does no harm, each kind in one line; `problems` has them one by one."""
        kinds: dict[str, list[Problem]] = {}
        for problem in self.problems:
            if problem.harmless:
                kinds.setdefault(problem.kind, []).append(problem)
        for kind, problems in kinds.items():
            if len(problems) == 1:
                yield str(problems[0])
                continue
            size = sum(problem.size for problem in problems)
            shown = f" ({size_text(size)})" if size else ""
            yield f"{kind}: {len(problems)} of them{shown}, such as {problems[0].where}"


def check_table(source: Snapshot | Location) -> CheckReport:
    """Look for everything that is not as it should be, in the table as it is now.

    Writers, vacuum and optimize may run meanwhile. What they change between two looks at the same
    thing can seem to be damage, so damage is reported only if a second look finds it again.

    Raises TableNotFound where there is no table, UnsupportedTable where it is newer than we are.
    """
    location = source if isinstance(source, Location) else source.location
    other = forms.read_other(location)
    if other is not None:
        return _look_at_other(other)
    report = _look(location)
    if report.is_blind:
        report = _look(location)
    if report.ok or report.is_blind:
        return report
    again = _look(location)
    return report if again.is_blind else again.confirming(report)


def _look_at_other(manifest: ManifestVersion) -> CheckReport:
    """Whether every leaf of a table in another form can be read, with the table's columns.

    Nothing is said of files that no leaf needs: they are its client's to remove.
    """
    other = HarmlessProblem(
        OTHER_FORM, "the table has another form than ours: it is only read", MANIFEST
    )
    try:
        snapshot = Snapshot(manifest)
        leaves = snapshot.leaves.rows()
    except CorruptTable as error:
        return CheckReport([manifest_unreadable(error), other])
    versions: dict[str, set[int | None]] = {}
    for leaf in leaves:
        versions.setdefault(leaf.location, set()).add(leaf.read_version)
    needs = {folder: FolderNeeds(frozenset(numbers)) for folder, numbers in versions.items()}
    folders = Survey(manifest.location).folders(needs)
    problems = [problem for rule in _READABLE for problem in rule.find_in(folders)]
    with ThreadPoolExecutor(_WORKERS) as pool:
        for misread in pool.map(lambda leaf: _misread(snapshot, leaf), leaves):
            problems += misread
    files = sum(folder.files for folder in folders)
    return CheckReport([*problems, other], leaves=len(leaves), snapshots=1, files=files)


def _misread(snapshot: Snapshot, leaf: LeafRow) -> list[Problem]:
    """Why rows of a leaf cannot be read, or would be other rows, although its files are there."""
    try:
        texts = contradictions(snapshot.location, snapshot.head, leaf)
    except InvalidInput:
        return [LeafOutside().problem(outside_text(leaf.location), leaf.object_id)]
    except CorruptTable:
        return []  # its files say why
    return [SchemaDrift().problem(text, leaf.object_id) for text in texts]


def confirmed_damage(location: Location, rules: Sequence[Rule]) -> list[Problem]:
    """What some rules find in two looks, as in `check_table`, and nothing else is looked at.

    Raises CorruptTable if the manifest cannot be read.
    """

    def look(manifest: RawManifest) -> list[Problem]:
        state = TableState(manifest, Survey(manifest.location))
        return [problem for rule in rules for problem in rule.find(state)]

    problems = with_newest(location, look)
    return _confirmed(with_newest(location, look), problems) if problems else []


def _confirmed(problems: Sequence[Problem], earlier: Sequence[Problem]) -> list[Problem]:
    """The problems that an earlier look has found, too, whatever their texts say."""
    before = {(problem.kind, problem.where) for problem in earlier}
    return [problem for problem in problems if (problem.kind, problem.where) in before]


def _look(location: Location) -> CheckReport:
    try:
        return with_newest(location, _look_at)
    except CorruptTable as error:
        return CheckReport([manifest_unreadable(error)])


def _look_at(manifest: RawManifest) -> CheckReport:
    state = TableState(manifest, Survey(manifest.location))
    problems = [problem for rule in RULES for problem in rule.find(state)]
    return CheckReport(
        sorted(problems, key=lambda problem: (problem.harmless, problem.kind, problem.where)),
        leaves=len(state.leaves()),
        snapshots=len({state.head.sequence, *state.history.sequences}),
        files=sum(folder.files for folder in state.folders()) + state.survey.manifest.files,
    )


def manifest_unreadable(error: CorruptTable) -> Problem:
    return Problem(MANIFEST_UNREADABLE, str(error), MANIFEST)
