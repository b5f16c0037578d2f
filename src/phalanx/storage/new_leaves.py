"""New leaves of one write: Lance creates the first, the others share its files.

An empty leaf has a version without rows, which is the same in every new leaf of a table. On a file
system its file is linked instead of being written again. A write to many partitions is then limited
by the files that hold rows. The version has its transaction in it. Lance's copy of that, in a
folder of its own, is only for clients that do not look there, and is left out.

Where many leaves get the same number of rows, one call of Lance writes their files in the folder of
the first leaf, and they are moved from there. A call for each leaf takes three times as long, most
of it in waking threads. A data file does not say which dataset it belongs to.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from phalanx.storage.files import FIRST_FILE
from phalanx.storage.lance_private import data_path, first_manifest, open_manifest
from phalanx.storage.leaf import Leaf, LeafWriter
from phalanx.storage.leaf_delta import Written
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
        if not self.shares(leaf):
            return leaf.create()
        with self._lock:
            template = self._template
            if template is None or template.links >= _MOST_LINKS:
                handle, is_new = leaf.created()
                file = f"{leaf.uri}/{FIRST_FILE}"
                self._template = _Template(file, first_manifest(handle)) if is_new else None
                return leaf.writer_at(handle)
        if not self._link(template, leaf):
            return leaf.create()
        handle = open_manifest(leaf.uri, template.manifest, None, leaf_session())
        return leaf.writer_at(handle)

    def shares(self, leaf: Leaf) -> bool:
        """Whether new leaves share files, as far as is known."""
        return leaf.location.path is not None and self._has_links

    def write_alike(self, leaves: Sequence[Leaf], table: pa.Table) -> list[Written]:
        """Create empty leaves and write rows to them: the same number to each, in their order.

        The leaves are of one table whose columns have ids, and none of them is named twice.
        """
        count = table.num_rows // len(leaves)
        writer = self.create(leaves[0])
        written: dict[int, Written] = {}
        for number, leaf in enumerate(leaves[1:], 1):
            template = self._template
            if template is None or not self._link(template, leaf):
                written[number] = self.create(leaf).write(table.slice(number * count, count))
        together = [number for number in range(len(leaves)) if number not in written]
        if written:
            table = pa.concat_tables(table.slice(n * count, count) for n in together)
        files = writer.write(table.combine_chunks(), max_rows=count).each()
        for number, file in zip(together, files, strict=True):
            if file.rows != count:
                raise AssertionError(f"a file has {file.rows} rows instead of {count}")
            if number:
                _move(file, leaves[0], leaves[number])
            written[number] = file
        return [written[number] for number in range(len(leaves))]

    def _link(self, template: _Template, leaf: Leaf) -> bool:
        """Create a leaf by linking the file of its version; False if Lance has to create it."""
        with self._lock:
            if template.links >= _MOST_LINKS:
                return False
            template.links += 1
        try:
            _create(leaf)
            os.link(template.file, f"{leaf.uri}/{FIRST_FILE}")
        except FileExistsError:  # another writer has created it, or left its folder
            return False
        except OSError:
            # Lance creates it then, or says what is wrong.
            self._has_links = False
            return False
        return True


def _create(leaf: Leaf) -> None:
    """Make the folders of a leaf. It is not a leaf before it has a version."""
    if "/" in leaf.folder:
        os.makedirs(os.path.dirname(leaf.uri), exist_ok=True)
    os.mkdir(leaf.uri)
    os.mkdir(f"{leaf.uri}/_versions")


def _move(written: Written, source: Leaf, target: Leaf) -> None:
    """Move a file that no version refers to yet to another leaf."""
    (fragment,) = written.fragments
    with contextlib.suppress(FileExistsError):
        os.mkdir(f"{target.uri}/data")
    for file in fragment.files:
        path = f"data/{data_path(file)}"
        os.rename(f"{source.uri}/{path}", f"{target.uri}/{path}")
