"""ALTER TABLE: every change of one statement, in one snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.properties import DERIVED
from phalanx.model.specs import CustomField
from phalanx.spark.dispatch import Reply, Request, operation
from phalanx.spark.transforms import Reported, entries_of, entry_of, reported
from phalanx.spark.types import COMMENT, arrow_field, constant
from phalanx.spark.warehouse import Warehouse
from phalanx.storage import manifest
from phalanx.storage.head import Head
from phalanx.table.operations.evolve import next_spec
from phalanx.table.table import Table
from phalanx.table.transaction import TableTransaction
from phalanx.transaction.snapshot import Snapshot

Change = Mapping[str, Any]


@operation
def alter_table(request: Request) -> Reply:
    """Change columns, comments and properties. Raises InvalidInput for what cannot be done."""
    location = Warehouse(request["catalog"]).location(request["ident"])
    if not manifest.exists(location):
        return {"missing": True}
    table = Table(Snapshot.latest(location))
    properties: dict[str, str | None] = {}
    with table.transaction() as tx:
        for change in request["changes"]:
            if change["change"] in ("set_property", "remove_property"):
                properties[_changeable(change["key"])] = change.get("value")
            else:
                _alter(tx, change)
        if properties:
            tx.set_properties(properties)
    return {}


def _changeable(key: str) -> str:
    if key in DERIVED:
        raise InvalidInput(f"the property {key!r} cannot be changed with ALTER TABLE")
    return key


def _alter(tx: TableTransaction, change: Change) -> None:
    path = tuple(change.get("column") or ())
    match change["change"]:
        case "add_column":
            _add(tx, path, change)
        case "drop_column":
            if not change["if_exists"] or tx.has_column(path):
                tx.drop_column(path)
        case "rename_column":
            tx.rename_column(path, change["to"])
        case "change_type":
            field = _field(path[-1], change)
            tx.change_type(path, field.type)
        case "set_nullable":
            if not change["nullable"]:
                raise InvalidInput(
                    f"column {'.'.join(path)!r} cannot become NOT NULL: rows that are there may "
                    "have no value for it"
                )
            tx.make_nullable(path)
        case "comment":
            tx.describe_column(path, {COMMENT: change["comment"]})
        case "move_column":
            tx.move_column(path, **_place(change))
        case other:
            raise InvalidInput(f"a table cannot be altered like that: {other}")


def _add(tx: TableTransaction, path: tuple[str, ...], change: Change) -> None:
    field = _field(path[-1], change)
    default = None if change.get("default") is None else constant(change["default"], field.type)
    tx.add_column(path, field.type, default, nullable=field.nullable, **_place(change))
    described = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    if described:
        tx.describe_column(path, described)


def _field(name: str, change: Change) -> pa.Field:
    metadata = {"comment": change["comment"]} if change.get("comment") else {}
    type, nullable = json.loads(change["type"]), change.get("nullable", True)
    return arrow_field({"name": name, "type": type, "nullable": nullable, "metadata": metadata})


def _place(change: Change) -> dict[str, Any]:
    match change.get("position"):
        case None:
            return {}
        case "first":
            return {"first": True}
        case found:
            return {"after": found["after"]}


@operation
def alter_partitioning(request: Request) -> Reply:
    """ADD, DROP or REPLACE PARTITION FIELD: a new version of the spec."""
    location = Warehouse(request["catalog"]).location(request["ident"])
    if not manifest.exists(location):
        return {"missing": True}
    table = Table(Snapshot.latest(location))
    head = table._snapshot.head
    known = reported(head.spec, head.schema)
    entries: list[str | CustomField] = [entry_of(field.to_json()) for field in known]
    add, drop = request.get("add"), request.get("drop")
    if drop is None:
        entries += entries_of(add or "")
    else:
        at = _position(known, drop, head)
        entries[at : at + 1] = entries_of(add or "")
    if next_spec(head, entries).fields == head.spec.fields:
        raise InvalidInput(f"the table {location.uri} is partitioned like that already")
    with table.transaction() as tx:
        tx.evolve_partitioning(entries, instead_of=head.spec)
    return {}


def _position(known: Sequence[Reported], text: str, head: Head) -> int:
    """Where the field is that a text means: a transform, or the id of a field."""
    try:
        meant = next_spec(head, entries_of(text)).fields
    except InvalidInput:
        meant = ()
    for at, field in enumerate(known):
        if field.fields == meant or [part.field_id for part in field.fields] == [text.strip("`")]:
            return at
    there = ", ".join(str(entry_of(field.to_json())) for field in known) or "none"
    raise InvalidInput(f"there is no partition field {text}: the fields are {there}")
