"""Lookups: rows by a value of an indexed column.

A scan reads leaves in threads of its own and passes batches on through queues. To find one row by
its key, setting that up takes longer than the work. So for a filter that names values of an indexed
column, leaves are asked first how many rows they have, which the index answers, by threads that
stay. Most leaves have none. If there are few rows in all, they are read in one go. If only one leaf
can have some, it is not asked before it is read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from phalanx.model.domains import domain_of
from phalanx.model.predicates import And, Column, Restrict
from phalanx.storage import key_filters
from phalanx.storage.key_filters import can_filter, hashes_of
from phalanx.storage.read_units import ReadUnit
from phalanx.storage.searched import Array, Searched, open_searched
from phalanx.table.plan import Plan
from phalanx.transaction.snapshot import Snapshot

#: The kinds of index that name the rows with a value.
_KINDS = ("BTREE", "BITMAP")
#: How many leaves are asked at most: those that are open stay open.
_LEAVES = 1_024
#: How many leaves are asked at a time.
_READERS = 8
#: How many rows are read in one go.
_FEW_ROWS = 1_024
#: From so many leaves on, it is remembered which values they do not have.
_MANY = 4

T = TypeVar("T")


@dataclass(frozen=True)
class Wanted:
    """Values of an indexed column, one of which every row has that a filter selects."""

    index: str
    column: Column
    values: pa.Array

    @functools.cached_property
    def hashes(self) -> Array | None:
        """Their hashes, where leaves can be told apart by them."""
        if len(self.column.path) > 1 or not can_filter(self.column.type):
            return None
        return hashes_of(self.values)


def wanted_values(plan: Plan) -> Wanted | None:
    """The values that the filter of a plan names, if there is an index that finds them."""
    if plan.selected > _LEAVES:
        return None
    kinds = (index for index in plan.snapshot.head.indexes.values() if index.kind.name in _KINDS)
    names = {index.column_id: index.name for index in kinds}
    predicate = plan.predicate
    parts = predicate.children if isinstance(predicate, And) else (predicate,)
    for part in parts if names else ():
        if not isinstance(part, Restrict) or not isinstance(part.term, Column) or part.values.null:
            continue
        domain = domain_of(part.type)
        keys = [domain.single(interval) for interval in part.values.intervals]
        if part.term.field_id in names and None not in keys:
            return Wanted(names[part.term.field_id], part.term, domain.array(keys))
    return None


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Threads that live as long as the process. None of their tasks waits for another."""
    return ThreadPoolExecutor(_READERS, thread_name_prefix="phalanx-lookup")


class Lookup:
    """A scan by values of an indexed column."""

    def __init__(self, snapshot: Snapshot, wanted: Wanted, units: Sequence[ReadUnit]) -> None:
        self._location, self._schema = snapshot.location, snapshot.head.schema
        self._wanted, self._units = wanted, units
        self._filters = wanted.hashes is not None and len(units) >= _MANY

    @functools.cached_property
    def _asked(self) -> list[int]:
        """The numbers of the units that may have rows, as far as that is known without asking."""
        return [number for number, unit in enumerate(self._units) if self._may_match(unit)]

    @functools.cached_property
    def counts(self) -> list[int | None]:
        """How many rows of each unit match; None where no index tells."""
        counts: list[int | None] = [0] * len(self._units)
        answers = self._each(self._count, [self._units[number] for number in self._asked])
        for number, answer in zip(self._asked, answers, strict=True):
            counts[number] = answer
        return counts

    def _may_match(self, unit: ReadUnit) -> bool:
        hashes, (column,) = self._wanted.hashes, self._wanted.column.path[:1]
        if hashes is None or unit.small or not self._filters:
            return True
        return key_filters.may_hold(self._location, self._schema, unit.members[0], column, hashes)

    @property
    def matching(self) -> list[ReadUnit]:
        """The units that may have rows, in their order."""
        pairs = zip(self._units, self.counts, strict=True)
        return [unit for unit, count in pairs if count != 0]

    @property
    def uncounted(self) -> list[ReadUnit]:
        """The units whose rows the index does not cover."""
        pairs = zip(self._units, self.counts, strict=True)
        return [unit for unit, count in pairs if count is None]

    def few_rows(self, columns: Sequence[str]) -> list[pa.Table] | None:
        """The rows of every unit that has some, read in one go; None if they may be many."""
        units = [self._units[number] for number in self._asked]
        if len(units) == 1 and not units[0].small:
            rows = self._few_of(units[0], columns)
            return None if rows is None else [rows]
        known = [count for count in self.counts if count is not None]
        if len(known) < len(self.counts) or sum(known) > _FEW_ROWS:
            return None
        return self._each(lambda unit: self._read(unit, columns), self.matching)

    def _few_of(self, unit: ReadUnit, columns: Sequence[str]) -> pa.Table | None:
        """The rows of the only unit that may have some, which need not be counted before."""
        leaf = self._opened(unit)
        if not leaf.is_covered_by(self._wanted.index):
            return None
        rows = leaf.matching(unit.where, columns, _FEW_ROWS + 1)
        if not rows.num_rows:
            self._note(unit)
        return rows if rows.num_rows <= _FEW_ROWS else None

    def _each(self, work: Callable[[ReadUnit], T], units: Sequence[ReadUnit]) -> list[T]:
        return list(map(work, units) if len(units) < 2 else _pool().map(work, units))

    def _count(self, unit: ReadUnit) -> int | None:
        if unit.small:
            return unit.count(self._location, self._schema)
        leaf = self._opened(unit)
        if not leaf.is_covered_by(self._wanted.index):
            return None
        count = leaf.count(unit.where)
        if not count:
            self._note(unit)
        return count

    def _note(self, unit: ReadUnit) -> None:
        """Remember that a leaf was asked in vain."""
        if self._filters:
            column = self._wanted.column.path[0]
            key_filters.note(self._location, self._schema, unit.members[0], column)

    def _read(self, unit: ReadUnit, columns: Sequence[str]) -> pa.Table:
        if unit.small:
            return pa.Table.from_batches(unit.scan(self._location, self._schema, columns))
        return self._opened(unit).matching(unit.where, columns)

    def _opened(self, unit: ReadUnit) -> Searched:
        (leaf,) = open_searched(self._location, self._schema, unit.members)
        return leaf
