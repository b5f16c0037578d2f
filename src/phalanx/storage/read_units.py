"""Read units: what is read in one go.

A unit is a leaf, some fragments of one, or several small leaves that have the same residual
filter. Which leaves are small, and which of them are read together, is decided here for every
reader: scans in this process and the tasks of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from phalanx.model.predicates import Predicate
from phalanx.model.schema import TableSchema
from phalanx.storage import small_leaves
from phalanx.storage.location import Location
from phalanx.storage.small_leaves import Member

#: A leaf up to this size is small, and read together with others.
_SMALL_ROWS = 131_072
_SMALL_BYTES = 4 * 1024 * 1024


def are_small(rows: Any, bytes: Any) -> Any:
    """Which leaves are small, given their numbers of rows and bytes; -1 stands for unknown.

    Takes arrays, or the numbers of one leaf. A leaf without rows is not worth a place in a unit.
    """
    return (rows > 0) & (rows <= _SMALL_ROWS) & (bytes >= 0) & (bytes <= _SMALL_BYTES)


class LeafToRead(NamedTuple):
    """A leaf with its residual filter."""

    member: Member
    #: None where all of its rows match.
    where: Predicate | None
    #: How many rows it has, if it is small; None for a leaf that is read by itself.
    rows: int | None


@dataclass(frozen=True)
class ReadUnit:
    """A leaf, some fragments of one, or small leaves with the same residual filter."""

    members: tuple[Member, ...]
    where: Predicate | None = None
    #: Whether its leaves are small.
    small: bool = False
    #: The fragments to read, by their ids; None for all. Only a single leaf has some.
    fragments: tuple[int, ...] | None = None

    def scan(
        self,
        location: Location,
        schema: TableSchema,
        columns: Sequence[str],
        limit: int | None = None,
        in_order: bool = True,
        row_ids: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The rows that match, as rows of the table; row ids are those of a single leaf.

        Raises InvalidInput where Lance cannot evaluate the filter, and CorruptTable where a file is
        gone or damaged.
        """
        if self.small and not row_ids:
            return small_leaves.scan(
                location, schema, self.members, columns, self.where, limit, in_order
            )
        (member,) = self.members
        return member.leaf(location, schema).scan(
            member.version,
            columns,
            self.where,
            limit,
            in_order,
            fragments=self.fragments,
            row_ids=row_ids,
        )

    def count(self, location: Location, schema: TableSchema) -> int:
        """How many rows match. Raises what `scan` raises."""
        if self.small:
            return small_leaves.count(location, schema, self.members, self.where)
        (member,) = self.members
        leaf = member.leaf(location, schema)
        return leaf.count(member.version, self.where, self.fragments)


def grouped(
    leaves: Iterable[LeafToRead], most: int = small_leaves.LARGEST, limit: int | None = None
) -> Iterator[ReadUnit]:
    """Leaves in units, in the same order: small neighbors with the same filter share one.

    A unit has at most `most` leaves, and no more of them than are needed for `limit` rows.
    """
    together: list[Member] = []
    rows, where = 0, None
    for leaf in leaves:
        full = len(together) >= most or (limit is not None and rows >= limit)
        if together and (leaf.rows is None or full or not _same(leaf.where, where)):
            yield ReadUnit(tuple(together), where, small=True)
            together, rows = [], 0
        if leaf.rows is None:
            yield ReadUnit((leaf.member,), leaf.where)
            continue
        together.append(leaf.member)
        where, rows = leaf.where, rows + leaf.rows
    if together:
        yield ReadUnit(tuple(together), where, small=True)


def _same(one: Predicate | None, other: Predicate | None) -> bool:
    # Leaves mostly share one object, and comparing the values of two takes longer.
    return one is other or one == other
