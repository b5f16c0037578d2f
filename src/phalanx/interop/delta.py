"""Delta tables: a snapshot as one, kept up to date at little cost, and a table made from one."""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from phalanx.errors import ConflictError, InvalidInput, PhalanxError, StorageError, UnsupportedTable
from phalanx.interop import delta_log, rows
from phalanx.interop.delta_log import Action, DeltaState
from phalanx.interop.delta_types import (
    has_unzoned,
    partition_value,
    schema_json,
    stats_json,
    stored_column,
    stored_field,
)
from phalanx.interop.incoming import check_schema, create_with_rows
from phalanx.interop.rows import ExportedFile, Layout
from phalanx.interop.types import relaxed
from phalanx.model.schema import TableSchema
from phalanx.model.specs import CustomField
from phalanx.model.statistics import measured_columns
from phalanx.storage.records import LeafRow
from phalanx.table.format import count_text
from phalanx.table.partitioned_writer import BUFFER_BYTES
from phalanx.table.table import Table
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot

#: The property of a Delta table that says which table it was exported from.
TABLE = "phalanx.table"
#: The tag of a file that says which state of which leaf it holds, and of how many files that is.
LEAF, FILES = "phalanx.leaf", "phalanx.files"
#: Features of writers that an export honors, whether it uses them or not.
_HONORED = {
    *("materializePartitionColumns", "timestampNtz", "invariants", "appendOnly"),
    *("deletionVectors", "vacuumProtocolCheck"),
}
#: How often an export is planned again after somebody else has written to the Delta table.
_ATTEMPTS = 20


@dataclass(frozen=True)
class DeltaExport:
    """What an export has changed."""

    path: str
    #: The version of the table.
    version: int
    #: The version of the Delta table.
    delta_version: int
    files_added: int
    files_removed: int
    files_kept: int
    #: Rows in the files that were added.
    rows_added: int

    def __str__(self) -> str:
        return (
            f"{self.path}: version {self.version} as version {self.delta_version} of the Delta "
            f"table, {count_text(self.files_added, 'file')} added with "
            f"{count_text(self.rows_added, 'row')}, {self.files_removed:,} removed, "
            f"{self.files_kept:,} kept"
        )


def export(
    table: Table,
    path: str | os.PathLike[str],
    *,
    partition_by: Sequence[str] | None = None,
    overwrite: bool = False,
) -> DeltaExport:
    """Make a Delta table of a table's snapshot, or bring one up to date.

    The first export writes all rows. Another one to the same folder writes the leaves that have
    changed since, and is one version of the Delta table; if nothing has changed, it does nothing.
    Readers see the version before until all files are written.

    Args:
        table: The table. What other writers commit meanwhile is not exported.
        path: The folder of the Delta table, on a file system.
        partition_by: The partition columns of the Delta table. By default those that the table is
            partitioned by as they are; `[]` is for none.
        overwrite: Replace the rows of a Delta table that was not exported from this table, or that
            others have written to.

    Raises:
        InvalidInput: The folder holds something else, or a column or value cannot be stored.
        UnsupportedTable: The Delta table there has features that an export cannot honor.
        ConflictError: Others keep writing to the Delta table.
        StorageError: A file cannot be written.
    """
    folder = rows.local_folder(path, "the target of an export")
    rows.refuse_overlap(folder, table)
    job = _DeltaJob(table._snapshot, folder, partition_by, overwrite)
    try:
        return job.run()
    except OSError as error:
        if isinstance(error, PhalanxError):
            raise
        raise StorageError(f"cannot write to {folder}: {error}") from error


