"""New leaves of one write: Lance creates the first, the others share its files.

An empty leaf has a version without rows, which is the same in every new leaf of a table. On a file
system its file is linked instead of being written again. A write to many partitions is then limited
by the files that hold rows. The version has its transaction in it. Lance's copy of that, in a
folder of its own, is only for clients that do not look there, and is left out.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from phalanx.storage.files import FIRST_FILE
from phalanx.storage.lance_private import first_manifest, open_manifest
from phalanx.storage.leaf import Leaf, LeafWriter
from phalanx.storage.location import leaf_session

#: File systems limit how many links a file has; ext4 allows 65,000.
_MOST_LINKS = 30_000


@dataclass
class _Template:
    """The first leaf of a write."""

    #: The file of its version.
    file: str
    manifest: bytes
    links: int = 0


class NewLeaves:
    """Creates empty leaves with the same schema. Several threads may use it."""

    def __init__(self) -> None:
        self._template: _Template | None = None
        #: Whether the file system has links, as far as is known.
        self._has_links = True
        self._lock = threading.Lock()

    def create(self, leaf: Leaf) -> LeafWriter:
        """Create the empty leaf, or use the one that another writer has just created."""
        if leaf.location.path is None or not self._has_links:
            return leaf.create()
        with self._lock:
            template = self._template
            if template is None or template.links >= _MOST_LINKS:
                handle, is_new = leaf.created()
                file = f"{leaf.uri}/{FIRST_FILE}"
                self._template = _Template(file, first_manifest(handle)) if is_new else None
                return leaf.writer_at(handle)
            template.links += 1
        try:
            _link(template, leaf)
        except FileExistsError:  # another writer has created it, or left its folder
            return leaf.create()
        except OSError:
            # Lance creates it then, or says what is wrong.
            self._has_links = False
            return leaf.create()
        handle = open_manifest(leaf.uri, template.manifest, None, leaf_session())
        return leaf.writer_at(handle)


def _link(template: _Template, leaf: Leaf) -> None:
    """Create a leaf by linking the file of its version. It is not a leaf before it has that."""
    if "/" in leaf.folder:
        os.makedirs(os.path.dirname(leaf.uri), exist_ok=True)
    os.mkdir(leaf.uri)
    os.mkdir(f"{leaf.uri}/_versions")
    os.link(template.file, f"{leaf.uri}/{FIRST_FILE}")
