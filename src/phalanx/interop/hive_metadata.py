"""The properties `lance.partitioning.*` that make a namespace a partitioned table.

| property            | value                                                                     |
|---------------------|---------------------------------------------------------------------------|
| `is_partitioned`    | `true`                                                                    |
| `partition_columns` | a JSON array, an object for each field: `name` (a column of the schema),  |
|                     | `function` (`identity` if it is missing), `properties`                    |
| `schema`            | the columns of the table, in Arrow's JSON                                 |

Numbers in `properties` are written as text, as in the example of the document:
`{"num_buckets": "100"}`. Plain numbers are read as well, and so is `truncate(4)` as a function.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phalanx.errors import UnsupportedTable
from phalanx.model import ipcjson, jsonarrow
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionField, PartitionSpec
from phalanx.model.transforms import FloorTruncate, Identity, ModBucket

PREFIX = "lance.partitioning."
IS_PARTITIONED = f"{PREFIX}is_partitioned"
PARTITION_COLUMNS = f"{PREFIX}partition_columns"
SCHEMA = f"{PREFIX}schema"

_FUNCTION = re.compile(r"(\w+)\s*\(\s*(\d+)\s*\)")


@dataclass(frozen=True)
class NamespaceProperties:
    """What the properties of a namespace say."""

    #: The partition fields as entries of `partition_by`: `bucket(16, id)`.
    partition_by: tuple[str, ...]
    schema: pa.Schema | None


def metadata_of(schema: TableSchema, spec: PartitionSpec) -> dict[str, str]:
    """The properties of a table."""
    columns = [_column(field, schema) for field in spec.fields]
    return {
        IS_PARTITIONED: "true",
        PARTITION_COLUMNS: json.dumps(columns, ensure_ascii=False),
        SCHEMA: ipcjson.dumps(schema.arrow),
    }


def _column(field: PartitionField, schema: TableSchema) -> dict[str, Any]:
    (column,) = field.sources(schema)
    assert column is not None, field
    transform, properties = field.transform, {}
    function = transform.kind
    match transform:
        case ModBucket(num_buckets=number):
            function, properties = "bucket", {"num_buckets": str(number)}
        case FloorTruncate(width=width):
            function, properties = "truncate", {"width": str(width)}
    value = {"name": column.path[0], "function": function}
    return value if isinstance(transform, Identity) else {**value, "properties": properties}


def read_metadata(metadata: Mapping[str, str], uri: str) -> NamespaceProperties | None:
    """What a namespace declares; None if it is no partitioned table of this kind.

    Raises UnsupportedTable for properties that cannot be read.
    """
    if metadata.get(IS_PARTITIONED, "").lower() != "true":
        return None
    try:
        columns = json.loads(metadata[PARTITION_COLUMNS])
        entries = tuple(_entry(column) for column in columns)
        schema = _schema(metadata[SCHEMA]) if metadata.get(SCHEMA) else None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnsupportedTable(
            f"the namespace {uri} is partitioned, but its properties {PREFIX}* cannot be read: "
            f"{error}"
        ) from None
    return NamespaceProperties(entries, schema)


def _schema(text: str) -> pa.Schema:
    value = json.loads(text)
    fields = value.get("fields") or [{}]
    # The JSON of Lance namespaces calls a type {"type": "int64"}, Arrow's {"name": "int", …}.
    if isinstance(fields[0].get("type"), Mapping) and "type" in fields[0]["type"]:
        return jsonarrow.schema_from_json(value)
    return ipcjson.loads(text)


def _entry(column: Mapping[str, Any]) -> str:
    name = column["name"]
    if not isinstance(name, str) or not name:
        raise ValueError(f"a partition column cannot be called {name!r}")
    function = str(column.get("function") or "identity").strip()
    properties = column.get("properties") or {}
    match = _FUNCTION.fullmatch(function)
    number = None
    if match is not None:
        function, number = match[1], match[2]
    quoted = '"' + name.replace('"', '""') + '"'
    match function:
        case "bucket":
            return f"bucket({number or _whole(properties['num_buckets'])}, {quoted})"
        case "truncate":
            return f"truncate({number or _whole(properties['width'])}, {quoted})"
        case "identity" | "year" | "month" | "day" | "hour" | "hash":
            return f"{function}({quoted})"
    raise ValueError(f"there is no partition function {function!r}")


def _whole(value: Any) -> int:
    """A number that is written plainly or as text. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)
