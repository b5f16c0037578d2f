"""The public API: create and open tables, and everything a user does with one."""

from __future__ import annotations

import datetime as dt
import functools
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from phalanx.errors import CorruptTable, InvalidInput, TableNotFound, UnsupportedTable
from phalanx.model.evolution import Path
from phalanx.model.properties import LAYOUT, MATERIALIZE
from phalanx.model.specs import CustomField, PartitionSpec
from phalanx.model.text import TextQuery
from phalanx.progress import Progress, reported
from phalanx.storage.location import Declaration, Location
from phalanx.table import hybrid, indexes, ingest, inspect, optimize, rewrite
from phalanx.table.advise import LEAF_BYTES, Advice, advise
from phalanx.table.check import CheckReport, check_table
from phalanx.table.create import create_table, create_with_rows, first_head, warn_of_lone_units
from phalanx.table.diff import Difference, difference
from phalanx.table.drop import drop_table
from phalanx.table.engines import ArrowDataset
from phalanx.table.filters import Filter, Parameters, predicate_of
from phalanx.table.html import table_html
from phalanx.table.indexes import IndexReport
from phalanx.table.operations.evolve import next_spec
from phalanx.table.optimize import OptimizeReport
from phalanx.table.partitioned_writer import BUFFER_BYTES
from phalanx.table.repair import RepairReport, repair_table
from phalanx.table.retention import ExpireReport, expire_snapshots
from phalanx.table.rewrite import RewriteReport
from phalanx.table.scan import Scan
from phalanx.table.transaction import MergeCounts, TableTransaction
from phalanx.table.vacuum import VacuumReport, vacuum
from phalanx.table.words import naming_arguments, unknown_attribute
from phalanx.transaction.epochs import Epoch
from phalanx.transaction.snapshot import Snapshot, Version
from phalanx.transaction.strengthen import strengthen

log = logging.getLogger("phalanx")

Uri = str | os.PathLike[str]
T = TypeVar("T")
P = ParamSpec("P")


def _naming_failures(
    method: Callable[Concatenate[Table, P], T],
) -> Callable[Concatenate[Table, P], T]:
    """A method of a table that raises StorageError where the table's storage fails."""

    @functools.wraps(method)
    def run(self: Table, /, *arguments: P.args, **options: P.kwargs) -> T:
        with self._snapshot.location.naming_failures():
            return method(self, *arguments, **options)

    return run


@naming_arguments
def create(
    uri: Uri,
    schema: Any,
    partition_by: Sequence[str | CustomField] = (),
    transactions: str = "strong",
    storage_options: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    *,
    layout: str | None = None,
    materialize_partition_columns: bool | None = None,
) -> Table:
    """Create a table, empty or with its first rows.

    Args:
        uri: The table's root: a local path, or the URI of an object store.
        schema: The columns, as a pyarrow Schema. Field ids are assigned here. Or the first rows,
            as in `Table.append`: the table gets their columns, and readers see it with all of these
            rows or not at all.
        partition_by: The partition fields, outermost first. Each is a column name,
            `year(c)`, `month(c)`, `day(c)`, `hour(c)`, `years(c)`, `months(c)`, `days(c)`,
            `hours(c)`, `bucket(16, c)`, `multi_bucket(16, a, b)`, `truncate(4, c)` or
            `phalanx.expr(…)`. `days(c)` is short for year, month and day of `c`. Without any
            field the table is one leaf.
        transactions: "strong", or "weak" for a table without atomic changes and time travel.
        storage_options: Options of the object store, such as credentials.
        properties: Table properties; see `Table.set_properties`.
        layout: "flat" (the default), or "hive" for leaves in a tree of key=value folders, such as
            `event_date=2025-12-10/country=US.lance`. It cannot be changed later.
        materialize_partition_columns: Whether data files hold the columns that the table is
            partitioned by. If False, those of identity fields are left out, and readers take them
            from the partition values. It sets the property of that name.

    Returns:
        The table, at version 1.

    Raises:
        TableExists: There is already a table at `uri`.
        InvalidInput: The schema, a partition field or a property is not valid, or rows have a
            column without a type.
    """
    location = Location(uri, storage_options)
    if layout is not None:
        properties = {**(properties or {}), LAYOUT.name: layout}
    if materialize_partition_columns is not None:
        if not isinstance(materialize_partition_columns, bool):
            raise InvalidInput(
                f"{MATERIALIZE.name} is True or False, not {materialize_partition_columns!r}"
            )
        text = MATERIALIZE.kind.spell(materialize_partition_columns)
        properties = {**(properties or {}), MATERIALIZE.name: text}
    rows = None
    if not isinstance(schema, pa.Schema):
        schema, rows = ingest.with_schema(schema)
    head = first_head(schema, partition_by, transactions, properties)
    with ThreadPoolExecutor(1) as pool, location.naming_failures():
        if rows is not None:
            return Table(create_with_rows(location, head, rows))
        return Table(create_table(location, head, (), pool, time.time()))


