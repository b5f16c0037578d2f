"""Hive-partitioned Parquet: trees such as `event_date=2025-12-10/country=US/part-….parquet`."""

from __future__ import annotations

import io
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from phalanx.errors import InvalidInput, StorageError
from phalanx.interop import rows
from phalanx.interop.incoming import check_schema, create_with_rows
from phalanx.interop.rows import Layout
from phalanx.interop.tree import TABLE_SCHEMA, Tree, discover, write_schema
from phalanx.interop.types import check_parquet, relaxed, whole_days
from phalanx.model.specs import CustomField
from phalanx.table.format import count_text, size_text
from phalanx.table.partitioned_writer import BUFFER_BYTES
from phalanx.table.table import Table
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot


@dataclass(frozen=True)
class ParquetExport:
    """What an export has written."""

    path: str
    #: The version of the table.
    version: int
    files: int
    rows: int
    bytes: int

    def __str__(self) -> str:
        return (
            f"{self.path}: version {self.version} as {count_text(self.files, 'Parquet file')}, "
            f"{count_text(self.rows, 'row')}, {size_text(self.bytes)}"
        )


def export(
    table: Table,
    path: str | os.PathLike[str],
    *,
    partition_by: Sequence[str] | None = None,
    overwrite: bool = False,
) -> ParquetExport:
    """Write the rows of a table's snapshot as a tree of Parquet files.

    The tree appears at `path` when all of it is written; until then readers see what was there
    before. Partition columns are in the names of the folders only.

    Args:
        table: The table. What other writers commit meanwhile is not exported.
        path: The folder, on a file system. It must be empty or not exist.
        partition_by: The columns that become folders, outermost first. By default those that the
            table is partitioned by as they are; `[]` is for none.
        overwrite: Replace an earlier tree of Parquet files at `path`.

    Raises:
        InvalidInput: The folder is not empty, a column cannot be stored in Parquet, or a value is
            too long for the name of a folder.
        StorageError: A file cannot be written.
    """
    folder = rows.local_folder(path, "the target of an export")
    rows.refuse_overlap(folder, table)
    _check_target(folder, overwrite)
    snapshot = table._snapshot
    layout = _layout(snapshot, partition_by)
    leaves = [leaf for leaf in snapshot.leaves.rows() if leaf.row_count != 0]
    hidden = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.export")
    try:
        files = []
        try:
            hidden.mkdir(parents=True)
            for _, written in rows.export_leaves(snapshot, leaves, hidden, layout):
                files += written
            if not files:
                # Without a file nobody knows which columns there are.
                name = f"part-{uuid.uuid4().hex}.parquet"
                empty = snapshot.head.schema.stored
                pq.write_table(_tagged(empty, empty).empty_table(), hidden / name)
            reach("export.tree-written")
            _publish(hidden, folder, overwrite)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"cannot write to {folder}: {error}") from error
    return ParquetExport(
        os.fspath(folder),
        table.version,
        len(files) or 1,
        sum(file.rows for file in files),
        sum(file.bytes for file in files),
    )


def _check_target(folder: Path, overwrite: bool) -> None:
    """Raise InvalidInput for a folder that an export must not replace."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is a file: export to a folder")
    if not any(folder.iterdir()):
        return
    if not overwrite:
        raise InvalidInput(
            f"the folder {folder} is not empty: export to another one, or replace it with "
            "overwrite=True"
        )
    for place, folders, names in os.walk(folder):
        foreign = [name for name in folders if "=" not in name]
        foreign += [name for name in names if not name.endswith((".parquet", ".tmp", ".crc"))]
        foreign = [name for name in foreign if name not in ("_SUCCESS", "_common_metadata")]
        if foreign:
            raise InvalidInput(
                f"{os.path.join(place, foreign[0])} is not part of a Parquet tree, so "
                f"{folder} is not replaced: export to another folder"
            )


def _publish(hidden: Path, folder: Path, overwrite: bool) -> None:
    """Put a finished tree in its place."""
    if not overwrite or not folder.exists():
        # This fails if somebody has put something there meanwhile.
        hidden.rename(folder)
        return
    old = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.replaced")
    folder.rename(old)
    reach("export.old-tree-moved")
    try:
        hidden.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _layout(snapshot: Snapshot, partition_by: Sequence[str] | None) -> Layout:
    columns = rows.partition_columns(snapshot, partition_by)
    whole = snapshot.head.schema.stored
    names = {column.path[0] for column in columns}
    stored = pa.schema(
        [field.with_type(relaxed(field.type)) for field in whole if field.name not in names]
    )
    if not len(stored):
        raise InvalidInput(
            "every column would be a folder, and files need a column: give partition_by"
        )
    for field in whole:
        check_parquet(field)
    schema = _tagged(stored, whole)
    try:
        pq.ParquetWriter(io.BytesIO(), schema).close()
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"Parquet cannot store the table's schema: {error}") from None

    def convert(table: pa.Table) -> pa.Table:
        columns = []
        for field in stored:
            column = whole_days(table.column(field.name), field)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=schema)

    return Layout(columns, schema, convert)


def _tagged(stored: pa.Schema, whole: pa.Schema) -> pa.Schema:
    """The columns of files, with the schema of the table, so that an import finds its types."""
    return stored.with_metadata({TABLE_SCHEMA: write_schema(whole)})


def import_(
    path: str | os.PathLike[str],
    uri: str | os.PathLike[str],
    partition_by: Sequence[str | CustomField] | None = None,
    schema: pa.Schema | None = None,
    *,
    transactions: str = "strong",
    storage_options: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    buffer_bytes: int = BUFFER_BYTES,
) -> Table:
    """Create a table from a tree of Parquet files, in one transaction and in bounded memory.

    Args:
        path: The root of the tree, on a file system. Folders are named `key=value`.
        uri: The root of the new table.
        partition_by: The partition fields of the new table, as in `phalanx.create`. By default the
            columns in the names of the folders.
        schema: The columns of the new table. By default those of the files; the types of partition
            columns are those of the exported table, or else are inferred from the values.
        transactions: As in `phalanx.create`.
        storage_options: Options of the object store that the table is in.
        properties: As in `phalanx.create`.
        buffer_bytes: How many bytes of rows to hold in memory before files are written.

    Returns:
        The table, at version 1.

    Raises:
        TableExists: There is already a table at `uri`.
        InvalidInput: There is no such tree, its folders or files do not agree with each other, or a
            value does not fit the schema.
    """
    check_schema(schema)
    tree, wanted = source(path, schema)
    return create_with_rows(
        uri,
        wanted,
        tree.partition_columns if partition_by is None else partition_by,
        tree.reader(),
        transactions=transactions,
        storage_options=storage_options,
        properties=properties,
        buffer_bytes=buffer_bytes,
    )


def source(path: str | os.PathLike[str], schema: pa.Schema | None = None) -> tuple[Tree, pa.Schema]:
    """A tree that is to be imported, and the columns of the table that it becomes.

    Raises what `import_` raises of the tree.
    """
    tree = discover(rows.local_folder(path, "the source of an import"))
    wanted = tree.exported if schema is None else schema
    tree = tree.typed(wanted)
    tree.check_values()
    return tree, tree.schema if wanted is None else wanted
