"""Rows of a manifest as they are, whatever state it is in, and the tools to mend it.

A transaction reads and writes the manifest through `phalanx.storage.manifest`, which relies on
every column and on ids that occur once. Here nothing is relied on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from phalanx.errors import CorruptTable
from phalanx.model.domains import domain_of
from phalanx.model.specs import COLUMN_PREFIX
from phalanx.model.spelling import quote
from phalanx.storage import lance_errors
from phalanx.storage.head import HEAD_ID
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.manifest_update import INDEXED

STATISTICS = "column_stats"
_ROW_NUMBER = "_rowid"
_SPECIAL = ("object_id", "object_type", "location", "metadata", _ROW_NUMBER)


@dataclass
class RawRow:
    """One row. Later commits have higher numbers."""

    id: str
    type: str
    location: str | None
    #: The metadata; None where it is no flat map of strings.
    metadata: dict[str, str] | None
    number: int = -1
    #: Keys of partition values by field id; NULL is left out.
    values: dict[str, Any] = field(default_factory=dict)
    #: The other columns; NULL is left out.
    columns: dict[str, Any] = field(default_factory=dict)

    def copy(self, key: str) -> str | None:
        """A value of the metadata."""
        return (self.metadata or {}).get(key)


def read_rows(manifest: ManifestVersion, statistics: bool = False) -> list[RawRow]:
    """Every row of a version of the manifest. Raises CorruptTable where it cannot be read."""
    names = [n for n in manifest.dataset.schema.names if statistics or n != STATISTICS]
    try:
        table = manifest.dataset.scanner(columns=names, with_row_id=True).to_table()
    except (OSError, ValueError) as error:
        reason = manifest.location.reason(error)
        raise CorruptTable(
            f"version {manifest.version} of the manifest of {manifest.location.uri} cannot be "
            f"read: {reason}"
        ) from None
    partitions = {n: _keys(table.column(n)) for n in names if n.startswith(COLUMN_PREFIX)}
    others = [n for n in names if n not in partitions and n not in _SPECIAL]
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
                flat_map(row.get("metadata")),
                row[_ROW_NUMBER],
                values,
                {name: row[name] for name in others if row[name] is not None},
            )
        )
    return rows


def _keys(column: pa.ChunkedArray) -> list[Any]:
    domain = domain_of(column.type)
    return [domain.key(scalar) if scalar.is_valid else None for scalar in column]


def flat_map(text: str | None) -> dict[str, str] | None:
    """The metadata of a row; None where it is no flat map of strings."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        return None
    return found


def remove_rows(location: Location, numbers: Sequence[int]) -> None:
    """Remove rows of the newest version by number: those that an id does not tell apart."""
    listed = ", ".join(str(number) for number in numbers)
    location.open(location.manifest).delete(f"{_ROW_NUMBER} IN ({listed})")


def add_columns(location: Location, fields: Iterable[pa.Field]) -> None:
    """Add columns to the newest version, without a value in any row."""
    location.open(location.manifest).add_columns(pa.schema(list(fields)))


def missing_indexes(manifest: ManifestVersion) -> list[str]:
    """The columns that should have an index and have none, or one whose files are lost."""
    indexed = {name for found in manifest.dataset.describe_indices() for name in found.field_names}
    names = [name for name in INDEXED if name in manifest.dataset.schema.names]
    return [name for name in names if name not in indexed or not _is_usable(manifest, name)]


def _is_usable(manifest: ManifestVersion, column: str) -> bool:
    """Whether rows can be looked up by an index: Lance lists it without looking at its files."""
    value = quote(HEAD_ID) if column == "object_id" else "0"
    try:
        manifest.dataset.scanner(columns=[column], filter=f"{column} = {value}").to_table()
    except (OSError, ValueError) as error:
        return lance_errors.is_unreachable(error)
    return True


def create_indexes(location: Location, columns: Iterable[str]) -> None:
    """Make indexes, in the place of those that are there."""
    for column in columns:
        location.open(location.manifest).create_scalar_index(column, "BTREE")
