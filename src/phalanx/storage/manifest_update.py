"""What a swap writes to the manifest: rows to put and rows to remove.

The layout is Appendix C of the specification. Phalanx adds columns and rows of its own, which stock
clients ignore:

| column                                | on rows                   | holds                       |
|---------------------------------------|---------------------------|-----------------------------|
| `spec_id`                             | table                     | the leaf's spec             |
| `version_number`                      | table                     | the newest in its timeline  |
| `row_count byte_count fragment_count` | table                     | the leaf's size             |
| `column_stats`                        | table                     | read only on request        |
| `sequence`                            | table, __head, transaction| the version that wrote it   |
| `committed_at`                        | __head, transaction       | the time of that version    |
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from phalanx.model import statistics
from phalanx.model.domains import domain_of
from phalanx.model.specs import COLUMN_PREFIX, PartitionField, PartitionSpec
from phalanx.model.spelling import value_text
from phalanx.storage import names
from phalanx.storage.head import HEAD_ID, HEAD_TYPE, Head
from phalanx.storage.records import EpochRecord, LeafRow, TagRecord, TransactionRecord

NAMESPACE, TABLE, VERSION = "namespace", "table", "table_version"
TRANSACTION, TAG, STREAM = "transaction", "tag", "stream"
READ_VERSION = "read_version"
STATISTICS = "column_stats"
#: The columns that have an index, because rows are looked up by their values.
INDEXED = ("object_id", "sequence")
#: With at most this many rows, a manifest is as fast without indexes: a new one has none.
UNINDEXED_ROWS = 10_000

_FIXED = [
    pa.field(
        "object_id",
        pa.string(),
        nullable=False,
        metadata={"lance-schema:unenforced-primary-key:position": "0"},
    ),
    pa.field("object_type", pa.string(), nullable=False),
    pa.field("location", pa.string()),
    pa.field("metadata", pa.string()),
    pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
    pa.field(READ_VERSION, pa.uint64()),
    pa.field("spec_id", pa.int32()),
    pa.field("version_number", pa.int64()),
    pa.field("row_count", pa.int64()),
    pa.field("byte_count", pa.int64()),
    pa.field("fragment_count", pa.int64()),
    pa.field(STATISTICS, statistics.ARROW_TYPE),
    pa.field("sequence", pa.int64()),
    pa.field("committed_at", pa.timestamp("us", "UTC")),
]


def manifest_schema(specs: Iterable[PartitionSpec], strong: bool = True) -> pa.Schema:
    """The manifest's columns, including one for each partition field of any spec.

    A table without `read_version` is weak: its leaves are read at their newest version on main.
    """
    fields = {field.field_id: field for spec in specs for field in spec.fields}
    fixed = [field for field in _FIXED if strong or field.name != READ_VERSION]
    return pa.schema([*fixed, *(pa.field(f.column_name, f.result_type) for f in fields.values())])


def partition_columns(specs: Iterable[PartitionSpec]) -> dict[str, PartitionField]:
    """The manifest's partition columns by name."""
    return {f.column_name: f for spec in specs for f in spec.fields}


def partition_texts(fields: Sequence[PartitionField], keys: Sequence[Any]) -> dict[str, str]:
    """Partition values as strings, for stock clients and for repair; NULL is left out."""
    return {
        f"partition.{field.field_id}": value_text(key, field.result_type)
        for field, key in zip(fields, keys, strict=True)
        if key is not None
    }


