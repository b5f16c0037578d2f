"""The table as a user holds it."""

from __future__ import annotations

import datetime as dt
import logging
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from phalanx.model.evolution import Path
from phalanx.model.specs import CustomField, PartitionSpec
from phalanx.storage.location import Location
from phalanx.table import inspect, optimize, rewrite
from phalanx.table.advise import LEAF_BYTES, Advice, advise
from phalanx.table.check import CheckReport, check_table
from phalanx.table.create import create_table, first_head
from phalanx.table.operations.evolve import next_spec
from phalanx.table.optimize import OptimizeReport
from phalanx.table.partitioned_writer import BUFFER_BYTES
from phalanx.table.repair import RepairReport, repair_table
from phalanx.table.retention import ExpireReport, expire_snapshots
from phalanx.table.rewrite import RewriteReport
from phalanx.table.scan import Scan
from phalanx.table.transaction import MergeCounts, TableTransaction
from phalanx.table.vacuum import VacuumReport, vacuum
from phalanx.transaction.epochs import Epoch
from phalanx.transaction.snapshot import Snapshot, Version
from phalanx.transaction.strengthen import strengthen

log = logging.getLogger("phalanx")

Uri = str | os.PathLike[str]


def create(
    uri: Uri,
    schema: pa.Schema,
    partition_by: Sequence[str | CustomField] = (),
    transactions: str = "strong",
    storage_options: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """Make a new, empty table.

    `partition_by` lists the fields, outermost first: a column, `year(c)`, `days(c)`,
    `bucket(16, c)`, `multi_bucket(16, a, b)`, `truncate(4, c)` or `phalanx.expr(…)`; without
    any, the table is one leaf.

    Raises TableExists where there is a table already, InvalidInput where schema and fields do
    not go together. Nothing is written then.
    """
    location = Location(uri, storage_options)
    head = first_head(schema, partition_by, transactions, properties)
    with ThreadPoolExecutor(1) as pool:
        return Table(create_table(location, head, (), pool, time.time()))


def open(
    uri: Uri,
    version: Version | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Open a table as it is now, as it was at a version or tag, or at a time.

    Raises TableNotFound where there is none.
    """
    location = Location(uri, storage_options)
    if version is None:
        return Table(Snapshot.latest(location))
    return Table(Snapshot.at(location, version))


def check(uri: Uri, storage_options: Mapping[str, str] | None = None) -> CheckReport:
    """Look for every inconsistency in a table, also in one that cannot be opened any more."""
    return check_table(Location(uri, storage_options))


def repair(
    uri: Uri, dry_run: bool = False, storage_options: Mapping[str, str] | None = None
) -> RepairReport:
    """Mend what `check` finds where it can be mended, also in a table that cannot be opened."""
    return repair_table(Location(uri, storage_options), dry_run)


class Table:
    """A table at one snapshot.

    It moves with the changes made through it; another writer's changes show after `refresh`.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    # What it is

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._snapshot.location.uri

    @property
    def version(self) -> int:
        """The number of the snapshot: 1 for a new table, one more for each transaction."""
        return self._snapshot.sequence

    @property
    def schema(self) -> pa.Schema:
        return self._snapshot.head.schema.arrow

    @property
    def spec(self) -> PartitionSpec:
        """The partition spec that new rows are written under."""
        return self._snapshot.head.spec

    @property
    def specs(self) -> tuple[PartitionSpec, ...]:
        """Every spec the table has had, oldest first."""
        return self._snapshot.head.specs

    def refresh(self) -> Table:
        """Move to the newest snapshot."""
        self._snapshot = Snapshot.latest(self._snapshot.location)
        return self

    # Reading

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> Scan:
        """The rows that match `where`, with some columns. Nothing is read yet."""
        return Scan(self._snapshot, columns, where, limit)

    def count(self, where: str | None = None) -> int:
        """How many rows match; from the manifest alone where partition values decide it."""
        return self.scan(where=where).count()

    def count_by(self, columns: Sequence[str], where: str | None = None) -> pa.Table:
        """How many rows match for each combination of some columns, in a column `count`.

        A name is a column or a partition field. From the manifest alone where all of them are
        partition values and partition values decide the filter.
        """
        return inspect.count_by(self._snapshot, columns, where)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    # Looking

    def partitions(self) -> pa.Table:
        """One row for each leaf: its values, rows, bytes, fragments, URI and version."""
        return inspect.partitions(self._snapshot)

    def snapshots(self) -> pa.Table:
        """One row for each transaction, oldest first."""
        return inspect.snapshots(self._snapshot)

    def files(self) -> pa.Table:
        """One row for each data file of the current snapshot."""
        return inspect.files(self._snapshot)

    # Changing

    def transaction(
        self,
        *,
        transaction_id: str | None = None,
        isolation: str = "serializable",
        durable: bool | None = None,
        epoch: Epoch | None = None,
    ) -> TableTransaction:
        """Several changes as one: `with table.transaction() as tx: tx.append(…); tx.delete(…)`.

        Inside, reads through `tx` see its own changes. An exception leaves the table as it was.
        With an `epoch` of a stream in the place of a `transaction_id` they land once: it does
        nothing where the same or a later one of that stream has landed, however long ago.
        """
        return TableTransaction(self, transaction_id, isolation, durable, epoch)

    def append(
        self,
        data: Any,
        merge_schema: bool = False,
        *,
        buffer_bytes: int = BUFFER_BYTES,
        **options: Any,
    ) -> Table:
        """Add rows, in one transaction: all of them are visible afterwards, or none.

        `data` is a pyarrow Table, RecordBatchReader or Dataset, a pandas DataFrame, a list of
        dicts, or anything with an Arrow stream. It is read as a stream, and at most about
        `buffer_bytes` of rows wait in memory. With `merge_schema`, columns that the rows have and
        the table has not are added to it in the same transaction.

        Every change takes `transaction_id` (repeating one that has landed does nothing),
        `isolation` ("serializable" or "snapshot") and `durable`.

        Raises InvalidInput where the rows do not fit the schema; nothing is changed then.
        """
        with self.transaction(**options) as tx:
            tx.append(data, merge_schema=merge_schema, buffer_bytes=buffer_bytes)
        return self

    def overwrite(
        self,
        data: Any,
        mode: str = "table",
        *,
        where: str | None = None,
        merge_schema: bool = False,
        buffer_bytes: int = BUFFER_BYTES,
        **options: Any,
    ) -> Table:
        """Replace rows: all of them, with `mode="partitions"` those of the partitions present in
        `data`, with `where` those that match it (and `data` must match it too).

        Partitions are those of the newest spec: what was written under earlier ones stays.
        """
        with self.transaction(**options) as tx:
            tx.overwrite(
                data, mode, where=where, merge_schema=merge_schema, buffer_bytes=buffer_bytes
            )
        return self

    def delete(self, where: str, **options: Any) -> int:
        """Delete the rows that match; returns how many there were.

        Partitions that match whole leave the table without being opened.
        """
        with self.transaction(**options) as tx:
            deleted = tx._delete(where)
        return deleted()

    def update(self, values: Mapping[str, str], where: str | None = None, **options: Any) -> int:
        """Set columns to SQL expressions in the rows that match; returns how many there were.

        A row whose partition values change moves to its new partition.
        """
        with self.transaction(**options) as tx:
            updated = tx._update(values, where)
        return updated()

    def merge(
        self,
        data: Any,
        on: Sequence[str],
        *,
        when_matched: str = "update",
        when_not_matched: str = "insert",
        merge_schema: bool = False,
        **options: Any,
    ) -> MergeCounts:
        """Upsert: replace the rows that have the same key, insert the others.

        `when_matched` may also be "delete" or "ignore", `when_not_matched` "ignore". NULL keys
        match nothing. Returns how many rows were inserted, updated and deleted.
        """
        with self.transaction(**options) as tx:
            counts = tx._merge(data, on, when_matched, when_not_matched, merge_schema)
        return counts()

    def make_strong(self) -> Table:
        """Turn a weak table into a strong one: from now on changes are atomic and versioned.

        Writers that still take it for weak find out before they are done: what the table took
        over of their rows counts, and the rest is added in a strong transaction.
        """
        self._snapshot = strengthen(self._snapshot.location)
        return self

    def rollback(self, version: Version, **options: Any) -> Table:
        """Bring an earlier version or tag back, as a new snapshot. Nothing in between is lost."""
        with self.transaction(**options) as tx:
            tx.rollback(version)
        return self

    def tag(self, name: str, version: Version | None = None, **options: Any) -> Table:
        """Give a version a name: `open(uri, version=name)` finds it, and vacuum keeps it."""
        with self.transaction(**options) as tx:
            tx.tag(name, self.version if version is None else version)
        return self

    def drop_tag(self, name: str, **options: Any) -> Table:
        """Take a tag away."""
        with self.transaction(**options) as tx:
            tx.drop_tag(name)
        return self

    def tags(self) -> dict[str, int]:
        """The versions that have names, by name."""
        return {name: tag.version for name, tag in self._snapshot.tags().items()}

    @property
    def properties(self) -> Mapping[str, str]:
        return dict(self._snapshot.head.properties)

    def set_properties(self, values: Mapping[str, str | None], **options: Any) -> Table:
        """Set properties of the table; None takes one away.

        `anchor` says when leaf versions are published on their main branches, for plain Lance
        readers: at "maintenance" (vacuum and optimize), at every "commit", or "never".
        `retention.snapshots` says how long snapshots are kept, such as "30 days", and
        `retention.min_snapshots` how many of the newest are kept however old they are.
        """
        with self.transaction(**options) as tx:
            tx.set_properties(values)
        return self

    # Changing its shape

    def evolve_partitioning(
        self, partition_by: Sequence[str | CustomField], **options: Any
    ) -> Table:
        """Partition by other fields from now on, as a new version of the spec.

        Entries are those of `create`. Rows that are there stay in the partitions they are in, and
        a query leaves partitions out by the spec that each was written under. Where the table is
        partitioned like that already, nothing happens but a warning.

        Raises InvalidInput for an unknown column, or fields that do not go together.
        """
        if self._is_partitioned_by(partition_by) and self.refresh()._is_partitioned_by(
            partition_by
        ):
            log.warning("%s is partitioned like that already: nothing was changed", self.uri)
            return self
        with self.transaction(**options) as tx:
            tx.evolve_partitioning(partition_by)
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
        """Add a column; `name` is `a.b` (or `("a", "b")`) for a field of the struct `a`.

        Rows that are there hold `default`, and so do rows that come without the column; one that
        must not be NULL needs a default. It comes last, `first`, or `after` another one.

        Changes of the schema are one snapshot each and touch no row, whatever the size of the
        table. They raise InvalidInput where the column is not there, or there already.
        """
        with self.transaction(**options) as tx:
            tx.add_column(name, type, default, nullable=nullable, first=first, after=after)
        return self

    def drop_column(self, path: Path, **options: Any) -> Table:
        """Take a column, or a field of a struct, out. Another by that name starts without values.

        A spec that refers to it sees NULL from then on.
        """
        with self.transaction(**options) as tx:
            tx.drop_column(path)
        return self

    def rename_column(self, path: Path, name: str, **options: Any) -> Table:
        """Give a column, or a field of a struct, another name. Specs go by ids, so they hold."""
        with self.transaction(**options) as tx:
            tx.rename_column(path, name)
        return self

    def change_type(self, path: Path, type: pa.DataType | str, **options: Any) -> Table:
        """Widen a column: integers, float to double, decimals to more digits, date to timestamp.

        A column that the table is or was partitioned by cannot go from date to timestamp: its
        rows would belong elsewhere.
        """
        with self.transaction(**options) as tx:
            tx.change_type(path, type)
        return self

    def make_nullable(self, path: Path, **options: Any) -> Table:
        """Let a column be NULL that must not be so far."""
        with self.transaction(**options) as tx:
            tx.make_nullable(path)
        return self

    def describe_column(self, path: Path, texts: Mapping[str, str | None], **options: Any) -> Table:
        """Say something about a column: `{"comment": "…"}`, as Spark shows it. None forgets it."""
        with self.transaction(**options) as tx:
            tx.describe_column(path, texts)
        return self

    def move_column(
        self, path: Path, *, first: bool = False, after: str | None = None, **options: Any
    ) -> Table:
        """Put a column, or a field of a struct, first or after another one."""
        with self.transaction(**options) as tx:
            tx.move_column(path, first=first, after=after)
        return self

    def reorder_columns(self, names: Sequence[str], **options: Any) -> Table:
        """Put the columns in another order; all of them are named."""
        with self.transaction(**options) as tx:
            tx.reorder_columns(names)
        return self

    def _is_partitioned_by(self, partition_by: Sequence[str | CustomField]) -> bool:
        head = self._snapshot.head
        return next_spec(head, partition_by).fields == head.spec.fields

    # Upkeep

    def vacuum(
        self, older_than: dt.timedelta | None = None, dry_run: bool = False, force: bool = False
    ) -> VacuumReport:
        """Remove snapshots older than `older_than` and the files that nothing needs.

        Without an age, snapshots go as the table's properties say (after 7 days by default), and
        files after 7 days. Tagged versions stay. Files younger than 24 hours stay unless forced: a
        writer that is still running may own them.
        """
        report = vacuum(self._snapshot, older_than, dry_run, force)
        if not dry_run:
            self.refresh()
        return report

    def expire_snapshots(
        self, older_than: dt.timedelta | None = None, dry_run: bool = False
    ) -> ExpireReport:
        """Give up the snapshots that were the newest only before that time; no file goes yet.

        Without an age the property `retention.snapshots` says it, and 7 days where it is not set.
        """
        report = expire_snapshots(self._snapshot, older_than, dry_run)
        if not dry_run:
            self.refresh()
        return report

    def optimize(
        self,
        where: str | None = None,
        target_rows: int | None = None,
        target_bytes: int | None = None,
        dry_run: bool = False,
        *,
        sort_by: Sequence[str | tuple[str, str]] | None = None,
        zorder_by: Sequence[str] | None = None,
    ) -> OptimizeReport:
        """Put the rows of each partition into fewer, larger files; deleted rows leave them.

        `where` chooses partitions: one that may hold a matching row is taken whole. Files get
        about `target_rows` rows (1,048,576) or `target_bytes` bytes (128 MiB), whichever comes
        first. With `sort_by` (names, or pairs such as `("ts", "descending")`) or `zorder_by`
        every chosen partition is rewritten in that order.

        No row changes, and others may write meanwhile. Some leaves at a time become one
        transaction, so what is done stays done if it is interrupted.
        """
        report = optimize.optimize(
            self._snapshot, where, target_rows, target_bytes, dry_run, sort_by, zorder_by
        )
        if not dry_run:
            self.refresh()
        return report

    def rewrite(
        self,
        where: str | None = None,
        *,
        step_rows: int | None = None,
        step_bytes: int | None = None,
        max_steps: int | None = None,
        dry_run: bool = False,
    ) -> RewriteReport:
        """Move rows that were written under earlier specs into the partitions of the newest.

        `where` chooses partitions: one that may hold a matching row is moved whole. Each step is
        a transaction of at most `step_rows` rows (67,108,864) and `step_bytes` bytes (4 GiB), or
        one file. No row changes, others may write meanwhile, and a call that was interrupted is
        repeated to go on; `max_steps` stops it on purpose.
        """
        report = rewrite.rewrite(self._snapshot, where, step_rows, step_bytes, max_steps, dry_run)
        if not dry_run:
            self.refresh()
        return report

    def advise(self, leaf_bytes: int = LEAF_BYTES) -> Advice:
        """Which partitions are too small, too large or skewed, what would be better, and how.

        Only the manifest is looked at. A leaf of about `leaf_bytes` (512 MiB) is as it should be.
        """
        return advise(self._snapshot, leaf_bytes)

    def check(self) -> CheckReport:
        """Look for every inconsistency in the table; changes nothing."""
        return check_table(self._snapshot)

    def repair(self, dry_run: bool = False) -> RepairReport:
        """Mend what `check` finds where it can be mended, and say what cannot."""
        report = repair_table(self._snapshot.location, dry_run)
        if not dry_run:
            self.refresh()
        return report

    def __repr__(self) -> str:
        fields = ", ".join(self.spec.spell(self._snapshot.head.schema)) or "nothing"
        return f"<phalanx.Table {self.uri}, version {self.version}, partitioned by {fields}>"
