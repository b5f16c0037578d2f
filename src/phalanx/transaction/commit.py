"""Transactions: changes to any number of leaves that become visible together, or not at all.

A transaction is a list of operations. Each is run on a view of a snapshot; leaves are committed
detached, and one swap on the manifest makes all of them the table's next snapshot. Whoever
loses the swap runs the operations again on the newer snapshot. What an operation has written or
worked out for a leaf that nobody else has touched, it keeps: the loser moves no data.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Protocol

from phalanx.errors import ConflictError, CorruptTable, InvalidInput, PhalanxError, TableNotFound
from phalanx.model.properties import ANCHOR
from phalanx.model.spelling import quote
from phalanx.storage import fsync
from phalanx.storage.files import GRACE_FLOOR, DatasetFolder
from phalanx.storage.head import Head
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.storage.manifest import (
    NAMESPACE,
    TRANSACTION,
    ManifestVersion,
    Rows,
    SwapLost,
    publish,
    to_publish,
    transaction_row,
)
from phalanx.transaction import lock
from phalanx.transaction.conflicts import check_isolation, same_rows
from phalanx.transaction.epochs import Epoch
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import Commits, Counts, View

log = logging.getLogger("phalanx")

#: After how many transactions the manifest is compacted. Every 16, eight writers on one partition
#: made 14 commits a second where they make 22 now; one writer alone makes as many.
_COMPACT_EVERY = 8
#: After how many its indexes are, too.
_REINDEX_EVERY = 80
#: A transaction that took longer looks whether its files are still there: vacuum grants twice that.
_VERIFY_AFTER = GRACE_FLOOR / 2
#: How long a transaction tries to win the swap before it gives up.
PATIENCE_SECONDS = 120.0


#: Leaves that a read depends on: their folders and versions by id.
Footprint = Mapping[str, tuple[str, int | None]]


#: The name of the operation that moves rows to other leaves, and changes none.
MOVES_ROWS = "rewrite"


def durable_by_default() -> bool:
    """Whether commits wait until what they have written is on disk, where nobody says."""
    return os.environ.get("PHALANX_DURABLE", "").lower() in ("1", "true", "yes")


class Operation(Protocol):
    """One change, which can be run again on a newer snapshot."""

    name: str

    def run(self, view: View) -> None:
        """Work the change out and record it in the view."""


class Transaction:
    """Operations that start from one snapshot and end as the next, or as nothing."""

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
        """`started` is a time before the first file of it was written.

        Raises InvalidInput for an unusable id, UnsupportedTable where we must not write.
        """
        base.head.check_writable()
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
        self.isolation = check_isolation(isolation)
        self.durable = durably and base.location.is_local
        self._started = started
        self.operations: list[Operation] = []
        #: What the author has read: functions that tell which leaves a read depends on.
        self.reads: list[Callable[[Snapshot], Footprint]] = []
        #: What the author has been told: functions that count, and what they have counted.
        self.told: list[tuple[Callable[[], object], object]] = []
        #: Whether the commit found that somebody else's try had landed already.
        self.repeated = False
        self._failed = False
        self._commits = Commits()
        self._pool = pool
        self._view = View(base, self._commits, pool)

    @property
    def location(self) -> Location:
        return self.base.location

    @property
    def counts(self) -> Counts:
        """What the transaction has done so far."""
        return self._view.counts

    @property
    def view(self) -> View:
        return self._view

    def run(self, operation: Operation) -> None:
        """Add an operation and see what it does."""
        before = self._view.steps
        try:
            operation.run(self._view)
        except BaseException as error:
            refused = isinstance(error, InvalidInput | TableNotFound)
            # Refused before anything was recorded, the transaction can go on without it.
            self._failed |= not (refused and self._view.steps == before)
            if isinstance(error, CorruptTable):
                # What is missing may be missing because another table lies here now.
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
        wanted = f"object_id = {quote(transaction_row(self.id))}"
        return bool(manifest.read(["object_id"], wanted).num_rows)

    def commit(self) -> Snapshot:
        """Make the changes visible, and return the snapshot that has them.

        Raises ConflictError where they cannot be brought together with another's; the table
        stays as it was then.
        """
        if self._failed:
            raise PhalanxError(
                f"a change in this transaction on {self.location.uri} failed, so none of it was "
                "committed: start another one"
            )
        if self._view.is_weak:
            return self._commit_weak()
        deadline = time.monotonic() + PATIENCE_SECONDS
        attempt = 0
        while True:
            # What can be done before the lock is had is done before.
            self._view.settle()
            reach("commit.leaves-committed")
            with lock.held(self.location):
                newest = Snapshot.latest(self.location, self._view.base)
                # Not the number alone: a table that was dropped and made again has the same ones.
                if newest.head.transaction_id != self._view.base.head.transaction_id:
                    if self.landed(newest):
                        self.repeated = self.named
                        return newest
                    self._rebase(newest)
                    reach("commit.rebased")
                else:
                    self._view.base.manifest = newest.manifest
                try:
                    return self._swap()
                except SwapLost:
                    attempt += 1
            if time.monotonic() > deadline:
                raise ConflictError(
                    f"the transaction {self.id} on {self.location.uri} lost to others {attempt} "
                    f"times in {PATIENCE_SECONDS:.0f} seconds: nothing was written, try again"
                )
            lock.back_off(attempt)

    def _commit_weak(self) -> Snapshot:
        """Commit each leaf on main, then tell the manifest of new ones and of the transaction."""
        if self._took_long:
            self._verify_pending()
        if not self.named:
            self._view.settle()
        for attempt in range(1000):
            with lock.held(self.location), contextlib.suppress(SwapLost):
                newest = Snapshot.latest(self.location, self._view.base)
                if self.landed(newest):
                    self.repeated = self.named
                    return newest
                self._check_table(newest)
                if newest.head.transactions != "weak":
                    return self._finish_as_strong(newest)
                # With a name it waits for the lock: of two that race, the second does nothing.
                self._view.settle()
                if newest.head.transaction_id != self._view.base.head.transaction_id:
                    self._follow_weak(newest)
                reach("commit.leaves-committed")
                if self.durable:
                    fsync.sync(self._view.leaf_uris(), self._started)
                head = newest.head.after(
                    dt.datetime.now(dt.UTC), self.id, **self._view.head_changes
                )
                manifest = newest.manifest
                if head.specs != newest.head.specs:
                    manifest = self._prepared(newest, head)
                rows = Rows(head.specs, strong=False)
                self._view.weak_rows(newest, rows, head.sequence)
                rows.add_head(head)
                rows.add_transaction(head, {**self._described(), "rows_gone": "0"})
                reach("commit.before-swap")
                try:
                    manifest.swap(rows.to_table())
                    reach("commit.after-swap")
                except OSError:
                    # The reply was lost, not necessarily the commit.
                    if not self.landed():
                        raise
                done = Snapshot.latest(self.location)
                _complete(done.manifest, done.head)
                if self.durable:
                    fsync.sync([self.location.manifest], self._started)
                return done
            lock.back_off(attempt)
        raise ConflictError(f"the manifest of {self.location.uri} could not be updated")

    def _follow_weak(self, newest: Snapshot) -> None:
        """Work out anew what is true of the table as a whole: it is not the same as before."""
        if not self._view.head_changes:
            return
        if self._view.leaf_uris():
            raise ConflictError(
                f"the table {self.location.uri} was changed while rows were added to it and it was "
                "changed itself: look at what is there, and do it one after the other"
            )
        self._view = View(newest, self._commits, self._pool)
        for operation in self.operations:
            operation.run(self._view)

    def _finish_as_strong(self, newest: Snapshot) -> Snapshot:
        """The table became strong meanwhile: what it took over counts, the rest is added now."""
        if not self._commits.only_added:
            raise ConflictError(
                f"the table {self.location.uri} became strong while rows of it were changed: look "
                "at what is there, and try again"
            )
        if self._commits.any_on_main:
            self._commits.taken_over = _taken_over(newest)
        self.base = newest
        self._view = View(newest, self._commits, self._pool)
        for operation in self.operations:
            operation.run(self._view)
        self._view.settle()
        return self._swap()

    def _swap(self) -> Snapshot:
        """One attempt to make the view the table's next snapshot."""
        snapshot = self._view.base
        head = snapshot.head.after(dt.datetime.now(dt.UTC), self.id, **self._view.head_changes)
        manifest = snapshot.manifest
        if head.specs != snapshot.head.specs:
            manifest = self._prepared(snapshot, head)
        rows = Rows(head.specs)
        removed = self._view.rows(rows, head.sequence)
        rows.add_head(head)
        rows.add_transaction(head, {**self._described(), "rows_gone": str(len(removed))})
        if self.epoch is not None:
            self.epoch.mark(rows, head)
        if self._took_long:
            self._verify()
        if self.durable:
            fsync.sync([leaf.uri for leaf, _ in self._view.changed_leaves()], self._started)
            reach("commit.leaves-synced")
        reach("commit.before-swap")
        try:
            version = manifest.swap(rows.to_table(), removed)
            reach("commit.after-swap")
        except SwapLost:
            raise
        except OSError:
            # The reply was lost, not necessarily the commit.
            latest = Snapshot.latest(self.location)
            if not self.landed(latest):
                raise
            if self.durable:
                fsync.sync([self.location.manifest], self._started)
            return latest
        try:
            return self._landed_as(version, head)
        except Exception as error:
            raise PhalanxError(
                f"the transaction {self.id} has landed as version {head.sequence} of "
                f"{self.location.uri}, so do not repeat it, but then something failed: {error}"
            ) from error

    def _prepared(self, base: Snapshot, head: Head) -> ManifestVersion:
        """The manifest with columns for the fields of a new spec, where nobody has committed."""
        try:
            manifest = base.manifest.prepare_for(head.specs, base.head.specs)
        except OSError as error:
            raise SwapLost(str(error)) from None
        reach("commit.columns-added")
        if manifest.head().transaction_id != base.head.transaction_id:
            raise SwapLost("somebody has committed meanwhile")
        return manifest

    def _landed_as(self, version: int, head: Head) -> Snapshot:
        """What comes after the swap. The transaction has landed, whatever happens here."""
        if self.durable:
            fsync.sync([self.location.manifest], self._started)
            reach("commit.manifest-synced")
        if ANCHOR.of(head.properties) == "commit":
            for leaf, at in self._view.changed_leaves():
                leaf.anchor(at)
                reach("commit.leaf-anchored")
        manifest = ManifestVersion(self.location, version)
        _complete(manifest, head)
        done = Snapshot(manifest, head, self._view.current().leaves)
        _tidy(done)
        if self.durable:
            # What comes after the swap is new, too, and it is what is opened next.
            fsync.sync([*self._view.leaf_uris(), self.location.manifest], self._started)
        return done

    @property
    def _took_long(self) -> bool:
        """Whether what was written may have been taken for a leftover."""
        return time.time() - self._started > _VERIFY_AFTER.total_seconds()

    def _verify(self) -> None:
        """See that what was committed to leaves is still there."""
        for leaf, version in self._view.changed_leaves():
            folder = DatasetFolder(self.location, leaf.folder)
            try:
                gone = folder.missing(version)
            except CorruptTable as error:
                gone = [str(error)]
            self._refuse_without(gone)

    def _verify_pending(self) -> None:
        """The same for files that a weak table's leaves are yet to get."""
        for leaf, paths in self._view.pending_files():
            there = DatasetFolder(self.location, leaf.folder).by_path
            self._refuse_without([path for path in paths if path not in there])

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
        """What the rows were written for must still be there."""
        self._check_same(newest)
        # Rows of a weak table are written already. In a strong one every change sees for itself.
        if (self.reads or self._view.is_weak) and newest.head.schema != self.base.head.schema:
            raise ConflictError(
                f"the schema of {self.location.uri} was changed by {self._others(newest)}: nothing "
                "was written, try again"
            )
        newest.head.check_writable()

    def _rebase(self, newest: Snapshot) -> None:
        """Run the operations again on a newer snapshot."""
        self._check_table(newest)
        self._check_reads(newest)
        self._view = View(newest, self._commits, self._pool)
        self._view.rows_moved = self.isolation == "snapshot" and self._moved_since(newest)
        for operation in self.operations:
            operation.run(self._view)
        self._view.settle()
        self._check_told(newest)

    def _moved_since(self, newest: Snapshot) -> bool:
        """Whether somebody may have moved rows from one leaf to another."""
        since = f"object_type = '{TRANSACTION}' AND sequence > {self.base.sequence}"
        found = newest.manifest.read(["metadata"], since).column("metadata").to_pylist()
        return any(_moves_rows(json.loads(text)) for text in found)

    def _check_told(self, newest: Snapshot) -> None:
        """What the author has been told must come out again, where it may have led to more.

        A change that is alone in its transaction is simply what it is on the newer snapshot.
        """
        if self.isolation != "serializable" or len(self.operations) < 2:
            return
        if any(ask() != told for ask, told in self.told):
            raise ConflictError(
                f"rows of {self.location.uri} that this transaction changes were changed by "
                f"{self._others(newest)}, and its counts are different now: nothing was written, "
                "try again"
            )

    def _check_reads(self, newest: Snapshot) -> None:
        """What the author of the transaction has read must still be so."""
        if self.isolation != "serializable":
            return
        for footprint in self.reads:
            if not self._same_rows(footprint(self.base), footprint(newest)):
                raise ConflictError(
                    f"rows of {self.location.uri} that this transaction has read were changed by "
                    f"{self._others(newest)}: nothing was written, try again"
                )

    def _same_rows(self, before: Footprint, after: Footprint) -> bool:
        """Whether leaves hold the rows that they held; in which files is of no consequence."""
        schema = self.base.head.schema
        return before.keys() == after.keys() and all(
            folder == after[id][0]
            and same_rows(Leaf(self.location, folder, schema), version, after[id][1])
            for id, (folder, version) in before.items()
        )

    def _others(self, newest: Snapshot) -> str:
        """The transactions since the base, by id."""
        found = newest.manifest.read(
            ["object_id"],
            f"object_type = '{TRANSACTION}' AND sequence > {self.base.sequence}",
        )
        ids = [id.partition("$")[2] for id in found.column("object_id").to_pylist()]
        return f"transaction {', '.join(sorted(ids)[:5])}" if ids else "another client"

    def _described(self) -> Mapping[str, str]:
        counts = self.counts
        names = [operation.name for operation in self.operations]
        return {
            "operation": names[0] if len(set(names)) == 1 else "transaction",
            "rows_added": str(counts.added),
            "rows_removed": str(counts.removed),
            "leaves": str(len(counts.leaves)),
        }


