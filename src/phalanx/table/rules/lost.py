"""Rows that somebody has deleted from the manifest, and leaves that come back.

A transaction removes a leaf with its timeline, under a new head. So a timeline without its leaf is
damage, and so is a leaf that an earlier version of the manifest with the same head still has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phalanx.errors import PhalanxError
from phalanx.model.specs import PartitionSpec
from phalanx.storage import names
from phalanx.storage.lance_errors import LANCE_ERRORS
from phalanx.storage.layouts import layout_of
from phalanx.storage.leaf import Leaf
from phalanx.storage.manifest_update import NAMESPACE, READ_VERSION, STREAM, TABLE, TAG, TRANSACTION
from phalanx.storage.names import is_leaf_id
from phalanx.storage.raw_manifest import RawRow, read_copy
from phalanx.table.partitioned_writer import split
from phalanx.table.rules.draft import Draft
from phalanx.table.rules.rule import Problem, Rule
from phalanx.table.rules.state import TableState
from phalanx.table.rules.stray import DROP, TAKE, Stray


class RowLost(Rule):
    """A tag, a transaction or the state of a stream was deleted from the manifest."""

    kind = "row-missing"
    remedy = "brought back from the last manifest that has it"

    def find(self, state: TableState) -> Iterator[Problem]:
        for id, lost in state.history.lost.items():
            type = lost.row.type
            if state.row(id) is not None or type not in (TAG, TRANSACTION, STREAM):
                continue
            if type != TRANSACTION or (lost.row.sequence or 0) >= state.head.oldest:
                yield self.problem(f"a row of type {type} was deleted", id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        for problem in problems:
            draft.put(draft.history.lost[problem.where].row.duplicate())


class LeafLost(Rule):
    """The row of a leaf was deleted from the manifest, and not by a transaction.

    If rows were deleted or replaced since, it is not known whether rows of the leaf would have
    been, too: then it stays lost until a person decides.
    """

    kind = "leaf-lost"
    remedy = "rebuilt from an earlier manifest, or from its timeline, namespaces and files"

    def find(self, state: TableState) -> Iterator[Problem]:
        settled = state.settled()
        for loss in losses(state):
            if loss.key not in settled:
                yield self.problem(loss.what, loss.id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        lost = {problem.where for problem in problems}
        for loss in losses(draft):
            if loss.id not in lost:
                continue
            if draft.stray == DROP and (loss.doubts or loss.row is None):
                draft.give_up(loss.key)
                for row in draft.timelines().get(loss.id, {}).values():
                    draft.remove(row)
            elif loss.row is not None and (draft.stray == TAKE or not loss.doubts):
                row = loss.row.duplicate()
                draft.set_column(row, "sequence", draft.manifest.head.sequence)
                draft.write_copies(row)


class LeafReplaced(Rule):
    """A leaf was lost, and its partition was then written again without the rows that it had.

    Only a person can decide whether those rows were written again as well.
    """

    kind = "leaf-replaced"
    remedy = "taken in or given up, if `stray` says so"

    def find(self, state: TableState) -> Iterator[Problem]:
        settled = state.settled()
        for stray in self._strays(state):
            if not settled.issuperset(stray.keys):
                yield stray.problem

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        for stray in self._strays(draft):
            if stray.problem in problems:
                draft.add_stray(stray)

    def _strays(self, state: TableState) -> Iterator[Stray]:
        # A transaction such as an overwrite or a rollback says what is in the leaf from then on.
        meant = {r.sequence for r in state.transactions().values() if r.looks_at_rows}
        rebuilt = {loss.key for loss in losses(state) if loss.row is not None}
        for id, lost in state.history.replaced.items():
            row = lost.row
            if row.location is None or lost.written_again in meant or _key(row) in rebuilt:
                continue
            if not state.survey.is_whole(row, row.version):
                continue
            fragments = _left_out(state, row)
            if fragments == ():
                continue
            what = (
                f"version {row.version} of the leaf in {row.location} was lost and is not part of "
                "the table: repair with stray='take' adds its rows, with 'drop' it is given up"
            )
            yield Stray(
                self.problem(what, id), row.location, (_key(row),), ((row.version, fragments),)
            )


@dataclass(frozen=True)
class Loss:
    """A leaf without a row."""

    id: str
    key: str
    #: The row that it had, as far as it can be rebuilt; None where it cannot.
    row: RawRow | None
    #: Why it cannot be rebuilt.
    reason: str
    #: The transactions since that may have removed rows of it, too.
    doubts: tuple[str, ...]

    @property
    def what(self) -> str:
        what = "the row of the leaf was deleted"
        if self.row is None:
            return f"{what}, and {self.reason}: repair with stray='drop' gives it up"
        if not self.doubts:
            return what
        return (
            f"{what}, and rows were changed since by {', '.join(self.doubts[:3])}: repair with "
            "stray='take' brings the leaf back as it was, with 'drop' it is given up"
        )


def losses(state: TableState) -> Iterator[Loss]:
    """The leaves whose rows are lost."""
    for id in lost_leaves(state):
        lost = state.history.lost.get(id)
        if lost is None:
            row, reason = _Rebuilding(state, id).row()
            # It was lost before that. Transactions that have expired may have come after it.
            first, known = min(state.history.sequences, default=state.head.sequence), 0
        else:
            row, reason, first, known = lost.row, "", lost.sequence, lost.sequence
            if not state.survey.is_whole(lost.row, lost.row.version):
                row, reason = None, f"files of its version {lost.row.version} are gone"
        key = f"{id}@" if row is None else _key(row)
        yield Loss(id, key, row, reason, tuple(_doubts(state, first, known)))


def _left_out(state: TableState, row: RawRow) -> tuple[int, ...] | None:
    """The fragments of an earlier version of a leaf that are not in the leaf now; None for all.

    A process that did not notice the loss may have written on top of an even earlier version.
    """
    now = state.row(row.id)
    if now is None or now.location != row.location:
        return None
    leaf = Leaf(state.manifest.location, row.location or "", state.head.schema)
    try:
        have = {file.path for file in leaf.data_files(now.version)}
        files = list(leaf.data_files(row.version))
    except (PhalanxError, *LANCE_ERRORS):
        return None
    return tuple(sorted({file.fragment for file in files if file.path not in have}))


def _key(row: RawRow) -> str:
    return f"{row.location}@{row.version or ''}"


def lost_leaves(state: TableState) -> list[str]:
    """The ids of the leaves whose rows are lost, and of which there is more than a timeline."""
    if not state.head.ours:
        return []
    lost = {id for id, lost in state.history.lost.items() if lost.row.type == TABLE}
    if state.has_timelines:
        lost |= {id for id in state.timelines() if state.has_traces(id)}
    elif not state.strong:
        lost |= set(_empty_namespaces(state))
    return sorted(id for id in lost if is_leaf_id(id) and state.row(id) is None)


def _empty_namespaces(state: TableState) -> Iterator[str]:
    """The leaves of a weak table that have a namespace and a folder: such a leaf is not removed."""
    for row in state.namespaces():
        spec = state.spec_of(row)
        if spec is not None and len(names.names_in(row.id)) == len(spec.fields) > 0:
            id = names.leaf_id(spec.id, names.names_in(row.id))
            if state.row(id) is None and state.survey.folders_of(id, state.head):
                yield id


def _doubts(state: TableState, since: int, known: int) -> Iterator[str]:
    """The transactions after a version that may have deleted or replaced rows.

    Those after the version `known` count that have expired, because nothing says what they did.
    """
    records = sorted(state.transactions().values(), key=lambda record: record.sequence)
    if not {record.sequence for record in records}.issuperset(range(known + 1, state.head.oldest)):
        yield "transactions that have expired"
    for record in records:
        if record.sequence > since and record.looks_at_rows:
            yield f"{record.operation or 'a transaction'} (version {record.sequence})"


class _Rebuilding:
    """Rebuilds the row of a leaf that no earlier manifest has."""

    def __init__(self, state: TableState, id: str) -> None:
        self._state, self._id = state, id

    def row(self) -> tuple[RawRow | None, str]:
        """The row, or None and the reason why it cannot be rebuilt."""
        state, row = self._state, RawRow(self._id, TABLE, None, {})
        spec = state.spec_of(row)
        if spec is None:
            return None, "its id fits no partition spec of the table"
        row.columns["spec_id"] = spec.id
        if state.strong:
            timeline = state.timelines().get(self._id, {})
            versions = {n: r.columns.get(READ_VERSION) for n, r in timeline.items()}
            known = [number for number, version in versions.items() if version is not None]
            if not known or max(known) != max(versions):
                return None, "nothing says which version of it was the table's"
            row.columns["version_number"] = max(known)
            row.columns[READ_VERSION] = versions[max(known)]
        for folder in state.survey.folders_of(self._id, state.head):
            row.location = folder
            if state.survey.is_whole(row, row.version):
                break
        else:
            return None, "its files are gone"
        keys = self._keys(spec, row)
        if keys is None:
            return None, "nothing says which partition values it has"
        for field, key in zip(spec.fields, keys, strict=True):
            row.set_value(field, key)
        return row, ""

    def _keys(self, spec: PartitionSpec, row: RawRow) -> list[Any] | None:
        """The partition values: those that its namespaces are named after, if they are known."""
        if not spec.fields:
            return []
        head, folder = self._state.head, row.location or ""
        spelled = layout_of(head.properties).keys_in(folder, head)
        said = [keys for keys in (spelled, self._keys_above(spec)) if keys]
        inside = self._keys_inside(spec, row)
        path, types = names.names_in(self._id), [field.result_type for field in spec.fields]
        for keys in said if inside is None else [*said, inside]:
            if names.namespace_names(head.salt, spec.id, keys, types) == path:
                return list(keys)
        if said:
            return list(said[0])
        # Files that lack a column seem to hold NULL.
        return None if head.gives_columns else inside

    def _keys_above(self, spec: PartitionSpec) -> list[Any] | None:
        """The values in the rows of its namespaces."""
        keys = []
        for field, id in zip(spec.fields, names.namespaces_above(self._id), strict=True):
            namespace = self._state.row(id)
            if namespace is None or namespace.type != NAMESPACE:
                return None
            key = namespace.values.get(field.field_id)
            copies = read_copy(namespace.value_copy(field), field.result_type)
            keys.append(copies[0] if key is None and copies else key)
        return keys

    def _keys_inside(self, spec: PartitionSpec, row: RawRow) -> list[Any] | None:
        """The values of a row in the leaf."""
        location, schema = self._state.manifest.location, self._state.head.schema
        leaf = Leaf(location, row.location or "", schema)
        try:
            batches = list(leaf.scan(row.version, schema.tagged.names, None, limit=1))
            ((keys, _),) = split(pa.Table.from_batches(batches), spec, schema)
        except (PhalanxError, *LANCE_ERRORS):  # a leaf without rows among others
            return None
        return list(keys)
