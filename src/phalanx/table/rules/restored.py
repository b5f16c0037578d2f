"""A manifest that somebody has set back to an earlier version of itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from phalanx.storage import names
from phalanx.storage.head import HEAD_ID, Head
from phalanx.storage.location import MANIFEST
from phalanx.storage.manifest_update import STREAM, TABLE, TAG, TRANSACTION
from phalanx.storage.names import transaction_row
from phalanx.storage.raw_manifest import RawManifest, RawRow, RawVersion
from phalanx.storage.records import TransactionRecord
from phalanx.table.rules.draft import Draft
from phalanx.table.rules.rule import Problem, Rule
from phalanx.table.rules.state import TableState


class ManifestRestored(Rule):
    """The manifest was restored to an earlier version of itself, which undid transactions.

    `rollback` of a table is another thing: it makes a new version of the table.
    """

    kind = "manifest-restored"
    remedy = "brought back, unless later transactions changed the same leaves or looked at rows"

    def find(self, state: TableState) -> Iterator[Problem]:
        version = _last_undone(state)
        if version is not None:
            undone = _Undone.of(state, version)
            yield self.problem(undone.what, f"{MANIFEST} version {version}")

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        version = _last_undone(draft)
        if version is None:
            return
        undone = _Undone.of(draft, version)
        if undone.since:
            undone.merge_into(draft)
        else:
            undone.bring_back(draft)


def _last_undone(state: TableState) -> int | None:
    """The last version of the manifest whose transaction is not part of the table."""
    if not state.head.ours or not state.history.went_back:
        return None
    present = {row.id for row in state.of_type(TRANSACTION)} | state.history.lost.keys()
    return max(
        (
            head.version
            for id, head in state.history.heads.items()
            if head.sequence >= state.head.oldest and transaction_row(id) not in present
        ),
        default=None,
    )


@dataclass
class _Undone:
    """The transactions that were undone."""

    #: The manifest that still has them.
    manifest: RawManifest
    #: The transactions that were undone, and those that were committed since, by the ids of rows.
    undone: dict[str, TransactionRecord]
    since: dict[str, TransactionRecord]

    @staticmethod
    def of(state: TableState, version: int) -> _Undone:
        handle = RawVersion(state.manifest.location, version)
        manifest = handle.as_manifest(handle.head())
        records = ((row.id, row.transaction()) for row in manifest.rows if row.type == TRANSACTION)
        before = {id: record for id, record in records if record is not None}
        now = state.transactions()
        # A record that one side lacks because it has expired there was neither undone nor added.
        kept_now, kept_before = state.head.oldest, manifest.head.oldest
        return _Undone(
            manifest,
            {i: r for i, r in before.items() if i not in now and r.sequence >= kept_now},
            {i: r for i, r in now.items() if i not in before and r.sequence >= kept_before},
        )

    @property
    def what(self) -> str:
        undone = sorted(self.undone.values(), key=lambda record: record.sequence)
        listed = ", ".join(f"{record.sequence} ({record.operation})" for record in undone[:5])
        more = f" and {len(undone) - 5} more" if len(undone) > 5 else ""
        later = ""
        if self.since:
            first = min(record.sequence for record in self.since.values())
            later = f"; others have been committed since, from version {first} on"
        return (
            "the manifest was restored to an earlier version, which undid the versions "
            f"{listed}{more}{later}"
        )

    def bring_back(self, draft: Draft) -> None:
        """Write the manifest that still has them, as the next version, if all files are there."""
        wanted = {row.id: row for row in self.manifest.rows if row.id != HEAD_ID}
        if not _have_files(draft, wanted.values()):
            return
        draft.is_recalled = True
        for row in [row for row in draft.rows() if row.id not in wanted and _is_ours(row)]:
            draft.remove(row)
        for row in wanted.values():
            if not row.same_as(draft.row(row.id)):
                draft.put(row.duplicate())
        draft.continue_from(self._next_to(draft.head, self.manifest.head))

    def merge_into(self, draft: Draft) -> None:
        """Add what was undone to what was committed since, if the two do not meet.

        They meet if both changed the same row of the manifest, if the schema, the specs or the
        properties differ, and if a later transaction looked at rows that it would have seen.
        """
        base = self._base(draft)
        heads_differ = _state_of(self.manifest.head) != _state_of(draft.head)
        looked = any(record.looks_at_rows for record in self.since.values())
        if base is None or heads_differ or looked:
            return
        wanted = {row.id: row for row in self.manifest.rows if row.id != HEAD_ID}
        changed: list[RawRow] = []
        removed: list[RawRow] = []
        for id in wanted.keys() | base.keys():
            undone, before, now = wanted.get(id), base.get(id), draft.row(id)
            if _same(undone, before) or _same(undone, now):
                continue
            if not _same(now, before):
                return  # both have changed it
            if undone is not None:
                changed.append(undone.duplicate())
            elif now is not None:
                removed.append(now)
        if not _have_files(draft, changed):
            return
        head = self._next_to(self.manifest.head, draft.head)
        for row in removed:
            draft.remove(row)
        for row in changed:
            if row.type == TRANSACTION:
                # Its own version is another snapshot now: it is part of the one that is written.
                row.columns["sequence"] = head.sequence + 1
                row.metadata = {**(row.metadata or {}), "sequence": str(head.sequence + 1)}
                row.metadata["rows_gone"] = "1"
            draft.put(row)
        draft.continue_from(head)

    def _base(self, draft: Draft) -> dict[str, RawRow] | None:
        """The rows of the manifest that it was restored to; None where they are not known."""
        common = [
            head
            for id, head in draft.history.heads.items()
            if transaction_row(id) not in self.undone and transaction_row(id) not in self.since
        ]
        if not common:
            return None
        handle = RawVersion(draft.manifest.location, max(common).version)
        rows = handle.as_manifest(handle.head()).rows
        return {row.id: row for row in rows if row.id != HEAD_ID}

    @staticmethod
    def _next_to(other: Head, head: Head) -> Head:
        """A head to continue from: no version of either history is used again."""
        return replace(
            head,
            sequence=max(head.sequence, other.sequence),
            committed_at=max(head.committed_at, other.committed_at),
            max_field_id=max(head.max_field_id, other.max_field_id),
            oldest=max(head.oldest, other.oldest),
        )


def _have_files(draft: Draft, rows: Iterable[RawRow]) -> bool:
    """Whether all files are there of the leaves that rows would change; a vacuum may have come."""
    return all(
        draft.survey.is_whole(row, row.version)
        for row in rows
        if row.type == TABLE and not row.same_as(draft.row(row.id))
    )


def _is_ours(row: RawRow) -> bool:
    """Whether a row is not the head's and not another client's."""
    return row.type in (TRANSACTION, TAG, STREAM) or names.spec_of(row.id) is not None


def _state_of(head: Head) -> tuple[object, ...]:
    texts = dict(head.properties), dict(head.indexes)
    return head.schema, head.specs, head.spec_id, head.transactions, *texts


def _same(one: RawRow | None, other: RawRow | None) -> bool:
    return other is None if one is None else one.same_as(other)
