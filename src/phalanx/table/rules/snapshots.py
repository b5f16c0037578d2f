"""Earlier snapshots: those that have not expired can be opened, and so can those with a tag."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.storage.location import MANIFEST
from phalanx.table.rules.rule import Problem, Rule
from phalanx.table.rules.state import TableState


class SnapshotUnreadable(Rule):
    """An earlier snapshot cannot be read, or a file of the manifest is missing.

    The manifest is the only place that says what a snapshot consisted of.
    """

    kind = "snapshot-unreadable"

    def find(self, state: TableState) -> Iterator[Problem]:
        for version, error in state.history.unreadable.items():
            yield self.problem(error, f"{MANIFEST} version {version}")
        for path in state.survey.manifest.missing:
            yield self.problem("a file of the manifest is missing", f"{MANIFEST}/{path}")


class TagBroken(Rule):
    """A tag names a snapshot that is gone.

    The tag can be dropped, or given to another version.
    """

    kind = "tag-broken"

    def find(self, state: TableState) -> Iterator[Problem]:
        for name, version in state.history.broken_tags.items():
            yield self.problem(f"the tag names version {version}, which is gone", name)
