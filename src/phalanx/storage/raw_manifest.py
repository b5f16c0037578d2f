"""A manifest as it is, whatever state it is in, and the tools to mend it.

A transaction reads and writes the manifest through `phalanx.storage.manifest`, which relies on
every column and on ids that occur once. Nothing is relied on here.

What a leaf's row says is written down more than once: as typed columns, as text in the row's
metadata, in the rows of its namespaces and its timeline, and in the leaf itself. Earlier versions
of the manifest hold what it was.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa

from phalanx.errors import (
    CorruptTable,
    InvalidInput,
    PhalanxError,
    TableNotFound,
    UnsupportedTable,
)
from phalanx.model.domains import FloatDomain, domain_of
from phalanx.model.literals import quote
from phalanx.model.promotion import is_wider
from phalanx.model.specs import COLUMN_PREFIX, PartitionField, PartitionSpec
from phalanx.model.spelling import read_value, value_text
from phalanx.storage import lance_errors, names
from phalanx.storage.head import HEAD_ID, HEAD_TYPE, Head
from phalanx.storage.lance_errors import LANCE_ERRORS
from phalanx.storage.location import Location
from phalanx.storage.manifest import TABLE_ID_KEY, ManifestVersion
from phalanx.storage.manifest_update import (
    INDEXED,
    READ_VERSION,
    STATISTICS,
    TABLE,
    TRANSACTION,
    UNINDEXED_ROWS,
    manifest_schema,
    partition_columns,
    partition_texts,
)
from phalanx.storage.records import TransactionRecord

T = TypeVar("T")

_COPY_PREFIX = "partition."
_ROW_NUMBER = "_rowid"
_SPECIAL = ("object_id", "object_type", "location", "metadata", _ROW_NUMBER)


@dataclass
class RawRow:
    """One row. Later commits have higher numbers."""

    id: str
    type: str
    location: str | None
    #: The metadata; None where it is not a flat map of strings.
    metadata: dict[str, str] | None
    number: int = -1
    #: Keys of partition values by field id; NULL is left out.
    values: dict[str, Any] = field(default_factory=dict)
    #: The other columns; NULL is left out.
    columns: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of_head(head: Head) -> RawRow:
        columns = {"sequence": head.sequence, "committed_at": head.committed_at}
        return RawRow(HEAD_ID, HEAD_TYPE, None, head.to_metadata(), columns=columns)

    @staticmethod
    def of_transaction(record: TransactionRecord) -> RawRow:
        columns = {"sequence": record.sequence, "committed_at": record.committed_at}
        id = names.transaction_row(record.id)
        return RawRow(id, TRANSACTION, None, record.to_metadata(), columns=columns)

    def duplicate(self) -> RawRow:
        """A row of its own with the same contents, which can be changed."""
        metadata = None if self.metadata is None else dict(self.metadata)
        return replace(
            self, metadata=metadata, values=dict(self.values), columns=dict(self.columns)
        )

    def same_as(self, other: RawRow | None) -> bool:
        """Whether a row of another version of the manifest has the same contents."""
        return other is not None and replace(other, number=self.number) == self

    def transaction(self) -> TransactionRecord | None:
        """The transaction of a transaction row; None where the row is damaged."""
        sequence, committed = self.sequence, self.committed_at
        if sequence is None or committed is None or self.metadata is None:
            return None
        return TransactionRecord.from_row(sequence, committed, self.metadata)

    def copy(self, key: str) -> str | None:
        """A value of the metadata."""
        return (self.metadata or {}).get(key)

    def value_copy(self, field: PartitionField) -> str | None:
        """The text of a partition value in the metadata."""
        return self.copy(copy_key(field))

    def set_value(self, field: PartitionField, key: Any) -> None:
        if key is None:
            self.values.pop(field.field_id, None)
        else:
            self.values[field.field_id] = key

    def value_texts(self, fields: Iterable[PartitionField]) -> dict[str, str]:
        """What the metadata should say of some partition values; NULL is left out."""
        known = list(fields)
        return partition_texts(known, [self.values.get(field.field_id) for field in known])

    def copies(self) -> set[str]:
        """The keys of the metadata that are copies of typed columns of a leaf or namespace."""
        return {k for k in self.metadata or {} if k.startswith(_COPY_PREFIX) or k == READ_VERSION}

    @property
    def version(self) -> int | None:
        """The version that a leaf's row names, by its column or else by its copy."""
        version = self.columns.get(READ_VERSION)
        return self.version_copy if version is None else int(version)

    @property
    def version_copy(self) -> int | None:
        """The version that a leaf's metadata names."""
        text = self.copy(READ_VERSION)
        return int(text) if text is not None and text.isdigit() else None

    @property
    def sequence(self) -> int | None:
        """The version of the table that wrote the row, by its column or else by its copy."""
        sequence = self.columns.get("sequence", self.copy("sequence"))
        return None if sequence is None else int(sequence)

    @property
    def committed_at(self) -> dt.datetime | None:
        """When the row was written, by its column or else by its copy."""
        time = self.columns.get("committed_at", self.copy("committed_at"))
        return dt.datetime.fromisoformat(time) if isinstance(time, str) else time

    @property
    def has_version(self) -> bool:
        """Whether the columns of a head or transaction say which version it made, and when."""
        return "sequence" in self.columns and "committed_at" in self.columns

    def head(self, uri: str) -> Head | None:
        """The head of a head row. Raises UnsupportedTable where the table is newer than we are."""
        sequence, committed = self.sequence, self.committed_at
        if sequence is None or committed is None or self.metadata is None:
            return None
        try:
            return Head.from_row(sequence, committed, self.metadata, uri)
        except UnsupportedTable:
            raise
        except (PhalanxError, ValueError, KeyError):
            return None


