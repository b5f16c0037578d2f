"""What a catalog does: find, describe, create, alter and drop tables and namespaces."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping

from phalanx.errors import InvalidInput, TableNotFound
from phalanx.model.properties import DERIVED, TRANSACTIONS
from phalanx.spark import metadata_tables
from phalanx.spark.dispatch import Reply, Request, operation
from phalanx.spark.handles import Handle, open_snapshot
from phalanx.spark.transforms import Reported, entries_of, entry_of, reported
from phalanx.spark.types import arrow_schema, spark_schema
from phalanx.spark.warehouse import Warehouse
from phalanx.storage import manifest, object_store
from phalanx.storage.head import Head
from phalanx.storage.location import Location
from phalanx.transaction.snapshot import Snapshot

_METADATA_COLUMNS = (
    ("_partition", "STRING", "the partition that the row is in"),
    ("_leaf", "STRING", "the id of the leaf that the row is in"),
    ("_rowid", "BIGINT", "the row's id in its leaf"),
)
_WRITE = ("BATCH_WRITE", "TRUNCATE", "OVERWRITE_BY_FILTER", "OVERWRITE_DYNAMIC")
_STREAMS = ("MICRO_BATCH_READ", "STREAMING_WRITE")


# Tables


@operation
def load_table(request: Request) -> Reply:
    """A table by name or path, at its newest version or another; or a table about it."""
    warehouse = Warehouse(request["catalog"])
    version, micros = request.get("version"), request.get("time")
    *above, last = ident = request["ident"]
    for named, table in ((ident, None), (above, last)):
        if table is not None and (not named or table not in metadata_tables.TABLES):
            continue
        location = warehouse.location(named)
        try:
            return describe(open_snapshot(location, version, micros), table)
        except TableNotFound:
            if (version is not None or micros is not None) and manifest.exists(location):
                raise
    return {"missing": True}


@operation
def table_exists(request: Request) -> Reply:
    return {"exists": "missing" not in load_table(request)}


def describe(snapshot: Snapshot, table: str | None = None) -> Reply:
    """All that Spark wants to know of a table."""
    head = snapshot.head
    handle = Handle.of(snapshot, table)
    found: Reply = {
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
    if table is not None:
        return found | {"schema": spark_schema(metadata_tables.schema_of(snapshot, table))}
    fields = reported(head.spec, head.schema)
    columns = head.schema.arrow.names
    evolves = ("AUTOMATIC_SCHEMA_EVOLUTION",) if head.transactions == "strong" else ()
    return found | {
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
        "capabilities": ["BATCH_READ", *_WRITE, *_STREAMS, *evolves],
    }


def _partition_columns(head: Head) -> Iterable[tuple[str, ...]]:
    """The columns that partitions are cut by, under any spec, earlier ones too."""
    fields = [field for spec in head.specs for field in reported(spec, head.schema)]
    return dict.fromkeys(path for field in fields for path in field.sources)


def _is_blurred(field: Reported) -> bool:
    """Whether a leaf holds values that its key is not: both zeros, for example."""
    return field.name == "identity" and field.type in ("float", "double")


def properties_of(snapshot: Snapshot) -> dict[str, str]:
    head = snapshot.head
    return {
        **head.properties,
        "provider": "phalanx",
        "location": snapshot.location.uri,
        TRANSACTIONS.name: head.transactions,
        "version": str(head.sequence),
    }


@operation
def list_tables(request: Request) -> Reply:
    warehouse, namespace = Warehouse(request["catalog"]), request["namespace"]
    if not warehouse.namespace_exists(namespace):
        return {"missing": True}
    return {"tables": warehouse.tables(namespace)}


@operation
def stage_table(request: Request) -> Reply:
    """Prepare to create or replace a table; nothing is visible before `commit_staged`."""
    warehouse, ident, mode = Warehouse(request["catalog"]), request["ident"], request["mode"]
    properties = _own(request["properties"])
    given = request["properties"].get("location")
    named = warehouse.location(ident)
    if given and Location(given, warehouse.options).uri != named.uri:
        raise InvalidInput(
            f"a table of this catalog lies at {named.uri}: to choose another place, name the "
            f"table by its path or write to it with format('phalanx').save('{given}')"
        )
    exists = manifest.exists(named)
    if exists and mode == "create":
        return {"exists": True}
    if not exists and mode == "replace":
        return {"missing": True}
    if not exists and len(ident) > 1 and not warehouse.namespace_exists(ident[:-1]):
        return {"no_namespace": True}
    # What only makes and changes tables is loaded where it is needed.
    from phalanx.spark.staging import Stage

    transactions = properties.pop(TRANSACTIONS.name, None)
    stage = Stage.make(
        named,
        exists,
        arrow_schema(json.loads(request["schema"]), properties, request.get("defaults")),
        [entry_of(transform) for transform in request["partitioning"]]
        or entries_of(request.get("partition_by") or ""),
        transactions,
        properties,
    )
    found = describe(stage.snapshot())
    return found | {"handle": stage.to_json()}


def _own(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that belong to the table, and not to Spark's way of making it.

    What stands in OPTIONS comes twice, with a prefix and without; it may be a secret.
    """
    return {
        key: value
        for key, value in properties.items()
        if key not in DERIVED
        and not key.startswith("option.")
        and f"option.{key}" not in properties
    }


@operation
def drop_table(request: Request) -> Reply:
    location = Warehouse(request["catalog"]).location(request["ident"])
    if not manifest.exists(location):
        return {"dropped": False}
    object_store.remove(location)
    return {"dropped": True}


@operation
def rename_table(request: Request) -> Reply:
    warehouse = Warehouse(request["catalog"])
    old, new = warehouse.location(request["ident"]), warehouse.location(request["to"])
    if not manifest.exists(old):
        return {"missing": True}
    if manifest.exists(new):
        return {"exists": True}
    if old.path is None or new.path is None:
        raise InvalidInput(
            f"an object store cannot rename {old.uri}: create the new table AS SELECT from it"
        )
    if not warehouse.namespace_exists(request["to"][:-1]):
        raise InvalidInput(f"there is no namespace {'.'.join(request['to'][:-1])}: create it first")
    new.path.parent.mkdir(parents=True, exist_ok=True)
    os.rename(old.path, new.path)
    return {}


# Namespaces


@operation
def list_namespaces(request: Request) -> Reply:
    warehouse, namespace = Warehouse(request["catalog"]), request["namespace"]
    if not warehouse.namespace_exists(namespace):
        return {"missing": True}
    return {"namespaces": warehouse.namespaces(namespace)}


@operation
def load_namespace(request: Request) -> Reply:
    warehouse, namespace = Warehouse(request["catalog"]), request["namespace"]
    if not warehouse.namespace_exists(namespace):
        return {"missing": True}
    return {"properties": warehouse.namespace_properties(namespace)}


@operation
def create_namespace(request: Request) -> Reply:
    warehouse, namespace = Warehouse(request["catalog"]), request["namespace"]
    if warehouse.namespace_exists(namespace):
        return {"exists": True}
    properties = {k: v for k, v in request["properties"].items() if k not in ("owner", "location")}
    warehouse.create_namespace(namespace, properties)
    return {}


@operation
def drop_namespace(request: Request) -> Reply:
    warehouse, namespace = Warehouse(request["catalog"]), request["namespace"]
    if not warehouse.namespace_exists(namespace):
        return {"missing": True}
    if not request["cascade"] and (warehouse.tables(namespace) or warehouse.namespaces(namespace)):
        return {"not_empty": True}
    warehouse.drop_namespace(namespace)
    return {}
