"""Pruning: which leaves can hold a row that a predicate wants.

For each leaf there are three answers:

* **never**: no row of the leaf can match; it is not read.
* **always**: every row matches; it is read without a filter, and counted from metadata.
* **maybe**: it is read with a residual filter, the part of the predicate left to check.

It runs over columns, not leaf by leaf. The partition values of a field are a sorted dictionary
and a code for each leaf, so a set of values becomes a few ranges of codes by binary search.

Three things are known about a leaf, and each is used:

1. the value of each field, through the transform's projections;
2. for year, month, day and hour of one column together, the stretch of time they name;
3. for a term made of what the fields compute (`date_part('year', ts)` where there is a field
   year(ts), `upper(country)` where there is a field country), its exact value.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import InvalidInput
from phalanx.model.calendar import FIRST_YEAR, LAST_YEAR, Unit, days_of, ticks_per_day
from phalanx.model.domains import (
    BooleanDomain,
    NullnessDomain,
    TextDomain,
    cuts_in_utc,
    domain_of,
)
from phalanx.model.expressions import evaluate, type_of
from phalanx.model.literals import Literal
from phalanx.model.predicates import (
    And,
    Call,
    Column,
    Constant,
    Or,
    Predicate,
    Restrict,
    Term,
    columns_of,
    conjoin,
    disjoin,
    like_prefix,
)
from phalanx.model.schema import TableSchema
from phalanx.model.sets import ALL_VALUES, FULL, Interval, ValueSet
from phalanx.model.specs import PartitionField, PartitionSpec
from phalanx.model.transforms import Extract

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Codes = np.ndarray[Any, np.dtype[np.int32]]

#: Up to so many ranges, comparing with their ends is faster than a lookup.
_FEW_RANGES = 3
#: Up to so many distinct numbers, a table of all of them is faster than sorting.
_TABLE_SIZE = 1 << 20


@dataclass(frozen=True)
class PartitionColumn:
    """One field over some leaves: its sorted, unique values, and a code for each leaf.

    A code is the position of the leaf's value, and -1 for NULL.
    """

    values: pa.Array
    codes: Codes

    def mask(self, wanted: ValueSet) -> Mask:
        """The leaves whose value lies in a set."""
        mask: Mask
        if wanted.is_full:
            return np.ones(len(self.codes), dtype=bool)
        ranges = self.code_ranges(wanted)
        if wanted.null:
            ranges.append((-1, 0))
        if len(ranges) <= _FEW_RANGES:
            mask = np.zeros(len(self.codes), dtype=bool)
            for low, high in ranges:
                mask |= (self.codes >= low) & (self.codes < high)
            return mask
        table = np.zeros(len(self.values) + 1, dtype=bool)
        table[-1] = wanted.null
        for low, high in ranges:
            table[max(low, 0) : high] = True
        mask = table[self.codes.astype(np.intp)]
        return mask

    def code_ranges(self, wanted: ValueSet) -> list[tuple[int, int]]:
        """The ranges of codes whose values lie in a set."""
        if wanted.has_all_values:
            return [(0, len(self.values))]
        keys = _Keys(self.values)
        ranges = []
        for low, high in wanted.intervals:
            start = 0 if low is None else bisect_left(keys, low)
            end = len(keys) if high is None else bisect_left(keys, high, lo=start)
            if start < end:
                ranges.append((start, end))
        return ranges

    def take(self, rows: np.ndarray[Any, Any]) -> PartitionColumn:
        return PartitionColumn(self.values, self.codes[rows])

    @cached_property
    def is_null(self) -> Mask:
        mask: Mask = self.codes < 0
        return mask

    def numbers(self) -> np.ndarray[Any, Any]:
        """The values of an integer field, 0 where NULL."""
        table = np.zeros(len(self.values) + 1, dtype=np.int64)
        table[:-1] = np.asarray(self.values)
        return table[self.codes.astype(np.intp)]

    def arrow(self, codes: Codes | None = None) -> pa.Array:
        """The values as a plain Arrow array."""
        codes = self.codes if codes is None else codes
        indices = pa.array(codes, pa.int32(), mask=codes < 0)
        return self.values.take(indices)


class _Keys(Sequence[Any]):
    """A sorted Arrow array as a sequence of keys, converted one at a time."""

    def __init__(self, values: pa.Array) -> None:
        self._values, self._domain = values, domain_of(values.type)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> Any:
        return self._domain.key(self._values[index])


@dataclass(frozen=True)
class Verdict:
    """The answer for the leaves of one spec.

    `maybe` is true where the leaf must be read, `always` where it needs no filter. `residuals`
    are the distinct filters that are left, and `residual` the number of each leaf's own.
    """

    maybe: Mask
    always: Mask
    residual: np.ndarray[Any, Any]
    residuals: tuple[Predicate, ...]


def prune(
    predicate: Predicate,
    spec: PartitionSpec,
    schema: TableSchema,
    columns: Mapping[str, PartitionColumn],
    count: int,
) -> Verdict:
    """Judge `count` leaves of one spec; `columns` are their partition values by field id."""
    return _Pruner(spec, schema, columns, count).judge(predicate)


def pruning_fields(
    predicate: Predicate,
    spec: PartitionSpec,
    schema: TableSchema,
    columns: Mapping[str, PartitionColumn],
    verdict: Verdict,
) -> list[PartitionField]:
    """The fields without which fewer leaves would be pruned, or that prune leaves by themselves.

    Empty if no leaf is pruned, or if all are whatever their values, because no row can match.
    """
    maybe = verdict.maybe
    used = {column.field_id for column in columns_of(predicate)}
    fields = [field for field in spec.fields if used & set(field.source_ids)]

    def left(by: Sequence[PartitionField]) -> Mask:
        return prune(
            predicate, PartitionSpec(spec.id, tuple(by)), schema, columns, len(maybe)
        ).maybe

    if maybe.all() or not left([]).any():
        return []
    if len(fields) == 1:
        return fields
    chosen = [
        field
        for field in fields
        if not left([field]).all() or (left([f for f in fields if f != field]) & ~maybe).any()
    ]
    return chosen or fields  # two pairs of fields that prune the same leaves


@dataclass
class _Judged:
    """What is known of one node of the predicate, for every leaf."""

    node: Predicate
    maybe: Mask
    always: Mask
    children: list[_Judged] = field(default_factory=list)


#: What the conditions around a node say about each column, by field id.
Context = Mapping[int, ValueSet]


class _Pruner:
    def __init__(
        self,
        spec: PartitionSpec,
        schema: TableSchema,
        columns: Mapping[str, PartitionColumn],
        count: int,
    ) -> None:
        self.count = count
        bound = (_bind(field, schema, columns[field.field_id]) for field in spec.fields)
        self._fields = [field for field in bound if field is not None]
        self._spans = _spans(self._fields)
        in_span = {id(field) for span in self._spans for field in span.parts}
        self._single = [field for field in self._fields if id(field) not in in_span]

    def judge(self, predicate: Predicate) -> Verdict:
        root = self._judge(predicate, {})
        maybe = root.maybe
        always = root.always & maybe
        unsure = maybe & ~always
        residual, residuals = _residuals(root, unsure)
        # What is left of several conditions can be a contradiction, or true for every row.
        for number, left in enumerate(residuals):
            if isinstance(left, Constant):
                those = unsure & (residual == number)
                maybe = maybe & (left.value | ~those)
                always = always | (left.value & those)
        return Verdict(maybe, always, residual, residuals)

    def _all(self, value: bool) -> Mask:
        return np.full(self.count, value, dtype=bool)

    def _judge(self, node: Predicate, context: Context) -> _Judged:
        match node:
            case Constant(value=value):
                return _Judged(node, self._all(value), self._all(value))
            case Or(children=children):
                judged = [self._judge(child, context) for child in children]
                maybe, always = self._all(False), self._all(False)
                for child in judged:
                    maybe |= child.maybe
                    always |= child.always
                return _Judged(node, maybe, always, judged)
            case And(children=children):
                return self._conjunction(node, children, context)
            case Restrict():
                return self._conjunction(node, (node,), context)
        raise AssertionError(node)

    def _conjunction(
        self, node: Predicate, children: Sequence[Predicate], outer: Context
    ) -> _Judged:
        context = dict(outer)
        narrowed = set()
        for child in children:
            column, values = _implied(child)
            if column is not None:
                context[column.field_id] = context.get(column.field_id, FULL) & values
                narrowed.add(column.field_id)
        maybe = self._possible(context, narrowed)
        always = self._all(True)
        judged = []
        for child in children:
            answer = (
                self._restriction(child)
                if isinstance(child, Restrict)
                else self._judge(child, context)
            )
            maybe &= answer.maybe
            always &= answer.always
            judged.append(answer)
        return _Judged(node, maybe, always, [] if isinstance(node, Restrict) else judged)

    def _possible(self, context: Context, narrowed: set[int]) -> Mask:
        """The leaves that can hold rows whose columns lie in the context's sets.

        Only columns in `narrowed` are looked at: the caller has done so for the others.
        """
        if any(context[id].is_empty for id in narrowed):
            return self._all(False)
        mask = self._all(True)
        for bound in self._single:
            if not narrowed.isdisjoint(bound.field.source_ids):
                mask &= bound.possible(context)
        for span in self._spans:
            if span.column.field_id in narrowed:
                mask &= span.possible(context[span.column.field_id])
        return mask

    def _restriction(self, node: Restrict) -> _Judged:
        """What a restriction says by itself: where its term is known, and where it is certain."""
        exact = self._known(node)
        if exact is not None:
            return _Judged(node, exact, exact)
        always = self._all(False)
        column, values = _about_column(node)
        if column is not None:
            for bound in self._single:
                if column.field_id in bound.field.source_ids:
                    always |= bound.certain(column.field_id, values)
            for span in self._spans:
                if span.column.field_id == column.field_id:
                    always |= span.certain(values)
        return _Judged(node, self._all(True), always)

    def _known(self, node: Restrict) -> Mask | None:
        """Whether the term lies in its set, where partition values alone decide it."""
        if isinstance(node.term, Column):
            return None  # The projections of identity say the same.
        for bound in self._fields:
            if bound.term == node.term and _same_keys(bound.values.values.type, node.type):
                return bound.values.mask(node.values)
        term = _in_terms_of_fields(node.term, self._fields)
        numbers = sorted({column.field_id for column in columns_of(term)})
        if not numbers or any(number >= 0 for number in numbers):
            return None
        return _computed(term, node, {number: self._fields[-1 - number] for number in numbers})


@dataclass(frozen=True)
class _BoundField:
    """A field, the columns it reads now, and its value in each leaf."""

    field: PartitionField
    sources: tuple[Column, ...]
    values: PartitionColumn

    @cached_property
    def term(self) -> Term | None:
        return self.field.transform.term(self.sources)

    @cached_property
    def types(self) -> list[pa.DataType]:
        return [domain_of(source.type).type for source in self.sources]

    def possible(self, context: Context) -> Mask:
        sets = [context.get(id, FULL) for id in self.field.source_ids]
        return self.values.mask(self.field.transform.project(sets, self.types))

    def certain(self, source_id: int, values: ValueSet) -> Mask:
        index = self.field.source_ids.index(source_id)
        return self.values.mask(self.field.transform.project_strictly(index, values, self.types))


def _bind(
    field: PartitionField, schema: TableSchema, values: PartitionColumn
) -> _BoundField | None:
    """The field over its present sources; None where they are gone or no longer fit it."""
    sources = tuple(column for column in field.sources(schema) if column is not None)
    if len(sources) < len(field.source_ids):
        return None
    try:
        type = field.transform.value_type([source.type for source in sources])
        if not _same_keys(values.values.type, type):
            if not _same_order(values.values.type, type):
                return None
            # The source has been widened since these values were written.
            values = PartitionColumn(values.values.cast(type), values.codes)
    except (InvalidInput, pa.ArrowException):
        return None
    return _BoundField(field, sources, values)


@dataclass(frozen=True)
class _Span:
    """The stretch of time that year, month, day and hour of one column name together.

    Every leaf has the number of its finest unit; a range of time becomes the numbers of its ends.
    """

    column: Column
    unit: Unit
    parts: tuple[_BoundField, ...]

    @cached_property
    def numbers(self) -> np.ndarray[Any, Any]:
        """The number of each leaf's unit; any number where NULL."""
        year, *finer = (part.values for part in self.parts)
        if not finer:
            return cast("np.ndarray[Any, Any]", self.unit.number(year.numbers()))
        # Most leaves share their month: its first day is looked up, not computed.
        years = np.asarray(year.values).astype(np.int64)
        months = np.asarray(finer[0].values).astype(np.int64)
        known = Unit.MONTH if self.unit is Unit.MONTH else Unit.DAY
        starts = known.number(years[:, None], months[None, :])
        # The last row and column are for NULL, whose code is -1.
        table = np.zeros((len(years) + 1, len(months) + 1), dtype=np.int64)
        table[:-1, :-1] = starts
        numbers: np.ndarray[Any, Any] = table[year.codes, finer[0].codes]
        if len(finer) > 1:
            numbers += finer[1].numbers() - 1
        if len(finer) > 2:
            numbers = numbers * 24 + finer[2].numbers()
        return numbers

    @cached_property
    def null(self) -> Mask:
        mask = self.parts[0].values.is_null
        for part in self.parts[1:]:
            mask = mask | part.values.is_null
        return mask

    def possible(self, values: ValueSet) -> Mask:
        unit, ticks = self.unit, ticks_per_day(self.column.type)
        touched = ValueSet.of(
            (
                None if low is None else unit.number_at(low, ticks),
                None if high is None else unit.number_at(high - 1, ticks) + 1,
            )
            for low, high in values.intervals
        )
        mask = _inside(self.numbers, touched)
        if values.null:
            mask |= self.null
        elif self.null.any():
            mask &= ~self.null
        return mask

    def certain(self, values: ValueSet) -> Mask:
        return ~self.possible(values.complement(null=not values.null))


