"""A leaf: the Lance dataset of one partition.

A leaf is created empty, with the table's field ids. If several writers create it concurrently, one
of them wins and all of them use the same leaf. Rows are then added by detached commits, which are
not visible until the manifest refers to their version.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import lance
import lance.commit
import numpy as np
import pyarrow as pa
from lance import LanceOperation
from lance.fragment import FragmentMetadata, write_fragments

from phalanx.errors import (
    ConflictError,
    CorruptTable,
    InvalidInput,
    PhalanxError,
    StorageError,
    UnsupportedTable,
)
from phalanx.model.dialect import to_text
from phalanx.model.partition_columns import Given
from phalanx.model.predicates import Predicate
from phalanx.model.properties import ANCHOR
from phalanx.model.schema import TableSchema, field_id
from phalanx.storage import lance_errors, row_checks
from phalanx.storage.compression import NO_COMPRESSION, Compression
from phalanx.storage.field_ids import ids_of, lance_schema
from phalanx.storage.files import (
    COMMIT_MESSAGE,
    FIRST_VERSION,
    DatasetFolder,
    is_lasting,
    version_of,
)
from phalanx.storage.first_rows import FirstRows
from phalanx.storage.first_versions import FirstCommit
from phalanx.storage.head import Head
from phalanx.storage.lance_errors import LANCE_ERRORS, read_transaction
from phalanx.storage.lance_private import (
    manifest_without_rows,
    new_session,
    open_manifest,
    take_rows,
)
from phalanx.storage.lance_types import cut, may_be_sliced, stored_batches, stored_table
from phalanx.storage.layouts import layout_of
from phalanx.storage.leaf_delta import LeafDelta, Written
from phalanx.storage.location import Location, leaf_session
from phalanx.storage.mapping import (
    ADDRESS,
    FRAGMENT_BITS,
    ROW_ID,
    LeafMapping,
    Reading,
    UnfitValue,
    mapping_of,
)
from phalanx.storage.physical_names import physical_schema
from phalanx.storage.records import DataFileRow, FragmentSize, LeafChange, LeafRow

#: The version of a newly created leaf, which has no rows.
EMPTY_VERSION = FIRST_VERSION
#: How many rows a file has at most where nobody says so, as in Lance.
_FILE_ROWS = 1024 * 1024
#: How many versions of a leaf are followed back before its changes count as unknown.
_LONGEST_LINE = 1000
#: Rows up to this size are read at once. Lance would read some columns only where a filter matches,
#: which pays in large files and for wide rows.
_NARROW_BYTES = 512
#: By how many files it is judged how large the rows of a leaf are.
_JUDGED_FILES = 4
#: The largest batch that is read from a leaf, in bytes and in rows. Lance's default of 8,192 rows
#: would make many small batches of narrow rows.
BATCH_BYTES = 8 * 1024 * 1024
BATCH_ROWS = 65_536


#: What Lance writes in the place of the id of a field that is in a file and not to be read.
GONE = -2


class Leaf:
    """A leaf's folder and the operations on it.

    Rows are written and read with the table's schema, whatever schema the leaf itself has. Their
    ids are their addresses: a leaf of ours has no others. One that another client has made may have
    ids that a row keeps when it moves.
    """

    def __init__(
        self,
        location: Location,
        folder: str,
        schema: TableSchema,
        given: Given = (),
        stored: TableSchema | None = None,
        is_shared: bool = False,
        compression: Compression = NO_COMPRESSION,
        begins_on_main: bool = False,
    ) -> None:
        """`given` are columns whose values come from the partition and not from files.

        `stored` are the columns that new files hold; all of the table's if it is None. `is_shared`
        says that another client may have put a dataset of its own in the place of a new leaf.
        `compression` is that of new files. `begins_on_main` says that the first rows of a new leaf
        are committed on its main branch.
        """
        self.location, self.folder, self.schema = location, folder, schema
        self.compression = compression
        self._is_shared, self.begins_on_main = is_shared, begins_on_main
        self.given, self.stored = given, stored or schema
        self.uri = location.child(folder)
        #: Whether a commit through this object has rewritten existing rows.
        self.rewrote_rows = False
        #: Whether a commit through this object was the first, and main may show rows of others.
        self.hides_rows = False

    @staticmethod
    def of(location: Location, head: Head, row: LeafRow) -> Leaf:
        """A leaf of a table."""
        return Leaf.at(location, head, row.location, row.spec_id, row.keys)

    @staticmethod
    def at(location: Location, head: Head, folder: str, spec_id: int, keys: Sequence[Any]) -> Leaf:
        """The leaf of a table with some partition values, which may not exist yet."""
        given, stored = head.given(spec_id, keys), head.stored_schema(spec_id)
        is_shared = head.ours and layout_of(head.properties).SHARED
        begins_on_main = (
            location.is_local
            and head.ours
            and head.transactions == "strong"
            and not is_shared
            and ANCHOR.of(head.properties) != "never"
            and not _has_dictionaries(stored)
        )
        return Leaf(
            location,
            folder,
            head.schema,
            given,
            stored,
            is_shared,
            head.compression,
            begins_on_main,
        )

    def open(self, version: int | None) -> Any:
        """Open the Lance dataset at a version, detached or on main, or at the newest on main."""
        return open_leaf(self.location, self.folder, version)

    def create(self) -> LeafWriter:
        """Create the empty leaf, or use the one that another writer has just created."""
        return self.writer_at(self.created()[0])

    def new_writer(self) -> LeafWriter:
        """A writer of files for a new leaf that begins on main: it has no version before that."""
        manifest, version = _compressing(self.stored, frozenset())
        options = self.location.options
        return LeafWriter(self, open_manifest(self.uri, manifest, options, _no_cache(), version))

    def writer_at(self, handle: Any) -> LeafWriter:
        """A writer of files for a version that is open."""
        return LeafWriter(self, self._numbered(handle))

    def check_place(self) -> None:
        """Raise InvalidInput if another client's dataset is where the leaf is to be created."""
        if self._is_shared and DatasetFolder(self.location, self.folder).is_of_others():
            raise InvalidInput(
                f"another client has made the dataset {self.uri}, where a new partition of the "
                "table belongs, so nothing was written: move the dataset elsewhere, and append its "
                "rows to the table if they belong to it"
            )

    def created(self) -> tuple[Any, bool]:
        """The empty leaf, open, and whether this call has created it.

        Raises InvalidInput if there is a dataset of another client.
        """
        try:
            handle = lance.LanceDataset.commit(
                self.uri,
                LanceOperation.Overwrite(lance_schema(self.stored), []),
                max_retries=0,
                storage_options=self.location.options,
                commit_message=self._message,
            )
            return handle, True
        except OSError as error:
            self.check_place()
            # Another client may have cleaned up version 1: any version will do.
            for version in (EMPTY_VERSION, None):
                with contextlib.suppress(CorruptTable):
                    return self.open(version), False
            if lance_errors.is_full(error):
                raise lance_errors.store_error(self.uri, error, self.location.options) from None
            reason = self.location.reason(error)
            raise StorageError(f"cannot make the leaf {self.uri}: {reason}") from None

    @property
    def _message(self) -> str | None:
        """What commits on main say. In a tree of others none says that the leaf is ours."""
        return None if self.schema.is_by_name else COMMIT_MESSAGE

    def _numbered(self, handle: Any) -> Any:
        """A version of the leaf with the stored fields and their ids, to write files for.

        The first version of a dataset numbers its fields from 0, and later ones may have an earlier
        schema. The version committed here has no rows, and nothing refers to it.
        """
        if self.is_current(handle):
            return handle
        if self.schema.is_by_name:
            if self._is_blank(handle):
                return self.open(self._numbered_main())
            raise UnsupportedTable(
                f"the leaf {self.uri} has other columns, or other ids of columns, than the first "
                "leaf of its tree, so no rows can be added to it: import the tree into a table"
            )
        return self._commit(handle, LanceOperation.Overwrite(lance_schema(self.stored), []))

    def compressing(self, columns: frozenset[int]) -> Any:
        """A version to write files for in which some columns are compressed.

        It is in memory only: the files do not need it to be read. It has a session of its own, so
        that nobody takes it for a version that the leaf really has.
        """
        manifest, version = _compressing(self.stored, columns)
        return open_manifest(self.uri, manifest, self.location.options, None, version)

    def _is_blank(self, handle: Any) -> bool:
        """Whether a version has the stored columns, whatever their ids, and never had rows."""
        is_first = handle.version == EMPTY_VERSION and not handle.get_fragments()
        return is_first and bool(handle.schema.equals(self.stored.arrow))

    def is_current(self, handle: Any) -> bool:
        """Whether a version has the schema that new files have."""
        return bool(handle.lance_schema == lance_schema(self.stored))

    def _mapping(self, handle: Any) -> LeafMapping:
        return mapping_of(handle.lance_schema, handle, self.schema)

    def _commit(self, handle: Any, operation: LanceOperation.BaseOperation) -> Any:
        return lance.LanceDataset.commit(
            handle,
            operation,
            read_version=handle.version,
            detached=True,
            storage_options=self.location.options,
        )

    def writer(self, version: int | None) -> LeafWriter:
        """A writer of files for a version, or for the newest on main."""
        return self.writer_at(self.open(version))

    def commit(self, base: int | None, delta: LeafDelta, whole: bool = True) -> int:
        """Commit a change on top of a version, detached, and return the new version.

        `base` is None for a leaf without rows: one that is new, or that was removed from the table
        and is added again. The first rows of a new leaf may be committed on main, if they are
        the `whole` change that the transaction makes to it.

        If files are added to a version with an earlier schema, the version is first brought up to
        the table's schema. Raises ConflictError for files that were written for another schema.
        """
        self._check_files(delta)
        if base is None:
            return self._commit_first(delta, whole)
        handle = self.open(base)
        if delta.added and not delta.replaced and not self.is_current(handle):
            handle, delta = self._brought_up(handle, delta)
        return int(self._commit(handle, delta.operation(self.stored)).version)

    def _commit_first(self, delta: LeafDelta, whole: bool) -> int:
        """Commit a change to a leaf without rows."""
        first = None
        only_adds = delta == LeafDelta(added=delta.added)
        fragments = [fragment for part in delta.added for fragment in part.fragments]
        if self.begins_on_main:
            rows = FirstRows(self.uri, self.stored, fragments) if only_adds and fragments else None
            version = rows.on_main() if rows is not None and whole else None
            if version is not None:
                return version
            # Another writer may have been faster, or have died before it could commit.
            self.hides_rows = True
            version = None if rows is None else rows.detached()
            if version is not None:
                return version
        elif self.location.is_local and only_adds:
            first = FirstCommit(self.uri, self.stored, fragments)
            version = first.write()
            if version is not None:
                return version
        handle = None
        if delta.added:  # files were written, so the leaf has been created
            with contextlib.suppress(CorruptTable):
                handle = self._numbered(self.open(EMPTY_VERSION))
        if handle is None:
            handle = self._numbered(self.created()[0])
        # Another client may have created the leaf together with rows.
        if handle.version != EMPTY_VERSION or handle.get_fragments():
            delta, first = replace(delta, replaced=True), None
        committed = self._commit(handle, delta.operation(self.stored))
        if first is not None:
            first.learn(committed)
        return int(committed.version)

    def _check_files(self, delta: LeafDelta) -> None:
        """Raise ConflictError for files that would be misread with the table's schema."""
        table_ids, needed = self.schema.id_set, self._needed
        written = (*delta.added, *(part.new for part in delta.rewritten))
        for file in (f for part in written for frag in part.fragments for f in frag.files):
            have = set(file.fields) - {GONE}
            lost = next((name for name, ids in needed if not have & ids), None)
            if not have <= table_ids or lost is not None:
                what = "other columns" if lost is None else f"none for {lost!r}"
                raise ConflictError(
                    f"the file {file.path} was written for another schema than the table "
                    f"{self.location.uri} has (it has {what}): nothing was changed, try again"
                )

    @property
    def _needed(self) -> list[tuple[str, frozenset[int]]]:
        """The columns, with their ids, that every new file must hold."""
        if not self.given:
            return self.schema.always_written
        given = {id for id, _ in self.given}
        needed = [(name, ids) for name, ids in self.schema.always_written if not ids & given]
        stored = ((field.name, field_id(field)) for field in self.stored.tagged)
        return needed + [(name, frozenset({id})) for name, id in stored if id in given]

    def _schema_with_more(self, handle: Any) -> TableSchema | None:
        """The schema of a version once files are added to it; None if no column would be left.

        A column that the partition gives is in it if all files hold it: a plain Lance reader would
        see NULL in the others.
        """
        if not self.given:
            return self.stored
        given = {id for id, _ in self.given}
        held = {id: column.type for id, column in self._physical(handle).columns.items()}
        fields = [
            field
            for field in self.stored.tagged
            if field_id(field) not in given or held.get(field_id(field)) == field.type
        ]
        if not fields:
            return None
        return TableSchema(pa.schema(fields, metadata=self.stored.tagged.metadata))

    def _holds_all(self, handle: Any, mapping: LeafMapping, schema: TableSchema) -> bool:
        """Whether the files of a version hold the columns of a schema, each at least one."""
        fragments = [fragment.metadata for fragment in handle.get_fragments()]
        ids = [{id for file in fragment.files for id in file.fields} for fragment in fragments]
        return mapping.needs_no_files(self.given) and not any(map(schema.id_set.isdisjoint, ids))

    def _physical(self, handle: Any) -> TableSchema:
        return TableSchema.numbered(handle.schema, ids_of(handle.lance_schema))

    def _brought_up(self, handle: Any, delta: LeafDelta) -> tuple[Any, LeafDelta]:
        """Bring a version up to the table's schema; returns it and what remains of the change.

        If the files hold all values, only the version's metadata changes. Rows are rewritten if
        values must be computed, because a type was widened or a column has a default, and if a file
        has no column left: Lance does not read a file without data.
        """
        mapping, schema = self._mapping(handle), self._schema_with_more(handle)
        if schema is not None and self._holds_all(handle, mapping, schema):
            if handle.lance_schema == lance_schema(schema):
                return handle, delta
            projection = LanceOperation.Project(lance_schema(schema))
            return self._commit(handle, projection), delta
        if delta.touched:
            updated, removed = list(delta.updated.values()), sorted(delta.removed)
            handle = self._commit(handle, LanceOperation.Delete(updated, removed, ""))
        stored = self.stored.stored
        reading = mapping.reading(stored.names, self.given)
        batches = scanned(self.location, self.uri, handle, mapping, reading, None)
        rows = stored_batches(batches, stored)
        self.rewrote_rows = True
        rewritten = LeafWriter(self, self._numbered(handle)).write_batches(rows, stored)
        overwrite = LeafDelta(added=(rewritten,), replaced=True).operation(self.stored)
        return self._commit(handle, overwrite), LeafDelta(added=delta.added)

    def commit_on_main(self, base: int | None, delta: LeafDelta) -> int:
        """Commit a change on the main branch, visible to all readers, and return its version.

        Raises ConflictError if another writer has changed the same rows since `base`.
        """
        self._check_files(delta)
        if base is None:
            self.created()
            base = self._numbered_main()
        try:
            committed = lance.LanceDataset.commit(
                self.open(base),
                delta.operation(self.stored),
                read_version=base,
                storage_options=self.location.options,
                commit_message=self._message,
            )
        except (OSError, lance.commit.CommitConflictError) as error:
            # The commit may have landed even if its reply was lost: main then has its files.
            main = self.open(None)
            if delta.paths and delta.paths <= _paths(main):
                return int(main.version)
            if not lance_errors.is_lost_race(error, self.uri):
                raise
            reason = self.location.reason(error)
            raise ConflictError(
                f"the leaf {self.uri} was changed by another writer at the same time: {reason}"
            ) from None
        return int(committed.version)

    def _numbered_main(self) -> int:
        """The newest version on main. If it has no rows, it gets the stored fields and their ids.

        Lance numbers the fields of the first version from 0. Of several writers who renumber them
        at the same time, one wins, and all have written files for the same fields.
        """
        main = self.open(None)
        if self.is_current(main):
            return int(main.version)
        if main.get_fragments():
            if self._is_numbered_otherwise(main):
                raise UnsupportedTable(
                    f"another client has added rows to the leaf {self.uri} before its columns had "
                    "the ids of the table, so none were added now: move that dataset elsewhere, "
                    "and append its rows to the table"
                )
            return int(main.version)
        try:
            main = lance.LanceDataset.commit(
                main,
                LanceOperation.Project(lance_schema(self.stored)),
                read_version=main.version,
                max_retries=0,
                storage_options=self.location.options,
                commit_message=self._message,
            )
        except (OSError, lance.commit.CommitConflictError):
            main = self.open(None)
            if not self.is_current(main):
                raise
        return int(main.version)

    def _is_numbered_otherwise(self, main: Any) -> bool:
        """Whether a version with rows has the stored columns, and an id in it is that of another.

        Files with the table's ids would then be read as other columns, and its own as well.
        """
        held = {field.name(): field.id() for field in main.lance_schema.fields()}
        stored = {field.name(): field.id() for field in lance_schema(self.stored).fields()}
        names = {id: name for name, id in stored.items()}
        return list(held) == list(stored) and any(
            names.get(id, name) != name for name, id in held.items()
        )

    def trusting_files(self, version: int | None) -> Leaf:
        """The leaf with the columns that a version has read from its files.

        Rows that another client has added may belong to another partition.
        """
        held = self._physical(self.open(version)).id_set
        given = tuple((id, key) for id, key in self.given if id not in held)
        return Leaf(
            self.location,
            self.folder,
            self.schema,
            given,
            self.stored,
            self._is_shared,
            self.compression,
            self.begins_on_main,
        )

    def fragment_ids(self, version: int) -> frozenset[int]:
        """The ids of the fragments of a version."""
        return frozenset(fragment.fragment_id for fragment in self.open(version).get_fragments())

    def newest(self) -> int:
        """The newest version on main."""
        return int(self.open(None).version)

    def delete(self, version: int | None, where: Predicate) -> tuple[LeafDelta, int]:
        """Mark the rows of a version that satisfy a predicate as deleted, and count them.

        Only deletion files are written. Nothing refers to them until the change is committed.
        """
        handle = self.open(version)
        mapping = self._mapping(handle)
        with evaluating(self.location, self.uri, mapping, where, self.given) as filter:
            return _marked((f, f.delete(filter)) for f in handle.get_fragments())

    def delete_rows(self, version: int, ids: Any) -> tuple[LeafDelta, int]:
        """Mark rows as deleted by their ids, an array of numbers, and count them."""
        handle, fragments = self.open(version), ids >> FRAGMENT_BITS
        groups = ((n, ids[fragments == n]) for n in sorted(set(fragments.tolist())))
        rows = ((handle.get_fragment(n), part & (2**FRAGMENT_BITS - 1)) for n, part in groups)
        with evaluating(self.location, self.uri, self._mapping(handle), None):
            return _marked((f, f.delete_rows(offsets.tolist())) for f, offsets in rows)

    def size(self, version: int | None) -> tuple[int, int]:
        """The size of a version's data files in bytes, and the number of its fragments."""
        fragments = self.open(version).get_fragments()
        files = [file for fragment in fragments for file in fragment.metadata.files]
        return sum(file.file_size_bytes or 0 for file in files), len(fragments)

    def changes(self, since: int, until: int) -> list[LeafChange] | None:
        """The changes from one version to a later one, newest first.

        None if they cannot be determined, for example because `until` is not based on `since`.
        """
        changes: list[LeafChange] = []
        version = until
        while version != since:
            try:
                transaction = read_transaction(self.open(version), version)
            except CorruptTable:
                return None
            if transaction is None or len(changes) > _LONGEST_LINE:
                return None
            changes.append(_change_of(transaction.operation))
            version = transaction.read_version
        return changes

    def data_files(self, version: int | None) -> Iterator[DataFileRow]:
        """The data files of a version."""
        handle = self.open(version)
        bases = {id: base.path for id, base in handle.base_paths().items()}
        for fragment in handle.get_fragments():
            for file in fragment.metadata.files:
                yield DataFileRow(
                    f"{bases.get(file.base_id, self.uri)}/data/{file.path}",
                    fragment.fragment_id,
                    fragment.metadata.physical_rows,
                    fragment.num_deletions,
                    file.file_size_bytes,
                )

    def scan(
        self,
        version: int | None,
        columns: Sequence[str],
        where: Predicate | None,
        limit: int | None = None,
        in_order: bool = True,
        whole: bool = False,
        fragments: Sequence[int] | None = None,
        row_ids: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a version that satisfy a predicate, in batches.

        With `whole` the leaf is read in one go: in a small leaf, setting up a stream would take
        longer than reading it. With `fragments` only those fragments are read, and `row_ids` adds a
        column `_rowid`. Raises InvalidInput if Lance cannot evaluate the predicate, and
        CorruptTable if a file is missing or damaged.
        """
        handle = self.open(version)
        mapping = self._mapping(handle)
        yield from scanned(
            self.location,
            self.uri,
            handle,
            mapping,
            mapping.reading(columns, self.given),
            where,
            given=self.given,
            whole=whole,
            row_ids=row_ids,
            limit=limit,
            batch_size=BATCH_ROWS,
            batch_size_bytes=BATCH_BYTES,
            scan_in_order=in_order,
            fragments=_chosen(handle, fragments),
        )

    def take(self, version: int | None, ids: Any, columns: Sequence[str]) -> pa.Table:
        """Columns of some rows by their ids, an array of numbers, in that order."""
        handle = self.open(version)
        mapping = self._mapping(handle)
        reading = mapping.reading(columns, self.given)
        rows = pa.table({ROW_ID: ids})
        if reading.columns:
            with evaluating(self.location, self.uri, mapping, None):
                rows = take_rows(handle, _lance_ids(handle, ids), reading.columns)
        (batch,) = rows.combine_chunks().to_batches() or [
            pa.RecordBatch.from_pylist([], rows.schema)
        ]
        return pa.Table.from_batches([reading.batch(batch, False)])

    def count(
        self,
        version: int | None,
        where: Predicate | None,
        fragments: Sequence[int] | None = None,
    ) -> int:
        """How many rows of a version, or of some of its fragments, satisfy a predicate."""
        handle = self.open(version)
        mapping = self._mapping(handle)
        with evaluating(self.location, self.uri, mapping, where, self.given) as filter:
            chosen = _chosen(handle, fragments)
            if chosen is None:
                return int(handle.count_rows(filter))
            return sum(int(fragment.count_rows(filter)) for fragment in chosen)


class LeafWriter:
    """Writes files for a leaf. Nothing refers to them until they are committed."""

    def __init__(self, leaf: Leaf, handle: Any) -> None:
        self._leaf, self._handle = leaf, handle

    def write(self, table: pa.Table, max_rows: int | None = None) -> Written:
        """Write rows as new files of the leaf, or of this many rows each if `max_rows` is given."""
        if self._leaf.stored is not self._leaf.schema:
            table = table.select(self._leaf.stored.tagged.names)
        limits = {} if max_rows is None else {"max_rows_per_file": max_rows}
        return self.write_batches(stored_table(table), table.schema, **limits)

    def write_stream(
        self, batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int
    ) -> Written:
        """Write a stream of rows as new files of at most about these sizes."""
        stored = self._leaf.stored.stored
        rows: Any = stored_batches(batches, stored)
        if isinstance(batches, list):  # all rows are in memory: a stream would only be slower
            rows = pa.Table.from_batches(rows, stored)
        return self.write_batches(
            rows, stored, max_rows_per_file=max_rows, max_bytes_per_file=max_bytes
        )

    def write_batches(
        self, rows: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema, **limits: Any
    ) -> Written:
        """Write rows that already have the memory layout that Lance accepts.

        A PhalanxError raised by the rows themselves is raised unchanged.
        """
        failures: list[PhalanxError] = []
        if not may_be_sliced(schema):
            size = limits.setdefault("max_rows_per_file", _FILE_ROWS)
            if isinstance(rows, pa.Table):
                rows = pa.Table.from_batches(cut(rows.to_batches(), size), rows.schema)
            else:
                rows = cut(rows, size)
        rows, handle = self._compressed(rows)
        physical = physical_schema(schema, self._leaf.stored.tagged.names)
        if physical is not schema:
            rows, schema = _renamed(rows, physical), physical
        if not isinstance(rows, pa.Table):
            rows = pa.RecordBatchReader.from_batches(schema, _watched(rows, failures))
        options = self._leaf.location.options
        try:
            fragments = write_fragments(
                rows, handle, schema=schema, storage_options=options, **limits
            )
        except LANCE_ERRORS:
            if failures:  # Lance has turned the error into text, with a traceback
                raise failures[0] from None
            raise
        return Written(tuple(fragments))

    def _compressed(
        self, rows: pa.Table | Iterable[pa.RecordBatch]
    ) -> tuple[pa.Table | Iterable[pa.RecordBatch], Any]:
        """Rows, and the version to write them for: it says which columns are compressed."""
        leaf = self._leaf
        if leaf.compression.is_off or leaf.schema.is_by_name:
            return rows, self._handle
        sample = rows
        if not isinstance(rows, pa.Table):
            head, rows = _peeked(rows)
            if not head:
                return rows, self._handle
            sample = pa.Table.from_batches(head)
        columns = frozenset(leaf.compression.columns(leaf.stored, sample))
        return rows, leaf.compressing(columns) if columns else self._handle


@lru_cache(maxsize=64)
def _has_dictionaries(schema: TableSchema) -> bool:
    """Whether a column is dictionary-encoded: Lance then reads the version that it writes for."""

    def has(type: pa.DataType) -> bool:
        if isinstance(type, pa.BaseExtensionType):
            return has(type.storage_type)
        if pa.types.is_dictionary(type):
            return True
        return any(has(type.field(i).type) for i in range(type.num_fields))

    return any(has(field.type) for field in schema.arrow)


@cache
def _no_cache() -> Any:
    """For versions in memory only, which no leaf really has: it remembers nothing of them."""
    return new_session(0, 0)


@lru_cache(maxsize=64)
def _compressing(schema: TableSchema, columns: frozenset[int]) -> tuple[bytes, int]:
    return manifest_without_rows(lance_schema(schema, columns))


def _peeked(
    batches: Iterable[pa.RecordBatch],
) -> tuple[list[pa.RecordBatch], Iterable[pa.RecordBatch]]:
    """The first batches, enough to try a column, and all of them."""
    rest, head, size = iter(batches), [], 0
    for batch in rest:
        head.append(batch)
        size += batch.nbytes
        if size >= BATCH_BYTES:
            break
    return head, itertools.chain(head, rest)


def _renamed(
    rows: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema
) -> pa.Table | Iterable[pa.RecordBatch]:
    """Rows with other names of their columns."""
    if isinstance(rows, pa.Table):
        return pa.Table.from_arrays(rows.columns, schema=schema)
    return (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows)


def rewritten_version(location: Location, folder: str, since: int, until: int) -> int | None:
    """The version between two others that holds the rows of `since`, rewritten for a new schema.

    None if there is none, or if rows were added before it. The caller must make sure that no rows
    were removed in between.
    """
    version = until
    for _ in range(_LONGEST_LINE):
        try:
            handle = open_leaf(location, folder, version)
        except CorruptTable:
            return None  # the first rows of a leaf name a version that never was
        transaction = read_transaction(handle, version)
        if transaction is not None and isinstance(transaction.operation, LanceOperation.Overwrite):
            before = open_leaf(location, folder, since)
            same = transaction.read_version == since and handle.count_rows() == before.count_rows()
            return version if same else None
        same_rows = LanceOperation.Append | LanceOperation.CreateIndex
        if transaction is None or not isinstance(transaction.operation, same_rows):
            return None
        version = transaction.read_version
    return None


def _change_of(operation: Any) -> LeafChange:
    """How a Lance operation changes the rows of a leaf."""
    match operation:
        case LanceOperation.Append():
            return LeafChange(frozenset(), adds_rows=True)
        case LanceOperation.Delete():
            updated = frozenset(fragment.id for fragment in operation.updated_fragments)
            removed = frozenset(operation.deleted_fragment_ids)
            return LeafChange(updated | removed, removes_rows=True)
        case LanceOperation.Update():
            updated = frozenset(fragment.id for fragment in operation.updated_fragments)
            removed = frozenset(operation.removed_fragment_ids)
            return LeafChange(updated | removed, bool(operation.new_fragments), removes_rows=True)
        case LanceOperation.Rewrite():
            old = (f.id for group in operation.groups for f in group.old_fragments)
            return LeafChange(frozenset(old))
        case LanceOperation.CreateIndex():
            return LeafChange(frozenset(), changes_indexes=True)
    return LeafChange(None, adds_rows=True, removes_rows=True)


def fragments_of(location: Location, folder: str, version: int | None) -> list[FragmentSize]:
    """The fragments of a version of a leaf, sorted by id."""
    fragments = open_leaf(location, folder, version).get_fragments()
    sizes = [fragment_size(fragment.metadata) for fragment in fragments]
    return sorted(sizes, key=lambda fragment: fragment.id)


def _is_narrow(handle: Any) -> bool:
    """Whether the rows of a dataset are small, judged by its first files, and have no index."""
    first = itertools.islice(handle.get_fragments(), _JUDGED_FILES)
    return not handle.has_index and are_narrow([fragment.metadata for fragment in first])


def are_narrow(fragments: Sequence[FragmentMetadata]) -> bool:
    """Whether rows are so small that to read all of them takes less than to choose some first."""
    size = sum(file.file_size_bytes or 0 for fragment in fragments for file in fragment.files)
    rows = sum(fragment.physical_rows for fragment in fragments)
    return 0 < size <= rows * _NARROW_BYTES


def fragment_size(fragment: FragmentMetadata, indexed: bool = False) -> FragmentSize:
    """The size of a fragment, from Lance's metadata."""
    deletions = fragment.num_deletions
    return FragmentSize(
        fragment.id,
        fragment.physical_rows - deletions,
        sum(file.file_size_bytes or 0 for file in fragment.files),
        deletions,
        frozenset(file.path for file in fragment.files),
        indexed,
    )


def open_leaf(location: Location, folder: str, version: int | None) -> Any:
    """Open the Lance dataset of a leaf at a version, or at the newest on main.

    Raises CorruptTable if the version does not exist, and PhalanxError if the store cannot be
    reached.
    """
    uri = location.child(folder)
    try:
        return location.open(uri, version, leaf_session())
    except LANCE_ERRORS as error:
        raise lance_errors.leaf_error(uri, version, error, location.options) from None


def scanned(
    location: Location,
    uri: str,
    handle: Any,
    mapping: LeafMapping,
    reading: Reading,
    where: Predicate | None,
    given: Given = (),
    whole: bool = False,
    row_ids: bool = False,
    narrow: bool | None = None,
    **options: Any,
) -> Iterator[pa.RecordBatch]:
    """Scan a Lance dataset and yield its rows as rows of the table.

    `narrow` says whether its rows are small and have no index; None if that is not known yet.
    """
    # A row is named by its address. In most leaves that is its id, which takes less to read.
    by_address = row_ids and handle.has_stable_row_ids
    # If no column is read, row ids show how many rows there are.
    counted = row_ids or reading.is_counted
    rest, checks = row_checks.split(where, reading.names)
    if checks and narrow is None:
        narrow = _is_narrow(handle)
    if narrow and options.get("limit") is None:
        where = rest
    else:
        checks = ()
    with evaluating(location, uri, mapping, where, given) as filter:
        scanner = handle.scanner(
            columns=reading.columns,
            filter=filter,
            with_row_id=counted and not by_address,
            with_row_address=by_address or reading.by_address,
            **options,
        )
        # Small files yield small batches, and every later step is faster with one large batch.
        if whole:
            batches = scanner.to_table().combine_chunks().to_batches()
        else:
            batches = scanner.to_batches()
        for batch in batches:
            if by_address:
                names = batch.schema.names
                batch = batch.rename_columns([ROW_ID if n == ADDRESS else n for n in names])
            yield row_checks.passing(reading.batch(batch, row_ids), checks)


@contextlib.contextmanager
def evaluating(
    location: Location,
    uri: str,
    mapping: LeafMapping,
    where: Predicate | None,
    given: Given = (),
) -> Iterator[str | None]:
    """The filter of a predicate for a leaf, in a context that translates Lance's errors.

    A filter that Lance rejects raises InvalidInput, and a missing or damaged file CorruptTable.
    Errors that may be temporary, such as network errors, are raised unchanged.
    """
    try:
        yield None if where is None else mapping.filter(where, given)
    except UnfitValue as error:
        raise UnsupportedTable(f"of the leaf {uri}, {error}") from None
    except (ValueError, OSError) as error:
        lance_errors.raise_interrupt(error)
        if lance_errors.is_damage(error):
            raise lance_errors.damaged_leaf(uri, error, location.options) from None
        if where is None or not lance_errors.refuses_filter(error):
            raise
        raise lance_errors.refused_filter(to_text(where), error) from None


def _marked(fragments: Iterable[tuple[Any, FragmentMetadata | None]]) -> tuple[LeafDelta, int]:
    """The change to fragments in which rows were marked as deleted, and the number of those rows.

    Each fragment comes with its new metadata, or None if none of its rows is left.
    """
    updated: dict[int, FragmentMetadata] = {}
    removed = set()
    count = 0
    for fragment, after in fragments:
        before = fragment.num_deletions
        if after is None:
            removed.add(fragment.fragment_id)
            count += fragment.physical_rows - before
        elif after.num_deletions > before:
            updated[fragment.fragment_id] = after
            count += after.num_deletions - before
    return LeafDelta(updated=updated, removed=frozenset(removed)), count


def _lance_ids(handle: Any, addresses: Any) -> Any:
    """The ids by which Lance takes the rows at some addresses."""
    if not handle.has_stable_row_ids:
        return addresses
    known = handle.scanner(columns=[], with_row_id=True, with_row_address=True).to_table()
    have = np.asarray(known.column(ADDRESS))
    order = np.argsort(have)
    places = order[np.searchsorted(have[order], np.asarray(addresses))]
    return np.asarray(known.column(ROW_ID))[places]


def _chosen(handle: Any, fragments: Sequence[int] | None) -> list[Any] | None:
    return None if fragments is None else [handle.get_fragment(id) for id in fragments]


def _watched(
    batches: Iterable[pa.RecordBatch], failed: list[PhalanxError]
) -> Iterator[pa.RecordBatch]:
    """Pass batches on to Lance, and record the error that ends them."""
    try:
        yield from batches
    except PhalanxError as error:
        failed.append(error)
        raise


def _paths(handle: Any) -> frozenset[str]:
    fragments = [fragment.metadata for fragment in handle.get_fragments()]
    return frozenset(file.path for fragment in fragments for file in fragment.files)


def leaf_schema(location: Location, folder: str) -> TableSchema:
    """The columns of a leaf at its newest version on main, with the ids that they have there."""
    handle = open_leaf(location, folder, None)
    return TableSchema.numbered(handle.schema, ids_of(handle.lance_schema))


def has_lasting_versions(location: Location, folder: str) -> bool:
    """Whether a leaf on disk belongs, or belonged, to a strong table: its rows may be on no branch.

    In an object store it would take a listing of the leaf to find out, so nobody looks.
    """
    if location.path is None:
        return False
    with contextlib.suppress(OSError):
        names = os.listdir(location.path / folder / "_versions")
        return any(is_lasting(version_of(f"_versions/{name}")) for name in names)
    return False
