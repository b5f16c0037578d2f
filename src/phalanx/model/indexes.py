"""Indexes as a user defines them: one definition for a table, a physical index in each leaf.

A definition is part of the table's head, so a snapshot has the definitions of its time. It names a
column by field id and says which leaves should be indexed. What a leaf really has is known to
`phalanx.storage.leaf_indexes`; rows that no physical index covers are searched without one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput

SCALAR, TEXT, VECTOR = "scalar", "text", "vector"
METRICS = ("l2", "cosine", "dot")
#: The longest name of an index.
_LONGEST_NAME = 128


@dataclass(frozen=True)
class IndexKind:
    """A kind of index: what it is for, and how it is built."""

    name: str
    family: str
    #: Leaves with fewer rows are not indexed: reading them takes no longer.
    min_rows: int
    #: The parameters that it takes, with the types of their values.
    parameters: Mapping[str, type] = field(default_factory=dict)
    #: Whether vectors are compressed with a codebook, which is shared like the centroids.
    has_codebook: bool = False


_IVF = {"metric": str, "num_partitions": int}
_HNSW = {"m": int, "ef_construction": int}
_PQ = {"num_sub_vectors": int}
_INVERTED = {
    "base_tokenizer": str,
    "language": str,
    "with_position": bool,
    "max_token_length": int,
    "lower_case": bool,
    "stem": bool,
    "remove_stop_words": bool,
    "ascii_folding": bool,
}

KINDS = {
    kind.name: kind
    for kind in (
        IndexKind("BTREE", SCALAR, 1_000),
        IndexKind("BITMAP", SCALAR, 1_000),
        IndexKind("ZONEMAP", SCALAR, 1_000),
        IndexKind("BLOOMFILTER", SCALAR, 1_000),
        IndexKind("NGRAM", SCALAR, 1_000),
        IndexKind("LABEL_LIST", SCALAR, 1_000),
        IndexKind("INVERTED", TEXT, 1, _INVERTED),
        IndexKind("IVF_FLAT", VECTOR, 2_000, _IVF),
        IndexKind("IVF_SQ", VECTOR, 2_000, _IVF),
        IndexKind("IVF_PQ", VECTOR, 2_000, _IVF | _PQ, has_codebook=True),
        IndexKind("IVF_RQ", VECTOR, 2_000, _IVF),
        IndexKind("IVF_HNSW_FLAT", VECTOR, 2_000, _IVF | _HNSW),
        IndexKind("IVF_HNSW_SQ", VECTOR, 2_000, _IVF | _HNSW),
        IndexKind("IVF_HNSW_PQ", VECTOR, 2_000, _IVF | _HNSW | _PQ, has_codebook=True),
    )
}


@dataclass(frozen=True)
class IndexDefinition:
    """One index of a table."""

    name: str
    #: The field id of the column.
    column_id: int
    kind: IndexKind
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: A filter that selects the leaves to index, as SQL; None for all, also those yet to come.
    where: str | None = None
    min_rows: int = 1
    #: The folder of the centroids and the codebook that all leaves share; None until there are
    #: rows enough to train them.
    model: str | None = None

    @property
    def family(self) -> str:
        return self.kind.family

    @property
    def metric(self) -> str:
        """The distance that a vector index was built for."""
        return str(self.parameters.get("metric", "l2"))

    def with_model(self, folder: str) -> IndexDefinition:
        return replace(self, model=folder)

    def to_text(self) -> str:
        """The definition without its name, as JSON."""
        values = {
            "column": self.column_id,
            "kind": self.kind.name,
            "parameters": dict(self.parameters),
            "where": self.where,
            "min_rows": self.min_rows,
            "model": self.model,
        }
        return json.dumps({key: value for key, value in values.items() if value is not None})

    @staticmethod
    def from_text(name: str, text: str) -> IndexDefinition:
        """Raises ValueError or KeyError for a text that is not a definition."""
        values = json.loads(text)
        return IndexDefinition(
            name,
            int(values["column"]),
            KINDS[values["kind"]],
            values.get("parameters", {}),
            values.get("where"),
            int(values["min_rows"]),
            values.get("model"),
        )


def define(
    name: str | None,
    column: pa.Field,
    column_id: int,
    kind: str,
    parameters: Mapping[str, Any],
    where: str | None = None,
    min_rows: int | None = None,
) -> IndexDefinition:
    """A definition from what a user says. Raises InvalidInput where it makes no sense."""
    known = KINDS.get(kind.upper()) if isinstance(kind, str) else None
    if known is None:
        raise InvalidInput(f"there is no index of kind {kind!r}: the kinds are {', '.join(KINDS)}")
    name = f"{column.name}_idx" if name is None else name
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        raise InvalidInput(f"the name of an index is a string of 1 to {_LONGEST_NAME} characters")
    _check_column(column, known)
    checked = _checked_parameters(known, parameters)
    if known.family == VECTOR:
        _check_vector_parameters(column, known, checked)
    if min_rows is not None and (
        not isinstance(min_rows, int) or isinstance(min_rows, bool) or min_rows < 1
    ):
        raise InvalidInput(f"min_rows is a whole number from 1, not {min_rows!r}")
    smallest = known.min_rows if min_rows is None else min_rows
    return IndexDefinition(name, column_id, known, checked, where, smallest)


def _check_column(column: pa.Field, kind: IndexKind) -> None:
    type, t = column.type, pa.types
    text = t.is_string(type) or t.is_large_string(type)
    match kind.family, kind.name:
        case ("vector", _):
            fits, wanted = vector_dimension(type) is not None, "a list of fixed size of floats"
        case ("text", _) | (_, "NGRAM"):
            fits, wanted = text, "a string"
        case (_, "LABEL_LIST"):
            fits, wanted = t.is_list(type) or t.is_large_list(type), "a list"
        case _:
            fits, wanted = not t.is_nested(type), "a column that is not nested"
    if not fits:
        raise InvalidInput(
            f"column {column.name!r} is {type}, and an index of kind {kind.name} needs {wanted}"
        )


def vector_dimension(type: pa.DataType) -> int | None:
    """How many numbers a vector has; None for a type that is not a vector's."""
    if pa.types.is_fixed_size_list(type) and pa.types.is_floating(type.value_type):
        return int(type.list_size)
    return None


