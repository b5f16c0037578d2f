"""The transforms: how a row's values become a partition value, and what a filter on the values
says about the partition value.

Each transform is one class that owns everything about itself:

* `result_type`: the type of the partition value, and which sources it accepts;
* `apply`: partition values for a batch;
* `project`: the partition values that rows in a set of source values can have (inclusive: a
  partition outside of it holds no such row);
* `project_strictly`: the partition values whose rows all lie in a set of source values (those
  that no row outside of the set can have);
* `resists_promotion`: whether rows stay where they are when a source gets a wider type;
* `term`: the same as a term of SQL, so that a filter on the expression itself is recognized;
* `spell`: how a person writes it.

| transform      | result         | NULL                     | monotonic |
|----------------|----------------|--------------------------|-----------|
| identity       | source's type  | NULL                     | yes       |
| year           | int32          | NULL                     | yes       |
| month day hour | int32          | NULL                     | no        |
| bucket         | int32          | NULL                     | no        |
| multi_bucket   | int32          | NULL if all are NULL     | no        |
| truncate       | source's type  | NULL                     | yes       |
| mod_bucket     | int32          | NULL                     | no        |
| hash           | string         | NULL                     | no        |
| floor_truncate | source's type  | NULL                     | yes       |
| expression     | as declared    | as the expression says   | some are  |

`mod_bucket`, `hash` and `floor_truncate` are the partition functions `bucket`, `hash` and
`truncate` of key=value namespaces (`layout="hive"`).

Beyond its class a new transform needs its name in `partition_by` (`phalanx.model.specs`), and for
joins without a shuffle its twin in Spark (`phalanx.spark.transforms`, `jvm/Functions.scala`).

The buckets of the earlier specification (`phalanx.model.md5`) are expressions that are recognized.

Time is cut in UTC: a zoned timestamp counts as its instant, one without a zone as if it were UTC.
"""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import InvalidInput
from phalanx.model import hashing
from phalanx.model.calendar import FIRST_YEAR, LAST_YEAR, UNITS, Unit, civil_of, ticks_per_day
from phalanx.model.dialect import term_to_sql
from phalanx.model.domains import (
    Domain,
    FloatDomain,
    NullnessDomain,
    TextDomain,
    cuts_in_utc,
    domain_of,
)
from phalanx.model.expressions import check, evaluate_custom, same_custom, type_of_custom
from phalanx.model.literals import Literal
from phalanx.model.md5 import hashed_bytes, is_exact, md5_bucket
from phalanx.model.parser import parse
from phalanx.model.predicates import Call, Column, Name, Term, resolve_names
from phalanx.model.sets import ALL_VALUES, EMPTY, FULL, ValueSet

#: How many source values a filter may name before a transform stops trying them one by one.
ENUMERATE_LIMIT = 10_000


class Transform(ABC):
    """How source values become a partition value."""

    #: Its name in the specification's JSON.
    kind: ClassVar[str]
    #: The end of the default name of a field that uses it.
    suffix: ClassVar[str] = ""

    @abstractmethod
    def result_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        """The type of the partition value. Raises InvalidInput for sources it does not take."""

    @abstractmethod
    def apply(self, arrays: Sequence[pa.Array]) -> pa.Array:
        """The partition value of each row."""

    def value_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        """The type of the values that `apply` and `project` return, for sources that it takes."""
        return self.result_type(types)

    def project(self, values: Sequence[ValueSet], types: Sequence[pa.DataType]) -> ValueSet:
        """The partition values of rows whose sources lie in `values`; FULL where it cannot tell."""
        return FULL

    def project_strictly(
        self, index: int, values: ValueSet, types: Sequence[pa.DataType]
    ) -> ValueSet:
        """The partition values whose rows all have their source `index` in `values`."""
        sources = [FULL] * len(types)
        sources[index] = values.complement(null=not values.null)
        if sources[index].is_empty:
            return FULL
        outside = self.project(sources, types)
        return outside.complement(null=not outside.null)

    def resists_promotion(self, type: pa.DataType) -> bool:
        """Whether rows provably keep their partitions when a source of this type gets wider."""
        return True

    def term(self, columns: Sequence[Column]) -> Term | None:
        """The SQL that gives the same value, or None where there is none."""
        return None

    def to_json(self) -> dict[str, Any]:
        return {"type": self.kind}

    def spell(self, names: Sequence[str]) -> str:
        return f"{self.kind}({', '.join(names)})"

    def __str__(self) -> str:
        return self.spell(["…"])


