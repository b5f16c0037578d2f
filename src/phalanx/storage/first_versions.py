"""The first rows of many new leaves: Lance commits one leaf, the versions of the others are alike.

New leaves of one write share the file of their empty version (see `phalanx.storage.new_leaves`).
The detached version that adds one file to it says the same in each of them, except for the name,
the size and the rows of that file, a random number, an id and the time. So the file that Lance has
written for one leaf becomes a template, which is filled in for the others. Lance would open each
leaf and wake several threads for it. The version has its transaction in it; Lance's copy of that is
left out, as in `phalanx.storage.new_leaves`.

A template is only used if it reproduces what Lance has written, byte for byte. Lance commits every
leaf for which there is none: the first of a write, those in object stores, those that get more than
one file, and those of tables whose column ids have gaps or do not begin with 0 (a column was
dropped, or files leave partition columns out), because each of them has more versions.
"""

from __future__ import annotations

import os
import secrets
import struct
import time
import uuid
from collections.abc import Sequence
from typing import Any

from lance.fragment import FragmentMetadata

from phalanx.lru import LruCache
from phalanx.model.schema import TableSchema
from phalanx.storage.files import DETACHED, FIRST_FILE
from phalanx.storage.lance_private import data_path
from phalanx.storage.protobuf import MessageTemplate, member, parse, spell

#: The end of a file of a version: where its manifest begins, Lance's format version, and a mark.
_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")

# The members of Lance's messages that differ between leaves.
_TX_BASE, _TX_UUID, _TX_APPEND, _APPENDED = 1, 2, 100, 1
_FRAGMENT, _VERSION, _TIMESTAMP, _TX_FILE = 2, 3, 7, 12
_FILE, _ROWS = 2, 4
_PATH, _SIZE = 1, 6


class FirstVersion:
    """The template of a version that adds one file to an empty one.

    Raises ValueError if the file of a version has another shape.
    """

    def __init__(self, manifest: bytes, fragment: FragmentMetadata) -> None:
        transaction, body, self._mark = _split(manifest)
        members = parse(body)
        known = {number: value for number, _, value in members}
        tx = parse(transaction)
        tx_id = {number: value for number, _, value in tx}.get(_TX_UUID, b"")
        inner = parse(known.get(_FRAGMENT, b""))
        file = parse({number: value for number, _, value in inner}.get(_FILE, b""))
        self._like = _alike(fragment)
        self._manifest = MessageTemplate(members, (_FRAGMENT, _VERSION, _TIMESTAMP, _TX_FILE))
        self._transaction = MessageTemplate(tx, (_TX_UUID, _TX_APPEND))
        self._fragment, self._file = (
            MessageTemplate(inner, (_FILE, _ROWS)),
            MessageTemplate(file, (_PATH, _SIZE)),
        )
        again = self._filled(
            fragment,
            known.get(_VERSION, 0),
            tx_id,
            known.get(_TIMESTAMP, b""),
            known.get(_TX_FILE),
        )
        if not self.fits([fragment]) or again != manifest:
            raise ValueError("a version has another shape than we know")

    def fits(self, fragments: Sequence[FragmentMetadata]) -> bool:
        """Whether fragments are one file like that of the template, with rows of its own."""
        if not has_one_file(fragments) or _alike(fragments[0]) != self._like:
            return False
        return bool(fragments[0].physical_rows and fragments[0].files[0].file_size_bytes)

    def write(self, leaf: str, fragment: FragmentMetadata) -> int:
        """Write the version of another leaf that adds a fragment, and return its number.

        Raises OSError, and nothing refers to what was written then.
        """
        version = secrets.randbits(64) | DETACHED
        create_file(f"{leaf}/_versions/d{version}.manifest", self.filled(version, fragment))
        return version

    def filled(self, version: int, fragment: FragmentMetadata) -> bytes:
        """The file of a version with this number that adds a fragment which fits."""
        seconds, nanos = divmod(time.time_ns(), 10**9)
        now = member(1, seconds) + (member(2, nanos) if nanos else b"")
        return self._filled(fragment, version, str(uuid.uuid4()).encode(), now)

    def _filled(
        self,
        fragment: FragmentMetadata,
        version: int,
        tx_id: bytes,
        now: bytes,
        tx_file: bytes | None = None,
    ) -> bytes:
        """The file of a version. `tx_file` is the name of Lance's copy of its transaction."""
        (file,) = fragment.files
        path, size = data_path(file).encode(), file.file_size_bytes or 0
        inner = self._fragment.fill(
            {_FILE: self._file.fill({_PATH: path, _SIZE: size}), _ROWS: fragment.physical_rows}
        )
        transaction = self._transaction.fill(
            {_TX_UUID: tx_id, _TX_APPEND: member(_APPENDED, inner)}
        )
        manifest = self._manifest.fill(
            {_FRAGMENT: inner, _VERSION: version, _TIMESTAMP: now, _TX_FILE: tx_file}
        )
        return _joined(transaction, manifest, self._mark)


