"""Drop partitions: remove whole leaves."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from phalanx.transaction.view import View


@dataclass
class DropPartitions:
    """Remove leaves with all of their rows, also those that others add meanwhile."""

    name = "drop partitions"
    #: The object ids of the leaves.
    leaves: Set[str]

    def run(self, view: View) -> None:
        view.remove([row for row in view.leaves.rows() if row.object_id in self.leaves])
