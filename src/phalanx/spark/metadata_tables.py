"""Metadata tables: `<table>.partitions`, `.snapshots`, `.files` and `.specs`."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from phalanx.table import inspect
from phalanx.transaction.snapshot import Snapshot


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
    schema = pa.schema(
        [
            ("spec_id", pa.int32()),
            ("is_current", pa.bool_()),
            ("position", pa.int32()),
            ("field_id", pa.string()),
            ("transform", pa.string()),
            ("result_type", pa.string()),
        ]
    )
    return pa.Table.from_pylist(rows, schema)


#: Their names, and the function that makes the rows of each.
TABLES: dict[str, Callable[[Snapshot], pa.Table]] = {
    "partitions": inspect.partitions,
    "snapshots": inspect.snapshots,
    "files": inspect.files,
    "specs": _specs,
}


def rows_of(snapshot: Snapshot, name: str) -> pa.Table:
    return TABLES[name](snapshot)


def schema_of(snapshot: Snapshot, name: str) -> pa.Schema:
    """The columns of a metadata table. Without leaves it has no rows, and is made at once."""
    return TABLES[name](snapshot.with_leaves(snapshot.leaves.none())).schema