class RawVersion(ManifestVersion):
    """One version of a manifest that may be damaged."""

    def rows(self, statistics: bool) -> list[RawRow]:
        """Every row. Raises CorruptTable where they cannot be read."""
        columns = [n for n in self.schema.names if statistics or n != STATISTICS]
        try:
            table = self.dataset.scanner(columns=columns, with_row_id=True).to_table()
        except LANCE_ERRORS as error:
            raise CorruptTable(
                f"version {self.version} of the manifest of {self.location.uri} cannot be "
                f"read: {self.location.reason(error)}"
            ) from None
        return _rows_of(table)

    def whole_head(self) -> Head | None:
        """The head; None where it is damaged, so that this version cannot be opened."""
        columns = ["metadata", "sequence", "committed_at"]
        heads = []
        for cells in self._read(columns, f"object_id = '{HEAD_ID}'").to_pylist():
            metadata = _flat_map(cells.pop("metadata", None))
            known = {name: cell for name, cell in cells.items() if cell is not None}
            heads.append(RawRow(HEAD_ID, HEAD_TYPE, None, metadata, columns=known))
        heads = [row for row in heads if "sequence" in row.columns]
        return heads[0].head(self.location.uri) if len(heads) == 1 else None

    def row_count(self) -> int:
        return int(self.dataset.count_rows())

    def rows_by_id(self, ids: Sequence[str]) -> list[RawRow]:
        """Rows by id, with what is in their columns about the version of a leaf."""
        columns = ["object_id", "object_type", READ_VERSION, "version_number"]
        rows = []
        for cells in self._by_id(columns, ids).to_pylist():
            id, type = cells.pop("object_id"), cells.pop("object_type")
            known = {name: cell for name, cell in cells.items() if cell is not None}
            rows.append(RawRow(id, type, None, {}, columns=known))
        return rows

    def as_manifest(self, head: Head) -> RawManifest:
        """This version with all its rows, including statistics. Raises CorruptTable."""
        rows = self.rows(statistics=True)
        return RawManifest(self, rows, head, next((r for r in rows if r.id == HEAD_ID), None))

    def whole_before(self) -> Iterator[RawManifest]:
        """Earlier versions that have a head and all columns, newest first."""
        for number in reversed([v for v in self.versions() if v < self.version]):
            with contextlib.suppress(PhalanxError, *LANCE_ERRORS):
                earlier = RawVersion(self.location, number)
                head = earlier.whole_head()
                if head is None or earlier.table_id not in (None, head.table_id):
                    continue
                expected = manifest_schema(head.specs, head.transactions == "strong")
                if set(expected.names) <= set(earlier.schema.names):
                    yield earlier.as_manifest(head)

    def needs_indexes(self) -> bool:
        """Whether there are so many rows that an index pays, or there was one already."""
        return bool(self.dataset.describe_indices()) or self.row_count() > UNINDEXED_ROWS

    def missing_indexes(self) -> list[str]:
        """The columns that should have an index and have none, or one whose files are lost."""
        if not self.needs_indexes():
            return []
        described = self.dataset.describe_indices()
        indexed = {name for index in described for name in index.field_names}
        columns = [name for name in INDEXED if self.has_column(name)]
        return [name for name in columns if name not in indexed or not self._can_look_up(name)]

    def _can_look_up(self, column: str) -> bool:
        """Whether an index can be used: Lance lists it without looking at its files."""
        value = quote(HEAD_ID) if column == "object_id" else "0"
        filter = f"{column} = {value}"
        try:
            self.dataset.scanner(columns=[column], filter=filter).to_table()
        except LANCE_ERRORS as error:
            return lance_errors.is_unreachable(error)
        return True


