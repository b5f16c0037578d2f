"""Everything Phalanx uses of Lance beyond its public interface, each with the reason.

| what                               | why                               | ask Lance for          |
|------------------------------------|-----------------------------------|------------------------|
| fields of a pickled `LanceSchema`  | a leaf has the table's field ids  | a schema with given ids|
| `_Session`                         | one metadata cache for all leaves | a public `Session`     |
| `serialized_manifest` of a dataset | many small leaves read as one,    | a dataset of fragments |
|                                    | and created as copies of one      | a copy of a dataset    |
| `_take_rows`                       | columns of rows by their ids      | a public `take_rows`   |
| `_path` of a `DataFile`            | its `path` makes a class each     | a plain property       |
|                                    | time that it is asked for         |                        |
| the file of a version              | many new leaves have their first  | a commit to many       |
|                                    | rows in versions that are alike   | datasets               |
| files of a full-text index         | table-wide scores need the number | statistics of an index,|
|                                    | of words in a leaf                | or scores with given   |
| codes of an IVF_PQ index           | many leaves are searched as one   | a search of many       |
|                                    |                                   | datasets, or 0.1 ms for|
|                                    |                                   | one                    |

This is why pylance is pinned to its major version.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance import DatasetBasePath, LanceOperation
from lance.file import LanceFileReader
from lance.fragment import DataFile, FragmentMetadata
from lance.lance import _Session
from lance.schema import LanceSchema

from phalanx.storage.protobuf import Message, numbers, parse, spell

#: The members of Lance's `Field` message: its id, and its parent's (-1 for none).
_ID, _PARENT = 3, 4
_NONE = 2**64 - 1
#: The member of Lance's `IVF` message that says where partitions begin.
_IVF_OFFSETS = 2


def new_session(index_bytes: int, metadata_bytes: int | None = None) -> Any:
    """A cache of metadata and open indexes, shared by the datasets that are opened with it."""
    return _Session(index_cache_size_bytes=index_bytes, metadata_cache_size_bytes=metadata_bytes)


def manifest_of(
    uri: str,
    schema: LanceSchema,
    fragments: Sequence[FragmentMetadata],
    bases: Sequence[DatasetBasePath],
    options: dict[str, str] | None,
) -> bytes:
    """The manifest of an in-memory dataset whose data files are in other datasets."""
    dataset = lance.LanceDataset.commit(
        uri,
        LanceOperation.Overwrite(schema, list(fragments), list(bases)),
        storage_options=options,
    )
    return first_manifest(dataset)


def manifest_without_rows(schema: LanceSchema) -> tuple[bytes, int]:
    """The manifest, and the version, of a dataset without rows that has this schema and its ids."""
    uri = f"memory://phalanx/{uuid.uuid4().hex}"
    dataset = lance.LanceDataset.commit(uri, LanceOperation.Overwrite(schema, []))
    if dataset.lance_schema != schema:  # a first version numbers its fields from 0
        dataset = lance.LanceDataset.commit(
            dataset, LanceOperation.Overwrite(schema, []), read_version=dataset.version
        )
    return first_manifest(dataset), int(dataset.version)


def first_manifest(dataset: Any) -> bytes:
    """The manifest of a dataset that has just been created."""
    return bytes(dataset._ds.serialized_manifest())


def open_manifest(
    uri: str, manifest: bytes, options: dict[str, str] | None, session: Any, version: int = 1
) -> lance.LanceDataset:
    """Open a version of a dataset by its manifest, without reading anything."""
    return lance.LanceDataset(
        uri, version=version, serialized_manifest=manifest, storage_options=options, session=session
    )


def data_path(file: DataFile) -> str:
    """The path of a data file, relative to the folder of data."""
    return file._path


def take_rows(dataset: Any, ids: Any, columns: Sequence[str]) -> pa.Table:
    """Columns of some rows by their row ids, in that order."""
    return dataset._take_rows(pa.array(ids), columns=list(columns))


def with_ids(schema: LanceSchema, ids: Mapping[int, int]) -> LanceSchema:
    """The schema with every field id replaced by the one that `ids` maps it to."""
    pickled: Any = schema.__reduce__()
    metadata, *fields = pickled[1]
    renumbered = []
    for raw in fields:
        message = parse(bytes(raw))
        parent = _get(message, _PARENT)
        message = _put(message, _ID, ids[_get(message, _ID)])
        message = _put(message, _PARENT, parent if parent == _NONE else ids[parent])
        renumbered.append(spell(message))
    return LanceSchema._from_protos(metadata, *renumbered)


def _get(message: Message, number: int) -> int:
    return next((value for member, _, value in message if member == number), 0)


def _put(message: Message, number: int, value: int) -> Message:
    kept = [part for part in message if part[0] != number]
    return sorted([*kept, (number, 0, value)], key=lambda part: part[0])


def text_index_lengths(
    dataset: str, segment: str, options: dict[str, str] | None
) -> tuple[int, int, Callable[[], tuple[Any, Any]]]:
    """Of a segment of a full-text index: its rows, their words, and a function for each row's.

    That function returns the ids of the rows, and how many words each of them has.
    """
    folder = f"{dataset}/_indices/{segment}"

    def read(name: str) -> LanceFileReader:
        return LanceFileReader(f"{folder}/{name}", storage_options=options)

    described = read("metadata.lance").metadata().schema.metadata
    files = [read(f"part_{part}_docs.lance") for part in json.loads(described[b"partitions"])]
    words = sum(int(file.metadata().schema.metadata[b"total_tokens"]) for file in files)

    def lengths() -> tuple[Any, Any]:
        table = pa.concat_tables([file.read_all().to_table() for file in files])
        return table.column("_rowid").to_numpy(), table.column("_num_tokens").to_numpy()

    return sum(file.num_rows() for file in files), words, lengths


def pq_codes(
    dataset: str, segment: str, options: dict[str, str] | None
) -> tuple[Any, Any, Any] | None:
    """Of a segment of an IVF_PQ index: row ids, codes, and where each partition begins.

    Rows are sorted by partition, and a row of the codes is the code of a row. None if the file has
    another layout than we know.
    """
    file = LanceFileReader(f"{dataset}/_indices/{segment}/auxiliary.idx", storage_options=options)
    metadata = file.metadata().schema.metadata or {}
    stored = json.loads(json.loads(metadata.get(b"storage_metadata", b'["{}"]'))[0])
    if stored.get("nbits") != 8 or stored.get("transposed") is not True:
        return None
    table = file.read_all().to_table()
    if table.schema.names != ["_rowid", "__pq_code"]:
        return None
    members = {number: value for number, _, value in parse(bytes(file.read_global_buffer(1)))}
    starts = np.array([*numbers(members[_IVF_OFFSETS]), table.num_rows], np.int64)
    flat = table.column("__pq_code").combine_chunks().flatten().to_numpy()
    width = int(stored["num_sub_vectors"])
    codes = np.empty((table.num_rows, width), np.uint8)
    for low, high in pairwise(starts.tolist()):
        # Within a partition, the first byte of all codes comes first, then the second one.
        part = flat[low * width : high * width]
        codes[low:high] = part.reshape(width, high - low).T
    return table.column("_rowid").to_numpy(), codes, starts
