"""Metadata tables: `<table>.partitions`, `.snapshots`, `.tags`, `.files`, `.specs`, `.indexes`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from phalanx.table import indexes, inspect
from phalanx.transaction.snapshot import Snapshot

_SPECS = pa.schema(
    [
        ("spec_id", pa.int32()),
        ("is_current", pa.bool_()),
        ("position", pa.int32()),
        ("field_id", pa.string()),
        ("transform", pa.string()),
        ("result_type", pa.string()),
    ]
)


def _specs(snapshot: Snapshot) -> pa.Table:
    """One row for each partition field of each spec, outermost first."""
    head = snapshot.head
    rows = [
        {
            "spec_id": spec.id,
            "is_current": spec.id == head.spec_id,
            "position": position,
            "field_id": field.field_id,
            "transform": field.spell(head.schema),
            "result_type": str(field.result_type),
        }
        for spec in head.specs
        for position, field in enumerate(spec.fields)
    ]
    return pa.Table.from_pylist(rows, _SPECS)


_TAGS = pa.schema([("name", pa.string()), ("version", pa.int64())])


def _tags(snapshot: Snapshot) -> pa.Table:
    """One row for each tag."""
    tags = sorted(snapshot.tags().items())
    return pa.Table.from_pylist([{"name": n, "version": tag.version} for n, tag in tags], _TAGS)


@dataclass(frozen=True)
class MetadataTable:
    """One metadata table."""

    #: Makes its rows.
    rows: Callable[[Snapshot], pa.Table]
    #: Its columns; None where they depend on the table's specs.
    schema: pa.Schema | None


#: The metadata tables by name.
TABLES = {
    "partitions": MetadataTable(partial(inspect.partitions, named=True), None),
    "snapshots": MetadataTable(inspect.snapshots, inspect.SNAPSHOTS),
    #: What other formats call it.
    "history": MetadataTable(inspect.snapshots, inspect.SNAPSHOTS),
    "tags": MetadataTable(_tags, _TAGS),
    "files": MetadataTable(inspect.files, inspect.FILES),
    "specs": MetadataTable(_specs, _SPECS),
    "indexes": MetadataTable(indexes.indexes, indexes.INDEXES),
}


def rows_of(snapshot: Snapshot, name: str) -> pa.Table:
    return TABLES[name].rows(snapshot)


def schema_of(snapshot: Snapshot, name: str) -> pa.Schema:
    """The columns of a metadata table."""
    table = TABLES[name]
    if table.schema is not None:
        return table.schema
    return inspect.partitions_schema(snapshot, named=True)
