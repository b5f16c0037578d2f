"""What a catalog does: find, describe, create and drop tables and namespaces."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput, TableExists, TableNotFound
from phalanx.model.properties import DERIVED, TRANSACTIONS
from phalanx.model.specs import entries_of, field_names
from phalanx.spark import features, metadata_tables
from phalanx.spark.dispatch import Reply, operation
from phalanx.spark.handles import Handle, declaration_of, open_snapshot
from phalanx.spark.relations import TABLE, VIEW, Link, Relation
from phalanx.spark.requests import Request
from phalanx.spark.transforms import Reported, SparkTransform, entry_of, reported
from phalanx.spark.types import ColumnDefault, arrow_schema, spark_schema
from phalanx.spark.warehouse import Warehouse, is_path
from phalanx.storage import folders, manifest
from phalanx.storage.head import Head
from phalanx.storage.location import Declaration, Location
from phalanx.transaction.snapshot import Snapshot

_METADATA_COLUMNS = (
    ("_partition", "STRING", "the partition that the row is in"),
    ("_leaf", "STRING", "the id of the leaf that the row is in"),
    ("_rowid", "BIGINT", "the row's id in its leaf"),
)
_WRITE = ("BATCH_WRITE", "TRUNCATE", "OVERWRITE_BY_FILTER", "OVERWRITE_DYNAMIC")
_STREAMS = ("MICRO_BATCH_READ", "STREAMING_WRITE")
_EVOLUTION = ("AUTOMATIC_SCHEMA_EVOLUTION",)


@dataclass(frozen=True)
class Catalog:
    """A catalog of Spark: its name, and its confs without the prefix that they have there."""

    name: str
    confs: Mapping[str, str]
    #: Whether the session tells names by their case.
    case_sensitive: bool = False


@dataclass(frozen=True, kw_only=True)
class CatalogRequest(Request):
    """A request to a catalog."""

    catalog: Catalog

    @cached_property
    def warehouse(self) -> Warehouse:
        catalog = self.catalog
        return Warehouse(catalog.confs, catalog.case_sensitive, catalog.name)


@dataclass(frozen=True, kw_only=True)
class TableRequest(CatalogRequest):
    """A request about a table, by its name in parts or by its path."""

    ident: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class NamespaceRequest(CatalogRequest):
    """A request about a namespace, by its name in parts."""

    namespace: Sequence[str]


# Tables


@dataclass(frozen=True, kw_only=True)
class LoadTable(TableRequest):
    """A table at its newest version, at a version or tag, or at a time in microseconds."""

    version: str | None = None
    time: int | None = None
    #: What the options of a read say about a tree of others; see `Handle.declared`.
    declared: Mapping[str, str] | None = None


@operation(LoadTable)
def load_table(request: LoadTable) -> Reply:
    """A table, or a metadata table of it."""
    declared: dict[str, Any] = dict(request.declared or {})
    if "schema" in declared:
        declared["schema"] = json.loads(declared["schema"])
    opened = _opened(
        request.warehouse,
        request.ident,
        request.version,
        request.time,
        declaration_of(declared),
        request.zone,
    )
    if opened is None:
        return {"missing": True}
    reply = describe(*opened)
    if opened[1] is None and not is_path(request.ident):
        is_managed = request.warehouse.is_managed(request.ident, opened[0].location)
        reply["properties"] |= {"is_managed_location" if is_managed else "external": "true"}
    return reply


@operation(TableRequest)
def table_exists(request: TableRequest) -> Reply:
    """Whether there is a table of a name. One that is gone from its place keeps it until DROP."""
    warehouse, ident = request.warehouse, request.ident
    exists = _opened(warehouse, ident) is not None or warehouse.relation(ident, TABLE) is not None
    return {"exists": exists}


def _opened(
    warehouse: Warehouse,
    ident: Sequence[str],
    version: str | None = None,
    micros: int | None = None,
    declaration: Declaration | None = None,
    zone: str = "UTC",
) -> tuple[Snapshot, str | None] | None:
    """The snapshot of a table, and which of its metadata tables is meant, if one is.

    None where there is no such table. Raises TableNotFound where it has no such version.
    """
    *above, last = ident
    for named, about in ((ident, None), (above, last)):
        if about is not None and (not named or about not in metadata_tables.TABLES):
            continue
        for location in warehouse.places(named):
            location.declaration = declaration
            try:
                return open_snapshot(location, version, micros, zone), about
            except TableNotFound:
                if (version is not None or micros is not None) and manifest.exists(location):
                    raise
    return None


def describe(snapshot: Snapshot, about: str | None = None) -> Reply:
    """All that Spark wants to know of a table, or of a metadata table of it."""
    head = snapshot.head
    handle = Handle.of(snapshot, about)
    plain: Reply = {
        "handle": handle.to_json(),
        "id": head.table_id or snapshot.location.uri,
        "version": str(head.sequence),
        "properties": {},
        "partitioning": [],
        "metadata_columns": [],
        "runtime_columns": [],
        "ordered_columns": [],
        "one_spec": False,
        "partition_schema": {"type": "struct", "fields": []},
        "constraints": {},
        "capabilities": ["BATCH_READ"],
        "lasts": False,
    }
    if about is not None:
        return plain | {"schema": spark_schema(metadata_tables.schema_of(snapshot, about))}
    fields = reported(head.spec, head.schema)
    columns = head.schema.arrow.names
    evolves = head.transactions == "strong" and features.has("merge_schema_evolution")
    return plain | {
        "schema": spark_schema(head.schema.tagged),
        "properties": properties_of(snapshot),
        "partitioning": [field.to_json() for field in fields],
        "partition_schema": _partition_schema(head),
        "constraints": head.constraints,
        "metadata_columns": [
            {"name": name, "type": type, "comment": comment}
            for name, type, comment in _METADATA_COLUMNS
            if name not in columns
        ],
        "runtime_columns": [list(path) for path in _partition_columns(head)],
        "ordered_columns": [list(path) for path in _partition_columns(head, ordered=True)],
        "one_spec": len(head.specs) == 1 and not any(_is_blurred(field) for field in fields),
        "capabilities": ["BATCH_READ", *_WRITE, *_STREAMS, *(_EVOLUTION if evolves else ())],
        "lasts": snapshot.lasts,
    }


def _partition_schema(head: Head) -> Reply:
    """What names a partition in Spark: the fields of the current spec.

    Nothing does if Spark has no type for one of them.
    """
    names = field_names(head.spec.fields, head.schema)
    try:
        fields = [pa.field(names[field.field_id], field.result_type) for field in head.spec.fields]
        return spark_schema(pa.schema(fields))
    except InvalidInput:
        return {"type": "struct", "fields": []}


def _partition_columns(head: Head, ordered: bool = False) -> Iterable[tuple[str, ...]]:
    """The source columns of partition fields, those of earlier specs too.

    If `ordered`, only those of fields by which a range of values can prune.
    """
    fields = [
        field
        for spec in head.specs
        for field in reported(spec, head.schema)
        if not (ordered and field.name in _UNORDERED)
    ]
    return dict.fromkeys(path for field in fields for path in field.sources)


#: Transforms that spread neighboring values over all partitions.
_UNORDERED = ("bucket", "multi_bucket", "hash")


def _is_blurred(field: Reported) -> bool:
    """Whether a leaf may hold other values than its key says: both zeros, for example."""
    return field.name == "identity" and field.type in ("float", "double")


def properties_of(snapshot: Snapshot) -> dict[str, str]:
    """The properties that Spark shows: the table's own, and those that are worked out."""
    head = snapshot.head
    return {
        **head.constrained({}).properties,
        "provider": "phalanx",
        "location": snapshot.location.uri,
        TRANSACTIONS.name: head.transactions,
        "version": str(head.sequence),
    }