def _inside(numbers: np.ndarray[Any, Any], values: ValueSet) -> Mask:
    """Which numbers lie in a set."""
    mask: Mask = np.zeros(len(numbers), dtype=bool)
    if len(values.intervals) > _FEW_RANGES:
        low, high = -(2**63), 2**63 - 1
        starts = np.array([low if a is None else a for a, _ in values.intervals])
        ends = np.array([high if b is None else b for _, b in values.intervals])
        index = np.searchsorted(starts, numbers, side="right") - 1
        mask = (index >= 0) & (numbers < ends.take(index, mode="clip"))
        return mask
    for start, end in values.intervals:
        if start is None and end is None:
            return np.ones(len(numbers), dtype=bool)
        if start is None:
            mask |= numbers < end
        elif end is None:
            mask |= numbers >= start
        else:
            mask |= (numbers >= start) & (numbers < end)
    return mask


def _spans(fields: Sequence[_BoundField]) -> list[_Span]:
    """One span for each column whose year is known, of as many parts as follow without a gap."""
    by_column: dict[Column, dict[Unit, _BoundField]] = {}
    for bound in fields:
        if isinstance(bound.field.transform, Extract):
            by_column.setdefault(bound.sources[0], {})[bound.field.transform.unit] = bound
    spans = []
    for column, parts in by_column.items():
        units = list(itertools.takewhile(parts.__contains__, Unit))
        if units:
            spans.append(_Span(column, units[-1], tuple(parts[unit] for unit in units)))
    return spans


