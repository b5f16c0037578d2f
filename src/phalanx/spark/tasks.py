"""Tasks: what is to be read, put together or cut into pieces of about the same size."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import pyarrow as pa

from phalanx.model.predicates import Predicate, columns_of
from phalanx.model.schema import TableSchema
from phalanx.spark.dispatch import Request
from phalanx.spark.reader import LEAF, PARTITION, ROW_ID, Piece, ReadTask
from phalanx.spark.types import exchange_type
from phalanx.storage.leaf import fragments_of
from phalanx.storage.leaf_index import LeafRow
from phalanx.storage.location import Location
from phalanx.storage.read_units import LeafToRead, ReadUnit, grouped
from phalanx.storage.small_leaves import Member

#: What opening a leaf costs, in bytes that could be read meanwhile.
_OPEN_BYTES = 256 * 1024
#: What a task reads at least, if there is so much.
SMALLEST = 4 * 1024 * 1024
#: What part of a leaf's bytes is read at least, however little is wanted of it.
_LEAST_SHARE = 1 / 64


@dataclass(frozen=True)
class Chosen:
    """A leaf to be read, or a part of one, with what its task will weigh."""

    row: LeafRow
    piece: Piece
    bytes: int
    #: Whether it is small, and read together with others.
    small: bool
    #: The bytes of its fragments by their ids, where they are known.
    sizes: Mapping[int, int] | None = None


class Tasks:
    """The tasks of one scan of a table: what Spark asked for is the same for all of them."""

    def __init__(self, location: Location, schema: TableSchema, request: Request) -> None:
        self._location, self._schema, self._request = location, schema, request
        self.columns = [field["name"] for field in json.loads(request["schema"])["fields"]]
        special = {PARTITION, LEAF, ROW_ID}.difference(schema.tagged.names)
        #: Which of the columns wanted are hidden ones, and not the table's own.
        self.hidden = tuple(name for name in self.columns if name in special)

    @cached_property
    def share(self) -> float:
        """What part of the bytes is read, roughly: that of the columns wanted."""
        mine = {field.name: _width(field.type) for field in self._schema.arrow}
        wanted = 0
        for field in json.loads(self._request["schema"])["fields"]:
            # Of a struct Spark may want some fields only.
            part = isinstance(field["type"], dict) and field["type"].get("type") == "struct"
            width = _width(exchange_type(field["type"])) if part else 0
            wanted += width or mine.get(field["name"], 0)
        return min(1.0, max(_LEAST_SHARE, wanted / max(1, sum(mine.values()))))

    def piece(
        self,
        row: LeafRow,
        partition: str,
        where: Predicate | None = None,
        fragments: tuple[int, ...] | None = None,
        group: tuple[Any, ...] | None = None,
    ) -> Piece:
        """A leaf as a task reads it, with the values of the hidden columns that are wanted."""
        return Piece(
            ReadUnit((Member(row.location, row.read_version),), where, fragments=fragments),
            partition if PARTITION in self.hidden else "",
            row.object_id if LEAF in self.hidden else "",
            group,
        )

    def packed(self, chosen: Sequence[Chosen]) -> list[str]:
        """Commands of about the same size: small leaves share them, large ones are cut."""
        return [self._command(pieces) for pieces in self.pieces(chosen)]

    def pieces(self, chosen: Sequence[Chosen]) -> list[list[Piece]]:
        """The same as what each of them reads."""
        size = self._task_bytes(chosen)
        tasks: list[list[Piece]] = []
        waiting: list[Chosen] = []
        weight = 0
        for leaf in chosen:
            if leaf.bytes > size:
                tasks += self._split(leaf, size)
                continue
            if waiting and weight + leaf.bytes > size:
                tasks.append(_together(waiting))
                waiting, weight = [], 0
            waiting.append(leaf)
            weight += leaf.bytes + _OPEN_BYTES
        if waiting:
            tasks.append(_together(waiting))
        return tasks

    def alone(self, leaf: Chosen) -> list[str]:
        """The commands of one leaf, which nothing else is read with."""
        parts = self._split(leaf, self._most)
        return [self._command(pieces) for pieces in parts]

    def _task_bytes(self, chosen: Sequence[Chosen]) -> int:
        """How large leaves of one task are: all cores get some, and none reads too much."""
        total = sum(leaf.bytes + _OPEN_BYTES for leaf in chosen)
        each = total // max(1, int(self._request["cores"]))
        return max(1, min(self._most, max(int(SMALLEST / self.share), each)))

    @property
    def _most(self) -> int:
        """The bytes of leaves of which a task reads as much as Spark allows."""
        return int(self._request["task_bytes"] / self.share)

    def _split(self, leaf: Chosen, size: int) -> list[list[Piece]]:
        """A leaf in parts of whole fragments."""
        if leaf.bytes <= size or (leaf.row.fragment_count or 2) < 2:
            return [[leaf.piece]]
        sizes = leaf.sizes
        if sizes is None:
            found = fragments_of(self._location, leaf.row.location, leaf.row.read_version)
            sizes = {fragment.id: fragment.bytes for fragment in found}
        parts: list[list[int]] = []
        weight = 0
        for id, bytes in sizes.items():
            if not parts or weight + bytes > size:
                parts.append([])
                weight = 0
            parts[-1].append(id)
            weight += bytes
        if len(parts) < 2:
            return [[leaf.piece]]
        unit = leaf.piece.unit
        return [[replace(leaf.piece, unit=replace(unit, fragments=tuple(ids)))] for ids in parts]

    def seen_through(self, pieces: Sequence[Piece]) -> TableSchema:
        """The table's columns that pieces are read or filtered by."""
        filters = [piece.unit.where for piece in pieces if piece.unit.where is not None]
        used = {column.path[0] for where in filters for column in columns_of(where)}
        return self._schema.only({*self.columns, *used})

    def _command(self, pieces: Sequence[Piece]) -> str:
        location, request = self._location, self._request
        task = ReadTask(
            location.uri,
            location.options,
            self.seen_through(pieces),
            pieces,
            request["schema"],
            request["empty"],
            request.get("limit"),
            self.hidden,
        )
        return command_of(task, request["schema"])


def _together(leaves: Sequence[Chosen]) -> list[Piece]:
    """The pieces of a task. Small leaves share one, if their rows are grouped by the same."""
    pieces: list[Piece] = []
    for (small, group), run in groupby(leaves, lambda leaf: (leaf.small, leaf.piece.group)):
        if small:
            units = grouped(
                LeafToRead(leaf.piece.unit.members[0], leaf.piece.unit.where, leaf.row.row_count)
                for leaf in run
            )
            pieces += [Piece(unit, group=group) for unit in units]
        else:
            pieces += [leaf.piece for leaf in run]
    return pieces


def command_of(task: Any, schema: str) -> str:
    """A callable with the type of its rows, pickled as Spark's workers expect it."""
    from pyspark.sql.types import StructType

    from pyspark_phalanx import Task

    pickled = pickle.dumps((Task(task), StructType.fromJson(json.loads(schema))))
    return base64.b64encode(pickled).decode()


def _width(type: pa.DataType) -> int:
    """About how many bytes a value takes."""
    t = pa.types
    if t.is_fixed_size_list(type):
        return int(type.list_size) * _width(type.value_type)
    if t.is_struct(type):
        return sum(_width(field.type) for field in type)
    if t.is_nested(type):
        return 64
    try:
        return max(1, int(type.bit_width) // 8)
    except ValueError:
        return 16
