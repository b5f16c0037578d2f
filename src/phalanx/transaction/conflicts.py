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

from typing import Any

from phalanx.errors import InvalidInput
from phalanx.storage.leaf import Leaf, LeafDelta

ISOLATIONS = ("serializable", "snapshot")


def check_isolation(isolation: str) -> str:
    if isolation not in ISOLATIONS:
        raise InvalidInput(f"isolation is 'serializable' or 'snapshot', not {isolation!r}")
    return isolation


def still_holds(leaf: Leaf, delta: LeafDelta, base: int, head: int, isolation: str) -> bool:
    """Whether a change that takes rows out, worked out on `base`, holds on `head`."""
    if base == head:
        return True
    operations = leaf.changes(base, head)
    if operations is None:
        return False
    for operation in operations:
        touched, adds = _effect(operation)
        if touched is None or touched & delta.touched:
            return False
        if adds and isolation == "serializable":
            return False
    return True


def same_rows(leaf: Leaf, base: int | None, head: int | None) -> bool:
    """Whether nothing has happened from `base` to `head` that changes rows."""
    if base == head:
        return True
    operations = None if base is None or head is None else leaf.changes(base, head)
    return operations is not None and all(
        type(operation).__name__ in ("Rewrite", "CreateIndex") for operation in operations
    )


def took_rows_out(leaf: Leaf, base: int | None, head: int | None) -> bool:
    """Whether somebody has taken rows out of a leaf from `base` to `head`, or may have."""
    if base == head:
        return False
    operations = None if base is None or head is None else leaf.changes(base, head)
    harmless = ("Append", "Rewrite", "CreateIndex")
    return operations is None or any(
        type(operation).__name__ not in harmless for operation in operations
    )


def _effect(operation: Any) -> tuple[frozenset[int] | None, bool]:
    """The fragments an operation touched (None for all), and whether it added rows."""
    match type(operation).__name__:
        case "Append":
            return frozenset(), True
        case "Delete":
            updated = {fragment.id for fragment in operation.updated_fragments}
            return frozenset(updated) | frozenset(operation.deleted_fragment_ids), False
        case "Update":
            updated = {fragment.id for fragment in operation.updated_fragments}
            touched = frozenset(updated) | frozenset(operation.removed_fragment_ids)
            return touched, bool(operation.new_fragments)
        case "Rewrite":
            groups = operation.groups
            return frozenset(f.id for group in groups for f in group.old_fragments), False
        case "CreateIndex":
            return frozenset(), False
    return None, True
