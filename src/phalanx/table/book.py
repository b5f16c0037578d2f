"""A manifest as it is, whatever state it is in: what `check` compares and `repair` mends.

What a leaf's row says is written down more than once: as typed columns, as text in the row's
metadata, in the rows of its namespaces and its timeline, and in the leaf itself; and earlier
versions of the manifest remember what it was.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import secrets
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from phalanx.errors import CorruptTable, PhalanxError, UnsupportedTable
from phalanx.model.domains import FloatDomain, domain_of
from phalanx.model.evolution import is_wider
from phalanx.model.specs import COLUMN_PREFIX, PartitionSpec
from phalanx.model.spelling import value_text
from phalanx.storage import raw_manifest
from phalanx.storage.head import HEAD_ID, HEAD_TYPE, Head
from phalanx.storage.manifest import TABLE_ID_KEY, ManifestVersion
from phalanx.storage.manifest_update import READ_VERSION, TABLE, manifest_schema, partition_columns
from phalanx.storage.names import is_leaf_id
from phalanx.storage.raw_manifest import RawRow
from phalanx.table.format import size_text

#: What does no harm: leftovers of writers that failed or still run, and things that cost time.
HARMLESS = frozenset({"orphan-file", "orphan-folder", "index-missing", "namespace-empty"})


@dataclass(frozen=True)
class Problem:
    """One thing that is not as it should be: what, and where; `size` in bytes where it has one."""

    kind: str
    what: str
    where: str
    size: int = 0

    @property
    def harmless(self) -> bool:
        """Whether no row is affected, neither now nor by what comes."""
        return self.kind in HARMLESS

    def __str__(self) -> str:
        size = f" ({size_text(self.size)})" if self.size else ""
        return f"{self.kind}: {self.what}{size}: {self.where}"


@dataclass
class Book:
    """A version of the manifest as it is: its rows, and the head they amount to."""

    manifest: ManifestVersion
    rows: list[RawRow]
    head: Head
    #: The row of the head, where there is one.
    head_row: RawRow | None
    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Values of columns that are wider than the head says, as values of the head's types."""
        have = self.manifest.dataset.schema
        for name, known in partition_columns(self.head.specs).items():
            if name in have.names and is_wider(known.result_type, have.field(name).type):
                wide, narrow = domain_of(have.field(name).type), domain_of(known.result_type)
                for row in (row for row in self.rows if known.field_id in row.values):
                    value = wide.array([row.values[known.field_id]]).cast(known.result_type)
                    row.values[known.field_id] = narrow.key(value[0])

    @staticmethod
    def open(manifest: ManifestVersion, statistics: bool = False) -> Book:
        """Raises CorruptTable where rows cannot be read, or no head can be made out."""
        rows = raw_manifest.read_rows(manifest, statistics)
        found = [row for row in rows if row.id == HEAD_ID]
        problems: list[Problem] = []
        uri = manifest.location.uri
        if len(found) > 1:
            problems.append(Problem("head-twice", f"there are {len(found)} head rows", HEAD_ID))
        for row in sorted(found, key=lambda r: (sequence_in(r) or 0, r.number), reverse=True):
            head = head_of_row(row)
            if head is not None:
                if "sequence" not in row.columns or "committed_at" not in row.columns:
                    what = "the head row has lost its version"
                    problems.append(Problem("head-damaged", what, HEAD_ID))
                return Book(manifest, rows, head, row, problems)
        if TABLE_ID_KEY not in manifest.metadata:
            return Book(manifest, rows, manifest.head(), None)
        problems.append(Problem("head-missing", "there is no head row", HEAD_ID))
        head = _remembered_head(manifest) or _rebuilt_head(manifest, rows)
        if head is None:
            raise CorruptTable(f"the table {uri} has no head row and no copy of its schema")
        return Book(manifest, rows, head, None, problems)

    @property
    def strong(self) -> bool:
        return self.head.transactions == "strong"

    @property
    def specs(self) -> dict[int, PartitionSpec]:
        return {spec.id: spec for spec in self.head.specs}

    def of_type(self, type: str) -> list[RawRow]:
        return [row for row in self.rows if row.type == type]

    def leaves(self) -> list[RawRow]:
        """The rows of leaves; other clients' tables are none of ours."""
        return [row for row in self.of_type(TABLE) if is_leaf_id(row.id)]

    def missing_columns(self) -> list[pa.Field]:
        have = self.manifest.dataset.schema.names
        return [column for column in self._expected() if column.name not in have]

    def changed_columns(self) -> list[pa.Field]:
        have = self.manifest.dataset.schema
        known = [column for column in self._expected() if column.name in have.names]
        return [column for column in known if not _same_type(have.field(column.name), column)]

    def _expected(self) -> Iterable[pa.Field]:
        wanted = manifest_schema(self.head.specs, self.strong)
        if self.head.ours:
            return list(wanted)
        return [column for column in wanted if column.name.startswith(COLUMN_PREFIX)]

    def spec_of(self, row: RawRow) -> PartitionSpec | None:
        """The spec of a leaf or namespace by its id, if the id fits it."""
        parts = row.id.split("$")
        number = parts[0].removeprefix("v")
        spec = self.specs.get(int(number)) if number.isdigit() else None
        depth = len(parts) - (2 if row.type == TABLE else 1)
        if spec is None or depth > len(spec.fields):
            return None
        return None if row.type == TABLE and depth < len(spec.fields) else spec


