"""How a table comes to be: created, alone or with its first rows, or replaced by another."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace

import pyarrow as pa

from phalanx.errors import ConflictError, InvalidInput
from phalanx.model.properties import check_new
from phalanx.model.schema import TableSchema
from phalanx.model.specs import CustomField, build_spec
from phalanx.storage import fsync, manifest
from phalanx.storage.head import Head
from phalanx.storage.leaf import check_storable
from phalanx.storage.location import Location
from phalanx.table.operations.append import Append
from phalanx.table.operations.replace import Replace
from phalanx.table.partitioned_writer import WrittenLeaf
from phalanx.transaction.commit import Transaction, durable_by_default, first_rows
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import Commits, View

PartitionBy = Sequence[str | CustomField]


def first_head(
    schema: pa.Schema,
    partition_by: PartitionBy,
    transactions: str,
    properties: Mapping[str, str] | None,
) -> Head:
    """The head of a new table. Raises InvalidInput where its parts do not go together."""
    if transactions not in ("strong", "weak"):
        raise InvalidInput(f"transactions are 'strong' or 'weak', not {transactions!r}")
    tagged = TableSchema.assign(schema)
    check_storable(tagged)
    spec = build_spec(1, partition_by, tagged)
    check_new(properties or {})
    head = Head.first(tagged, spec, dt.datetime.now(dt.UTC), transactions)
    return replace(head, properties=dict(properties or {}))


def create_table(
    location: Location,
    head: Head,
    written: Sequence[WrittenLeaf],
    pool: Executor,
    started: float,
) -> Snapshot:
    """Make a table with its first rows, written since `started`: both are there, or neither.

    Raises TableExists where there is one already; the rows are leftovers then.
    """
    durably = durable_by_default()
    rows = first_rows(head)
    if written and head.transactions == "strong":
        view = View(Snapshot.unborn(location, head), Commits(), pool)
        Append(head, written).run(view)
        view.rows(rows, head.sequence)
        counts = view.counts
        rows.add_transaction(
            head,
            {
                "operation": "create",
                "rows_added": str(counts.added),
                "rows_removed": "0",
                "leaves": str(len(counts.leaves)),
                "rows_gone": "0",
            },
        )
        if durably and location.is_local:
            fsync.sync([leaf.uri for leaf, _ in view.changed_leaves()], started)
    manifest.create(location, head, rows)
    if durably and location.is_local:
        fsync.sync([location.manifest], started)
    made = Snapshot.latest(location)
    if written and head.transactions == "weak":
        transaction = Transaction(made, pool, durably=durably, started=started)
        transaction.run(Append(head, written))
        return transaction.commit()
    return made


def replaced_head(
    head: Head, schema: pa.Schema, partition_by: PartitionBy, properties: Mapping[str, str]
) -> Head:
    """The head of a table that takes another's place and keeps its history.

    No id of a field or spec that has been used is used again.
    """
    tagged = TableSchema.assign(schema, head.max_field_id + 1)
    check_storable(tagged)
    check_new(properties)
    spec = build_spec(max(spec.id for spec in head.specs) + 1, partition_by, tagged, head.specs)
    return replace(
        head,
        schema=tagged,
        specs=(*head.specs, spec),
        spec_id=spec.id,
        max_field_id=max(tagged.field_ids),
        properties=dict(properties),
    )


def replace_table(
    base: Snapshot, head: Head, written: Sequence[WrittenLeaf], pool: Executor, started: float
) -> Snapshot:
    """Replace a table in one snapshot. Raises ConflictError where it has changed its shape."""
    if base.head.table_id != head.table_id:
        raise ConflictError(f"the table {base.location.uri} was dropped and made again: try again")
    transaction = Transaction(base, pool, durably=durable_by_default(), started=started)
    transaction.run(Replace(head, written))
    return transaction.commit()
