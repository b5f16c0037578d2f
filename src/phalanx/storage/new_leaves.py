"""New leaves of one write: what they share instead of having each made by Lance.

A leaf that begins on main (see `phalanx.storage.first_rows`) has no version before its first rows:
files are written for a version that is in memory only. Any other leaf is created empty. An empty
leaf has a version without rows, which is the same in every new leaf of a table. On a file
system its file is linked instead of being written again. A write to many partitions is then limited
by the files that hold rows. The version has its transaction in it. Lance's copy of that, in a
folder of its own, is only for clients that do not look there, and is left out.

Where many leaves get the same number of rows, one call of Lance writes their files in the folder of
the first leaf, and they are moved from there. A call for each leaf takes three times as long, most
of it in waking threads. A data file does not say which dataset it belongs to.

A file that is linked or moved keeps its owner and its rights. So leaves only share files with those
in whose place they would have got the same.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    """A leaf that Lance has created."""

    #: The file of its version.
    file: str
    manifest: bytes
    links: int = 0


class Rules(NamedTuple):
    """What decides about the owner and the rights of a new file, besides the process."""

    device: int
    #: The group that files inherit from their folder; None if they have that of the process.
    group: int | None
    #: What Linux calls a default ACL; None where there is none.
    acl: bytes | None


class NewLeaves:
    """Prepares new leaves with the same schema for rows. Several threads may use it.

    Only leaves whose folders pass the same rights on to new files share files.
    """

    def __init__(self) -> None:
        self._templates: dict[Rules, _Template] = {}
        #: The rules of the folders that leaves are in.
        self._rules: dict[str, Rules] = {}
        #: Whether the file system has links, as far as is known.
        self._has_links = True
        self._lock = threading.Lock()

    def create(self, leaf: Leaf) -> LeafWriter:
        """A writer for a new leaf, which is created empty unless it begins on main.

        One that another writer has just created is used.
        """
        if leaf.begins_on_main:
            return leaf.new_writer()
        if not self.shares(leaf):
            return leaf.create()
        rules = self.rules_of(leaf)
        with self._lock:
            template = self._templates.get(rules)
            if template is None or template.links >= _MOST_LINKS:
                self._templates.pop(rules, None)
                handle, is_new = leaf.created()
                if is_new and _rules(leaf.uri) == rules:
                    file = f"{leaf.uri}/{FIRST_FILE}"
                    self._templates[rules] = _Template(file, first_manifest(handle))
                return leaf.writer_at(handle)
        template = self._link(leaf)
        return leaf.create() if template is None else _writer(leaf, template)

    def shares(self, leaf: Leaf) -> bool:
        """Whether new leaves share files, or their files are written together, as far as known."""
        return leaf.begins_on_main or (leaf.location.path is not None and self._has_links)

    def rules_of(self, leaf: Leaf) -> Rules:
        """What the folder that a leaf is in, or will be in, passes on to new files."""
        folder = os.path.dirname(leaf.uri)
        rules = self._rules.get(folder)
        if rules is None:
            rules = self._rules[folder] = _rules(folder)
        return rules

    def write_alike(self, leaves: Sequence[Leaf], table: pa.Table) -> list[Written]:
        """Prepare leaves and write rows to them: the same number to each, in their order.

        The leaves are of one table whose columns have ids, in folders with the same rules, and none
        of them is named twice. Lance can write slices of the table.
        """
        count = table.num_rows // len(leaves)
        written: dict[int, Written] = {}
        together: dict[int, LeafWriter] = {}
        for number, leaf in enumerate(leaves):
            writer = self._new(leaf)
            if writer is not None:
                together[number] = writer
            else:
                written[number] = self.create(leaf).write(table.slice(number * count, count))
        if together:
            if written:
                table = pa.concat_tables(table.slice(n * count, count) for n in together)
            first = next(iter(together))
            files = together[first].write(table.combine_chunks(), max_rows=count).each()
            for at, (number, file) in enumerate(zip(together, files, strict=True)):
                if file.rows != count:
                    raise AssertionError(f"a file has {file.rows} rows instead of {count}")
                if at and not _move(file, leaves[first], leaves[number]):
                    file = together[number].write(table.slice(at * count, count))
                written[number] = file
        return [written[number] for number in range(len(leaves))]

    def _new(self, leaf: Leaf) -> LeafWriter | None:
        """A writer for a leaf whose folder is new; None if it has to be prepared by itself."""
        if not leaf.begins_on_main:
            template = self._link(leaf)
            return None if template is None else _writer(leaf, template)
        try:
            os.mkdir(leaf.uri)
        except OSError:  # somebody has prepared the folder, perhaps with rights of its own
            return None
        return leaf.new_writer()

    def _link(self, leaf: Leaf) -> _Template | None:
        """Create a leaf by linking the file of a version; None if Lance has to create it."""
        with self._lock:
            template = self._templates.get(self.rules_of(leaf))
            if template is None or template.links >= _MOST_LINKS or not self._has_links:
                return None
            template.links += 1
        try:
            _create(leaf)
            os.link(template.file, f"{leaf.uri}/{FIRST_FILE}")
        except FileExistsError:  # another writer has created it, or left its folder
            return None
        except OSError:
            # Lance creates it then, or says what is wrong.
            self._has_links = False
            return None
        return template


def _writer(leaf: Leaf, template: _Template) -> LeafWriter:
    """A writer of files for a leaf that was created by a link."""
    return leaf.writer_at(open_manifest(leaf.uri, template.manifest, None, leaf_session()))


def _rules(folder: str) -> Rules:
    """What a folder passes on to new files. One that does not exist yet will do as its parent."""
    while True:
        try:
            status = os.stat(folder)
            break
        except FileNotFoundError:
            folder = os.path.dirname(folder)
    acl = None
    if hasattr(os, "getxattr"):
        with contextlib.suppress(OSError):
            acl = os.getxattr(folder, "system.posix_acl_default")
    inherits = status.st_mode & stat.S_ISGID or sys.platform == "darwin"
    group = status.st_gid if inherits else None
    return Rules(status.st_dev, group, acl)


def _create(leaf: Leaf) -> None:
    """Make the folders of a leaf. It is not a leaf before it has a version."""
    if "/" in leaf.folder:
        os.makedirs(os.path.dirname(leaf.uri), exist_ok=True)
    os.mkdir(leaf.uri)
    os.mkdir(f"{leaf.uri}/_versions")


def _move(written: Written, source: Leaf, target: Leaf) -> bool:
    """Move a file that no version refers to yet to another leaf; False if it cannot be moved.

    A file system may refuse to, for example between folders with quotas of their own.
    """
    (fragment,) = written.fragments
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{target.uri}/data")
        for file in fragment.files:
            path = f"data/{data_path(file)}"
            os.rename(f"{source.uri}/{path}", f"{target.uri}/{path}")
    except OSError:
        return False
    return True