@naming_arguments
def open(
    uri: Uri,
    version: Version | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    schema: pa.Schema | None = None,
    partition_by: Sequence[str] | None = None,
) -> Table:
    """Open a table at its newest snapshot, or at an earlier one.

    A tree of key=value folders with Lance datasets in it, such as
    `event_date=2025-12-10/country=US.lance`, is opened as well, whoever has made it.

    Args:
        uri: The table's root.
        version: A version number, the name of a tag, or a time: the snapshot that was the newest
            then. A time is a datetime, a date or text such as "2025-12-31"; a date means its first
            instant, and without a time zone a time is in UTC.
        storage_options: Options of the object store, such as credentials.
        schema: The columns of a key=value tree, if it does not say so itself. By default those of
            its first leaf, and those in the paths: integers or dates where all values are written
            like that, strings otherwise.
        partition_by: The partition fields of such a tree, as in `create`. By default the columns
            in its paths.

    Raises:
        TableNotFound: There is no table at `uri`, or it has no such version any more.
        InvalidInput: A version was asked for, and the table is weak or was weak then.
        UnsupportedTable: The table needs a newer version of Phalanx.
    """
    declaration = None
    if schema is not None or partition_by is not None:
        if isinstance(partition_by, str):
            partition_by = [partition_by]
        fields = None if partition_by is None else tuple(partition_by)
        declaration = Declaration(schema, fields)
    return _opened(uri, storage_options, declaration, version)


def _opened(
    uri: Uri,
    storage_options: Mapping[str, str] | None,
    declaration: Declaration | None,
    version: Version | None,
) -> Table:
    location = Location(uri, storage_options, declaration)
    with location.naming_failures():
        if version is None:
            return Table(Snapshot.latest(location))
        return Table(Snapshot.at(location, version))


def exists(uri: Uri, storage_options: Mapping[str, str] | None = None) -> bool:
    """Whether there is a table at `uri`, even one that is damaged or needs a newer Phalanx.

    Raises StorageError if the storage cannot be reached.
    """
    location = Location(uri, storage_options)
    try:
        with location.naming_failures():
            Snapshot.latest(location)
    except TableNotFound:
        return False
    except (CorruptTable, UnsupportedTable):
        return True
    return True


def check(uri: Uri, storage_options: Mapping[str, str] | None = None) -> CheckReport:
    """Check a table for damage, even one that no longer opens. Changes nothing."""
    location = Location(uri, storage_options)
    with location.naming_failures():
        return check_table(location)


def repair(
    uri: Uri,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
    *,
    stray: str = "keep",
) -> RepairReport:
    """Repair the damage that `check` finds, even in a table that no longer opens.

    See `Table.repair`.
    """
    location = Location(uri, storage_options)
    with location.naming_failures():
        return repair_table(location, dry_run, stray)


