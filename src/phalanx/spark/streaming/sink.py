"""What a stream that writes needs beyond a job: the newest version of its table, and rows that fit.

Spark checks the columns of a job against the table, but not those of a stream.
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
from phalanx.table.defaults import Moment
from phalanx.transaction.snapshot import Snapshot


def target(started_with: Handle | Stage, options: Mapping[str, str]) -> Handle:
    """The newest version of a table: the stream itself holds the one that it has started with.

    Raises ConflictError where another table is there now, and InvalidInput for a weak table.
    """
    assert isinstance(started_with, Handle)
    if resolve(TRANSACTION_ID, options) is not None:
        raise InvalidInput(
            "a stream names its transactions itself: leave the option transaction_id out"
        )
    newest = Snapshot.latest(started_with.location)
    newest.refuse_weak("written by a stream")
    if newest.head.table_id != started_with.table:
        raise ConflictError(
            f"the table {started_with.uri} was dropped and made again: start the stream again"
        )
    return Handle.of(newest)


def fitted(struct: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """The columns of a stream, by the names that the table has for them.

    Columns are matched by name, in upper or lower case. Raises InvalidInput for a column that the
    table lacks, or has in a type that cannot hold its values.
    """
    known = {name.lower(): name for name in schema.names}
    fields = [dict(field) for field in struct["fields"]]
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
    ingest.check_columns(pa.schema(columns), schema, Moment.now())
    return {"type": "struct", "fields": fields}
