"""What the vector indexes of all leaves share: centroids, and a codebook for compressed kinds.

They are trained once, over a sample of the whole table. So distances in one leaf can be compared
with those in another, and a new leaf is indexed without training. A model is a Lance dataset of one
row, in a folder of its own in the table's root; the definition of the index names the folder. A
model never changes. Vacuum removes the folder when no snapshot that is kept names it.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.indices import IndicesBuilder

from phalanx.errors import CorruptTable
from phalanx.lru import LruCache
from phalanx.model.indexes import IndexDefinition
from phalanx.storage.lance_errors import LANCE_ERRORS
from phalanx.storage.location import Location

#: How many vectors a codebook distinguishes; fewer rows cannot train one.
CODES = 256
#: Rows of the sample for each centroid, and for each code of a codebook; Lance needs two of them.
PER_CENTROID, PER_CODE = 64, 64
_FEWEST = 2
#: How many numbers of models a process keeps in memory.
_REMEMBERED = 64 * 1024 * 1024
_FOLDER = re.compile(r"__model_[0-9a-f]{32}")
_VECTOR = "vector"


@dataclass(frozen=True)
class IndexModel:
    """Centroids, and the codebook of a compressed kind."""

    centroids: Any
    codebook: Any | None

    @property
    def size(self) -> int:
        return sum(len(part.values) for part in (self.centroids, self.codebook) if part is not None)


def is_model_folder(name: str) -> bool:
    """Whether a folder in a table's root holds a model."""
    return _FOLDER.fullmatch(name) is not None


def least_rows(definition: IndexDefinition) -> int:
    """How many rows are needed to train a model."""
    centroids = int(definition.parameters["num_partitions"])
    return _FEWEST * (max(centroids, CODES) if definition.kind.has_codebook else centroids)


def sample_rows(definition: IndexDefinition) -> int:
    """How many rows a good sample has."""
    centroids = PER_CENTROID * int(definition.parameters["num_partitions"])
    return max(centroids, PER_CODE * CODES) if definition.kind.has_codebook else centroids


def train(location: Location, definition: IndexDefinition, sample: pa.Array) -> str:
    """Train a model on a sample of vectors, none of them NULL; returns the folder it is kept in."""
    table = pa.table({_VECTOR: sample})
    dataset = lance.write_dataset(table, f"memory://phalanx/{uuid.uuid4().hex}")
    builder, metric = IndicesBuilder(dataset, _VECTOR), definition.metric
    partitions = int(definition.parameters["num_partitions"])
    rate = max(_FEWEST, min(PER_CENTROID, len(sample) // partitions))
    ivf = builder.train_ivf(partitions, distance_type=metric, sample_rate=rate)
    columns = {"centroids": _row(ivf.centroids)}
    if definition.kind.has_codebook:
        rate = max(_FEWEST, min(PER_CODE, len(sample) // CODES))
        parts = int(definition.parameters["num_sub_vectors"])
        columns["codebook"] = _row(builder.train_pq(ivf, parts, sample_rate=rate).codebook)
    folder = f"__model_{uuid.uuid4().hex}"
    lance.write_dataset(pa.table(columns), location.child(folder), storage_options=location.options)
    return folder


def _row(array: pa.FixedSizeListArray) -> pa.Array:
    return pa.array([array.to_pylist()], pa.list_(array.type))


_models: LruCache[tuple[str, str], IndexModel] = LruCache(_REMEMBERED, lambda model: model.size)


def load(location: Location, folder: str) -> IndexModel:
    """A model by its folder. Raises CorruptTable if it is missing or damaged."""
    key = (location.uri, folder)
    model = _models.get(key)
    if model is None:
        uri = location.child(folder)
        try:
            row = location.open(uri).to_table()
        except LANCE_ERRORS as error:
            raise CorruptTable(
                f"the model {uri} of an index cannot be read ({location.reason(error)}): drop the "
                "index and create it again"
            ) from None
        parts = {name: _vectors(row.column(name)) for name in row.schema.names}
        model = IndexModel(parts["centroids"], parts.get("codebook"))
        _models.put(key, model)
    return model


def _vectors(column: pa.ChunkedArray) -> pa.FixedSizeListArray:
    vectors = column.combine_chunks().flatten()
    return pa.FixedSizeListArray.from_arrays(vectors.flatten(), vectors.type.list_size)


def default_partitions(rows: int) -> int:
    """How many centroids suit leaves of this many rows."""
    return max(1, round(float(np.sqrt(rows))))
