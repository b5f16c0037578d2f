"""Notes of the last swaps: what they wrote to the manifest, for writers that come next.

A writer that waited for others needs the rows that they have changed. A query for them takes longer
than everything else that it decides on, so each swap notes its rows in a small file beside the
manifest, and a compaction notes that it has changed none.

The manifest alone is the truth. A note says which version of the manifest it was made on and which
one it made, each by what distinguishes its file from all others. Notes are followed back from the
version that a reader has open: where one is missing, torn, or does not fit the next, the rows are
read from the manifest. So it does no harm if a writer crashes before it makes a note, if another
client makes none, or if the table is copied, restored or created again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from phalanx.storage.location import Location

NOTES_FILE = ".phalanx.notes"
#: The file is cut to its newer half when it becomes larger.
_LARGEST_FILE = 512 * 1024
#: Rows that are larger are not noted: to read them from the manifest costs little in comparison.
_LARGEST_ROWS = 64 * 1024
#: What a note ends with: the sizes of its rows and of what is said about them, a digest of both,
#: and a mark. As it is at the end, notes after a torn one are found.
_END = struct.Struct("<II16s4s")
_MARK = b"PhN1"


#: What distinguishes the file of a version of the manifest from all others.
Identity = tuple[str, int, int, int, int]


class _Note(NamedTuple):
    before: Identity
    after: Identity
    #: The transaction of the table; empty if no row has changed.
    transaction_id: str
    rows: memoryview


def write(
    location: Location,
    before: Identity | None,
    after: Identity | None,
    transaction_id: str = "",
    rows: pa.Table | None = None,
) -> None:
    """Note that a version of the manifest was made by writing rows to another, and nothing else.

    Without `rows` no row has changed. A failure has no effect: notes only save time.
    """
    if location.path is None or before is None or after is None:
        return
    payload = b"" if rows is None else _ipc(rows)
    if len(payload) > _LARGEST_ROWS:
        return
    about = json.dumps([before, after, transaction_id]).encode()
    end = _END.pack(len(payload), len(about), _digest(payload, about), _MARK)
    with contextlib.suppress(OSError):
        handle = os.open(location.path / NOTES_FILE, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            _add(handle, payload + about + end)
        finally:
            os.close(handle)


def rows_since(location: Location, newest: Identity | None, transaction_id: str) -> pa.Table | None:
    """The rows that were written since a transaction, and by it, up to a version of the manifest.

    Of a row that was written repeatedly there is the last state. None if notes do not tell.
    """
    if location.path is None or newest is None:
        return None
    try:
        with open(location.path / NOTES_FILE, "rb") as file:
            content = file.read()
    except OSError:
        return None
    tables = []
    for note in _chain(content, newest):
        if note.transaction_id:
            tables.append(pa.ipc.open_stream(note.rows).read_all())
        if note.transaction_id == transaction_id:
            return _merged(tables[::-1])
    return None


def _merged(tables: Sequence[pa.Table]) -> pa.Table | None:
    """The last state of each row of some tables; None if they have different columns."""
    if any(table.schema != tables[0].schema for table in tables):
        return None
    table = pa.concat_tables(tables)
    last = {id: place for place, id in enumerate(table.column("object_id").to_pylist())}
    return table.take(pa.array(sorted(last.values()), pa.int64()))


def _chain(content: bytes, newest: Identity) -> Iterator[_Note]:
    """The notes that led to a version of the manifest, newest first."""
    wanted = newest
    for note in _notes(content):
        if note.after == wanted:
            yield note
            wanted = note.before
        elif wanted != newest:
            return


def _notes(content: bytes) -> Iterator[_Note]:
    """The notes in a file, newest first, up to one that is damaged."""
    end, view = len(content), memoryview(content)
    while end >= _END.size:
        size, about_size, digest, mark = _END.unpack_from(content, end - _END.size)
        middle = end - _END.size - about_size
        start = middle - size
        if mark != _MARK or start < 0:
            return
        rows, about = view[start:middle], view[middle : end - _END.size]
        if _digest(rows, about) != digest:
            return
        before, after, transaction_id = json.loads(bytes(about))
        yield _Note(tuple(before), tuple(after), transaction_id, rows)
        end = start


def _add(handle: int, note: bytes) -> None:
    """Add a note to the file. If it has become large, only its newer half is kept."""
    size = os.fstat(handle).st_size
    if size > _LARGEST_FILE:
        half = size // 2
        note = os.pread(handle, size - half, half) + note
        os.ftruncate(handle, 0)
        size = 0
    os.pwrite(handle, note, size)


def _ipc(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _digest(rows: bytes | memoryview, about: bytes | memoryview) -> bytes:
    digest = hashlib.blake2b(rows, digest_size=16)
    digest.update(about)
    return digest.digest()
