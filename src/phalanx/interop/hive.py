"""Trees of key=value folders become tables, without moving a row."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa

from phalanx.errors import ConflictError, InvalidInput, TableExists, UnsupportedTable
from phalanx.interop import hive_layout, takeover
from phalanx.interop.hive_tree import Unconfirmed, tested_functions
from phalanx.interop.proof import proven_schema
from phalanx.model.properties import LAYOUT, check_new
from phalanx.model.schema import field_id
from phalanx.model.specs import PartitionSpec
from phalanx.storage import manifest, names
from phalanx.storage.head import Head
from phalanx.storage.lance_types import check_storable
from phalanx.storage.leaf import Leaf, leaf_schema
from phalanx.storage.location import Declaration, Location
from phalanx.storage.main_branch import MainBranch
from phalanx.storage.manifest import ManifestVersion, SwapLost
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx.storage.records import LeafRow, TransactionRecord
from phalanx.table.table import Table
from phalanx.transaction import lock
from phalanx.transaction.commit import first_update
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot

#: How many leaves are looked at at a time.
_WORKERS = 8


def adopt(
    uri: str | os.PathLike[str],
    schema: pa.Schema | None = None,
    partition_by: Sequence[str] | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """Make a tree of key=value folders a table, in one commit and without moving a row.

    The tree gets a manifest that names its leaves at their versions of this moment. From then on it
    has transactions, snapshots and everything else that a table has, and what others commit to its
    leaves is no longer part of it: `Table.check` reports such rows, and `Table.repair` takes them.

    Args:
        uri: The root of the tree.
        schema: As in `phalanx.open`.
        partition_by: As in `phalanx.open`.
        storage_options: Options of the object store that the tree is in.
        properties: Properties of the new table.

    Returns:
        The table, at version 1.

    Raises:
        TableExists: It is a table already.
        ConflictError: Another client has written to its manifest meanwhile; try again.
        TableNotFound: There is no tree.
        UnsupportedTable: Leaves differ in their columns, or in the ids that Lance gives these, or a
            row is not where a partition function puts it.
        InvalidInput: The schema, a partition field or a property is not valid.
    """
    fields = None if partition_by is None else tuple(partition_by)
    declaration = Declaration(schema, fields) if schema is not None or fields is not None else None
    location = Location(uri, storage_options, declaration)
    with location.naming_failures(), lock.held(location):
        place = Location(uri, storage_options)
        # What is replaced in the end is what is here now, or nothing.
        theirs = ManifestVersion(place) if manifest.exists(place) else None
        tree = Snapshot.latest(location)
        if not tree.manifest.is_listed:
            raise TableExists(f"there is already a table at {location.uri}: open it")
        head = _head(tree, properties or {})
        plain = replace(tree.head, specs=head.specs)
        with ThreadPoolExecutor(_WORKERS) as pool:
            list(pool.map(lambda row: _check_leaf(location, row, head), tree.leaves.rows()))
            list(pool.map(lambda row: _check_functions(location, row, plain), tree.leaves.rows()))
            reach("adopt.leaves-checked")
            rows = list(pool.map(lambda row: _pinned(location, row, head), tree.leaves.rows()))
        head = replace(head, schema=proven_schema(location, head, rows))
        update = first_update(head)
        for row in rows:
            update.put_namespaces(row, head.spec)
            update.put_leaf(row, head.spec, head.sequence)
        total = sum(row.row_count or 0 for row in rows)
        update.put_transaction(
            TransactionRecord.of(
                head, "create", rows_added=total, rows_removed=0, leaves=len(rows), removals=0
            )
        )
        reach("adopt.before-commit")
        if theirs is None:
            manifest.create(place, head, update)
        else:
            _take_over(theirs, head, update)
        return Table(Snapshot.latest(place))


def _take_over(theirs: ManifestVersion, head: Head, update: ManifestUpdate) -> None:
    """Make the manifest of another client the table's.

    Raises TableExists if another process has done it first, and ConflictError if another client has
    written to it. Nothing is changed then.
    """
    location = theirs.location
    try:
        with takeover.guarded(theirs) as guarded:
            takeover.replace_rows(guarded, head, update)
    except SwapLost:
        if ManifestVersion(location).sequence() is not None:
            raise TableExists(f"there is already a table at {location.uri}: open it") from None
        raise ConflictError(
            f"another client has written to the namespace {location.uri}: nothing was changed, try "
            "again"
        ) from None
    reach("adopt.rows-replaced")
    takeover.publish(location).create_indexes()


def _head(tree: Snapshot, properties: Mapping[str, str]) -> Head:
    """The head of the new table. Raises InvalidInput or UnsupportedTable where it cannot be one."""
    check_new(properties, tree.head.schema.tagged.names)
    if LAYOUT.of({LAYOUT.name: "hive", **properties}) != "hive":
        raise InvalidInput("a tree of key=value folders has the layout 'hive'")
    schema = tree.head.written_schema.matched_by_id()
    check_storable(schema)
    spec = _plain_spec(tree.head.spec)
    hive_layout.adapted(spec, schema)
    head = Head.first(schema, spec, dt.datetime.now(dt.UTC), "strong")
    head = replace(
        head,
        properties={**hive_layout.DEFAULTS, **properties, LAYOUT.name: "hive"},
        writer_features=head.writer_features | hive_layout.FEATURES,
    )
    _refuse_twins(tree)
    return head.with_features()


def _plain_spec(spec: PartitionSpec) -> PartitionSpec:
    """The spec with the functions themselves, whether rows confirm them or not."""
    fields = (
        replace(field, transform=field.transform.of)
        if isinstance(field.transform, Unconfirmed)
        else field
        for field in spec.fields
    )
    return replace(spec, fields=tuple(fields))


def _check_functions(location: Location, row: LeafRow, head: Head) -> None:
    """Refuse a leaf with a row that a partition function puts elsewhere: queries would miss it."""
    _, wrong = tested_functions(location, head, row.location, None)
    for field in head.spec.fields:
        if field.field_id in wrong:
            raise UnsupportedTable(
                f"rows of {row.location} in {location.uri} are not where "
                f"{field.spell(head.schema)} puts them: import the tree into a table instead"
            )


def _refuse_twins(tree: Snapshot) -> None:
    """Refuse two leaves with the same values, such as `month=1` and `month=01`."""
    folders: dict[tuple[object, ...], str] = {}
    for row in tree.leaves.rows():
        other = folders.setdefault(row.keys, row.location)
        if other != row.location:
            raise UnsupportedTable(
                f"{other} and {row.location} in {tree.location.uri} are one partition: move the "
                "rows of one to the other"
            )


def _check_leaf(location: Location, row: LeafRow, head: Head) -> None:
    """Refuse a leaf that would be misread by the ids of its columns."""
    own = {f.name: (field_id(f), f.type) for f in leaf_schema(location, row.location).tagged}
    known = {f.name: (field_id(f), f.type) for f in head.schema.tagged}
    stored = {f.name for f in head.stored_schema(row.spec_id).tagged}
    wrong = [name for name in own if known.get(name) != own[name]]
    wrong += [name for name in sorted(stored) if name not in own]
    if wrong:
        raise UnsupportedTable(
            f"the leaf {row.location} in {location.uri} has other columns than the table, or other "
            f"ids of columns (see {wrong[0]!r}): write it again with the columns of the others, or "
            "import the tree into a table"
        )


def _pinned(location: Location, row: LeafRow, head: Head) -> LeafRow:
    """A leaf at the version that its main branch has now."""
    types = [field.result_type for field in head.spec.fields]
    namespaces = names.namespace_names(head.salt, head.spec.id, row.keys, types)
    leaf = Leaf.of(location, head, row)
    version = MainBranch(location, row.location).seal()
    size, fragments = leaf.size(version)
    return replace(
        row,
        index=-1,
        object_id=names.leaf_id(head.spec.id, namespaces),
        read_version=version,
        version_number=1,
        row_count=leaf.count(version, None),
        byte_count=size,
        fragment_count=fragments,
    )
