"""Rows on their way in: a new table with its first rows, in one transaction."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput, TableExists
from phalanx.model.specs import CustomField
from phalanx.storage import manifest
from phalanx.storage.location import Location
from phalanx.table import create
from phalanx.table.create import first_head
from phalanx.table.partitioned_writer import BUFFER_BYTES
from phalanx.table.table import Table


def create_with_rows(
    uri: str | os.PathLike[str],
    schema: pa.Schema,
    partition_by: Sequence[str | CustomField],
    rows: Any,
    *,
    transactions: str = "strong",
    storage_options: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    buffer_bytes: int = BUFFER_BYTES,
) -> Table:
    """Create a table with rows from any Arrow source, in bounded memory.

    Readers see the table with all of its rows, or none. Raises TableExists, and InvalidInput if the
    rows do not fit; files that were written by then belong to no table.
    """
    location = Location(uri, storage_options)
    head = first_head(schema, partition_by, transactions, properties)
    with location.naming_failures():
        return Table(create.create_with_rows(location, head, rows, buffer_bytes))


def refuse_existing(location: Location) -> None:
    """Raise TableExists before rows are read, not after."""
    if manifest.exists(location):
        raise TableExists(f"there is already a table at {location.uri}: import to another place")


def check_schema(schema: Any) -> None:
    """Raise InvalidInput for a schema that is none."""
    if schema is not None and not isinstance(schema, pa.Schema):
        raise InvalidInput(f"a schema is a pyarrow.Schema, not {type(schema).__name__}")
