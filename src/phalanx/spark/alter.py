"""ALTER TABLE: every change of one statement, in one snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.evolution import change_type, find, widen_specs
from phalanx.model.paths import join_path
from phalanx.model.properties import DERIVED
from phalanx.model.specs import CustomField, entries_of
from phalanx.spark.catalog import TableRequest
from phalanx.spark.dispatch import Reply, operation
from phalanx.spark.handles import Handle
from phalanx.spark.requests import Request
from phalanx.spark.transforms import Reported, entry_of, reported
from phalanx.spark.types import (
    COMMENT,
    SPARK_TYPE,
    ColumnDefault,
    arrow_field,
    arrow_type,
    constant,
)
from phalanx.storage.head import Head
from phalanx.table.create import warn_of_lone_units
from phalanx.table.operations.evolve import next_spec
from phalanx.table.table import Table
from phalanx.table.transaction import TableTransaction
from phalanx.transaction.snapshot import Snapshot


@dataclass(frozen=True)
class TableChange:
    """One change of a statement. Which of the fields it has depends on what is changed."""

    #: `set_property`, `add_column`, …
    change: str
    #: A property and its value.
    key: str = ""
    value: str | None = None
    #: A column, by its path, and its new name.
    column: Sequence[str] = ()
    to: str = ""
    #: The type of a column, as Spark's JSON, and what else is said about it.
    type: str = ""
    nullable: bool = True
    comment: str | None = None
    default: ColumnDefault | None = None
    #: Where the column comes: `first`, or after another one.
    position: Any = None
    #: Whether a column or constraint that is dropped may be missing.
    if_exists: bool = False
    #: A constraint: its name, its condition in SQL, and the version whose rows satisfy it.
    constraint: str = ""
    sql: str = ""
    validated: str | None = None


@dataclass(frozen=True, kw_only=True)
class AlterTable(TableRequest):
    """A table and its changes."""

    changes: Sequence[TableChange]


@operation(AlterTable)
def alter_table(request: AlterTable) -> Reply:
    """Change columns, comments and properties. Raises InvalidInput for what cannot be done."""
    location = request.warehouse.existing(request.ident)
    if location is None:
        return {"missing": True}
    table = Table(Snapshot.latest(location))
    properties: dict[str, str | None] = {}
    last = _last_dropped(request.changes, table.schema.names)
    with table.transaction() as tx:
        for change in request.changes:
            if change.change in ("set_property", "remove_property"):
                properties[_changeable(change.key)] = change.value
            elif change is last:
                # A table is never without a column: the last one goes when others have come.
                tx.rename_column(change.column, _GONE)
            else:
                if change.change == "add_column" and not request.catalog.case_sensitive:
                    _check_case(tx, change.column)
                _alter(tx, change)
        if last is not None:
            tx.drop_column((_GONE,))
        if properties:
            tx.set_properties(properties)
    return {}


def _check_case(tx: TableTransaction, path: Sequence[str]) -> None:
    """Raise InvalidInput for a new column whose name another one has in another case.

    Spark checks that before an ALTER TABLE, but not before a write that adds columns, and it could
    not read the table afterwards.
    """
    if tx.has_column(path):
        raise InvalidInput(
            f"the table has a column {join_path(path)!r} already, perhaps in another case: rename "
            "the new one, or set spark.sql.caseSensitive to true to tell them apart"
        )


#: The name of a column that is about to be dropped.
_GONE = "__dropped"


def _last_dropped(changes: Sequence[TableChange], columns: Sequence[str]) -> TableChange | None:
    """The change that drops the last column, as REPLACE COLUMNS does; None if some column stays."""
    drops = [c for c in changes if c.change == "drop_column" and len(c.column) == 1]
    return drops[-1] if {c.column[0] for c in drops} >= set(columns) else None


@dataclass(frozen=True, kw_only=True)
class CanWiden(Request):
    """A column of a table, and another type as Spark's JSON."""

    table: Handle
    column: Sequence[str]
    type: str


@operation(CanWiden)
def can_widen(request: CanWiden) -> Reply:
    """Whether a type holds all values of a column and more, so that a write may change it."""
    head = request.table.snapshot().head
    try:
        wanted = arrow_type(json.loads(request.type), request.column[-1])
        column = find(head.schema, request.column)
        after = change_type(head.schema, request.column, wanted)
        widen_specs(head.specs, head.schema, after, column)
    except InvalidInput:
        return {"possible": False}
    return {"possible": after != head.schema}


