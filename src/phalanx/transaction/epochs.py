"""Epochs: the steps of a stream, each of which is committed once, however often it is tried.

A stream's query keeps its name across restarts and numbers its epochs. The manifest has one row per
query with its last committed epoch. That row is written in the epoch's transaction, and stays when
the transaction's own row expires. An epoch with the same or a lower number is in the table already.
Numbers increase, but may have gaps.
"""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.errors import InvalidInput
from phalanx.storage.head import Head
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.records import EpochRecord


@dataclass(frozen=True)
class Epoch:
    """One step of a query. Raises InvalidInput for an invalid name or number."""

    query: str
    number: int

    def __post_init__(self) -> None:
        if not isinstance(self.query, str) or not 0 < len(self.query) <= 256:
            raise InvalidInput("the query of an epoch is a string of 1 to 256 characters")
        if not isinstance(self.number, int) or isinstance(self.number, bool) or self.number < 0:
            raise InvalidInput("the number of an epoch is a whole number from 0")

    @property
    def transaction_id(self) -> str:
        return f"{self.query}:{self.number}"

    def landed(self, manifest: ManifestVersion) -> bool:
        """Whether this epoch, or a later one of its query, is part of the table already."""
        last = manifest.epoch(self.query)
        return last is not None and last.epoch >= self.number

    def record(self, head: Head) -> EpochRecord:
        """The record of this epoch as committed with a head."""
        return EpochRecord(self.query, self.number, head.sequence)
