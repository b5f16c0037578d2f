"""What repair does with stray rows, if it is told to: take them in, or give them up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from phalanx.errors import ConflictError
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.table import ingest
from phalanx.table.anchor import publish
from phalanx.table.operations.append import Append
from phalanx.table.partitioned_writer import BUFFER_BYTES, WRITERS, PartitionedWriter
from phalanx.table.rules.stray import Stray
from phalanx.transaction.commit import Transaction, durable_by_default
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import View


@dataclass
class _GiveUp:
    """No change: the transaction says that stray rows were given up."""

    name = "repair"
    keys: Sequence[str]

    def run(self, view: View) -> None:
        _refuse_settled(view, self.keys)


@dataclass
class _TakeIn(Append):
    """Adds stray rows, unless another transaction has settled them meanwhile."""

    keys: Sequence[str] = ()

    def run(self, view: View) -> None:
        _refuse_settled(view, self.keys)
        super().run(view)


def _refuse_settled(view: View, keys: Sequence[str]) -> None:
    """Raise ConflictError if rows are taken in or given up already, so that none comes twice."""
    if not _settled(view.base).isdisjoint(keys):
        raise ConflictError(
            f"another repair of {view.base.location.uri} has settled the same stray rows: nothing "
            "was written, try again"
        )


def _settled(snapshot: Snapshot) -> set[str]:
    records = snapshot.manifest.transactions()
    return {key for record in records for key in record.settled}


def settle(location: Location, strays: Sequence[Stray], take: bool) -> None:
    """Take stray rows in or give them up, in one transaction, and publish the leaves.

    Rows go to the partitions that they belong to. Rows that a transaction has settled already are
    left out, so that it can be repeated after a failure. Raises InvalidInput for rows that the
    table does not accept, and ConflictError if another repair comes first.
    """
    started, newest = time.time(), Snapshot.latest(location)
    settled = _settled(newest)
    left = [stray for stray in strays if not settled.issuperset(stray.keys)]
    with ThreadPoolExecutor(WRITERS) as pool:
        if left:
            transaction = Transaction(newest, pool, durably=durable_by_default(), started=started)
            keys = [key for stray in left for key in stray.keys if key not in settled]
            transaction.settled = tuple(keys)
            if take:
                writer = PartitionedWriter(newest, pool, BUFFER_BYTES)
                written = writer.write(_rows(newest, left, settled))
                transaction.run(_TakeIn(newest.head, written, keys))
            else:
                transaction.run(_GiveUp(keys))
            newest = transaction.commit()
            reach("repair.strays-settled")
        folders = {stray.folder for stray in strays if stray.on_main}
        versions = {name: at for name, at in newest.leaves.versions() if name in folders}
        publish(newest, pool, versions, over=folders)


def _rows(snapshot: Snapshot, strays: Sequence[Stray], settled: set[str]) -> Iterator[pa.Table]:
    """The rows of strays as the table's schema has them."""
    head, schema = snapshot.head, snapshot.head.schema
    rows = {row.location: row for row in snapshot.leaves.rows()} if head.gives_columns else {}
    for stray in strays:
        leaf = Leaf(snapshot.location, stray.folder, schema)
        if stray.folder in rows:
            leaf = Leaf.of(snapshot.location, head, rows[stray.folder])
        for key, (version, fragments) in zip(stray.keys, stray.parts, strict=True):
            if key in settled:
                continue
            batches = leaf.trusting_files(version).scan(
                version, schema.tagged.names, None, fragments=fragments
            )
            for batch in batches:
                table = pa.Table.from_batches([batch])
                yield from ingest.chunks(table, schema.tagged, BUFFER_BYTES)
