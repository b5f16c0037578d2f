"""Parquet trees on disk: their files, partition values and columns, found by listing."""

from __future__ import annotations

import base64
import itertools
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from phalanx.errors import InvalidInput
from phalanx.interop.folders import inferred_type, parse_folder, value_of
from phalanx.interop.types import relaxed, retyped
from phalanx.model.promotion import is_wider

#: The key in a file's metadata that holds the schema of the exported table, partition columns
#: included.
TABLE_SCHEMA = b"phalanx:schema"

#: Rows and bytes of a batch that is read, and of how many files one is read in advance.
_BATCH_ROWS = 131_072
_BATCH_BYTES = 8 * 1024 * 1024
_FILES_AHEAD = 4
#: Bytes of one column that are read from disk in one go.
_READ_BYTES = 1024 * 1024
_READERS = 8
#: Timestamps of the oldest kind in Parquet are instants. They have nanoseconds that nobody wrote,
#: and years that do not fit into those.
_INT96_UNIT = "us"


@dataclass(frozen=True)
class TreeFile:
    """A file of a tree, with the partition values of its rows as texts; None is NULL."""

    path: str
    values: tuple[str | None, ...]
    bytes: int


@dataclass(frozen=True)
class Tree:
    """A tree of Parquet files."""

    root: str
    #: The columns in the names of the folders, outermost first.
    partition_columns: tuple[str, ...]
    files: tuple[TreeFile, ...]
    #: All columns, with the types that their values are read in.
    schema: pa.Schema
    #: The schema of the table that the tree was exported from; None if it is not known.
    exported: pa.Schema | None
    #: How many rows are read at a time.
    batch_rows: int

    def typed(self, schema: pa.Schema | None) -> Tree:
        """The tree with partition values of the types that a schema has.

        Raises InvalidInput if it lacks a column of the tree.
        """
        if schema is None:
            return self
        missing = [name for name in self.schema.names if name not in schema.names]
        if missing:
            raise InvalidInput(
                f"the schema has no column {missing[0]!r}, which the files in {self.root} have"
            )
        fields = []
        for field in self.schema:
            wanted = schema.field(field.name)
            if field.name in self.partition_columns or _is_stored_as(wanted.type, field.type):
                field = wanted
            fields.append(field)
        return replace(self, schema=pa.schema(fields))

    def only(self, files: Sequence[TreeFile]) -> Tree:
        """The tree with some of its files."""
        return replace(self, files=tuple(files))

    def reader(self) -> pa.RecordBatchReader:
        """The rows as a stream with the tree's schema. Raises InvalidInput while it is read."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def check_values(self) -> None:
        """Raise InvalidInput for a folder whose value does not fit the type of its column."""
        for _ in self._constants():
            pass

    def _constants(self) -> Iterator[tuple[str, dict[str, pa.Scalar]]]:
        """The path and the partition values of files."""
        fields = [self.schema.field(name) for name in self.partition_columns]
        known: dict[tuple[str, str | None], pa.Scalar] = {}
        for file in self.files:
            constants = {}
            for field, text in zip(fields, file.values, strict=True):
                if (field.name, text) not in known:
                    known[field.name, text] = value_of(text, field)
                constants[field.name] = known[field.name, text]
            yield file.path, constants

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of all files, in order; the next files are being read meanwhile."""
        files = (self._read(path, constants) for path, constants in self._constants())
        with ThreadPoolExecutor(_FILES_AHEAD) as pool:
            reading: deque[tuple[Iterator[pa.RecordBatch], Future[pa.RecordBatch | None]]] = deque()

            def start() -> None:
                for batches in itertools.islice(files, 1):
                    reading.append((batches, pool.submit(next, batches, None)))

            for _ in range(_FILES_AHEAD):
                start()
            while reading:
                batches, upcoming = reading.popleft()
                while (batch := upcoming.result()) is not None:
                    upcoming = pool.submit(next, batches, None)
                    yield batch
                start()

    def _read(self, path: str, constants: Mapping[str, pa.Scalar]) -> Iterator[pa.RecordBatch]:
        try:
            # Without these two, Arrow loads far more than it was asked for.
            with _opened(path, pre_buffer=False, buffer_size=_READ_BYTES) as file:
                for batch in file.iter_batches(self.batch_rows):
                    yield self._whole(batch, constants)
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(f"cannot read {path}: {error}") from None

    def _whole(self, batch: pa.RecordBatch, constants: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
        """Rows of a file with all columns: partition values, and NULL where the file has none."""
        columns = []
        for field in self.schema:
            if field.name in constants:
                columns.append(pa.repeat(constants[field.name], batch.num_rows))
            elif field.name not in batch.schema.names:
                columns.append(pa.nulls(batch.num_rows, field.type))
            else:
                columns.append(_fitted(batch.column(field.name), field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _opened(path: str, **options: Any) -> pq.ParquetFile:
    return pq.ParquetFile(path, coerce_int96_timestamp_unit=_INT96_UNIT, **options)


def discover(root: Path) -> Tree:
    """Find the files of a tree, and read which columns they have.

    Files and folders whose names start with `.` or `_` are skipped, except folders such as
    `_year=2025`. Raises InvalidInput if there is no file, if folders do not agree on the partition
    columns, or if files do not agree on the type of a column.
    """
    if not root.is_dir():
        raise InvalidInput(f"there is no folder {root}")
    if (root / "_delta_log").is_dir():
        raise InvalidInput(
            f"{root} is a Delta table, whose log says which files are current: import it with "
            "phalanx.interop.delta.import_"
        )
    files = sorted(_listed(root), key=lambda file: file[0])
    if not files:
        raise InvalidInput(f"there is no Parquet file in {root}")
    names = {tuple(column for column, _ in pairs): path for path, pairs in files}
    if len(names) > 1:
        one, other = list(names.values())[:2]
        raise InvalidInput(
            f"the folders of {root} do not agree on the partition columns: see {one} and {other}"
        )
    (columns,) = names
    if len(set(columns)) < len(columns):
        raise InvalidInput(f"a partition column appears twice in the path {files[0][0]}")
    tree_files = tuple(
        TreeFile(path, tuple(text for _, text in pairs), os.path.getsize(path))
        for path, pairs in files
    )
    with ThreadPoolExecutor(_READERS) as pool:
        footers = list(pool.map(_footer, [file.path for file in tree_files]))
    stored = _unified(footers, tree_files)
    exported = footers[0].exported
    if any(footer.exported != exported for footer in footers):
        exported = None
    fields = {field.name: field for field in stored}
    for at, name in enumerate(columns):
        type = fields[name].type if name in fields else None
        if exported is not None and name in exported.names:
            type = exported.field(name).type
        fields[name] = pa.field(
            name, type or inferred_type([file.values[at] for file in tree_files])
        )
    schema = pa.schema(fields.values())
    widest = max((footer.row_bytes for footer in footers), default=0)
    batch_rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, widest)))
    return Tree(str(root), columns, tree_files, schema, exported, batch_rows)


