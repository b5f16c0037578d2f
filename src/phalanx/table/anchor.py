"""Anchors: heads of leaves, published on their main branches for plain Lance readers."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

from phalanx.storage.leaf import Leaf
from phalanx.transaction.snapshot import Snapshot


def anchor(snapshot: Snapshot, pool: Executor, chosen: Any = None) -> None:
    """Publish the leaves' versions on their main branches, where the table asks for it.

    With `chosen` only those of some leaves, by their places in the snapshot.
    """
    head = snapshot.head
    if head.transactions == "weak" or head.properties.get("anchor", "maintenance") == "never":
        return
    leaves = snapshot.leaves
    places = leaves.versions(chosen)

    def publish(place: tuple[str, int | None]) -> None:
        Leaf(snapshot.location, place[0], head.schema).anchor(place[1])

    list(pool.map(publish, places))
