"""Dropping a table: everything in its folder goes, unless something else is in there."""

from __future__ import annotations

from phalanx.errors import InvalidInput, TableNotFound
from phalanx.storage import folders, manifest
from phalanx.storage.files import DatasetFolder
from phalanx.storage.index_models import is_model_folder
from phalanx.storage.layouts import layout_of
from phalanx.storage.location import MANIFEST
from phalanx.storage.notes import NOTES_FILE
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
    if not manifest.exists(location):
        raise TableNotFound(f"there is no table at {location.uri} any more")
    others = _others(snapshot)
    if others:
        names = ", ".join(others[:_SHOWN]) + (", …" if len(others) > _SHOWN else "")
        raise InvalidInput(
            f"the folder {location.uri} holds more than the table: {names}. Move that elsewhere, "
            "or delete the folder yourself"
        )
    folders.remove(location)


def _others(snapshot: Snapshot) -> list[str]:
    """What is in the table's folder and not part of the table."""
    location, head = snapshot.location, snapshot.head
    layout = layout_of(head.properties)
    leaves = layout.leaf_folders(location, head)
    own = {MANIFEST, LOCK_FILE, NOTES_FILE, *(folder.split("/")[0] for folder in leaves)}
    others = {name for name in folders.children(location) - own if not is_model_folder(name)}
    if layout.SHARED:
        known = {row.location for row in snapshot.leaves.rows()}
        unknown = [folder for folder in leaves if folder not in known]
        others |= {f for f in unknown if not DatasetFolder(location, f).is_ours()}
    return sorted(others)
