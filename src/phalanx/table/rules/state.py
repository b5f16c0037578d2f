"""The table that rules look at: the rows of its manifest, its snapshots, its folders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from phalanx.model.specs import PartitionField, PartitionSpec
from phalanx.storage import names
from phalanx.storage.head import HEAD_ID
from phalanx.storage.manifest_update import NAMESPACE, READ_VERSION, TABLE, TRANSACTION, VERSION
from phalanx.storage.names import is_leaf_id
from phalanx.storage.raw_manifest import RawManifest, RawRow, copy_key, spec_of
from phalanx.storage.records import TransactionRecord
from phalanx.table.rules.survey import FolderNeeds, FolderSurvey, History, Survey


@dataclass(frozen=True)
class NamespaceUse:
    """Why a namespace must be there: a leaf in it, and how many fields lie above or at it."""

    leaf: RawRow
    spec: PartitionSpec
    depth: int

    def values(self) -> dict[str, object]:
        """The partition values that the namespace should have, by field id."""
        ids = [field.field_id for field in self.spec.fields[: self.depth]]
        return {id: self.leaf.values[id] for id in ids if id in self.leaf.values}


class TableState:
    """A table as it is. Of several rows with one id, the one that was written last counts."""

    def __init__(self, manifest: RawManifest, survey: Survey) -> None:
        self.manifest, self.survey = manifest, survey
        self.head, self.head_row = manifest.head, manifest.head_row
        self.specs = {spec.id: spec for spec in self.head.specs}
        #: The manifest's columns, with their types.
        self.columns: dict[str, pa.DataType] = dict(manifest.types)
        #: The table's metadata, which other clients read.
        self.metadata: dict[str, str] = dict(manifest.metadata)
        self._rows: dict[str, RawRow] = {}
        #: Other rows with the same ids.
        self._twins: dict[str, list[RawRow]] = {}
        for row in manifest.rows:
            other = self._rows.setdefault(row.id, row)
            if other is row:
                continue
            if row is self.head_row or (other is not self.head_row and row.number >= other.number):
                self._rows[row.id], row = row, other
            self._twins.setdefault(row.id, []).append(row)
        self._groups = RowGroups(self._rows, self.specs)
        self._folders: list[FolderSurvey] | None = None
        #: Folders and versions of leaves that a repair has replaced.
        self._needed_before: list[tuple[str | None, int | None]] = []

    @property
    def strong(self) -> bool:
        return self.head.transactions == "strong"

    @property
    def has_timelines(self) -> bool:
        """Whether there are rows and columns for the versions of leaves."""
        needed = {READ_VERSION, "version_number"}
        return self.head.ours and self.strong and needed <= self.columns.keys()

    # Rows

    def row(self, id: str) -> RawRow | None:
        return self._rows.get(id)

    def rows(self) -> Iterable[RawRow]:
        return self._rows.values()

    def twins(self) -> Mapping[str, list[RawRow]]:
        """The rows beside those that count, by id."""
        return self._twins

    def leaves(self) -> list[RawRow]:
        """The rows of leaves. Tables of other clients are not among them."""
        return self._groups.leaves

    def known_leaves(self) -> list[tuple[RawRow, PartitionSpec]]:
        """The rows of leaves whose ids fit a spec of the table."""
        return self._groups.known_leaves

    def namespaces(self) -> list[RawRow]:
        return self._groups.of_type(NAMESPACE)

    def of_type(self, type: str) -> list[RawRow]:
        return self._groups.of_type(type)

    def timelines(self) -> Mapping[str, Mapping[int, RawRow]]:
        """The rows of timelines by leaf and number, whether or not there is such a leaf."""
        return self._groups.timelines

    def namespaces_in_use(self) -> Mapping[str, NamespaceUse]:
        """The namespaces that the ids of leaves name, by id; the specs' own are among them."""
        return self._groups.namespaces_in_use

    def spec_of(self, row: RawRow) -> PartitionSpec | None:
        """The spec of a leaf or namespace by its id; None where the id fits none."""
        return spec_of(row, self.specs)

    def copies_for(self, row: RawRow) -> dict[str, str]:
        """What the metadata of a leaf or namespace should repeat of its columns."""
        copies = row.value_texts(self._copied_fields(row))
        if row.type == TABLE and self.strong and row.version is not None:
            copies[READ_VERSION] = str(row.version)
        return copies

    def expected_copies(self, row: RawRow) -> set[str]:
        """The keys of the metadata of a leaf or namespace that may repeat a column."""
        keys = {copy_key(field) for field in self._copied_fields(row)}
        return keys | {READ_VERSION} if row.type == TABLE and self.strong else keys

    def _copied_fields(self, row: RawRow) -> Sequence[PartitionField]:
        """The fields whose values the metadata repeats: a namespace's own is the innermost."""
        spec = self.spec_of(row)
        if spec is None:
            return ()
        depth = len(names.names_in(row.id))
        return spec.fields if row.type == TABLE else spec.fields[max(depth - 1, 0) : depth]

    def transactions(self) -> dict[str, TransactionRecord]:
        """The transactions by the ids of their rows; damaged rows are left out."""
        records = ((row.id, row.transaction()) for row in self.of_type(TRANSACTION))
        return {id: record for id, record in records if record is not None}

    def settled(self) -> set[str]:
        """Ids of stray rows that were taken in or given up."""
        return {id for record in self.transactions().values() for id in record.settled}

    # The manifest

    @cached_property
    def unindexed(self) -> set[str]:
        """The columns of the manifest that lack an index."""
        return set(self.manifest.missing_indexes())

    # Files

    @property
    def history(self) -> History:
        """What the snapshots before this one consist of."""
        return self.survey.history(self.manifest)

    def leaves_by_folder(self) -> dict[str, RawRow]:
        """The rows of leaves by the folders that they are in."""
        return {row.location: row for row in self.leaves() if row.location}

    def folders(self) -> list[FolderSurvey]:
        """The folders of all leaves that some snapshot has, with what is in them."""
        if self._folders is None:
            self._folders = self.survey.folders(self._folder_needs())
        return self._folders

    def _folder_needs(self) -> dict[str, FolderNeeds]:
        earlier = self.history.versions_by_folder
        versions = {name: set(numbers) for name, numbers in earlier.items()}
        current = [(row.location, row.version) for row in self._all_leaves()]
        for location, version in (*current, *self._needed_before):
            if location:
                versions.setdefault(location, set()).add(version)
        newest = {name: row.version for name, row in self.leaves_by_folder().items()}
        published = newest.keys() if self.strong and self.head.ours else set()
        return {
            name: FolderNeeds(
                frozenset(numbers), name in newest, newest.get(name), name in published
            )
            for name, numbers in versions.items()
        }

    def _all_leaves(self) -> list[RawRow]:
        twins = [row for rows in self._twins.values() for row in rows]
        return [*self.leaves(), *(r for r in twins if r.type == TABLE and is_leaf_id(r.id))]

    def known_folders(self) -> set[str]:
        """Every folder that belongs to something: a leaf of a snapshot, or another client's."""
        locations = {row.location for row in self.of_type(TABLE) if row.location}
        locations |= {row.location for row in self._all_leaves() if row.location}
        return locations | self.history.leaf_versions.folders()

    def has_traces(self, leaf: str) -> bool:
        """Whether there is a row, a namespace or a folder of a leaf."""
        ids = (leaf, *names.namespaces_above(leaf)[-1:])
        if any(self.row(id) is not None for id in ids):
            return True
        return bool(self.survey.folders_of(leaf, self.head))

    def main_error(self, folder: FolderSurvey) -> str | None:
        """Why plain Lance cannot open a leaf; None where it can."""
        return folder.main_error


