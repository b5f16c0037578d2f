"""When a change that was computed on one version of a leaf still holds on a later one.

The rules for a change that was computed on version B of a leaf and is applied to version H:

| the change               | other changes from B to H         | serializable | snapshot  |
|--------------------------|-----------------------------------|--------------|-----------|
| adds rows                | any                               | holds        | holds     |
| removes rows             | changed the same fragments        | run again    | run again |
| removes rows             | added rows, in other fragments    | run again    | holds     |
| removes rows             | removed rows from other fragments | holds        | holds     |
| removes rows             | compacted other fragments         | holds        | holds     |
| removes rows             | overwrote the leaf, or unknown    | run again    | run again |
| moves rows to other files| changed the same fragments        | give up      | give up   |
| moves rows to other files| added rows, in other fragments    | holds        | holds     |
| indexes fragments        | changed indexes, or moved the rows| run again    | run again |
| indexes fragments        | added rows, or removed some       | holds        | holds     |

"Run again" means to compute the change on H, for that leaf only. Reads are checked as well: if rows
that a transaction has read were changed, the transaction cannot be run again (its author may have
made decisions based on them) and fails.

What concerns the table as a whole is checked where it is known: that the table, its schema and what
was read are still the same in `phalanx.transaction.commit`, that files fit the schema and spec in
`phalanx.transaction.view`, and which leaves a change looks at again in
`phalanx.table.operations.leaf_results`.
"""

from __future__ import annotations

from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.records import LeafChange


def still_holds(leaf: Leaf, delta: LeafDelta, base: int, head: int, isolation: str) -> bool:
    """Whether a change that removes rows and was computed on `base` holds on `head`."""
    if base == head:
        return True
    changes = leaf.changes(base, head)
    if changes is None:
        return False
    for change in changes:
        if change.touched is None or change.touched & delta.touched:
            return False
        if change.adds_rows and isolation == "serializable":
            return False
    return True


def index_still_holds(leaf: Leaf, delta: LeafDelta, base: int, head: int) -> bool:
    """Whether indexes that were built on `base` can be added to `head`.

    Rows that were deleted since are no obstacle: Lance leaves them out of what an index finds. If
    indexes have changed since, two of them could cover the same rows, which would be found twice.
    """
    if base == head:
        return True
    changes = leaf.changes(base, head)
    if changes is None or delta.indexes is None:
        return False
    for change in changes:
        if change.touched is None or change.changes_indexes:
            return False
        moved = not change.removes_rows and change.touched & delta.indexes.fragments
        if moved:
            return False
    return True


def same_rows(leaf: Leaf, base: int | None, head: int | None) -> bool:
    """Whether no rows were added or removed from `base` to `head`."""
    changes = _changes(leaf, base, head)
    return changes is not None and not any(c.adds_rows or c.removes_rows for c in changes)


def took_rows_out(leaf: Leaf, base: int | None, head: int | None) -> bool:
    """Whether rows were, or may have been, removed from a leaf from `base` to `head`."""
    changes = _changes(leaf, base, head)
    return changes is None or any(change.removes_rows for change in changes)


def _changes(leaf: Leaf, base: int | None, head: int | None) -> list[LeafChange] | None:
    if base == head:
        return []
    return None if base is None or head is None else leaf.changes(base, head)
