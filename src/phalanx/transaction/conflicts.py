"""When a change that was prepared on one version of a leaf still holds on a later one.

The rules, for a change that was worked out on version B of a leaf and meets version H:

| the change                 | what others did from B to H          | serializable | snapshot  |
|----------------------------|--------------------------------------|--------------|-----------|
| adds rows                  | anything                             | holds        | holds     |
| takes rows out             | touched the same fragments           | work out anew| work out anew |
| takes rows out             | added rows, other fragments          | work out anew| holds     |
| takes rows out             | took rows out of other fragments     | holds        | holds     |
| takes rows out             | compacted other fragments            | holds        | holds     |
| takes rows out             | overwrote the leaf, or is unknown    | work out anew| work out anew |
| puts rows into other files | touched the same fragments           | give up      | give up   |
| puts rows into other files | added rows, other fragments          | holds        | holds     |

Working it out anew means to run the change again on H, for that leaf alone. Reads of a
transaction are held to the same standard: where a leaf that was read has changed, the
transaction cannot be replayed (its author may have decided by what was read) and fails.
"""

from __future__ import annotations

from phalanx.errors import InvalidInput
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.records import LeafChange

ISOLATIONS = ("serializable", "snapshot")


def check_isolation(isolation: str) -> str:
    if isolation not in ISOLATIONS:
        raise InvalidInput(f"isolation is 'serializable' or 'snapshot', not {isolation!r}")
    return isolation


def still_holds(leaf: Leaf, delta: LeafDelta, base: int, head: int, isolation: str) -> bool:
    """Whether a change that takes rows out, worked out on `base`, holds on `head`."""
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


def same_rows(leaf: Leaf, base: int | None, head: int | None) -> bool:
    """Whether nothing has happened from `base` to `head` that changes rows."""
    changes = _changes(leaf, base, head)
    return changes is not None and not any(c.adds_rows or c.removes_rows for c in changes)


def took_rows_out(leaf: Leaf, base: int | None, head: int | None) -> bool:
    """Whether somebody has taken rows out of a leaf from `base` to `head`, or may have."""
    changes = _changes(leaf, base, head)
    return changes is None or any(change.removes_rows for change in changes)


def _changes(leaf: Leaf, base: int | None, head: int | None) -> list[LeafChange] | None:
    if base == head:
        return []
    return None if base is None or head is None else leaf.changes(base, head)