@dataclass
class RawManifest:
    """A version of the manifest as it is: its rows, and the head that they or copies of it give."""

    handle: RawVersion
    rows: list[RawRow]
    head: Head
    #: The row of the head; None where no row gives a head.
    head_row: RawRow | None

    def __post_init__(self) -> None:
        """Take values of columns that are wider than the head says as values of its types."""
        for name, known in partition_columns(self.head.specs).items():
            have = self.types.get(name)
            if have is not None and is_wider(known.result_type, have):
                wide, narrow = domain_of(have), domain_of(known.result_type)
                for row in (row for row in self.rows if known.field_id in row.values):
                    value = wide.array([row.values[known.field_id]]).cast(known.result_type)
                    row.values[known.field_id] = narrow.key(value[0])

    @staticmethod
    def open(location: Location, statistics: bool = False) -> RawManifest:
        """The newest version.

        Raises TableNotFound where there is no manifest, CorruptTable where it cannot be read or
        gives no head, and UnsupportedTable where it is newer than we are.
        """
        handle = RawVersion(location)
        rows = handle.rows(statistics)
        heads = [row for row in rows if row.id == HEAD_ID]
        for row in sorted(heads, key=lambda r: (r.sequence or 0, r.number), reverse=True):
            head = row.head(location.uri)
            if head is not None:
                return RawManifest(handle, rows, head, row)
        if TABLE_ID_KEY not in handle.metadata:
            return RawManifest(handle, rows, handle.head(), None)
        earlier = next(handle.whole_before(), None)
        head = _rebuilt_head(handle, rows) if earlier is None else earlier.head
        if head is None:
            raise CorruptTable(
                f"the table {location.uri} has no head row and no copy of its schema"
            )
        manifest = RawManifest(handle, rows, head, None)
        manifest.last_whole = earlier
        return manifest

    @cached_property
    def last_whole(self) -> RawManifest | None:
        """The last version before this one that has a head and all columns, with statistics."""
        return next(self.handle.whole_before(), None)

    @property
    def location(self) -> Location:
        return self.handle.location

    @property
    def version(self) -> int:
        return self.handle.version

    @property
    def metadata(self) -> Mapping[str, str]:
        """The table's metadata, which other clients read."""
        return self.handle.metadata

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The columns that the manifest has, with their types."""
        return {column.name: column.type for column in self.handle.schema}

    def expected_columns(self) -> list[pa.Field]:
        """The columns that the manifest should have."""
        expected = manifest_schema(self.head.specs, self.head.transactions == "strong")
        if self.head.ours:
            return list(expected)
        return [column for column in expected if column.name.startswith(COLUMN_PREFIX)]

    def missing_indexes(self) -> list[str]:
        """The columns that should have an index and have none, or one whose files are lost."""
        return self.handle.missing_indexes()


def with_newest(location: Location, do: Callable[[RawManifest], T], statistics: bool = False) -> T:
    """Do something with the newest version, and with a newer one if a vacuum has removed that.

    Raises what `RawManifest.open` raises.
    """
    while True:
        manifest = RawManifest.open(location, statistics)
        try:
            return do(manifest)
        except (CorruptTable, TableNotFound):
            if manifest.handle.exists():
                raise


def copy_key(field: PartitionField) -> str:
    """The key of the metadata that repeats a partition value."""
    return _COPY_PREFIX + field.field_id


def fits(have: pa.DataType, expected: pa.DataType) -> bool:
    """Whether a column's type will do. A wider one does: a change of the schema that broke off."""
    return bool(have.equals(expected)) or is_wider(expected, have)


def spec_of(row: RawRow, specs: Mapping[int, PartitionSpec]) -> PartitionSpec | None:
    """The spec of a leaf or namespace by its id; None where the id fits none."""
    id = names.spec_of(row.id)
    spec = None if id is None else specs.get(id)
    if spec is None:
        return None
    if row.type != TABLE:
        return spec if len(names.names_in(row.id)) <= len(spec.fields) else None
    is_leaf = names.is_leaf_id(row.id)
    return spec if is_leaf and len(names.names_in(row.id)) == len(spec.fields) else None


