"""From weak to strong: one transaction that pins every leaf to the version it has on main."""

from __future__ import annotations

import datetime as dt
import uuid

from phalanx.errors import ConflictError
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.storage.manifest import TABLE, VERSION, Rows, SwapLost
from phalanx.transaction import lock
from phalanx.transaction.failpoints import reach
from phalanx.transaction.places import place_of
from phalanx.transaction.snapshot import Snapshot

_TRIES = 100


def strengthen(location: Location) -> Snapshot:
    """Make a weak table strong; one that is strong already stays as it is."""
    for attempt in range(_TRIES):
        with lock.held(location):
            snapshot = Snapshot.latest(location)
            snapshot.head.check_writable()
            if snapshot.head.transactions == "strong":
                return snapshot
            manifest = snapshot.manifest.add_read_version()
            reach("strengthen.column-added")
            try:
                manifest.swap(_rows(Snapshot(manifest)).to_table())
                reach("strengthen.after-swap")
                return Snapshot.latest(location)
            except SwapLost:
                lock.back_off(attempt)
    raise ConflictError(f"the table {location.uri} could not be made strong: others kept writing")


def _rows(snapshot: Snapshot) -> Rows:
    head = snapshot.head.after(dt.datetime.now(dt.UTC), uuid.uuid4().hex, transactions="strong")
    rows = Rows(head.specs)
    for row in snapshot.leaves.rows():
        place = place_of(snapshot.leaves.specs[row.spec_id], row)
        leaf = Leaf(snapshot.location, row.location, head.schema)
        version = leaf.newest()
        size, fragments = leaf.size(version)
        rows.add(
            row.object_id,
            TABLE,
            {**place.described(), "read_version": str(version)},
            place.values(),
            location=row.location,
            read_version=version,
            spec_id=row.spec_id,
            version_number=1,
            row_count=leaf.count(version, None),
            byte_count=size,
            fragment_count=fragments,
            sequence=head.sequence,
        )
        rows.add(f"{row.object_id}$1", VERSION, read_version=version)
    rows.add_head(head)
    described = {"operation": "make strong", "rows_gone": "1"}
    rows.add_transaction(head, described)
    return rows
