"""Transactions as a user writes them: any number of changes that are committed together."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from phalanx import progress
from phalanx.errors import ConflictError, InvalidInput, PhalanxError
from phalanx.model.dialect import to_text
from phalanx.model.evolution import Path, find
from phalanx.model.filters import matches
from phalanx.model.predicates import Predicate
from phalanx.model.properties import ANCHOR
from phalanx.model.specs import CustomField, PartitionSpec
from phalanx.table import ingest
from phalanx.table.anchor import anchor
from phalanx.table.filters import Filter, Parameters, predicate_of
from phalanx.table.format import count_text
from phalanx.table.operations.append import Append
from phalanx.table.operations.change_rows import ChangeRows
from phalanx.table.operations.constraint import AddConstraint, DropConstraint
from phalanx.table.operations.delete import Delete
from phalanx.table.operations.drop_partitions import DropPartitions
from phalanx.table.operations.evolve import (
    AddColumn,
    AddMissing,
    ChangeType,
    DescribeColumn,
    DropColumn,
    EvolvePartitioning,
    MakeNullable,
    MoveColumn,
    RenameColumn,
    ReorderColumns,
    SchemaChange,
    SetDefault,
)
from phalanx.table.operations.merge import Merge, check_merge
from phalanx.table.operations.overwrite import Overwrite
from phalanx.table.operations.rollback import Rollback
from phalanx.table.operations.set_properties import SetProperties
from phalanx.table.operations.tag import DropTag, Tag
from phalanx.table.operations.update import Update, assignments_of
from phalanx.table.partitioned_writer import BUFFER_BYTES, WRITERS, PartitionedWriter, WrittenLeaf
from phalanx.table.plan import Plan
from phalanx.table.scan import Scan
from phalanx.transaction.commit import Footprint, Transaction, durable_by_default
from phalanx.transaction.epochs import Epoch
from phalanx.transaction.snapshot import Snapshot, Version

if TYPE_CHECKING:
    from phalanx.table.table import Table

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class MergeCounts:
    """How many rows a merge inserted, updated and deleted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def __getitem__(self, name: str) -> int:
        return int(getattr(self, name))


def _exclusive(
    method: Callable[Concatenate[TableTransaction, P], T],
) -> Callable[Concatenate[TableTransaction, P], T]:
    """A method of a transaction that one thread runs at a time; others wait for their turn.

    It raises StorageError where the table's storage fails.
    """

    @functools.wraps(method)
    def run(self: TableTransaction, /, *arguments: P.args, **options: P.kwargs) -> T:
        with self._lock, self._table._snapshot.location.naming_failures():
            return method(self, *arguments, **options)

    return run


