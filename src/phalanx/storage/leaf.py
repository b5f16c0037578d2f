"""A leaf: one partition's own Lance dataset.

A leaf is made empty, with the table's field ids, in a way that two creators cannot both win
(and need not: they arrive at the same leaf). Rows are then added by detached commits, which
nobody sees until the manifest names their version.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import lance
import lance.commit
import pyarrow as pa
from lance import LanceOperation
from lance.fragment import FragmentMetadata, write_fragments

from phalanx.errors import ConflictError, CorruptTable, InvalidInput, PhalanxError
from phalanx.model.predicates import Predicate, to_text
from phalanx.model.schema import TableSchema
from phalanx.storage import lance_errors
from phalanx.storage.field_ids import lance_schema
from phalanx.storage.lance_errors import LANCE_ERRORS
from phalanx.storage.lance_private import take_rows
from phalanx.storage.lance_types import stored_batches, stored_table
from phalanx.storage.leaf_delta import LeafDelta, Written
from phalanx.storage.location import Location, leaf_session
from phalanx.storage.mapping import ROW_ID, LeafMapping, mapping_of
from phalanx.storage.records import DataFileRow, FragmentSize, LeafChange

log = logging.getLogger("phalanx")

#: The version of a leaf that has just been made and holds no row.
EMPTY_VERSION = 1
#: How far back a leaf's changes are followed before they count as unknown.
_LONGEST_LINE = 1000
#: How many bytes a batch may have on its way out of a leaf, and rows: of narrow ones, Lance's own
#: 8,192 would be many small batches.
BATCH_BYTES = 8 * 1024 * 1024
BATCH_ROWS = 65_536


#: A row's id is its fragment and, in the lower bits, its place in it.
_FRAGMENT_BITS = 32


class Leaf:
    """A leaf's folder, and what can be done there.

    Rows go in and come out with the table's schema, whatever the leaf's own is.
    """

    def __init__(self, location: Location, folder: str, schema: TableSchema) -> None:
        self.location, self.folder, self.schema = location, folder, schema
        self.uri = location.child(folder)
        #: Whether a commit through this object has written rows anew that were there.
        self.wrote_anew = False

    def open(self, version: int | None) -> Any:
        """The Lance dataset at a version (detached ones too), or the newest on main."""
        return open_leaf(self.location, self.folder, version)

    def create(self) -> LeafWriter:
        """Make the empty leaf, or take the one that somebody else has just made."""
        return LeafWriter(self, self._numbered(self._create()))

    def _create(self) -> Any:
        try:
            return lance.LanceDataset.commit(
                self.uri,
                LanceOperation.Overwrite(lance_schema(self.schema), []),
                max_retries=0,
                storage_options=self.location.options,
            )
        except OSError as error:
            # Version 1 may have been cleaned up by another client: any version will do.
            for version in (EMPTY_VERSION, None):
                with contextlib.suppress(CorruptTable):
                    return self.open(version)
            reason = self.location.reason(error)
            raise PhalanxError(f"cannot make the leaf {self.uri}: {reason}") from None

    def _numbered(self, handle: Any) -> Any:
        """The leaf with the table's fields and their ids: what files are written for.

        The first version of a dataset counts fields from 0, and later ones may be of an earlier
        schema. What is made here has no rows, and nobody refers to it.
        """
        if self.is_current(handle):
            return handle
        return self._commit(handle, LanceOperation.Overwrite(lance_schema(self.schema), []))

    def is_current(self, handle: Any) -> bool:
        """Whether a version has the table's schema for its own."""
        return bool(handle.lance_schema == lance_schema(self.schema))

    def _mapping(self, handle: Any) -> LeafMapping:
        return mapping_of(handle.lance_schema, handle, self.schema)

    def _commit(self, handle: Any, operation: LanceOperation.BaseOperation) -> Any:
        return lance.LanceDataset.commit(
            handle,
            operation,
            read_version=handle.version,
            detached=True,
            storage_options=self.location.options,
        )

    def writer(self, version: int | None) -> LeafWriter:
        """What writes files that are to be added to a version, or to the newest on main."""
        return LeafWriter(self, self._numbered(self.open(version)))

    def commit(self, base: int | None, delta: LeafDelta) -> int:
        """Commit a change on top of a version; detached, so nobody sees it. Its version.

        `base` is None for a leaf that has no rows: new, or out of the table and back again. Where
        files are added to a version of an earlier schema, it gets the table's first.
        """
        self._check_files(delta)
        if base is None:
            handle = None
            if delta.added:  # where rows were written, a leaf has been made
                with contextlib.suppress(CorruptTable):
                    handle = self._numbered(self.open(EMPTY_VERSION))
            if handle is None:
                handle = self._numbered(self._create())
            if handle.version != EMPTY_VERSION:
                delta = replace(delta, replaced=True)
        else:
            handle = self.open(base)
            if delta.added and not delta.replaced and not self.is_current(handle):
                handle, delta = self._brought_up(handle, delta)
        return int(self._commit(handle, delta.operation(self.schema)).version)

    def _check_files(self, delta: LeafDelta) -> None:
        """Refuse files that would be read as something else than what was written."""
        known, needed = self.schema.id_set, self.schema.always_written
        written = (*delta.added, *(part.new for part in delta.rewritten))
        for file in (f for part in written for frag in part.fragments for f in frag.files):
            have = set(file.fields)
            lost = next((name for name, ids in needed if not have & ids), None)
            if not have <= known or lost is not None:
                what = "other columns" if lost is None else f"none for {lost!r}"
                raise ConflictError(
                    f"the file {file.path} was written for another schema than the table "
                    f"{self.location.uri} has (it has {what}): nothing was changed, try again"
                )

    def _brought_up(self, handle: Any, delta: LeafDelta) -> tuple[Any, LeafDelta]:
        """A version with the table's schema, and what is left to be changed there.

        Where files hold all that is needed, only the version's description changes. Where values
        must be, because a type was widened or a column has a default, rows are written anew. So
        they are where a file has no column left: Lance does not read what has no data.
        """
        mapping, known = self._mapping(handle), set(self.schema.field_ids)
        fragments = [fragment.metadata for fragment in handle.get_fragments()]
        empty = any(not known & {id for f in frag.files for id in f.fields} for frag in fragments)
        if mapping.needs_no_files and not empty:
            described = LanceOperation.Project(lance_schema(self.schema))
            return self._commit(handle, described), delta
        if delta.touched:
            gone = LanceOperation.Delete(list(delta.updated.values()), sorted(delta.removed), "")
            handle = self._commit(handle, gone)
        names, stored = self.schema.tagged.names, self.schema.stored
        rows = stored_batches(
            scanned(self.location, self.uri, handle, mapping, names, None), stored
        )
        self.wrote_anew = True
        anew = LeafWriter(self, self._numbered(handle)).write_batches(rows, stored)
        replaced = LeafDelta(added=(anew,), replaced=True).operation(self.schema)
        return self._commit(handle, replaced), LeafDelta(added=delta.added)

    def commit_on_main(self, base: int | None, delta: LeafDelta) -> int:
        """Commit a change on the main branch, for all to see. Its version.

        Raises ConflictError where somebody has changed the same rows since `base`.
        """
        self._check_files(delta)
        if base is None:
            self.create()
            base = self.newest()
        try:
            committed = lance.LanceDataset.commit(
                self.open(base),
                delta.operation(self.schema),
                read_version=base,
                storage_options=self.location.options,
            )
        except (OSError, lance.commit.CommitConflictError) as error:
            # The reply was lost, not necessarily the commit: its files tell.
            main = self.open(None)
            if delta.paths and delta.paths <= _paths(main):
                return int(main.version)
            if not lance_errors.is_lost_race(error, self.uri):
                raise
            reason = self.location.reason(error)
            raise ConflictError(
                f"the leaf {self.uri} was changed by somebody else at the same time: {reason}"
            ) from None
        return int(committed.version)

    def fragment_ids(self, version: int) -> frozenset[int]:
        """The fragments of a version."""
        return frozenset(fragment.fragment_id for fragment in self.open(version).get_fragments())

    def newest(self) -> int:
        """The newest version on main."""
        return int(self.open(None).version)

    def delete(self, version: int | None, where: Predicate) -> tuple[LeafDelta, int]:
        """Mark the rows of a version that satisfy a predicate as deleted; how many there are.

        Only deletion files are written. Nothing refers to them until the change is committed.
        """
        handle = self.open(version)
        with evaluating(self.location, self.uri, self._mapping(handle), where) as filter:
            return _marked((f, f.delete(filter)) for f in handle.get_fragments())

    def delete_rows(self, version: int, ids: Any) -> tuple[LeafDelta, int]:
        """Mark rows as deleted by their ids, an array of numbers; how many there are."""
        handle, fragments = self.open(version), ids >> _FRAGMENT_BITS
        chosen = ((n, ids[fragments == n]) for n in sorted(set(fragments.tolist())))
        found = ((handle.get_fragment(n), rows & (2**_FRAGMENT_BITS - 1)) for n, rows in chosen)
        with evaluating(self.location, self.uri, self._mapping(handle), None):
            return _marked((f, f.delete_rows(offsets.tolist())) for f, offsets in found)

    def anchor(self, version: int | None) -> bool:
        """Publish a detached version on the leaf's main branch, if it is not there already.

        Plain Lance readers of the leaf then see its rows, and their clean-up leaves its files
        alone. Returns whether something was done; failures are of no consequence.
        """
        try:
            main = self.open(None)
            last = main.read_transaction(main.version)
            made = getattr(last, "operation", None)
            if isinstance(made, LanceOperation.Restore) and made.version == version:
                return False
            self.open(version).restore()
        except (OSError, ValueError, PhalanxError) as error:
            log.debug("the leaf %s was not anchored: %s", self.uri, error)
            return False
        return True

    def size(self, version: int | None) -> tuple[int, int]:
        """Bytes of data files and number of fragments of a version."""
        fragments = self.open(version).get_fragments()
        files = [file for fragment in fragments for file in fragment.metadata.files]
        return sum(file.file_size_bytes or 0 for file in files), len(fragments)

    def changes(self, since: int, until: int) -> list[LeafChange] | None:
        """What was done from one version to a later one, newest first.

        None where it cannot be told: the versions are not of one line.
        """
        changes: list[LeafChange] = []
        version = until
        while version != since:
            try:
                transaction = self.open(version).read_transaction(version)
            except (CorruptTable, *LANCE_ERRORS):
                return None
            if transaction is None or len(changes) > _LONGEST_LINE:
                return None
            changes.append(_change_of(transaction.operation))
            version = transaction.read_version
        return changes

    def data_files(self, version: int | None) -> Iterator[DataFileRow]:
        """The data files of a version."""
        for fragment in self.open(version).get_fragments():
            for file in fragment.metadata.files:
                yield DataFileRow(
                    f"{self.uri}/data/{file.path}",
                    fragment.fragment_id,
                    fragment.metadata.physical_rows,
                    fragment.num_deletions,
                    file.file_size_bytes,
                )

    def scan(
        self,
        version: int | None,
        columns: Sequence[str],
        where: Predicate | None,
        limit: int | None = None,
        in_order: bool = True,
        whole: bool = False,
        fragments: Sequence[int] | None = None,
        row_ids: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a version that satisfy a predicate, in batches.

        With `whole` the leaf is read in one go: that is for small ones, where the setting up of
        a stream would take longer than the reading. With `fragments` only those are read, with
        `row_ids` there is a column `_rowid` as well. Raises InvalidInput where Lance cannot
        evaluate the predicate, and CorruptTable where a file is gone or damaged.
        """
        handle = self.open(version)
        yield from scanned(
            self.location,
            self.uri,
            handle,
            self._mapping(handle),
            columns,
            where,
            whole=whole,
            row_ids=row_ids,
            limit=limit,
            batch_size=BATCH_ROWS,
            batch_size_bytes=BATCH_BYTES,
            scan_in_order=in_order,
            fragments=_chosen(handle, fragments),
        )

    def take(self, version: int | None, ids: Any, columns: Sequence[str]) -> pa.Table:
        """Columns of some rows by their ids, an array of numbers, in that order."""
        handle = self.open(version)
        mapping = self._mapping(handle)
        reading = mapping.reading(columns)
        rows = pa.table({ROW_ID: ids})
        if reading.columns:
            with evaluating(self.location, self.uri, mapping, None):
                rows = take_rows(handle, ids, reading.columns)
        (batch,) = rows.combine_chunks().to_batches() or [
            pa.RecordBatch.from_pylist([], rows.schema)
        ]
        return pa.Table.from_batches([reading.batch(batch, False)])

    def count(
        self,
        version: int | None,
        where: Predicate | None,
        fragments: Sequence[int] | None = None,
    ) -> int:
        """How many rows of a version, or of some of its fragments, satisfy a predicate."""
        handle = self.open(version)
        with evaluating(self.location, self.uri, self._mapping(handle), where) as filter:
            chosen = _chosen(handle, fragments)
            if chosen is None:
                return int(handle.count_rows(filter))
            return sum(int(fragment.count_rows(filter)) for fragment in chosen)


class LeafWriter:
    """Writes files for a leaf. Nothing refers to them until they are committed."""

    def __init__(self, leaf: Leaf, handle: Any) -> None:
        self._leaf, self._handle = leaf, handle

    def write(self, table: pa.Table) -> Written:
        """Write rows as new files of the leaf."""
        return self.write_batches(stored_table(table), table.schema)

    def write_stream(
        self, batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int
    ) -> Written:
        """Write rows as they come, as new files of about these sizes at most."""
        stored = self._leaf.schema.stored
        rows: Any = stored_batches(batches, stored)
        if isinstance(batches, list):  # they are all there: a stream would only be slower
            rows = pa.Table.from_batches(rows, stored)
        return self.write_batches(
            rows, stored, max_rows_per_file=max_rows, max_bytes_per_file=max_bytes
        )

    def write_batches(
        self, rows: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema, **limits: Any
    ) -> Written:
        """Write rows that are in the shape that Lance takes."""
        failures: list[PhalanxError] = []
        if not isinstance(rows, pa.Table):
            rows = pa.RecordBatchReader.from_batches(schema, _watched(rows, failures))
        options = self._leaf.location.options
        try:
            fragments = write_fragments(
                rows, self._handle, schema=schema, storage_options=options, **limits
            )
        except LANCE_ERRORS:
            if failures:  # Lance has made a text of it, with a traceback.
                raise failures[0] from None
            raise
        return Written(tuple(fragments))


def written_anew(location: Location, folder: str, since: int, until: int) -> int | None:
    """The version in between that has the rows of the first, written anew for another schema.

    None where there is none, or rows were added before. That no row was taken out in between,
    the caller must know.
    """
    version = until
    for _ in range(_LONGEST_LINE):
        handle = open_leaf(location, folder, version)
        made = handle.read_transaction(version)
        if made is not None and isinstance(made.operation, LanceOperation.Overwrite):
            before = open_leaf(location, folder, since)
            same = made.read_version == since and handle.count_rows() == before.count_rows()
            return version if same else None
        if made is None or not isinstance(made.operation, LanceOperation.Append):
            return None
        version = made.read_version
    return None


def _change_of(operation: Any) -> LeafChange:
    """What a Lance operation does to the rows of a leaf."""
    match operation:
        case LanceOperation.Append():
            return LeafChange(frozenset(), adds_rows=True)
        case LanceOperation.Delete():
            updated = frozenset(fragment.id for fragment in operation.updated_fragments)
            removed = frozenset(operation.deleted_fragment_ids)
            return LeafChange(updated | removed, removes_rows=True)
        case LanceOperation.Update():
            updated = frozenset(fragment.id for fragment in operation.updated_fragments)
            removed = frozenset(operation.removed_fragment_ids)
            return LeafChange(updated | removed, bool(operation.new_fragments), removes_rows=True)
        case LanceOperation.Rewrite():
            old = (f.id for group in operation.groups for f in group.old_fragments)
            return LeafChange(frozenset(old))
        case LanceOperation.CreateIndex():
            return LeafChange(frozenset())
    return LeafChange(None, adds_rows=True, removes_rows=True)


def fragments_of(location: Location, folder: str, version: int | None) -> list[FragmentSize]:
    """The fragments of a version of a leaf, in the order of their ids."""
    fragments = open_leaf(location, folder, version).get_fragments()
    sizes = [fragment_size(fragment.metadata) for fragment in fragments]
    return sorted(sizes, key=lambda fragment: fragment.id)


def fragment_size(fragment: FragmentMetadata, indexed: bool = False) -> FragmentSize:
    """What Lance says of a fragment, as a value of ours."""
    deletions = fragment.num_deletions
    return FragmentSize(
        fragment.id,
        fragment.physical_rows - deletions,
        sum(file.file_size_bytes or 0 for file in fragment.files),
        deletions,
        frozenset(file.path for file in fragment.files),
        indexed,
    )


def open_leaf(location: Location, folder: str, version: int | None) -> Any:
    """The Lance dataset of a leaf at a version. Raises CorruptTable where there is none.

    Where its store cannot be reached, that is a PhalanxError and says nothing of the leaf.
    """
    uri = location.child(folder)
    try:
        return location.open(uri, version, leaf_session())
    except (ValueError, OSError) as error:
        if lance_errors.is_unreachable(error):
            raise PhalanxError(f"cannot reach {uri}: {location.reason(error)}") from None
        raise CorruptTable(
            f"the leaf {uri} has no version {version}: if its snapshot has expired, or the table "
            "was dropped and made again, open the table anew; if not, run check() "
            f"({location.reason(error)})"
        ) from None


def scanned(
    location: Location,
    uri: str,
    handle: Any,
    mapping: LeafMapping,
    columns: Sequence[str],
    where: Predicate | None,
    whole: bool = False,
    row_ids: bool = False,
    **options: Any,
) -> Iterator[pa.RecordBatch]:
    """Rows of a Lance dataset as rows of the table."""
    reading = mapping.reading(columns)
    # Where no column is read, the ids of rows tell how many there are.
    counted = row_ids or bool(columns and not reading.columns)
    with evaluating(location, uri, mapping, where) as filter:
        scanner = handle.scanner(
            columns=reading.columns, filter=filter, with_row_id=counted, **options
        )
        # Of small files come small batches, and everybody after this is faster with one.
        found = scanner.to_table().combine_chunks().to_batches() if whole else scanner.to_batches()
        for batch in found:
            yield reading.batch(batch, row_ids)


@contextlib.contextmanager
def evaluating(
    location: Location, uri: str, mapping: LeafMapping, where: Predicate | None
) -> Iterator[str | None]:
    """The filter of a predicate, to read a leaf with.

    Lance's objections to it become InvalidInput. A file that is not there or cannot be decoded
    becomes CorruptTable; what may be better the next time stays as it is.
    """
    try:
        yield None if where is None else mapping.filter(where)
    except (ValueError, OSError) as error:
        text = location.reason(error)
        if lance_errors.is_damage(error):
            raise CorruptTable(
                f"a file of the leaf {uri} is gone or damaged ({text}): if the table was vacuumed "
                f"or made again meanwhile, open it anew; if not, run check()"
            ) from None
        if where is None or not lance_errors.refuses_filter(error):
            raise
        reason = text.split(": ", 1)[-1]
        raise InvalidInput(f"Lance cannot evaluate {to_text(where)}: {reason}") from None


def _marked(fragments: Iterable[tuple[Any, FragmentMetadata | None]]) -> tuple[LeafDelta, int]:
    """What has become of fragments of which rows were marked as deleted, and of how many."""
    updated: dict[int, FragmentMetadata] = {}
    removed = set()
    count = 0
    for fragment, after in fragments:
        before = fragment.num_deletions
        if after is None:
            removed.add(fragment.fragment_id)
            count += fragment.physical_rows - before
        elif after.num_deletions > before:
            updated[fragment.fragment_id] = after
            count += after.num_deletions - before
    return LeafDelta(updated=updated, removed=frozenset(removed)), count


def _chosen(handle: Any, fragments: Sequence[int] | None) -> list[Any] | None:
    return None if fragments is None else [handle.get_fragment(id) for id in fragments]


def _watched(
    batches: Iterable[pa.RecordBatch], failed: list[PhalanxError]
) -> Iterator[pa.RecordBatch]:
    """Batches on their way into Lance, and the error they end with."""
    try:
        yield from batches
    except PhalanxError as error:
        failed.append(error)
        raise


def _paths(handle: Any) -> frozenset[str]:
    fragments = [fragment.metadata for fragment in handle.get_fragments()]
    return frozenset(file.path for fragment in fragments for file in fragment.files)
