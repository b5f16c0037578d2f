"""Transactions: changes to any number of leaves that become visible together, or not at all.

A transaction is a list of operations. Each runs on a view of a snapshot. Leaves are committed
detached, and one swap of the manifest makes all of them the table's next snapshot. A transaction
that loses the swap runs its operations again on the newer snapshot. It keeps what it has written
or computed for leaves that no other transaction has changed, so losing a swap moves no data.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Protocol

from phalanx.errors import ConflictError, CorruptTable, InvalidInput, PhalanxError, TableNotFound
from phalanx.model.properties import ANCHOR, ISOLATION
from phalanx.storage import fsync
from phalanx.storage.files import GRACE_FLOOR, DatasetFolder
from phalanx.storage.head import Head
from phalanx.storage.layouts import layout_of
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.storage.main_branch import MainBranch
from phalanx.storage.manifest import ManifestVersion, SwapLost
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx.storage.records import TransactionRecord
from phalanx.transaction.conflicts import same_rows
from phalanx.transaction.epochs import Epoch
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.strengthen import MAKE_STRONG
from phalanx.transaction.swap import Proposal, swap_head
from phalanx.transaction.tiny_leaves import check_new_leaves
from phalanx.transaction.view import Commits, Counts, View

log = logging.getLogger("phalanx")

#: The manifest is compacted when it has more small fragments: each makes reads and swaps slower.
_MOST_FRAGMENTS = 8
#: After how many transactions the manifest's indexes are updated as well.
_REINDEX_EVERY = 80
#: A transaction that writes more rows of the manifest updates the indexes at once: every later one
#: would read these rows without them, which takes seven times as long with 100,000 leaves.
_REINDEX_ROWS = 10_000
#: A transaction that took longer checks that its files still exist: vacuum keeps new files for
#: twice as long.
_VERIFY_AFTER = GRACE_FLOOR / 2

#: The id of a transaction whose author has not chosen one.
_RANDOM_ID = re.compile("[0-9a-f]{32}")
#: How many transactions that came first a message names, at most.
_NAMED_OTHERS = 4

#: The leaves that a read depends on: their folders and versions by id.
Footprint = Mapping[str, tuple[str, int | None]]


def durable_by_default() -> bool:
    """Whether commits wait until their files are on disk, if the caller does not say."""
    return os.environ.get("PHALANX_DURABLE", "").lower() in ("1", "true", "yes")


class Operation(Protocol):
    """One change, which can be run again on a newer snapshot."""

    name: str

    def run(self, view: View) -> None:
        """Compute the change and record it in the view."""


class Transaction:
    """Operations that start from one snapshot and together become the next, or have no effect."""

    def __init__(
        self,
        base: Snapshot,
        pool: Executor,
        transaction_id: str | None = None,
        isolation: str = "serializable",
        durably: bool = False,
        epoch: Epoch | None = None,
        *,
        started: float,
    ) -> None:
        """`started` is a time before the transaction's first file was written.

        Raises InvalidInput for an invalid id, UnsupportedTable if the table must not be written to.
        """
        base.manifest.check_appendable(base.head, transaction_id is not None)
        if epoch is not None:
            base.refuse_weak("written by a stream")
            transaction_id = epoch.transaction_id
        if transaction_id is not None and (
            not isinstance(transaction_id, str) or not 0 < len(transaction_id) <= 512
        ):
            raise InvalidInput("a transaction_id is a string of 1 to 512 characters")
        self.base, self.epoch = base, epoch
        self.id = transaction_id or uuid.uuid4().hex
        self.named = transaction_id is not None
        self.isolation = ISOLATION.kind.read(isolation, "isolation")
        self.durable = durably and base.location.is_local
        self._started = started
        self.operations: list[Operation] = []
        #: What the author has read: functions that return the leaves that a read depends on.
        self.reads: list[Callable[[Snapshot], Footprint]] = []
        #: The counts that the author has seen: functions that count, and their results.
        self.seen_counts: list[tuple[Callable[[], object], object]] = []
        #: Whether the commit found that another attempt with the same id had landed already.
        self.repeated = False
        #: Ids of stray rows that the transaction takes in or gives up.
        self.settled: tuple[str, ...] = ()
        self._failed = False
        self._commits = Commits()
        self._pool = pool
        self._view = View(base, self._commits, pool)

    @property
    def location(self) -> Location:
        return self.base.location

    @property
    def counts(self) -> Counts:
        """The rows that the transaction has added and removed so far."""
        return self._view.counts

    @property
    def view(self) -> View:
        return self._view

    def run(self, operation: Operation) -> None:
        """Run an operation and add it to the transaction.

        If it fails, the transaction cannot be committed any more, unless the operation was refused
        before it recorded a change.
        """
        before = self._view.steps
        written = getattr(operation, "written", ())
        self.base.manifest.check_operation(operation.name, len(written))
        try:
            operation.run(self._view)
        except BaseException as error:
            refused = isinstance(error, InvalidInput | TableNotFound)
            self._failed |= not (refused and self._view.steps == before)
            if isinstance(error, CorruptTable):
                # Files may be missing because there is another table at this location now.
                self._check_same(Snapshot.latest(self.location))
            raise
        self.operations.append(operation)

    def landed(self, newest: Snapshot | None = None) -> bool:
        """Whether a transaction with this id is part of the table already."""
        if newest is not None and newest.news is not None and self.epoch is None:
            return self.id in newest.news
        manifest = ManifestVersion(self.location) if newest is None else newest.manifest
        if self.epoch is not None:
            return self.epoch.landed(manifest)
        return manifest.has_transaction(self.id)

    def commit(self) -> Snapshot:
        """Make the changes visible, and return the snapshot that has them.

        Raises ConflictError if they conflict with another transaction's, and InvalidInput if they
        create more leaves than the table's properties allow. The table is unchanged then, except
        that leaves of a weak table may be committed already.
        """
        if self._failed:
            raise PhalanxError(
                f"a change in this transaction on {self.location.uri} failed, so none of it was "
                "committed: start another one"
            )
        check_new_leaves(self._view)
        who = f"the transaction {self.id}"
        if self._view.is_weak:
            if self._took_long:
                self._verify_pending()
            if not self.named:
                self._view.settle()
            return swap_head(self.location, who, self._decide_weak)
        return swap_head(self.location, who, self._decide, self._prepare)

    def _prepare(self) -> None:
        """Do what needs no lock."""
        self._view.settle()
        reach("commit.leaves-committed")

    def _decide(self) -> Proposal[Snapshot] | Snapshot:
        """Propose the view as the next snapshot; return the newest if it has landed already."""
        newest = Snapshot.latest(self.location, self._view.base)
        # The sequence is not enough: a table that was dropped and created again has the same.
        if newest.head.transaction_id != self._view.base.head.transaction_id:
            if self.landed(newest):
                self.repeated = self.named
                return newest
            self._rebase(newest)
            reach("commit.rebased")
        else:
            self._view.base.manifest = newest.manifest
        return self._proposal()

    def _decide_weak(self) -> Proposal[Snapshot] | Snapshot:
        """Commit each leaf on main, then propose to add new leaves and the transaction's record."""
        newest = Snapshot.latest(self.location, self._view.base)
        if self.landed(newest):
            self.repeated = self.named
            return newest
        self._check_table(newest)
        if newest.head.transactions != "weak":
            return self._finish_as_strong(newest)
        # A transaction with an id commits its leaves only under the lock, after checking that it
        # has not landed yet: of two concurrent attempts, the second does nothing.
        self._view.settle()
        if newest.head.transaction_id != self._view.base.head.transaction_id:
            self._follow_weak(newest)
        reach("commit.leaves-committed")
        if self.durable:
            fsync.sync(self._view.leaf_uris(), self._started)
        head = newest.head.after(dt.datetime.now(dt.UTC), self.id, **self._view.head_changes)
        update = ManifestUpdate(head.specs, strong=False)
        self._view.put_weak_leaves(newest, update, head.sequence)
        update.put_head(head)
        update.put_transaction(self._record(head, removals=0))
        manifest = self._manifest_for(newest, head)
        finish = self._finish_weak
        return Proposal(manifest, head, update, lambda after: self._finish(after, head, finish))

    def _finish_weak(self, manifest: ManifestVersion, head: Head) -> Snapshot:
        _publish(manifest, head)
        return Snapshot.latest(self.location)

    def _follow_weak(self, newest: Snapshot) -> None:
        """Run changes of the table itself again, on a newer snapshot.

        Raises ConflictError if the transaction has changed rows as well: they are committed.
        """
        if not self._view.head_changes:
            return
        if self._view.leaf_uris():
            raise ConflictError(
                f"the table {self.location.uri} was changed by another transaction while this one "
                "changed both its rows and the table itself: look at what is there, and make the "
                "two changes one after the other"
            )
        self._view = View(newest, self._commits, self._pool)
        for operation in self.operations:
            operation.run(self._view)

    def _finish_as_strong(self, newest: Snapshot) -> Proposal[Snapshot]:
        """Finish a transaction whose table became strong: add the rows that were not taken over.

        Raises ConflictError if it has done more than add rows.
        """
        if not self._commits.only_added:
            raise ConflictError(
                f"the table {self.location.uri} became strong while rows of it were changed: look "
                "at what is there, and try again"
            )
        if self._commits.any_on_main:
            self._commits.taken_over = _taken_over(newest)
        self.base = newest
        self._view = View(newest, self._commits, self._pool)
        # Writers of a weak table may have moved rows without a record of it.
        self._view.rows_moved = self.isolation == "snapshot"
        for operation in self.operations:
            operation.run(self._view)
        self._view.settle()
        return self._proposal()

    def _proposal(self) -> Proposal[Snapshot]:
        """Propose the view as the table's next snapshot."""
        snapshot = self._view.base
        head = snapshot.head.after(dt.datetime.now(dt.UTC), self.id, **self._view.head_changes)
        manifest = self._manifest_for(snapshot, head)
        update = ManifestUpdate(head.specs)
        self._view.put_leaves(update, head.sequence)
        update.put_head(head)
        record = self._record(head, removals=len(update.removed))
        update.put_transaction(record, new=not self.named)
        if self.epoch is not None:
            update.put_epoch(self.epoch.record(head))
        if self._took_long:
            self._verify()
        if self.durable:
            fsync.sync([leaf.uri for leaf, _ in self._view.changed_leaves()], self._started)
            reach("commit.leaves-synced")
        finish = functools.partial(self._complete, rows=len(update))
        return Proposal(manifest, head, update, lambda after: self._finish(after, head, finish))

    def _manifest_for(self, base: Snapshot, head: Head) -> ManifestVersion:
        """The manifest, with columns for the fields of new specs.

        Raises SwapLost if another transaction has committed since `base`.
        """
        if head.specs == base.head.specs:
            return base.manifest
        manifest = base.manifest.prepare_for(head.specs, base.head.specs)
        reach("commit.columns-added")
        if manifest.head().transaction_id != base.head.transaction_id:
            raise SwapLost("another transaction has committed meanwhile")
        return manifest

    def _finish(
        self,
        manifest: ManifestVersion | None,
        head: Head,
        complete: Callable[[ManifestVersion, Head], Snapshot],
    ) -> Snapshot:
        """Do what follows the swap. The transaction has landed, even if this fails."""
        try:
            if self.durable:
                fsync.sync([self.location.manifest], self._started)
                reach("commit.manifest-synced")
            if manifest is None:
                return Snapshot.latest(self.location)
            snapshot = complete(manifest, head)
            if self.durable:
                # Sync what was written after the swap as well: it is opened next.
                fsync.sync([*self._view.leaf_uris(), self.location.manifest], self._started)
            return snapshot
        except Exception as error:
            raise PhalanxError(
                f"the transaction {self.id} has landed as version {head.sequence} of "
                f"{self.location.uri}, so do not repeat it, but then something failed: {error}"
            ) from error

    def _complete(self, manifest: ManifestVersion, head: Head, rows: int) -> Snapshot:
        """Publish what has changed, and compact the manifest if it is due.

        `rows` is how many rows of the manifest the transaction has written.
        """
        if ANCHOR.of(head.properties) == "commit":
            list(self._pool.map(_anchor, self._view.changed_leaves()))
            if layout_of(head.properties).SHARED:  # others find leaves by their folders
                list(self._pool.map(_withdraw, self._view.removed_leaves()))
        _publish(manifest, head)
        snapshot = Snapshot(manifest, head, self._view.current().leaves)
        _compact(snapshot, rows)
        snapshot.cache_after(len(self.counts.leaves), self._view.base)
        return snapshot

    @property
    def _took_long(self) -> bool:
        """Whether a vacuum may have removed files that the transaction wrote."""
        return time.time() - self._started > _VERIFY_AFTER.total_seconds()

    def _verify(self) -> None:
        """Raise ConflictError if files of the committed versions of leaves are missing."""
        for leaf, version in self._view.changed_leaves():
            folder = DatasetFolder(self.location, leaf.folder)
            try:
                gone = folder.missing(version)
            except CorruptTable as error:
                gone = [str(error)]
            self._refuse_without(gone)

    def _verify_pending(self) -> None:
        """Raise ConflictError if files are missing that a weak table's leaves are to receive."""
        for leaf, paths in self._view.pending_files():
            existing = DatasetFolder(self.location, leaf.folder).by_path
            self._refuse_without([path for path in paths if path not in existing])

    def _refuse_without(self, gone: Sequence[str]) -> None:
        if gone:
            raise ConflictError(
                f"the transaction {self.id} on {self.location.uri} took so long that a vacuum has "
                f"removed files it had written ({gone[0]}): nothing was changed, try again"
            )

    def _check_same(self, newest: Snapshot) -> None:
        if newest.head.table_id != self.base.head.table_id:
            raise ConflictError(f"the table {self.location.uri} was dropped and made again")

    def _check_table(self, newest: Snapshot) -> None:
        """Raise ConflictError if the table is not the one that rows were written for."""
        self._check_same(newest)
        # Rows of a weak table are written already. In a strong table each change checks by itself.
        if (self.reads or self._view.is_weak) and newest.head.schema != self.base.head.schema:
            raise ConflictError(
                f"the schema of {self.location.uri} was changed by {self._others(newest)}: nothing "
                "was written, try again"
            )
        if self.base.head.constraints != newest.head.constraints:
            raise ConflictError(
                f"the constraints of {self.location.uri} were changed by {self._others(newest)}: "
                "nothing was written, try again"
            )
        newest.manifest.check_appendable(newest.head, self.named)

    def _rebase(self, newest: Snapshot) -> None:
        """Run the operations again on a newer snapshot."""
        self._check_table(newest)
        self._check_reads(newest)
        self._view = View(newest, self._commits, self._pool)
        self._view.rows_moved = self.isolation == "snapshot" and self._moved_since(newest)
        for operation in self.operations:
            operation.run(self._view)
        self._view.settle()
        self._check_seen_counts(newest)

    def _moved_since(self, newest: Snapshot) -> bool:
        """Whether another transaction may have moved rows from one leaf to another."""
        return any(record.may_move_rows for record in self._since(newest))

    def _since(self, newest: Snapshot) -> list[TransactionRecord]:
        """The transactions since the base."""
        return newest.manifest.transactions(since=self.base.sequence + 1)

    def _check_seen_counts(self, newest: Snapshot) -> None:
        """Raise ConflictError if a count that the author has seen is different now.

        It does not matter if the transaction has a single change: no other change depends on it.
        """
        if self.isolation != "serializable" or len(self.operations) < 2:
            return
        if any(count() != result for count, result in self.seen_counts):
            raise ConflictError(
                f"rows of {self.location.uri} that this transaction changes were changed by "
                f"{self._others(newest)}, and its counts are different now: nothing was written, "
                "try again"
            )

    def _check_reads(self, newest: Snapshot) -> None:
        """Raise ConflictError if rows that the author has read were changed."""
        if self.isolation != "serializable":
            return
        for footprint in self.reads:
            if not self._same_rows(footprint(self.base), footprint(newest)):
                raise ConflictError(
                    f"rows of {self.location.uri} that this transaction has read were changed by "
                    f"{self._others(newest)}: nothing was written, try again"
                )

    def _same_rows(self, before: Footprint, after: Footprint) -> bool:
        """Whether leaves hold the same rows, in whatever files."""
        schema = self.base.head.schema
        return before.keys() == after.keys() and all(
            folder == after[id][0]
            and same_rows(Leaf(self.location, folder, schema), version, after[id][1])
            for id, (folder, version) in before.items()
        )

    def _others(self, newest: Snapshot) -> str:
        """The transactions since the base, for an error message."""
        records = sorted(self._since(newest), key=lambda record: record.sequence)
        names = [f"version {record.sequence} ({_what(record)})" for record in records]
        if len(names) > _NAMED_OTHERS:
            names[_NAMED_OTHERS - 1 :] = [f"{len(names) - _NAMED_OTHERS + 1:,} more"]
        return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "another client"

    def _record(self, head: Head, removals: int) -> TransactionRecord:
        counts = self.counts
        operations = {operation.name for operation in self.operations}
        return TransactionRecord.of(
            head,
            operations.pop() if len(operations) == 1 else "transaction",
            rows_added=counts.added,
            rows_removed=counts.removed,
            leaves=len(counts.leaves),
            removals=removals,
            settled=self.settled,
            restores=counts.restored,
        )


