"""Drop partitions: remove whole leaves."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from phalanx.errors import ConflictError
from phalanx.transaction.view import View


@dataclass
class DropPartitions:
    """Remove leaves with all of their rows, also those that others add meanwhile.

    Running it raises ConflictError if one of them is not there any more: its rows may have been
    moved to other leaves.
    """

    name = "drop partitions"
    #: The object ids of the leaves.
    leaves: Set[str]

    def run(self, view: View) -> None:
        rows = view.current().leaves.by_id(self.leaves)
        if len(rows) < len(self.leaves):
            raise ConflictError(
                f"partitions of {view.base.location.uri} that were to be dropped were moved or "
                "dropped by another transaction: nothing was changed, try again"
            )
        view.remove(rows.values())
