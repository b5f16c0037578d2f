"""Leaves of another client that become leaves of a table of ours, as they are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.errors import UnsupportedTable
from phalanx.model.schema import TableSchema, field_id
from phalanx.storage.field_ids import ids_of, lance_schema
from phalanx.storage.lance_types import stored_batches
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.location import Location
from phalanx.storage.main_branch import MainBranch
from phalanx.storage.names import without_branch
from phalanx.storage.records import LeafRow


class TakenLeaf(NamedTuple):
    """A leaf whose version is the table's own."""

    row: LeafRow
    #: The highest field id in its schema and files. Dropped columns have ids, too, and an id that
    #: is used again would show their values.
    max_field_id: int


def taken_over(location: Location, row: LeafRow, schema: TableSchema) -> TakenLeaf:
    """Make the version of a leaf the table's own; its row has its size then.

    A version on a branch is copied to the leaf itself. Raises UnsupportedTable if the leaf does not
    have the table's field ids, and CorruptTable if the version cannot be read.
    """
    folder, branch = without_branch(row.location)
    main = MainBranch(location, folder)
    version = row.read_version
    if branch is not None:
        version = _copied(location, folder, row, schema)
    handle = main.take_over(version)
    _check_fields(handle, schema, location.child(folder))
    fragments = [fragment.metadata for fragment in handle.get_fragments()]
    files = [file for fragment in fragments for file in fragment.files]
    ids = itertools.chain(ids_of(handle.lance_schema), *(file.fields for file in files))
    taken = LeafRow(
        index=row.index,
        object_id=row.object_id,
        location=folder,
        read_version=int(handle.version),
        spec_id=row.spec_id,
        keys=row.keys,
        version_number=1,
        row_count=int(handle.count_rows()),
        byte_count=sum(file.file_size_bytes or 0 for file in files),
        fragment_count=len(fragments),
    )
    return TakenLeaf(taken, max(ids, default=-1))


def _copied(location: Location, folder: str, row: LeafRow, schema: TableSchema) -> int:
    """A detached version of a leaf that has the rows of a version on one of its branches."""
    branch, leaf = Leaf(location, row.location, schema), Leaf(location, folder, schema)
    newest = leaf.newest()
    batches = branch.scan(row.read_version, schema.tagged.names, None)
    written = leaf.writer(newest).write_batches(
        stored_batches(batches, schema.stored), schema.stored
    )
    return leaf.commit(newest, LeafDelta(added=(written,), replaced=True))


def _check_fields(handle: Any, schema: TableSchema, uri: str) -> None:
    """Refuse a leaf in which a column has another id than in the table: it would be read as NULL.

    The specification says that ids are consistent.
    """
    physical = handle.lance_schema
    if physical == lance_schema(schema):
        return
    ids = set(ids_of(physical))
    own: Sequence[tuple[str, int]] = [(field.name(), field.id()) for field in physical.fields()]
    table = {field.name: field_id(field) for field in schema.tagged}
    for name, id in own:
        if name in table and table[name] != id and table[name] not in ids:
            raise UnsupportedTable(
                f"the leaf {uri} has the id {id} for the column {name}, and the table has "
                f"{table[name]}: its client must write it with the ids of the table"
            )
