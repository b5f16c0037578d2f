"""Epochs: the steps of a stream, each of which lands once however often it is tried.

A stream's query keeps its name over restarts, and numbers its epochs. The manifest has one row
for each query with the last epoch that has landed; it is written in the transaction of that
epoch, and stays when the transaction's own row expires. Whatever has its number or a lower one
is in the table already. Numbers rise, but need not follow one another.
"""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.errors import InvalidInput
from phalanx.storage.head import Head
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.records import EpochRecord


@dataclass(frozen=True)
class Epoch:
    """One step of a query. Raises InvalidInput for a name or number that is none."""

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
        """That the epoch lands with this head."""
        return EpochRecord(self.query, self.number, head.sequence)
