"""The one place where the head of a table is swapped: decide, swap, and retry.

Every change to a table decides what the next head is while it holds the table's lock, or in an
object store while it is first in line. The swap is applied as a whole. If another change came
first, nothing is written, and the decision is made again on the newer snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from phalanx.errors import ConflictError
from phalanx.storage.head import Head
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion, SwapLost, SwapUnknown
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx.transaction import lock
from phalanx.transaction.failpoints import reach
from phalanx.transaction.lease import Turn

#: How long a change tries to win the swap before it fails.
PATIENCE_SECONDS = 120.0

T = TypeVar("T")


@dataclass(frozen=True)
class Proposal(Generic[T]):
    """The next head of a table, and what is written with it."""

    #: The version of the manifest that it is based on.
    base: ManifestVersion
    head: Head
    update: ManifestUpdate
    #: What to do after the swap, while the lock is still held. It is called with the new version of
    #: the manifest, or with None if the reply to the swap was lost.
    then: Callable[[ManifestVersion | None], T]


def swap_head(
    location: Location,
    who: str,
    decide: Callable[[], Proposal[T] | T],
    prepare: Callable[[], None] = lambda: None,
) -> T:
    """Swap in the head that `decide` proposes, or return what it returns instead of a proposal.

    `prepare` does what needs no lock, and is called before every attempt. `decide` is called with
    the lock held, and may raise SwapLost to be called again. A writer that loses keeps its turn.

    Raises ConflictError, with `who` in the message, if other changes keep coming first.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    lost = 0
    with Turn(location) as turn:
        while True:
            prepare()
            if not turn.wait(lost > 0) and lost:
                lock.back_off(lost)
            with lock.held(location):
                try:
                    decision = decide()
                    if not isinstance(decision, Proposal):
                        return decision
                    manifest = _swap(location, decision)
                except SwapLost:
                    lost += 1
                else:
                    return decision.then(manifest)
            if time.monotonic() > deadline:
                raise ConflictError(
                    f"{who} on {location.uri} lost to others {lost} times in "
                    f"{PATIENCE_SECONDS:.0f} seconds: nothing was written, try again"
                )


def _swap(location: Location, proposal: Proposal[T]) -> ManifestVersion | None:
    """Swap the head; returns the new version of the manifest, or None if the reply was lost."""
    reach("commit.before-swap")
    try:
        manifest = proposal.base.swap(proposal.update)
        reach("commit.after-swap")
        return manifest
    except (OSError, SwapUnknown):
        # The commit may have landed even if its reply was lost.
        if not ManifestVersion(location).has_transaction(proposal.head.transaction_id):
            raise
        return None