class ManifestUpdate:
    """Rows that one swap writes, and the ids of rows that it removes."""

    def __init__(self, specs: Iterable[PartitionSpec], strong: bool = True) -> None:
        self._schema = manifest_schema(specs, strong)
        self._rows: dict[str, dict[str, Any]] = {}
        self.removed: list[str] = []
        #: Ids of rows that are new if the row of another id, which the value is, is written again.
        self._new: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, id: str) -> bool:
        """Whether a row with this id is written."""
        return id in self._rows

    def put(
        self,
        object_id: str,
        object_type: str,
        metadata: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
        **columns: Any,
    ) -> None:
        """Write a row, replacing any with the same id. `values` are keys by field id."""
        row = {f"{COLUMN_PREFIX}{id}": key for id, key in (values or {}).items()}
        row |= columns
        row["object_id"], row["object_type"] = object_id, object_type
        row["metadata"] = json.dumps(dict(metadata or {}), ensure_ascii=False)
        self._rows[object_id] = row

    def remove(self, ids: Iterable[str]) -> None:
        self.removed += ids

    def replaces_only(self, ids: Collection[str]) -> bool:
        """Whether all rows of the manifest that it replaces have these ids: the others are new."""
        return all(id in ids or self._new.get(id) in ids for id in self._rows)

    def put_head(self, head: Head) -> None:
        self.put(
            HEAD_ID,
            HEAD_TYPE,
            head.to_metadata(),
            sequence=head.sequence,
            committed_at=head.committed_at,
        )

    def put_transaction(self, record: TransactionRecord, new: bool = False) -> None:
        """Write the record of a transaction: it makes a retry a no-op, and is part of history.

        `new` says that its id is a random one, which no other has.
        """
        id = names.transaction_row(record.id)
        if new:
            self._new[id] = HEAD_ID
        self.put(
            id,
            TRANSACTION,
            record.to_metadata(),
            sequence=record.sequence,
            committed_at=record.committed_at,
        )

    def put_tag(self, tag: TagRecord) -> None:
        self.put(names.tag_row(tag.name), TAG, tag.to_metadata(), sequence=tag.version)

    def remove_tag(self, name: str) -> None:
        self.remove([names.tag_row(name)])

    def put_epoch(self, record: EpochRecord) -> None:
        self.put(names.stream_row(record.query), STREAM, record.to_metadata())

    def put_spec(self, spec: PartitionSpec) -> None:
        """Write the namespace of a spec, whose metadata contains the spec."""
        self.put(spec.namespace, NAMESPACE, {"partition_spec": spec.dumps()})

    def put_namespaces(self, leaf: LeafRow, spec: PartitionSpec) -> None:
        """Write the namespaces that a new leaf is in."""
        values: dict[str, Any] = {}
        namespaces = names.namespaces_above(leaf.object_id)
        for id, field, key in zip(namespaces, spec.fields, leaf.keys, strict=True):
            values[field.field_id] = key
            self.put(id, NAMESPACE, partition_texts([field], [key]), dict(values))

    def put_leaf(
        self,
        leaf: LeafRow,
        spec: PartitionSpec,
        sequence: int,
        column_stats: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Write a leaf as of a version of the table, and the next row of its timeline.

        A leaf of a weak table has no sizes and no timeline: it is read at its newest version on
        main.
        """
        metadata = partition_texts(spec.fields, leaf.keys)
        values = {f.field_id: key for f, key in zip(spec.fields, leaf.keys, strict=True)}
        columns: dict[str, Any] = {
            "location": leaf.location,
            "spec_id": leaf.spec_id,
            "sequence": sequence,
        }
        if leaf.read_version is not None:
            metadata[READ_VERSION] = str(leaf.read_version)
            columns |= {
                READ_VERSION: leaf.read_version,
                "version_number": leaf.version_number,
                "row_count": leaf.row_count,
                "byte_count": leaf.byte_count,
                "fragment_count": leaf.fragment_count,
                STATISTICS: column_stats,
            }
            version = names.version_id(leaf.object_id, leaf.version_number)
            self._new[version] = leaf.object_id
            self.put(version, VERSION, read_version=leaf.read_version)
        self.put(leaf.object_id, TABLE, metadata, values, **columns)

    def to_table(self) -> pa.Table:
        rows = list(self._rows.values())
        columns = []
        for field in self._schema:
            cells = [row.get(field.name) for row in rows]
            if field.name.startswith(COLUMN_PREFIX):
                columns.append(domain_of(field.type).array(cells))
            else:
                columns.append(pa.array(cells, field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)