class Table(ArrowDataset):
    """A table, bound to one snapshot.

    Reads see that snapshot. A change made through the table moves it to the snapshot that has the
    change; changes by other writers show after `refresh`.

    Every change is one transaction: afterwards all of it is visible, or nothing. It applies to the
    newest snapshot, even if the table was opened at an earlier version. (In a weak table this
    holds for each leaf by itself.) Methods that change the table take these options as keywords:

    - `transaction_id`: A name for the transaction. If a transaction with this name has already
      been committed, the change has no effect, so it is safe to retry. The name is remembered
      as long as the snapshot that the transaction made is kept.
    - `isolation`: "serializable" (the default) or "snapshot". With "snapshot", rows that other
      transactions add while this one runs are ignored.
    - `durable`: Whether to wait until everything is on disk. By default, only if the environment
      variable `PHALANX_DURABLE` is set.

    They raise ConflictError if another transaction has changed the same rows, or the schema, and
    the two cannot be reconciled, and UnsupportedTable if this version of Phalanx cannot write to
    the table. In either case the table stays as it was. After a ConflictError the table object is
    at the newest snapshot, so the change can be tried again.

    Every method raises StorageError if the file system or the object store fails: a full disk,
    missing rights, no connection.

    `where` is always a filter, in one of three forms:

    - SQL, such as `"country = 'US' AND ts >= '2025-01-01'"`. `?` in it stands for a value of
      `params`, and `:name` for one of a dict: `scan(where="id = ?", params=[7])`.
    - A pyarrow expression, such as `pc.field("country") == "US"`.
    - Tuples as pyarrow takes them, such as `[("country", "=", "US"), ("id", "in", [1, 2])]`: all
      must hold. Of a list of lists, one must hold.

    It may name columns, and partition fields such as `ts_day`. A filter that cannot be parsed or
    names an unknown column raises InvalidInput.

    `progress` is a function that is called with how much is done and how much there is, None if
    that is not known; its unit depends on the call, such as rows or leaves. True shows a bar on
    standard error, False nothing. By default, a bar shows on terminals and in notebooks when a call
    takes longer than a moment.

    A table is also a pyarrow Dataset: DuckDB and Polars (`pl.scan_pyarrow_dataset`) push filters
    and columns down to it, so that they read only the partitions they need.
    """

    # Properties

    @property
    def uri(self) -> str:
        """The table's root."""
        return self._snapshot.location.uri

    @property
    def version(self) -> int:
        """The version of the snapshot: 1 for a new table, one more with each transaction."""
        return self._snapshot.sequence

    @property
    def spec(self) -> PartitionSpec:
        """The current partition spec, which applies to new rows."""
        return self._snapshot.head.spec

    @property
    def specs(self) -> tuple[PartitionSpec, ...]:
        """Every partition spec the table has had, oldest first."""
        return self._snapshot.head.specs

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        names: list[str] = self.schema.names
        return names

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # it was there, and its own code has failed
            return object.__getattribute__(self, name)
        raise unknown_attribute(name)

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to do: a table holds nothing open."""

    def __reduce__(self) -> tuple[Any, ...]:
        """A table is pickled as what opens it: its place, storage options and version.

        The storage options may contain secrets. A weak table, or a tree of folders without a
        manifest, is opened as it is then.
        """
        snapshot, location = self._snapshot, self._snapshot.location
        is_fixed = snapshot.head.transactions == "strong" and not snapshot.manifest.is_listed
        version = snapshot.sequence if is_fixed else None
        return _opened, (location.uri, location.options, location.declaration, version)

    @_naming_failures
    def refresh(self) -> Table:
        """Move to the newest snapshot."""
        self._snapshot = Snapshot.latest(self._snapshot.location)
        return self

    # Reading

    @naming_arguments
    def scan(
        self,
        columns: str | Sequence[str] | None = None,
        where: Filter | None = None,
        limit: int | None = None,
        params: Parameters | None = None,
    ) -> Scan:
        """Describe rows to read: those that match `where`, with the given columns.

        Nothing is read until the scan is asked for rows, a count or its plan. A scan is also an
        Arrow stream, so DuckDB, Polars and others can read from it directly.

        Args:
            columns: Names of columns, in the order they are returned, or one name; None for all.
            where: A filter; None for all rows.
            limit: The largest number of rows to return.
            params: Values for `?` or `:name` in the filter.

        Raises:
            InvalidInput: A column is unknown or named twice, or the filter or limit is not valid.
        """
        return Scan(self._snapshot, columns, where, limit, params)

    def filter(self, where: Filter) -> Scan:
        """The rows that match a filter, as `scan` describes them."""
        return self.scan(where=where)

    def to_arrow(self) -> pa.Table:
        """All rows as a pyarrow Table."""
        return self.scan().to_arrow()

    def to_pandas(self, **options: Any) -> Any:
        """All rows as a pandas DataFrame."""
        return self.scan().to_pandas(**options)

    def to_polars(self) -> Any:
        """All rows as a Polars DataFrame. Polars must be installed."""
        return self.scan().to_polars()

    def __len__(self) -> int:
        """The number of rows."""
        return self.count()

    def __bool__(self) -> bool:
        """True: a table without rows is still a table."""
        return True

    @naming_arguments
    def count(self, where: Filter | None = None, params: Parameters | None = None) -> int:
        """Count the rows that match `where`.

        Leaves in which partition values decide the filter are counted from the manifest and
        not opened.
        """
        return self.scan(where=where, params=params).count()

    @_naming_failures
    def count_by(
        self,
        columns: str | Sequence[str],
        where: Filter | None = None,
        params: Parameters | None = None,
    ) -> pa.Table:
        """Count the rows that match `where` for each combination of values of `columns`.

        A name is a column or a partition field. If all of them are partition values and partition
        values decide the filter, no leaf is opened.

        Returns:
            One row for each combination that has rows: its values, and their number in `count`.

        Raises:
            InvalidInput: A column is unknown or named twice, or has a nested type.
        """
        columns = [columns] if isinstance(columns, str) else columns
        predicate = predicate_of(where, self._snapshot, params)
        return inspect.count_by(self._snapshot, columns, predicate)

    @naming_arguments
    @_naming_failures
    def search(
        self,
        vector: Any = None,
        column: str | None = None,
        k: int = 10,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        text: str | TextQuery | None = None,
        text_column: str | None = None,
        weights: tuple[float, float] = (1.0, 1.0),
        metric: str | None = None,
        nprobes: int | None = None,
        refine_factor: int | None = None,
        ef: int | None = None,
        use_index: bool = True,
    ) -> pa.Table:
        """Find the rows that are nearest to a vector, or match a text best, or both.

        Partitions that `where` rules out are not searched. The filter is applied before the search:
        if k rows match it, k rows are returned. Rows that no index covers are searched, too. A row
        whose vector is NULL is never found by a vector.

        Scores of texts are BM25, with the counts of all partitions that are searched, so that the
        order is that of one dataset with the same rows.

        Args:
            vector: The query; or several of them, as a list of vectors or an array of two
                dimensions.
            column: The column of vectors, or without a vector the column of texts. It may be left
                out if there is only one of vectors, or only one with a full-text index.
            k: How many rows to return, for each query.
            where: A filter; None for all rows.
            columns: Names of columns to return; None for all.
            text: Words, or a `phalanx.Match`, `phalanx.Phrase` or `phalanx.Boolean`.
            text_column: The column of texts, in a search by both.
            weights: How much the ranks by vector and by text count, in a search by both.
            metric: "l2" (squared), "cosine" or "dot". By default the one that the column's index
                was built for, or "l2". With another one than the index's, all vectors are read.
            nprobes: How many partitions of an IVF index to look at, in each leaf.
            refine_factor: For indexes that compress vectors: how many candidates for each result
                are compared with the vectors themselves. The default is 4; with 0 the distances
                are estimates.
            ef: How far to look around in an HNSW index.
            use_index: If False, all vectors are read, and the result is exact.

        Returns:
            The rows, best first, with their `_distance` by vector, their `_score` by text, or both
            and the `_relevance` that combines them. For several vectors the column `query_index`
            comes first, and rows are ordered by it.

        Raises:
            InvalidInput: There is no such column, the query does not fit it, or another argument
                is not valid.
        """
        return hybrid.search(
            self._snapshot,
            vector,
            column,
            k,
            where,
            columns,
            text=text,
            text_column=text_column,
            weights=weights,
            metric=metric,
            nprobes=nprobes,
            refine_factor=refine_factor,
            ef=ef,
            use_index=use_index,
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches; see `Scan.to_batches`."""
        return self.scan().to_batches()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    # Metadata

    @_naming_failures
    def partitions(self) -> pa.Table:
        """List the leaves, one row each.

        The columns are `spec`, one for each partition field of any spec (NULL where the leaf's
        spec does not have it), `rows`, `bytes`, `fragments`, `version` and `uri`.
        """
        return inspect.partitions(self._snapshot)

    @_naming_failures
    def snapshots(self) -> pa.Table:
        """List the transactions that are still in the history, one row each, oldest first.

        The columns are `version`, `committed_at`, `operation`, `transaction_id`, `rows_added`,
        `rows_removed` and `leaves`, the number of leaves that were changed.
        """
        return inspect.snapshots(self._snapshot)

    def history(self) -> pa.Table:
        """List the transactions as `snapshots` does, newest first."""
        snapshots = self.snapshots()
        return snapshots.take(list(range(snapshots.num_rows))[::-1])

    @_naming_failures
    def files(self) -> pa.Table:
        """List the data files of this snapshot, one row each. This opens every leaf.

        The columns are `path`, `partition` (the partition values as JSON), `spec`, `fragment`,
        `rows`, `deleted_rows` and `bytes`.
        """
        return inspect.files(self._snapshot)

    @_naming_failures
    def diff(self, before: Version, after: Version | None = None) -> Difference:
        """Compare two versions: leaves, columns, partitioning and properties.

        Only the manifest is read, so rows are not compared with one another.

        Args:
            before: A version number, the name of a tag, or a time, as in `open`.
            after: Another one; None for the version of this table object.

        Raises:
            TableNotFound: There is no such version, or it has expired.
            InvalidInput: The table is weak, or was weak at that version.
        """
        self._snapshot.refuse_weak("compared with another version")
        find = Snapshot.latest(self._snapshot.location).find
        return difference(find(before), self._snapshot if after is None else find(after))

    # Changing rows

    def transaction(
        self,
        *,
        transaction_id: str | None = None,
        isolation: str = "serializable",
        durable: bool | None = None,
        epoch: Epoch | None = None,
    ) -> TableTransaction:
        """Make several changes in one transaction.

        ```
        with table.transaction() as tx:
            tx.delete("status = 'old'")
            tx.append(rows)
        ```

        The changes are committed at the end of the block, as one snapshot. Inside the block only
        reads through `tx` see them. An exception leaves the table as it was.

        Args:
            transaction_id: See `Table`.
            isolation: See `Table`.
            durable: See `Table`.
            epoch: An epoch of a stream, instead of a `transaction_id`. The changes have no effect
                if that epoch or a later one of the same stream has been committed, however long
                ago.

        Raises:
            ConflictError: On commit, if rows that were read through `tx` have changed, or for the
                reasons given in `Table`.
        """
        return TableTransaction(self, transaction_id, isolation, durable, epoch)

    @naming_arguments
    def append(
        self,
        data: Any,
        merge_schema: bool = False,
        *,
        buffer_bytes: int = BUFFER_BYTES,
        progress: Progress = None,
        **options: Any,
    ) -> Table:
        """Add rows.

        Columns are matched by name. A missing column is filled with its default, or NULL. A column
        of another type is cast if no value changes.

        Args:
            data: A pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a pandas or Polars
                DataFrame, a list of dicts, a dict of lists, any object with an Arrow stream, such
                as a scan or a DuckDB result, an iterator of batches, or the path or glob of
                Parquet, CSV, JSON, Arrow or ORC files. Streams and files are read in bounded
                memory; a Polars LazyFrame is collected.
            merge_schema: Add columns that `data` has and the table does not, in the same
                transaction. Otherwise they are an error.
            buffer_bytes: How many bytes of rows to hold in memory before files are written.
            progress: See `Table`.
            **options: See `Table`.

        Raises:
            InvalidInput: The rows do not fit the schema. Nothing is changed.
        """
        with reported("append", progress), self.transaction(**options) as tx:
            tx.append(data, merge_schema=merge_schema, buffer_bytes=buffer_bytes)
        return self

    @naming_arguments
    def overwrite(
        self,
        data: Any,
        mode: str = "table",
        *,
        where: Filter | None = None,
        merge_schema: bool = False,
        buffer_bytes: int = BUFFER_BYTES,
        progress: Progress = None,
        **options: Any,
    ) -> Table:
        """Replace all rows, or those of some partitions, or those that match a filter.

        Args:
            data: The new rows, as in `append`.
            mode: "table" replaces all rows. "partitions" replaces the partitions that `data` has
                rows for. These are partitions of the current spec; rows written under earlier
                specs are kept.
            where: Replace the rows that match this filter. Every row of `data` must match it too.
            merge_schema: As in `append`.
            buffer_bytes: As in `append`.
            progress: See `Table`.
            **options: See `Table`.

        Raises:
            InvalidInput: The rows do not fit the schema or do not match `where`, or both `where`
                and `mode="partitions"` are given. Nothing is changed.
        """
        with reported("overwrite", progress), self.transaction(**options) as tx:
            tx.overwrite(
                data, mode, where=where, merge_schema=merge_schema, buffer_bytes=buffer_bytes
            )
        return self

    @naming_arguments
    def delete(self, where: Filter, params: Parameters | None = None, **options: Any) -> int:
        """Delete the rows that match `where`, and return their number.

        Leaves in which partition values decide that every row matches are removed without being
        opened. To delete all rows, pass `"TRUE"`.
        """
        with self.transaction(**options) as tx:
            deleted = tx._delete(where, params)
        return deleted()

    @naming_arguments
    def update(
        self,
        values: Mapping[str, Any],
        where: Filter | None = None,
        params: Parameters | None = None,
        **options: Any,
    ) -> int:
        """Set columns in the rows that match `where`, and return the number of these rows.

        A row whose partition values change moves to its new partition.

        Args:
            values: A SQL expression for each column to set, such as
                `{"status": "'done'", "n": "n + 1"}`. Expressions see the row as it was. A value
                that is not text is a constant, and so is text in `phalanx.lit`.
            where: A filter; None for all rows.
            params: Values for `?` or `:name` in the filter.
            **options: See `Table`.

        Raises:
            InvalidInput: A column is unknown, or an expression does not fit its type.
        """
        with self.transaction(**options) as tx:
            updated = tx._update(values, where, params)
        return updated()

    @naming_arguments
    def merge(
        self,
        data: Any,
        on: str | Sequence[str],
        *,
        when_matched: str = "update",
        when_not_matched: str = "insert",
        merge_schema: bool = False,
        progress: Progress = None,
        **options: Any,
    ) -> MergeCounts:
        """Upsert: replace the rows that have the same key as a row of `data`, insert the others.

        A source row that has all columns replaces the rows with its key. One that lacks columns
        changes each of them, and they keep their values in those columns; in a list of dicts each
        row may have columns of its own. In new rows such columns take their default, or NULL. A
        key with a NULL matches nothing.

        Args:
            data: The source rows, as in `append`. They are held in memory.
            on: The key columns, or the name of one. Floating-point and nested columns cannot be
                keys.
            when_matched: "update", "delete" or "ignore": what to do with rows of the table that
                have the key of a source row.
            when_not_matched: "insert" or "ignore": what to do with source rows whose key the table
                does not have.
            merge_schema: As in `append`.
            progress: See `Table`.
            **options: See `Table`.

        Returns:
            How many rows were inserted, updated and deleted.

        Raises:
            InvalidInput: A key column is unknown or of a type that cannot be a key, several source
                rows have the same key, the rows do not fit the schema, or a new row lacks a column
                that must not be NULL. Nothing is changed.
        """
        with reported("merge", progress), self.transaction(**options) as tx:
            counts = tx._merge(data, on, when_matched, when_not_matched, merge_schema)
        return counts()

    def upsert(self, data: Any, on: str | Sequence[str], **options: Any) -> MergeCounts:
        """Replace the rows that have the same key as a row of `data`, and insert the others.

        This is `merge` without conditions.
        """
        return self.merge(data, on, **options)

    @_naming_failures
    def drop(self) -> None:
        """Delete the table with all of its versions and files. This cannot be undone.

        Raises:
            InvalidInput: The folder holds something that is not part of the table.
            UnsupportedTable: Another client has made the table.
        """
        drop_table(self._snapshot)

    @_naming_failures
    def make_strong(self) -> Table:
        """Turn a weak table into a strong one, with atomic changes and time travel.

        Versions from before this call cannot be opened. An append that is running is completed in
        a strong transaction, without losing or repeating rows; any other change that is running
        may fail with ConflictError. A table that is already strong stays as it is.
        """
        self._snapshot = strengthen(self._snapshot.location)
        return self

    def rollback(self, version: Version, **options: Any) -> Table:
        """Restore the rows, the schema and the spec of an earlier version.

        This makes a new snapshot, so the versions in between are kept. `version` is a version
        number, the name of a tag, or a datetime, as in `open`.

        Raises:
            TableNotFound: There is no such version, or it has expired.
            InvalidInput: The table is weak, or was weak at that version.
        """
        with self.transaction(**options) as tx:
            tx.rollback(version)
        return self

    def tag(self, name: str, version: Version | None = None, **options: Any) -> Table:
        """Give a version a name, by which it can be opened. A tagged version does not expire.

        Args:
            name: A string of up to 256 characters.
            version: A version number, another tag or a datetime; None for the version of this
                table object.
            **options: See `Table`.

        Raises:
            TableNotFound: There is no such version, or it has expired.
            InvalidInput: The tag is already at another version, or the table is weak.
        """
        with self.transaction(**options) as tx:
            tx.tag(name, self.version if version is None else version)
        return self

    def drop_tag(self, name: str, **options: Any) -> Table:
        """Remove a tag. Its version then expires like any other.

        Raises:
            TableNotFound: There is no such tag.
        """
        with self.transaction(**options) as tx:
            tx.drop_tag(name)
        return self

    @_naming_failures
    def tags(self) -> dict[str, int]:
        """The tagged versions, by the name of the tag."""
        return {name: tag.version for name, tag in self._snapshot.tags().items()}

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties that are set; see `set_properties`."""
        return dict(self._snapshot.head.properties)

    def set_properties(self, values: Mapping[str, str | None], **options: Any) -> Table:
        """Set table properties; a value of None removes a property.

        These properties have a meaning. Others may be set freely, except under `retention.`:

        - `anchor`: When leaf versions are published on the main branches of the leaves, where
          plain Lance readers see them: at "maintenance" (the default: in `optimize`, `rewrite`
          and `vacuum`), at every "commit", or "never". Setting "commit" also publishes every leaf
          at once.
        - `retention.snapshots`: How long a snapshot is kept after a newer one replaced it, such
          as "30 days". The default is 7 days.
        - `retention.min_snapshots`: How many of the newest snapshots are kept, whatever their
          age. The default is 1.

        Raises:
            InvalidInput: A value is not valid, or there is no such property under `retention.`.
        """
        with self.transaction(**options) as tx:
            tx.set_properties(values)
        return self

    # Changing the schema and the partitioning

    def evolve_partitioning(
        self, partition_by: Sequence[str | CustomField], **options: Any
    ) -> Table:
        """Add a new version of the partition spec, which applies to new rows.

        Existing rows stay in their partitions, and each partition is pruned by the spec it was
        written under; `rewrite` moves the rows. If the table is already partitioned this way,
        nothing is changed and a warning is logged.

        Args:
            partition_by: The partition fields, as in `create`.
            **options: See `Table`.

        Raises:
            InvalidInput: A column is unknown, or the fields cannot be combined.
        """
        if self._is_partitioned_by(partition_by) and self.refresh()._is_partitioned_by(
            partition_by
        ):
            log.warning("%s is partitioned like that already: nothing was changed", self.uri)
            return self
        with self.transaction(**options) as tx:
            tx.evolve_partitioning(partition_by)
        warn_of_lone_units(self.spec, self._snapshot.head.schema)
        return self

    def add_column(
        self,
        name: Path,
        type: pa.DataType | str,
        default: Any = None,
        *,
        nullable: bool = True,
        first: bool = False,
        after: str | None = None,
        **options: Any,
    ) -> Table:
        """Add a column, or a field to a struct.

        Like every change of the schema, this is one snapshot and rewrites no rows, whatever the
        size of the table. Changes of the schema raise InvalidInput if the table is weak.

        Args:
            name: The name of the column; `a.b` or `("a", "b")` for a field `b` of the struct `a`.
            type: A pyarrow type, or its name.
            default: The value of the column in existing rows, and in new rows without the column.
                A field of a struct cannot have one.
            nullable: Whether the column may be NULL. If not, it needs a default.
            first: Put the column first instead of last.
            after: Put the column after this one.
            **options: See `Table`.

        Raises:
            InvalidInput: The name is taken, or the type or the default is not valid.
        """
        with self.transaction(**options) as tx:
            tx.add_column(name, type, default, nullable=nullable, first=first, after=after)
        return self

    def drop_column(self, path: Path, **options: Any) -> Table:
        """Drop a column, or a field of a struct.

        A column that is later added under the same name does not get the old values back. A
        partition field on a dropped column is NULL for new rows.

        Raises:
            InvalidInput: There is no such column, or it is the only one.
        """
        with self.transaction(**options) as tx:
            tx.drop_column(path)
        return self

    def rename_column(self, path: Path, name: str, **options: Any) -> Table:
        """Rename a column, or a field of a struct. Partition specs follow, as they refer to ids.

        Raises:
            InvalidInput: There is no such column, or the name is taken.
        """
        with self.transaction(**options) as tx:
            tx.rename_column(path, name)
        return self

    def change_type(self, path: Path, type: pa.DataType | str, **options: Any) -> Table:
        """Widen the type of a column, or of a field of a struct.

        Integers can become wider integers, float can become double, decimals can get more digits,
        and date can become timestamp.

        Raises:
            InvalidInput: There is no such column, or the type is not wider, or rows would have to
                move to other partitions: a date that the table is or was partitioned by cannot
                become a timestamp, and the values that a custom expression gives must stay the
                same. The column is read to find out.
        """
        with self.transaction(**options) as tx:
            tx.change_type(path, type)
        return self

    def set_default(self, path: Path, default: Any, **options: Any) -> Table:
        """Set the default of a column: what new rows hold that come without it.

        Existing rows keep their values, and so does a column that was added with another default.

        Args:
            path: The name of the column. A field of a struct cannot have a default.
            default: A value, or None for no default.
            **options: See `Table`.

        Raises:
            InvalidInput: There is no such column, or the default does not fit its type.
        """
        with self.transaction(**options) as tx:
            tx.set_default(path, default)
        return self

    def make_nullable(self, path: Path, **options: Any) -> Table:
        """Allow NULL in a column, or in a field of a struct.

        Raises:
            InvalidInput: There is no such column.
        """
        with self.transaction(**options) as tx:
            tx.make_nullable(path)
        return self

    def describe_column(self, path: Path, texts: Mapping[str, str | None], **options: Any) -> Table:
        """Set texts about a column, such as `{"comment": "…"}`, which Spark shows.

        A value of None removes a text.

        Raises:
            InvalidInput: There is no such column.
        """
        with self.transaction(**options) as tx:
            tx.describe_column(path, texts)
        return self

    def move_column(
        self, path: Path, *, first: bool = False, after: str | None = None, **options: Any
    ) -> Table:
        """Move a column, or a field of a struct: `first`, or `after` another one.

        Raises:
            InvalidInput: There is no such column, or not exactly one place is given.
        """
        with self.transaction(**options) as tx:
            tx.move_column(path, first=first, after=after)
        return self

    def reorder_columns(self, names: Sequence[str], **options: Any) -> Table:
        """Put the columns in the order of `names`, which lists all of them.

        Raises:
            InvalidInput: A column is missing, unknown or named twice.
        """
        with self.transaction(**options) as tx:
            tx.reorder_columns(names)
        return self

    def _is_partitioned_by(self, partition_by: Sequence[str | CustomField]) -> bool:
        head = self._snapshot.head
        return next_spec(head, partition_by).fields == head.spec.fields

    # Indexes

    def create_index(
        self,
        column: str,
        kind: str,
        name: str | None = None,
        where: str | None = None,
        *,
        min_rows: int | None = None,
        progress: Progress = None,
        **parameters: Any,
    ) -> IndexReport:
        """Create an index on a column, and build it in every leaf, in one transaction.

        No row changes, and other writers may go on. Rows that are written later are found without
        the index until `refresh_indexes` covers them; `optimize` and `rewrite` do that for the
        leaves that they write. Without an index, or where it does not reach, results are the same.

        Args:
            column: The column, which may be a source of partition fields.
            kind: For filters "BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER", "NGRAM" or "LABEL_LIST";
                for text "INVERTED"; for vectors "IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ",
                "IVF_HNSW_FLAT", "IVF_HNSW_SQ" or "IVF_HNSW_PQ".
            name: The name of the index, by default the column's with `_idx`.
            where: Index only leaves that may hold a matching row, now and later.
            min_rows: Leave out leaves with fewer rows: they are read as a whole. The default is
                1,000, for vectors 2,000, and for text 1.
            progress: See `Table`.
            **parameters: For vectors `metric` ("l2", "cosine" or "dot"), `num_partitions`,
                `num_sub_vectors`, `m` and `ef_construction`; for text `base_tokenizer`,
                `language`, `with_position`, `max_token_length`, `lower_case`, `stem`,
                `remove_stop_words` and `ascii_folding`. They mean what they mean in Lance.

        Raises:
            InvalidInput: The column cannot be indexed like that, a parameter is not valid, the name
                is taken, or the table is weak.
        """
        with self._snapshot.location.naming_failures(), reported("create_index", progress):
            report = indexes.create_index(
                self._snapshot, column, kind, name, where, min_rows, **parameters
            )
        self.refresh()
        return report

    @_naming_failures
    def indexes(self) -> pa.Table:
        """List the indexes, one row each, with how far they reach. This opens every leaf.

        The columns are `name`, `column`, `kind`, `parameters` (as JSON), `where`, `min_rows`,
        `leaves` (those it is for), `leaves_indexed`, `leaves_behind` (those that
        `refresh_indexes` would work on), `rows_indexed` and `rows_unindexed`.
        """
        return indexes.indexes(self._snapshot)

    @_naming_failures
    def refresh_indexes(
        self,
        name: str | None = None,
        where: str | None = None,
        *,
        progress: Progress = None,
    ) -> IndexReport:
        """Build what indexes lack: rows that were written since, and new leaves.

        Args:
            name: The index; None for all of them.
            where: Look only at leaves that may hold a matching row.
            progress: See `Table`.

        Raises:
            InvalidInput: There is no such index.
        """
        with reported("refresh_indexes", progress):
            report = indexes.refresh_indexes(self._snapshot, name, where)
        self.refresh()
        return report

    @_naming_failures
    def take_over_index(self, name: str) -> IndexReport:
        """Make an index that another client has created on a leaf an index of the table.

        `check` finds such indexes. The index is built anew, in all leaves, with the same name,
        column, kind and metric.

        Raises:
            InvalidInput: No leaf has such an index, or the table cannot have it.
        """
        report = indexes.take_over_index(self._snapshot, name)
        self.refresh()
        return report

    @_naming_failures
    def drop_index(self, name: str) -> Table:
        """Drop an index.

        Raises:
            InvalidInput: There is no such index.
        """
        indexes.drop_index(self._snapshot, name)
        return self.refresh()

    # Maintenance

    @naming_arguments
    @_naming_failures
    def vacuum(
        self,
        older_than: dt.timedelta | dt.datetime | str | None = None,
        dry_run: bool = False,
        force: bool = False,
        *,
        progress: Progress = None,
    ) -> VacuumReport:
        """Expire old snapshots and delete the files that no longer belong to any.

        Deletes only files that no remaining snapshot, no tag and no main branch of a leaf needs.

        Args:
            older_than: Expire snapshots that were replaced longer ago than this, and delete
                unreferenced files older than this: a timedelta, text such as "7 days", or a
                datetime. It takes precedence over the property `retention.snapshots`. By default,
                the property decides for snapshots, and files are deleted after 7 days.
            dry_run: Report what would be deleted, and delete nothing.
            force: Allow an age of less than 24 hours. Use it only if no writer is running: a
                writer's new files are unreferenced until it commits.

        Raises:
            InvalidInput: `older_than` is negative, or less than 24 hours without `force`.
            ConflictError: Other transactions kept committing; try again.
        """
        self._snapshot.refuse_listed("vacuumed")
        with reported("vacuum", progress):
            report = vacuum(self._snapshot, older_than, dry_run, force)
        if not dry_run:
            self.refresh()
        return report

    @_naming_failures
    def expire_snapshots(
        self,
        older_than: dt.timedelta | dt.datetime | str | None = None,
        dry_run: bool = False,
        *,
        retain_last: int | None = None,
    ) -> ExpireReport:
        """Expire old snapshots. They can no longer be opened, and `vacuum` may delete their files.

        Tagged versions and the newest `retention.min_snapshots` versions are kept.

        Args:
            older_than: Expire snapshots that were replaced longer ago than this: a timedelta, or
                text such as "7 days". A datetime means those that were replaced before it; without
                a time zone it is in UTC. It takes precedence over the property
                `retention.snapshots`, which decides otherwise (7 days if it is not set).
            dry_run: Report what would expire, and change nothing.
            retain_last: How many of the newest versions are kept in any case. It takes precedence
                over the property `retention.min_snapshots`.

        Raises:
            InvalidInput: `older_than` is negative, or `retain_last` is below 1.
            ConflictError: Other transactions kept committing; try again.
        """
        report = expire_snapshots(self._snapshot, older_than, dry_run, retain_last)
        if not dry_run:
            self.refresh()
        return report

    @naming_arguments
    @_naming_failures
    def optimize(
        self,
        where: str | None = None,
        target_rows: int | None = None,
        target_bytes: int | None = None,
        dry_run: bool = False,
        *,
        sort_by: Sequence[str | tuple[str, str]] | None = None,
        zorder_by: Sequence[str] | None = None,
        progress: Progress = None,
    ) -> OptimizeReport:
        """Compact the files of each leaf into fewer, larger ones without deleted rows.

        No row changes, and other writers may go on. Leaves are committed in groups, so an
        interrupted call keeps what it has finished.

        Args:
            where: Compact only leaves that may hold a matching row, each as a whole.
            target_rows: The number of rows that a file should have, 1,048,576 by default.
            target_bytes: The size that a file should have, 128 MiB by default. A file is full
                when it reaches either target.
            dry_run: Report what would be rewritten, and write nothing.
            sort_by: Rewrite each leaf in the order of these columns; a pair such as
                `("ts", "descending")` reverses one.
            zorder_by: Rewrite each leaf in Z-order of these columns, 2 or more.

        Raises:
            InvalidInput: A target is less than 1, or rows cannot be ordered by these columns.
        """
        with reported("optimize", progress):
            report = optimize.optimize(
                self._snapshot,
                where,
                target_rows,
                target_bytes,
                dry_run,
                sort_by,
                zorder_by,
            )
        if not dry_run:
            self.refresh()
        return report

    @_naming_failures
    def rewrite(
        self,
        where: str | None = None,
        *,
        step_rows: int | None = None,
        step_bytes: int | None = None,
        max_steps: int | None = None,
        dry_run: bool = False,
        progress: Progress = None,
    ) -> RewriteReport:
        """Move rows that were written under earlier specs into partitions of the current spec.

        No row changes, and other writers may go on. The rows are moved in steps, each a
        transaction, so an interrupted call keeps what it has finished, and the next one continues.
        Leaves of the current spec are rewritten if they have other columns than new files, because
        `materialize_partition_columns` was changed.

        Args:
            where: Move only leaves that may hold a matching row, each as a whole.
            step_rows: The largest number of rows in a step, 67,108,864 by default.
            step_bytes: The largest number of bytes in a step, 4 GiB by default. A single file
                that is larger than either is a step of its own.
            max_steps: Stop after this many steps.
            dry_run: Report what would be moved, and write nothing.

        Raises:
            InvalidInput: A limit is less than 1, or the table is weak.
        """
        with reported("rewrite", progress):
            report = rewrite.rewrite(
                self._snapshot, where, step_rows, step_bytes, max_steps, dry_run
            )
        if not dry_run:
            self.refresh()
        return report

    def advise(self, leaf_bytes: int = LEAF_BYTES) -> Advice:
        """Report leaves that are too small, too large or skewed, and suggest a better spec.

        Only the manifest is read.

        Args:
            leaf_bytes: The size that a leaf should have, 512 MiB by default.

        Raises:
            InvalidInput: `leaf_bytes` is less than 1.
        """
        return advise(self._snapshot, leaf_bytes)

    @_naming_failures
    def check(self, *, progress: Progress = None) -> CheckReport:
        """Check the table for damage. Changes nothing.

        Args:
            progress: See `Table`.
        """
        self._snapshot.refuse_listed("checked")
        with reported("check", progress):
            return check_table(self._snapshot)

    @_naming_failures
    def repair(self, dry_run: bool = False, *, stray: str = "keep") -> RepairReport:
        """Repair the damage that `check` finds.

        The report lists what was repaired and what cannot be.

        Args:
            dry_run: Report what would be repaired, and write nothing.
            stray: What to do with rows in the table's folders of which only you can say whether
                they belong to it: another client has committed them to a leaf, or their leaf was
                lost and rows were changed since. "keep" reports them, "take" makes them part of
                the table, "drop" gives them up.

        Raises:
            InvalidInput: `stray` has another value.
            ConflictError: Other transactions kept committing; try again.
        """
        self._snapshot.refuse_listed("repaired")
        report = repair_table(self._snapshot.location, dry_run, stray)
        if not dry_run:
            self.refresh()
        return report

    def _repr_html_(self) -> str:
        return table_html(self._snapshot)

    def __repr__(self) -> str:
        fields = ", ".join(self.spec.spell(self._snapshot.head.schema)) or "nothing"
        return f"<phalanx.Table {self.uri}, version {self.version}, partitioned by {fields}>"
