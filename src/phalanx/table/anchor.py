"""Anchors: leaf versions that are published on main branches, for plain Lance readers."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

from phalanx.model.properties import ANCHOR
from phalanx.storage.leaf import Leaf
from phalanx.transaction.snapshot import Snapshot


def anchor(snapshot: Snapshot, pool: Executor, chosen: Any = None) -> None:
    """Publish the version of each leaf on its main branch.

    `chosen` are the indices of the leaves in the snapshot; None for all leaves. Has no effect if
    the table is weak or its property `anchor` is "never".
    """
    head = snapshot.head
    if head.transactions == "weak" or ANCHOR.of(head.properties) == "never":
        return
    leaves = snapshot.leaves
    versions = leaves.versions(chosen)

    def publish(leaf: tuple[str, int | None]) -> None:
        folder, version = leaf
        Leaf(snapshot.location, folder, head.schema).anchor(version)

    list(pool.map(publish, versions))
