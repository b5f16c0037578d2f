"""`upgrade` makes a table of ours of one that another client has made, without moving data.

The table may follow the earlier specification, or today's without a head row. Steps, of which the
third decides: before it the table is what it was, and after it the table is ours.

1. Every leaf is pinned to the version that is read. Where other versions follow on main, main shows
   the pinned version again, so that plain Lance readers see what readers of the table see.
2. A feature flag keeps stock clients from writing.
3. One commit replaces all rows of the manifest. It fails if there has been any other commit since
   the manifest was read, and then everything starts over.
4. Schema and specs are published in today's form, and the manifest gets its indexes. A table whose
   upgrade was interrupted before that can be read and written; `upgrade` completes it.
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa

from phalanx.errors import ConflictError, InvalidInput, UnsupportedTable
from phalanx.interop import takeover
from phalanx.interop.earlier import READ_BRANCH, READ_TAG
from phalanx.interop.proof import proven_schema
from phalanx.model.specs import PartitionField
from phalanx.storage import fsync
from phalanx.storage.head import Head
from phalanx.storage.location import Location
from phalanx.storage.manifest import SwapLost, exists
from phalanx.storage.manifest_update import NAMESPACE, VERSION, ManifestUpdate
from phalanx.storage.names import spec_of, without_branch
from phalanx.storage.records import LeafRow, TransactionRecord
from phalanx.storage.taken_leaves import check_columns, taken_over
from phalanx.table.table import Table
from phalanx.transaction import lock
from phalanx.transaction.commit import durable_by_default
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot

#: The name of this operation in the table's history.
UPGRADE = "upgrade"
#: What to do with leaves that are read on a branch.
REFUSE, COPY = "refuse", "copy"
_WORKERS = 8
_PATIENCE_SECONDS = 120.0


def upgrade(
    uri: str | os.PathLike[str],
    *,
    branches: str = REFUSE,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Turn a table of another client into a Phalanx table; does nothing to one that is.

    Args:
        uri: The root of the table.
        branches: What to do if a leaf is read on a branch: "refuse" the table, or "copy" the rows
            of such leaves.
        storage_options: Options of the object store.

    Raises:
        TableNotFound: There is no table.
        InvalidInput: `branches` has another value.
        UnsupportedTable: A partition expression cannot be computed here, a leaf is read on a
            branch, or a leaf does not have the table's columns, with their types and field ids.
        ConflictError: Another client kept writing. Nothing was changed; try again.
    """
    if branches not in (REFUSE, COPY):
        raise InvalidInput(f"branches is 'refuse' or 'copy', not {branches!r}")
    location = Location(uri, storage_options)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    lost = 0
    with location.naming_failures():
        while True:
            try:
                with lock.held(location):
                    snapshot = Snapshot.latest(location)
                    if not exists(location):
                        raise UnsupportedTable(
                            f"{location.uri} has no manifest, so there is nothing to upgrade: "
                            "import it instead"
                        )
                    if not snapshot.head.ours:
                        _upgrade(snapshot, branches)
                    _complete(location)
                    return Table(Snapshot.latest(location))
            except SwapLost:
                lost += 1
            if time.monotonic() > deadline:
                raise ConflictError(
                    f"upgrade of {location.uri} lost to other clients {lost} times: nothing was "
                    "changed, try again"
                )
            lock.back_off(lost)


def _upgrade(snapshot: Snapshot, branches: str) -> None:
    """Replace the rows of the manifest. Raises SwapLost if another client has come first."""
    _check_expressions(snapshot)
    leaves = snapshot.leaves.rows()
    _check_leaves(snapshot, leaves, branches)
    head = _first_head(snapshot.head)
    durably, started = durable_by_default() and snapshot.location.is_local, time.time()
    with ThreadPoolExecutor(_WORKERS) as pool:
        location, theirs = snapshot.location, snapshot.head
        list(pool.map(lambda row: check_columns(location, theirs, row), leaves))
        taken = list(pool.map(lambda row: taken_over(location, theirs, row), leaves))
    reach("upgrade.leaves-pinned")
    schema = proven_schema(snapshot.location, head, [leaf.row for leaf in taken])
    highest = max((leaf.max_field_id for leaf in taken), default=0)
    head = replace(head, schema=schema, max_field_id=max(head.max_field_id, highest))
    update = _update(snapshot, head, [leaf.row for leaf in taken])
    if durably:
        fsync.sync([snapshot.location.child(leaf.row.location) for leaf in taken], started)
    with takeover.guarded(snapshot.manifest) as manifest:
        reach("upgrade.guarded")
        takeover.replace_rows(manifest, head, update, gone=(READ_BRANCH, READ_TAG))
    if durably:
        fsync.sync([snapshot.location.manifest], started)
    reach("upgrade.rows-replaced")


