"""What a stream that writes needs beyond a job: its table as it is now, and rows that fit it.

Spark checks the columns of a job against the table, and does not check those of a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from phalanx.errors import ConflictError, InvalidInput
from phalanx.spark.conf import TRANSACTION_ID, resolve
from phalanx.spark.handles import Handle
from phalanx.spark.staging import Stage
from phalanx.spark.types import exchange_type, spark_schema
from phalanx.table import ingest
from phalanx.transaction.snapshot import Snapshot


def target(given: Handle | Stage, options: Mapping[str, str]) -> Handle:
    """The table at its newest version: a stream holds the one that it has started with.

    Raises ConflictError where that is another table by now, InvalidInput for a weak table.
    """
    assert isinstance(given, Handle)
    if resolve(TRANSACTION_ID, options) is not None:
        raise InvalidInput(
            "a stream names its transactions itself: leave the option transaction_id out"
        )
    newest = Snapshot.latest(given.location)
    newest.refuse_weak("written by a stream")
    if newest.head.table_id != given.table:
        raise ConflictError(
            f"the table {given.uri} was dropped and made again: start the stream anew"
        )
    return Handle.of(newest)


def fitted(given: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """The columns of a stream, called what the table calls them.

    Columns are told by their names. Those that the stream lacks become NULL. Raises InvalidInput
    for a column that the table does not have, or has in a type that does not hold its values.
    """
    known = {name.lower(): name for name in schema.names}
    fields = [dict(field) for field in given["fields"]]
    for field in fields:
        if field["name"] not in schema.names:
            field["name"] = known.get(field["name"].lower(), field["name"])
    types = {field["name"]: field["type"] for field in spark_schema(schema)["fields"]}
    columns = []
    for field in fields:
        name, type = field["name"], exchange_type(field["type"])
        if name in types and type == exchange_type(types[name]):
            type = schema.field(name).type
        columns.append(pa.field(name, type))
    ingest.check_columns(pa.schema(columns), schema)
    return {"type": "struct", "fields": fields}
