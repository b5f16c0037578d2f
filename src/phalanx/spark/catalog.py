"""What a catalog does: find, describe, create and drop tables and namespaces."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from phalanx.errors import InvalidInput, TableNotFound
from phalanx.model.properties import DERIVED, TRANSACTIONS
from phalanx.spark import features, metadata_tables
from phalanx.spark.dispatch import Reply, operation
from phalanx.spark.handles import Handle, declaration_of, open_snapshot
from phalanx.spark.requests import Request
from phalanx.spark.transforms import Reported, SparkTransform, entries_of, entry_of, reported
from phalanx.spark.types import ColumnDefault, arrow_schema, spark_schema
from phalanx.spark.warehouse import Warehouse
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


@dataclass(frozen=True, kw_only=True)
class CatalogRequest(Request):
    """A request to a catalog."""

    catalog: Catalog

    @cached_property
    def warehouse(self) -> Warehouse:
        return Warehouse(self.catalog.confs)


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
        request.warehouse, request.ident, request.version, request.time, declaration_of(declared)
    )
    return {"missing": True} if opened is None else describe(*opened)


@operation(TableRequest)
def table_exists(request: TableRequest) -> Reply:
    return {"exists": _opened(request.warehouse, request.ident) is not None}


def _opened(
    warehouse: Warehouse,
    ident: Sequence[str],
    version: str | None = None,
    micros: int | None = None,
    declaration: Declaration | None = None,
) -> tuple[Snapshot, str | None] | None:
    """The snapshot of a table, and which of its metadata tables is meant, if one is.

    None where there is no such table. Raises TableNotFound where it has no such version.
    """
    *above, last = ident
    for named, about in ((ident, None), (above, last)):
        if about is not None and (not named or about not in metadata_tables.TABLES):
            continue
        location = warehouse.location(named)
        location.declaration = declaration
        try:
            return open_snapshot(location, version, micros), about
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
        "one_spec": False,
        "capabilities": ["BATCH_READ"],
    }
    if about is not None:
        return plain | {"schema": spark_schema(metadata_tables.schema_of(snapshot, about))}
    fields = reported(head.spec, head.schema)
    columns = head.schema.arrow.names
    evolves = head.transactions == "strong" and features.has("merge_schema_evolution")
    return plain | {
        "schema": spark_schema(head.schema.arrow),
        "properties": properties_of(snapshot),
        "partitioning": [field.to_json() for field in fields],
        "metadata_columns": [
            {"name": name, "type": type, "comment": comment}
            for name, type, comment in _METADATA_COLUMNS
            if name not in columns
        ],
        "runtime_columns": [list(path) for path in _partition_columns(head)],
        "one_spec": len(head.specs) == 1 and not any(_is_blurred(field) for field in fields),
        "capabilities": ["BATCH_READ", *_WRITE, *_STREAMS, *(_EVOLUTION if evolves else ())],
    }


def _partition_columns(head: Head) -> Iterable[tuple[str, ...]]:
    """The source columns of partition fields, those of earlier specs too."""
    fields = [field for spec in head.specs for field in reported(spec, head.schema)]
    return dict.fromkeys(path for field in fields for path in field.sources)


def _is_blurred(field: Reported) -> bool:
    """Whether a leaf may hold other values than its key says: both zeros, for example."""
    return field.name == "identity" and field.type in ("float", "double")


def properties_of(snapshot: Snapshot) -> dict[str, str]:
    """The properties that Spark shows: the table's own, and those that are worked out."""
    head = snapshot.head
    return {
        **head.properties,
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


@operation(StageTable)
def stage_table(request: StageTable) -> Reply:
    """Prepare to create or replace a table; nothing is visible before `commit_staged`."""
    warehouse, ident = request.warehouse, request.ident
    properties = _own(request.properties)
    place = request.properties.get("location")
    location = warehouse.location(ident)
    if place and Location(place, warehouse.options).uri != location.uri:
        raise InvalidInput(
            f"a table of this catalog lies at {location.uri}: to choose another place, name the "
            f"table by its path or write to it with format('phalanx').save('{place}')"
        )
    exists = manifest.exists(location)
    if exists and request.mode == "create":
        return {"exists": True}
    if not exists and request.mode == "replace":
        return {"missing": True}
    if not exists and len(ident) > 1 and not warehouse.namespace_exists(ident[:-1]):
        return {"no_namespace": True}
    # Here, and not above, because it loads all that writes, and most queries only read.
    from phalanx.spark.staging import Stage

    transactions = properties.pop(TRANSACTIONS.name, None)
    stage = Stage.make(
        location,
        exists,
        arrow_schema(json.loads(request.schema), properties, request.defaults),
        [entry_of(transform) for transform in request.partitioning]
        or entries_of(request.partition_by or ""),
        transactions,
        properties,
    )
    return describe(stage.snapshot()) | {"handle": stage.to_json()}


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
    location = request.warehouse.location(request.ident)
    if not manifest.exists(location):
        return {"dropped": False}
    folders.remove(location)
    return {"dropped": True}


@dataclass(frozen=True, kw_only=True)
class RenameTable(TableRequest):
    """A table and its new name."""

    to: Sequence[str]


@operation(RenameTable)
def rename_table(request: RenameTable) -> Reply:
    warehouse, namespace = request.warehouse, request.to[:-1]
    old, new = warehouse.location(request.ident), warehouse.location(request.to)
    if not manifest.exists(old):
        return {"missing": True}
    if manifest.exists(new):
        return {"exists": True}
    if old.path is None or new.path is None:
        raise InvalidInput(
            f"an object store cannot rename {old.uri}: create the new table AS SELECT from it"
        )
    if not warehouse.namespace_exists(namespace):
        raise InvalidInput(f"there is no namespace {'.'.join(namespace)}: create it first")
    new.path.parent.mkdir(parents=True, exist_ok=True)
    os.rename(old.path, new.path)
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
    properties = {k: v for k, v in request.properties.items() if k not in ("owner", "location")}
    warehouse.create_namespace(request.namespace, properties)
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
    if not request.cascade and (warehouse.tables(namespace) or warehouse.namespaces(namespace)):
        return {"not_empty": True}
    warehouse.drop_namespace(namespace)
    return {}