@operation(NamespaceRequest)
def list_tables(request: NamespaceRequest) -> Reply:
    warehouse = request.warehouse
    if not warehouse.namespace_exists(request.namespace):
        return {"missing": True}
    return {"tables": warehouse.tables(request.namespace)}


@dataclass(frozen=True, kw_only=True)
class StageTable(TableRequest):
    """What CREATE or REPLACE TABLE says."""

    #: `create`, `replace` or `create_or_replace`.
    mode: str
    #: The columns, as Spark's JSON, and their defaults.
    schema: str
    defaults: Mapping[str, ColumnDefault] = field(default_factory=dict)
    #: PARTITIONED BY; or the same as text, from the option of a write that creates the table.
    partitioning: Sequence[SparkTransform]
    partition_by: str | None = None
    properties: Mapping[str, str]
    #: CHECK constraints: conditions in SQL by their names; null for a constraint of another kind.
    constraints: Mapping[str, str | None] = field(default_factory=dict)
    #: What Spark says as the provider where nobody has said one; empty if it does not.
    default_provider: str = ""
    #: Whether a table that lies at the location already may get the name.
    names: bool = False


@operation(StageTable)
def stage_table(request: StageTable) -> Reply:
    """Prepare to create or replace a table; nothing is visible before `commit_staged`."""
    warehouse, ident = request.warehouse, request.ident
    _check_provider(request)
    properties = _own(request.properties)
    location = warehouse.existing(ident)
    if location is None and request.mode == "replace":
        return {"missing": True}
    is_taken = location is not None or any(warehouse.relation(ident, k) for k in (VIEW, TABLE))
    if is_taken and (location is None or request.mode == "create"):
        return {"exists": True}
    exists, link = location is not None, None
    place = request.properties.get("location")
    if location is None:
        if len(ident) > 1 and not warehouse.namespace_exists(ident[:-1]):
            return {"no_namespace": True}
        name = warehouse.new(ident)
        location = warehouse.location(name)
        if place and (outside := _place(place, warehouse)).uri != location.uri:
            location, link = outside, Link(warehouse.location(name[:-1]).uri, name[-1])
    elif place and _place(place, warehouse).uri != location.uri:
        raise InvalidInput(
            f"the table lies at {location.uri}, and its replacement lies there too: drop it first "
            "to choose another place"
        )
    # Here, and not above, because it loads all that writes, and most queries only read.
    from phalanx.spark.staging import Stage

    transactions = properties.pop(TRANSACTIONS.name, None)
    schema = arrow_schema(json.loads(request.schema), properties, request.defaults)
    entries = [entry_of(transform) for transform in request.partitioning] or entries_of(
        request.partition_by or ""
    )
    if link is not None and manifest.exists(location):
        if not request.names:
            raise TableExists(f"there is a table at {location.uri} already: choose another place")
        stage = Stage.naming(location, schema, entries, properties, link)
    else:
        stage = Stage.make(location, exists, schema, entries, transactions, properties, link)
        stage = stage.constrained(_checked(request.constraints))
    return describe(stage.snapshot()) | {"handle": stage.to_json()}


