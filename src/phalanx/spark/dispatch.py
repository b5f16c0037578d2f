"""The one door from Spark into Python: a request in JSON, a reply in JSON.

`OPERATIONS` lists what can be asked. An operation is a function of that name in the module that is
given there; it takes the dataclass of its request. An error of Phalanx goes back as one sentence
for the user with its condition, `{"error": {"message": …, "condition": …, "state": …}}`; an
unexpected one also says where it happened.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from phalanx.errors import (
    ConflictError,
    CorruptTable,
    InvalidInput,
    PhalanxError,
    StorageError,
    TableExists,
    TableNotFound,
    UnsupportedTable,
)
from phalanx.spark.requests import BadRequest, Request, build
from phalanx.storage import lance_errors
from phalanx.storage.object_store import without_secrets

log = logging.getLogger("phalanx.spark")

Reply = dict[str, Any]
R = TypeVar("R", bound=Request)


@dataclass(frozen=True)
class Declared:
    """Where an operation is, and whether it only looks: then it may be repeated."""

    module: str
    looks: bool


#: Every operation. Its module is loaded when it is first asked for: a query that only reads does
#: not load what writes.
OPERATIONS = {
    name: Declared(module, looks)
    for module, looks, names in (
        ("dispatch", True, ("ping", "only_looks")),
        ("catalog", True, ("load_table", "table_exists", "list_tables", "stage_table")),
        ("catalog", True, ("list_namespaces", "load_namespace")),
        ("catalog", False, ("drop_table", "rename_table")),
        ("catalog", False, ("create_namespace", "alter_namespace", "drop_namespace")),
        ("views", True, ("load_relation", "list_views")),
        ("views", False, ("write_view", "drop_view", "rename_view")),
        ("partitions", True, ("list_partitions",)),
        ("partitions", False, ("drop_partitions",)),
        ("alter", True, ("can_widen",)),
        ("alter", False, ("alter_table", "alter_partitioning")),
        ("foreign", True, ("check_read", "foreign_statement")),
        ("planner", True, ("load", "push_filters", "partition_keys", "plan_scan", "scan_tasks")),
        ("column_statistics", True, ("column_statistics",)),
        ("aggregates", True, ("aggregate",)),
        ("writer", True, ("start_write", "can_delete")),
        ("writer", False, ("commit_write", "commit_staged", "delete")),
        ("row_level", True, ("start_changes",)),
        ("row_level", False, ("commit_changes",)),
        ("streaming.source", True, ("start_stream", "next_offset", "stream_tasks")),
        ("procedures.base", True, ("list_procedures",)),
        ("procedures.base", False, ("call_procedure",)),
    )
    for name in names
}

_registered: dict[str, tuple[type[Request], Callable[[Any], Reply]]] = {}


def operation(kind: type[R]) -> Callable[[Callable[[R], Reply]], Callable[[R], Reply]]:
    """Make a function reachable from Spark, under its own name, for requests of a kind."""

    def register(function: Callable[[R], Reply]) -> Callable[[R], Reply]:
        _registered[function.__name__] = kind, function
        return function

    return register


def answer(request: bytes) -> bytes:
    """Carry out one request."""
    arguments = json.loads(request)
    try:
        reply = call(arguments.pop("op"), arguments)
    except Exception as error:
        condition, state = condition_of(error)
        reply = {
            "error": {
                "message": without_secrets(sentence(error), arguments),
                "condition": condition,
                "state": state,
                "trace": without_secrets(traceback.format_exc(), arguments),
            }
        }
    return json.dumps(reply, separators=(",", ":")).encode()


def call(name: str, arguments: dict[str, Any]) -> Reply:
    """Carry out an operation with arguments in JSON. Raises BadRequest where they do not fit it."""
    if name not in OPERATIONS:
        raise BadRequest(f"there is no operation {name!r}")
    if name not in _registered:
        importlib.import_module(f"phalanx.spark.{OPERATIONS[name].module}")
    kind, function = _registered[name]
    return function(build(kind, arguments, name))


@operation(Request)
def ping(request: Request) -> Reply:
    """Do nothing. Being asked keeps a worker alive."""
    return {}


@dataclass(frozen=True, kw_only=True)
class OnlyLooks(Request):
    """Asked after a worker has ended in the middle of an operation."""

    name: str


@operation(OnlyLooks)
def only_looks(request: OnlyLooks) -> Reply:
    """Whether an operation changes nothing, and may be asked again of another worker."""
    known = OPERATIONS.get(request.name)
    return {"looks": known is not None and known.looks}


def sentence(error: Exception) -> str:
    """What the user is told about an error."""
    if isinstance(error, PhalanxError):
        return str(error)
    if isinstance(error, OSError) and lance_errors.is_of_lance(error):
        return str(lance_errors.store_error("the table", error, None))
    reason = " ".join(str(error).split()) or "no reason given"
    where = traceback.extract_tb(error.__traceback__)[-1]
    file = os.path.basename(where.filename)
    return f"Phalanx failed: {type(error).__name__}: {reason} ({file}, line {where.lineno})"


#: Errors by what Spark's users handle them by: a condition and an SQLSTATE.
_CONDITIONS: tuple[tuple[type[Exception], str, str], ...] = (
    (InvalidInput, "PHALANX_INVALID_INPUT", "22023"),
    (TableNotFound, "PHALANX_NOT_FOUND", "42P01"),
    (TableExists, "PHALANX_ALREADY_EXISTS", "42P07"),
    (ConflictError, "PHALANX_CONFLICT", "40001"),
    (UnsupportedTable, "PHALANX_UNSUPPORTED_TABLE", "0A000"),
    (CorruptTable, "PHALANX_CORRUPT_TABLE", "XX001"),
    (StorageError, "PHALANX_STORAGE", "58030"),
    (OSError, "PHALANX_STORAGE", "58030"),
    (PhalanxError, "PHALANX_ERROR", "58000"),
)


def condition_of(error: Exception) -> tuple[str, str]:
    """The condition of an error, and its SQLSTATE."""
    for kind, condition, state in _CONDITIONS:
        if isinstance(error, kind):
            return condition, state
    return "PHALANX_INTERNAL_ERROR", "XX000"


class TaskFailure(Exception):
    """An error of a task. Its text is marked, so that Spark's side finds the sentence in it."""

    def __init__(self, error: Exception) -> None:
        condition, state = condition_of(error)
        super().__init__(f"[[phalanx {condition} {state}: {sentence(error)}]]")
