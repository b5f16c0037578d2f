"""Makes a weak table strong, in one transaction that pins every leaf to its version on main."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import replace

from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.storage.main_branch import MainBranch
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx.storage.records import TransactionRecord
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.swap import Proposal, swap_head

#: The name of this operation in the table's history.
MAKE_STRONG = "make strong"


def strengthen(location: Location) -> Snapshot:
    """Make a weak table strong; has no effect on a strong table.

    Raises ConflictError if other transactions keep coming first.
    """

    def decide() -> Proposal[Snapshot] | Snapshot:
        snapshot = Snapshot.latest(location)
        snapshot.check_writable()
        if snapshot.head.transactions == "strong":
            return snapshot
        manifest = snapshot.manifest.add_read_version()
        reach("strengthen.column-added")
        return _proposal(Snapshot(manifest))

    return swap_head(location, "make_strong()", decide)


def _proposal(snapshot: Snapshot) -> Proposal[Snapshot]:
    head = snapshot.head.after(dt.datetime.now(dt.UTC), uuid.uuid4().hex, transactions="strong")
    update = ManifestUpdate(head.specs)
    for row in snapshot.leaves.rows():
        leaf = Leaf.of(snapshot.location, head, row)
        # Others may write to a weak table: what they have added so far is part of it.
        version = MainBranch(snapshot.location, row.location).seal()
        size, fragments = leaf.size(version)
        pinned = replace(
            row,
            read_version=version,
            version_number=1,
            row_count=leaf.count(version, None),
            byte_count=size,
            fragment_count=fragments,
        )
        update.put_leaf(pinned, snapshot.leaves.specs[row.spec_id], head.sequence)
    update.put_head(head)
    # A removal makes others read the leaves again instead of advancing a known snapshot.
    update.put_transaction(TransactionRecord.of(head, MAKE_STRONG, removals=1))
    location = snapshot.location
    return Proposal(snapshot.manifest, head, update, lambda _: Snapshot.latest(location))
