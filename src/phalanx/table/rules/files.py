"""Files: every version that a snapshot needs is there, with all its files, and nothing else."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from phalanx.model.schema import TableSchema
from phalanx.storage.files import schema_fields
from phalanx.storage.head import Head
from phalanx.storage.location import MANIFEST
from phalanx.table.rules.draft import Draft
from phalanx.table.rules.lost import lost_leaves
from phalanx.table.rules.rule import Problem, Rule
from phalanx.table.rules.state import TableState
from phalanx.table.rules.survey import FolderSurvey


class FileRule(Rule):
    """A rule that looks at the folders of leaves and at nothing else."""

    def find(self, state: TableState) -> Iterator[Problem]:
        yield from self.find_in(state.folders())

    @abstractmethod
    def find_in(self, folders: Iterable[FolderSurvey]) -> Iterator[Problem]:
        """Every problem of this kind in some folders."""


class LeafMissing(FileRule):
    """The folder of a leaf is missing, or nothing in it can be read.

    Its rows are stored nowhere else.
    """

    kind = "leaf-missing"

    def find_in(self, folders: Iterable[FolderSurvey]) -> Iterator[Problem]:
        for folder in folders:
            if folder.error is not None:
                yield self.problem(folder.error, folder.name)


class VersionMissing(FileRule):
    """A version of a leaf that a snapshot needs cannot be read.

    Nothing else says which rows it had.
    """

    kind = "version-missing"

    def find_in(self, folders: Iterable[FolderSurvey]) -> Iterator[Problem]:
        for folder in folders:
            for version in folder.unreadable:
                what = f"version {'on main' if version is None else version} cannot be read"
                yield self.problem(what, folder.name)


class FileMissing(FileRule):
    """A file that a snapshot needs is missing.

    There is no second copy of it.
    """

    kind = "file-missing"

    def find_in(self, folders: Iterable[FolderSurvey]) -> Iterator[Problem]:
        for folder in folders:
            for path, size in folder.missing.items():
                what = "a file that a snapshot needs is missing"
                # A file of another dataset has its whole path.
                is_whole = path.startswith("/") or "://" in path
                yield self.problem(what, path if is_whole else f"{folder.name}/{path}", size)


class FileDamaged(FileRule):
    """A file that a snapshot needs has the wrong size.

    There is no second copy of it.
    """

    kind = "file-damaged"

    def find_in(self, folders: Iterable[FolderSurvey]) -> Iterator[Problem]:
        for folder in folders:
            for path, (file, size) in folder.damaged.items():
                what = f"a file has {file.size} bytes, not {size}"
                yield self.problem(what, f"{folder.name}/{path}", file.size)


class SchemaDrift(Rule):
    """Plain Lance has changed the schema of a leaf.

    Only a person can decide which of its columns belong to the table.
    """

    kind = "schema-drift"

    def find(self, state: TableState) -> Iterator[Problem]:
        shapes = _Shapes(state.head, {state.head.schema, *state.history.schemas})
        leaves = state.leaves_by_folder()
        for folder in state.folders():
            if folder.newest is not None:
                for what in shapes.drift(folder.newest.fields):
                    yield self.problem(what, leaves[folder.name].id)


class _Shapes:
    """What the fields of a leaf may look like: as in some schema of the table that is known."""

    def __init__(self, head: Head, schemas: Iterable[TableSchema]) -> None:
        self._highest = head.max_field_id
        #: Whether leaves have only what snapshots show. One transaction of a strong table can go
        #: through several schemas, and leave a leaf with one that none of them shows.
        self._all_shown = head.transactions == "weak"
        #: Whether every schema the table ever had is known.
        self._all_known = head.oldest == 1
        self._known: dict[int, set[tuple[str, str]]] = {}
        listed = [schema_fields(schema) for schema in schemas]
        for fields in listed:
            for id, path, type in fields:
                self._known.setdefault(id, set()).add((path, type))
        ids = [{id for id, _, _ in fields} for fields in listed]
        self._always = set.intersection(*ids) - head.given_ids if self._all_known else set()

    def drift(self, fields: Sequence[tuple[int, str, str]]) -> Iterator[str]:
        """How the fields of a leaf differ from all of them."""
        for id, path, type in fields:
            shapes = self._known.get(id)
            if id > self._highest:
                yield f"the field {path} has the id {id}, which the table has not given out"
            elif shapes and (path, type) not in shapes and self._all_known and self._all_shown:
                named = " or ".join(f"{p} ({t})" for p, t in sorted(shapes))
                yield f"the field with id {id} is {path} ({type}), not {named}"
        for id in sorted(self._always - {id for id, _, _ in fields}):
            (path, _), *_ = sorted(self._known[id])
            yield f"the field {path} with the id {id} is missing"


class CountDiffers(Rule):
    """The manifest has wrong numbers of rows, bytes or fragments for a leaf."""

    kind = "count-differs"
    remedy = "counted again, in strong tables"

    def find(self, state: TableState) -> Iterator[Problem]:
        leaves = state.leaves_by_folder()
        # Leaves of weak tables and of other clients need no counts.
        optional = not (state.strong and state.head.ours)
        for folder in state.folders():
            row = leaves.get(folder.name)
            if row is None or folder.newest is None:
                continue
            for name, count in folder.newest.counts.items():
                said = row.columns.get(name)
                if name not in state.columns or said == count or (said is None and optional):
                    continue
                what = f"{name} is {said} in the manifest and {count} in the leaf"
                yield self.problem(what, row.id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        if not draft.strong:
            return
        folders = {folder.name: folder for folder in draft.folders()}
        for id in {problem.where for problem in problems}:
            row = draft.existing_row(id)
            newest = folders[row.location or ""].newest
            if newest is not None:
                row.columns.update(newest.counts)
                draft.put(row)


class MainMissing(Rule):
    """Plain Lance cannot open a leaf: it has no main branch."""

    kind = "main-missing"
    remedy = "created again, for leaves of the newest snapshot"

    def find(self, state: TableState) -> Iterator[Problem]:
        for folder in state.folders():
            error = state.main_error(folder)
            if error is not None:
                yield self.problem(f"plain Lance cannot open the leaf: {error}", folder.name)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        broken = {problem.where for problem in problems}
        leaves = draft.leaves_by_folder()
        for folder in draft.folders():
            if folder.name in broken and folder.newest is not None and not folder.has_main:
                draft.create_main(leaves[folder.name])


class OrphanFile(Rule):
    """Nothing refers to a file.

    A writer failed, or is still running. Vacuum removes the file when it is old enough.
    """

    kind = "orphan-file"
    harmless = True

    def find(self, state: TableState) -> Iterator[Problem]:
        owners = [(folder.name, folder.orphans) for folder in state.folders()]
        for name, orphans in (*owners, (MANIFEST, state.survey.manifest.orphans)):
            for file in orphans:
                yield self.problem("nothing refers to it", f"{name}/{file.path}", file.size)


class OrphanFolder(Rule):
    """No snapshot has a leaf in a folder.

    A writer failed, or is still running. Vacuum removes the folder when it is old enough.
    """

    kind = "orphan-folder"
    harmless = True

    def find(self, state: TableState) -> Iterator[Problem]:
        head, survey = state.head, state.survey
        lost = {name for leaf in lost_leaves(state) for name in survey.folders_of(leaf, head)}
        known = state.known_folders() | lost
        for name, size in survey.abandoned(known, head).items():
            yield self.problem("no snapshot has a leaf here", name, size)