class _DeltaJob:
    def __init__(
        self,
        snapshot: Snapshot,
        folder: Path,
        partition_by: Sequence[str] | None,
        overwrite: bool,
    ) -> None:
        self._snapshot, self._folder, self._overwrite = snapshot, folder, overwrite
        self._columns = rows.partition_columns(snapshot, partition_by)
        self._partition_names = [column.path[0] for column in self._columns]
        #: The columns in the order of the table.
        self._schema = pa.schema([stored_field(field) for field in snapshot.head.schema.stored])
        _refuse_like_names(self._schema)
        data = [
            field.with_type(relaxed(field.type))
            for field in self._schema
            if field.name not in self._partition_names
        ]
        partitions = [self._schema.field(name) for name in self._partition_names]
        #: The columns in the order of the files: the writer feature puts partition columns last.
        self._file_schema = TableSchema.assign(pa.schema([*data, *partitions]))
        self._written: dict[str, list[Action]] = {}
        self._rows: dict[str, int] = {}

    def run(self) -> DeltaExport:
        snapshot = self._snapshot
        leaves = {
            self._state_of(leaf): leaf for leaf in snapshot.leaves.rows() if leaf.row_count != 0
        }
        self._check_values(list(leaves.values()))
        for _ in range(_ATTEMPTS):
            current = delta_log.read(self._folder)
            self._check(current)
            kept = self._kept(current, leaves)
            self._write({state: leaf for state, leaf in leaves.items() if state not in kept})
            added = [add for state in leaves if state not in kept for add in self._written[state]]
            removed = [file for file in current.files.values() if _tag(file, LEAF) not in kept]
            actions = [*self._settings(current), *map(_remove, removed), *map(_add, added)]
            version = current.version
            if actions:
                version += 1
                reach("export.delta-written")
                if not delta_log.commit(self._folder, version, [self._info(), *actions]):
                    continue
            return DeltaExport(
                os.fspath(self._folder),
                snapshot.sequence,
                version,
                len(added),
                len(removed),
                len(current.files) - len(removed),
                sum(self._rows[state] for state in leaves if state not in kept),
            )
        raise ConflictError(
            f"others keep writing to the Delta table {self._folder}: try again when they are done"
        )

    def _state_of(self, leaf: LeafRow) -> str:
        """A name for the rows of a leaf as the files have them; the same only for the same rows."""
        version = uuid.uuid4().hex if leaf.read_version is None else leaf.read_version
        head = self._snapshot.head
        # A column that was dropped and added again has another id, and other values.
        columns = [self._delta_schema, head.schema.field_ids, self._partition_names]
        parts = [head.table_id, leaf.object_id, version, *columns]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @cached_property
    def _delta_schema(self) -> str:
        return schema_json(self._schema)

    def _check_values(self, leaves: Sequence[LeafRow]) -> None:
        """Raise InvalidInput for partition values that cannot be exported, before it is begun."""
        for leaf in leaves:
            texts = rows.known_values(self._snapshot, leaf, self._columns)
            if texts is not None:
                self._partition_values(texts)

    def _check(self, current: DeltaState) -> None:
        """Raise an error if the target is not ours to write."""
        folder = self._folder
        if not current.exists:
            entries = os.listdir(folder) if folder.is_dir() else []
            # The log's folder is made first: with it, files are left from an export that failed.
            if entries and delta_log.LOG not in entries:
                raise InvalidInput(
                    f"the folder {folder} is not empty and no Delta table: export to another one"
                )
            return
        protocol = current.protocol
        version, features = protocol["minWriterVersion"], protocol.get("writerFeatures") or ()
        unknown = sorted(set(features) - _HONORED)
        if unknown or 2 < version < 7 or version > 7:
            what = f"the feature {unknown[0]}" if unknown else f"writer version {version}"
            raise UnsupportedTable(
                f"the Delta table {folder} has {what}, which an export cannot honor: export to "
                "another folder"
            )
        if self._overwrite:
            return
        source = (current.metadata.get("configuration") or {}).get(TABLE)
        if source != self._snapshot.head.table_id:
            raise InvalidInput(
                f"the Delta table {folder} was not exported from {self._snapshot.location.uri}: "
                "export to another folder, or replace its rows with overwrite=True"
            )
        foreign = [file for file in current.files.values() if _tag(file, LEAF) is None]
        foreign += [file for file in current.files.values() if file.get("deletionVector")]
        if foreign:
            raise InvalidInput(
                f"others have written to the Delta table {folder}: replace its rows with "
                "overwrite=True"
            )

    def _kept(self, current: DeltaState, leaves: Mapping[str, LeafRow]) -> set[str]:
        """The leaves whose files are all in the Delta table already."""
        counts: dict[str, int] = {}
        wanted: dict[str, int] = {}
        for file in current.files.values():
            state, number = _tag(file, LEAF), _tag(file, FILES)
            if state in leaves and number and not file.get("deletionVector"):
                counts[state] = counts.get(state, 0) + 1
                wanted[state] = int(number)
        return {state for state, count in counts.items() if count == wanted[state]}

    def _write(self, leaves: Mapping[str, LeafRow]) -> None:
        """Write the files of leaves that were not written in an earlier attempt."""
        new = {state: leaf for state, leaf in leaves.items() if state not in self._written}
        delta_log.prepare(self._folder)
        exported = rows.export_leaves(
            self._snapshot, list(new.values()), self._folder, self._layout
        )
        for state, (_, files) in zip(new, exported, strict=True):
            self._written[state] = [self._added(file, state, len(files)) for file in files]
            self._rows[state] = sum(file.rows for file in files)

    @cached_property
    def _layout(self) -> Layout:
        schema = self._file_schema.arrow
        measured = [
            column
            for column in measured_columns(self._file_schema)
            if column.path[0] not in self._partition_names
        ]

        def convert(table: pa.Table) -> pa.Table:
            columns = [stored_column(table.column(field.name), field) for field in schema]
            return pa.Table.from_arrays(columns, schema=schema)

        return Layout(self._columns, schema, convert, measured, {"store_schema": False})

    def _added(self, file: ExportedFile, state: str, files: int) -> Action:
        return {
            # A path in the log is a URI.
            "path": quote(file.path, safe="/=-_.~!$&'()*+,;@"),
            "partitionValues": self._partition_values(file.values),
            "size": file.bytes,
            "modificationTime": int(file.modified * 1000),
            "dataChange": True,
            "stats": stats_json(file.rows, file.statistics, self._file_schema),
            "tags": {LEAF: state, FILES: str(files)},
        }

    def _partition_values(self, texts: Sequence[str | None]) -> dict[str, str | None]:
        return {
            name: partition_value(text, self._schema.field(name))
            for name, text in zip(self._partition_names, texts, strict=True)
        }

    def _settings(self, current: DeltaState) -> list[Action]:
        """The protocol and the metadata, where they change."""
        actions: list[Action] = []
        protocol = self._protocol(current)
        if protocol != current.protocol:
            actions.append({"protocol": protocol})
        configuration = current.metadata.get("configuration") or {}
        if self._overwrite and configuration.get(TABLE) != self._snapshot.head.table_id:
            configuration = {}
        metadata = {
            "id": current.metadata.get("id") or str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self._delta_schema,
            "partitionColumns": self._partition_names,
            "configuration": configuration | {TABLE: self._snapshot.head.table_id},
            "createdTime": current.metadata.get("createdTime") or int(time.time() * 1000),
        }
        if any(current.metadata.get(key) != value for key, value in metadata.items()):
            kept = {
                key: current.metadata[key]
                for key in ("name", "description")
                if current.metadata.get(key)
            }
            actions.append({"metaData": kept | metadata})
        return actions

    def _protocol(self, current: DeltaState) -> Action:
        """What readers and writers of the Delta table must know: what they must know now, too."""
        writer = {"materializePartitionColumns", *(current.protocol.get("writerFeatures") or ())}
        reader = set(current.protocol.get("readerFeatures") or ())
        if current.protocol.get("minWriterVersion") == 2:
            writer |= {"appendOnly", "invariants"}
        if any(has_unzoned(field.type) for field in self._schema):
            writer.add("timestampNtz")
            reader.add("timestampNtz")
        version = 3 if reader else current.protocol.get("minReaderVersion", 1)
        protocol: dict[str, Any] = {"minReaderVersion": version, "minWriterVersion": 7}
        if version == 3:
            protocol["readerFeatures"] = sorted(reader)
        protocol["writerFeatures"] = sorted(writer)
        known = dict(current.protocol)
        for name in ("readerFeatures", "writerFeatures"):
            if known.get(name) is not None:
                known[name] = sorted(known[name])
        same = {name: value for name, value in known.items() if value is not None} == protocol
        return current.protocol if same else protocol

    def _info(self) -> Action:
        return {
            "commitInfo": {
                "timestamp": int(time.time() * 1000),
                "operation": "WRITE",
                "operationParameters": {
                    "mode": "Overwrite",
                    "partitionBy": json.dumps(self._partition_names),
                },
                "engineInfo": "phalanx",
                "isBlindAppend": False,
                "phalanx.version": self._snapshot.sequence,
            }
        }