def renumbered(manifest: bytes, version: int) -> bytes:
    """The file of a version with another number, and without Lance's copy of its transaction.

    Raises ValueError if the file has another shape.
    """
    transaction, body, mark = _split(manifest)
    members = parse(body)
    if spell(members) != body or not any(number == _VERSION for number, _, _ in members):
        raise ValueError("a version has another shape than we know")
    kept = [part for part in members if part[0] != _TX_FILE]
    changed = [(n, kind, version if n == _VERSION else value) for n, kind, value in kept]
    return _joined(transaction, spell(changed), mark)


def without_base(manifest: bytes) -> bytes:
    """The file of a version whose transaction names no version that it began from.

    Raises ValueError if the file has another shape.
    """
    transaction, body, mark = _split(manifest)
    members = parse(transaction)
    if spell(members) != transaction or not any(number == _TX_UUID for number, _, _ in members):
        raise ValueError("a transaction has another shape than we know")
    kept = [part for part in members if part[0] != _TX_BASE]
    return _joined(spell(kept), body, mark)


def _split(file: bytes) -> tuple[bytes, bytes, list[Any]]:
    """The transaction and the manifest in the file of a version, and the end of the file."""
    start, *mark = _FOOTER.unpack(file[-_FOOTER.size :])
    return file[_LENGTH.size : start], file[start + _LENGTH.size : -_FOOTER.size], mark


def _joined(transaction: bytes, manifest: bytes, mark: Sequence[Any]) -> bytes:
    return b"".join(
        (
            _LENGTH.pack(len(transaction)),
            transaction,
            _LENGTH.pack(len(manifest)),
            manifest,
            _FOOTER.pack(_LENGTH.size + len(transaction), *mark),
        )
    )


def has_one_file(fragments: Sequence[FragmentMetadata]) -> bool:
    """Whether fragments are a single data file."""
    return len(fragments) == 1 and len(fragments[0].files) == 1


def _alike(fragment: FragmentMetadata) -> list[Any]:
    """What a fragment of one file says besides the name, the size and the rows of the file."""
    (file,) = fragment.files
    varies = ("files", "physical_rows"), ("_path", "file_size_bytes")
    return [
        {name: value for name, value in vars(part).items() if name not in names}
        for part, names in zip((fragment, file), varies, strict=True)
    ]


#: Templates by the file of the empty version, and the schema that the table had.
_templates: LruCache[tuple[bytes, TableSchema], FirstVersion] = LruCache(16)


class FirstCommit:
    """The commit of files to a leaf on a file system that has no rows yet."""

    def __init__(
        self, leaf: str, schema: TableSchema, fragments: Sequence[FragmentMetadata]
    ) -> None:
        """`schema` is that of the files."""
        self._leaf, self._fragments = leaf, fragments
        empty = _shared(f"{leaf}/{FIRST_FILE}") if has_one_file(fragments) else None
        self._key = None if empty is None else (empty, schema)

    def write(self) -> int | None:
        """Commit the files and return the version; None if Lance has to do it."""
        template = None if self._key is None else _templates.get(self._key)
        if template is None or not template.fits(self._fragments):
            return None
        try:
            return template.write(self._leaf, self._fragments[0])
        except OSError:  # Lance says what is wrong
            return None

    def learn(self, handle: Any) -> None:
        """Take what Lance has committed as the template of further leaves, if it is known well."""
        if self._key is None or _templates.get(self._key) is not None:
            return
        try:
            manifest = _read(f"{self._leaf}/_versions/d{handle.version}.manifest")
            template = FirstVersion(manifest, self._fragments[0])
        except (OSError, ValueError, KeyError, struct.error):
            return
        _templates.put(self._key, template)


def _shared(path: str) -> bytes | None:
    """A file that several leaves share; None if it is not shared, or missing."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read() if os.fstat(file.fileno()).st_nlink > 1 else None
    except OSError:
        return None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def create_file(path: str, data: bytes) -> None:
    """Create a file as Lance does: whole, or not at all, and never in the place of another.

    One that is half written is named like Lance's, which readers and vacuum know.
    """
    staged = f"{path}#1"
    file = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        try:
            written = os.write(file, data)
        finally:
            os.close(file)
        if written < len(data):
            raise OSError(f"{staged} was not written in full")
        os.link(staged, path)
    finally:
        os.unlink(staged)
