"""Partition specs: the fields that a table is partitioned by, as values and as JSON.

A spec is a list of fields and a version. A field applies one transform to its source columns and
has an id of its own: the same sources and transform have the same id in every version of the spec,
and an id never changes its meaning.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model import jsonarrow, transforms
from phalanx.model.calendar import PLURALS, UNITS, Unit
from phalanx.model.dialect import term_to_sql
from phalanx.model.literals import Literal
from phalanx.model.parser import parse
from phalanx.model.paths import join_path, split_path
from phalanx.model.predicates import Call, Column, Name, Term
from phalanx.model.schema import TableSchema, extract
from phalanx.model.transforms import (
    EXTRACTS,
    Bucket,
    Expression,
    Extract,
    Hash,
    Identity,
    MultiBucket,
    Transform,
    Truncate,
)

#: The prefix of the manifest's columns that hold partition values.
COLUMN_PREFIX = "partition_field_"

_FIELD_ID = re.compile(r"[\w\-]+")


@dataclass(frozen=True)
class PartitionField:
    """One level of the hierarchy."""

    field_id: str
    source_ids: tuple[int, ...]
    transform: Transform
    result_type: pa.DataType

    @property
    def column_name(self) -> str:
        """The manifest's column for this field's values."""
        return COLUMN_PREFIX + self.field_id

    def sources(self, schema: TableSchema) -> tuple[Column | None, ...]:
        """The source columns; None for one that has been dropped (it counts as NULL)."""
        return tuple(schema.columns.get(id) for id in self.source_ids)

    def apply(self, table: pa.Table | pa.RecordBatch, schema: TableSchema) -> pa.Array:
        """The partition value of each row."""
        columns = self.sources(schema)
        if not isinstance(self.transform, Expression | MultiBucket) and None in columns:
            return pa.nulls(table.num_rows, self.result_type)
        arrays = [
            pa.nulls(table.num_rows) if column is None else extract(table, column.path)
            for column in columns
        ]
        values = self.transform.apply(arrays)
        return values if values.type == self.result_type else values.cast(self.result_type)

    def spell(self, schema: TableSchema) -> str:
        """How a person writes this field, with the present names of its columns."""
        names = [
            f"(dropped column {id})" if column is None else join_path(column.path)
            for id, column in zip(self.source_ids, self.sources(schema), strict=True)
        ]
        return self.transform.spell(names)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"field_id": self.field_id, "source_ids": list(self.source_ids)}
        if isinstance(self.transform, Expression):
            value["expression"] = self.transform.sql
        else:
            value["transform"] = self.transform.to_json()
        return value | {"result_type": jsonarrow.type_to_json(self.result_type)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> PartitionField:
        """Raises InvalidInput where the JSON breaks the specification."""
        name = _member(value, "field_id", str, "a partition field")
        shown = f"partition field {name!r}"
        sources = _member(value, "source_ids", list, shown)
        if not sources or not all(isinstance(id, int) for id in sources):
            raise InvalidInput(f"{shown} must have at least one source, each a whole number")
        result = _member(value, "result_type", dict, shown)
        if (value.get("transform") is None) == (value.get("expression") is None):
            raise InvalidInput(f"{shown} must have exactly one of transform and expression")
        transform: Transform
        if value.get("transform") is None:
            transform = transforms.expression(_member(value, "expression", str, shown))
        else:
            transform = transforms.from_json(_member(value, "transform", dict, shown))
        return PartitionField(name, tuple(sources), transform, jsonarrow.type_from_json(result))


@dataclass(frozen=True)
class PartitionSpec:
    """The fields of one version, outermost first."""

    id: int
    fields: tuple[PartitionField, ...]

    @property
    def namespace(self) -> str:
        """The name of the namespace that holds what was written under this spec."""
        return f"v{self.id}"

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "fields": [field.to_json() for field in self.fields]}

    def dumps(self) -> str:
        return json.dumps(self.to_json(), separators=(",", ":"))

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> PartitionSpec:
        """Raises InvalidInput where the JSON breaks the specification."""
        id = _member(value, "id", int, "a partition spec")
        listed = _member(value, "fields", list, "a partition spec")
        fields = tuple(PartitionField.from_json(field) for field in listed)
        _refuse_duplicates(fields)
        return PartitionSpec(id, fields)

    @staticmethod
    def loads(text: str) -> PartitionSpec:
        """The inverse of `dumps`. Raises InvalidInput where the text is not a spec."""
        try:
            value = json.loads(text)
        except ValueError as error:
            raise InvalidInput(f"a partition spec is not JSON: {error}") from None
        return PartitionSpec.from_json(value)

    def spell(self, schema: TableSchema) -> list[str]:
        return [field.spell(schema) for field in self.fields]

    def __str__(self) -> str:
        fields = ", ".join(f"{f.field_id}: {f.transform}" for f in self.fields)
        return f"v{self.id}({fields})"


@dataclass(frozen=True)
class CustomField:
    """A custom expression to partition by: what `phalanx.expr` returns."""

    sql: str
    columns: tuple[str, ...]
    name: str


def expr(sql: str, columns: Sequence[str], name: str) -> CustomField:
    """Partition by a DataFusion expression of `columns`, written as `col0`, `col1`, ….

    >>> expr("date_trunc('week', col0)", ["ts"], name="week")
    CustomField(sql="date_trunc('week', col0)", columns=('ts',), name='week')
    """
    if not isinstance(sql, str) or not isinstance(name, str):
        raise InvalidInput("expr takes SQL text, a list of columns and a name")
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise InvalidInput("expr takes a list of columns, such as ['ts']")
    columns = tuple(columns)
    if not all(isinstance(column, str) for column in columns):
        raise InvalidInput("expr takes columns by their names, such as ['ts']")
    return CustomField(sql, columns, name)


def build_spec(
    id: int,
    entries: Sequence[str | CustomField],
    schema: TableSchema,
    previous: Iterable[PartitionSpec] = (),
) -> PartitionSpec:
    """The spec that `partition_by` entries describe.

    Fields that an earlier spec has keep their ids. Raises InvalidInput for an unknown column,
    a source that the transform does not take, or an id that already means something else.
    """
    if isinstance(entries, str | CustomField):
        entries = [entries]
    if not isinstance(entries, Iterable):
        raise InvalidInput(
            "partition_by is a list, such as ['country', 'days(ts)']; [] is for none"
        )
    known = {field.field_id: field for spec in previous for field in spec.fields}
    by_meaning = {(field.source_ids, field.transform): field for field in known.values()}
    fields: list[PartitionField] = []
    for entry in entries:
        for name, columns, transform in _parse_entry(entry, schema):
            field = _field(name, columns, transform, known, by_meaning)
            if field.field_id in (other.field_id for other in fields):
                raise InvalidInput(
                    f"cannot partition by {field.spell(schema)} twice: the partition field "
                    f"{field.field_id!r} is there already"
                )
            fields.append(field)
            known[field.field_id] = by_meaning[field.source_ids, transform] = field
    return PartitionSpec(id, tuple(fields))


def lone_units(spec: PartitionSpec) -> list[tuple[PartitionField, Unit]]:
    """The fields that take a month, day or hour from a column without the next larger unit.

    Such a field has the same values in every year, month or day.
    """
    order = list(Unit)
    units = {
        (field.source_ids, field.transform.unit): field
        for field in spec.fields
        if isinstance(field.transform, Extract)
    }
    return [
        (field, unit)
        for (sources, unit), field in units.items()
        if unit is not order[0] and (sources, order[order.index(unit) - 1]) not in units
    ]


def _field(
    name: str | None,
    columns: Sequence[Column],
    transform: Transform,
    known: Mapping[str, PartitionField],
    by_meaning: Mapping[tuple[tuple[int, ...], Transform], PartitionField],
) -> PartitionField:
    sources = tuple(column.field_id for column in columns)
    spelled = transform.spell([join_path(column.path) for column in columns])
    try:
        result = transform.result_type([column.type for column in columns])
    except InvalidInput as error:
        raise InvalidInput(f"cannot partition by {spelled}: {error}") from None
    existing = by_meaning.get((sources, transform))
    if existing is not None:
        return PartitionField(existing.field_id, sources, transform, result)
    if name is None:
        stem = _stem(columns, transform)
        name, number = stem, 2
        while name in known:
            name, number = f"{stem}_{number}", number + 1
    elif name in known:
        raise InvalidInput(
            f"the partition field id {name!r} already means "
            f"{known[name].transform}: an id is never reused, choose another name"
        )
    if not _FIELD_ID.fullmatch(name):
        raise InvalidInput(f"a partition field cannot be called {name!r}: use letters, digits, _ -")
    return PartitionField(name, sources, transform, result)


def _stem(columns: Sequence[Column], transform: Transform) -> str:
    """The id that a new field gets if no earlier one has it."""
    stem = "_".join("_".join(column.path) for column in columns) + transform.suffix
    return re.sub(r"[^\w\-]", "_", stem)


def field_names(fields: Iterable[PartitionField], schema: TableSchema) -> dict[str, str]:
    """What fields are called for people, by their ids.

    An id is never reused, so that a table that was replaced has `p_2` and `ts_year_2`, and one
    whose column was renamed still has the id with the old name. For people, a field is called by
    its column as it is named now: `p`, `ts_year`. Fields that would share a name keep their ids.
    """
    names = {field.field_id: _name(field, schema) for field in fields}
    counts = Counter(names.values())
    unique = {id: name if counts[name] == 1 else id for id, name in names.items()}
    return unique if len(set(unique.values())) == len(unique) else {id: id for id in names}


def _name(field: PartitionField, schema: TableSchema) -> str:
    columns = [column for column in field.sources(schema) if column is not None]
    if len(columns) < len(field.source_ids):
        return field.field_id
    if isinstance(field.transform, Identity) and len(columns[0].path) == 1:
        return columns[0].path[0]
    stem = _stem(columns, field.transform)
    is_numbered = re.fullmatch(rf"{re.escape(stem)}_\d+", field.field_id)
    return stem if is_numbered else field.field_id


def entries_of(text: str) -> list[str]:
    """The entries of a list such as `days(ts), bucket(16, id)`, which is one text."""
    entries, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"`":
            quote = letter
        else:
            depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth and not quote:
            entries.append("")
        else:
            entries[-1] += letter
    return [entry.strip() for entry in entries if entry.strip()]


def _parse_entry(
    entry: str | CustomField, schema: TableSchema
) -> list[tuple[str | None, list[Column], Transform]]:
    """An entry of `partition_by` as (name, columns, transform), several for `days(ts)`."""
    if isinstance(entry, CustomField):
        columns = [_column(schema, name) for name in entry.columns]
        if not columns:
            raise InvalidInput(f"the expression {entry.sql!r} needs at least one column")
        return [(entry.name, columns, transforms.expression(entry.sql))]
    if not isinstance(entry, str):
        raise InvalidInput(f"cannot partition by {entry!r}: write a string or phalanx.expr(…)")
    if entry in schema.tagged.names:
        return [(None, [schema.column((entry,))], Identity())]
    try:
        term = parse(entry)
    except InvalidInput:
        raise InvalidInput(f"cannot partition by {entry!r}: {_FORMS}") from None
    match term:
        case Name(path=path):
            return [(None, [schema.column(path)], Identity())]
        case Call(function="identity", args=(Name(path=path),)):
            return [(None, [schema.column(path)], Identity())]
        case Call(function="date_part", args=(Literal(value=part), Name(path=path))) if (
            part in UNITS
        ):
            return [(None, [schema.column(path)], EXTRACTS[UNITS[part]]())]
        case Call(function=several, args=(Name(path=path),)) if several in PLURALS:
            column = schema.column(path)
            parts = [EXTRACTS[unit]() for unit in PLURALS[several].hierarchy]
            try:
                parts[-1].result_type([column.type])
            except InvalidInput as error:
                spelled = f"{several}({join_path(column.path)})"
                raise InvalidInput(f"cannot partition by {spelled}: {error}") from None
            return [(None, [column], part) for part in parts]
        case Call(function="bucket", args=(number, Name(path=path))):
            return [(None, [schema.column(path)], Bucket(_whole(number)))]
        case Call(function="truncate", args=(number, Name(path=path))):
            return [(None, [schema.column(path)], Truncate(_whole(number)))]
        case Call(function="hash", args=(Name(path=path),)):
            return [(None, [schema.column(path)], Hash())]
        case Call(function="multi_bucket", args=(number, *names)) if names:
            columns = [schema.column(n.path) for n in names if isinstance(n, Name)]
            if len(columns) == len(names):
                return [(None, columns, MultiBucket(_whole(number)))]
    raise InvalidInput(f"cannot partition by {entry!r}: {_FORMS}")


_FORMS = (
    f"write a column, {', '.join(f'{name}(c)' for name in (*UNITS, *PLURALS))}, bucket(N, c), "
    "multi_bucket(N, a, b), truncate(W, c), identity(c), hash(c) (layout 'hive') or phalanx.expr(…)"
)


def _whole(term: Term) -> Any:
    """The number that a term is; what cannot be one is refused by the transform."""
    return term.value if isinstance(term, Literal) and term.kind == "number" else term_to_sql(term)


def _column(schema: TableSchema, name: str) -> Column:
    if name in schema.tagged.names:
        return schema.column((name,))
    return schema.column(split_path(name))


def _member(value: Any, key: str, kind: type[Any], owner: str) -> Any:
    """A required member of a JSON object, of one kind."""
    if not isinstance(value, Mapping) or key not in value:
        raise InvalidInput(f"{owner} needs {key!r}: {value}")
    member = value[key]
    if not isinstance(member, kind) or (kind is int and isinstance(member, bool)):
        raise InvalidInput(f"{key!r} of {owner} cannot be {member!r}")
    return member


def _refuse_duplicates(fields: Sequence[PartitionField]) -> None:
    seen: set[str] = set()
    for field in fields:
        if field.field_id in seen:
            raise InvalidInput(f"the partition field id {field.field_id!r} appears twice")
        seen.add(field.field_id)
