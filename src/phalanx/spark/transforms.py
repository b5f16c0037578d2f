"""Spark's partition transforms as entries of `partition_by`, and specs as Spark's transforms.

The fields year, month, day and hour of one column, one after the other, are one transform in
Spark: `days(ts)` is the fields year, month and day.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from phalanx.errors import InvalidInput
from phalanx.model.calendar import PLURALS, UNITS
from phalanx.model.paths import join_path
from phalanx.model.predicates import Column
from phalanx.model.pruning import PartitionColumn
from phalanx.model.schema import TableSchema
from phalanx.model.specs import CustomField, PartitionField, PartitionSpec, expr
from phalanx.model.transforms import (
    Bucket,
    Expression,
    FloorTruncate,
    Hash,
    Identity,
    ModBucket,
    MultiBucket,
    Truncate,
    common_unit,
)
from phalanx.spark.types import SparkType, spark_type

#: Functions of one column of times, as Spark's SQL names them.
_TIMES = (*PLURALS, *UNITS)


#: What Spark makes of clauses that no table of ours has, and what to write instead.
_CLUSTERING = {
    "cluster_by": "a table has no CLUSTER BY: leave it out, or PARTITIONED BY (bucket(N, c))",
    "sorted_bucket": "a table has no SORTED BY: leave it out, or PARTITIONED BY (bucket(N, c))",
}

#: A partition transform in JSON: its name, and columns or constants as arguments.
SparkTransform = Mapping[str, Any]


def entry_of(transform: SparkTransform) -> str | CustomField:
    """What a transform of Spark is in `partition_by`. Raises InvalidInput for an unknown one."""
    name = transform["name"].lower()
    columns = [arg["column"] for arg in transform["args"] if "column" in arg]
    constants = [arg["value"] for arg in transform["args"] if "column" not in arg]
    if name == "expr":
        if len(constants) != 2 or not columns:
            raise InvalidInput(
                "expr takes a name, an expression and its columns: "
                "expr('week', \"date_trunc('week', col0)\", ts)"
            )
        return expr(str(constants[1]), [join_path(column) for column in columns], str(constants[0]))
    names = [".".join(_quoted(part) for part in column) for column in columns]
    if name == "identity":
        (column,) = columns
        return names[0] if len(column) > 1 or join_path(column) != column[0] else str(column[0])
    if name in ("bucket", "multi_bucket", "truncate"):
        kind = "multi_bucket" if name == "bucket" and len(names) > 1 else name
        return f"{kind}({', '.join([*map(str, constants), *names])})"
    if name in (*_TIMES, "hash") and len(names) == 1 and not constants:
        return f"{name}({names[0]})"
    if name in _CLUSTERING:
        raise InvalidInput(_CLUSTERING[name])
    raise InvalidInput(
        f"cannot partition by {name}(…): write a column, {', '.join(_TIMES[:-1])} or {_TIMES[-1]} "
        "of one, bucket(N, c), multi_bucket(N, a, b), truncate(W, c) or expr('name', 'sql', c)"
    )


def _quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`"


@dataclass(frozen=True)
class Reported:
    """A transform as Spark knows it, made of one field or of several."""

    name: str
    fields: tuple[PartitionField, ...]
    #: Columns by path, and constants.
    args: tuple[Any, ...]
    type: SparkType
    #: Whether Spark has a function that computes the same values.
    has_twin: bool = True

    @property
    def sources(self) -> list[tuple[str, ...]]:
        return [arg for arg in self.args if isinstance(arg, tuple)]

    @property
    def can_be_computed(self) -> bool:
        """Whether Spark can compute it too, and so cluster and join by it."""
        return self.name != "expr" and self.has_twin

    @property
    def can_be_a_key(self) -> bool:
        """Whether Spark can join by it: it takes transforms of exactly one column."""
        return self.can_be_computed and len(self.sources) == 1

    def coarsened(self, wanted: SparkTransform) -> Reported | None:
        """This transform, or the coarser one that is wanted; None if that one is another."""
        if wanted == self.to_key():
            return self
        if [self.sources[0]] != [tuple(a["column"]) for a in wanted["args"] if "column" in a]:
            return None
        unit, own = PLURALS.get(wanted["name"]), PLURALS.get(self.name)
        if unit is not None and own is not None and len(unit.hierarchy) < len(own.hierarchy):
            return replace(self, name=unit.plural, fields=self.fields[: len(unit.hierarchy)])
        if self.name == wanted["name"] == "bucket":
            number = wanted["args"][0]["value"]
            if self.args[0] % number == 0:
                return replace(self, args=(number, *self.args[1:]))
        return None

    def codes(self, column: PartitionColumn) -> Any:
        """A number for each leaf by its value in a column of one of the fields; -1 for NULL."""
        if self.name != "bucket":
            return column.codes
        values = np.append(np.asarray(column.values, np.int64) % self.args[0], -1)
        return values[column.codes]

    def to_key(self) -> dict[str, Any]:
        """As a key of a scan, for which Spark takes no constant but the number of buckets."""
        if self.name != "truncate":
            return self.to_json()
        return {"name": f"truncate_{self.args[0]}", "args": [{"column": list(self.args[1])}]}

    def to_json(self) -> dict[str, Any]:
        args = [
            {"column": list(arg)} if isinstance(arg, tuple) else {"value": arg} for arg in self.args
        ]
        return {"name": self.name, "args": args}

    def key(self, values: Sequence[Any]) -> Any:
        """The value of the transform where these are the values of its fields."""
        if None in values:
            return None
        if self.name == "bucket":  # fewer buckets than the field has, if it was coarsened
            return values[0] % self.args[0]
        unit = PLURALS.get(self.name)
        return values[0] if unit is None else unit.number(*values)


def chosen(fields: Sequence[Reported], wanted: Sequence[SparkTransform]) -> list[Reported]:
    """The keys that are wanted, some of them coarser than the fields; none if one is not there."""
    keys = [
        next((key for field in fields if (key := field.coarsened(one)) is not None), None)
        for one in wanted
    ]
    return [key for key in keys if key is not None] if None not in keys else []


def reported(spec: PartitionSpec, schema: TableSchema) -> list[Reported]:
    """The transforms of a spec. Fields of a dropped column are left out."""
    transforms: list[Reported] = []
    fields = list(spec.fields)
    while fields:
        together = _hierarchy(fields)
        sources = [column for column in fields[0].sources(schema) if column is not None]
        if len(sources) == len(fields[0].source_ids):
            transforms.append(_reported(together, sources))
        del fields[: len(together)]
    return transforms


def _hierarchy(fields: Sequence[PartitionField]) -> Sequence[PartitionField]:
    """The fields from the first on that are year, month, … of one column; the first if none are."""
    of_one_column = itertools.takewhile(lambda f: f.source_ids == fields[0].source_ids, fields)
    unit = common_unit(field.transform for field in of_one_column)
    return fields[: 1 if unit is None else len(unit.hierarchy)]


def _reported(fields: Sequence[PartitionField], sources: Sequence[Column]) -> Reported:
    paths = tuple(column.path for column in sources)
    unit = common_unit(field.transform for field in fields)
    if unit is not None:
        return Reported(unit.plural, tuple(fields), paths, "integer")
    (field,) = fields
    transform, result = field.transform, field.result_type
    if isinstance(transform, Identity | Truncate):
        # The field's own is wider where a column was widened and that was rolled back.
        result = sources[0].type
    type = spark_type(result, field.field_id)
    match transform:
        case Identity():
            return Reported("identity", (field,), paths, type)
        case Bucket(num_buckets=number):
            return Reported("bucket", (field,), (number, *paths), "integer")
        case MultiBucket(num_buckets=number):
            return Reported("multi_bucket", (field,), (number, *paths), "integer")
        case Truncate(width=width):
            return Reported("truncate", (field,), (width, *paths), type)
        case ModBucket(num_buckets=number):
            return Reported("bucket", (field,), (number, *paths), "integer", has_twin=False)
        case FloorTruncate(width=width):
            return Reported("truncate", (field,), (width, *paths), type, has_twin=False)
        case Hash():
            return Reported("hash", (field,), paths, "string", has_twin=False)
        case Expression(sql=sql):
            return Reported("expr", (field,), (field.field_id, sql, *paths), type)
    is_known = transform.kind in UNITS
    return Reported(transform.kind, (field,), paths, type, has_twin=is_known)


def types_of(fields: Sequence[Reported]) -> list[str]:
    """The types of the keys, as Spark reads them."""
    return [json.dumps(field.type) for field in fields]
