"""Changes of shape: another spec or schema, each one snapshot that moves no row.

Leaves stay as they are. What was written under an earlier spec is planned by that spec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.model.specs import CustomField, PartitionSpec, build_spec
from phalanx.storage.head import Head
from phalanx.transaction.view import View


@dataclass
class EvolvePartitioning:
    """Cut rows that come from now on by other fields."""

    name = "evolve partitioning"
    entries: Sequence[str | CustomField]

    def run(self, view: View) -> None:
        spec = next_spec(view.head, self.entries)
        if spec.fields != view.head.spec.fields:
            view.add_spec(spec)


def next_spec(head: Head, entries: Sequence[str | CustomField]) -> PartitionSpec:
    """The spec that entries of `partition_by` would be. Raises InvalidInput for impossible ones."""
    number = max(spec.id for spec in head.specs) + 1
    return build_spec(number, entries, head.schema, head.specs)
