"""The one door from Spark into Python: a request in JSON, a reply in JSON.

A request names an operation and has its arguments. Whatever Phalanx refuses goes back as
`{"error": {"message": …}}`, one sentence for the user; what was not meant to happen goes back
with where it happened.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from typing import Any

from phalanx.errors import PhalanxError

log = logging.getLogger("phalanx.spark")

Request = dict[str, Any]
Reply = dict[str, Any]
Operation = Callable[[Request], Reply]

_operations: dict[str, Operation] = {}


def operation(function: Operation) -> Operation:
    """Make a function reachable from Spark, under its own name."""
    _operations[function.__name__] = function
    return function


def answer(request: bytes) -> bytes:
    """Carry out one request."""
    # These register their operations.
    import phalanx.spark.answers
    import phalanx.spark.catalog
    import phalanx.spark.changes
    import phalanx.spark.planner
    import phalanx.spark.procedures
    import phalanx.spark.writer  # noqa: F401

    try:
        arguments = json.loads(request)
        reply = _operations[arguments.pop("op")](arguments)
    except PhalanxError as error:
        reply = {"error": {"message": str(error), "trace": traceback.format_exc()}}
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        reply = {"error": {"message": f"Phalanx failed: {text}", "trace": traceback.format_exc()}}
    return json.dumps(reply, separators=(",", ":")).encode()
