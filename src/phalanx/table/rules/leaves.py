"""Rows of leaves: what their ids, columns and metadata say against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from phalanx.errors import InvalidInput
from phalanx.model.specs import PartitionField, PartitionSpec
from phalanx.storage import names
from phalanx.storage.files import DatasetFolder
from phalanx.storage.manifest_update import READ_VERSION
from phalanx.storage.raw_manifest import RawRow, agree, read_copy
from phalanx.table.rules.draft import Draft
from phalanx.table.rules.rule import Problem, RepairOutcome, Rule
from phalanx.table.rules.state import TableState

_VALUE_LOST = RepairOutcome(
    "value-lost",
    "A partition value of a leaf differs from its copy, and the namespaces confirm neither.",
    "the value in the column stays",
)


class LeafUnknown(Rule):
    """The id of a leaf fits no partition spec of the table.

    Its partition values cannot be told, so neither can its place.
    """

    kind = "leaf-unknown"

    def find(self, state: TableState) -> Iterator[Problem]:
        for row in state.leaves():
            if state.spec_of(row) is None:
                yield self.problem("the id fits no partition spec of the table", row.id)


class LeafOutside(Rule):
    """The location of a leaf is not in the table's root.

    Where its folder is, or was, nobody can tell.
    """

    kind = "leaf-outside"

    def find(self, state: TableState) -> Iterator[Problem]:
        for row, _ in state.known_leaves():
            try:
                DatasetFolder(state.manifest.location, row.location or "")
            except InvalidInput:
                what = f"the location {row.location!r} is not in the table's root"
                yield self.problem(what, row.id)


class LeafTwice(Rule):
    """Two leaves have the same folder, or the same partition values.

    To which of them the rows belong is for people to decide.
    """

    kind = "leaf-twice"

    def find(self, state: TableState) -> Iterator[Problem]:
        expected = state.manifest.expected_columns()
        has_values = all(column.name in state.columns for column in expected)
        leaves: dict[tuple[str, Any], str] = {}
        for row in state.leaves():
            keys: list[tuple[str, Any]] = [("folder", row.location)]
            spec = state.spec_of(row)
            if spec is not None and has_values:
                values = tuple(row.values.get(field.field_id) for field in spec.fields)
                keys.append(("values", (spec.id, values)))
            for key in keys:
                other = leaves.setdefault(key, row.id)
                if other != row.id:
                    yield self.problem(f"it has the same {key[0]} as {other}", row.id)


class SpecDiffers(Rule):
    """The row of a leaf names another spec than its id does."""

    kind = "spec-differs"
    remedy = "taken from the id"

    def find(self, state: TableState) -> Iterator[Problem]:
        if not state.head.ours or "spec_id" not in state.columns:
            return
        for row, spec in state.known_leaves():
            id = row.columns.get("spec_id")
            if id != spec.id:
                yield self.problem(f"spec_id is {'NULL' if id is None else id}", row.id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        wrong = {problem.where for problem in problems}
        for row, spec in draft.known_leaves():
            if row.id in wrong:
                draft.set_column(row, "spec_id", spec.id)


class VersionDiffers(Rule):
    """The version of a leaf differs from its copy in the metadata."""

    kind = "version-differs"
    remedy = "the majority of column, copy and timeline decides"

    def find(self, state: TableState) -> Iterator[Problem]:
        for row in _versioned(state):
            version, copy = row.columns.get(READ_VERSION), row.copy(READ_VERSION)
            if version is None:
                if _said_versions(state, row):
                    yield self.problem("the leaf has no read_version", row.id)
            elif copy != str(version):
                what = f"read_version is {version}, its copy in the metadata {copy}"
                yield self.problem(what, row.id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        for problem in problems:
            row = draft.existing_row(problem.where)
            self._vote(draft, row)
            draft.write_copies(row)

    def _vote(self, draft: Draft, row: RawRow) -> None:
        column, votes = row.columns.get(READ_VERSION), _said_versions(draft, row)
        if set(votes) == {column}:
            return
        is_whole = {version: draft.survey.is_whole(row, version) for version in set(votes)}
        best = max(votes, key=lambda v: (votes.count(v), is_whole[v], v == column))
        draft.set_column(row, READ_VERSION, best)


class VersionLost(Rule):
    """Neither column nor copy nor timeline says which version a leaf is at.

    Any version in its folder may have been the table's.
    """

    kind = "version-lost"

    def find(self, state: TableState) -> Iterator[Problem]:
        for row in _versioned(state):
            if not _said_versions(state, row):
                what = "which version of the leaf is the table's nobody remembers"
                yield self.problem(what, row.id)


def _versioned(state: TableState) -> Iterator[RawRow]:
    """The leaves that have a version in a column of their own."""
    if state.head.ours and state.strong and READ_VERSION in state.columns:
        for row, _ in state.known_leaves():
            if row.metadata is not None:
                yield row


def _said_versions(state: TableState, row: RawRow) -> list[int]:
    """What the column, its copy and the timeline say, as far as they say something."""
    number = row.columns.get("version_number")
    last = None if number is None else state.row(names.version_id(row.id, number))
    versions = [row.columns.get(READ_VERSION), row.version_copy]
    versions.append(None if last is None else last.columns.get(READ_VERSION))
    return [version for version in versions if version is not None]


class LeafValueDiffers(Rule):
    """A partition value of a leaf differs from its copy in the metadata."""

    kind = "value-differs"
    remedy = "the name or else the values of the namespace decide"
    outcomes = (_VALUE_LOST,)

    def find(self, state: TableState) -> Iterator[Problem]:
        for row, spec in state.known_leaves() if state.head.ours else ():
            for _, field in self._in_doubt(state, row, spec):
                yield self._problem(row, field)

    def _problem(self, row: RawRow, field: PartitionField) -> Problem:
        what = f"{field.field_id} is not the same in its column and in the metadata's copy"
        return self.problem(what, row.id)

    def _in_doubt(
        self, state: TableState, row: RawRow, spec: PartitionSpec
    ) -> Iterator[tuple[int, PartitionField]]:
        """The fields whose values are in doubt, each with its depth, outermost first."""
        if row.metadata is None:
            return
        for depth, field in enumerate(spec.fields, 1):
            key, text = row.values.get(field.field_id), row.value_copy(field)
            if field.column_name in state.columns and not agree(key, text, field.result_type):
                yield depth, field

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        wrong = {problem.where for problem in problems}
        for row, spec in draft.known_leaves():
            if row.id not in wrong:
                continue
            for depth, _ in self._in_doubt(draft, row, spec):
                self._decide(draft, row, spec, depth)
            draft.write_copies(row)

    def _decide(self, draft: Draft, row: RawRow, spec: PartitionSpec, depth: int) -> None:
        """Take the value of the copy where it is confirmed, and that of the column is not.

        Where neither is, the value of the column stays, as queries have seen it.
        """
        field = spec.fields[depth - 1]
        key, text = row.values.get(field.field_id), row.value_copy(field)
        copy = read_copy(text, field.result_type)
        confirmed = [k for k in (key, *copy) if _is_named(draft, row, spec, depth, k)]
        above = draft.row(names.namespaces_above(row.id)[depth - 1])
        if not confirmed and above is not None:
            confirmed = [above.values.get(field.field_id)]
            confirmed += read_copy(above.value_copy(field), field.result_type)
        if key in confirmed:
            return
        if copy and copy[0] in confirmed:
            row.set_value(field, copy[0])
            return
        what = f"{field.field_id} is {key!r} in its column, {text!r} in its copy, and neither above"
        draft.given_up.append(Problem(_VALUE_LOST.kind, what, row.id))
        draft.undecided.append(self._problem(row, field))


def _is_named(draft: Draft, row: RawRow, spec: PartitionSpec, depth: int, key: Any) -> bool:
    """Whether the namespace at some depth is called as one with this value would be."""
    fields, path = spec.fields[:depth], names.names_in(row.id)[:depth]
    keys = [*(row.values.get(field.field_id) for field in fields[:-1]), key]
    types = [field.result_type for field in fields]
    return names.namespace_names(draft.head.salt, spec.id, keys, types, path[:-1]) == path