def _checked_parameters(kind: IndexKind, parameters: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in parameters.items():
        wanted = kind.parameters.get(name)
        if wanted is None:
            takes = ", ".join(kind.parameters) or "none"
            raise InvalidInput(
                f"an index of kind {kind.name} has no parameter {name!r}: it takes {takes}"
            )
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise InvalidInput(f"{name} is of type {wanted.__name__}, not {value!r}")
        if isinstance(value, int) and wanted is int and value < 1:
            raise InvalidInput(f"{name} is at least 1, not {value}")
    return dict(parameters)


def _check_vector_parameters(column: pa.Field, kind: IndexKind, parameters: dict[str, Any]) -> None:
    metric = parameters.get("metric", "l2").lower()
    parameters["metric"] = checked_metric(metric)
    dimension = vector_dimension(column.type)
    assert dimension is not None
    if kind.has_codebook:
        parts = parameters.get("num_sub_vectors", _sub_vectors(dimension))
        if dimension % parts:
            raise InvalidInput(
                f"num_sub_vectors must divide {dimension}, the dimension of {column.name!r}, and "
                f"{parts} does not"
            )
        parameters["num_sub_vectors"] = parts


def checked_metric(metric: str) -> str:
    """A metric as Lance spells it. Raises InvalidInput for another."""
    if not isinstance(metric, str) or metric.lower() not in METRICS:
        raise InvalidInput(f"metric is one of {', '.join(METRICS)}, not {metric!r}")
    return metric.lower()


def _sub_vectors(dimension: int) -> int:
    """Into how many parts a vector is cut by default: of 8 numbers, or of as many as divide it."""
    return next(dimension // size for size in (8, 4, 2, 1) if dimension % size == 0)