def _refuse_like_names(schema: pa.Schema) -> None:
    seen: dict[str, str] = {}
    for name in schema.names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise InvalidInput(
                f"the columns {other!r} and {name!r} are one in Delta, where names have no case: "
                "rename one"
            )


def _tag(file: Action, name: str) -> Any:
    return (file.get("tags") or {}).get(name)


def _add(add: Action) -> Action:
    return {"add": add}


def _remove(file: Action) -> Action:
    kept = ("path", "partitionValues", "size", "deletionVector", "baseRowId")
    remove = {key: file[key] for key in kept if file.get(key) is not None}
    return {
        "remove": remove
        | {
            "deletionTimestamp": int(time.time() * 1000),
            "dataChange": True,
            "extendedFileMetadata": True,
        }
    }


def import_(
    path: str | os.PathLike[str],
    uri: str | os.PathLike[str],
    partition_by: Sequence[str | CustomField] | None = None,
    schema: pa.Schema | None = None,
    *,
    version: int | None = None,
    source_options: Mapping[str, str] | None = None,
    transactions: str = "strong",
    storage_options: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    buffer_bytes: int = BUFFER_BYTES,
) -> Table:
    """Create a table from a Delta table, in one transaction and in bounded memory.

    Deletion vectors and column mapping are read. It needs the package `deltalake`, which
    `phalanx[delta]` installs.

    Args:
        path: The Delta table: a path, or a URI that `deltalake` can read.
        uri: The root of the new table.
        partition_by: The partition fields of the new table, as in `phalanx.create`. By default the
            partition columns of the Delta table.
        schema: The columns of the new table. By default those of the Delta table.
        version: The version of the Delta table. By default the newest.
        source_options: Options of the object store that the Delta table is in.
        transactions: As in `phalanx.create`.
        storage_options: Options of the object store that the new table is in.
        properties: As in `phalanx.create`.
        buffer_bytes: How many bytes of rows to hold in memory before files are written.

    Returns:
        The table, at version 1.

    Raises:
        TableExists: There is already a table at `uri`.
        InvalidInput: There is no Delta table that can be read, or its rows do not fit the schema.
    """
    check_schema(schema)
    source = _opened(path, version, source_options)
    own_schema = _without_metadata(pa.schema(source.schema().to_arrow()))
    if partition_by is None:
        partition_by = source.metadata().partition_columns
    return create_with_rows(
        uri,
        own_schema if schema is None else schema,
        partition_by,
        _reader(source, path),
        transactions=transactions,
        storage_options=storage_options,
        properties=properties,
        buffer_bytes=buffer_bytes,
    )


