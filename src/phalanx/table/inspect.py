"""Metadata of a table as Arrow tables: partitions, snapshots, files, and counts by column."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.expressions import plain_type
from phalanx.model.predicates import Predicate
from phalanx.model.pruning import PartitionColumn, column_of
from phalanx.model.schema import extract
from phalanx.model.specs import PartitionField, field_names
from phalanx.model.transforms import Identity
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_index import LeafIndex
from phalanx.table.filters import Filter, predicate_of
from phalanx.table.plan import Plan, values_of
from phalanx.table.scan import Scan
from phalanx.transaction.snapshot import Snapshot

#: The columns of `partitions` beside the partition values.
_OF_LEAVES = ("spec", "rows", "bytes", "fragments", "version", "uri")


#: The columns of `snapshots` and `files`.
SNAPSHOTS = pa.schema(
    [
        ("version", pa.int64()),
        ("committed_at", pa.timestamp("us", "UTC")),
        ("operation", pa.string()),
        ("transaction_id", pa.string()),
        *((name, pa.int64()) for name in ("rows_added", "rows_removed", "leaves")),
    ]
)
FILES = pa.schema(
    [
        ("path", pa.string()),
        ("partition", pa.string()),
        ("spec", pa.int32()),
        *((name, pa.int64()) for name in ("fragment", "rows", "deleted_rows", "bytes")),
    ]
)


def partitions(snapshot: Snapshot, named: bool = False) -> pa.Table:
    """One row for each leaf: its partition values and its size, version and URI.

    Of earlier specs, only fields of those that still have leaves are shown. Columns are called by
    the ids of fields or, if they are `named`, as people call them.
    """
    return _partitions(snapshot, snapshot.leaves, named)


def partitions_schema(snapshot: Snapshot, named: bool = False) -> pa.Schema:
    """The columns of `partitions`."""
    # Without leaves there are no rows to make.
    none = snapshot.with_leaves(snapshot.leaves.none())
    return _partitions(none, snapshot.leaves, named).schema


def _partitions(snapshot: Snapshot, shown: LeafIndex, named: bool) -> pa.Table:
    """The partitions of a snapshot, with a column for each field that leaves of `shown` have."""
    leaves, head = snapshot.leaves, snapshot.head
    specs = {head.spec_id, *np.unique(np.asarray(shown.spec_ids)).tolist()}
    fields = {f.field_id: f for spec in head.specs if spec.id in specs for f in spec.fields}
    names = field_names(fields.values(), head.schema) if named else {id: id for id in fields}
    columns: dict[str, Any] = {"spec": pa.array(leaves.spec_ids, pa.int32())}
    for id, field in fields.items():
        # A partition field may have the name of one of our own columns.
        name = f"partition.{names[id]}" if names[id] in _OF_LEAVES else names[id]
        columns[name] = leaves.column(field.column_name).arrow()
    sizes = _sizes(snapshot) if head.transactions == "weak" else {}
    for name in ("row_count", "byte_count", "fragment_count"):
        columns[name.removesuffix("_count") + "s"] = sizes.get(name, leaves.table.column(name))
    columns["version"] = leaves.read_versions
    root = snapshot.location.uri
    folders = leaves.folders.to_pylist()
    columns["uri"] = pa.array([f"{root}/{folder}" for folder in folders], pa.string())
    return pa.table(columns)


def _sizes(snapshot: Snapshot) -> dict[str, pa.Array]:
    """The sizes of a weak table's leaves, read from their newest version on main."""
    counts: dict[str, list[int]] = {"row_count": [], "byte_count": [], "fragment_count": []}
    for folder in snapshot.leaves.folders.to_pylist():
        leaf = Leaf(snapshot.location, folder, snapshot.head.schema)
        size, fragments = leaf.size(None)
        counts["row_count"].append(leaf.count(None, None))
        counts["byte_count"].append(size)
        counts["fragment_count"].append(fragments)
    return {name: pa.array(sizes, pa.int64()) for name, sizes in counts.items()}


def snapshots(snapshot: Snapshot) -> pa.Table:
    """One row for each transaction up to this snapshot, oldest first."""
    rows = [
        {
            "version": record.sequence,
            "committed_at": record.committed_at,
            "operation": record.operation,
            "transaction_id": record.id,
            "rows_added": record.rows_added or 0,
            "rows_removed": record.rows_removed or 0,
            "leaves": record.leaves or 0,
        }
        for record in snapshot.manifest.transactions()
    ]
    return pa.Table.from_pylist(rows, SNAPSHOTS)


def files(snapshot: Snapshot) -> pa.Table:
    """One row for each data file of the leaves."""
    rows = []
    for row in snapshot.leaves.rows():
        leaf = Leaf.of(snapshot.location, snapshot.head, row)
        partition = json.dumps(values_of(snapshot, row), default=str)
        for file in leaf.data_files(row.read_version):
            rows.append({**file._asdict(), "partition": partition, "spec": row.spec_id})
    return pa.Table.from_pylist(rows, FILES)


