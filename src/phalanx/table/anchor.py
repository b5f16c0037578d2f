"""Anchors: heads of leaves, published on their main branches for plain Lance readers."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import numpy as np

from phalanx.model.properties import ANCHOR
from phalanx.storage.leaf import Leaf
from phalanx.transaction.snapshot import Snapshot


def anchor(snapshot: Snapshot, pool: Executor, chosen: Any = None) -> None:
    """Publish the leaves' versions on their main branches, where the table asks for it.

    With `chosen` only those of some leaves, by their places in the snapshot.
    """
    head = snapshot.head
    if head.transactions == "weak" or ANCHOR.of(head.properties) == "never":
        return
    leaves = snapshot.leaves
    places = leaves.versions(np.arange(len(leaves)) if chosen is None else chosen)

    def publish(place: tuple[str, int | None]) -> None:
        Leaf(snapshot.location, place[0], head.schema).anchor(place[1])

    list(pool.map(publish, places))
