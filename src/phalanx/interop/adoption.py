"""`adopt` makes a table whose leaves are existing Lance datasets, without copying their files.

Every dataset becomes one leaf. Its rows are checked first: their partition values must be those
that it is adopted under. What the table writes later goes to its own folders.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import InvalidInput, TableExists
from phalanx.model.domains import domain_of
from phalanx.model.schema import TableSchema
from phalanx.model.specs import CustomField, PartitionField, PartitionSpec
from phalanx.model.spelling import shortened, shown_value
from phalanx.storage import fsync, manifest
from phalanx.storage.borrowed_files import BorrowedDataset
from phalanx.storage.head import Head
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.storage.records import LeafRow, TransactionRecord
from phalanx.table.create import first_head
from phalanx.table.table import Table
from phalanx.transaction.commit import durable_by_default, first_update
from phalanx.transaction.failpoints import reach
from phalanx.transaction.places import Place, find_place
from phalanx.transaction.snapshot import Snapshot

#: The name of this operation in the table's history.
ADOPT = "adopt"
_WORKERS = 8

Keys = tuple[Any, ...]


def adopt(
    uri: str | os.PathLike[str],
    schema: pa.Schema,
    partition_by: Sequence[str | CustomField],
    datasets: Mapping[Any, Any] | Sequence[tuple[Any, Any]],
    *,
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Make a table of Lance datasets, one for each partition, without copying their files.

    The datasets stay as they are. The table needs the files of the versions that it was made of:
    do not delete them while it does.

    Args:
        uri: Where the table is made.
        schema: Its schema. Every dataset must have these columns, in any order.
        partition_by: Its partition fields, as in `create`.
        datasets: The datasets by their partition values: a tuple with one value for each field, a
            single value if there is one field, or in a list of pairs also a dict by field id. A
            dataset is a path, a URI or an open `lance.LanceDataset`.
        properties: Properties of the table.
        storage_options: Options of the object store, for the table and the datasets.

    Raises:
        TableExists: There is already a table at `uri`.
        InvalidInput: A dataset cannot be opened, has other columns or types, or has rows that
            belong to another partition.
    """
    location = Location(uri, storage_options)
    with location.naming_failures():
        if manifest.exists(location):
            raise TableExists(f"there is already a table at {location.uri}: open it instead")
        head = first_head(schema, partition_by, "strong", properties)
        sources = _sources(location, head.spec, datasets)
        started = time.time()
        with ThreadPoolExecutor(_WORKERS) as pool:
            list(pool.map(lambda item: _check(item[1], head, item[0]), sources.items()))
            leaves = list(pool.map(lambda item: _adopted(location, head, *item), sources.items()))
        reach("adopt.leaves-made")
        _create(location, head, [leaf for leaf in leaves if leaf.row_count], started)
        return Table(Snapshot.latest(location))


def _sources(
    location: Location,
    spec: PartitionSpec,
    datasets: Mapping[Any, Any] | Sequence[tuple[Any, Any]],
) -> dict[Keys, BorrowedDataset]:
    pairs = list(datasets.items() if isinstance(datasets, Mapping) else datasets)
    sources: dict[Keys, BorrowedDataset] = {}
    for values, source in pairs:
        keys = _keys(spec.fields, values)
        if keys in sources:
            raise InvalidInput(
                f"there are two datasets for the partition {values!r}: merge them first"
            )
        sources[keys] = BorrowedDataset(source, location)
    return sources


def _keys(fields: Sequence[PartitionField], values: Any) -> Keys:
    """The partition values that a dataset is adopted under. Raises InvalidInput."""
    names = [field.field_id for field in fields]
    if isinstance(values, Mapping):
        if set(values) != set(names):
            raise InvalidInput(f"{dict(values)!r} must have a value for each of {', '.join(names)}")
        values = tuple(values[name] for name in names)
    elif not isinstance(values, tuple):
        values = (values,)
    if len(values) != len(fields):
        raise InvalidInput(
            f"{values!r} must have one value for each of {', '.join(names) or 'no field'}"
        )
    return tuple(_key(field, value) for field, value in zip(fields, values, strict=True))


def _key(field: PartitionField, value: Any) -> Any:
    if value is None:
        return None
    try:
        return domain_of(field.result_type).key(pa.scalar(value, field.result_type))
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        raise InvalidInput(
            f"{shortened(repr(value))} is not a value of the partition field {field.field_id!r}, "
            f"which has the type {field.result_type}"
        ) from None


def _check(source: BorrowedDataset, head: Head, keys: Keys) -> None:
    """Raise InvalidInput if a dataset does not fit the table, or not the partition."""
    source.check(head.schema)
    columns = _source_columns(head.schema, head.spec)
    for batch in source.batches(columns) if columns else ():
        for field, key in zip(head.spec.fields, keys, strict=True):
            values = pc.unique(field.apply(batch, head.schema))
            domain = domain_of(values.type)
            for scalar in values:
                own = domain.key(scalar) if scalar.is_valid else None
                if own != key:
                    here, there = (shown_value(k, field.result_type) for k in (own, key))
                    raise InvalidInput(
                        f"the dataset {source.uri} has rows whose {field.spell(head.schema)} is "
                        f"{here}, not {there}: they belong to another partition"
                    )


def _source_columns(schema: TableSchema, spec: PartitionSpec) -> list[str]:
    """The columns that partition values are computed of."""
    sources = (column for field in spec.fields for column in field.sources(schema))
    return list(dict.fromkeys(column.path[0] for column in sources if column is not None))


def _adopted(location: Location, head: Head, keys: Keys, source: BorrowedDataset) -> LeafRow:
    """The row of a leaf that has the rows of a dataset; one without rows is not created."""
    snapshot = Snapshot.unborn(location, head)
    place = find_place(snapshot.leaves, head, head.spec, keys)
    rows = source.count()
    if not rows:
        return _row(place, None, 0, 0, 0)
    leaf = Leaf(location, place.folder, head.schema)
    version = source.lend(leaf)
    return _row(place, version, rows, *leaf.size(version))


def _row(place: Place, version: int | None, rows: int, size: int, fragments: int) -> LeafRow:
    return LeafRow(
        index=-1,
        object_id=place.leaf_id,
        location=place.folder,
        read_version=version,
        spec_id=place.spec.id,
        keys=place.keys,
        version_number=1,
        row_count=rows,
        byte_count=size,
        fragment_count=fragments,
    )


def _create(location: Location, head: Head, leaves: Sequence[LeafRow], started: float) -> None:
    """Create the table with all leaves, in one transaction."""
    update = first_update(head)
    for leaf in leaves:
        update.put_namespaces(leaf, head.spec)
        update.put_leaf(leaf, head.spec, head.sequence)
    update.put_transaction(
        TransactionRecord.of(
            head,
            ADOPT,
            rows_added=sum(leaf.row_count or 0 for leaf in leaves),
            rows_removed=0,
            leaves=len(leaves),
            removals=0,
        )
    )
    durably = durable_by_default() and location.is_local
    if durably:
        fsync.sync([location.child(leaf.location) for leaf in leaves], started)
    manifest.create(location, head, update)
    if durably:
        fsync.sync([location.manifest], started)
