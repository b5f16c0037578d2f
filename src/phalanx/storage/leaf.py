"""A leaf: one partition's own Lance dataset.

A leaf is made empty, with the table's field ids, in a way that two creators cannot both win
(and need not: they arrive at the same leaf). Rows are then added by detached commits, which
nobody sees until the manifest names their version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import lance
import pyarrow as pa
from lance import LanceOperation
from lance.fragment import FragmentMetadata, write_fragments
from lance.schema import LanceSchema

from phalanx.errors import CorruptTable, InvalidInput
from phalanx.model.predicates import Column, Dialect, Predicate
from phalanx.model.schema import TableSchema
from phalanx.model.spelling import quote, sql_literal, value_text
from phalanx.storage.location import Location, leaf_session

#: The version of a leaf that has just been made and holds no row.
EMPTY_VERSION = 1
#: How many bytes a batch may have on its way out of a leaf.
BATCH_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Written:
    """Files that have been written to a leaf and that no version names yet."""

    fragments: tuple[FragmentMetadata, ...]

    @property
    def rows(self) -> int:
        return sum(fragment.physical_rows for fragment in self.fragments)

    @property
    def bytes(self) -> int:
        return sum(f.file_size_bytes or 0 for frag in self.fragments for f in frag.files)


class Leaf:
    """A leaf's folder, and what can be done there."""

    def __init__(self, location: Location, folder: str) -> None:
        self.location = location
        self.uri = location.child(folder)

    def open(self, version: int | None) -> Any:
        """The Lance dataset at a version (detached ones too), or the newest on main."""
        try:
            return self.location.open(self.uri, version, leaf_session())
        except (ValueError, OSError) as error:
            raise CorruptTable(
                f"the leaf {self.uri} has no version {version}: run check() on the table ({error})"
            ) from None

    def create(self, schema: TableSchema) -> Any:
        """The empty leaf: made now, or by somebody else just before."""
        try:
            return lance.LanceDataset.commit(
                self.uri,
                LanceOperation.Overwrite(_lance_schema(schema), []),
                max_retries=0,
                storage_options=self.location.options,
            )
        except OSError:
            return self.open(EMPTY_VERSION)

    def write(self, table: pa.Table, handle: Any) -> Written:
        """Write rows as new files of the leaf."""
        fragments = write_fragments(
            table, handle, schema=table.schema, storage_options=self.location.options
        )
        return Written(tuple(fragments))

    def append(self, written: Sequence[Written], base: int | None) -> int:
        """Commit written files on top of a version; detached, so nobody sees it. Its version."""
        handle = self.open(base)
        fragments = [fragment for part in written for fragment in part.fragments]
        committed = lance.LanceDataset.commit(
            handle,
            LanceOperation.Append(fragments),
            read_version=handle.version,
            detached=True,
            storage_options=self.location.options,
        )
        return int(committed.version)

    def scan(
        self,
        version: int | None,
        columns: Sequence[str],
        where: Predicate | None,
        limit: int | None = None,
        in_order: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a version that satisfy a predicate, in batches.

        Raises InvalidInput where Lance cannot evaluate the predicate.
        """
        scanner = self._scanner(version, list(columns), where, limit, in_order)
        yield from scanner.to_batches()

    def count(self, version: int | None, where: Predicate | None) -> int:
        """How many rows of a version satisfy a predicate."""
        handle = self.open(version)
        return int(handle.count_rows(None if where is None else to_lance(where)))

    def _scanner(
        self,
        version: int | None,
        columns: list[str],
        where: Predicate | None,
        limit: int | None,
        in_order: bool,
    ) -> Any:
        handle = self.open(version)
        filter = None if where is None else to_lance(where)
        try:
            return handle.scanner(
                columns=columns,
                filter=filter,
                limit=limit,
                batch_size_bytes=BATCH_BYTES,
                scan_in_order=in_order,
            )
        except ValueError as error:
            reason = str(error).split(", /")[0]
            raise InvalidInput(f"Lance cannot evaluate the filter {filter}: {reason}") from None


@lru_cache(maxsize=64)
def _lance_schema(schema: TableSchema) -> LanceSchema:
    """The schema of a new leaf, with the table's field ids."""
    plain = LanceSchema.from_pyarrow(schema.arrow)
    if _ids(plain) != schema.field_ids:
        raise InvalidInput(
            f"a leaf cannot be made: Lance numbers the fields of this schema {_ids(plain)}, "
            f"the table {schema.field_ids}"
        )
    return plain


def _ids(schema: LanceSchema) -> list[int]:
    def walk(field: Any) -> Iterator[int]:
        yield field.id()
        for child in field.children():
            yield from walk(child)

    return [id for field in schema.fields() for id in walk(field)]


class _Lance(Dialect):
    """Lance's SQL: names in backticks, every constant with its exact type."""

    def name(self, column: Column) -> str:
        return ".".join("`" + part.replace("`", "``") + "`" for part in column.path)

    def constant(self, key: Any, type: pa.DataType) -> str:
        t = pa.types
        if t.is_timestamp(type):
            zone = "None" if type.tz is None else f'Some("{type.tz}")'
            unit = _UNITS[type.unit]
            return f"arrow_cast({key}, {quote(f'Timestamp({unit}, {zone})')})"
        if t.is_time(type):
            return f"arrow_cast({key}, 'Time{type.bit_width}({_UNITS[type.unit]})')"
        if t.is_date32(type):
            return f"arrow_cast({key}, 'Date32')"
        if t.is_date64(type):
            return f"arrow_cast({key}, 'Date64')"
        if t.is_decimal(type):
            text = quote(value_text(key, type))
            width = type.bit_width
            return f"arrow_cast({text}, 'Decimal{width}({type.precision}, {type.scale})')"
        if t.is_floating(type):
            return f"arrow_cast({quote(value_text(key, type))}, 'Float{type.bit_width}')"
        if t.is_large_string(type):
            return f"arrow_cast({quote(key)}, 'LargeUtf8')"
        return sql_literal(key, type)


_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
_LANCE = _Lance()


def to_lance(predicate: Predicate) -> str:
    """A predicate as a filter that Lance evaluates to the same rows."""
    return _LANCE.predicate(predicate)