class _OneColumn(Transform):
    """A transform of one column that is NULL exactly where the column is NULL."""

    def project(self, values: Sequence[ValueSet], types: Sequence[pa.DataType]) -> ValueSet:
        (source,), (type,) = values, types
        if source.has_all_values:
            projected = ALL_VALUES
        else:
            projected = self._project(source, type) if source.intervals else EMPTY
        return projected.with_null(source.null)

    @abstractmethod
    def _project(self, values: ValueSet, type: pa.DataType) -> ValueSet:
        """The partition values of some values, but not all, that are not NULL."""


@dataclass(frozen=True)
class Identity(_OneColumn):
    """The value itself. -0.0 and 0.0 are one value, and so are all NaN."""

    kind: ClassVar[str] = "identity"

    def result_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        (type,) = types
        _refuse_unordered(self, type)
        return _decoded(type)

    def apply(self, arrays: Sequence[pa.Array]) -> pa.Array:
        (array,) = arrays
        return _one_zero(array) if pa.types.is_floating(array.type) else array

    def _project(self, values: ValueSet, type: pa.DataType) -> ValueSet:
        return values

    def term(self, columns: Sequence[Column]) -> Term | None:
        return columns[0]

    def spell(self, names: Sequence[str]) -> str:
        return names[0]

    def __str__(self) -> str:
        return "identity(…)"


#: The transform that takes each unit of time from a column.
EXTRACTS: dict[Unit, type[Extract]] = {}