def count_by(
    snapshot: Snapshot, columns: Sequence[str], where: Filter | Predicate | None
) -> pa.Table:
    """The number of rows for each combination of values of columns or partition fields.

    No leaf is opened if partition values decide both the filter and the groups. Raises
    InvalidInput for a column that is unknown, repeated or of a nested type, and for a partition
    field of a dropped column if rows must be read.
    """
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        raise InvalidInput("count_by takes a list of at least one column, such as ['country']")
    if len(set(columns)) < len(columns):
        raise InvalidInput("a column is counted by twice")
    predicate = predicate_of(where, snapshot)
    plan = Plan(snapshot, predicate)
    groups = [_grouping(snapshot, plan, name) for name in columns]
    known = bool(np.all(snapshot.leaves.row_counts[plan.indices] >= 0))
    if known and bool(np.all(plan.certain[plan.indices])) and all(g is not None for g in groups):
        return _count_leaves(snapshot, plan, list(columns), [g for g in groups if g is not None])
    return _count_rows(snapshot, list(columns), predicate)


def _grouping(snapshot: Snapshot, plan: Plan, name: str) -> PartitionColumn | None:
    """The value of a column or partition field in each selected leaf.

    None if partition values do not determine it.
    """
    parts: list[PartitionColumn] = []
    for spec in snapshot.head.specs:
        low, high = snapshot.leaves.range_of(spec.id)
        rows = plan.indices[(plan.indices >= low) & (plan.indices < high)]
        if not len(rows):
            continue
        match = next((f for f in spec.fields if _holds(f, name, snapshot)), None)
        if match is None:
            return None
        parts.append(snapshot.leaves.column(match.column_name).take(rows))
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    return column_of(pa.concat_arrays([part.arrow() for part in parts]))


def _holds(field: PartitionField, name: str, snapshot: Snapshot) -> bool:
    """Whether the values of a partition field are those of the column or field `name`."""
    column = snapshot.head.schema.columns.get(field.source_ids[0])
    if isinstance(field.transform, Identity) and column is not None and column.path == (name,):
        return True
    return name == field.field_id and name not in snapshot.head.schema.tagged.names


def _count_leaves(
    snapshot: Snapshot, plan: Plan, names: list[str], groups: list[PartitionColumn]
) -> pa.Table:
    """Add up the row counts of the selected leaves, for each group."""
    codes = np.stack([group.codes for group in groups], axis=1)
    unique, inverse = np.unique(codes, axis=0, return_inverse=True)
    counts = np.zeros(len(unique), dtype=np.int64)
    np.add.at(counts, inverse.reshape(-1), snapshot.leaves.row_counts[plan.indices])
    keep = counts > 0
    columns = {
        name: group.arrow(unique[keep, i])
        for i, (name, group) in enumerate(zip(names, groups, strict=True))
    }
    return pa.table({**columns, _count_name(names): pa.array(counts[keep], pa.int64())})


def _count_name(names: Sequence[str]) -> str:
    """`count`, with underscores appended while a column has that name."""
    name = "count"
    while name in names:
        name += "_"
    return name


def _count_rows(snapshot: Snapshot, names: list[str], predicate: Any) -> pa.Table:
    """Count by reading rows: the fallback if the manifest does not have the answer."""
    schema = snapshot.head.schema
    fields = {
        f.field_id: f
        for spec in snapshot.head.specs
        for f in spec.fields
        if f.field_id not in schema.tagged.names
    }
    needed: list[str] = []
    types = []
    for name in names:
        if name in fields:
            if None in fields[name].sources(schema):
                raise InvalidInput(
                    f"cannot count by {name!r}: a column that it is made of was dropped, and rows "
                    "must be read to count them"
                )
            needed += [c.path[0] for c in fields[name].sources(schema) if c is not None]
            types.append(fields[name].result_type)
        else:
            needed.append(name)
            types.append(plain_type(schema.column((name,)).type))
            if pa.types.is_nested(types[-1]) or isinstance(types[-1], pa.BaseExtensionType):
                raise InvalidInput(f"cannot count by {name!r}: it has the type {types[-1]}")
    # Columns are numbered, so that no name is mistaken for another, such as `count`.
    numbers = [str(i) for i in range(len(names))]
    empty = [pa.array([], type) for type in (*types, pa.int64())]
    counted = [pa.table(empty, names=[*numbers, "count"])]
    for batch in Scan(snapshot, list(dict.fromkeys(needed)), predicate).to_batches(ordered=False):
        keys = []
        for name, type in zip(names, types, strict=True):
            # Leaves may have different dictionaries, so values are counted, not codes.
            key = fields[name].apply(batch, schema) if name in fields else extract(batch, (name,))
            # All zeros are one group, and so are all NaNs.
            keys.append(Identity().apply([key]) if pa.types.is_floating(type) else key)
        ones = pa.array(np.ones(batch.num_rows, np.int64))
        counted.append(_summed(pa.table([*keys, ones], names=[*numbers, "count"]), numbers))
    counts = _summed(pa.concat_tables(counted), numbers)
    order = [column_of(counts.column(number).combine_chunks()).codes for number in numbers]
    counts = counts.take(pa.array(np.lexsort(order[::-1])))
    return counts.rename_columns([*names, _count_name(names)])


def _summed(table: pa.Table, keys: list[str]) -> pa.Table:
    grouped = table.group_by(keys).aggregate([("count", "sum")])
    return grouped.rename_columns([*keys, "count"])
