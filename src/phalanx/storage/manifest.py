"""The `__manifest` of a table: one row for every namespace, leaf, leaf version and transaction.

`ManifestVersion` answers the questions that the rest of Phalanx asks about one version of it, and
changes it. Its columns are defined in `phalanx.storage.manifest_update`; nothing above storage
knows them.

`swap` is the only way to change rows. It always writes the head row, which is compared with that of
the version it was prepared from: it is applied as a whole, or it raises `SwapLost`. It replaces the
fragments of the newest rows where a note tells what they hold (see `phalanx.storage.notes`), and
merges rows otherwise. `gather` replaces these fragments by one, without changing a row.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import lance
import lance.commit
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation
from lance.fragment import write_fragments
from lance.optimize import Compaction, CompactionOptions

from phalanx.errors import CorruptTable, PhalanxError, StorageError, TableExists, TableNotFound
from phalanx.model import statistics
from phalanx.model.literals import quote
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionSpec
from phalanx.storage import lance_errors, names, notes
from phalanx.storage.head import HEAD_ID, HEAD_TYPE, Head
from phalanx.storage.lance_errors import LANCE_ERRORS
from phalanx.storage.lance_private import new_session
from phalanx.storage.layouts import layout_of
from phalanx.storage.location import MANIFEST, Location
from phalanx.storage.manifest_update import (
    INDEXED,
    READ_VERSION,
    STATISTICS,
    TABLE,
    TAG,
    TRANSACTION,
    UNINDEXED_ROWS,
    VERSION,
    ManifestUpdate,
    partition_columns,
)
from phalanx.storage.names import is_leaf_folder
from phalanx.storage.notes import Identity
from phalanx.storage.records import EpochRecord, TagRecord, TimelineRow, TransactionRecord
from phalanx.storage.removals import predicate_of

#: A feature flag that no stock client knows: with it they refuse to write, but still read.
GUARD_KEY = "lance.namespace.manifest.writer_feature_flags"
GUARD_VALUE = str(1 << 40)
TABLE_ID_KEY = "phalanx.table_id"
SPEC_KEY = "partition_spec_v"

log = logging.getLogger("phalanx")

#: How the manifest is compacted: how many rows a fragment has then, and how many of them may be
#: deleted in one that stays as it is.
_COMPACTION: CompactionOptions = {
    "target_rows_per_fragment": 20_000,
    "materialize_deletions_threshold": 0.2,
    "num_threads": 1,
}
#: The fragment that a swap replaces has up to so many rows. Then all but the newest few of them get
#: a fragment of their own, which later swaps leave alone.
_MANY_ROWS, _FEW_ROWS = 160, 80
#: A fragment with fewer rows is small.
_SMALL_ROWS = 1_000
#: A swap of at most this many rows finds them through the index.
_INDEXED_ROWS = 10_000
#: How much of a manifest Lance keeps in memory: of its indexes, and of anything else.
_INDEX_CACHE_BYTES, _METADATA_CACHE_BYTES = 64 * 1024**2, 32 * 1024**2
#: How many rows are looked up by id in one read.
_IDS_AT_ONCE = 1_000


class SwapLost(Exception):
    """Another transaction came first: rebase on it and try again."""


class SwapUnknown(SwapLost):
    """A second try of a swap was lost, perhaps to the first one."""


def create(location: Location, head: Head, update: ManifestUpdate) -> None:
    """Create the manifest of a new table, in one commit that only one concurrent creator wins.

    Raises TableExists if there is a table already, PhalanxError if it cannot be created.
    """
    uri = location.manifest
    path = location.path
    for place in () if path is None else (path, *path.parents):
        if place.is_file():
            raise TableExists(f"{place} is a file: a table needs a folder of its own")
    if exists(location):
        raise TableExists(f"there is already a table at {location.uri}: open it instead")
    table = update.to_table()
    try:
        fragments = write_fragments(
            table, uri, schema=table.schema, mode="create", storage_options=location.options
        )
        dataset = lance.LanceDataset.commit(
            uri,
            LanceOperation.Overwrite(table.schema, fragments),
            max_retries=0,
            storage_options=location.options,
        )
    except LANCE_ERRORS as error:
        if exists(location):
            raise TableExists(f"there is already a table at {location.uri}: open it") from None
        raise StorageError(
            f"cannot make a table at {location.uri}: {location.reason(error)}"
        ) from None
    try:
        _publish(dataset, published_texts(head))
        if table.num_rows > UNINDEXED_ROWS:
            _create_indexes(location.open(uri))
    except LANCE_ERRORS as error:
        # The table exists. The first transaction publishes again, and a later one creates indexes.
        log.warning(
            "the table %s was created, but its metadata or indexes could not be completed: %s",
            location.uri,
            location.reason(error),
        )


def exists(location: Location) -> bool:
    """Whether there is a manifest. Raises PhalanxError if that cannot be determined."""
    if _is_absent(location):
        return False
    try:
        location.open(location.manifest)
    except LANCE_ERRORS as error:
        if lance_errors.is_missing(error):
            return False
        raise _unreadable(location, error) from None
    return True


def published_texts(head: Head) -> dict[str, str]:
    """The entries of the table metadata that other clients read."""
    copies = {"schema": _schema_text(head.schema), **_spec_texts(head.specs)}
    copies |= layout_of(head.properties).texts(head)
    return {GUARD_KEY: GUARD_VALUE, TABLE_ID_KEY: head.table_id, **copies}


@lru_cache(maxsize=64)
def _schema_text(schema: TableSchema) -> str:
    return json.dumps(schema.to_json(), separators=(",", ":"))


@lru_cache(maxsize=64)
def _spec_texts(specs: tuple[PartitionSpec, ...]) -> dict[str, str]:
    return {f"{SPEC_KEY}{spec.id}": spec.dumps() for spec in specs}


def _publish(dataset: Any, wanted: Mapping[str, str]) -> None:
    have = dataset.metadata
    changed: dict[str, str | None] = {
        key: value for key, value in wanted.items() if have.get(key) != value
    }
    if changed:
        updates = LanceOperation.UpdateMap(changed)
        lance.LanceDataset.commit(
            dataset,
            LanceOperation.UpdateConfig(table_metadata_updates=updates),
            read_version=dataset.version,
        )


def _create_indexes(dataset: Any) -> list[int]:
    """Create the indexes that a manifest does not have, and return the versions this has made."""
    indexed = {name for index in dataset.describe_indices() for name in index.field_names}
    made = []
    for column in INDEXED:
        if column not in indexed:
            dataset.create_scalar_index(column, "BTREE")
            made.append(int(dataset.version))
    return made


class LeafStatistics(NamedTuple):
    """Ids of leaves with their column statistics, in the layout of `phalanx.model.statistics`."""

    ids: list[str]
    cells: pa.ListArray

    @staticmethod
    def of(table: pa.Table) -> LeafStatistics:
        cells = pa.nulls(table.num_rows, statistics.ARROW_TYPE)
        if STATISTICS in table.schema.names:
            cells = table.column(STATISTICS).combine_chunks()
        return LeafStatistics(table.column("object_id").to_pylist(), cells)

    def by_id(self) -> dict[str, Any]:
        return dict(zip(self.ids, self.cells.to_pylist(), strict=True))


@dataclass(frozen=True)
class ManifestChanges:
    """What happened to a table since an earlier head."""

    head: Head
    #: One for each version since, oldest first.
    transactions: tuple[TransactionRecord, ...]
    #: The leaves that have changed: the requested columns and their statistics.
    leaves: pa.Table

    def statistics(self) -> LeafStatistics:
        """The column statistics of the leaves that have changed."""
        return LeafStatistics.of(self.leaves)


class _Cache:
    """What Lance has read of a manifest: versions of it, and pages of its indexes.

    Lance identifies all that by the number of a version, which means something else once the table
    was created again or restored. So a cache is used only as long as the newest version that was
    opened with it is the same file. Where nothing tells that, each version has a cache of its own.
    """

    def __init__(self, location: Location) -> None:
        self.session = new_session(_INDEX_CACHE_BYTES, _METADATA_CACHE_BYTES)
        self._location = location
        self._newest: Identity | None = None
        self._are_files = True

    def __reduce__(self) -> Any:
        """Another process begins with a cache of its own."""
        return _Cache, (self._location,)

    def add(self, identity: Identity | None) -> None:
        """Note that a version was opened; None for one that nothing distinguishes from a copy."""
        if identity is None:
            self._are_files = False
        elif self._newest is None or self._newest[1] < identity[1]:
            self._newest = identity

    @property
    def is_valid(self) -> bool:
        """Whether the manifest continues what was read of it."""
        newest = self._newest
        if newest is None or not self._are_files:
            return False
        return _file_identity(self._location, newest[1]) == newest


class ManifestVersion:
    """One version of the manifest. It stays at that version: to see a newer one, open another."""

    def __init__(
        self,
        location: Location,
        version: int | None = None,
        known: ManifestVersion | None = None,
        dataset: Any = None,
    ) -> None:
        """`known` is another version, what was read of which helps to read this one.

        `dataset` is this one, if it is open already. Raises TableNotFound if there is no manifest,
        or no such version of it.
        """
        self.location = location
        kept = None if known is None else known._cache
        self._cache = kept if kept is not None and kept.is_valid else _Cache(location)
        try:
            if dataset is None and _is_absent(location):
                raise FileNotFoundError("not found")
            self.dataset = self._open(version) if dataset is None else dataset
        except LANCE_ERRORS as error:
            if version is not None and exists(location):
                raise TableNotFound(
                    f"version {version} of the manifest of {location.uri} is gone"
                ) from None
            raise _unreadable(location, error) from None
        self.version: int = self.dataset.version
        self.metadata: dict[str, str] = self.dataset.metadata
        #: Distinguishes this version from a copy with the same number; None if nothing does.
        self.identity = _file_identity(location, self.version)
        self._cache.add(self.identity)

    #: None for what is no manifest of ours.
    _cache: _Cache | None = None

    def _open(self, version: int | None) -> Any:
        session = None if self._cache is None else self._cache.session
        return self.location.open(self.location.manifest, version, session)

    @property
    def table_id(self) -> str | None:
        return self.metadata.get(TABLE_ID_KEY)

    @property
    def schema(self) -> pa.Schema:
        """The manifest's columns."""
        return self.dataset.schema

    def has_column(self, name: str) -> bool:
        return name in self.schema.names

    def same_file(self, other: ManifestVersion) -> bool:
        """Whether both are the same version, and not copies with the same number."""
        return self.identity is not None and self.identity == other.identity

    def _at(self, dataset: Any) -> ManifestVersion:
        """Another version, which is open."""
        return ManifestVersion(self.location, known=self, dataset=dataset)

    def versions(self) -> list[int]:
        """The versions of the manifest that still exist, oldest first."""
        return sorted(entry["version"] for entry in self.dataset.version_refs())

    def exists(self) -> bool:
        """Whether this version still exists. A vacuum removes old ones."""
        return self.version in self.versions()

    # Questions

    def head(self) -> Head:
        """The head from its row, or from the metadata of another client's manifest.

        Raises CorruptTable if the head row is lost or not unique, and TableNotFound if the dataset
        is not the manifest of a table.
        """
        if not {"object_id", "object_type"} <= set(self.schema.names):
            raise TableNotFound(f"{self.location.uri} is not a table: it is no Lance namespace")
        columns = ["object_id", "metadata", "sequence", "committed_at"]
        rows = self._read(columns, f"object_id = '{HEAD_ID}'").to_pylist()
        if len(rows) > 1:
            raise CorruptTable(f"{self.location.uri} has {len(rows)} head rows: run check()")
        if rows:
            return head_of(rows[0], self.location.uri)
        if self.table_id is not None:
            raise CorruptTable(f"{self.location.uri} has lost its head row: repair it")
        if "schema" in self.metadata and any(key.startswith(SPEC_KEY) for key in self.metadata):
            strong = self.has_column(READ_VERSION)
            return Head.foreign(self.version, self.metadata, strong, self.location.uri)
        raise TableNotFound(
            f"{self.location.uri} is a Lance namespace but no partitioned table: it has no spec"
        )

    def sequence(self) -> int | None:
        """The table's version in this version of the manifest; None if the head row is lost."""
        if not self.has_column("sequence"):
            return None
        rows = self._read(["sequence"], f"object_id = '{HEAD_ID}'").to_pylist()
        return rows[0]["sequence"] if rows else None

    def transactions(self, since: int = 1, until: int | None = None) -> list[TransactionRecord]:
        """The transactions whose versions are in a range, both ends included, oldest first.

        Transactions of expired versions are not included.
        """
        bounds = [f"object_type = '{TRANSACTION}'"]
        if since > 1:
            bounds.append(f"sequence >= {since}")
        if until is not None:
            bounds.append(f"sequence <= {until}")
        columns = ["sequence", "committed_at", "metadata"]
        rows = self._read(columns, " AND ".join(bounds)).to_pylist()
        return sorted(map(_transaction_of, rows), key=lambda record: record.sequence)

    def has_transaction(self, transaction_id: str) -> bool:
        """Whether a transaction with this id is part of the table."""
        id = quote(names.transaction_row(transaction_id))
        return bool(self._read(["object_id"], f"object_id = {id}").num_rows)

    def tags(self) -> dict[str, TagRecord]:
        """The tags of the table, by name."""
        rows = self._read(["metadata"], f"object_type = '{TAG}'").column("metadata").to_pylist()
        tags = [TagRecord.from_metadata(json.loads(text)) for text in rows]
        return {tag.name: tag for tag in tags}

    def epoch(self, query: str) -> EpochRecord | None:
        """The last committed epoch of a stream."""
        id = quote(names.stream_row(query))
        rows = self._read(["metadata"], f"object_id = {id}").column("metadata").to_pylist()
        epochs = [EpochRecord.from_metadata(json.loads(text)) for text in rows]
        return max(epochs, key=lambda record: record.epoch, default=None)

    def leaves(
        self,
        columns: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        since: int | None = None,
    ) -> pa.Table:
        """Columns of all leaves, of some leaves by id, or of those written since a version.

        Columns that the manifest does not have are left out.
        """
        if ids is not None:
            return self._by_id(columns, ids)
        if since is not None:
            return self._read(columns, f"object_type = '{TABLE}' AND sequence >= {since}")
        return self._read(columns, f"object_type = '{TABLE}'", many=True)

    def versions_in(self, folder: str) -> set[int | None]:
        """The versions of the leaves in a folder; None for the newest on main."""
        where = f"object_type = '{TABLE}' AND location = {quote(folder)}"
        rows = self._read(["location", READ_VERSION], where).to_pylist()
        return {row.get(READ_VERSION) for row in rows}

    def leaf_ids(self) -> set[str]:
        return set(self.leaves(["object_id"]).column("object_id").to_pylist())

    def statistics(self, ids: Sequence[str] | None = None) -> LeafStatistics:
        """The column statistics of some leaves, or of all."""
        return LeafStatistics.of(self.leaves(["object_id", STATISTICS], ids=ids))

    def timeline(self) -> list[TimelineRow]:
        """The rows of the leaves' timelines; a weak table has none."""
        if not self.has_column(READ_VERSION):
            return []
        table = self._read(["object_id", READ_VERSION], f"object_type = '{VERSION}'")
        cells = (table.column(name).to_pylist() for name in ("object_id", READ_VERSION))
        return [TimelineRow(*row) for row in zip(*cells, strict=True)]

    def changes_since(
        self, head: Head, columns: Sequence[str], most: int
    ) -> ManifestChanges | None:
        """What happened since an earlier head; None if this manifest does not continue from it.

        That is the case if there is another table at the same location, if the table has another
        history (its folder was copied or restored), and if transactions in between have expired.
        None also for more than `most` transactions, whose rows are not parsed then.
        """
        if not head.ours or self.table_id != head.table_id or not self.has_column("sequence"):
            return None
        own = ["object_id", "object_type", "metadata", "sequence", "committed_at"]
        head_transaction = names.transaction_row(head.transaction_id)
        ends = f"object_id IN ('{HEAD_ID}', {quote(head_transaction)})"
        table = notes.rows_since(self.location, self.identity, head.transaction_id)
        if table is None:
            # One read for everything: a few more columns cost less than a second read.
            all_columns = list(dict.fromkeys([*own, *columns, STATISTICS]))
            table = self._read(all_columns, f"sequence > {head.sequence} OR {ends}")
        types = table.column("object_type")
        heads = table.select(own).filter(pc.equal(types, HEAD_TYPE)).to_pylist()
        if len(heads) != 1:
            return None
        newest = head_of(heads[0], self.location.uri)
        if newest.sequence - head.sequence > most:
            return None
        # There may be very many leaves, so only the other rows become objects.
        rows = table.select(own).filter(pc.not_equal(types, TABLE)).to_pylist()
        records = {row["sequence"]: row for row in rows if row["object_type"] == TRANSACTION}
        if head.sequence not in records:
            return None
        if records[head.sequence]["object_id"] != head_transaction:
            return None
        since = range(head.sequence + 1, newest.sequence + 1)
        if any(number not in records for number in since):
            return None
        is_newer = pc.greater(table.column("sequence"), head.sequence)
        leaves = table.filter(pc.and_(pc.equal(types, TABLE), is_newer))
        transactions = tuple(_transaction_of(records[number]) for number in since)
        return ManifestChanges(newest, transactions, leaves)

    def _by_id(self, columns: Sequence[str], ids: Sequence[str]) -> pa.Table:
        tables = []
        for start in range(0, len(ids), _IDS_AT_ONCE):
            id_list = ", ".join(quote(id) for id in ids[start : start + _IDS_AT_ONCE])
            tables.append(self._read(columns, f"object_id IN ({id_list})"))
        return pa.concat_tables(tables) if tables else self._read(columns, "FALSE")

    def _read(self, columns: Sequence[str], filter: str, many: bool = False) -> pa.Table:
        """Read some rows. If they are `many`, their columns are read together with the filter's.

        Indexes only make reads faster: if one is missing or damaged, rows are read without it.
        Raises TableNotFound if this version no longer exists, CorruptTable if it is damaged, and
        PhalanxError if the store cannot be reached.
        """
        existing = set(self.schema.names)
        present = [column for column in columns if column in existing]
        try:
            return self._scan(present, filter, many, False if many else None)
        except LANCE_ERRORS as error:
            lance_errors.raise_interrupt(error)
            if not many and not lance_errors.is_unreachable(error):
                with contextlib.suppress(*LANCE_ERRORS):
                    return self._scan(present, filter, many, False)
            if not lance_errors.is_missing(error):
                raise _unreadable(self.location, error) from error
            raise lance_errors.replaced_manifest(self.location.uri) from None

    def _scan(
        self, columns: Sequence[str], filter: str, many: bool, use_index: bool | None
    ) -> pa.Table:
        return self.dataset.scanner(
            columns=list(columns),
            filter=filter,
            late_materialization=False if many else None,
            use_scalar_index=use_index,
        ).to_table()

    # Changes

    #: Whether it only stands for a listing of folders: there is no manifest to look after.
    is_listed = False

    def check_appendable(self, head: Head, named: bool) -> None:
        """Raise an error if rows cannot be added, for a transaction that has a name or none."""
        head.check_writable(self.location.uri)

    def check_operation(self, name: str, leaves: int) -> None:
        """Raise an error for an operation, on so many leaves, that the table does not take."""
        return

    def publish(self, head: Head) -> None:
        """Write the copy of schema and specs that other clients read, if it is out of date."""
        if not self.is_published(head):
            _publish(self.dataset, published_texts(head))

    def is_published(self, head: Head) -> bool:
        """Whether other clients see the schema and specs of a head."""
        texts = published_texts(head)
        return all(self.metadata.get(key) == text for key, text in texts.items())

    def guarded(self) -> ManifestVersion:
        """Keep stock clients from writing, and return the version of the manifest that says so.

        Raises SwapLost if another commit came first.
        """
        if self.metadata.get(GUARD_KEY, "0") != "0":
            return self
        try:
            _publish(self.dataset, {GUARD_KEY: GUARD_VALUE})
        except OSError as error:
            if lance_errors.is_lost_race(error, self.location.uri):
                raise SwapLost(self.location.reason(error)) from None
            raise
        guarded = ManifestVersion(self.location)
        if guarded.version != self.version + 1:
            guarded.unguard()
            raise SwapLost(f"version {self.version} of the manifest is not the newest")
        return guarded

    def unguard(self) -> None:
        """Let stock clients write again, unless it has become a table of ours."""
        newest = ManifestVersion(self.location)
        if newest.sequence() is not None:
            return
        dataset = newest.dataset
        lance.LanceDataset.commit(
            dataset,
            LanceOperation.UpdateConfig(
                table_metadata_updates=LanceOperation.UpdateMap({GUARD_KEY: None})
            ),
            read_version=dataset.version,
        )

    def row_types(self) -> dict[str, str]:
        """The type of every row, by its id."""
        table = self.dataset.to_table(columns=["object_id", "object_type"])
        return dict(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def replace(self, update: ManifestUpdate, gone: Collection[str]) -> int:
        """Replace rows and columns by those of a table of ours, in one commit.

        Rows that `update` neither writes nor removes are kept, and so are columns that are not
        ours, except those that are `gone`. Returns the new version of the manifest. Raises SwapLost
        if there has been any commit since this version; nothing is written then.
        """
        table = _replaced(self.dataset.to_table(), update, gone)
        try:
            fragments = write_fragments(
                table,
                self.location.manifest,
                schema=table.schema,
                mode="overwrite",
                storage_options=self.location.options,
            )
            # Without retries Lance refuses to overwrite anything but the version that was read.
            dataset = lance.LanceDataset.commit(
                self.dataset,
                LanceOperation.Overwrite(table.schema, fragments),
                read_version=self.version,
                max_retries=0,
                storage_options=self.location.options,
            )
        except (OSError, lance.commit.CommitConflictError) as error:
            if lance_errors.is_lost_race(error, self.location.uri):
                raise SwapLost(self.location.reason(error)) from None
            raise
        return int(dataset.version)

    def create_indexes(self) -> None:
        """Create the indexes that the newest version of the manifest does not have."""
        _create_indexes(ManifestVersion(self.location).dataset)

    @property
    def small_fragments(self) -> int:
        """How many fragments have few rows."""
        fragments = self.dataset.get_fragments()
        return sum(fragment.physical_rows < _SMALL_ROWS for fragment in fragments)

    def compact(self, reindex: bool) -> None:
        """Merge small fragments, so that reads and swaps stay fast.

        Indexes are updated if `reindex` says so, and created then or once there are many rows.
        It is best called while no swap is in progress: a swap that conflicts with it is retried.
        A compaction that fails is logged and has no effect: it can be repeated later.
        """
        dataset = self._open(None)
        before = self._at(dataset)
        made = set()
        try:
            # The next swap knows the rows of the tail's fragments, and replaces them.
            tail = before._tail() or notes.NO_TAIL
            options: CompactionOptions = {
                **_COMPACTION,
                "excluded_fragment_ids": list(tail.fragments),
            }
            tasks = Compaction.plan(dataset, options).tasks
            results = [task.execute(dataset) for task in tasks]
            if dataset.latest_version != dataset.version:
                # Any swap since then touches the same fragments, and Lance would print a warning.
                log.debug("the manifest of %s was not compacted: others write", self.location.uri)
                return
            if results:
                Compaction.commit(dataset, results)
                made.add(dataset.version)
            if reindex:
                dataset.optimize.optimize_indices()
                made.add(dataset.version)
            if reindex or dataset.count_rows() > UNINDEXED_ROWS:
                made.update(_create_indexes(dataset))
        except OSError as error:
            log.debug("the manifest of %s was not compacted: %s", self.location.uri, error)
        between = set(range(before.version + 1, dataset.version)) - made
        if made and all(_is_reservation(dataset, version) for version in between):
            after = self._at(dataset)
            stayed = set(tail.fragments) <= after._fragments()
            tail = tail if stayed else notes.Tail(tail.rows)
            notes.write(self.location, after.identity, tail)

    def add_read_version(self) -> ManifestVersion:
        """Add the column that makes a table strong; returns the newest version of the manifest."""
        if not self.has_column(READ_VERSION):
            column = pa.field(READ_VERSION, pa.uint64())
            self.location.open(self.location.manifest).add_columns(column)
        return ManifestVersion(self.location)

    def prepare_for(
        self, specs: Sequence[PartitionSpec], known: Sequence[PartitionSpec]
    ) -> ManifestVersion:
        """Add a column for every field of `specs`; returns the newest version of the manifest.

        New specs are published for other clients. A column that no spec in `known` has was left by
        a transaction that failed. Raises SwapLost if another commit came first.
        """
        try:
            return self._prepare_for(specs, known)
        except OSError as error:
            if lance_errors.is_lost_race(error, self.location.uri):
                raise SwapLost(self.location.reason(error)) from None
            raise

    def _prepare_for(
        self, specs: Sequence[PartitionSpec], known: Sequence[PartitionSpec]
    ) -> ManifestVersion:
        ids, in_use = {spec.id for spec in known}, partition_columns(known)
        fields = partition_columns(specs).values()
        wanted = {f.column_name: pa.field(f.column_name, f.result_type) for f in fields}
        dataset = ManifestVersion(self.location).dataset
        have = {field.name: field.type for field in dataset.schema}
        missing = [name for name in wanted if name not in have]
        for name in wanted.keys() & have.keys():
            if have[name] == wanted[name].type:
                continue
            if name in in_use:
                dataset.alter_columns({"path": name, "data_type": wanted[name].type})
            else:
                dataset.drop_columns([name])
                missing.append(name)
        if missing:
            dataset.add_columns([wanted[name] for name in missing])
        new = tuple(spec for spec in specs if spec.id not in ids)
        _publish(ManifestVersion(self.location).dataset, _spec_texts(new))
        return ManifestVersion(self.location)

    def swap(self, update: ManifestUpdate) -> ManifestVersion | None:
        """Write and remove rows, unless another head was written since this version.

        Returns the new version of the manifest, None if there are no versions. Raises SwapLost if
        another head was written; nothing is written then.
        """
        rows, removed = update.to_table(), update.removed
        if removed or len(rows) > notes.MOST_ROWS:
            # The index makes a merge of a few rows fast; many would exceed its memory limit.
            return self._swapped(rows, removed, not removed and len(rows) <= _INDEXED_ROWS)
        tail = self._tail()
        if tail is None or tail.rows.schema != rows.schema:
            tail = notes.Tail(rows.schema.empty_table())
        after = tail.with_rows(rows)
        if self._holds(tail) and update.replaces_only(tail.held_ids):
            return self._replace_tail(tail, after)
        newest = self._swapped(rows, removed, use_index=True)
        # Rows of another client may have come between.
        if newest.version == self.version + 1:
            before, now = self._fragments(), newest._fragments()
            stayed = [id for id in tail.fragments if id in now]
            fragments = (*stayed, *sorted(now - before))
            files = newest._files(fragments) or ()
            last = after._replace(fragments=fragments, files=files)
            notes.write(self.location, newest.identity, last)
        return newest

    def gather(self) -> ManifestVersion:
        """Make one fragment of those that the last swaps have left, and return that version.

        If a swap comes first, nothing is done, and this version is returned.
        """
        tail = self._tail()
        if tail is None or len(tail.fragments) < 2 or not self._holds(tail):
            return self
        try:
            return self._replace_tail(tail, tail)
        except SwapLost as lost:
            log.debug("the manifest of %s was not compacted: %s", self.location.uri, lost)
            return self

    def _fragments(self) -> set[int]:
        """The ids of its fragments."""
        return {fragment.fragment_id for fragment in self.dataset.get_fragments()}

    def _files(self, fragments: Iterable[int]) -> tuple[str, ...] | None:
        """The names of the files of some fragments; None if a fragment is not there."""
        found = [self.dataset.get_fragment(id) for id in fragments]
        if not all(found):
            return None
        return tuple(file.path for fragment in found for file in fragment.metadata.files)

    def _tail(self) -> notes.Tail | None:
        """The newest rows; None if no note tells, or one about another manifest."""
        tail = notes.read(self.location, self.identity)
        return None if tail is None or self._files(tail.fragments) != tail.files else tail

    def _holds(self, tail: notes.Tail) -> bool:
        """Whether the fragments of a tail can be replaced: they hold its rows, and all columns."""
        if not tail.held:
            return False
        columns = {field.name: field.type for field in tail.rows.schema}
        if columns != {field.name: field.type for field in self.schema}:
            return False  # another client has added one, or lost one
        fragments = [self.dataset.get_fragment(id) for id in tail.fragments]
        rows = sum(int(fragment.metadata.num_rows) for fragment in fragments)
        return rows == tail.held

    def _replace_tail(self, tail: notes.Tail, after: notes.Tail) -> ManifestVersion:
        """Replace the fragments of a tail by one with the rows of another; returns the new version.

        The head's row is in one of them, so that of two concurrent swaps Lance refuses the second,
        whether it replaces fragments or merges rows. Raises SwapLost if it does.
        """
        # Old rows get a fragment of their own, which later swaps leave alone.
        sealed = after.held - _FEW_ROWS if after.held > _MANY_ROWS else 0
        start = len(after.rows) - after.held
        parts = [after.rows.slice(start, sealed)] if sealed else []
        parts.append(after.rows.slice(start + sealed))
        try:
            fragments = [
                fragment
                for part in parts
                for fragment in write_fragments(part.select(self.schema.names), self.dataset)
            ]
            # Without the versions since then, Lance would not detect a conflict.
            if _file_identity(self.location, self.version) != self.identity:
                raise SwapLost(f"version {self.version} of the manifest is gone")
            dataset = lance.LanceDataset.commit(
                self.dataset,
                LanceOperation.Update(list(tail.fragments), [], fragments),
                read_version=self.version,
                max_retries=0,
            )
        except lance.commit.CommitConflictError as error:
            raise SwapLost(self.location.reason(error)) from None
        except OSError as error:
            if lance_errors.is_lost_race(error, self.location.uri):
                raise SwapLost(self.location.reason(error)) from None
            raise
        newest = self._at(dataset)
        made = sorted(newest._fragments() - self._fragments())
        # Rows of another client may have come between.
        if newest.version == self.version + 1 and len(made) == len(parts):
            held = after.held - sealed
            last = notes.Tail(after.rows, held, tuple(made[-1:]), newest._files(made[-1:]) or ())
            notes.write(self.location, newest.identity, last)
        return newest

    def _swapped(self, rows: pa.Table, removed: Sequence[str], use_index: bool) -> ManifestVersion:
        try:
            return self._swap(rows, removed, use_index)
        except OSError as error:
            if not use_index or not lance_errors.is_damage(error):
                raise
            # The index may be damaged. If the first attempt has landed after all, this one loses.
            try:
                return self._swap(rows, removed, False)
            except SwapLost as lost:
                raise SwapUnknown(str(lost)) from None

    def _swap(self, rows: pa.Table, removed: Sequence[str], use_index: bool) -> ManifestVersion:
        # The merge moves its handle to the new version, so it does not run on ours.
        try:
            target = self._open(self.version)
        except LANCE_ERRORS as error:
            if not lance_errors.is_missing(error):
                raise
            # Without the versions since then, Lance would not detect a conflict.
            raise SwapLost(f"version {self.version} of the manifest is gone") from None
        existing = set(target.schema.names)
        missing = [name for name in rows.schema.names if name not in existing]
        if missing:
            raise CorruptTable(
                f"the manifest of {self.location.uri} has lost the columns {', '.join(missing)}"
            )
        ordered = rows.select([name for name in target.schema.names if name in rows.schema.names])
        types = [target.schema.field(name).type for name in ordered.schema.names]
        if ordered.schema.types != types:
            # A transaction that failed before its swap has widened a column.
            ordered = ordered.cast(pa.schema(zip(ordered.schema.names, types, strict=True)))
        merge = target.merge_insert("object_id")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge = merge.use_index(use_index)
        if removed:
            # The merge reads the same version, so the predicate selects the same rows there.
            gone = predicate_of(removed, lambda: target.to_table(["object_id"]).column(0))
            merge = merge.when_not_matched_by_source_delete(gone)
        try:
            merge.conflict_retries(0).execute(ordered)
        except OSError as error:
            if lance_errors.is_lost_race(error, self.location.uri):
                raise SwapLost(self.location.reason(error)) from None
            if lance_errors.is_throttled(error):
                # Others write the same version. An attempt before the last may have landed.
                raise SwapUnknown(self.location.reason(error)) from None
            raise
        return self._at(target)


class OtherManifest(ManifestVersion):
    """The manifest of a table in another form, which a form reads as if it were one of ours."""

    def __init__(self, manifest: ManifestVersion) -> None:
        self.location, self.dataset = manifest.location, manifest.dataset
        self.version, self.metadata = manifest.version, manifest.metadata
        #: What the form reads may change without a new version of the manifest.
        self.identity = None


class NoManifest(ManifestVersion):
    """The manifest of a table that does not exist yet. It cannot be read."""

    def __init__(self, location: Location) -> None:
        self.location = location


def _replaced(old: pa.Table, update: ManifestUpdate, gone: Collection[str]) -> pa.Table:
    """The rows of an update, and those of a manifest that it neither writes nor removes."""
    rows = update.to_table()
    written = pa.concat_arrays(rows.column("object_id").chunks)
    replaced = pa.array([*written.to_pylist(), *update.removed], pa.string())
    kept = old.filter(pc.invert(pc.is_in(old.column("object_id"), replaced)))
    ids = pa.chunked_array([written, *kept.column("object_id").chunks], pa.string())
    places = pc.index_in(ids, old.column("object_id"))
    columns = {}
    for field in rows.schema:
        if field.name in old.schema.names:
            others = kept.column(field.name).cast(field.type)
        else:
            others = pa.chunked_array([pa.nulls(kept.num_rows, field.type)])
        columns[field] = pa.chunked_array(
            [*rows.column(field.name).chunks, *others.chunks], field.type
        )
    for field in old.schema:
        if field.name not in rows.schema.names and field.name not in gone:
            columns[field.with_nullable(True)] = old.column(field.name).take(places)
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(list(columns)))