def _first_head(head: Head) -> Head:
    """The head of the first version of the table as one of ours."""
    sources = (id for spec in head.specs for field in spec.fields for id in field.source_ids)
    return replace(
        head,
        sequence=1,
        committed_at=dt.datetime.now(dt.UTC),
        max_field_id=max(head.max_field_id, *sources, 0),
        table_id=uuid.uuid4().hex,
        salt=secrets.token_bytes(16),
        transaction_id=uuid.uuid4().hex,
        transactions="strong",
        schema=head.written_schema,
        declared=None,
        ours=True,
    )


def _update(snapshot: Snapshot, head: Head, leaves: list[LeafRow]) -> ManifestUpdate:
    update = ManifestUpdate(head.specs)
    specs = {spec.id: spec for spec in head.specs}
    for spec in head.specs:
        update.put_spec(spec)
    for leaf in leaves:
        update.put_namespaces(leaf, specs[leaf.spec_id])
        update.put_leaf(leaf, specs[leaf.spec_id], head.sequence)
    update.put_head(head)
    rows = sum(leaf.row_count or 0 for leaf in leaves)
    record = TransactionRecord.of(
        head, UPGRADE, rows_added=rows, rows_removed=0, leaves=len(leaves), removals=0
    )
    update.put_transaction(record)
    # Namespaces without a leaf, and versions that leaves had before: history begins here.
    types = snapshot.manifest.row_types()
    outdated = (id for id, type in types.items() if type in (NAMESPACE, VERSION))
    update.remove(id for id in outdated if spec_of(id) in specs and id not in update)
    return update


def _complete(location: Location) -> None:
    """Publish schema and specs, and create the indexes of the manifest, where that is missing."""
    manifest = takeover.publish(location)
    reach("upgrade.published")
    manifest.create_indexes()


def _check_leaves(snapshot: Snapshot, leaves: list[LeafRow], branches: str) -> None:
    """Refuse leaves on branches, unless they are copied, and two leaves of one partition.

    Two clients that create the same partition at once, under random names, make two leaves of it.
    """
    by_place: dict[object, LeafRow] = {}
    for leaf in leaves:
        for place in ((leaf.spec_id, leaf.keys), without_branch(leaf.location)[0]):
            if place in by_place:
                raise UnsupportedTable(
                    f"the table {snapshot.location.uri} has two leaves for one partition, "
                    f"{by_place[place].object_id} and {leaf.object_id}: its client must put their "
                    "rows into one of them and remove the other"
                )
            by_place[place] = leaf
    on_branches = [leaf for leaf in leaves if without_branch(leaf.location)[1] is not None]
    if on_branches and branches == REFUSE:
        first = on_branches[0]
        raise UnsupportedTable(
            f"the table {snapshot.location.uri} reads leaves on branches, {len(on_branches)} in "
            f"all, such as {first.object_id} on {without_branch(first.location)[1]!r}: upgrade it "
            "with branches='copy' to copy their rows"
        )


def _check_expressions(snapshot: Snapshot) -> None:
    """Refuse a table whose partition values cannot be computed here as its client computes them.

    Of earlier specs nothing is computed when rows are written, and filters that an expression says
    nothing about prune nothing.
    """
    head = snapshot.head
    for field in head.spec.fields:
        problem = _problem(field, [column and column.type for column in field.sources(head.schema)])
        if problem is not None:
            raise UnsupportedTable(
                f"the table {snapshot.location.uri} cannot be upgraded, because its partition "
                f"field {field.field_id!r} cannot be computed here: {problem}"
            )


def _problem(field: PartitionField, types: list[pa.DataType | None]) -> str | None:
    """Why the values of a field cannot be computed; None if they can."""
    try:
        result = field.transform.result_type(
            [pa.null() if type is None else type for type in types]
        )
    except InvalidInput as error:
        return str(error)
    if result != field.result_type:
        return f"its values have the type {field.result_type}, and {field.transform} gives {result}"
    return None