def agree(key: Any, text: str | None, type: pa.DataType) -> bool:
    """Whether a partition value and its copy are equal."""
    if key is None or text is None:
        return key is None and text is None
    if value_text(key, type) == text:
        return True
    if not pa.types.is_floating(type):
        return False
    # A copy from before the column was widened has fewer digits.
    domain = domain_of(type)
    assert isinstance(domain, FloatDomain)
    with contextlib.suppress(ValueError):
        narrow = pa.float32()
        return bool(
            pa.scalar(float(text), pa.float64())
            .cast(narrow, safe=False)
            .equals(pa.scalar(domain.value(key), pa.float64()).cast(narrow, safe=False))
        )
    return False


def read_copy(text: str | None, type: pa.DataType) -> list[Any]:
    """The value of a copy, as a list of one; an empty list where the text is not a value."""
    if text is None:
        return [None]
    try:
        return [read_value(text, type)]
    except InvalidInput:
        return []


# Mending: each of these writes a version of the manifest of its own.


def remove_rows(location: Location, numbers: Sequence[int]) -> None:
    """Remove rows of the newest version by number: those that an id does not tell apart."""
    listed = ", ".join(str(number) for number in numbers)
    location.open(location.manifest).delete(f"{_ROW_NUMBER} IN ({listed})")


def add_columns(location: Location, fields: Iterable[pa.Field]) -> None:
    """Add columns to the newest version, without a value in any row."""
    location.open(location.manifest).add_columns(pa.schema(list(fields)))


def create_missing_indexes(location: Location) -> None:
    """Make the indexes that the newest version lacks, or whose files are lost."""
    for column in RawVersion(location).missing_indexes():
        location.open(location.manifest).create_scalar_index(column, "BTREE")


# Reading


def _rows_of(table: pa.Table) -> list[RawRow]:
    columns = table.schema.names
    partitions = {n: _keys(table.column(n)) for n in columns if n.startswith(COLUMN_PREFIX)}
    others = [n for n in columns if n not in partitions and n not in _SPECIAL]
    cells = {
        n: table.column(n).to_pylist() for n in (*others, *_SPECIAL) if n in table.schema.names
    }
    rows = []
    for index in range(table.num_rows):
        row = {name: cells[name][index] for name in cells}
        values = {
            name.removeprefix(COLUMN_PREFIX): keys[index]
            for name, keys in partitions.items()
            if keys[index] is not None
        }
        rows.append(
            RawRow(
                row["object_id"],
                row["object_type"],
                row.get("location"),
                _flat_map(row.get("metadata")),
                row[_ROW_NUMBER],
                values,
                {name: row[name] for name in others if row[name] is not None},
            )
        )
    return rows


def _keys(column: pa.ChunkedArray) -> list[Any]:
    domain = domain_of(column.type)
    return [domain.key(scalar) if scalar.is_valid else None for scalar in column]


def _flat_map(text: str | None) -> dict[str, str] | None:
    """The metadata of a row; None where it is not a flat map of strings."""
    try:
        parsed = json.loads(text or "{}")
    except ValueError:
        return None
    if not isinstance(parsed, dict) or not all(isinstance(v, str) for v in parsed.values()):
        return None
    return parsed


def _rebuilt_head(manifest: ManifestVersion, rows: Sequence[RawRow]) -> Head | None:
    """A head from the copy that other clients read: names of new leaves get a new salt."""
    try:
        strong = READ_VERSION in manifest.schema.names or any(
            row.copy(READ_VERSION) for row in rows if row.type == TABLE
        )
        copy = Head.foreign(0, manifest.metadata, strong, manifest.location.uri)
    except (PhalanxError, KeyError, ValueError, IndexError):
        return None
    sequences = [row.sequence for row in rows if row.sequence is not None]
    times = [row.committed_at for row in rows if row.committed_at is not None]
    return replace(
        copy,
        schema=copy.written_schema,
        declared=None,
        sequence=max(sequences, default=1),
        committed_at=max(times, default=dt.datetime.now(dt.UTC)),
        table_id=manifest.metadata[TABLE_ID_KEY],
        salt=secrets.token_bytes(16),
        transaction_id=uuid.uuid4().hex,
        ours=True,
    )