def _moves_rows(described: Mapping[str, str]) -> bool:
    """Whether a transaction has taken rows out and put rows in: they may be the same ones."""
    counts = (described.get("rows_removed", "0"), described.get("rows_added", "0"))
    return described.get("operation") == MOVES_ROWS or all(int(count) for count in counts)


def _tidy(done: Snapshot) -> None:
    """Compact the manifest now and then. A failure is of no consequence."""
    if done.sequence % _COMPACT_EVERY:
        return
    try:
        reach("compact.before")
        done.manifest.compact(done.sequence % _REINDEX_EVERY == 0)
        reach("compact.after")
    except Exception as error:
        log.warning("the manifest of %s was not compacted: %s", done.location.uri, error)


def _complete(manifest: ManifestVersion, head: Head) -> None:
    """Tell other clients of the schema and specs, also in the place of one who died before that."""
    if any(manifest.metadata.get(key) != value for key, value in to_publish(head).items()):
        with contextlib.suppress(OSError, ValueError):
            publish(manifest.dataset, head)


def _taken_over(newest: Snapshot) -> dict[str, int]:
    """The versions on main that leaves had when the table became strong, by folder."""
    found = newest.manifest.read(["sequence", "metadata"], f"object_type = '{TRANSACTION}'")
    for row in found.to_pylist():
        if json.loads(row["metadata"]).get("operation") == "make strong":
            leaves = newest.go_to(row["sequence"]).leaves.table
            folders, versions = (leaves.column(c).to_pylist() for c in ("location", "read_version"))
            return dict(zip(folders, versions, strict=True))
    raise ConflictError(
        f"the table {newest.location.uri} became strong long ago, while rows were added to it: "
        "look at what is there, and try again"
    )


def first_rows(head: Head) -> Rows:
    """The rows of a table that has just been made."""
    rows = Rows(head.specs, strong=head.transactions == "strong")
    for spec in head.specs:
        rows.add(spec.namespace, NAMESPACE, {"partition_spec": spec.dumps()})
    rows.add_head(head)
    described = {"operation": "create", "rows_added": "0", "rows_removed": "0", "leaves": "0"}
    rows.add_transaction(head, described)
    return rows
