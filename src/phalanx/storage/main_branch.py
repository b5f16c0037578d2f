"""The main branch of a leaf: what was published there, and what others have committed to it.

In a strong table, main shows what was published last. A Lance client that writes to a leaf commits
on top of that. The table does not have such rows, and nothing may publish over them unseen.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import lance
from lance import LanceOperation

from phalanx.errors import PhalanxError
from phalanx.storage.files import COMMIT_MESSAGE, DETACHED, is_commit_of_ours
from phalanx.storage.lance_errors import read_transaction
from phalanx.storage.leaf import EMPTY_VERSION, open_leaf
from phalanx.storage.location import Location

log = logging.getLogger("phalanx")


@dataclass(frozen=True)
class ForeignCommit:
    """A commit by another client on the main branch of a strong table's leaf."""

    #: The version on main that it made.
    version: int
    #: Lance's id of the transaction.
    id: str
    rows_added: int
    rows_removed: int
    #: The fragments of its version that hold the rows it added; None if it did more than add rows.
    fragments: tuple[int, ...] | None


@dataclass(frozen=True)
class ForeignIndex:
    """An index that another client has created on the main branch of a strong table's leaf."""

    name: str
    #: The field id of its column.
    column_id: int
    #: Its kind, as `phalanx.model.indexes` calls it, if it is known there.
    kind: str
    #: The distance of a vector index.
    metric: str | None