def _check_provider(request: StageTable) -> None:
    """Raises InvalidInput for the name of another format after USING."""
    provider = request.properties.get("provider")
    if provider is None or provider.lower() in ("phalanx", request.default_provider.lower()):
        return
    raise InvalidInput(
        f"the catalog {request.catalog.name} makes tables of Phalanx, not of {provider}: write "
        "USING phalanx, or leave USING out"
    )


def _checked(constraints: Mapping[str, str | None]) -> dict[str, str]:
    """The conditions of new constraints. Raises InvalidInput for one that is not CHECK."""
    for name, sql in constraints.items():
        if sql is None:
            raise InvalidInput(
                f"the constraint {name!r} is none that rows can be checked by: a table has only "
                "CHECK constraints that are enforced"
            )
    return {name: sql for name, sql in constraints.items() if sql is not None}


def _place(text: str, warehouse: Warehouse) -> Location:
    """What LOCATION says. Raises InvalidInput for a relative path."""
    if ":" not in text and not os.path.isabs(text):
        raise InvalidInput(f"LOCATION is an absolute path or a URI, not {text!r}")
    return Location(text, warehouse.options)


def _own(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that are stored with the table.

    Spark sends what stands in OPTIONS twice, with a prefix and without. It may be a secret, so it
    is not stored.
    """
    return {
        key: value
        for key, value in properties.items()
        if key not in DERIVED
        and not key.startswith("option.")
        and f"option.{key}" not in properties
    }


@operation(TableRequest)
def drop_table(request: TableRequest) -> Reply:
    """Delete a table; one in another place only loses its name."""
    warehouse, ident = request.warehouse, request.ident
    link = warehouse.relation(ident, TABLE)
    if link is not None:
        *namespace, name = link[0]
        return {"dropped": warehouse.relations(namespace).remove(name)}
    location = warehouse.existing(ident)
    if location is None:
        if _opened(warehouse, ident) is not None:
            raise InvalidInput(f"{'.'.join(ident)} shows the metadata of a table: drop the table")
        return {"dropped": False}
    folders.remove(location)
    return {"dropped": True}


@dataclass(frozen=True, kw_only=True)
class Rename(TableRequest):
    """A table or view and its new name."""

    to: Sequence[str]


@operation(Rename)
def rename_table(request: Rename) -> Reply:
    """Rename a table. Raises InvalidInput where that cannot be done."""
    warehouse, old = request.warehouse, request.warehouse.existing(request.ident)
    if old is None:
        return {"missing": True}
    to = new_name(warehouse, request.to)
    if to is None:
        return {"exists": True}
    link = warehouse.relation(request.ident, TABLE)
    if link is not None:
        return move_relation(warehouse, *link, to)
    new = warehouse.location(to)
    if old.path is None or new.path is None:
        raise InvalidInput(
            f"an object store cannot rename {old.uri}: create the new table AS SELECT from it"
        )
    new.path.parent.mkdir(parents=True, exist_ok=True)
    os.rename(old.path, new.path)
    return {}


def new_name(warehouse: Warehouse, ident: Sequence[str]) -> list[str] | None:
    """The new name of a table or view, which may begin with that of the catalog; None if taken.

    Raises InvalidInput where nothing can have the name.
    """
    ident = warehouse.within(ident)
    if not warehouse.namespace_exists(ident[:-1]):
        raise InvalidInput(f"there is no namespace {'.'.join(ident[:-1])}: create it first")
    taken = warehouse.existing(ident) or any(warehouse.relation(ident, k) for k in (VIEW, TABLE))
    return None if taken else warehouse.new(ident)


def move_relation(
    warehouse: Warehouse, name: Sequence[str], relation: Relation, to: Sequence[str]
) -> Reply:
    """Give a relation another name: for a moment it has both, and never none."""
    if not warehouse.relations(to[:-1]).create(to[-1], relation):
        return {"exists": True}
    warehouse.relations(name[:-1]).remove(name[-1])
    return {}


# Namespaces


@operation(NamespaceRequest)
def list_namespaces(request: NamespaceRequest) -> Reply:
    warehouse = request.warehouse
    if not warehouse.namespace_exists(request.namespace):
        return {"missing": True}
    return {"namespaces": warehouse.namespaces(request.namespace)}


@operation(NamespaceRequest)
def load_namespace(request: NamespaceRequest) -> Reply:
    warehouse = request.warehouse
    if not warehouse.namespace_exists(request.namespace):
        return {"missing": True}
    return {"properties": warehouse.namespace_properties(request.namespace)}


@dataclass(frozen=True, kw_only=True)
class CreateNamespace(NamespaceRequest):
    """A namespace with its properties."""

    properties: Mapping[str, str]


@operation(CreateNamespace)
def create_namespace(request: CreateNamespace) -> Reply:
    warehouse = request.warehouse
    if warehouse.namespace_exists(request.namespace):
        return {"exists": True}
    if "location" in request.properties:
        raise InvalidInput(
            "a namespace lies in the folder of its catalog: leave LOCATION out, or give it to the "
            "tables"
        )
    properties = {k: v for k, v in request.properties.items() if k != "owner"}
    warehouse.create_namespace(request.namespace, properties)
    return {}


@dataclass(frozen=True, kw_only=True)
class AlterNamespace(NamespaceRequest):
    """A namespace, and new values of its properties; null for those that go."""

    changes: Mapping[str, str | None]


@operation(AlterNamespace)
def alter_namespace(request: AlterNamespace) -> Reply:
    warehouse = request.warehouse
    if not warehouse.namespace_exists(request.namespace):
        return {"missing": True}
    for key in request.changes:
        if key in ("location", "owner"):
            raise InvalidInput(f"the {key} of a namespace cannot be changed")
    warehouse.alter_namespace(request.namespace, request.changes)
    return {}


@dataclass(frozen=True, kw_only=True)
class DropNamespace(NamespaceRequest):
    """A namespace, and whether what is in it goes too."""

    cascade: bool


@operation(DropNamespace)
def drop_namespace(request: DropNamespace) -> Reply:
    warehouse, namespace = request.warehouse, request.namespace
    if not warehouse.namespace_exists(namespace):
        return {"missing": True}
    inside = warehouse.tables, warehouse.views, warehouse.namespaces
    if not request.cascade and any(names(namespace) for names in inside):
        return {"not_empty": True}
    warehouse.drop_namespace(namespace)
    return {}
