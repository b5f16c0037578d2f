"""Writes that create very many leaves: a warning, or an error if the table's properties say so."""

from __future__ import annotations

import logging
from collections.abc import Collection

from phalanx.errors import InvalidInput
from phalanx.model.properties import MAX_NEW_LEAVES
from phalanx.storage.head import Head
from phalanx.transaction.places import Place
from phalanx.transaction.view import View

log = logging.getLogger("phalanx")

#: From how many new leaves on a write is warned of, if on average they are smaller than this.
_MANY = 1_000
_FEW_ROWS = 100
_FEW_BYTES = 1024 * 1024


def check_new_leaves(view: View) -> None:
    """Warn of a transaction that creates very many tiny leaves.

    Raises InvalidInput if it creates more than the table's properties allow.
    """
    places, rows, size = view.new_leaves()
    uri, head = view.base.location.uri, view.head
    refuse_new_leaves(uri, head, places)
    if len(places) >= _MANY and rows < len(places) * _FEW_ROWS and size < len(places) * _FEW_BYTES:
        log.warning(
            "a write to %s creates %s new leaves for %s rows, and many tiny leaves make every read "
            "slow: %s. The property %s turns this warning into an error.",
            uri,
            f"{len(places):,}",
            f"{rows:,}",
            _advice(head, places),
            MAX_NEW_LEAVES.name,
        )


def refuse_new_leaves(uri: str, head: Head, places: Collection[Place]) -> None:
    """Raise InvalidInput for more new leaves than the table's properties allow."""
    limit = MAX_NEW_LEAVES.of(head.properties)
    if limit is not None and len(places) > limit:
        raise InvalidInput(
            f"a write to {uri} would create more than {limit:,} new leaves, the most that its "
            f"property {MAX_NEW_LEAVES.name} allows, and the table is unchanged: "
            f"{_advice(head, places)}"
        )


def _advice(head: Head, places: Collection[Place]) -> str:
    """The field that has most values in some places, and what to do about it."""
    spec = next(iter(places)).spec
    keys = [place.keys for place in places if place.spec == spec]
    counts = [len(set(values)) for values in zip(*keys, strict=True)]
    if not counts:
        return "partition the table by something else"
    most = max(counts)
    field = spec.fields[counts.index(most)]
    return (
        f"the partition field {field.field_id!r}, {field.spell(head.schema)}, has {most:,} values "
        "in them. Bucket or truncate that column, cut time more coarsely, or leave the field out, "
        "with evolve_partitioning; advise() makes a suggestion"
    )
