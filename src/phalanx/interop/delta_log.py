"""The log of a Delta table: its state, read by replay, and the commit of a new version.

Version 12 of a table is the file `_delta_log/00000000000000000012.json`, one action on each line.
It is linked to its name, which only one writer can do, so that a version is whole or not there.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from phalanx.errors import UnsupportedTable
from phalanx.transaction.failpoints import reach

LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
#: A checkpoint in one file, or in several that are numbered.
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")

Action = Mapping[str, Any]


@dataclass
class DeltaState:
    """A Delta table at its newest version, which is -1 for one that does not exist."""

    version: int = -1
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    #: The files of the table: the `add` of each, by what identifies it.
    files: dict[tuple[str, str], Action] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        return self.version >= 0

    def apply(self, actions: Iterable[Action]) -> None:
        """Take note of the actions of one version."""
        for action in actions:
            for kind, value in action.items():
                if value is None:
                    continue
                if kind == "protocol":
                    self.protocol = value
                elif kind == "metaData":
                    self.metadata = value
                elif kind == "add":
                    self.files[_identity(value)] = value
                elif kind == "remove":
                    self.files.pop(_identity(value), None)


def _identity(action: Action) -> tuple[str, str]:
    """What identifies a file: its path, and which of its rows are deleted."""
    vector = action.get("deletionVector")
    return action["path"], json.dumps(vector, sort_keys=True) if vector else ""


def read(root: Path) -> DeltaState:
    """The newest version of a Delta table.

    Raises UnsupportedTable for a log that starts with a checkpoint of a kind that is not read here.
    """
    log, state = root / LOG, DeltaState()
    names = os.listdir(log) if log.is_dir() else []
    commits = sorted(int(match[1]) for name in names if (match := _COMMIT.fullmatch(name)))
    checkpoint, files = _newest_checkpoint(names)
    for name in files:
        state.apply(_checkpointed(log / name))
        state.version = checkpoint
    for version in (number for number in commits if number > checkpoint):
        if version != state.version + 1:
            raise UnsupportedTable(
                f"the log of the Delta table {root} has no version {state.version + 1} and no "
                "checkpoint in its place that is understood: export to another folder"
            )
        text = (log / f"{version:020}.json").read_text(encoding="utf-8")
        state.apply(json.loads(line) for line in text.splitlines() if line.strip())
        state.version = version
    return state


def _newest_checkpoint(names: Iterable[str]) -> tuple[int, list[str]]:
    """The version and the files of the newest checkpoint that is complete; -1 without one."""
    parts: dict[tuple[int, int], list[str]] = {}
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            parts.setdefault((int(match[1]), int(match[3] or 1)), []).append(name)
    complete = [(key, files) for key, files in parts.items() if len(files) == key[1]]
    (version, _), files = max(complete, default=((-1, 0), []))
    return version, files


def _checkpointed(path: Path) -> Iterator[Action]:
    schema = pq.read_schema(path)
    columns = [name for name in ("protocol", "metaData", "add") if name in schema.names]
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=columns):
            for row in batch.to_pylist():
                yield {
                    kind: _plain(value, schema.field(kind).type)
                    for kind, value in row.items()
                    if value is not None
                }


def _plain(value: Any, type: pa.DataType) -> Any:
    """A value of a checkpoint as JSON has it: maps are dicts."""
    if value is None:
        return None
    if pa.types.is_map(type):
        return dict(value)
    if pa.types.is_struct(type):
        return {inner.name: _plain(value[inner.name], inner.type) for inner in type}
    return value


def prepare(root: Path) -> None:
    """Make the folder of a log, before any file of the table."""
    (root / LOG).mkdir(parents=True, exist_ok=True)


def commit(root: Path, version: int, actions: Sequence[Action]) -> bool:
    """Write a version of the table. False if another writer has written it first."""
    log = root / LOG
    hidden = log / f".{uuid.uuid4().hex}.tmp"
    try:
        with open(hidden, "w", encoding="utf-8") as file:
            for action in actions:
                file.write(json.dumps(action, ensure_ascii=False, separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())
        reach("export.delta-commit")
        os.link(hidden, log / f"{version:020}.json")
    except FileExistsError:
        return False
    finally:
        hidden.unlink(missing_ok=True)
    return True
