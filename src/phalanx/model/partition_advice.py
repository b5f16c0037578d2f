"""Specs that are thought about: what leaves a table would have if it were cut another way.

A cut is a list of fields over the leaves there are, with what is known of each field's values.
Where a field becomes coarser the outcome is known, because a leaf's new value follows from its old
one; where it becomes finer, rows are taken to spread evenly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.pruning import PartitionColumn
from phalanx.model.specs import expr
from phalanx.model.transforms import (
    Bucket,
    Day,
    Expression,
    Extract,
    Hour,
    Identity,
    Month,
    MultiBucket,
    Transform,
    Truncate,
    Year,
)

MOST_BUCKETS = 4096
UNITS: tuple[type[Extract], ...] = (Year, Month, Day, Hour)
_PER_UNIT: dict[type[Extract], int] = {Month: 12, Day: 30, Hour: 24}
_EXPANDED = {2: "months", 3: "days", 4: "hours"}

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class CutField:
    """A partition field of a spec that is thought about."""

    transform: Transform
    columns: tuple[str, ...]
    #: The values in each leaf, as far as they are known; None where nothing is.
    column: PartitionColumn | None
    #: Into how many parts it cuts what the known values do not tell apart.
    factor: int = 1
    #: Whether its source has been dropped: it can only stay or go.
    dropped: bool = False
    name: str = ""


@dataclass(frozen=True)
class Cut:
    """A spec that is thought about, for leaves of some sizes."""

    fields: tuple[CutField, ...]
    sizes: Array = field(repr=False)
    rows: Array = field(repr=False)

    def with_fields(self, number: int, fields: tuple[CutField, ...]) -> Cut:
        """With other fields in the place of one, or behind all."""
        return replace(self, fields=(*self.fields[:number], *fields, *self.fields[number + 1 :]))

    def predicted(self) -> tuple[Array, Array, bool]:
        """The sizes of the leaves it would have, how many of each, and whether that is known."""
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


def coarser(one: CutField) -> Iterator[CutField]:
    """The same field with fewer values, each of which follows from one of the old."""
    if one.dropped or one.column is None:
        return
    match one.transform:
        case Bucket(number):
            for less in _divisors(number):
                yield _mapped(one, Bucket(less), pa.array(np.asarray(one.column.values) % less))
        case MultiBucket(number):
            for less in _divisors(number):
                yield _mapped(
                    one, MultiBucket(less), pa.array(np.asarray(one.column.values) % less)
                )
        case Truncate(width):
            values, text = one.column.values, _is_text(one.column.values.type)
            wider = range(1, width) if text else (width * 10**k for k in (1, 2, 3))
            for other in wider:
                yield from _applied(one, Truncate(other), values)
        case Identity():
            type = one.column.values.type
            if pa.types.is_temporal(type):
                yield from _applied(one, Year(), one.column.values)
            elif pa.types.is_integer(type):
                for width in (10, 100, 1_000, 10_000, 100_000, 1_000_000):
                    yield from _applied(one, Truncate(width), one.column.values)
            if not pa.types.is_floating(type):
                for number in (2, 4, 8, 16, 32, 64, 128):
                    yield from _applied(one, Bucket(number), one.column.values)


def finer(one: CutField) -> Iterator[tuple[CutField, ...]]:
    """The same field with more values: rows are taken to spread over them evenly."""
    if one.dropped:
        return
    match one.transform:
        case Bucket(number) | MultiBucket(number) if number < MOST_BUCKETS:
            kind = type(one.transform)
            for times in (2, 4, 8, 16):
                if number * times <= MOST_BUCKETS:
                    yield (replace(one, transform=kind(number * times), factor=one.factor * times),)
        case Year() | Month() | Day() as unit:
            inner = UNITS[UNITS.index(type(unit)) + 1]
            added = CutField(inner(), one.columns, None, factor=_PER_UNIT[inner])
            yield (one, added)


def _applied(one: CutField, transform: Transform, values: pa.Array) -> Iterator[CutField]:
    try:
        transform.result_type([values.type])
        yield _mapped(one, transform, transform.apply([values]))
    except (InvalidInput, pa.ArrowException):
        return


def _mapped(one: CutField, transform: Transform, values: pa.Array) -> CutField:
    """The field with another value for each of its values."""
    assert one.column is not None
    encoded = values.dictionary_encode()
    codes = np.append(np.asarray(encoded.indices.fill_null(-1)), -1)
    column = PartitionColumn(encoded.dictionary, codes[one.column.codes])
    return replace(one, transform=transform, column=column, name="")


def _divisors(number: int) -> list[int]:
    """Coarser numbers of buckets, nearest first: whole buckets come together."""
    return [
        number // part for part in (2, 4, 8, 16, 32, 64) if number % part == 0 and number > part
    ]


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def entries_of(fields: Sequence[CutField]) -> list[Any]:
    """The fields as `evolve_partitioning` takes them; year, month and day as `days`."""
    found: list[Any] = []
    number = 0
    while number < len(fields):
        one = fields[number]
        run = 0
        while (
            number + run < len(fields)
            and run < len(UNITS)
            and isinstance(fields[number + run].transform, UNITS[run])
            and fields[number + run].columns == one.columns
        ):
            run += 1
        if run > 1:
            found.append(f"{_EXPANDED[run]}({one.columns[0]})")
            number += run
            continue
        if isinstance(one.transform, Expression):
            found.append(expr(one.transform.sql, list(one.columns), one.name))
        else:
            found.append(one.transform.spell(list(one.columns)))
        number += 1
    return found
