"""The `__manifest` table: one row for every namespace, leaf, leaf version and transaction.

Its layout is Appendix C of the specification. Columns and rows that the specification does not
know are ours, and stock clients pass over them:

| column                                | on rows                   | holds                       |
|---------------------------------------|---------------------------|-----------------------------|
| `spec_id`                             | table                     | the spec it was written by  |
| `version_number`                      | table                     | the newest in its timeline  |
| `row_count byte_count fragment_count` | table                     | the leaf's size             |
| `column_stats`                        | table                     | read only on request        |
| `sequence`                            | table, __head, transaction| the version that wrote it   |
| `committed_at`                        | __head, transaction       | when                        |

`swap` is the one way to change rows: a merge that always carries the head row, compared against
the version it was prepared from. It either lands whole or raises `SwapLost`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import lance
import pyarrow as pa
from lance import LanceOperation
from lance.fragment import write_fragments

from phalanx.errors import CorruptTable, InvalidInput, PhalanxError, TableExists, TableNotFound
from phalanx.model import statistics
from phalanx.model.domains import domain_of
from phalanx.model.schema import TableSchema
from phalanx.model.specs import COLUMN_PREFIX, PartitionField, PartitionSpec
from phalanx.model.spelling import quote
from phalanx.storage import lance_errors
from phalanx.storage.head import HEAD_ID, HEAD_TYPE, Head
from phalanx.storage.location import MANIFEST, Location
from phalanx.storage.names import transaction_row

NAMESPACE, TABLE, VERSION = "namespace", "table", "table_version"
TRANSACTION, TAG, STREAM = "transaction", "tag", "stream"
READ_VERSION = "read_version"

#: A bit that no stock client knows: it makes them refuse to write, and read all the same.
GUARD_KEY = "lance.namespace.manifest.writer_feature_flags"
GUARD_VALUE = str(1 << 40)
TABLE_ID_KEY = "phalanx.table_id"
SPEC_KEY = "partition_spec_v"
#: The columns that are looked up by value.
INDEXED = ("object_id", "sequence")

_FIXED = [
    pa.field(
        "object_id",
        pa.string(),
        nullable=False,
        metadata={"lance-schema:unenforced-primary-key:position": "0"},
    ),
    pa.field("object_type", pa.string(), nullable=False),
    pa.field("location", pa.string()),
    pa.field("metadata", pa.string()),
    pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
    pa.field("read_version", pa.uint64()),
    pa.field("spec_id", pa.int32()),
    pa.field("version_number", pa.int64()),
    pa.field("row_count", pa.int64()),
    pa.field("byte_count", pa.int64()),
    pa.field("fragment_count", pa.int64()),
    pa.field("column_stats", statistics.ARROW_TYPE),
    pa.field("sequence", pa.int64()),
    pa.field("committed_at", pa.timestamp("us", "UTC")),
]


log = logging.getLogger("phalanx")

#: Rows in a fragment of a compacted manifest.
_FRAGMENT_ROWS = 20_000
#: Up to how many rows a swap looks its rows up in the index.
_INDEXED_ROWS = 10_000


class SwapLost(Exception):
    """Another transaction came first: look at what it did, and try again."""


def manifest_schema(specs: Iterable[PartitionSpec], strong: bool = True) -> pa.Schema:
    """The manifest's columns, with one for each partition field that ever was.

    A table without `read_version` is weak: its leaves are read as they are on main.
    """
    fields = {field.field_id: field for spec in specs for field in spec.fields}
    fixed = [field for field in _FIXED if strong or field.name != READ_VERSION]
    return pa.schema([*fixed, *(pa.field(f.column_name, f.result_type) for f in fields.values())])


class Rows:
    """Rows to be written to a manifest, collected and then made into one Arrow table."""

    def __init__(self, specs: Iterable[PartitionSpec], strong: bool = True) -> None:
        self._schema = manifest_schema(specs, strong)
        self._fields = {f.field_id: f for spec in specs for f in spec.fields}
        self._rows: dict[str, dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        object_id: str,
        object_type: str,
        metadata: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
        **columns: Any,
    ) -> None:
        """Add a row. `values` are keys of partition values by field id."""
        row = {f"{COLUMN_PREFIX}{id}": key for id, key in (values or {}).items()}
        row |= columns
        row["object_id"], row["object_type"] = object_id, object_type
        row["metadata"] = json.dumps(dict(metadata or {}), ensure_ascii=False)
        self._rows[object_id] = row

    def add_head(self, head: Head) -> None:
        self.add(
            HEAD_ID,
            HEAD_TYPE,
            head.to_metadata(),
            sequence=head.sequence,
            committed_at=head.committed_at,
        )

    def add_transaction(self, head: Head, metadata: Mapping[str, str]) -> None:
        """The record of a transaction: it makes a retry a no-op, and is the table's history."""
        self.add(
            transaction_row(head.transaction_id),
            TRANSACTION,
            {
                "transaction_id": head.transaction_id,
                **metadata,
                # Copies of typed columns, for repair.
                "sequence": str(head.sequence),
                "committed_at": head.committed_at.isoformat(),
            },
            sequence=head.sequence,
            committed_at=head.committed_at,
        )

    def to_table(self) -> pa.Table:
        rows = list(self._rows.values())
        columns = []
        for field in self._schema:
            cells = [row.get(field.name) for row in rows]
            if field.name.startswith(COLUMN_PREFIX):
                columns.append(domain_of(field.type).array(cells))
            else:
                columns.append(pa.array(cells, field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)


def create(location: Location, head: Head, rows: Rows) -> None:
    """Make the manifest of a new table in one commit that only one of two creators wins.

    Raises TableExists where there is one already, PhalanxError where none can be made.
    """
    uri = location.manifest
    path = location.path
    for place in () if path is None else (path, *path.parents):
        if place.is_file():
            raise TableExists(f"{place} is a file: a table needs a folder of its own")
    if exists(location):
        raise TableExists(f"there is already a table at {location.uri}: open it instead")
    table = rows.to_table()
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
    except (ValueError, OSError) as error:
        if exists(location):
            raise TableExists(f"there is already a table at {location.uri}: open it") from None
        raise PhalanxError(
            f"cannot make a table at {location.uri}: {location.reason(error)}"
        ) from None
    try:
        publish(dataset, head)
        for column in INDEXED:
            location.open(uri).create_scalar_index(column, "BTREE")
    except (OSError, ValueError) as error:
        # The table is there. The first transaction writes the copy, and repair the indexes.
        log.warning("the table %s was made, but: %s", location.uri, location.reason(error))


def exists(location: Location) -> bool:
    """Raises PhalanxError where it cannot be told."""
    if _is_absent(location):
        return False
    try:
        location.open(location.manifest)
    except (ValueError, OSError) as error:
        if lance_errors.is_missing(error):
            return False
        raise _unreadable(location, error) from None
    return True


def to_publish(head: Head) -> dict[str, str]:
    """What the table's metadata says for other clients."""
    copies = {"schema": _schema_text(head.schema), **_spec_texts(head.specs)}
    return {GUARD_KEY: GUARD_VALUE, TABLE_ID_KEY: head.table_id, **copies}


@lru_cache(maxsize=64)
def _schema_text(schema: TableSchema) -> str:
    return json.dumps(schema.to_json(), separators=(",", ":"))


@lru_cache(maxsize=64)
def _spec_texts(specs: tuple[PartitionSpec, ...]) -> dict[str, str]:
    return {f"{SPEC_KEY}{spec.id}": spec.dumps() for spec in specs}


def publish(dataset: Any, head: Head) -> None:
    """Write the copy of schema and specs that other clients read from the table's metadata."""
    _publish(dataset, to_publish(head))


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


class ManifestVersion:
    """One version of the manifest, pinned. A new handle for every read of the newest."""

    def __init__(self, location: Location, version: int | None = None) -> None:
        """Raises TableNotFound where there is no manifest, or no such version of it."""
        self.location = location
        try:
            if _is_absent(location):
                raise FileNotFoundError("not found")
            self.dataset = location.open(location.manifest, version)
        except (ValueError, OSError) as error:
            if version is not None and exists(location):
                raise TableNotFound(
                    f"version {version} of the manifest of {location.uri} is gone"
                ) from None
            raise _unreadable(location, error) from None
        self.version: int = self.dataset.version
        self.metadata: dict[str, str] = self.dataset.metadata
        #: What tells this version from a copy with the same number; None where nothing does.
        self.identity = self._file()

    @property
    def table_id(self) -> str | None:
        return self.metadata.get(TABLE_ID_KEY)

    def same_file(self, other: ManifestVersion) -> bool:
        """Whether another handle is of this very version, not of a copy with the same number."""
        return self.identity is not None and self.identity == other.identity

    def _file(self) -> Any:
        path = self.location.path
        if path is None:
            return None
        name = f"{2**64 - 1 - self.version}.manifest"
        try:
            found = (path / MANIFEST / "_versions" / name).stat()
        except OSError:
            return None
        return self.location.uri, self.version, found.st_ino, found.st_mtime_ns, found.st_size

    def read(self, columns: Sequence[str], filter: str, many: bool = False) -> pa.Table:
        """Some rows. Where they are many, they are not looked up first and then fetched.

        An index is a help and no more: where it is lost or damaged, rows are found without it.
        """
        known = set(self.dataset.schema.names)
        wanted = [column for column in columns if column in known]
        try:
            return self._scanned(wanted, filter, many, False if many else None)
        except (ValueError, OSError) as error:
            if not many and not lance_errors.is_unreachable(error):
                with contextlib.suppress(ValueError, OSError):
                    return self._scanned(wanted, filter, many, False)
            if not lance_errors.is_missing(error):
                raise _unreadable(self.location, error) from error
            raise TableNotFound(
                f"the table {self.location.uri} is not there any more as it was opened: it was "
                "dropped, or this version was removed by vacuum; if neither, run check()"
            ) from None

    def _scanned(
        self, columns: Sequence[str], filter: str, many: bool, use_index: bool | None
    ) -> pa.Table:
        return self.dataset.scanner(
            columns=list(columns),
            filter=filter,
            late_materialization=False if many else None,
            use_scalar_index=use_index,
        ).to_table()

    def head(self) -> Head:
        """The head row, or what the metadata of another client's manifest amounts to."""
        columns = ["object_id", "metadata", "sequence", "committed_at"]
        if not {"object_id", "object_type"} <= set(self.dataset.schema.names):
            raise TableNotFound(f"{self.location.uri} is no Lance namespace, so it is no table")
        rows = self.read(columns, f"object_id = '{HEAD_ID}'").to_pylist()
        if len(rows) > 1:
            raise CorruptTable(f"{self.location.uri} has {len(rows)} head rows: run check()")
        if rows:
            return head_of(rows[0])
        if self.table_id is not None:
            raise CorruptTable(f"{self.location.uri} has lost its head row: repair it")
        if "schema" in self.metadata and any(key.startswith(SPEC_KEY) for key in self.metadata):
            strong = "read_version" in self.dataset.schema.names
            return Head.foreign(self.version, self.metadata, strong)
        raise TableNotFound(
            f"{self.location.uri} is a Lance namespace but no partitioned table: it has no spec"
        )

    def compact(self, reindex: bool) -> None:
        """Put small fragments together, so that reads and swaps stay fast.

        Best done while no swap is under way; one that meets it is tried again, and so may this
        be: a failure is of no consequence.
        """
        dataset = self.location.open(self.location.manifest)
        try:
            dataset.optimize.compact_files(
                target_rows_per_fragment=_FRAGMENT_ROWS,
                materialize_deletions_threshold=0.2,
                num_threads=1,
            )
            if reindex:
                dataset.optimize.optimize_indices()
        except OSError as error:
            log.debug("the manifest of %s was not compacted: %s", self.location.uri, error)

    def add_read_version(self) -> ManifestVersion:
        """The newest version of the manifest, with the column that makes a table strong."""
        if READ_VERSION not in self.dataset.schema.names:
            column = pa.field(READ_VERSION, pa.uint64())
            self.location.open(self.location.manifest).add_columns(column)
        return ManifestVersion(self.location)

    def prepare_for(
        self, specs: Sequence[PartitionSpec], known: Sequence[PartitionSpec]
    ) -> ManifestVersion:
        """The newest version of the manifest, with a column for every field of some specs.

        Other clients are told of specs that are new. A column that no spec in `known` has, is
        what somebody left behind who did not live to use it.
        """
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

    def versions(self) -> list[int]:
        """The versions of the manifest that still exist, oldest first."""
        return sorted(entry["version"] for entry in self.dataset.version_refs())

    def swap(self, rows: pa.Table, removed: Sequence[str] = ()) -> int:
        """Write rows and remove others, if nobody has written a head since this version.

        Returns the new version. Raises SwapLost where somebody has; nothing is written then.
        """
        # Through the index a few rows are merged fast; many exhaust the memory it may use.
        use_index = rows.num_rows <= _INDEXED_ROWS and not removed
        try:
            return self._swap(rows, removed, use_index)
        except OSError as error:
            if not use_index or not lance_errors.is_damage(error):
                raise
            # Perhaps it is the index that is lost. Should the first have landed, this one loses.
            return self._swap(rows, removed, False)

    def _swap(self, rows: pa.Table, removed: Sequence[str], use_index: bool) -> int:
        # The merge moves the handle it runs on: a handle of its own keeps this one pinned.
        try:
            target = self.location.open(self.location.manifest, self.version)
        except (ValueError, OSError) as error:
            if not lance_errors.is_missing(error):
                raise
            # Without the versions since then, Lance could not tell what has happened.
            raise SwapLost(f"version {self.version} of the manifest is gone") from None
        names = set(target.schema.names)
        missing = [name for name in rows.schema.names if name not in names]
        if missing:
            raise CorruptTable(
                f"the manifest of {self.location.uri} has lost the columns {', '.join(missing)}"
            )
        ordered = rows.select([name for name in target.schema.names if name in rows.schema.names])
        types = [target.schema.field(name).type for name in ordered.schema.names]
        if ordered.schema.types != types:
            # A column that somebody has widened who did not live to tell the table so.
            ordered = ordered.cast(pa.schema(zip(ordered.schema.names, types, strict=True)))
        merge = target.merge_insert("object_id")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge = merge.use_index(use_index)
        if removed:
            gone = ", ".join(quote(id) for id in removed)
            merge = merge.when_not_matched_by_source_delete(f"object_id IN ({gone})")
        try:
            merge.conflict_retries(0).execute(ordered)
        except OSError as error:
            if lance_errors.is_lost_race(error, self.location.uri):
                raise SwapLost(self.location.reason(error)) from None
            raise
        return int(target.version)


class NoManifest(ManifestVersion):
    """The manifest of a table that is not there yet: nothing can be read from it."""

    def __init__(self, location: Location) -> None:
        self.location = location


def head_of(row: Mapping[str, Any]) -> Head:
    """The head from its row. Raises CorruptTable where the row has lost a column."""
    if row.get("sequence") is None or row.get("committed_at") is None:
        raise CorruptTable("the head row has lost its version: run repair() on the table")
    committed: dt.datetime = row["committed_at"]
    return Head.from_row(row["sequence"], committed, json.loads(row["metadata"]))


def partition_columns(specs: Iterable[PartitionSpec]) -> dict[str, PartitionField]:
    """The manifest's partition columns by name."""
    return {f.column_name: f for spec in specs for f in spec.fields}


def _is_absent(location: Location) -> bool:
    """Whether a look at the file system is enough: Lance tries for seconds."""
    return location.path is not None and not os.path.isdir(location.manifest)


def _unreadable(location: Location, error: Exception) -> PhalanxError:
    """Why a manifest cannot be opened."""
    if lance_errors.is_missing(error):
        return TableNotFound(f"there is no table at {location.uri}: make one with phalanx.create")
    if lance_errors.is_unknown_store(error):
        return InvalidInput(f"cannot reach {location.uri}: {location.reason(error)}")
    if lance_errors.is_unreachable(error):
        return PhalanxError(f"cannot reach {location.uri}: {location.reason(error)}")
    return CorruptTable(f"cannot read the manifest of {location.uri}: {location.reason(error)}")