class RowGroups:
    """The rows of a manifest by what they are, each worked out when it is first asked for."""

    def __init__(self, rows: Mapping[str, RawRow], specs: Mapping[int, PartitionSpec]) -> None:
        self._rows, self._specs = rows, specs

    @cached_property
    def _types(self) -> dict[str, list[RawRow]]:
        types: dict[str, list[RawRow]] = {}
        for row in self._rows.values():
            if row.id != HEAD_ID:
                types.setdefault(row.type, []).append(row)
        return types

    def of_type(self, type: str) -> list[RawRow]:
        return self._types.get(type, [])

    @cached_property
    def leaves(self) -> list[RawRow]:
        return [row for row in self.of_type(TABLE) if is_leaf_id(row.id)]

    @cached_property
    def known_leaves(self) -> list[tuple[RawRow, PartitionSpec]]:
        specs = ((row, spec_of(row, self._specs)) for row in self.leaves)
        return [(row, spec) for row, spec in specs if spec is not None]

    @cached_property
    def timelines(self) -> dict[str, dict[int, RawRow]]:
        timelines: dict[str, dict[int, RawRow]] = {}
        for row in self.of_type(VERSION):
            version = names.leaf_version(row.id)
            if version is not None:
                leaf, number = version
                timelines.setdefault(leaf, {})[number] = row
        return timelines

    @cached_property
    def namespaces_in_use(self) -> dict[str, NamespaceUse]:
        uses: dict[str, NamespaceUse] = {}
        # Whatever order rows are in, the same leaf speaks for a namespace.
        for leaf, spec in sorted(self.known_leaves, key=lambda item: item[0].id):
            ids = [spec.namespace, *names.namespaces_above(leaf.id)]
            for depth, id in enumerate(ids):
                if id not in uses:
                    uses[id] = NamespaceUse(leaf, spec, depth)
        return uses