Pairs = list[tuple[str, str | None]]


def _listed(folder: Path, above: Pairs | None = None) -> Iterator[tuple[str, Pairs]]:
    """The files in a folder and below, with the columns and values in their paths."""
    with os.scandir(folder) as entries:
        for entry in entries:
            pair = parse_folder(entry.name)
            is_folder = entry.is_dir()
            if entry.name.startswith(".") or (
                entry.name.startswith("_") and not (is_folder and pair)
            ):
                continue
            if not is_folder:
                yield entry.path, above or []
            elif entry.is_symlink():
                raise InvalidInput(f"{entry.path} is a link to a folder: import that folder itself")
            elif pair is None:
                raise InvalidInput(
                    f"the folder {entry.path} names no partition: such a name is key=value"
                )
            else:
                yield from _listed(Path(entry.path), [*(above or []), pair])


@dataclass(frozen=True)
class _Footer:
    """What a file says of itself."""

    schema: pa.Schema
    exported: pa.Schema | None
    #: How many bytes a row has, about.
    row_bytes: int


def _footer(path: str) -> _Footer:
    try:
        with _opened(path) as file:
            schema, columns, metadata = file.schema_arrow, file.schema, file.metadata
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path} is no Parquet file that can be read: {error}") from None
    instants = {
        columns.column(at).path
        for at in range(len(columns))
        if columns.column(at).physical_type == "INT96"
    } & set(schema.names)
    fields = []
    for field in schema:
        type = pa.timestamp(_INT96_UNIT, "UTC") if field.name in instants else field.type
        fields.append(pa.field(field.name, type, field.nullable))
    kept = (schema.metadata or {}).get(TABLE_SCHEMA)
    exported = None if kept is None else read_schema(kept)
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    row_bytes = sum(group.total_byte_size for group in groups) // max(1, metadata.num_rows)
    return _Footer(pa.schema(fields), exported, row_bytes)


def _unified(footers: Sequence[_Footer], files: Sequence[TreeFile]) -> pa.Schema:
    """The columns of all files. One that a file lacks may be NULL."""
    fields: dict[str, pa.Field] = {field.name: field for field in footers[0].schema}
    if len(fields) < len(footers[0].schema):
        raise InvalidInput(f"a column appears twice in {files[0].path}")
    for footer, file in zip(footers[1:], files[1:], strict=True):
        schema = footer.schema
        for name, known in fields.items():
            if name not in schema.names:
                fields[name] = known.with_nullable(True)
        for field in schema:
            known = fields.get(field.name)
            if known is None:
                fields[field.name] = field.with_nullable(True)
                continue
            nullable = known.nullable or field.nullable
            type = _common(known.type, field.type)
            if type is None:
                raise InvalidInput(
                    f"column {field.name!r} is {known.type} in one file and {field.type} in "
                    f"{file.path}: write the files with one type"
                )
            fields[field.name] = pa.field(field.name, type, nullable)
    return pa.schema(fields.values())


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both; None if neither does."""
    if one == other or pa.types.is_null(other) or is_wider(other, one):
        return one
    if pa.types.is_null(one) or is_wider(one, other):
        return other
    return None


def _fitted(column: pa.Array, type: pa.DataType) -> pa.Array:
    if column.type == type:
        return column
    if column.type == relaxed(type):
        return retyped(column, type)
    return column.cast(type)


def _is_stored_as(type: pa.DataType, stored: pa.DataType) -> bool:
    """Whether an export stores values of a type in another one."""
    t = pa.types
    if t.is_nested(type) and stored == relaxed(type):
        return True
    if t.is_date64(type):
        return bool(t.is_date32(stored))
    return bool(type == pa.time32("s") and stored == pa.time32("ms"))


def write_schema(schema: pa.Schema) -> bytes:
    """A schema as text for the metadata of a file."""
    return base64.b64encode(schema.serialize().to_pybytes())


def read_schema(text: bytes) -> pa.Schema | None:
    """The inverse of `write_schema`; None for what another program has written."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (ValueError, pa.ArrowException, OSError):
        return None