class MainBranch:
    """The main branch of a leaf of a strong table."""

    def __init__(self, location: Location, folder: str) -> None:
        self._location, self._folder = location, folder

    def _open(self, version: int | None) -> Any:
        return open_leaf(self._location, self._folder, version)

    def publish(
        self, version: int | None, settled: Collection[str] = (), over_all: bool = False
    ) -> list[ForeignCommit]:
        """Publish a version of the leaf, unless it is there already or others have committed.

        Plain Lance readers of the leaf then see its rows, and their cleanup keeps its files.
        Returns the commits of others that are in the way, oldest first. Nothing is published then;
        those whose ids are `settled` are not in the way, and with `over_all` none is. Failures are
        logged and have no other effect.
        """
        try:
            main = self._open(None)
            newest = int(main.version)
            if newest == version or _restored_by(read_transaction(main, newest)) == version:
                return []
            foreign = [] if over_all else self._unsettled(main, settled)
            if foreign:
                return foreign
            place = self._show(main, version)
            return [] if over_all else self._uncovered(newest, place, settled)
        except (OSError, ValueError, PhalanxError) as error:
            log.debug("%s in %s was not published: %s", self._folder, self._location.uri, error)
            return []

    def _show(self, main: Any, version: int | None) -> int:
        """Restore a version, and return the version on main that shows it from now on."""
        if version is None or version >= DETACHED:
            handle = self._open(version)
            handle.restore()
        else:  # the commit says that it is ours: the number of the version does not show it
            handle = lance.LanceDataset.commit(
                main,
                LanceOperation.Restore(version),
                read_version=main.version,
                storage_options=self._location.options,
                commit_message=COMMIT_MESSAGE,
            )
        return int(handle.version)

    def withdraw(self) -> list[ForeignCommit]:
        """Publish that the leaf has no rows, because it is no longer part of the table.

        Returns the commits of others that are in the way, as `publish` does.
        """
        try:
            main = self._open(None)
            if not main.count_rows():
                return []
            foreign = self._foreign(main)
            if not foreign:
                lance.LanceDataset.commit(
                    main,
                    LanceOperation.Overwrite(main.lance_schema, []),
                    read_version=main.version,
                    max_retries=0,  # nothing that others commit meanwhile is overwritten
                    storage_options=self._location.options,
                    commit_message=COMMIT_MESSAGE,
                )
            return foreign
        except (OSError, ValueError, PhalanxError) as error:
            log.debug("%s in %s was not emptied: %s", self._folder, self._location.uri, error)
            return []

    def _uncovered(self, before: int, place: int, settled: Collection[str]) -> list[ForeignCommit]:
        """The commits that came between the look at main and the publication.

        Lance has published over them. They are brought back: main shows again what they made of it.
        """
        main = self._open(None)
        if all(_is_ours(main, version, settled) for version in range(before + 1, place)):
            return []
        if place == main.version:
            self._open(place - 1).restore()
        return self._unsettled(self._open(None), settled)

    def seal(self) -> int:
        """Mark what is on main as known, and return the version that has all of it.

        No commit up to that version counts as foreign then, and every later one does. The mark also
        shows that the leaf is the table's, if it is removed and its partition comes back.
        """
        main = self._open(None)
        is_marked = is_commit_of_ours(main, int(main.version))
        return int((main if is_marked else self._marked(main)).version)

    def _sealed(self, main: Any) -> Any:
        return main if _is_ours(main, int(main.version)) else self._marked(main)

    def _marked(self, handle: Any, detached: bool = False) -> Any:
        """A version with the same rows as another, which says that they are known."""
        known = LanceOperation.UpdateMap({"phalanx.known": "true"})
        return lance.LanceDataset.commit(
            handle,
            LanceOperation.UpdateConfig(table_metadata_updates=known),
            read_version=handle.version,
            detached=detached,
            storage_options=self._location.options,
            commit_message=COMMIT_MESSAGE,
        )

    def take_over(self, version: int | None) -> Any:
        """Make a version that another client has written the table's own, and return it, open.

        It has another number if a mark had to be written; None is the newest on main. No commit on
        main counts as foreign then. If main has gone on since the version, it shows the version
        again: what came after it was never part of the table.
        """
        main = self._open(None)
        newest = int(main.version)
        if version is None or version == newest:
            sealed = self._sealed(main)
            if version is None or sealed.version <= newest + 1:
                return sealed
            version = newest  # somebody has committed in between
        handle = self._open(version)
        if version < DETACHED:
            handle = self._marked(handle, detached=True)
        self.publish(int(handle.version), over_all=True)
        return handle

    def foreign_commits(self) -> list[ForeignCommit]:
        """The commits of others since the last publication that changed rows, oldest first.

        Raises CorruptTable if the leaf has no main branch.
        """
        return self._foreign(self._open(None))

    def foreign_indexes(self) -> list[ForeignIndex]:
        """The indexes that others have created since the last publication, by name.

        Raises CorruptTable if the leaf has no main branch.
        """
        main = self._open(None)
        existing = sorted(entry["version"] for entry in main.version_refs())
        created: set[str] = set()
        for version in reversed(existing):
            if _is_ours(main, version):
                break
            operation = getattr(read_transaction(main, version), "operation", None)
            if isinstance(operation, LanceOperation.CreateIndex):
                created |= {index.name for index in operation.new_indices}
        described = main.describe_indices() if created else []
        return [_foreign_index(index) for index in described if index.name in created]

    def _unsettled(self, main: Any, settled: Collection[str]) -> list[ForeignCommit]:
        return [commit for commit in self._foreign(main) if commit.id not in settled]

    def _foreign(self, main: Any) -> list[ForeignCommit]:
        version = int(main.version)
        if _is_ours(main, version):
            return []
        existing = sorted(entry["version"] for entry in main.version_refs())
        commits = []
        while version and not _is_ours(main, version):
            restored = _restored_by(read_transaction(main, version))
            before = max((v for v in existing if v < version), default=0)
            if restored is None or restored not in existing:
                commit = self._commit(version, before)
                commits += [] if commit is None else [commit]
                version = before
            else:
                version = restored  # main is what it was then
        return commits[::-1]

    def _commit(self, version: int, before: int) -> ForeignCommit | None:
        """What a commit of another client did; None if it changed no row and no column."""
        handle = self._open(version)
        transaction = read_transaction(handle, version)
        operation = getattr(transaction, "operation", None)
        new: Iterable[Any] = []
        only_adds = False
        match operation:
            case (
                LanceOperation.Rewrite()
                | LanceOperation.CreateIndex()
                | LanceOperation.UpdateConfig()
            ):
                return None
            case LanceOperation.Append():
                new, only_adds = operation.fragments, True
            case LanceOperation.Update():
                new = operation.new_fragments
                only_adds = not (operation.updated_fragments or operation.removed_fragment_ids)
            case LanceOperation.Overwrite():
                new = operation.fragments
        paths = {file.path for fragment in new for file in fragment.files}
        added = [
            fragment
            for fragment in handle.get_fragments()
            if any(file.path in paths for file in fragment.metadata.files)
        ]
        rows = sum(int(fragment.count_rows()) for fragment in added)
        earlier = self._open(before) if before else None
        count = 0 if earlier is None else int(earlier.count_rows())
        removed = count + rows - int(handle.count_rows())
        if not rows and not removed and not only_adds:
            same_columns = earlier is not None and earlier.lance_schema == handle.lance_schema
            if same_columns:
                return None
        ids = tuple(sorted(fragment.fragment_id for fragment in added)) if only_adds else None
        uuid = str(getattr(transaction, "uuid", "")) or f"{self._folder}@{version}"
        return ForeignCommit(version, uuid, max(rows, rows - removed), max(removed, 0), ids)


def _foreign_index(index: Any) -> ForeignIndex:
    kind = str(index.index_type).upper()
    metric = dict(index.details or {}).get("metric_type")
    return ForeignIndex(
        index.name,
        int(index.fields[0]),
        {"LABELLIST": "LABEL_LIST"}.get(kind, kind),
        None if metric is None else str(metric).lower(),
    )


def _restored_by(transaction: Any) -> int | None:
    """The version that a transaction restored; None if it did something else."""
    operation = getattr(transaction, "operation", None)
    return int(operation.version) if isinstance(operation, LanceOperation.Restore) else None


def _is_ours(main: Any, version: int, settled: Collection[str] = ()) -> bool:
    """Whether Phalanx has made a version on main, or what it contains was settled."""
    if version == EMPTY_VERSION or is_commit_of_ours(main, version):
        return True
    return bool(settled) and getattr(read_transaction(main, version), "uuid", None) in settled
