"""Rows on their way out: the leaves of a snapshot as Parquet files in `key=value` folders.

Each leaf becomes one file or more. A file is written under a name that readers skip, and gets its
own name when it is whole.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from phalanx.errors import InvalidInput, StorageError
from phalanx.interop.folders import folder_of, text_of
from phalanx.model import statistics
from phalanx.model.domains import domain_of
from phalanx.model.predicates import Column
from phalanx.model.specs import PartitionSpec
from phalanx.model.statistics import Statistics
from phalanx.model.transforms import Identity
from phalanx.storage.leaf import Leaf
from phalanx.storage.records import LeafRow
from phalanx.table import ingest
from phalanx.table.partitioned_writer import split_by
from phalanx.table.table import Table
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot

#: How many leaves are exported at a time.
WORKERS = max(2, min(4, os.cpu_count() or 2))
#: Bytes of rows that one worker holds at a time, and that go into one file, both before encoding.
CHUNK_BYTES = 32 * 1024 * 1024
FILE_BYTES = 512 * 1024 * 1024

Texts = tuple[str | None, ...]


@dataclass(frozen=True)
class ExportedFile:
    """A Parquet file that was written."""

    #: Relative to the root of the tree, with `/`.
    path: str
    #: The partition values of its rows, as texts; None is NULL.
    values: Texts
    rows: int
    bytes: int
    modified: float
    #: Of the columns that were asked for, by field id.
    statistics: Statistics


@dataclass(frozen=True)
class Layout:
    """How rows are written: the columns of the files, and those that become folders."""

    #: The partition columns, outermost first.
    partition_columns: tuple[Column, ...]
    #: The columns of a file, in their order, with the types and the metadata that they have there.
    schema: pa.Schema
    #: Turns rows of the table into rows of a file. Raises InvalidInput for a value that would
    #: change.
    convert: Callable[[pa.Table], pa.Table]
    #: The columns of a file whose statistics are wanted.
    measured: Sequence[Column] = ()
    #: More arguments for the writer of Parquet files.
    options: Any = None

    @cached_property
    def names(self) -> list[str]:
        return [column.path[0] for column in self.partition_columns]


def local_folder(path: str | os.PathLike[str], what: str) -> Path:
    """The folder of a tree. Raises InvalidInput for what is not on a file system."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise InvalidInput(f"{what} is a path, such as 'exports/events'")
    text = (
        text.removeprefix("file://") if text.startswith("file://") else text.removeprefix("file:")
    )
    if "://" in text:
        raise InvalidInput(
            f"{what} must be on a file system, and {text!r} is not: copy it from or to the object "
            "store with its own tools"
        )
    return Path(os.path.realpath(text))


def refuse_overlap(folder: Path, table: Table) -> None:
    """Raise InvalidInput if the folder of an export and the table are inside one another."""
    root = table._snapshot.location.path
    if root is None:
        return
    own = Path(os.path.realpath(root))
    if folder == own or folder in own.parents or own in folder.parents:
        raise InvalidInput(
            f"{folder} and the table {table.uri} are inside one another: export to a folder of "
            "its own"
        )


def partition_columns(snapshot: Snapshot, names: Sequence[str] | None) -> tuple[Column, ...]:
    """The columns that become folders: those named, or the identity fields of the current spec.

    Raises InvalidInput for a column that does not exist or whose values have no text.
    """
    schema = snapshot.head.schema
    if names is None:
        sources = (
            schema.columns.get(field.source_ids[0])
            for field in snapshot.head.spec.fields
            if isinstance(field.transform, Identity)
        )
        return tuple(column for column in sources if column and len(column.path) == 1)
    if isinstance(names, str):
        names = [names]
    columns = []
    for name in names:
        if name not in schema.tagged.names:
            raise InvalidInput(
                f"unknown column {name!r}: the table has {', '.join(schema.tagged.names)}"
            )
        column = schema.column((name,))
        t, type = pa.types, domain_of(column.type).type
        is_plain = domain_of(column.type).ordered and not isinstance(
            column.type, pa.BaseExtensionType
        )
        if not is_plain or t.is_duration(type) or t.is_binary(type) or t.is_large_binary(type):
            raise InvalidInput(f"column {name!r} is {column.type}: such values name no folder")
        columns.append(column)
    if len(set(columns)) < len(columns):
        raise InvalidInput("partition_by names a column twice")
    return tuple(columns)