def _same_type(have: pa.Field, wanted: pa.Field) -> bool:
    """Wider is as good: somebody was about to widen it, and did not live to tell the table so."""
    return bool(have.type.equals(wanted.type)) or is_wider(wanted.type, have.type)


def sequence_in(row: RawRow) -> int | None:
    found = row.columns.get("sequence", row.copy("sequence"))
    return None if found is None else int(found)


def committed_in(row: RawRow) -> dt.datetime | None:
    found = row.columns.get("committed_at", row.copy("committed_at"))
    return dt.datetime.fromisoformat(found) if isinstance(found, str) else found


def head_of_row(row: RawRow) -> Head | None:
    """The head of a row, from columns or their copies. Raises UnsupportedTable for a newer one."""
    sequence, committed = sequence_in(row), committed_in(row)
    if sequence is None or committed is None or row.metadata is None:
        return None
    try:
        return Head.from_row(sequence, committed, row.metadata)
    except UnsupportedTable:
        raise
    except (PhalanxError, ValueError, KeyError):
        return None


def _remembered_head(manifest: ManifestVersion) -> Head | None:
    """The head as the last version of the manifest has it that has one."""
    for book in earlier_books(manifest):
        return book.head
    return None


def earlier_books(manifest: ManifestVersion) -> Iterator[Book]:
    """Earlier versions of the manifest that are whole, newest first."""
    for version in reversed([v for v in manifest.versions() if v < manifest.version]):
        with contextlib.suppress(PhalanxError, OSError, ValueError):
            earlier = ManifestVersion(manifest.location, version)
            found = [row for row in head_rows(earlier) if "sequence" in row.columns]
            head = head_of_row(found[0]) if len(found) == 1 else None
            if head is None or earlier.table_id not in (None, head.table_id):
                continue
            wanted = manifest_schema(head.specs, head.transactions == "strong")
            if set(wanted.names) <= set(earlier.dataset.schema.names):
                yield Book(earlier, raw_manifest.read_rows(earlier, True), head, found[0])


def head_rows(manifest: ManifestVersion) -> list[RawRow]:
    columns = ["object_id", "metadata", "sequence", "committed_at"]
    found = manifest._read(columns, f"object_id = '{HEAD_ID}'").to_pylist()
    rows = []
    for row in found:
        known = {c: row[c] for c in columns[2:] if row.get(c) is not None}
        metadata = raw_manifest.flat_map(row.get("metadata"))
        rows.append(RawRow(HEAD_ID, HEAD_TYPE, None, metadata, columns=known))
    return rows


def _rebuilt_head(manifest: ManifestVersion, rows: Sequence[RawRow]) -> Head | None:
    """A head from the copy that other clients read: names of new leaves get a new salt."""
    try:
        strong = READ_VERSION in manifest.dataset.schema.names or any(
            row.copy(READ_VERSION) for row in rows if row.type == TABLE
        )
        copy = Head.foreign(0, manifest.metadata, strong)
    except (PhalanxError, KeyError, ValueError, IndexError):
        return None
    sequences = [s for row in rows if (s := sequence_in(row)) is not None]
    times = [t for row in rows if (t := committed_in(row)) is not None]
    return replace(
        copy,
        sequence=max(sequences, default=1),
        committed_at=max(times, default=dt.datetime.now(dt.UTC)),
        table_id=manifest.metadata[TABLE_ID_KEY],
        salt=secrets.token_bytes(16),
        transaction_id=uuid.uuid4().hex,
        ours=True,
    )


def version_in(row: RawRow) -> int | None:
    """The version that a leaf's row names, by its column or else by its copy."""
    version = row.columns.get(READ_VERSION)
    if version is None:
        copy = row.copy(READ_VERSION)
        return int(copy) if copy is not None and copy.isdigit() else None
    return int(version)


def agree(key: Any, text: str | None, type: pa.DataType) -> bool:
    """Whether a partition value and its copy are the same."""
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
