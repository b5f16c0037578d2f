"""Where rows come from: files, frames, dicts and iterators, as something that `ingest` reads."""

from __future__ import annotations

import datetime as dt
import glob
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyarrow.dataset import Dataset, dataset

from phalanx.errors import InvalidInput

#: How long Google Cloud Storage is asked for a file.
_GOOGLE_PATIENCE = dt.timedelta(seconds=20)
#: File formats by the ending of a file's name.
_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".ipc": "ipc",
    ".feather": "ipc",
    ".orc": "orc",
}


def rows_of(data: Any) -> Any:
    """Whatever holds rows, as an Arrow object, a data frame or a list of dicts.

    A path or a glob of files becomes a pyarrow Dataset, a dict of columns or one row as a dict a
    list of dicts, a lazy frame is collected, and an iterator becomes a stream of its batches. The
    named index of a pandas DataFrame becomes a column. Anything else is returned as it is. Raises
    InvalidInput for files that are missing or unknown.
    """
    if is_pandas(data):
        return _with_index(data)
    if isinstance(data, str | os.PathLike):
        return _files(os.fspath(data))
    if isinstance(data, Mapping):
        return _from_dict(data)
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        return data.collect()
    if isinstance(data, Iterator):
        return _from_iterator(data)
    if isinstance(data, list | tuple) and data and not isinstance(data[0], dict):
        return _from_iterator(iter(data))
    return data


def is_pandas(data: Any) -> bool:
    """Whether rows are a pandas DataFrame. Does not import pandas."""
    return "pandas" in sys.modules and isinstance(data, sys.modules["pandas"].DataFrame)


def is_file(text: str) -> bool:
    """Whether a text names files of a format that rows are read from, by its ending."""
    return " " not in text and os.path.splitext(text)[1].lower() in _FORMATS


def _with_index(frame: Any) -> Any:
    """A pandas DataFrame with its named index levels as the last columns, as pyarrow has them.

    Levels without a name only number the rows, and are left out. Raises InvalidInput if a name is
    taken.
    """
    levels = [level for level, name in enumerate(frame.index.names) if name is not None]
    names = [frame.index.names[level] for level in levels]
    for name in names:
        if name in frame.columns or names.count(name) > 1:
            raise InvalidInput(
                f"{name!r} is the name of an index level and of another level or column: give one "
                "of them another name, or drop the index with reset_index(drop=True)"
            )
    if not levels:
        return frame
    columns = list(frame.columns)
    return frame.reset_index(level=levels)[[*columns, *names]]


def _files(path: str) -> Dataset:
    if "://" in path:
        paths: list[str] | str = path
        names = [path]
    else:
        names = sorted(glob.glob(path, recursive=True)) or [path]
        paths = names
    formats = {_FORMATS.get(os.path.splitext(name)[1].lower()) for name in names}
    missing = [name for name in names if "://" not in name and not os.path.exists(name)]
    if missing:
        raise InvalidInput(f"there is no file {missing[0]}")
    if len(formats) > 1 or None in formats:
        known = ", ".join(_FORMATS)
        raise InvalidInput(
            f"cannot tell the format of {path}: files end in one of {known}; a folder of Parquet "
            "files is read with phalanx.interop.parquet.import_, or as a pyarrow dataset"
        )
    try:
        if path.startswith("gs://"):
            from pyarrow.fs import GcsFileSystem  # not every build of pyarrow has it

            # By default it looks for credentials for a quarter of an hour.
            store = GcsFileSystem(retry_time_limit=_GOOGLE_PATIENCE)
            return dataset(path.removeprefix("gs://"), filesystem=store, format=formats.pop())
        return dataset(paths, format=formats.pop())
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        array = next((name for name in names if _is_json_array(name)), None)
        if array is not None:
            raise InvalidInput(
                f"{array} is one JSON array: write one object per line, for example with "
                f"jq -c '.[]' {array}"
            ) from None
        raise InvalidInput(f"cannot read {path}: {error}") from None


def _is_json_array(path: str) -> bool:
    if _FORMATS.get(os.path.splitext(path)[1].lower()) != "json" or not os.path.isfile(path):
        return False
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(1024).lstrip("\ufeff \t\r\n").startswith("[")


def _from_dict(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A dict of columns, or one row, as a list of rows."""
    columns = {name: _values(value) for name, value in data.items()}
    if data and all(values is None for values in columns.values()):
        return [dict(data)]
    lengths = {name: len(values) for name, values in columns.items() if values is not None}
    if len(lengths) < len(columns) or len(set(lengths.values())) > 1:
        raise InvalidInput(
            "a dict of rows holds columns, each a list of the same length; for one row write [{…}]"
        )
    names = list(columns)
    values = [column for column in columns.values() if column is not None]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _values(value: Any) -> list[Any] | None:
    """The values of a column; None if it is a single value."""
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__len__"):
        return None
    if isinstance(value, pa.Array | pa.ChunkedArray):
        values: list[Any] = value.to_pylist()
        return values
    return list(value)


def _from_iterator(parts: Iterator[Any]) -> Any:
    """An iterator of dicts, or of batches, tables or frames, which is read as a stream."""
    first = next(parts, None)
    if first is None:
        return []
    whole = itertools.chain([first], parts)
    if isinstance(first, dict):
        return list(whole)
    if not hasattr(first, "__arrow_c_stream__") and not hasattr(first, "__arrow_c_array__"):
        raise InvalidInput(
            f"cannot read rows from an iterator of {type(first).__name__}: give dicts or batches"
        )
    batches = _batches(whole)
    start = next(batches, None)
    if start is None:
        return _as_table(first).slice(0, 0)
    alike = (_like(batch, start.schema) for batch in batches)
    return pa.RecordBatchReader.from_batches(start.schema, itertools.chain([start], alike))


def _batches(parts: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        if isinstance(part, pa.RecordBatch):
            yield part
        else:
            yield from _as_table(part).to_batches()


def _as_table(part: Any) -> pa.Table:
    if is_pandas(part):
        return pa.Table.from_pandas(_with_index(part), preserve_index=False)
    return pa.table(part)


def _like(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns and types of the first one. Raises InvalidInput for others."""
    if batch.schema.equals(schema):
        return batch
    try:
        return batch.select(schema.names).cast(schema)
    except (pa.ArrowException, KeyError) as error:
        raise InvalidInput(f"a batch does not have the columns of the first one: {error}") from None