# What a term says about a column, and a field about a term -----------------------------------


def _implied(node: Predicate) -> tuple[Column | None, ValueSet]:
    """A column and the values it has in every row that a predicate wants."""
    match node:
        case Restrict(
            term=Call(
                function="like", args=(Column() as column, Literal(kind="string", value=pattern))
            ),
            values=values,
        ) if not values.null:
            domain = domain_of(column.type)
            assert isinstance(domain, TextDomain)
            is_like = values == BooleanDomain().point(1)
            return column, domain.prefix(like_prefix(pattern)[0]) if is_like else ALL_VALUES
        case Restrict():
            return _about_column(node)
    return None, FULL


def _about_column(node: Restrict) -> tuple[Column | None, ValueSet]:
    """A column and the values that mean the same as the restriction; None where there are none."""
    return (node.term, node.values) if isinstance(node.term, Column) else _preimage(node)


def _preimage(node: Restrict) -> tuple[Column | None, ValueSet]:
    """`date_part('year', c)`, `date_trunc(unit, c)` and `CAST(c AS DATE)` as ranges of c.

    A row's value is at or above a bound exactly if the row is at or above the first year, unit
    or day that is.
    """
    match node.term:
        case Call(function="date_part", args=(Literal(value="year"), Column() as column)) if (
            _is_time(column.type)
        ):
            years = _from_days(node.values, column, lambda year: int(days_of(year, 1, 1)))
            known = _years(column, FIRST_YEAR, LAST_YEAR)
            beyond = known.complement(null=False) if node.values.null else ValueSet()
            return column, (years & known.with_null(True)) | beyond
        case Call(function="cast:DATE", args=(Column() as column,)) if _is_time(
            column.type
        ) and not pa.types.is_date64(column.type):
            return column, _from_days(node.values, column, lambda day: day)
        case Call(function="date_trunc", args=(Literal(value=unit), Column() as column)) if (
            unit in _FIRST_DAYS and _is_time(column.type) and pa.types.is_timestamp(node.type)
        ):
            ticks, first = ticks_per_day(node.type), _FIRST_DAYS[unit]
            return column, _from_days(node.values, column, lambda key: first(-(-key // ticks)))
    return None, FULL


def _years(column: Column, first: int, last: int) -> ValueSet:
    """The times from one year to another."""
    span = ValueSet(((first, last + 1),))
    return _from_days(span, column, lambda year: int(days_of(year, 1, 1)))


def _from_days(values: ValueSet, column: Column, day_of: Callable[[int], int]) -> ValueSet:
    """The times of a column from the day of each lower bound to before that of the upper."""
    ticks = ticks_per_day(column.type)
    intervals: list[Interval] = [
        (
            None if low is None else day_of(low) * ticks,
            None if high is None else day_of(high) * ticks,
        )
        for low, high in values.intervals
    ]
    return domain_of(column.type).clip(ValueSet.of(intervals, values.null))


def _first_of_months(months: int) -> Callable[[int], int]:
    def first(day: int) -> int:
        number = -(-Unit.MONTH.number_at(day, 1) // months) * months
        if days_of(1970, number + 1, 1) < day:
            number += months
        return int(days_of(1970, number + 1, 1))

    return first


#: For each unit of `date_trunc`, the first day not before a day that begins such a unit.
_FIRST_DAYS: dict[str, Callable[[int], int]] = {
    "day": lambda day: day,
    "week": lambda day: day + (4 - day) % 7,  # 1970-01-05 was a Monday.
    "month": _first_of_months(1),
    "quarter": _first_of_months(3),
    "year": _first_of_months(12),
}


def _is_time(type: pa.DataType) -> bool:
    """Whether values are dates or timestamps, in UTC or without a zone."""
    return bool(pa.types.is_timestamp(type) or pa.types.is_date(type)) and cuts_in_utc(type)


def _same_keys(a: pa.DataType, b: pa.DataType) -> bool:
    if a == b or (pa.types.is_integer(a) and pa.types.is_integer(b)):
        return True
    if pa.types.is_timestamp(a) and pa.types.is_timestamp(b):
        return bool(a.unit == b.unit)
    if pa.types.is_decimal(a) and pa.types.is_decimal(b):
        return bool(a.scale == b.scale)
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(f(a) for f in text) and any(f(b) for f in text)


def _same_order(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether a cast from one type to the other keeps the order of values."""
    t = pa.types

    def family(type: pa.DataType) -> str:
        if t.is_integer(type) or t.is_floating(type) or t.is_decimal(type):
            return "number"
        return "time" if t.is_timestamp(type) or t.is_date(type) else str(type)

    return family(a) == family(b)


def _in_terms_of_fields(term: Term, fields: Sequence[_BoundField]) -> Term:
    """The term with what the fields compute replaced by columns -1, -2, … for their values.

    Not for a field that is a float itself: its partition 0.0 also holds rows with -0.0.
    """
    for i, bound in enumerate(fields):
        if bound.term == term and not pa.types.is_floating(bound.values.values.type):
            type = term.type if isinstance(term, Column) else type_of(term)
            return Column((bound.field.field_id,), -1 - i, type)
    if isinstance(term, Call):
        return Call(term.function, tuple(_in_terms_of_fields(arg, fields) for arg in term.args))
    return term


def _computed(term: Term, node: Restrict, fields: Mapping[int, _BoundField]) -> Mask | None:
    """Whether the term lies in the set, evaluated once for each combination of field values."""
    size = math.prod(len(bound.values.values) + 1 for bound in fields.values())
    if size >= 2**62:
        return None
    combined = np.zeros(1, dtype=np.int64)
    for bound in fields.values():
        combined = combined * (len(bound.values.values) + 1) + (bound.values.codes + 1)
    unique, inverse = _distinct(combined, size)
    types = {column.field_id: column.type for column in columns_of(term)}
    arrays = {}
    rest = unique
    try:
        for number, bound in reversed(list(fields.items())):
            base = len(bound.values.values) + 1
            codes = (rest % base - 1).astype(np.int32)
            arrays[number] = bound.values.arrow(codes).cast(types[number])
            rest = rest // base
        results = evaluate(term, arrays, len(unique))
    except (InvalidInput, pa.ArrowException):
        return None  # It fails on a combination of values that may be in no row.
    if isinstance(domain_of(results.type), NullnessDomain) or not _same_keys(
        results.type, node.type
    ):
        return None
    mask: Mask = column_of(results).mask(node.values).take(inverse)
    return mask


def _distinct(
    numbers: np.ndarray[Any, Any], size: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The distinct numbers among some below `size`, and which of them each is."""
    if size == 1:
        return np.zeros(1, dtype=np.int64), numbers
    if size > _TABLE_SIZE:
        unique, inverse = np.unique(numbers, return_inverse=True)
        return unique, inverse.reshape(-1)
    present = np.zeros(size, dtype=bool)
    present[numbers] = True
    ranks = np.cumsum(present, dtype=np.int64) - 1
    return np.flatnonzero(present), ranks.take(numbers)


def column_of(array: pa.Array) -> PartitionColumn:
    """An Arrow array as sorted values and codes."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.dictionary_decode()
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    sortable = encoded.dictionary
    if pa.types.is_float16(sortable.type):
        sortable = sortable.cast(pa.float32())
    order = np.asarray(pc.sort_indices(sortable))
    rank = np.empty(len(order) + 1, dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    rank[-1] = -1
    indices = np.asarray(encoded.indices.fill_null(-1))
    return PartitionColumn(encoded.dictionary.take(pa.array(order)), rank[indices])


def _residuals(root: _Judged, needed: Mask) -> tuple[np.ndarray[Any, Any], tuple[Predicate, ...]]:
    """The filter that is left for each leaf in `needed`, as an index into the distinct ones."""
    index = np.zeros(len(needed), dtype=np.int32)
    rows = np.flatnonzero(needed)
    if not len(rows):
        return index, (Constant(True),)
    # Leaves for which every node has the same answers have the same filter.
    states, size = np.zeros(len(rows), dtype=np.int64), 1
    for node in _flatten(root):
        for answers in (node.maybe, node.always):
            if _differ(answers) and _differ(here := answers[rows]):
                states, size = states * 2 + here, size * 2
        if size > _TABLE_SIZE // 4:
            unique, states = _distinct(states, size)
            size = len(unique)
    unique, states = _distinct(states, size)
    first = np.empty(len(unique), dtype=np.int64)
    first[states[::-1]] = rows[::-1]
    numbers: dict[Predicate, int] = {}
    by_state = [numbers.setdefault(_simplify(root, int(row)), len(numbers)) for row in first]
    index[rows] = np.array(by_state, dtype=np.int32).take(states)
    return index, tuple(numbers)


def _differ(answers: Mask) -> bool:
    return bool(answers.any() and not answers.all())


def _flatten(node: _Judged) -> list[_Judged]:
    return [node, *(inner for child in node.children for inner in _flatten(child))]


def _simplify(judged: _Judged, row: int) -> Predicate:
    """The predicate with what is certain in one leaf left out."""
    if judged.always[row]:
        return Constant(True)
    if not judged.maybe[row]:
        return Constant(False)
    if isinstance(judged.node, And):
        return conjoin(_simplify(child, row) for child in judged.children)
    if isinstance(judged.node, Or):
        return disjoin(_simplify(child, row) for child in judged.children)
    return judged.node
