"""A table as a repair will leave it: rules change it in memory, and one swap writes it."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from phalanx.storage.head import HEAD_ID, Head
from phalanx.storage.manifest_update import INDEXED, READ_VERSION, ManifestUpdate
from phalanx.storage.raw_manifest import RawManifest, RawRow
from phalanx.storage.records import TransactionRecord
from phalanx.table.rules.rule import Problem
from phalanx.table.rules.state import RowGroups, TableState
from phalanx.table.rules.stray import DROP, KEEP, TAKE, Stray
from phalanx.table.rules.survey import FolderSurvey, Survey


class Draft(TableState):
    """A table with what rules have changed so far."""

    def __init__(self, manifest: RawManifest, survey: Survey, stray: str = KEEP) -> None:
        """`stray` says what to do with stray rows.

        Raises UnsupportedTable for a table that is not ours to write.
        """
        super().__init__(manifest, survey)
        self.stray = stray
        #: The stray rows that are taken in or given up once everything else is mended.
        self.strays: list[Stray] = []
        #: Ids of stray rows that the repair itself gives up.
        self._given_up_strays: list[str] = []
        self.head.check_writable(manifest.handle.location.uri)
        self._changed: set[str] = set()
        self._removed: set[str] = set()
        #: Numbers of rows to remove whose ids others have, too.
        self.removed_twins: list[int] = []
        if self.head_row is not None and self.head_row.has_version and HEAD_ID not in self._twins:
            # Once it is mended, the damaged table is an earlier snapshot that can be opened.
            leaves = self._all_leaves()
            self._needed_before = [(row.location, row.columns.get(READ_VERSION)) for row in leaves]
        #: Columns to add.
        self.new_columns: list[pa.Field] = []
        #: Leaves whose main branch is to be created, by folder.
        self.new_mains: dict[str, RawRow] = {}
        self._copies_changed = self._indexes_changed = False
        #: Whether rows and cells of an earlier manifest have been brought back.
        self.is_recalled = False
        #: What was mended and what was given up, beyond what rules find.
        self.mended: list[Problem] = []
        self.given_up: list[Problem] = []
        #: Problems that are gone without anybody knowing what was right.
        self.undecided: list[Problem] = []

    @property
    def has_changes(self) -> bool:
        return bool(
            self.has_new_rows
            or self.removed_twins
            or self.new_columns
            or self.new_mains
            or self._copies_changed
            or self._indexes_changed
        )

    @property
    def has_new_rows(self) -> bool:
        """Whether there is something that only a transaction can write."""
        return bool(self._changed or self._removed)

    def update(self) -> ManifestUpdate:
        """The rows to write and remove, with a new head."""
        self.renew_head()
        update = ManifestUpdate(self.head.specs, self.strong)
        for id in sorted(self._changed):
            row = self._rows[id]
            update.put(id, row.type, row.metadata, row.values, location=row.location, **row.columns)
        update.remove(sorted(self._removed))
        return update

    # Rows

    def existing_row(self, id: str) -> RawRow:
        """A row that a problem names."""
        return self._rows[id]

    def put(self, row: RawRow) -> None:
        """Add a row, or write the one that is there."""
        if self._rows.get(row.id) is not row:
            self._rows[row.id] = row
            self._groups = RowGroups(self._rows, self.specs)
        self._folders = None
        self._changed.add(row.id)
        self._removed.discard(row.id)

    def remove(self, row: RawRow) -> None:
        del self._rows[row.id]
        self._groups, self._folders = RowGroups(self._rows, self.specs), None
        self._changed.discard(row.id)
        self._removed.add(row.id)

    def set_column(self, row: RawRow, column: str, value: Any) -> None:
        row.columns[column] = value
        self.put(row)

    def write_copies(self, row: RawRow) -> None:
        """Write what the metadata of a leaf or namespace repeats of its columns."""
        stale = row.copies()
        others = {key: text for key, text in (row.metadata or {}).items() if key not in stale}
        row.metadata = {**others, **self.copies_for(row)}
        self.put(row)

    def remove_twins(self, id: str) -> list[RawRow]:
        """Leave one row with an id. Returns the others."""
        twins, self._folders = self._twins.pop(id), None
        self.removed_twins += [row.number for row in twins]
        return twins

    def renew_head(self) -> None:
        """Write a new head, and the transaction that makes it; once is enough."""
        if self.head is not self.manifest.head:
            return
        self.head = self.head.after(dt.datetime.now(dt.UTC), uuid.uuid4().hex)
        self.head_row = RawRow.of_head(self.head)
        self.put(self.head_row)
        self._put_transaction()

    def _put_transaction(self) -> None:
        """Write the transaction of the repair.

        Readers of earlier snapshots read all leaves again: some may have been removed.
        """
        settled = tuple(self._given_up_strays)
        record = TransactionRecord.of(self.head, "repair", removals=1, settled=settled)
        self.put(RawRow.of_transaction(record))

    def continue_from(self, head: Head) -> None:
        """Let the next head follow this one, which is not the manifest's."""
        self.manifest.head = self.head = head
        self.specs = {spec.id: spec for spec in head.specs}
        self._groups = RowGroups(self._rows, self.specs)
        self.renew_head()

    # Stray rows

    def settled(self) -> set[str]:
        return super().settled() | {key for stray in self.strays for key in stray.keys}

    def add_stray(self, stray: Stray) -> None:
        """Take stray rows in or give them up, as was asked for; otherwise leave them alone."""
        if self.stray == DROP or (self.stray == TAKE and stray.can_be_taken):
            self.strays.append(stray)

    def give_up(self, key: str) -> None:
        """Give stray rows up in the transaction of the repair."""
        self._given_up_strays.append(key)
        self.renew_head()
        self._put_transaction()

    # The manifest

    def add_column(self, column: pa.Field) -> None:
        self.columns[column.name] = column.type
        self.new_columns.append(column)
        if column.name in INDEXED and self.manifest.handle.needs_indexes():
            self.unindexed.add(column.name)

    def publish(self, key: str, text: str) -> None:
        """Write a text of the table's metadata."""
        self.metadata[key] = text
        self._copies_changed = True

    def create_indexes(self, columns: Iterable[str]) -> None:
        self.unindexed.difference_update(columns)
        self._indexes_changed = True

    # Files

    def create_main(self, leaf: RawRow) -> None:
        """Create the main branch of a leaf, so that plain Lance can open it."""
        if leaf.location is not None:
            self.new_mains[leaf.location] = leaf

    def main_error(self, folder: FolderSurvey) -> str | None:
        return None if folder.name in self.new_mains else super().main_error(folder)
