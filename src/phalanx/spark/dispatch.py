"""The one door from Spark into Python: a request in JSON, a reply in JSON.

A request names an operation and has its arguments. Whatever Phalanx refuses goes back as
`{"error": {"message": …}}`, one sentence for the user; what was not meant to happen goes back
with where it happened.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import traceback
from collections.abc import Callable
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.storage.location import SECRET

log = logging.getLogger("phalanx.spark")

Request = dict[str, Any]
Reply = dict[str, Any]
Operation = Callable[[Request], Reply]

_operations: dict[str, Operation] = {}


def operation(function: Operation) -> Operation:
    """Make a function reachable from Spark, under its own name."""
    _operations[function.__name__] = function
    return function


@operation
def ping(request: Request) -> Reply:
    """Nothing; to be asked keeps a worker alive."""
    return {}


def answer(request: bytes) -> bytes:
    """Carry out one request."""
    arguments = json.loads(request)
    try:
        reply = _operation(arguments.pop("op"))(arguments)
    except Exception as error:
        trace = traceback.format_exc()
        reply = {"error": {"message": sentence(error), "trace": trace}}
        reply = json.loads(_without_secrets(json.dumps(reply), arguments))
    return json.dumps(reply, separators=(",", ":")).encode()


def _operation(name: str) -> Operation:
    """An operation by its name. Modules register theirs; a query that only reads loads fewer."""
    for module in (
        "catalog",
        "planner",
        "aggregates",
        "writer",
        "row_level",
        "streaming.source",
        "procedures.layout",
        "alter",
    ):
        if name in _operations:
            break
        importlib.import_module(f"phalanx.spark.{module}")
    return _operations[name]


def _without_secrets(text: str, value: Any, name: str = "") -> str:
    """A text without the keys and passwords that a request came with."""
    if isinstance(value, dict):
        for key, inner in value.items():
            text = _without_secrets(text, inner, key)
    elif isinstance(value, str) and value and SECRET.search(name):
        text = text.replace(json.dumps(value)[1:-1], "***")
    return text


def sentence(error: Exception) -> str:
    """What the user is told of an error."""
    if isinstance(error, PhalanxError):
        return str(error)
    said = " ".join(str(error).split()) or "no reason given"
    where = traceback.extract_tb(error.__traceback__)[-1]
    file = os.path.basename(where.filename)
    return f"Phalanx failed: {type(error).__name__}: {said} ({file}, line {where.lineno})"


class TaskFailure(Exception):
    """An error of a task. Its text is marked, so that Spark's side finds the sentence in it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"[[phalanx: {sentence(error)}]]")
