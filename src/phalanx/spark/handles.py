"""Tables between calls: what Spark holds of one, and the snapshot that it stands for.

A query asks several times about the same snapshot, so a worker keeps the newest ones in memory.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phalanx.errors import ConflictError, InvalidInput
from phalanx.lru import LruCache
from phalanx.model.specs import entries_of
from phalanx.spark.times import version_of
from phalanx.spark.types import arrow_schema, spark_schema
from phalanx.storage.location import Declaration, Location
from phalanx.storage.manifest import NoManifest
from phalanx.transaction.snapshot import Snapshot

_KEPT = 16

Options = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Handle:
    """A table at one version. Spark sends it back with every call."""

    uri: str
    version: int
    #: The transaction that made the version. Another table at the same place has another one.
    transaction: str
    options: Mapping[str, str] | None = None
    #: The metadata table that is meant, such as `partitions`.
    about: str | None = None
    #: The id of the table.
    table: str = ""
    #: What is declared about a tree of others: `schema` in Spark's JSON, and `partition_by`.
    declared: Mapping[str, Any] | None = None

    @staticmethod
    def of(snapshot: Snapshot, about: str | None = None) -> Handle:
        """The handle of a snapshot, which is kept for the calls that follow."""
        remember(snapshot)
        return Handle(
            snapshot.location.uri,
            snapshot.sequence,
            snapshot.head.transaction_id,
            snapshot.location.options,
            about,
            snapshot.head.table_id,
            _spelled_declaration(snapshot.location.declaration),
        )

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @property
    def location(self) -> Location:
        return Location(self.uri, self.options, declaration_of(self.declared))

    def changed(self) -> Snapshot:
        """The snapshot that is to be changed. Raises InvalidInput for a metadata table."""
        if self.about is not None:
            raise InvalidInput(
                f"{self.about!r} shows the metadata of the table {self.uri}, and cannot be changed"
            )
        return self.snapshot()

    def snapshot(self) -> Snapshot:
        """The snapshot that was loaded, from memory where this worker has seen it.

        Raises ConflictError where the table was dropped and created again since.
        """
        snapshot = _recent.get((self.uri, self.version, self.transaction, _spelled(self.options)))
        if snapshot is not None:
            return snapshot
        newest = Snapshot.latest(self.location)
        snapshot = newest if newest.head.transactions == "weak" else newest.find(self.version)
        head = snapshot.head
        if head.transactions != "weak" and head.transaction_id != self.transaction:
            raise ConflictError(f"the table {self.uri} was dropped and made again: run this again")
        remember(snapshot)
        return snapshot


def declaration_of(declared: Mapping[str, Any] | None) -> Declaration | None:
    """What a user has declared about a tree of others; None if that is nothing."""
    if not declared:
        return None
    schema, entries = declared.get("schema"), declared.get("partition_by")
    if isinstance(entries, str):
        entries = entries_of(entries)
    return Declaration(
        None if schema is None else arrow_schema(schema),
        None if entries is None else tuple(entries),
    )


def _spelled_declaration(declaration: Declaration | None) -> Mapping[str, Any] | None:
    if declaration is None:
        return None
    schema, entries = declaration.schema, declaration.partition_by
    return {
        "schema": None if schema is None else spark_schema(schema),
        "partition_by": None if entries is None else list(entries),
    }


_recent: LruCache[tuple[str, int, str, Options], Snapshot] = LruCache(_KEPT)


def _spelled(options: Mapping[str, str] | None) -> Options:
    """Storage options as a part of a key: a reader with other credentials must not use these."""
    return frozenset((options or {}).items())


def remember(snapshot: Snapshot) -> None:
    """Keep a snapshot for the calls that follow.

    A staged table is not kept: it has no leaves yet, but the version and transaction that the
    table will have when it is committed.
    """
    if isinstance(snapshot.manifest, NoManifest):
        return
    location, head = snapshot.location, snapshot.head
    key = (location.uri, head.sequence, head.transaction_id, _spelled(location.options))
    _recent.put(key, snapshot)


def open_snapshot(
    location: Location, version: str | None, micros: int | None, zone: str
) -> Snapshot:
    """The newest snapshot, or the one of a version, a tag or a time.

    A time comes in microseconds, or in place of a version as text, in the time zone `zone`.
    """
    if micros is not None:
        moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=micros)
        return Snapshot.at(location, moment)
    newest = Snapshot.latest(location)
    if version is None:
        return newest
    newest.refuse_weak("opened at a version")
    return newest.find(version_of(version, zone, newest))
