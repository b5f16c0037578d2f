"""Tags and branches of leaves, which other clients use to say which version of a leaf is read."""

from __future__ import annotations

from typing import NamedTuple

from phalanx.errors import CorruptTable
from phalanx.storage.lance_errors import LANCE_ERRORS, raise_interrupt
from phalanx.storage.leaf import open_leaf
from phalanx.storage.location import Location


class Reference(NamedTuple):
    """A version of a leaf on a branch; None for main."""

    branch: str | None
    version: int


def tagged(location: Location, folder: str, tag: str) -> Reference:
    """The version that a tag of a leaf stands for now. Raises CorruptTable if there is none."""
    handle = open_leaf(location, folder, None)
    try:
        tags = handle.tags.list()
    except LANCE_ERRORS as error:
        raise_interrupt(error)
        reason = location.reason(error)
        raise CorruptTable(
            f"the tags of {location.child(folder)} cannot be read: {reason}"
        ) from None
    if tag not in tags:
        raise CorruptTable(
            f"the leaf {location.child(folder)} has no tag {tag!r}, which it is read at"
        )
    return Reference(tags[tag].get("branch"), int(tags[tag]["version"]))
