"""Permanent views: what Spark wants to know of one is kept as it came, as a relation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.spark.catalog import (
    LoadTable,
    NamespaceRequest,
    Rename,
    TableRequest,
    load_table,
    move_relation,
    new_name,
)
from phalanx.spark.dispatch import Reply, operation
from phalanx.spark.relations import TABLE, VIEW


@dataclass(frozen=True)
class PermanentView:
    """A view."""

    #: Its columns, as Spark's JSON, and the names that they have in the query.
    schema: str
    columns: Sequence[str]
    properties: Mapping[str, str]
    #: The query, and what its names and functions meant when it was written.
    sql: str
    catalog: str | None
    namespace: Sequence[str]
    confs: Mapping[str, str]
    #: What happens if the columns of the query change.
    mode: str | None


@operation(LoadTable)
def load_relation(request: LoadTable) -> Reply:
    """A table or a view."""
    reply = load_table(request)
    if "missing" in reply:
        relation = request.warehouse.relation(request.ident, VIEW)
        if relation is not None:
            return {"view": relation[1]["view"]}
    return reply


@operation(NamespaceRequest)
def list_views(request: NamespaceRequest) -> Reply:
    warehouse = request.warehouse
    if not warehouse.namespace_exists(request.namespace):
        return {"missing": True}
    return {"views": warehouse.views(request.namespace)}


@dataclass(frozen=True, kw_only=True)
class WriteView(TableRequest):
    """A view that is created or replaced."""

    #: `create`, `replace` or `create_or_replace`.
    mode: str
    view: PermanentView


@operation(WriteView)
def write_view(request: WriteView) -> Reply:
    """Create or replace a view."""
    warehouse, ident = request.warehouse, request.ident
    relation = {"kind": VIEW, "view": vars(request.view)}
    known = warehouse.relation(ident, VIEW)
    if known is not None and request.mode != "create":
        *namespace, name = known[0]
        warehouse.relations(namespace).replace(name, relation)
        return {}
    if request.mode == "replace":
        return {"missing": True}
    if known or warehouse.relation(ident, TABLE) or warehouse.existing(ident):
        return {"exists": True}
    if not warehouse.namespace_exists(ident[:-1]):
        return {"no_namespace": True}
    *namespace, name = warehouse.new(ident)
    if not warehouse.relations(namespace).create(name, relation):
        return {"exists": True}
    return {}


@operation(TableRequest)
def drop_view(request: TableRequest) -> Reply:
    known = request.warehouse.relation(request.ident, VIEW)
    if known is None:
        return {"dropped": False}
    *namespace, name = known[0]
    return {"dropped": request.warehouse.relations(namespace).remove(name)}


@operation(Rename)
def rename_view(request: Rename) -> Reply:
    """Rename a view. Raises InvalidInput where nothing can have the new name."""
    known = request.warehouse.relation(request.ident, VIEW)
    if known is None:
        return {"missing": True}
    to = new_name(request.warehouse, request.to)
    if to is None:
        return {"exists": True}
    return move_relation(request.warehouse, *known, to)