def _changeable(key: str) -> str:
    if key in DERIVED:
        raise InvalidInput(f"the property {key!r} cannot be changed with ALTER TABLE")
    return key


def _alter(tx: TableTransaction, change: TableChange) -> None:
    path = tuple(change.column)
    match change.change:
        case "add_column":
            _add(tx, path, change)
        case "drop_column":
            if not change.if_exists or tx.has_column(path):
                tx.drop_column(path)
        case "rename_column":
            tx.rename_column(path, change.to)
        case "change_type":
            field = _field(path[-1], change)
            tx.change_type(path, field.type)
            declared = (field.metadata or {}).get(SPARK_TYPE.encode())
            tx.describe_column(path, {SPARK_TYPE: declared and declared.decode()})
        case "set_nullable":
            if not change.nullable:
                raise InvalidInput(
                    f"column {join_path(path)!r} cannot become NOT NULL: rows that are there may "
                    "have no value for it"
                )
            tx.make_nullable(path)
        case "set_default":
            default = change.default
            if default is None:
                tx.set_default(path, None)
            else:
                tx.set_default(path, default.of(constant(default, None, path[-1])))
        case "add_constraint":
            if change.validated is None:
                raise InvalidInput(
                    f"the constraint {change.constraint!r} is none that rows can be checked by: a "
                    "table has only CHECK constraints that are enforced"
                )
            tx.add_constraint(change.constraint, change.sql, int(change.validated))
        case "drop_constraint":
            tx.drop_constraint(change.constraint, change.if_exists)
        case "comment":
            tx.describe_column(path, {COMMENT: change.comment})
        case "move_column":
            tx.move_column(path, **_place(change))
        case other:
            raise InvalidInput(f"a table cannot be altered like that: {other}")


def _add(tx: TableTransaction, path: tuple[str, ...], change: TableChange) -> None:
    field = _field(path[-1], change)
    default, value = change.default, None
    if default is not None:
        # Existing rows hold the value of this moment.
        value = constant(default, field.type, field.name)
    tx.add_column(path, field.type, value, nullable=field.nullable, **_place(change))
    if default is not None and value is not None:
        tx.set_default(path, default.of(value))
    described = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    if described:
        tx.describe_column(path, described)


def _field(name: str, change: TableChange) -> pa.Field:
    metadata = {"comment": change.comment} if change.comment else {}
    type, nullable = json.loads(change.type), change.nullable
    return arrow_field({"name": name, "type": type, "nullable": nullable, "metadata": metadata})


def _place(change: TableChange) -> Mapping[str, Any]:
    match change.position:
        case None:
            return {}
        case "first":
            return {"first": True}
        case position:
            return {"after": position["after"]}


@dataclass(frozen=True, kw_only=True)
class AlterPartitioning(TableRequest):
    """A table and the partition field that is added, dropped, or (both) replaced."""

    add: str | None
    drop: str | None


@operation(AlterPartitioning)
def alter_partitioning(request: AlterPartitioning) -> Reply:
    """ADD, DROP or REPLACE PARTITION FIELD: a new version of the spec."""
    location = request.warehouse.existing(request.ident)
    if location is None:
        return {"missing": True}
    table = Table(Snapshot.latest(location))
    head = table._snapshot.head
    known = reported(head.spec, head.schema)
    entries: list[str | CustomField] = [entry_of(field.to_json()) for field in known]
    added = entries_of(request.add or "")
    if request.drop is None:
        entries += added
    else:
        at = _position(known, request.drop, head)
        entries[at : at + 1] = added
    if next_spec(head, entries).fields == head.spec.fields:
        raise InvalidInput(f"the table {location.uri} is partitioned like that already")
    with table.transaction() as tx:
        tx.evolve_partitioning(entries, instead_of=head.spec)
    warn_of_lone_units(table.spec, table._snapshot.head.schema)
    return {}


def _position(known: Sequence[Reported], text: str, head: Head) -> int:
    """The place of the field that a text means: a transform, or the id of a field."""
    try:
        meant = next_spec(head, entries_of(text)).fields
    except InvalidInput:
        meant = ()
    for at, field in enumerate(known):
        if field.fields == meant or [part.field_id for part in field.fields] == [text.strip("`")]:
            return at
    there = ", ".join(str(entry_of(field.to_json())) for field in known) or "none"
    raise InvalidInput(f"there is no partition field {text}: the fields are {there}")
