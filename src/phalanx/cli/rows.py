"""Rows on the screen: a table for people, or a JSON array that is written as rows arrive."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from phalanx.cli.output import emit, grid, note
from phalanx.table.cells import json_value, rows_of

#: How many rows people are shown if they do not say.
SHOWN = 100


def show_rows(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, as_json: bool, limit: int | None = None
) -> None:
    """Print rows.

    Without a `limit`, people see the first of them and are told so, and machines get all. The
    reader may stop before the end, as `head` does.
    """
    rows = (row for batch in batches for row in rows_of(batch))
    try:
        if as_json:
            _print_json(rows)
        else:
            _print_grid(rows, schema, SHOWN if limit is None else None)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_json(rows: Iterator[dict[str, Any]]) -> None:
    print("[", end="")
    for number, row in enumerate(rows):
        text = json.dumps(json_value(row), ensure_ascii=False)
        print(",\n " if number else "\n ", text, sep="", end="")
    print("\n]", flush=True)


def _print_grid(rows: Iterator[dict[str, Any]], schema: pa.Schema, most: int | None) -> None:
    shown = list(rows if most is None else itertools.islice(rows, most))
    numbers = [field.name for field in schema if _is_number(field.type)]
    emit(grid(schema.names, (row.values() for row in shown), numbers))
    if most is not None and next(rows, None) is not None:
        note(f"the first {most} rows: give --limit for more, or --json for all")


def _is_number(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type)
    )
