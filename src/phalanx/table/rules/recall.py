"""What comes back after a client has rewritten the manifest without our columns and rows.

Such a client leaves the manifest without some columns or without a head. The last version of the
manifest that was whole says what it has dropped; what that version does not know comes from the
texts in the rows' metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from phalanx.storage import names
from phalanx.storage.head import HEAD_ID, HEAD_TYPE
from phalanx.storage.manifest_update import (
    NAMESPACE,
    READ_VERSION,
    STREAM,
    TABLE,
    TAG,
    TRANSACTION,
    VERSION,
)
from phalanx.storage.names import is_leaf_id
from phalanx.storage.raw_manifest import RawManifest, RawRow, read_copy
from phalanx.table.rules.draft import Draft
from phalanx.table.rules.rule import Problem, RepairOutcome

ROW_MISSING = RepairOutcome(
    "row-missing", "A client that rewrote the manifest has dropped a row.", "brought back"
)
LEAF_MISSING = RepairOutcome(
    "leaf-missing", "A client that rewrote the manifest has dropped a leaf, and its files are gone."
)
_OURS = (HEAD_TYPE, TRANSACTION, TAG, STREAM, VERSION)


def recall(draft: Draft) -> None:
    """Bring back rows and cells that the last whole version of the manifest has; once is enough."""
    if draft.is_recalled:
        return
    draft.is_recalled = True
    before = draft.manifest.last_whole
    if before is not None:
        _bring_back_rows(draft, before)
    _fill_cells(draft, {} if before is None else {row.id: row for row in before.rows})


def _bring_back_rows(draft: Draft, before: RawManifest) -> None:
    gone = [row for row in before.rows if draft.row(row.id) is None and row.id != HEAD_ID]
    leaves = [row for row in gone if row.type == TABLE and is_leaf_id(row.id)]
    lost = {row.id for row in leaves if not draft.survey.is_whole(row, row.version)}
    for id in sorted(lost):
        what = "the leaf was dropped by another client, and its files with it"
        draft.given_up.append(Problem(LEAF_MISSING.kind, what, id))
    not_needed = lost | _namespaces_above(lost)
    not_needed -= _namespaces_above(
        r.id for r in before.rows if is_leaf_id(r.id) and r.id not in lost
    )
    for row in gone:
        version = names.leaf_version(row.id) if row.type == VERSION else None
        owner = row.id if version is None else version[0]
        is_ours = row.type in _OURS or names.spec_of(row.id) is not None
        if is_ours and owner not in not_needed:
            draft.put(row)
            what = f"a row of type {row.type} was dropped"
            draft.mended.append(Problem(ROW_MISSING.kind, what, row.id))


def _namespaces_above(leaves: Iterable[str]) -> set[str]:
    return {namespace for leaf in leaves for namespace in names.namespaces_above(leaf)}


def _fill_cells(draft: Draft, before: Mapping[str, RawRow]) -> None:
    """Fill the columns of rows that are there."""
    # Which version a leaf is at may follow from its timeline.
    last_numbers = {leaf: max(numbers) for leaf, numbers in draft.timelines().items()}
    for row in list(draft.rows()):
        earlier = before.get(row.id)
        if earlier is row or row.id == HEAD_ID:
            continue
        cells = (dict(row.columns), dict(row.values))
        is_same = earlier is not None and earlier.version == row.version
        if earlier is not None and (is_same or row.type != TABLE):
            row.columns = {**earlier.columns, **row.columns}
            row.values = {**earlier.values, **row.values}
        else:
            _fill_from_copies(draft, row, last_numbers)
        if cells != (row.columns, row.values):
            draft.put(row)


def _fill_from_copies(draft: Draft, row: RawRow, last_numbers: Mapping[str, int]) -> None:
    """Fill the columns of a row from what its metadata and its neighbors say."""
    known: dict[str, Any] = {}
    if row.type == TABLE and is_leaf_id(row.id):
        spec = draft.spec_of(row)
        if spec is None:
            return
        _fill_values(draft, row)
        known = {"spec_id": spec.id, "sequence": draft.manifest.head.sequence}
        if draft.strong:
            known |= {READ_VERSION: row.version, "version_number": last_numbers.get(row.id, 1)}
    elif row.type == NAMESPACE:
        _fill_values(draft, row)
    elif row.type == TRANSACTION:
        known = {"sequence": row.sequence, "committed_at": row.committed_at}
    elif row.type == TAG:
        known = {"sequence": int(row.copy("version") or 0)}
    elif row.type == VERSION and draft.strong:
        known = {READ_VERSION: _newest_version(draft, row, last_numbers)}
    row.columns = {key: cell for key, cell in known.items() if cell is not None} | row.columns


def _newest_version(draft: Draft, row: RawRow, last_numbers: Mapping[str, int]) -> int | None:
    """The version of a leaf, for the newest row of its timeline; None for other rows."""
    version = names.leaf_version(row.id)
    leaf = None if version is None else draft.row(version[0])
    if version is None or leaf is None:
        return None
    number = leaf.columns.get("version_number", last_numbers.get(leaf.id, 1))
    return leaf.version if version[1] == number else None


def _fill_values(draft: Draft, row: RawRow) -> None:
    """Fill the partition values of a leaf or namespace; a text that is not there is NULL."""
    spec = draft.spec_of(row)
    path = names.names_in(row.id)
    for depth, field in enumerate(() if spec is None else spec.fields[: len(path)], 1):
        if field.field_id in row.values:
            continue
        source = row
        if row.type == NAMESPACE and spec is not None:
            # A namespace's own metadata has the innermost value only.
            source = draft.row(names.object_id(spec.id, path[:depth])) or row
        for key in read_copy(source.value_copy(field), field.result_type):
            row.set_value(field, key)
