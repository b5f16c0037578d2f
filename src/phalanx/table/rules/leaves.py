"""Rows of leaves: whether their ids, columns and metadata agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    """The id of a leaf fits no partition spec of the table, so that its rows cannot be read.

    Without a spec its partition values are unknown.
    """

    kind = "leaf-unknown"
    remedy = "removed, if another leaf has the same folder and version"

    def find(self, state: TableState) -> Iterator[Problem]:
        for row in state.leaves():
            if state.spec_of(row) is None:
                what = f"the id fits no partition spec of the table; its folder is {row.location}"
                yield self.problem(what, row.id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        known = {(row.location, row.version) for row, _ in draft.known_leaves()}
        for problem in problems:
            row = draft.existing_row(problem.where)
            if (row.location, row.version) in known:
                draft.remove(row)


def outside_text(location: str | None) -> str:
    return f"the location {location!r} is not in the table's root"


class LeafOutside(Rule):
    """The location of a leaf is not in the table's root.

    Nothing else says where its folder is.
    """

    kind = "leaf-outside"

    def find(self, state: TableState) -> Iterator[Problem]:
        for row, _ in state.known_leaves():
            try:
                DatasetFolder(state.manifest.location, row.location or "")
            except InvalidInput:
                yield self.problem(outside_text(row.location), row.id)


class LeafTwice(Rule):
    """Two leaves have the same folder, or the same partition values.

    Only a person can decide which of them the rows belong to.
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
            version = self._vote(draft, row)
            row.columns[READ_VERSION] = version
            # The copies of values are left alone: they are needed to decide which values are right.
            row.metadata = {**(row.metadata or {}), READ_VERSION: str(version)}
            draft.put(row)

    def _vote(self, draft: Draft, row: RawRow) -> int:
        column, votes = row.columns.get(READ_VERSION), _said_versions(draft, row)
        if len(set(votes)) == 1:
            return votes[0]
        is_whole = {version: draft.survey.is_whole(row, version) for version in set(votes)}
        return max(votes, key=lambda v: (votes.count(v), is_whole[v], v == column))


class VersionLost(Rule):
    """Neither column nor copy nor timeline says which version a leaf is at.

    Any version in its folder may be the right one.
    """

    kind = "version-lost"

    def find(self, state: TableState) -> Iterator[Problem]:
        for row in _versioned(state):
            if not _said_versions(state, row):
                what = "nothing says which version of the leaf is the table's"
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
    """A partition value of a leaf differs from its copy in the metadata, or from its name."""

    kind = "value-differs"
    remedy = "the name or else the values of the namespace decide"
    outcomes = (_VALUE_LOST,)

    def find(self, state: TableState) -> Iterator[Problem]:
        for row, spec in state.known_leaves() if state.head.ours else ():
            if row.metadata is not None:
                for value in _values(state, row, spec):
                    yield from self._problems(value)

    def _problems(self, value: _LeafValue) -> Iterator[Problem]:
        id = value.field.field_id
        if not value.agrees:
            what = f"{id} is not the same in its column and in the metadata's copy"
            yield self.problem(what, value.row.id)
        elif value.is_misnamed:
            yield self.problem(f"{id} is not the value that its namespace is for", value.row.id)

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        wrong = {problem.where for problem in problems}
        for row, spec in draft.known_leaves():
            if row.id in wrong:
                # Outer values first: the names of inner namespaces follow from them.
                for value in _values(draft, row, spec):
                    self._decide(draft, value)
                draft.write_copies(row)

    def _decide(self, draft: Draft, value: _LeafValue) -> None:
        """Set the value that the name of the namespace confirms, or else its values.

        Where they confirm none, the value of the column stays, as queries have seen it.
        """
        problems = list(self._problems(value))
        if not problems:
            return
        row, field = value.row, value.field
        named = [key for key in (*value.said, *value.said_above) if value.is_named(key)]
        confirmed = named or [key for key in value.said if key in value.said_above]
        if confirmed:
            row.set_value(field, value.key if value.key in confirmed else confirmed[0])
            return
        id, copy = field.field_id, row.value_copy(field)
        what = f"{id} is {value.key!r} in its column, {copy!r} in its copy, and neither above"
        draft.given_up.append(Problem(_VALUE_LOST.kind, what, row.id))
        draft.undecided += problems


def _values(state: TableState, row: RawRow, spec: PartitionSpec) -> Iterator[_LeafValue]:
    """The partition values of a leaf, outermost first."""
    above = names.namespaces_above(row.id)
    for depth, (field, id) in enumerate(zip(spec.fields, above, strict=True), 1):
        if field.column_name in state.columns:
            yield _LeafValue(state.head.salt, spec, depth, field, row, state.row(id))


@dataclass(slots=True)
class _LeafValue:
    """One partition value of a leaf, with all that is known about it."""

    salt: bytes
    spec: PartitionSpec
    depth: int
    field: PartitionField
    row: RawRow
    #: The namespace that is there for the value.
    namespace: RawRow | None

    @property
    def key(self) -> Any:
        return self.row.values.get(self.field.field_id)

    @property
    def agrees(self) -> bool:
        """Whether the column and its copy say the same."""
        return agree(self.key, self.row.value_copy(self.field), self.field.result_type)

    @property
    def said(self) -> list[Any]:
        """What the column and its copy say."""
        return [self.key, *read_copy(self.row.value_copy(self.field), self.field.result_type)]

    @property
    def said_above(self) -> list[Any]:
        """What the namespace says, in its column and in its copy."""
        if self.namespace is None:
            return []
        key = self.namespace.values.get(self.field.field_id)
        text = self.namespace.value_copy(self.field)
        return [key, *read_copy(text, self.field.result_type)]

    @property
    def is_misnamed(self) -> bool:
        """Whether the namespace has another value, and is named after that."""
        if self.namespace is None:
            return False
        other = self.namespace.values.get(self.field.field_id)
        return other != self.key and self.is_named(other) and not self.is_named(self.key)

    def is_named(self, key: Any) -> bool:
        """Whether the namespace is called as one with this value would be."""
        fields, path = self.spec.fields[: self.depth], names.names_in(self.row.id)[: self.depth]
        keys = [*(self.row.values.get(field.field_id) for field in fields[:-1]), key]
        types = [field.result_type for field in fields]
        return names.namespace_names(self.salt, self.spec.id, keys, types, path[:-1]) == path