def export_leaves(
    snapshot: Snapshot, leaves: Sequence[LeafRow], root: Path, layout: Layout
) -> Iterator[tuple[LeafRow, list[ExportedFile]]]:
    """Write leaves as files, and yield each with its files, in order.

    Raises InvalidInput for rows that the format cannot hold, and StorageError if a file cannot be
    written. Files that were written by then stay.
    """
    pool = ThreadPoolExecutor(WORKERS)
    try:
        exports = pool.map(lambda leaf: _LeafExport(snapshot, leaf, root, layout).run(), leaves)
        yield from zip(leaves, exports, strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


class _LeafExport:
    """The export of one leaf."""

    def __init__(self, snapshot: Snapshot, leaf: LeafRow, root: Path, layout: Layout) -> None:
        self._snapshot, self._leaf, self._root, self._layout = snapshot, leaf, root, layout
        self._files: list[ExportedFile] = []

    def run(self) -> list[ExportedFile]:
        texts = known_values(self._snapshot, self._leaf, self._layout.partition_columns)
        chunks = ingest.gathered(self._batches(), CHUNK_BYTES)
        try:
            if texts is None:
                for chunk in chunks:
                    for part_texts, part in self._split(chunk):
                        self._write(part_texts, iter([part]))
            else:
                self._write(texts, chunks)
        except pa.ArrowException as error:
            raise InvalidInput(f"rows cannot be stored in Parquet: {error}") from None
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"cannot write to {self._root}: {error}") from error
        return self._files

    def _batches(self) -> Iterator[pa.RecordBatch]:
        location, schema = self._snapshot.location, self._snapshot.head.schema
        leaf = Leaf.of(location, self._snapshot.head, self._leaf)
        with location.naming_failures():
            yield from leaf.scan(self._leaf.read_version, schema.arrow.names, None)

    def _split(self, chunk: pa.Table) -> Iterator[tuple[Texts, pa.Table]]:
        """Rows by their partition values. 0.0 and -0.0 are two values here."""
        chunk = chunk.combine_chunks()
        values, types = [], []
        for name in self._layout.names:
            (array,) = chunk.column(name).chunks
            if pa.types.is_dictionary(array.type):
                array = array.dictionary_decode()
            values += [array, _negative_zeros(array)]
            types.append(array.type)
        for keys, part in split_by(chunk, values):
            pairs = zip(keys[::2], keys[1::2], types, strict=True)
            yield tuple("-0.0" if sign else text_of(key, t) for key, sign, t in pairs), part

    def _write(self, texts: Texts, chunks: Iterator[pa.Table]) -> None:
        """Write rows with the same partition values, to as many files as they need."""
        folder = folder_of(self._layout.names, texts)
        first = next(chunks, None)
        while first is not None:
            file, first = self._write_file(folder, texts, first, chunks)
            self._files.append(file)

    def _write_file(
        self, folder: str, texts: Texts, first: pa.Table, chunks: Iterator[pa.Table]
    ) -> tuple[ExportedFile, pa.Table | None]:
        """Write one file. Returns it, and the first rows of the next one."""
        name = f"part-{uuid.uuid4().hex}.parquet"
        place = self._root / folder
        place.mkdir(parents=True, exist_ok=True)
        hidden = place / f".{name}.tmp"
        try:
            chunk: pa.Table | None = first
            rows = size = 0
            measured: Statistics | None = None
            layout = self._layout
            with pq.ParquetWriter(hidden, layout.schema, **(layout.options or {})) as writer:
                while chunk is not None and size < FILE_BYTES:
                    converted = layout.convert(chunk)
                    new = statistics.measure(converted, layout.measured)
                    measured = new if measured is None else statistics.merge(measured, new)
                    writer.write_table(converted)
                    rows, size = rows + chunk.num_rows, size + chunk.nbytes
                    chunk = next(chunks, None)
            reach("export.file-written")
            hidden.rename(place / name)
        finally:
            hidden.unlink(missing_ok=True)
        bytes = (place / name).stat().st_size
        path = f"{folder}/{name}" if folder else name
        return ExportedFile(path, texts, rows, bytes, time.time(), measured or {}), chunk


def known_values(
    snapshot: Snapshot, leaf: LeafRow, columns: Sequence[Column]
) -> tuple[str | None, ...] | None:
    """The values that all rows of a leaf have in some columns, as texts.

    None if its partition values do not say: the leaf is of a spec that is not partitioned by these
    columns, or it may hold both 0.0 and -0.0.
    """
    spec: PartitionSpec = snapshot.leaves.specs[leaf.spec_id]
    texts = {}
    for field, key in zip(spec.fields, leaf.keys, strict=True):
        if isinstance(field.transform, Identity):
            type = snapshot.leaves.column(field.column_name).values.type
            text = text_of(key, type)
            if not (pa.types.is_floating(type) and text == "0.0"):
                texts[field.source_ids[0]] = text
    if any(column.field_id not in texts for column in columns):
        return None
    return tuple(texts[column.field_id] for column in columns)


def _negative_zeros(array: pa.Array) -> pa.Array:
    """Which values are -0.0."""
    if not pa.types.is_floating(array.type):
        return pa.array(np.zeros(len(array), dtype=bool))
    numbers = array.fill_null(1).to_numpy(zero_copy_only=False)
    return pa.array((numbers == 0) & np.signbit(numbers))
