"""SHOW PARTITIONS, and what drops or empties partitions by their values.

A partition is named by the values of its partition fields: `ts_year=2026/country=US`. The names are
those of `specs.field_names`, and only partitions of the current spec have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phalanx.errors import InvalidInput
from phalanx.spark.dispatch import Reply, operation
from phalanx.spark.handles import Handle
from phalanx.spark.planner import spelled
from phalanx.spark.requests import Request
from phalanx.table.plan import values_of
from phalanx.table.table import Table
from phalanx.transaction.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class ListPartitions(Request):
    """The partitions of a table."""

    table: Handle


@operation(ListPartitions)
def list_partitions(request: ListPartitions) -> Reply:
    """The leaves of the current spec, by the values of its fields."""
    snapshot = request.table.snapshot()
    current = np.flatnonzero(np.asarray(snapshot.leaves.spec_ids) == snapshot.head.spec_id)
    fields = snapshot.head.spec.fields
    leaves: list[dict[str, Any]] = []
    for row in snapshot.leaves.rows(current):
        values = values_of(snapshot, row)
        key = [spelled(values[field.field_id]) for field in fields]
        leaves.append({"leaf": row.object_id, "key": key})
    return {"partitions": leaves}


@dataclass(frozen=True, kw_only=True)
class DropPartitionsRequest(Request):
    """A table, and leaves that go with all of their rows."""

    table: Handle
    leaves: Sequence[str]


@operation(DropPartitionsRequest)
def drop_partitions(request: DropPartitionsRequest) -> Reply:
    """Remove partitions, in one transaction.

    Raises InvalidInput where rows of an earlier partitioning may belong to them.
    """
    snapshot = request.table.changed()
    _refuse_earlier(snapshot)
    with Table(snapshot).transaction() as tx:
        tx.drop_partitions(request.leaves)
    return {}


def _refuse_earlier(snapshot: Snapshot) -> None:
    if np.any(np.asarray(snapshot.leaves.spec_ids) != snapshot.head.spec_id):
        raise InvalidInput(
            f"the table {snapshot.location.uri} has rows of an earlier partitioning: CALL "
            "system.rewrite first, or DELETE by a filter"
        )
