"""Words of neighbors: what others call a method or an argument, and what it is called here.

Somebody who comes from Lance, Iceberg, Delta Lake or pandas types the word they know. The error
that follows names ours. It is the class that Python raises anyway, so that `hasattr` and the checks
of other libraries work as always.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from phalanx.errors import InvalidInput

T = TypeVar("T")
P = ParamSpec("P")

_OPEN = "phalanx.open(uri, version=…)"
#: Attributes that others give their tables, and how the same is written here.
_ATTRIBUTES = {
    "add": "append(data)",
    "add_columns": "add_column(name, type), once for each",
    "alter_columns": "rename_column, change_type or make_nullable",
    "as_of": _OPEN,
    "checkout": _OPEN,
    "checkout_version": _OPEN,
    "cleanup_old_versions": "vacuum()",
    "collect": "to_arrow()",
    "compact": "optimize()",
    "compact_files": "optimize()",
    "create_scalar_index": "create_index(column, kind)",
    "create_fts_index": 'create_index(column, "INVERTED")',
    "current_snapshot": "version, or snapshots()",
    "describe": "schema, or partitions()",
    "drop_columns": "drop_column(name), once for each",
    "dtypes": "schema",
    "explain": "scan(where=…).explain()",
    "expire": "expire_snapshots()",
    "get_add_actions": "files()",
    "insert": "append(data)",
    "inspect": "partitions(), snapshots() or files()",
    "limit": "scan(limit=…)",
    "list_indices": "indexes()",
    "list_versions": "snapshots()",
    "load_as_version": _OPEN,
    "merge_insert": "merge(data, on=…)",
    "metadata": "properties, or describe_column",
    "num_rows": "count()",
    "partition_spec": "spec",
    "plan": "scan(where=…).plan()",
    "query": "scan(where=…)",
    "read": "scan(columns=…, where=…)",
    "restore": "rollback(version)",
    "sample": "scan().sample(n)",
    "scan_as_of": _OPEN,
    "select": "scan(columns=…)",
    "shape": "count() and columns",
    "show": "head()",
    "sql": "duckdb.sql, or scan(where=…)",
    "to_arrow_table": "to_arrow()",
    "to_df": "to_pandas()",
    "to_duckdb": "duckdb.from_arrow(table)",
    "to_lance": "scan().plan().leaves, which name each dataset",
    "to_pyarrow_dataset": "the table itself, which is a pyarrow Dataset",
    "to_pyarrow_table": "to_arrow()",
    "truncate": 'delete("TRUE")',
    "update_schema": "add_column, drop_column, rename_column or change_type",
    "update_spec": "evolve_partitioning(partition_by)",
    "versions": "snapshots()",
    "where": "scan(where=…)",
    "write": "append(data) or overwrite(data)",
    "z_order": "optimize(zorder_by=…)",
}
#: What pyarrow's datasets can do and tables cannot, and what to write instead.
REFUSED = {
    "join": "to_arrow().join(…), or SQL in DuckDB, which reads the table by its Python name",
    "join_asof": "to_arrow().join_asof(…)",
    "replace_schema": "add_column, drop_column, rename_column or change_type",
    "sort_by": "to_arrow().sort_by(…) for a result, optimize(sort_by=…) for the files",
    "take": "to_arrow().take(…), or scan(where=…) for rows by their values",
}
#: Functions of other libraries that open or make a table.
_FUNCTIONS = {
    "connect": "open(uri)",
    "create_table": "create(uri, schema, partition_by=…)",
    "dataset": "open(uri)",
    "DeltaTable": "open(uri)",
    "load": "open(uri)",
    "load_table": "open(uri)",
    "open_table": "open(uri)",
    "read": "open(uri)",
    "read_table": "open(uri)",
    "table_exists": "exists(uri)",
    "write": "create(uri, data) or open(uri).append(data)",
    "write_dataset": "create(uri, data) or open(uri).append(data)",
    "write_deltalake": "create(uri, data) or open(uri).append(data)",
    "write_table": "create(uri, data) or open(uri).append(data)",
}

_WHERE = dict.fromkeys(("filter", "filters", "predicate", "row_filter", "condition"), "where=…")
_COLUMNS = dict.fromkeys(("select", "selected_fields", "projection", "fields"), "columns=…")
_VERSION = dict.fromkeys(
    ("as_of", "snapshot_id", "tag", "timestamp", "version_as_of", "timestamp_as_of"), "version=…"
)
_TRAVEL = dict.fromkeys((*_VERSION, "version"), _OPEN)
_PARTITION_BY = dict.fromkeys(
    ("partition_cols", "partition_columns", "partition_spec", "partitioning", "partitions"),
    "partition_by=…",
)
_ROWS = {
    **dict.fromkeys(("mergeSchema", "schema_mode"), "merge_schema=True"),
    "partition_by": "create or evolve_partitioning: a table has one partitioning for all writers",
}
#: Arguments that others know, by the call that somebody tries them with.
_ARGUMENTS: dict[str, Mapping[str, str]] = {
    "create": {
        "data": "the second argument, which takes a schema or rows",
        "mode": "phalanx.exists(uri) to see whether it is there, and open(uri).overwrite(data)",
        "exist_ok": "phalanx.exists(uri)",
        **_PARTITION_BY,
    },
    "open": _VERSION,
    "scan": {**_WHERE, **_COLUMNS, **_TRAVEL, "offset": "to_arrow().slice(…)"},
    "count": {**_WHERE, **_TRAVEL},
    "append": {"mode": "overwrite(data) to replace rows", **_ROWS},
    "overwrite": {**_WHERE, **_ROWS},
    "delete": _WHERE,
    "update": {**_WHERE, "updates": "values=…", "set": "values=…"},
    "merge": dict.fromkeys(("key", "keys", "join_cols", "predicate"), "on=…"),
    "search": {
        **_WHERE,
        **_COLUMNS,
        "query": "vector=… or text=…",
        **dict.fromkeys(("limit", "n", "top_k"), "k=…"),
    },
    "vacuum": dict.fromkeys(("retention_hours", "retain", "retention"), "older_than=…"),
    "optimize": {**_WHERE, "z_order": "zorder_by=…", "target_size": "target_bytes=…"},
}


def unknown_attribute(name: str) -> AttributeError:
    """The error for an attribute that a table does not have."""
    if name in _ATTRIBUTES:
        return AttributeError(f"a table has no {name}: use {_ATTRIBUTES[name]}", name=name)
    return AttributeError(f"'Table' object has no attribute {name!r}", name=name)


def unknown_function(name: str) -> AttributeError:
    """The error for a name that the package does not have."""
    if name in _FUNCTIONS:
        return AttributeError(f"phalanx has no {name}: use phalanx.{_FUNCTIONS[name]}", name=name)
    return AttributeError(f"module 'phalanx' has no attribute {name!r}", name=name)


def naming_arguments(call: Callable[P, T]) -> Callable[P, T]:
    """A call that raises TypeError with our word for an argument that others call differently."""
    words = _ARGUMENTS[call.__name__]

    @functools.wraps(call)
    def run(*arguments: P.args, **options: P.kwargs) -> T:
        for name in options:
            if name in words:
                raise TypeError(f"{call.__name__}() has no argument {name!r}: use {words[name]}")
        return call(*arguments, **options)

    return run


def refusing(name: str) -> Any:
    """A method of pyarrow's datasets that raises InvalidInput and says what to write instead."""

    def refuse(self: Any, *arguments: Any, **options: Any) -> Any:
        raise InvalidInput(f"a table has no {name} of its own: use {REFUSED[name]}")

    refuse.__name__ = name
    return refuse