def head_of(row: Mapping[str, Any], uri: str) -> Head:
    """The head of the table at `uri` from its row.

    Raises CorruptTable if the row is damaged, and UnsupportedTable if the table is newer than we
    are.
    """
    if row.get("sequence") is None or row.get("committed_at") is None:
        raise CorruptTable(f"the head row of {uri} has lost its version: repair it")
    committed: dt.datetime = row["committed_at"]
    try:
        metadata = json.loads(row["metadata"] or "{}")
    except ValueError:
        raise CorruptTable(f"the head row of {uri} is not JSON: repair it") from None
    return Head.from_row(row["sequence"], committed, metadata, uri)


def _transaction_of(row: Mapping[str, Any]) -> TransactionRecord:
    metadata = json.loads(row["metadata"])
    return TransactionRecord.from_row(row["sequence"], row["committed_at"], metadata)


def _is_reservation(dataset: Any, version: int) -> bool:
    """Whether a version only reserves numbers of fragments, as each compaction does first.

    Lance has no Python class for it, so it is of none.
    """
    transaction = lance_errors.read_transaction(dataset, version)
    return transaction is not None and type(transaction.operation) is LanceOperation.BaseOperation


def _file_identity(location: Location, version: int) -> Identity | None:
    """What distinguishes the file of a version from a copy; None if nothing does."""
    path = location.path
    if path is None:
        return None
    try:
        stat = (path / MANIFEST / "_versions" / f"{2**64 - 1 - version}.manifest").stat()
    except OSError:
        return None
    return location.uri, version, stat.st_ino, stat.st_mtime_ns, stat.st_size


def _is_absent(location: Location) -> bool:
    """Whether the file system shows that there is no manifest: Lance would retry for seconds."""
    return location.path is not None and not os.path.isdir(location.manifest)


def _unreadable(location: Location, error: Exception) -> PhalanxError:
    """The error for a manifest that cannot be opened or read."""
    path = location.path
    if path is not None and path.is_dir() and _is_absent(location):
        with os.scandir(path) as entries:
            if any(is_leaf_folder(entry.name) for entry in entries):
                return lance_errors.lost_manifest(location.uri)
    return lance_errors.manifest_error(location.uri, error, location.options)
