"""Tables that are about to be created or replaced: their rows are written before they exist."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.specs import CustomField
from phalanx.storage.head import Head
from phalanx.storage.location import Location
from phalanx.table.create import create_table, first_head, replace_table, replaced_head
from phalanx.table.partitioned_writer import WRITERS, WrittenLeaf
from phalanx.transaction.snapshot import Snapshot


@dataclass(frozen=True)
class Stage:
    """A table as it will be. Spark sends it back with every call, in place of a handle."""

    uri: str
    #: The head that the table will have, as its row in the manifest.
    head: Mapping[str, str]
    options: Mapping[str, str] | None
    #: A time before the first file was written.
    started: float
    #: The version that is replaced; None for a new table.
    replaces: int | None = None

    @staticmethod
    def make(
        location: Location,
        exists: bool,
        schema: pa.Schema,
        partition_by: Sequence[str | CustomField],
        transactions: str | None,
        properties: Mapping[str, str],
    ) -> Stage:
        """Stage a table, or the replacement of one that exists.

        Raises InvalidInput where schema, partition fields and properties do not go together.
        """
        if exists:
            base = Snapshot.latest(location)
            if transactions not in (None, base.head.transactions):
                raise InvalidInput(
                    f"the table {location.uri} has {base.head.transactions} transactions, and a "
                    "table that replaces it has them too: drop it first"
                )
            head = replaced_head(base.head, schema, partition_by, properties)
            return Stage(
                location.uri, head.to_metadata(), location.options, time.time(), base.sequence
            )
        head = first_head(schema, partition_by, transactions or "strong", properties)
        return Stage(location.uri, head.to_metadata(), location.options, time.time())

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @property
    def location(self) -> Location:
        return Location(self.uri, self.options)

    def snapshot(self) -> Snapshot:
        """The table as writers see it: without a leaf."""
        sequence, time = int(self.head["sequence"]), self.head["committed_at"]
        head = Head.from_row(sequence, dt.datetime.fromisoformat(time), self.head, self.uri)
        return Snapshot.unborn(self.location, head)

    def commit(self, written: Sequence[WrittenLeaf]) -> Snapshot:
        """Create or replace the table together with its rows, in one snapshot."""
        staged = self.snapshot()
        with ThreadPoolExecutor(WRITERS) as pool:
            if self.replaces is None:
                return create_table(staged.location, staged.head, written, pool, self.started)
            base = Snapshot.at(self.location, self.replaces)
            return replace_table(base, staged.head, written, pool, self.started)