def _opened(path: Any, version: int | None, options: Mapping[str, str] | None) -> Any:
    try:
        import deltalake
    except ImportError:
        raise InvalidInput(
            "the package deltalake is missing: install it with pip install 'phalanx[delta]'"
        ) from None
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InvalidInput("the source of an import is a path or URI, such as 'lake/events'")
    try:
        return deltalake.DeltaTable(
            os.fspath(path), version=version, storage_options=dict(options) if options else None
        )
    except (deltalake.exceptions.DeltaError, OSError, ValueError) as error:
        raise InvalidInput(f"cannot read a Delta table at {path}: {error}") from None


def _reader(source: Any, path: Any) -> pa.RecordBatchReader:
    """The rows as a stream, whose errors say where they come from."""
    try:
        stream = pa.RecordBatchReader.from_stream(source.scan())
    except Exception as error:  # whatever the engine inside of deltalake raises
        raise InvalidInput(f"cannot read the Delta table {path}: {error}") from None

    def batches() -> Any:
        try:
            yield from stream
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(f"cannot read the Delta table {path}: {error}") from None

    return pa.RecordBatchReader.from_batches(stream.schema, batches())


def _without_metadata(schema: pa.Schema) -> pa.Schema:
    """Columns without what Delta notes about them, such as their names in the files."""
    return pa.schema([_plain(field) for field in schema])


def _plain(field: pa.Field) -> pa.Field:
    type, t = field.type, pa.types
    if t.is_struct(type):
        type = pa.struct([_plain(inner) for inner in type])
    elif t.is_list(type):
        type = pa.list_(_plain(type.value_field))
    elif t.is_map(type):
        type = pa.map_(_plain(type.key_field).type, _plain(type.item_field))
    return pa.field(field.name, type, field.nullable)