class TableTransaction:
    """Changes that become visible together at the end of a `with` block, or not at all.

    If a transaction with the same id has already been committed, `repeated` is True and no change
    has any effect. The methods take the arguments of the methods of `Table` and raise the same
    errors. After the block or after `commit`, reads and changes raise PhalanxError. Several threads
    may use one transaction; its methods run one at a time.
    """

    def __init__(
        self,
        table: Table,
        transaction_id: str | None,
        isolation: str,
        durable: bool | None,
        epoch: Epoch | None = None,
        started: float | None = None,
    ) -> None:
        """`started` is when its first file was written, in seconds since the epoch; None for now.

        Raises InvalidInput for an invalid id or isolation, and UnsupportedTable if this version of
        Phalanx cannot write to the table.
        """
        self._table = table
        #: Whether all leaves are published at the end, for plain Lance readers.
        self._publishes = False
        self._lock = threading.RLock()
        self._pool = ThreadPoolExecutor(WRITERS)
        if durable is None:
            durable = durable_by_default()
        try:
            with table._snapshot.location.naming_failures():
                self._transaction = Transaction(
                    table._snapshot,
                    self._pool,
                    transaction_id,
                    isolation,
                    durable,
                    epoch,
                    started=time.time() if started is None else started,
                )
                self.repeated = self._transaction.named and self._transaction.landed()
        except BaseException:
            self._pool.shutdown()
            raise
        self._open = True

    def __enter__(self) -> TableTransaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None and self._open:
                self.commit()
        finally:
            self._open = False
            self._pool.shutdown()

    @_exclusive
    def commit(self) -> None:
        """Commit the changes, and move the table to the snapshot that has them.

        Raises ConflictError if they cannot be reconciled with other transactions. The table then
        stays as it was, and the table object moves to the newest snapshot.
        """
        self._check_open()
        try:
            self._commit()
        finally:
            self._pool.shutdown()

    def _commit(self) -> None:
        self._open = False
        if self.repeated:
            self._table.refresh()
        else:
            self._swap()
        if self._publishes:
            anchor(self._table._snapshot, self._pool)

    def _swap(self) -> None:
        try:
            self._table._snapshot = self._transaction.commit()
        except ConflictError:
            with contextlib.suppress(PhalanxError):
                self._move_on()
            raise
        self.repeated = self._transaction.repeated

    def _move_on(self) -> None:
        """Move the table to the snapshot that this transaction has lost to, for another try."""
        newest = Snapshot.latest(self._table._snapshot.location)
        if newest.head.table_id == self._table._snapshot.head.table_id:
            self._table._snapshot = newest

    def _check_open(self) -> None:
        if not self._open:
            raise PhalanxError("this transaction is over: start another one")

    def _current(self) -> Snapshot:
        self._check_open()
        if self._transaction.operations:
            self._transaction.base.refuse_listed("changed in several steps")
        return self._transaction.view.current()

    # Reading

    @_exclusive
    def scan(
        self,
        columns: str | Sequence[str] | None = None,
        where: Filter | None = None,
        limit: int | None = None,
        params: Parameters | None = None,
    ) -> Scan:
        """Read rows as this transaction sees them, with its own changes.

        Under serializable isolation the commit fails with ConflictError if another transaction has
        changed these rows.
        """
        snapshot = self._current()
        predicate = predicate_of(where, snapshot, params)
        self._reads(predicate)
        return Scan(snapshot, columns, predicate, limit)

    def count(self, where: Filter | None = None, params: Parameters | None = None) -> int:
        """Count rows as this transaction sees them; see `scan`."""
        return self.scan(where=where, params=params).count()

    def _reads(self, predicate: Predicate) -> None:
        """Let the commit depend on the leaves that a predicate selects."""

        def footprint(snapshot: Snapshot) -> Footprint:
            leaves = Plan(snapshot, predicate).leaves
            return {leaf.row.object_id: (leaf.row.location, leaf.version) for leaf in leaves}

        self._transaction.reads.append(footprint)

    # Changing

    @_exclusive
    def append(
        self, data: Any, *, merge_schema: bool = False, buffer_bytes: int = BUFFER_BYTES
    ) -> None:
        """Add rows; with `merge_schema` also the columns that are missing in the table."""
        self._check_open()
        if self.repeated:
            return
        if merge_schema:
            data = self._with_columns(data, "append")
        chunks = ingest.chunks(data, self._schema, buffer_bytes)
        self.add(self._write(chunks, buffer_bytes, appends=True), "append", None)

    @_exclusive
    def add(self, written: Sequence[WrittenLeaf], mode: str, where: Predicate | None) -> None:
        """Add rows whose files are already written, beside the existing rows or instead of them.

        `mode` is "append", or names the rows to replace: "table", "partitions" or "where".
        """
        head = self._current().head
        if self.repeated:
            return
        if where is not None:
            self._transaction.run(Delete(head.schema, where, self._transaction.isolation))
        if mode in ("table", "partitions"):
            self._transaction.run(Overwrite(head, written, only_partitions=mode == "partitions"))
        else:
            self._transaction.run(Append(head, written))

    @_exclusive
    def overwrite(
        self,
        data: Any,
        mode: str = "table",
        *,
        where: Filter | None = None,
        merge_schema: bool = False,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        """Replace all rows, those of the partitions in `data`, or those that match `where`."""
        self._check_open()
        if mode not in ("table", "partitions"):
            raise InvalidInput(f"mode is 'table' or 'partitions', not {mode!r}")
        if where is not None and mode != "table":
            raise InvalidInput(f"overwrite takes a filter or the mode {mode!r}, not both")
        if self.repeated:
            return
        if merge_schema:
            data = self._with_columns(data, "overwrite")
        chunks = ingest.chunks(data, self._schema, buffer_bytes)
        if where is None:
            self.add(self._write(chunks, buffer_bytes), mode, None)
            return
        predicate = predicate_of(where, self._current())
        self.add(self._write(all_match(chunks, predicate), buffer_bytes), "where", predicate)

    @_exclusive
    def delete(self, where: Filter, params: Parameters | None = None) -> int:
        """Delete the rows that match `where`, and return their number."""
        return self._counted(self._delete(where, params))

    @_exclusive
    def _delete(self, where: Filter, params: Parameters | None = None) -> Callable[[], int]:
        """Delete the rows that match, and return a function that returns their number.

        A commit may run the change again on a newer snapshot. The function counts the last run.
        """
        snapshot = self._current()
        if where is None:
            raise InvalidInput("delete takes a filter; to delete every row, write 'TRUE'")
        predicate = predicate_of(where, snapshot, params)
        return self._delete_where(predicate)

    def _delete_where(self, predicate: Predicate) -> Callable[[], int]:
        if self.repeated:
            return lambda: 0
        operation = Delete(self._transaction.view.schema, predicate, self._transaction.isolation)
        self._transaction.run(operation)
        return lambda: operation.deleted

    @_exclusive
    def delete_where(self, predicate: Predicate) -> int:
        """Delete the rows that match a predicate, and return their number."""
        self._check_open()
        return self._counted(self._delete_where(predicate))

    @_exclusive
    def drop_partitions(self, leaves: Iterable[str]) -> None:
        """Remove leaves by their object ids, with all of their rows."""
        self._current()
        if not self.repeated:
            self._transaction.run(DropPartitions(frozenset(leaves)))

    @_exclusive
    def update(
        self,
        values: Mapping[str, Any],
        where: Filter | None = None,
        params: Parameters | None = None,
    ) -> int:
        """Set columns in the rows that match `where`, and return the number of these rows."""
        return self._counted(self._update(values, where, params))

    @_exclusive
    def _update(
        self, values: Mapping[str, Any], where: Filter | None, params: Parameters | None = None
    ) -> Callable[[], int]:
        snapshot = self._current()
        operation = Update(
            snapshot.head.schema,
            predicate_of(where, snapshot, params),
            self._transaction.isolation,
            assignments_of(values, snapshot),
        )
        if self.repeated:
            return lambda: 0
        self._transaction.run(operation)
        return lambda: operation.updated

    @_exclusive
    def merge(
        self,
        data: Any,
        on: str | Sequence[str],
        *,
        when_matched: str = "update",
        when_not_matched: str = "insert",
        merge_schema: bool = False,
    ) -> MergeCounts:
        """Match rows by key, and return how many were inserted, updated and deleted."""
        return self._counted(self._merge(data, on, when_matched, when_not_matched, merge_schema))

    @_exclusive
    def _merge(
        self,
        data: Any,
        on: str | Sequence[str],
        when_matched: str,
        when_not_matched: str,
        merge_schema: bool = False,
    ) -> Callable[[], MergeCounts]:
        self._check_open()
        on = [on] if isinstance(on, str) else on
        if merge_schema and not self.repeated:
            data = self._with_columns(data, "merge")
        snapshot = self._current()
        source = ingest.partial_rows(data, self._schema)
        check_merge(source, on, when_matched, when_not_matched, snapshot)
        if self.repeated:
            return MergeCounts
        operation = Merge(snapshot.head.schema, source, list(on), when_matched, when_not_matched)
        self._transaction.run(operation)
        return lambda: MergeCounts(operation.inserted, operation.updated, operation.deleted)

    @_exclusive
    def change_rows(self, change: ChangeRows, scope: Predicate) -> None:
        """Delete rows by their ids and add others.

        `scope` matches every row that was read to decide on the change. Under serializable
        isolation the commit fails with ConflictError if another transaction has changed these.
        """
        self._check_open()
        if self.repeated:
            return
        self._reads(scope)
        self._transaction.run(change)

    @_exclusive
    def rollback(self, version: Version) -> None:
        """Restore the rows, the schema and the spec of an earlier version."""
        self._current()
        if not self.repeated:
            self._transaction.run(Rollback(version))

    @_exclusive
    def tag(self, name: str, version: Version | None) -> None:
        """Give a version a name; None for the version that the transaction started from."""
        self._current()
        if not self.repeated:
            self._transaction.run(Tag(name, version))

    @_exclusive
    def drop_tag(self, name: str) -> None:
        """Remove a tag."""
        self._current()
        if not self.repeated:
            self._transaction.run(DropTag(name))

    @_exclusive
    def set_properties(self, values: Mapping[str, str | None]) -> None:
        """Set table properties; a value of None removes a property."""
        self._current()
        if not self.repeated:
            self._transaction.run(SetProperties(dict(values)))
        if ANCHOR.name in values:
            self._publishes = values[ANCHOR.name] == "commit"

    @_exclusive
    def add_constraint(self, name: str, sql: str, validated: int) -> None:
        """Add a condition that all rows of the version `validated` satisfy."""
        self._current()
        if not self.repeated:
            self._transaction.run(AddConstraint(name, sql, validated))

    @_exclusive
    def drop_constraint(self, name: str, if_exists: bool = False) -> None:
        """Drop a condition of rows."""
        self._current()
        if not self.repeated:
            self._transaction.run(DropConstraint(name, if_exists))

    @_exclusive
    def evolve_partitioning(
        self,
        partition_by: Sequence[str | CustomField],
        instead_of: PartitionSpec | None = None,
    ) -> None:
        """Add a new version of the partition spec, which applies to new rows.

        With `instead_of`, raises ConflictError if that is no longer the current spec.
        """
        self._current()
        if not self.repeated:
            self._transaction.run(EvolvePartitioning(partition_by, instead_of))

    def add_column(
        self,
        name: Path,
        type: pa.DataType | str,
        default: Any = None,
        *,
        nullable: bool = True,
        first: bool = False,
        after: str | None = None,
    ) -> None:
        """Add a column, or a field to a struct."""
        self._change_schema(AddColumn(name, type, default, nullable, first, after))

    def drop_column(self, path: Path) -> None:
        """Drop a column, or a field of a struct."""
        self._change_schema(DropColumn(path))

    def rename_column(self, path: Path, name: str) -> None:
        """Rename a column, or a field of a struct."""
        self._change_schema(RenameColumn(path, name))

    def change_type(self, path: Path, type: pa.DataType | str) -> None:
        """Widen the type of a column, or of a field of a struct."""
        self._change_schema(ChangeType(path, type))

    def set_default(self, path: Path, default: Any) -> None:
        """Set the default of a column for new rows; None for no default."""
        self._change_schema(SetDefault(path, default))

    def make_nullable(self, path: Path) -> None:
        """Allow NULL in a column, or in a field of a struct."""
        self._change_schema(MakeNullable(path))

    def describe_column(self, path: Path, texts: Mapping[str, str | None]) -> None:
        """Set texts about a column, such as its `comment`; a value of None removes a text."""
        self._change_schema(DescribeColumn(path, texts))

    @_exclusive
    def has_column(self, path: Path) -> bool:
        """Whether there is a column, or a field of a struct, with this path."""
        try:
            find(self._transaction.view.schema, path)
        except InvalidInput:
            return False
        return True

    def move_column(self, path: Path, *, first: bool = False, after: str | None = None) -> None:
        """Move a column, or a field of a struct: `first`, or `after` another one."""
        self._change_schema(MoveColumn(path, first, after))

    def reorder_columns(self, names: Sequence[str]) -> None:
        """Put the columns in the order of `names`, which lists all of them."""
        self._change_schema(ReorderColumns(names))

    def _with_columns(self, data: Any, operation: str) -> Any:
        """Add the columns that are missing in the table, and return the rows.

        The rows may be another object than `data`, which can be a stream.
        """
        columns, data = ingest.peek(data, self._schema)
        if len(columns):
            self._change_schema(AddMissing(operation, columns))
        return data

    @_exclusive
    def _change_schema(self, change: SchemaChange) -> None:
        self._current()
        if not self.repeated:
            self._transaction.run(change)

    def _counted(self, count: Callable[[], T]) -> T:
        """Return a count to the caller, and remember it.

        The caller may use it to decide on further changes. So a commit that runs the changes again
        on a newer snapshot checks that the count is still the same.
        """
        result = count()
        self._transaction.seen_counts.append((count, result))
        return result

    @property
    def _schema(self) -> pa.Schema:
        view = self._transaction.view
        return (view.head.declared or view.schema).arrow

    def _write(self, tables: Any, buffer_bytes: int, appends: bool = False) -> list[WrittenLeaf]:
        writer = PartitionedWriter(self._current(), self._pool, buffer_bytes, appends=appends)
        progress.begin(None, "rows")
        return writer.write(progress.counted(tables, lambda table: int(table.num_rows)))


def all_match(tables: Any, predicate: Predicate) -> Any:
    """Pass tables on, and raise InvalidInput for a row that does not match the predicate.

    The next overwrite with the same filter would not replace such a row.
    """
    for table in tables:
        wrong = table.num_rows - int(matches(predicate, table).sum())
        if wrong:
            raise InvalidInput(
                f"{count_text(wrong, 'row')} {'does' if wrong == 1 else 'do'} not match "
                f"{to_text(predicate)}: only rows that match `where` can replace those that do"
            )
        yield table