def _what(record: TransactionRecord) -> str:
    """What a transaction did, and its id if its author has chosen one."""
    operation = record.operation or "a transaction"
    return operation if _RANDOM_ID.fullmatch(record.id) else f"{operation}, id {record.id!r}"


def _anchor(leaf_at: tuple[Leaf, int | None]) -> None:
    """Publish the version of a leaf for plain Lance readers."""
    leaf, version = leaf_at
    if MainBranch(leaf.location, leaf.folder).publish(version):
        _warn_of_others(leaf)
    reach("commit.leaf-anchored")


def _withdraw(leaf: Leaf) -> None:
    """Show plain Lance readers that a leaf has no rows any more."""
    if MainBranch(leaf.location, leaf.folder).withdraw():
        _warn_of_others(leaf)
    reach("commit.leaf-withdrawn")


def _warn_of_others(leaf: Leaf) -> None:
    log.warning(
        "the leaf %s was not published, because another client has written to its main branch: "
        "run check()",
        leaf.uri,
    )


def _compact(snapshot: Snapshot, rows: int) -> None:
    """Compact the manifest if it is due. A failure is logged and has no other effect."""
    reindex = snapshot.sequence % _REINDEX_EVERY == 0 or rows > _REINDEX_ROWS
    manifest = snapshot.manifest
    if not reindex and manifest.small_fragments <= _MOST_FRAGMENTS:
        return
    try:
        reach("compact.before")
        if reindex or manifest.gather().small_fragments > _MOST_FRAGMENTS:
            manifest.compact(reindex)
        reach("compact.after")
    except Exception as error:
        log.warning("the manifest of %s was not compacted: %s", snapshot.location.uri, error)


def _publish(manifest: ManifestVersion, head: Head) -> None:
    """Publish the schema and specs for other clients, also those that an earlier writer did not."""
    with contextlib.suppress(OSError, ValueError):
        manifest.publish(head)


def _taken_over(newest: Snapshot) -> dict[str, int]:
    """The versions on main that leaves had when the table became strong, by folder.

    Raises ConflictError if the transaction that made it strong has expired.
    """
    for record in newest.manifest.transactions():
        if record.operation == MAKE_STRONG:
            leaves = newest.go_to(record.sequence).leaves
            return {folder: version or 0 for folder, version in leaves.versions()}
    raise ConflictError(
        f"the table {newest.location.uri} became strong long ago, while rows were added to it: "
        "look at what is there, and try again"
    )


def first_update(head: Head) -> ManifestUpdate:
    """The first rows in the manifest of a new table."""
    update = ManifestUpdate(head.specs, strong=head.transactions == "strong")
    for spec in head.specs:
        update.put_spec(spec)
    update.put_head(head)
    record = TransactionRecord.of(head, "create", rows_added=0, rows_removed=0, leaves=0)
    update.put_transaction(record)
    return update
