"""Tables that are about to be created or replaced: their rows are written before they exist."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput, TableExists
from phalanx.model.specs import CustomField
from phalanx.spark.relations import Link
from phalanx.storage.head import Head
from phalanx.storage.location import Location
from phalanx.table.create import create_table, first_head, replace_table, replaced_head
from phalanx.table.operations.evolve import next_spec
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
    #: The name that a table in another place gets in its catalog.
    link: Link | None = None
    #: Whether the table is there already, and only gets the name.
    is_there: bool = False

    @staticmethod
    def make(
        location: Location,
        exists: bool,
        schema: pa.Schema,
        partition_by: Sequence[str | CustomField],
        transactions: str | None,
        properties: Mapping[str, str],
        link: Link | None = None,
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
        started = time.time()
        return Stage(location.uri, head.to_metadata(), location.options, started, link=link)

    def constrained(self, constraints: Mapping[str, str]) -> Stage:
        """The same table with constraints. Raises InvalidInput for a weak table."""
        if not constraints:
            return self
        head = self.snapshot().head
        if head.transactions == "weak":
            raise InvalidInput(f"the table {self.uri} is weak, and can have no constraints")
        return replace(self, head=head.constrained(constraints).to_metadata())

    @staticmethod
    def naming(
        location: Location,
        schema: pa.Schema,
        partition_by: Sequence[str | CustomField],
        properties: Mapping[str, str],
        link: Link,
    ) -> Stage:
        """Stage a name for a table that is there already.

        Raises InvalidInput where a statement says of the table what is not so.
        """
        head = Snapshot.latest(location).head
        declared = None if not schema.names else schema.remove_metadata()
        fields = next_spec(head, partition_by).fields if partition_by else head.spec.fields
        is_same = (
            (declared is None or _plain(declared) == _plain(head.schema.arrow))
            and fields == head.spec.fields
            and properties.items() <= head.properties.items()
        )
        if not is_same:
            raise InvalidInput(
                f"there is another table at {location.uri} already: leave columns, partitioning "
                "and properties out to give it a name, or choose another place"
            )
        started = time.time()
        return Stage(
            location.uri, head.to_metadata(), location.options, started, None, link, is_there=True
        )

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "link": None if self.link is None else dict(vars(self.link))}

    @property
    def location(self) -> Location:
        return Location(self.uri, self.options)

    def snapshot(self) -> Snapshot:
        """The table as writers see it: without a leaf."""
        sequence, time = int(self.head["sequence"]), self.head["committed_at"]
        head = Head.from_row(sequence, dt.datetime.fromisoformat(time), self.head, self.uri)
        return Snapshot.unborn(self.location, head)

    def changed(self) -> Snapshot:
        """As `snapshot`: all of it is to be changed."""
        return self.snapshot()

    def commit(self, written: Sequence[WrittenLeaf]) -> Snapshot:
        """Create or replace the table together with its rows, in one snapshot.

        One in another place gets its name afterwards: if that fails, the same statement without
        columns gives it one. Raises TableExists where another table has got the name meanwhile.
        """
        snapshot = Snapshot.latest(self.location) if self.is_there else self._made(written)
        if self.link is not None and not self.link.create(self.location):
            raise TableExists(
                f"another relation has got the name {self.link.name} meanwhile: the table lies at "
                f"{self.uri} without one"
            )
        return snapshot

    def _made(self, written: Sequence[WrittenLeaf]) -> Snapshot:
        staged = self.snapshot()
        with ThreadPoolExecutor(WRITERS) as pool:
            if self.replaces is None:
                return create_table(staged.location, staged.head, written, pool, self.started)
            base = Snapshot.at(self.location, self.replaces)
            return replace_table(base, staged.head, written, pool, self.started)


def _plain(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]
