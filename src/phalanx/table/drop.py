"""Dropping a table: everything in its folder goes, unless something else is in there."""

from __future__ import annotations

from phalanx.errors import InvalidInput
from phalanx.storage import folders
from phalanx.storage.location import MANIFEST
from phalanx.storage.names import is_leaf_folder
from phalanx.transaction.lock import LOCK_FILE
from phalanx.transaction.snapshot import Snapshot

#: How many names an error lists.
_SHOWN = 3


def drop_table(snapshot: Snapshot) -> None:
    """Delete a table with all of its versions and files.

    Raises InvalidInput if its folder holds something else, and UnsupportedTable if another client
    has made the table.
    """
    snapshot.check_writable()
    location = snapshot.location
    others = sorted(name for name in folders.children(location) if not _is_own(name))
    if others:
        names = ", ".join(others[:_SHOWN]) + (", …" if len(others) > _SHOWN else "")
        raise InvalidInput(
            f"the folder {location.uri} holds more than the table: {names}. Move that elsewhere, "
            "or delete the folder yourself"
        )
    folders.remove(location)


def _is_own(name: str) -> bool:
    return name in (MANIFEST, LOCK_FILE) or is_leaf_folder(name)
