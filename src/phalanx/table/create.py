"""Creation of a table, empty or with its first rows, and its replacement by another."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa

from phalanx.errors import ConflictError, InvalidInput, TableExists
from phalanx.model.properties import LAYOUT, check_new
from phalanx.model.schema import TableSchema
from phalanx.model.specs import CustomField, PartitionSpec, build_spec, lone_units
from phalanx.storage import forms, fsync, manifest
from phalanx.storage.head import Head
from phalanx.storage.lance_types import check_storable
from phalanx.storage.layouts import layout_of
from phalanx.storage.location import Location
from phalanx.storage.records import TransactionRecord
from phalanx.table import ingest
from phalanx.table.operations.append import Append
from phalanx.table.operations.replace import Replace
from phalanx.table.partitioned_writer import (
    BUFFER_BYTES,
    WRITERS,
    PartitionedWriter,
    WrittenLeaf,
)
from phalanx.transaction.commit import Transaction, durable_by_default, first_update
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.tiny_leaves import check_new_leaves
from phalanx.transaction.view import Commits, View

log = logging.getLogger("phalanx")

PartitionBy = Sequence[str | CustomField]


def first_head(
    schema: pa.Schema,
    partition_by: PartitionBy,
    transactions: str,
    properties: Mapping[str, str] | None,
) -> Head:
    """The head of a new table.

    Raises InvalidInput if the schema, a partition field or a property is not valid.
    """
    if transactions not in ("strong", "weak"):
        raise InvalidInput(f"transactions are 'strong' or 'weak', not {transactions!r}")
    tagged = TableSchema.assign(schema)
    check_storable(tagged)
    check_new(properties or {}, schema.names)
    layout = layout_of(properties or {})
    spec = layout.adapted(build_spec(1, partition_by, tagged), tagged)
    warn_of_lone_units(spec, tagged)
    head = Head.first(tagged, spec, dt.datetime.now(dt.UTC), transactions)
    head = replace(
        head,
        properties={**layout.DEFAULTS, **(properties or {})},
        writer_features=head.writer_features | layout.FEATURES,
    )
    return head.with_features()


def warn_of_lone_units(spec: PartitionSpec, schema: TableSchema) -> None:
    """Warn of a day, month or hour without the units above it.

    `day(ts)` is the day of the month. Who comes from Iceberg or Spark means `days(ts)`.
    """
    for field, unit in lone_units(spec):
        text = field.spell(schema)
        log.warning(
            "%s is the %s alone, the same in every %s: to cut time into %s, write %s",
            text,
            {"month": "month", "day": "day of the month", "hour": "hour of the day"}[unit.singular],
            {"month": "year", "day": "month", "hour": "day"}[unit.singular],
            unit.plural,
            text.replace(unit.singular, unit.plural, 1),
        )


def create_table(
    location: Location,
    head: Head,
    written: Sequence[WrittenLeaf],
    pool: Executor,
    started: float,
) -> Snapshot:
    """Create a table together with its first rows, if there are any.

    `written` are files that were written after `started`. A weak table gets its rows in a second
    transaction. Raises TableExists if there is already a table, and InvalidInput for more leaves
    than the table's properties allow; the files are then orphans.
    """
    if forms.is_occupied(location):
        raise TableExists(
            f"there is a tree of key=value folders at {location.uri}: open it, or make it a table "
            "with phalanx.interop.hive.adopt"
        )
    durably = durable_by_default()
    update = first_update(head)
    if written and head.transactions == "strong":
        view = View(Snapshot.unborn(location, head), Commits(), pool)
        Append(head, written).run(view)
        check_new_leaves(view)
        view.put_leaves(update, head.sequence)
        counts = view.counts
        update.put_transaction(
            TransactionRecord.of(
                head,
                "create",
                rows_added=counts.added,
                rows_removed=0,
                leaves=len(counts.leaves),
                removals=0,
            )
        )
        if durably and location.is_local:
            fsync.sync([leaf.uri for leaf, _ in view.changed_leaves()], started)
    manifest.create(location, head, update)
    if durably and location.is_local:
        fsync.sync([location.manifest], started)
    snapshot = Snapshot.latest(location)
    if written and head.transactions == "weak":
        transaction = Transaction(snapshot, pool, durably=durably, started=started)
        transaction.run(Append(head, written))
        return transaction.commit()
    return snapshot


def create_with_rows(
    location: Location, head: Head, rows: Any, buffer_bytes: int = BUFFER_BYTES
) -> Snapshot:
    """Create a table with its first rows, from whatever holds them, in bounded memory.

    Readers see the table with all of its rows, or none. Raises TableExists, and InvalidInput if the
    rows do not fit; files that were written by then belong to no table.
    """
    started = time.time()
    if manifest.exists(location):  # before rows are read, not after
        raise TableExists(f"there is already a table at {location.uri}: open it instead")
    with ThreadPoolExecutor(WRITERS) as pool:
        writer = PartitionedWriter(Snapshot.unborn(location, head), pool, buffer_bytes)
        written = writer.write(ingest.chunks(rows, head.schema.arrow, buffer_bytes))
        return create_table(location, head, written, pool, started)


def replaced_head(
    head: Head, schema: pa.Schema, partition_by: PartitionBy, properties: Mapping[str, str]
) -> Head:
    """The head of a table that replaces another and keeps its history.

    Ids of fields and specs that were ever used are not used again. Raises InvalidInput if the
    schema, a partition field or a property is not valid.
    """
    tagged = TableSchema.assign(schema, head.max_field_id + 1)
    check_storable(tagged)
    check_new(properties, schema.names)
    if LAYOUT.of(head.properties) != "flat" or LAYOUT.of(properties) != "flat":
        raise InvalidInput(
            "a table with layout='hive' cannot be replaced, and no other can become one: drop the "
            "table and create it again"
        )
    spec = build_spec(max(spec.id for spec in head.specs) + 1, partition_by, tagged, head.specs)
    return replace(
        head.constrained({}),
        schema=tagged,
        specs=(*head.specs, spec),
        spec_id=spec.id,
        max_field_id=max(tagged.field_ids),
        properties=dict(properties),
    ).with_features()


def replace_table(
    base: Snapshot, head: Head, written: Sequence[WrittenLeaf], pool: Executor, started: float
) -> Snapshot:
    """Replace the schema, spec, properties and rows of a table in one snapshot.

    Raises ConflictError if the table was dropped or replaced since `head` was made from it.
    """
    if base.head.table_id != head.table_id:
        raise ConflictError(f"the table {base.location.uri} was dropped and made again: try again")
    transaction = Transaction(base, pool, durably=durable_by_default(), started=started)
    transaction.run(Replace(head, written))
    return transaction.commit()
