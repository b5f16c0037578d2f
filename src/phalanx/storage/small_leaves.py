"""Bundles: many small leaves read as one dataset.

Setting up the reading of a leaf of 10,000 rows takes Lance longer than reading it. So leaves
that are small are put together: a bundle is a manifest, made in memory, whose fragments are the
data files of many leaves. It says where files are and nothing else; no file is written for it,
and the leaves know nothing of it. Only versions that never change are bundled, so a bundle that
was made once is good for ever, and the process keeps those it has used last.

A leaf with deleted rows, with a schema of its own, or with columns in several files is read by
itself. Columns whose values the partitions give are added by the fragment that a row is in; leaves
with a filter on such a column are read one by one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from lance import DatasetBasePath
from lance.fragment import DataFile, FragmentMetadata

from phalanx.errors import CorruptTable, UnsupportedTable
from phalanx.lru import LruCache
from phalanx.model.partition_columns import Given
from phalanx.model.predicates import Predicate, columns_of
from phalanx.model.schema import TableSchema
from phalanx.storage.field_ids import ids_of
from phalanx.storage.files import is_lasting
from phalanx.storage.lance_private import manifest_of, open_manifest
from phalanx.storage.leaf import GONE, Leaf, are_narrow, evaluating, open_leaf, scanned
from phalanx.storage.location import Location, leaf_session
from phalanx.storage.mapping import mapping_of

log = logging.getLogger("phalanx")

#: How many leaves make a bundle at most: several are read at a time.
LARGEST = 32
#: How many rows a batch has at most. Counting its bytes, too, takes a tenth more time.
_BATCH_ROWS = 16_384
#: Files of a bundle that are read ahead: it bounds the memory that reading takes.
_FILES_AHEAD = 4
#: How many bytes of bundles a process remembers: some 160 for each leaf.
_REMEMBERED_BYTES = 32 * 1024 * 1024


class Member(NamedTuple):
    """A leaf's folder and the version to read; None for the newest on main."""

    folder: str
    version: int | None
    #: The columns that its partition gives, with their values.
    given: Given = ()

    def leaf(self, location: Location, schema: TableSchema) -> Leaf:
        return Leaf(location, self.folder, schema, self.given)


class _Part(NamedTuple):
    """Some of the members in a row: one dataset, or leaves to be read one by one."""

    #: How many members they are.
    size: int
    uri: str = ""
    #: How many fragments each of them has in the dataset.
    fragments: tuple[int, ...] = ()
    manifest: bytes | None = None
    #: The schema that the members have. The dataset numbers the same fields from 0.
    shape: Any = None
    #: Whether their rows are small.
    narrow: bool = False

    def open(self, location: Location) -> Any:
        assert self.manifest is not None
        return open_manifest(self.uri, self.manifest, location.options, leaf_session())


