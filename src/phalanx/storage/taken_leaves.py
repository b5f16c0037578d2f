"""Leaves of another client that become leaves of a table of ours, as they are."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, NamedTuple

from phalanx.errors import UnsupportedTable
from phalanx.model.schema import TableSchema
from phalanx.storage.field_ids import ids_of
from phalanx.storage.foreign_leaves import contradictions
from phalanx.storage.head import Head
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


def taken_over(location: Location, head: Head, row: LeafRow) -> TakenLeaf:
    """Make the version of a leaf the table's own; its row has its size then.

    A version on a branch is copied to the leaf itself. Raises UnsupportedTable if the leaf does not
    have the table's columns, and CorruptTable if the version cannot be read.
    """
    folder, branch = without_branch(row.location)
    main = MainBranch(location, folder)
    version = row.read_version
    if branch is not None:
        version = _copied(location, folder, row, head.schema)
    handle = main.take_over(version)
    # Others may have written to it since it was checked.
    taken_row = replace(row, location=folder, read_version=int(handle.version))
    check_columns(location, head, taken_row, handle)
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


def check_columns(location: Location, head: Head, row: LeafRow, handle: Any | None = None) -> None:
    """Raise UnsupportedTable for a leaf that would be misread through the table's schema.

    `handle` is its version, if it is open already.
    """
    for problem in contradictions(location, head, row, handle):
        raise UnsupportedTable(problem)
