"""Anchors: leaf versions that are published on main branches, for plain Lance readers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from typing import Any

from phalanx.model.properties import ANCHOR
from phalanx.storage.files import DatasetFolder
from phalanx.storage.layouts import layout_of
from phalanx.storage.main_branch import MainBranch
from phalanx.table.format import count_text
from phalanx.transaction import lock
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot

log = logging.getLogger("phalanx")

#: How often leaves are published again that other transactions changed meanwhile.
_ROUNDS = 10
_NO_ROOM = (
    "the disk is almost full, so not every partition was published for plain Lance readers: run "
    "vacuum() again when there is more space"
)


def anchor(
    snapshot: Snapshot,
    pool: Executor,
    chosen: Any = None,
    has_room: Callable[[], bool] = lambda: True,
) -> list[str]:
    """Publish the version of each leaf on its main branch.

    `chosen` are the indices of the leaves in the snapshot; None for all leaves. Leaves that are
    changed meanwhile are published as they are then, so that main never falls behind. Has no effect
    if the table is weak or its property `anchor` is "never".

    If `chosen` is None, leaves that are no longer part of the table are emptied on their main
    branches, where plain Lance readers find them by their folders.

    Nothing is published over commits of other clients, or while the disk has no room. Returns notes
    that say so.
    """
    head = snapshot.head
    if head.transactions == "weak" or ANCHOR.of(head.properties) == "never":
        return []
    reach("anchor.before")
    held: set[str] = set()
    if chosen is None and layout_of(head.properties).SHARED and has_room():
        held |= _withdraw_removed(snapshot, pool)
    waiting = dict(snapshot.leaves.versions(chosen))
    for _ in range(_ROUNDS):
        held |= publish(snapshot, pool, waiting, has_room=has_room)
        newest = Snapshot.latest(snapshot.location, snapshot)
        if newest.sequence == snapshot.sequence:
            break
        now = dict(newest.leaves.versions())
        waiting = {name: now[name] for name, at in waiting.items() if now.get(name, at) != at}
        if not waiting:
            break
        snapshot = newest
    notes = [] if has_room() else [_NO_ROOM]
    if not held:
        return notes
    note = (
        f"{count_text(len(held), 'leaf')} not published, because another client has written to "
        f"the main branch, such as {min(held)}: run check()"
    )
    log.warning("%s: %s", snapshot.location.uri, note)
    return [*notes, note]


def _withdraw_removed(snapshot: Snapshot, pool: Executor) -> set[str]:
    """Empty the leaves that were removed by a transaction which could not do so itself.

    The lock keeps others from publishing a new leaf in between. Returns the folders of the leaves
    that were left as they are, because another client has written to them.
    """
    location = snapshot.location

    def withdraw(name: str) -> bool:
        if DatasetFolder(location, name).is_of_others():
            return False
        return bool(MainBranch(location, name).withdraw())

    with lock.held(location):
        newest = Snapshot.latest(location, snapshot)
        known = {name for name, _ in newest.leaves.versions()}
        folders = layout_of(newest.head.properties).leaf_folders(location, newest.head)
        names = [name for name in folders if name not in known]
        return {n for n, held in zip(names, pool.map(withdraw, names), strict=True) if held}


def publish(
    snapshot: Snapshot,
    pool: Executor,
    versions: dict[str, int | None],
    over: Collection[str] = (),
    has_room: Callable[[], bool] = lambda: True,
) -> set[str]:
    """Publish versions of leaves by folder; those in `over` also over commits of other clients.

    A leaf is left as it is if there is no room for a version on the disk. Returns the folders of
    the leaves that were not published because of such commits.
    """

    def attempt(name: str, settled: Collection[str]) -> bool:
        if not has_room():
            return True
        main = MainBranch(snapshot.location, name)
        return not main.publish(versions[name], settled, over_all=name in over)

    def publish_all(names: Collection[str], settled: Collection[str]) -> set[str]:
        done = pool.map(lambda name: attempt(name, settled), names)
        return {name for name, is_done in zip(names, done, strict=True) if not is_done}

    held = publish_all(versions, ())
    if held:
        records = Snapshot.latest(snapshot.location).manifest.transactions()
        settled = {id for record in records for id in record.settled}
        held = publish_all(held, settled) if settled else held
    return held
