"""Candidate specs: which leaves a table would have if it were partitioned in another way.

A candidate is a list of fields over the leaves that a table has, with what is known of each field's
values. Where a field becomes coarser the outcome is exact, because a leaf's new value follows from
its old one. Where it becomes finer, the outcome assumes that rows spread evenly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.calendar import Unit
from phalanx.model.pruning import PartitionColumn
from phalanx.model.specs import CustomField, expr
from phalanx.model.transforms import (
    EXTRACTS,
    Bucket,
    Expression,
    Extract,
    Identity,
    MultiBucket,
    Transform,
    Truncate,
    common_unit,
)

MOST_BUCKETS = 4096

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class CandidateField:
    """A partition field of a candidate."""

    transform: Transform
    columns: tuple[str, ...]
    #: The value in each leaf, as far as it is known; None where it is not.
    column: PartitionColumn | None
    #: Into how many parts it cuts rows that have the same known values.
    factor: int = 1
    #: Whether its source has been dropped. Such a field can only be kept or removed.
    dropped: bool = False
    name: str = ""


@dataclass(frozen=True)
class Candidate:
    """A spec that a table could have, over leaves with known sizes."""

    fields: tuple[CandidateField, ...]
    sizes: Array = field(repr=False)
    rows: Array = field(repr=False)

    def with_fields(self, number: int, fields: tuple[CandidateField, ...]) -> Candidate:
        """The candidate with other fields in place of one, or after the last."""
        return replace(self, fields=(*self.fields[:number], *fields, *self.fields[number + 1 :]))

    def predicted(self) -> tuple[Array, Array, bool]:
        """The sizes of its leaves, how many there are of each size, and whether that is exact."""
        groups = np.zeros(len(self.sizes), np.int64)
        factor = 1
        for one in self.fields:
            factor *= one.factor
            if one.column is not None:
                width = len(one.column.values) + 1
                groups = groups * width + one.column.codes.astype(np.int64) + 1
                _, groups = np.unique(groups, return_inverse=True)
                groups = groups.reshape(-1)
        count = int(groups.max(initial=0)) + 1
        sizes = np.bincount(groups, weights=self.sizes, minlength=count)
        rows = np.bincount(groups, weights=self.rows, minlength=count)
        parts = np.clip(rows, 1, factor)
        return sizes / parts, parts, factor == 1

    def can_lose(self, number: int) -> bool:
        """Whether a field can be removed. A month without its year prunes badly."""
        one = self.fields[number]
        if not isinstance(one.transform, Extract):
            return True
        return not any(
            other.columns == one.columns
            and isinstance(other.transform, Extract)
            and other.transform.unit in one.transform.unit.finer
            for other in self.fields
        )


def coarser(one: CandidateField) -> Iterator[CandidateField]:
    """Fields of the same source with fewer values, each of which follows from one of the old."""
    if one.dropped or one.column is None:
        return
    values = one.column.values
    match one.transform:
        case Bucket(number) | MultiBucket(number) as transform:
            for less in _divisors(number):
                buckets = pa.array(np.asarray(values) % less)
                yield _mapped(one, type(transform)(less), buckets)
        case Truncate(width):
            is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
            wider = range(1, width) if is_text else (width * 10**k for k in (1, 2, 3))
            for other in wider:
                yield from _applied(one, Truncate(other))
        case Identity():
            if pa.types.is_temporal(values.type):
                yield from _applied(one, EXTRACTS[Unit.YEAR]())
            elif pa.types.is_integer(values.type):
                for width in (10, 100, 1_000, 10_000, 100_000, 1_000_000):
                    yield from _applied(one, Truncate(width))
            if not pa.types.is_floating(values.type):
                for number in (2, 4, 8, 16, 32, 64, 128):
                    yield from _applied(one, Bucket(number))


def finer(one: CandidateField) -> Iterator[tuple[CandidateField, ...]]:
    """Fields of the same source with more values, over which rows are assumed to spread evenly."""
    if one.dropped:
        return
    match one.transform:
        case Bucket(number) | MultiBucket(number) as transform if number < MOST_BUCKETS:
            for times in (2, 4, 8, 16):
                if number * times <= MOST_BUCKETS:
                    more = type(transform)(number * times)
                    yield (replace(one, transform=more, factor=one.factor * times),)
        case Extract(unit=unit) if unit.finer:
            inner = unit.finer[0]
            factor = round(unit.days / inner.days)
            yield (one, CandidateField(EXTRACTS[inner](), one.columns, None, factor=factor))


def by_time(column: str, days: float) -> Iterator[tuple[CandidateField, ...]]:
    """The fields years, months and days of a column whose rows spread over a number of days."""
    for unit in Unit.DAY.hierarchy:
        *outer, last = (
            CandidateField(EXTRACTS[part](), (column,), None) for part in unit.hierarchy
        )
        yield (*outer, replace(last, factor=max(1, math.ceil(days / unit.days))))


def _applied(one: CandidateField, transform: Transform) -> Iterator[CandidateField]:
    """The field with another transform of its values, where that transform takes them."""
    assert one.column is not None
    values = one.column.values
    try:
        transform.result_type([values.type])
        yield _mapped(one, transform, transform.apply([values]))
    except (InvalidInput, pa.ArrowException):
        return


def _mapped(one: CandidateField, transform: Transform, values: pa.Array) -> CandidateField:
    """The field with another value for each of its values."""
    assert one.column is not None
    encoded = values.dictionary_encode()
    codes = np.append(np.asarray(encoded.indices.fill_null(-1)), -1)
    column = PartitionColumn(encoded.dictionary, codes[one.column.codes])
    return replace(one, transform=transform, column=column, name="")


def _divisors(number: int) -> list[int]:
    """Smaller numbers of buckets, largest first, for which whole buckets are put together."""
    return [
        number // part for part in (2, 4, 8, 16, 32, 64) if number % part == 0 and number > part
    ]


def entries_of(fields: Sequence[CandidateField]) -> list[str | CustomField]:
    """The fields as `evolve_partitioning` takes them; year, month and day as `days`."""
    entries: list[str | CustomField] = []
    left = list(fields)
    while left:
        first, unit = left[0], _common_unit(left)
        together = 1 if unit is None else len(unit.hierarchy)
        if unit is not None and together > 1:
            entries.append(f"{unit.plural}({first.columns[0]})")
        elif isinstance(first.transform, Expression):
            entries.append(expr(first.transform.sql, list(first.columns), first.name))
        else:
            entries.append(first.transform.spell(list(first.columns)))
        del left[:together]
    return entries


def _common_unit(fields: Sequence[CandidateField]) -> Unit | None:
    """The unit that the first fields name together, where they are year, month, … of one column."""
    of_one_column = itertools.takewhile(lambda one: one.columns == fields[0].columns, fields)
    return common_unit(one.transform for one in of_one_column)
