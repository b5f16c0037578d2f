"""Statements that people type at a shell: their rows, or one sentence about what is wrong."""

from __future__ import annotations

import logging
import re
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from phalanx.errors import PhalanxError

#: Where PySpark logs every error of a query once more, as JSON with the stack of the JVM.
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_CONDITION = re.compile(r"^(?:[\w.]+: )?\[[A-Z_0-9.]+\] ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+(; line \d+,? pos \d+)?;?")


def answer(session: Any, statement: str) -> pa.Table:
    """The rows of a statement. Raises PhalanxError with what Spark says first if it fails."""
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    try:
        rows: pa.Table = session.sql(statement).toArrow()
    except PySparkException as error:
        raise PhalanxError(_sentence(str(error))) from None
    return rows


def _sentence(message: str) -> str:
    """The first line of an error of Spark, without its condition and code; plans follow it."""
    return _SQLSTATE.sub("", _CONDITION.sub("", message.strip().split("\n")[0]))
