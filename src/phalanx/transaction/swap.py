"""The one place where the head of a table is swapped: read, decide, swap, and again where others
came first.

Whoever changes a table decides under the table's lock what its next head is. The swap lands whole,
or nothing is written and the decision is taken again on what is there by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from phalanx.errors import ConflictError
from phalanx.storage.head import Head
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion, SwapLost
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx.transaction import lock
from phalanx.transaction.failpoints import reach

#: How long somebody tries to win the swap before giving up.
PATIENCE_SECONDS = 120.0

T = TypeVar("T")


@dataclass(frozen=True)
class Proposal(Generic[T]):
    """The next head of a table, and what is written with it."""

    #: The version of the manifest that it was decided on.
    base: ManifestVersion
    head: Head
    update: ManifestUpdate
    #: What to do once it has landed, the lock still held. It is given the version of the manifest
    #: that has it, or None where the reply to the swap was lost.
    then: Callable[[int | None], T]


def swap_head(
    location: Location,
    who: str,
    decide: Callable[[], Proposal[T] | T],
    prepare: Callable[[], None] = lambda: None,
) -> T:
    """Make the next head of a table, or return what `decide` says instead of proposing one.

    `prepare` is what can be done before the lock is held; it is called again before every try.
    `decide` may raise SwapLost to be asked again.

    Raises ConflictError, with `who` in the message, where others kept coming first.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    lost = 0
    while True:
        prepare()
        with lock.held(location):
            try:
                decision = decide()
                if not isinstance(decision, Proposal):
                    return decision
                version = _swap(location, decision)
            except SwapLost:
                lost += 1
            else:
                return decision.then(version)
        if time.monotonic() > deadline:
            raise ConflictError(
                f"{who} on {location.uri} lost to others {lost} times in "
                f"{PATIENCE_SECONDS:.0f} seconds: nothing was written, try again"
            )
        lock.back_off(lost)


def _swap(location: Location, proposal: Proposal[T]) -> int | None:
    """The version of the manifest that has the proposal; None where the reply was lost."""
    reach("commit.before-swap")
    try:
        version = proposal.base.swap(proposal.update)
        reach("commit.after-swap")
        return version
    except OSError:
        # The reply was lost, not necessarily the commit.
        if not ManifestVersion(location).has_transaction(proposal.head.transaction_id):
            raise
        return None