def scan(
    location: Location,
    schema: TableSchema,
    members: Sequence[Member],
    columns: Sequence[str],
    where: Predicate | None,
    limit: int | None = None,
    in_order: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The rows of small leaves that satisfy a predicate, leaf after leaf.

    Raises InvalidInput where Lance cannot evaluate the predicate, and CorruptTable where a file is
    gone or damaged.
    """
    for part, some in _parts(location, members):
        if part.manifest is None or _filters_given(some, where):
            for member in some:
                leaf = member.leaf(location, schema)
                yield from leaf.scan(member.version, columns, where, limit, in_order, whole=True)
            continue
        handle = part.open(location)
        mapping = mapping_of(part.shape, handle, schema)
        given = [
            m.given for m, count in zip(some, part.fragments, strict=True) for _ in range(count)
        ]
        with _blaming(location, schema, part, some, columns, where):
            yield from scanned(
                location,
                part.uri,
                handle,
                mapping,
                mapping.reading_together(columns, given),
                where,
                limit=limit,
                batch_size=_BATCH_ROWS,
                fragment_readahead=_FILES_AHEAD,
                scan_in_order=in_order,
                narrow=part.narrow,
                late_materialization=False if part.narrow else None,
            )


def count(
    location: Location, schema: TableSchema, members: Sequence[Member], where: Predicate | None
) -> int:
    """How many rows of small leaves satisfy a predicate."""
    total = 0
    for part, some in _parts(location, members):
        if part.manifest is None or _filters_given(some, where):
            total += sum(m.leaf(location, schema).count(m.version, where) for m in some)
            continue
        handle = part.open(location)
        mapping = mapping_of(part.shape, handle, schema)
        with (
            _blaming(location, schema, part, some, (), where),
            evaluating(location, part.uri, mapping, where) as filter,
        ):
            total += int(handle.count_rows(filter))
    return total


def _filters_given(members: Sequence[Member], where: Predicate | None) -> bool:
    """Whether a predicate asks for a column that partitions give."""
    if where is None or not members[0].given:
        return False
    given = {id for member in members for id in _ids(member)}
    return any(column.field_id in given for column in columns_of(where))


def opened(
    location: Location,
    members: Sequence[Member],
    open: Callable[[Location, str, int | None], Any] = open_leaf,
) -> Iterator[tuple[str, Any, Any]]:
    """The datasets that small leaves are read as: URI, schema of the leaves in it, and handle.

    Leaves whose partitions give columns are opened one by one.
    """
    for part, some in _parts(location, members):
        if part.manifest is not None and not some[0].given:
            yield part.uri, part.shape, part.open(location)
            continue
        for member in some:
            handle = open(location, member.folder, member.version)
            yield location.child(member.folder), handle.lance_schema, handle


@contextlib.contextmanager
def _blaming(
    location: Location,
    schema: TableSchema,
    part: _Part,
    members: Sequence[Member],
    columns: Sequence[str],
    where: Predicate | None,
) -> Iterator[None]:
    """Where a leaf of a bundle cannot be read, the error names it.

    Lance does not say which one: each is read by itself until one fails.
    """
    try:
        yield
    except (CorruptTable, UnsupportedTable) as error:
        for member in members:
            for _ in member.leaf(location, schema).scan(member.version, columns, where):
                pass
        raise type(error)(str(error).replace(part.uri, f"{location.uri}/*")) from None


def _bytes(parts: Sequence[_Part]) -> int:
    return sum(200 + 8 * part.size + len(part.manifest or b"") for part in parts)


_remembered: LruCache[str, tuple[_Part, ...]] = LruCache(_REMEMBERED_BYTES, _bytes)


def _parts(
    location: Location, members: Sequence[Member]
) -> Iterator[tuple[_Part, Sequence[Member]]]:
    """The members in bundles as far as that is possible, in the same order."""
    if len(members) < 2 or not all(is_lasting(m.version) for m in members):
        yield _Part(len(members)), members
        return
    identity = json.dumps([location.uri, *((m.folder, m.version, _ids(m)) for m in members)])
    key = hashlib.blake2b(identity.encode(), digest_size=20).hexdigest()
    parts = _remembered.get(key)
    if parts is None:
        parts = tuple(_made(location, members, key))
        _remembered.put(key, parts)
    start = 0
    for part in parts:
        yield part, members[start : start + part.size]
        start += part.size


def _ids(member: Member) -> list[int]:
    """The ids of the columns that a partition gives: the same for all leaves of a spec."""
    return [id for id, _ in member.given]


def _made(location: Location, members: Sequence[Member], key: str) -> Iterator[_Part]:
    run: list[tuple[Member, list[FragmentMetadata]]] = []
    shape = None
    for number, member in enumerate(members):
        handle = open_leaf(location, member.folder, member.version)
        fragments = _plain_fragments(handle)
        others = bool(run) and _ids(run[-1][0]) != _ids(member)
        if run and (fragments is None or others or handle.lance_schema != shape):
            yield _bundled(location, run, shape, f"{key}-{number}")
            run = []
        if fragments is None:
            yield _Part(1)
            continue
        run.append((member, fragments))
        shape = handle.lance_schema
    if run:
        yield _bundled(location, run, shape, f"{key}-{len(members)}")


def gathered(
    location: Location, members: Sequence[Member], handles: Sequence[Any], name: str
) -> tuple[Any, Any, list[dict[int, int]]] | None:
    """Leaves as one dataset from which rows are taken by id, also those that were deleted.

    Returns the dataset, the schema of the leaves, and for each leaf the numbers that its fragments
    have there; None if the leaves differ in their schemas, or cannot be put together.
    """
    run, places, count = [], [], 0
    for member, handle in zip(members, handles, strict=True):
        fragments = _plain_fragments(handle, with_deletions=True)
        if fragments is None or handle.lance_schema != handles[0].lance_schema:
            return None
        run.append((member, fragments))
        places.append({fragment.id: count + n for n, fragment in enumerate(fragments)})
        count += len(fragments)
    part = _bundled(location, run, handles[0].lance_schema, name)
    return None if part.manifest is None else (part.open(location), part.shape, places)


def _plain_fragments(handle: Any, with_deletions: bool = False) -> list[FragmentMetadata] | None:
    """The fragments of a leaf, if each of them is one file and all that is in it."""
    if any(_is_kept_outside(column) for column in handle.schema):
        return None
    fragments = [fragment.metadata for fragment in handle.get_fragments()]
    for fragment in fragments:
        deleted = fragment.deletion_file is not None and not with_deletions
        if len(fragment.files) != 1 or deleted or fragment.overlays:
            return None
        if fragment.files[0].base_id is not None:
            return None
    return fragments


def _is_kept_outside(column: pa.Field) -> bool:
    """Whether a column, or one inside it, may have values that are not in the data file."""
    if isinstance(column.type, pa.BaseExtensionType):
        return True
    if any(b"blob" in key for key in column.metadata or ()):
        return True
    return any(_is_kept_outside(column.type.field(i)) for i in range(column.type.num_fields))


def _bundled(
    location: Location,
    run: Sequence[tuple[Member, list[FragmentMetadata]]],
    shape: Any,
    name: str,
) -> _Part:
    """One dataset of some leaves, each of which is a base that files are found under."""
    alone = _Part(len(run))
    if len(run) < 2:
        return alone
    bases, fragments, known = [], [], frozenset(ids_of(shape))
    for number, (member, own_fragments) in enumerate(run, 1):
        root = location.child(member.folder)
        bases.append(DatasetBasePath(root, is_dataset_root=True, id=number))
        fragments += [_moved(fragment, number, known) for fragment in own_fragments]
    uri = f"memory://phalanx/{name}"
    try:
        manifest = manifest_of(uri, shape, fragments, bases, location.options)
        return _Part(
            len(run),
            uri,
            tuple(len(own_fragments) for _, own_fragments in run),
            manifest,
            shape,
            are_narrow(fragments),
        )
    except (OSError, ValueError) as error:
        # Files of different format versions, for example.
        log.debug("%d leaves of %s are read one by one: %s", len(run), location.uri, error)
        return alone


def _moved(fragment: FragmentMetadata, base: int, known: frozenset[int]) -> FragmentMetadata:
    """A fragment whose file is found under a base.

    A file may hold columns that were dropped. Their ids go: others get these numbers now.
    """
    file = fragment.files[0]
    there = DataFile(
        str(file.path),
        [id if id in known else GONE for id in file.fields],
        file.column_indices,
        file.file_major_version,
        file.file_minor_version,
        file.file_size_bytes,
        base,
    )
    return FragmentMetadata(0, [there], fragment.physical_rows)
