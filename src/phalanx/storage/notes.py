"""The note of the last swaps: what they wrote to the manifest, for the writers that come next.

A writer that waited for others needs the rows that they have changed, and a query for them takes
longer than everything else that it decides on. Its own swap then looks for the rows that it
replaces, in files that others have just written. So each swap notes the newest rows of the manifest
in a small file beside it, and which fragments of the manifest hold the last of them and no other
row: the next swap replaces these fragments as they are, without looking for anything.

The manifest alone is the truth. A note says which version of the manifest it is about, by what
distinguishes its file from all others, and how the files of the fragments are called: a writer that
slept before it looked at the file of its version may have found that of another table, which was
created in the place of its own. Where the note is missing, torn, or about another version,
the rows are read from the manifest, and Lance looks for those that are replaced. So it does no harm
if a writer crashes before it makes a note, if another client makes none, or if the table is copied,
restored or created again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from typing import NamedTuple

import pyarrow as pa

from phalanx.storage.location import Location
from phalanx.storage.names import transaction_row

NOTES_FILE = ".phalanx.notes"
#: A note has at most so many rows, the newest. They are read and written with each swap.
MOST_ROWS = 256
#: Larger notes are not made: to read the rows from the manifest costs little in comparison.
_LARGEST_NOTE = 128 * 1024
#: A note ends with the sizes of its rows and of what is said about them, a digest of both, and a
#: mark.
_END = struct.Struct("<II16s4s")
_MARK = b"PhN3"


#: What distinguishes the file of a version of the manifest from all others.
Identity = tuple[str, int, int, int, int]


class Tail(NamedTuple):
    """The newest rows of a version of the manifest."""

    #: The rows in their last state, in the order in which they were written.
    rows: pa.Table
    #: How many of them, the last ones, are all that `fragments` hold.
    held: int = 0
    #: Ids of fragments of the manifest.
    fragments: tuple[int, ...] = ()
    #: The names of their files, which no other fragment ever has.
    files: tuple[str, ...] = ()

    @property
    def held_ids(self) -> set[str]:
        """The ids of the rows that the fragments hold."""
        held = self.rows.column("object_id").slice(len(self.rows) - self.held)
        return set(held.to_pylist())

    def with_rows(self, rows: pa.Table) -> Tail:
        """The tail after rows were written, if they are in the fragments as well then."""
        written = set(rows.column("object_id").to_pylist())
        ids = self.rows.column("object_id").to_pylist()
        kept = [place for place, id in enumerate(ids) if id not in written]
        since = len(ids) - self.held
        held = sum(place >= since for place in kept) + len(rows)
        table = pa.concat_tables([self.rows.take(pa.array(kept, pa.int64())), rows])
        return Tail(table.combine_chunks(), held, self.fragments, self.files)

    def since(self, transaction_id: str) -> pa.Table | None:
        """The rows that were written since a transaction, and its own; None if some are missing."""
        ids = self.rows.column("object_id").to_pylist()
        try:
            return self.rows.slice(ids.index(transaction_row(transaction_id)))
        except ValueError:
            return None


NO_TAIL = Tail(pa.table({"object_id": pa.array([], pa.string())}))


def write(location: Location, identity: Identity | None, tail: Tail) -> None:
    """Note the newest rows of a version of the manifest.

    A failure has no effect: notes only save time.
    """
    if location.path is None or identity is None:
        return
    rows, held, fragments, files = tail
    if held > MOST_ROWS:
        held, fragments, files = 0, (), ()
    payload = _ipc(rows.slice(max(0, len(rows) - MOST_ROWS)))
    about = json.dumps([identity, held, fragments, files]).encode()
    if len(payload) > _LARGEST_NOTE:
        return
    note = payload + about + _END.pack(len(payload), len(about), _digest(payload, about), _MARK)
    with contextlib.suppress(OSError):
        handle = os.open(location.path / NOTES_FILE, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            os.pwrite(handle, note, 0)
            os.ftruncate(handle, len(note))
        finally:
            os.close(handle)


def read(location: Location, identity: Identity | None) -> Tail | None:
    """The newest rows of a version of the manifest; None if they were not noted."""
    if location.path is None or identity is None:
        return None
    try:
        with open(location.path / NOTES_FILE, "rb", buffering=0) as file:
            content = memoryview(file.read())
    except OSError:
        return None
    if len(content) < _END.size:
        return None
    size, about_size, digest, mark = _END.unpack_from(content, len(content) - _END.size)
    if mark != _MARK or size + about_size + _END.size != len(content):
        return None
    rows, about = content[:size], content[size : -_END.size]
    if _digest(rows, about) != digest:
        return None
    noted, held, fragments, files = json.loads(bytes(about))
    if tuple(noted) != identity:
        return None
    return Tail(pa.ipc.open_stream(rows).read_all(), held, tuple(fragments), tuple(files))


def rows_since(
    location: Location, identity: Identity | None, transaction_id: str
) -> pa.Table | None:
    """The rows that were written since a transaction, and by it, up to a version of the manifest.

    Of a row that was written repeatedly there is the last state. None if the note does not tell.
    """
    tail = read(location, identity)
    return None if tail is None else tail.since(transaction_id)


def _ipc(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _digest(rows: bytes | memoryview, about: bytes | memoryview) -> bytes:
    digest = hashlib.blake2b(rows, digest_size=16)
    digest.update(about)
    return digest.digest()
