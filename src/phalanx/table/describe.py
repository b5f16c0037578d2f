"""A table in a few facts: where it is, how large, how it is partitioned, which columns it has.

Only the manifest is read. This is what `phalanx info`, `phalanx schema` and the explorer show.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from phalanx.model.defaults import new_default_of
from phalanx.model.paths import join_path
from phalanx.model.properties import LAYOUT
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionSpec
from phalanx.model.spelling import constant_text
from phalanx.transaction.snapshot import Snapshot


@dataclass(frozen=True)
class ColumnFacts:
    """A column, or a field of a struct."""

    #: Its id, which stays when it is renamed.
    id: int
    name: str
    type: str
    nullable: bool
    #: What new rows hold that come without it, as text; None if it has no default.
    default: str | None = None
    #: The partition fields of the current spec that are made of it.
    partition_fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class FieldFacts:
    """A partition field."""

    id: str
    #: How a person writes it, such as `bucket(16, id)`.
    spelled: str
    type: str


@dataclass(frozen=True)
class SpecFacts:
    """A version of the partitioning."""

    id: int
    fields: tuple[FieldFacts, ...]
    is_current: bool
    #: How many leaves were written under it and are still there.
    leaves: int


@dataclass(frozen=True)
class Description:
    """What there is to say about a table at one snapshot."""

    uri: str
    version: int
    committed_at: dt.datetime
    transactions: str
    layout: str
    partition_by: tuple[str, ...]
    leaves: int
    #: None where the manifest does not know, as in weak tables.
    rows: int | None
    bytes: int | None
    files: int | None
    columns: tuple[ColumnFacts, ...]
    specs: tuple[SpecFacts, ...]
    #: Versions by the names of their tags.
    tags: Mapping[str, int]
    #: Kinds of indexes by their names, with the columns they are on.
    indexes: Mapping[str, str]
    properties: Mapping[str, str]
    #: The first version that can still be opened.
    oldest_version: int


def description_of(snapshot: Snapshot) -> Description:
    """Describe a snapshot."""
    head, leaves = snapshot.head, snapshot.leaves
    counts = (leaves.row_counts, leaves.byte_counts, leaves.fragment_counts)
    sums = [None if bool((numbers < 0).any()) else int(numbers.sum()) for numbers in counts]
    names = {id: join_path(column.path) for id, column in head.schema.columns.items()}
    return Description(
        uri=snapshot.location.uri,
        version=head.sequence,
        committed_at=head.committed_at,
        transactions=head.transactions,
        layout=LAYOUT.of(head.properties),
        partition_by=tuple(head.spec.spell(head.schema)),
        leaves=len(leaves),
        rows=sums[0],
        bytes=sums[1],
        files=sums[2],
        columns=tuple(_columns(head.schema, head.spec)),
        specs=tuple(_specs(snapshot)),
        tags={name: tag.version for name, tag in sorted(snapshot.tags().items())},
        indexes={
            name: f"{index.kind} on {names.get(index.column_id, '(dropped column)')}"
            for name, index in sorted(head.indexes.items())
        },
        properties=dict(sorted(head.properties.items())),
        oldest_version=head.oldest,
    )


def _columns(schema: TableSchema, spec: PartitionSpec) -> Iterator[ColumnFacts]:
    fields = {field.name: field for field in schema.tagged}
    for id, column in schema.columns.items():
        used = tuple(field.spell(schema) for field in spec.fields if id in field.source_ids)
        default = _default(fields[column.path[0]]) if len(column.path) == 1 else None
        yield ColumnFacts(
            id, join_path(column.path), str(column.type), column.nullable, default, used
        )


def _default(field: pa.Field) -> str | None:
    default = new_default_of(field)
    if default is None:
        return None
    if default.sql is not None:
        return default.sql
    return None if default.value is None else constant_text(default.value)


def _specs(snapshot: Snapshot) -> Iterator[SpecFacts]:
    head = snapshot.head
    for spec in head.specs:
        low, high = snapshot.leaves.range_of(spec.id)
        fields = tuple(
            FieldFacts(field.field_id, field.spell(head.schema), str(field.result_type))
            for field in spec.fields
        )
        yield SpecFacts(spec.id, fields, spec.id == head.spec_id, high - low)