class Extract(_OneColumn):
    """One part of the instant in UTC: a year, a month 1 to 12, a day 1 to 31, an hour 0 to 23."""

    unit: ClassVar[Unit]

    def __init_subclass__(cls) -> None:
        cls.kind = cls.unit.singular
        cls.suffix = f"_{cls.kind}"
        EXTRACTS[cls.unit] = cls

    def result_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        (type,) = types
        if not (pa.types.is_timestamp(type) or pa.types.is_date(type)):
            raise InvalidInput(f"{self.kind} needs a date or timestamp column, not {type}")
        return pa.int32()

    def apply(self, arrays: Sequence[pa.Array]) -> pa.Array:
        (array,) = arrays
        type = array.type
        if pa.types.is_timestamp(type) and type.tz is not None:
            array = array.view(pa.timestamp(type.unit))
        instants = array.view(pa.int32() if pa.types.is_date32(type) else pa.int64())
        first, last = (end.as_py() for end in pc.min_max(instants).values())
        if first is None:
            return pa.nulls(len(array), pa.int32())
        ticks = ticks_per_day(type)
        first_year, last_year = (int(civil_of(end // ticks)[0]) for end in (first, last))
        if first_year >= -9999 and last_year <= 9999:
            return getattr(pc, self.kind)(array).cast(pa.int32())
        # Arrow counts years in 16 bits.
        if first_year < FIRST_YEAR or last_year > LAST_YEAR:
            raise InvalidInput(
                f"{self.kind} takes dates of the years {FIRST_YEAR} to {LAST_YEAR}, and there is "
                f"one of the year {last_year if first_year >= FIRST_YEAR else first_year}"
            )
        numbers = self.unit.number_at(np.asarray(instants.fill_null(0)).astype(np.int64), ticks)
        parts = self.unit.part(numbers).astype(np.int32)
        return pa.array(parts, mask=np.asarray(array.is_null()))

    def _project(self, values: ValueSet, type: pa.DataType) -> ValueSet:
        unit, ticks = self.unit, ticks_per_day(type)
        numbers = [
            (
                None if low is None else unit.number_at(low, ticks),
                None if high is None else unit.number_at(high - 1, ticks) + 1,
            )
            for low, high in values.intervals
        ]
        if unit.cycle is None:
            return ValueSet.of(
                (None if low is None else unit.part(low), None if high is None else unit.part(high))
                for low, high in numbers
            )
        # A part that comes round again: only short ranges name the ones that they touch.
        parts: set[int] = set()
        for low, high in numbers:
            if low is None or high is None or high - low >= unit.cycle:
                return ALL_VALUES
            parts.update(unit.part(number) for number in range(low, high))
        return domain_of(pa.int32()).points(sorted(parts))

    def term(self, columns: Sequence[Column]) -> Term | None:
        (column,) = columns
        if not cuts_in_utc(column.type):
            return None  # date_part looks at the column's own clock, the transform at UTC's.
        return Call("date_part", (Literal("string", self.kind), column))


@dataclass(frozen=True)
class Year(Extract):
    unit: ClassVar[Unit] = Unit.YEAR


@dataclass(frozen=True)
class Month(Extract):
    unit: ClassVar[Unit] = Unit.MONTH


@dataclass(frozen=True)
class Day(Extract):
    unit: ClassVar[Unit] = Unit.DAY


@dataclass(frozen=True)
class Hour(Extract):
    unit: ClassVar[Unit] = Unit.HOUR

    def result_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        if not pa.types.is_timestamp(types[0]):
            raise InvalidInput(f"hour needs a timestamp column, not {types[0]}")
        return pa.int32()


def common_unit(transforms: Iterable[Transform]) -> Unit | None:
    """The unit that transforms of one column name together: year, month and day name a day.

    Only those at the beginning count; None where the first is not a year.
    """
    common = None
    for transform, unit in zip(transforms, Unit, strict=False):
        if not isinstance(transform, EXTRACTS[unit]):
            break
        common = unit
    return common


@dataclass(frozen=True)
class Bucket(_OneColumn):
    """A hash of the value, modulo the number of buckets."""

    num_buckets: int
    kind: ClassVar[str] = "bucket"
    suffix: ClassVar[str] = "_bucket"

    def __post_init__(self) -> None:
        _check_positive("num_buckets", self.num_buckets)

    def result_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        for type in types:
            hashing.murmur3(pa.nulls(0, type))
        return pa.int32()

    def apply(self, arrays: Sequence[pa.Array]) -> pa.Array:
        return hashing.bucket(hashing.murmur3(arrays[0]), self.num_buckets)

    def _project(self, values: ValueSet, type: pa.DataType) -> ValueSet:
        domain = domain_of(type)
        # Many more values than buckets fall into all of them.
        limit = min(ENUMERATE_LIMIT, 20 * self.num_buckets)
        keys = domain.enumerate(values.with_null(False), limit)
        if keys is None:
            return ALL_VALUES
        buckets = self.apply([domain.array(keys)])
        return domain_of(pa.int32()).points(sorted(set(buckets.to_pylist())))

    def to_json(self) -> dict[str, Any]:
        return {"type": self.kind, "num_buckets": self.num_buckets}

    def spell(self, names: Sequence[str]) -> str:
        return f"{self.kind}({self.num_buckets}, {', '.join(names)})"


@dataclass(frozen=True)
class MultiBucket(Transform):
    """A hash of several columns, NULLs passed over, modulo the number of buckets."""

    num_buckets: int
    kind: ClassVar[str] = "multi_bucket"
    suffix: ClassVar[str] = "_bucket"

    def __post_init__(self) -> None:
        _check_positive("num_buckets", self.num_buckets)

    def result_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        if not types:
            raise InvalidInput("multi_bucket needs at least one column")
        for type in types:
            hashing.murmur3(pa.nulls(0, type))
        return pa.int32()

    def apply(self, arrays: Sequence[pa.Array]) -> pa.Array:
        return hashing.bucket(hashing.murmur3_multi(arrays), self.num_buckets)

    def project(self, values: Sequence[ValueSet], types: Sequence[pa.DataType]) -> ValueSet:
        rows = _combinations(values, types)
        if rows is None:
            return FULL if all(v.null for v in values) else ALL_VALUES
        buckets = self.apply(rows).to_pylist()
        return domain_of(pa.int32()).points(
            sorted(set(buckets) - {None}) + [None] * (None in buckets)
        )

    def to_json(self) -> dict[str, Any]:
        return {"type": self.kind, "num_buckets": self.num_buckets}

    def spell(self, names: Sequence[str]) -> str:
        return f"{self.kind}({self.num_buckets}, {', '.join(names)})"


@dataclass(frozen=True)
class Truncate(_OneColumn):
    """The first `width` characters of a string, or a number rounded toward zero to a multiple."""

    width: int
    kind: ClassVar[str] = "truncate"
    suffix: ClassVar[str] = "_truncate"

    def __post_init__(self) -> None:
        _check_positive("width", self.width)

    def result_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        (type,) = types
        type = _decoded(type)
        t = pa.types
        if not (
            isinstance(domain_of(type), TextDomain)
            or t.is_integer(type)
            or t.is_decimal(type)
            or t.is_floating(type)
        ):
            raise InvalidInput(f"truncate needs a string or number column, not {type}")
        if t.is_decimal(type) and type.scale < 0:
            raise InvalidInput(f"truncate needs a scale that is not negative, unlike {type}")
        return type

    def apply(self, arrays: Sequence[pa.Array]) -> pa.Array:
        (array,) = arrays
        type = array.type
        if isinstance(domain_of(type), TextDomain):
            if pa.types.is_string_view(type):  # Arrow has no kernel for views.
                array = array.cast(pa.large_string())
            return pc.utf8_slice_codeunits(array, 0, self.width).cast(type)
        if pa.types.is_decimal(type):
            domain, step = domain_of(type), self._step(type)
            keys = [domain.key(scalar) if scalar.is_valid else None for scalar in array]
            return domain.array([None if k is None else _toward_zero(k, step) for k in keys])
        values = _numpy(array)
        wide: Any = np.int64
        if pa.types.is_floating(type):
            wide = np.float64
        elif pa.types.is_unsigned_integer(type):
            wide = np.uint64
        with np.errstate(invalid="ignore"):
            whole = values.astype(wide)
            rounded = (whole - np.fmod(whole, wide(self.width))).astype(values.dtype)
        result = pa.array(rounded, type, mask=np.asarray(array.is_null()), from_pandas=False)
        return _one_zero(result) if pa.types.is_floating(type) else result

    def resists_promotion(self, type: pa.DataType) -> bool:
        # A multiple of the width may be rounded to a float, and not to a double.
        return not pa.types.is_floating(type)

    def _step(self, type: pa.DataType) -> int:
        scale = type.scale if pa.types.is_decimal(type) else 0
        return self.width * int(10**scale)

    def _project(self, values: ValueSet, type: pa.DataType) -> ValueSet:
        domain = domain_of(type)
        if isinstance(domain, TextDomain):
            return ValueSet.of(
                (
                    None if low is None else low[: self.width],
                    None if high is None else self._past_prefix(high),
                )
                for low, high in values.intervals
            )
        if isinstance(domain, FloatDomain):
            return self._project_floats(values, domain)
        step = self._step(type)
        return ValueSet.of(
            (
                None if low is None else _toward_zero(low, step),
                None if high is None else _toward_zero(high - 1, step) + 1,
            )
            for low, high in values.intervals
        )

    def _past_prefix(self, high: str) -> str:
        """Just above the truncation of every string below `high`."""
        return high if len(high) <= self.width else high[: self.width] + "\0"

    def _project_floats(self, values: ValueSet, domain: FloatDomain) -> ValueSet:
        # Infinity and NaN all become NaN, so their partition is kept for any open range.
        infinity = domain.highest - 1
        intervals = []
        for low, high in values.intervals:
            low = domain.lowest if low is None else low
            last = domain.highest if high is None else high - 1
            if low == domain.lowest or last >= infinity:
                intervals.append((domain.highest, domain.highest + 1))
            low, last = max(low, domain.lowest + 1), min(last, infinity - 1)
            if low <= last:
                ends = self.apply([domain.array([low, last])])
                intervals.append((domain.key(ends[0]), domain.key(ends[1]) + 1))
        return ValueSet.of(intervals)

    def term(self, columns: Sequence[Column]) -> Term | None:
        (column,) = columns
        width = Literal("number", self.width)
        if isinstance(domain_of(column.type), TextDomain):
            return Call("left", (column, width))
        if pa.types.is_floating(column.type):
            return None
        return Call("-", (column, Call("%", (column, width))))

    def to_json(self) -> dict[str, Any]:
        return {"type": self.kind, "width": self.width}

    def spell(self, names: Sequence[str]) -> str:
        return f"{self.kind}({self.width}, {', '.join(names)})"


class _Hashed(_OneColumn):
    """A transform that only values that are named one by one can be pruned by."""

    #: How many values are tried.
    _most: int = ENUMERATE_LIMIT

    def _project(self, values: ValueSet, type: pa.DataType) -> ValueSet:
        domain = domain_of(type)
        keys = domain.enumerate(values.with_null(False), self._most)
        if keys is None:
            return ALL_VALUES
        return _set_of(self.apply([domain.array(keys)]))


@dataclass(frozen=True)
class ModBucket(_Hashed):
    """A hash of the value, as a signed number, modulo the number of buckets: never negative.

    `bucket` takes the absolute value first, so the two place the same row differently.
    """

    num_buckets: int
    kind: ClassVar[str] = "mod_bucket"
    suffix: ClassVar[str] = "_bucket"

    def __post_init__(self) -> None:
        _check_positive("num_buckets", self.num_buckets)

    @property
    def _most(self) -> int:  # type: ignore[override]
        # Many more values than buckets fall into all of them.
        return min(ENUMERATE_LIMIT, 20 * self.num_buckets)

    def result_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        hashing.murmur3(pa.nulls(0, types[0]))
        return pa.int32()

    def apply(self, arrays: Sequence[pa.Array]) -> pa.Array:
        return hashing.mod_bucket(hashing.murmur3(arrays[0]), self.num_buckets)

    def to_json(self) -> dict[str, Any]:
        return {"type": self.kind, "num_buckets": self.num_buckets}

    def spell(self, names: Sequence[str]) -> str:
        return f"bucket({self.num_buckets}, {', '.join(names)})"


@dataclass(frozen=True)
class Hash(_Hashed):
    """A hash of the value as 8 hexadecimal digits. Lists, structs and maps have one as well."""

    kind: ClassVar[str] = "hash"
    suffix: ClassVar[str] = "_hash"

    def result_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        hashing.murmur3_any(pa.nulls(0, types[0]))
        return pa.string()

    def apply(self, arrays: Sequence[pa.Array]) -> pa.Array:
        return hashing.hexadecimal(hashing.murmur3_any(arrays[0]))


@dataclass(frozen=True)
class FloorTruncate(_OneColumn):
    """The first `width` characters of a string, or a whole number rounded down to a multiple.

    A client may round negative numbers toward zero instead, because the document that defines it
    only says `mod`. So a filter on negative numbers selects the partitions of both readings.
    """

    width: int
    kind: ClassVar[str] = "floor_truncate"
    suffix: ClassVar[str] = "_trunc"

    def __post_init__(self) -> None:
        _check_positive("width", self.width)

    def result_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        type = _decoded(types[0])
        if not (isinstance(domain_of(type), TextDomain) or pa.types.is_integer(type)):
            raise InvalidInput(f"truncate needs a string or integer column, not {type}")
        return type

    def apply(self, arrays: Sequence[pa.Array]) -> pa.Array:
        (array,) = arrays
        if not pa.types.is_integer(array.type):
            return Truncate(self.width).apply(arrays)
        domain = domain_of(array.type)
        low = domain.lowest
        values = _numpy(array)
        wide: Any = np.uint64 if pa.types.is_unsigned_integer(array.type) else np.int64
        whole = values.astype(wide)
        rest = np.mod(whole, wide(self.width))
        # The multiple below the lowest number of the type is not in it.
        rest = np.where(whole < wide(low) + rest, whole - wide(low), rest)
        rounded = (whole - rest).astype(values.dtype)
        return pa.array(rounded, array.type, mask=np.asarray(array.is_null()), from_pandas=False)

    def resists_promotion(self, type: pa.DataType) -> bool:
        # The multiple below the lowest number is one of a wider type.
        return not pa.types.is_signed_integer(type)

    def _project(self, values: ValueSet, type: pa.DataType) -> ValueSet:
        toward_zero = Truncate(self.width)._project(values, type)
        if isinstance(domain_of(type), TextDomain):
            return toward_zero
        low = domain_of(type).lowest
        down = ValueSet.of(
            (
                None if first is None else max(low, first - first % self.width),
                None if after is None else max(low, (after - 1) - (after - 1) % self.width) + 1,
            )
            for first, after in values.intervals
        )
        return toward_zero | down

    def to_json(self) -> dict[str, Any]:
        return {"type": self.kind, "width": self.width}

    def spell(self, names: Sequence[str]) -> str:
        return f"truncate({self.width}, {', '.join(names)})"


@dataclass(frozen=True)
class Expression(Transform):
    """A DataFusion expression over `col0`, `col1`, …, evaluated as written."""

    sql: str
    kind: ClassVar[str] = "expression"

    def result_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        return check(self.sql, tuple(types))

    def value_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        return type_of_custom(self.sql, tuple(types))

    def apply(self, arrays: Sequence[pa.Array]) -> pa.Array:
        values = evaluate_custom(self.sql, arrays)
        return _one_zero(values) if pa.types.is_floating(values.type) else values

    def resists_promotion(self, type: pa.DataType) -> bool:
        return False  # It was tried on samples only.

    def project(self, values: Sequence[ValueSet], types: Sequence[pa.DataType]) -> ValueSet:
        try:
            rows = _combinations(values, types)
            if rows is not None:
                return _set_of(self.apply(_of_both_signs(rows)))
            if len(values) == 1 and self._is_monotonic(types[0]):
                return self._project_range(values[0], types[0])
        except InvalidInput:
            pass  # It fails on a value that the filter names, which says nothing about partitions.
        return FULL

    def _project_range(self, values: ValueSet, type: pa.DataType) -> ValueSet:
        domain, slack = domain_of(type), _slack(type)
        keys: list[Any] = [None]
        for low, high in values.intervals:
            keys.append(None if low is None else _moved(low, -slack, domain))
            keys.append(None if high is None else _moved(high, slack - 1, domain))
        ends = self.apply([domain.array(keys)])
        target = domain_of(ends.type)
        null, *bounds = (target.key(end) if end.is_valid else None for end in ends)
        result = EMPTY
        if values.null:
            result = EMPTY.with_null(True) if null is None else target.point(null)
        for i, (low, high) in enumerate(values.intervals):
            first = after = None
            if low is not None:
                first = bounds[2 * i]
                if first is None:
                    return FULL
            if high is not None:
                last = bounds[2 * i + 1]
                if last is None:
                    return FULL
                after = target.successor(last)
                if isinstance(domain, TextDomain):
                    after = min(after, high)  # The beginning of a string is not above the string.
            result = result | ValueSet.of([(first, after)])
        if any(None in interval for interval in values.intervals) and self._fades(domain):
            result = result.with_null(True)
        return target.clip(result)

    def _fades(self, domain: Domain) -> bool:
        """Whether it is NULL for the lowest or highest values, as `date_part` is."""
        if domain.highest is None:
            return False
        try:
            return bool(self.apply([domain.array([domain.lowest, domain.highest])]).null_count)
        except InvalidInput:
            return False

    @cached_property
    def _parsed(self) -> Term | None:
        try:
            return parse(self.sql)
        except InvalidInput:
            return None  # SQL that our filters do not speak, such as CASE: never recognized.

    def _understood(self, types: Sequence[pa.DataType]) -> Term | None:
        """The expression as our own parser reads it, if DataFusion reads it in the same way."""
        if self._parsed is None:
            return None
        same = same_custom(self.sql, term_to_sql(self._parsed), tuple(types))
        return self._parsed if same else None

    def _is_monotonic(self, type: pa.DataType) -> bool:
        is_text = isinstance(domain_of(type), TextDomain)
        return (_keeps_order_of_text if is_text else _keeps_order)(self._understood([type]))

    def term(self, columns: Sequence[Column]) -> Term | None:
        by_path: dict[tuple[str, ...], Column]
        by_path = {(f"col{i}",): column for i, column in enumerate(columns)}
        term = self._understood([column.type for column in columns])
        try:
            return None if term is None else resolve_names(term, by_path.__getitem__)
        except KeyError:
            return None  # A field of a struct column, or a name in capitals.

    def spell(self, names: Sequence[str]) -> str:
        by_name = {f"col{i}": name for i, name in enumerate(names)}
        return re.sub(r"\bcol\d+\b", lambda column: by_name.get(column[0], column[0]), self.sql)


@dataclass(frozen=True)
class Md5Bucket(Expression):
    """`abs(md5_int(col0)) % N`: the buckets of the earlier specification, as an expression.

    DataFusion has no `md5_int`, so the expression is not evaluated but recognized.
    """

    def result_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        columns = {part for part in self._form.parts if isinstance(part, int)}
        if max(columns) >= len(types):
            raise InvalidInput(f"the expression {self.sql!r} needs {max(columns) + 1} columns")
        self.apply([pa.nulls(0, type) for type in types])
        return pa.int64()

    def value_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        return self.result_type(types)

    def apply(self, arrays: Sequence[pa.Array]) -> pa.Array:
        form = self._form
        parts = [part if isinstance(part, str) else arrays[part] for part in form.parts]
        return md5_bucket(parts, len(arrays[0]), form.num_buckets)

    def resists_promotion(self, type: pa.DataType) -> bool:
        return True  # A number of a wider type has the same text.

    def project(self, values: Sequence[ValueSet], types: Sequence[pa.DataType]) -> ValueSet:
        if not all(is_exact(type) for type in types):
            return FULL  # Clients may have hashed another text for the same value.
        null = any(source.null for source in values)
        rows = _combinations(values, types)
        if rows is None:
            return ALL_VALUES.with_null(null)
        buckets = _set_of(self.apply(rows))
        if null and len(self._form.parts) > 1:
            # `concat` of DataFusion passes over NULL, where the specification asks for NULL.
            passed_over = [hashed_bytes(column).fill_null(b"") for column in rows]
            buckets = buckets | _set_of(self.apply(passed_over))
        return buckets

    def term(self, columns: Sequence[Column]) -> Term | None:
        return None  # No filter can say it: Lance has no such function.

    @cached_property
    def _form(self) -> _Md5Form:
        form = _md5_form(self.sql)
        assert form is not None, self.sql
        return form


class _Md5Form(NamedTuple):
    """What `abs(md5_int(concat(…))) % N` hashes, numbers of columns and texts, and its N."""

    parts: tuple[int | str, ...]
    num_buckets: int


def expression(sql: str) -> Expression:
    """The transform of a custom expression; the buckets of the earlier specification are known."""
    return Expression(sql) if _md5_form(sql) is None else Md5Bucket(sql)


def _md5_form(sql: str) -> _Md5Form | None:
    try:
        term = parse(sql)
    except InvalidInput:
        return None
    match term:
        case Call(
            function="%",
            args=(
                Call(function="abs", args=(Call(function="md5_int", args=(hashed,)),)),
                Literal(kind="number", value=int() as number),
            ),
        ) if 1 <= number < 2**31:
            terms = (
                hashed.args
                if isinstance(hashed, Call) and hashed.function == "concat"
                else [hashed]
            )
            parts = [_md5_part(part) for part in terms]
            known = tuple(part for part in parts if part is not None)
            if len(known) == len(parts) and any(isinstance(part, int) for part in known):
                return _Md5Form(known, number)
    return None


def _md5_part(term: Term) -> int | str | None:
    match term:
        case Name(path=(name,)) if (column := re.fullmatch(r"col(\d+)", name)) is not None:
            return int(column[1])
        case Literal(kind="string", value=str() as text):
            return text
    return None


def from_json(value: dict[str, Any]) -> Transform:
    """The transform that a spec's JSON names. Raises InvalidInput for an unknown one."""
    kind = value.get("type")
    try:
        match kind:
            case "bucket" | "multi_bucket":
                return (Bucket if kind == "bucket" else MultiBucket)(value["num_buckets"])
            case "truncate":
                return Truncate(value["width"])
            case "mod_bucket":
                return ModBucket(value["num_buckets"])
            case "floor_truncate":
                return FloorTruncate(value["width"])
    except KeyError as missing:
        raise InvalidInput(f"the transform {kind!r} needs {missing.args[0]}") from None
    if kind == Identity.kind:
        return Identity()
    if kind == Hash.kind:
        return Hash()
    if kind in UNITS:
        return EXTRACTS[UNITS[kind]]()
    raise InvalidInput(f"unknown partition transform {kind!r}")


# Helpers -------------------------------------------------------------------------------------


def _check_positive(what: str, number: Any) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number < 2**31:
        raise InvalidInput(f"{what} must be a whole number from 1 to 2147483647, not {number}")


def _decoded(type: pa.DataType) -> pa.DataType:
    """The type behind a dictionary or an extension."""
    if pa.types.is_dictionary(type):
        return _decoded(type.value_type)
    return _decoded(type.storage_type) if isinstance(type, pa.BaseExtensionType) else type


def _refuse_unordered(transform: Transform, type: pa.DataType) -> None:
    domain = domain_of(type)
    if isinstance(domain, NullnessDomain) or _is_binary(_decoded(type)):
        hint = ": bucket it instead" if _is_binary(_decoded(type)) else ""
        raise InvalidInput(f"{transform.kind} cannot partition by a column of type {type}{hint}")


def _is_binary(type: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_binary(type)
        or t.is_large_binary(type)
        or t.is_fixed_size_binary(type)
        or t.is_binary_view(type)
    )


def _one_zero(array: pa.Array) -> pa.Array:
    """Floats with -0.0 as 0.0 and one NaN."""
    values = _numpy(array) + array.type.to_pandas_dtype()(0.0)
    values[np.isnan(values)] = np.nan
    return pa.array(values, array.type, mask=np.asarray(array.is_null()), from_pandas=False)


def _numpy(array: pa.Array) -> np.ndarray[Any, Any]:
    """The numbers of an array, 0 where NULL."""
    zero = pa.scalar(0, pa.int8()).cast(array.type)
    numbers: np.ndarray[Any, Any] = np.asarray(array.fill_null(zero))
    return numbers


def _toward_zero(key: int, step: int) -> int:
    return key - key % step if key >= 0 else key + -key % step


def _combinations(
    values: Sequence[ValueSet], types: Sequence[pa.DataType]
) -> list[pa.Array] | None:
    """Every row that the sets allow, as columns, where there are not too many."""
    domains = [domain_of(type) for type in types]
    lists = []
    total = 1
    for domain, allowed in zip(domains, values, strict=True):
        keys = domain.enumerate(allowed, ENUMERATE_LIMIT)
        if keys is None:
            return None
        total *= len(keys)
        if total > ENUMERATE_LIMIT:
            return None
        lists.append(keys)
    rows = list(itertools.product(*lists))
    return [domain.array([row[i] for row in rows]) for i, domain in enumerate(domains)]


def _of_both_signs(rows: list[pa.Array]) -> list[pa.Array]:
    """Rows, and those that are equal to them but hold -0.0 or a negative NaN.

    A filter does not tell them from 0.0 and NaN, but an expression may.
    """
    for i, array in enumerate(rows):
        if pa.types.is_floating(array.type):
            numbers = _numpy(array)
            signless = ((numbers == 0) | np.isnan(numbers)) & np.asarray(array.is_valid())
            chosen = pa.array(np.flatnonzero(signless))
            if len(chosen):
                more = [column.take(chosen) for column in rows]
                negative = np.copysign(numbers[signless], -1)
                more[i] = pa.array(negative, array.type, from_pandas=False)
                rows = [pa.concat_arrays(pair) for pair in zip(rows, more, strict=True)]
    return rows


def _set_of(array: pa.Array) -> ValueSet:
    domain = domain_of(array.type)
    keys = {domain.key(scalar) for scalar in array if scalar.is_valid}
    return domain.points(list(keys)).with_null(bool(array.null_count))


def _slack(type: pa.DataType) -> int:
    """How far to widen a range before folding its ends.

    The local clock of a zoned column can be set back, so that a function of it is monotonic only
    up to that shift.
    """
    return 0 if cuts_in_utc(type) else 2 * ticks_per_day(type)


def _moved(key: Any, by: int, domain: Domain) -> Any:
    """A key moved by some steps, but not out of its type. Strings stay: they have no steps."""
    if domain.highest is None:
        return key
    return max(domain.lowest, min(domain.highest, key + by))


_CASTS = {f"cast:{name}" for name in ("DATE", "TIMESTAMP", "BIGINT", "INT", "INTEGER", "DOUBLE")}


def _keeps_order(term: Term | None) -> bool:
    """Whether a term of a number or time never falls when `col0` rises."""
    match term:
        case Name(path=("col0",)):
            return True
        case Call(function="date_trunc", args=(Literal(), inner)):
            return _keeps_order(inner)
        case Call(function="date_part", args=(Literal(value="year" | "epoch"), inner)):
            return _keeps_order(inner)
        case Call(function="floor" | "ceil" | "trunc" | "to_date", args=(inner,)):
            return _keeps_order(inner)
        case Call(function=name, args=(inner,)) if name in _CASTS:
            return _keeps_order(inner)
        case Call(function="/", args=(inner, Literal(kind="number", value=by))):
            return bool(by > 0) and _keeps_order(inner)
    return False


def _keeps_order_of_text(term: Term | None) -> bool:
    """Whether a term of a string never falls when `col0` rises. Prefixes do not."""
    match term:
        case Name(path=("col0",)):
            return True
        case Call(function="left", args=(inner, Literal(kind="number", value=count))):
            return bool(count >= 0) and _keeps_order_of_text(inner)
        case Call(
            function="substr" | "substring",
            args=(inner, Literal(kind="number", value=1), Literal(kind="number")),
        ):
            return _keeps_order_of_text(inner)
    return False
