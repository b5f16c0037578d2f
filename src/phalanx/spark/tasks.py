"""Tasks: leaves put together, or cut, into parts of about the same size."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any

import pyarrow as pa

from phalanx.model.partition_columns import Given
from phalanx.model.predicates import Predicate, columns_of
from phalanx.model.schema import TableSchema
from phalanx.spark.filters import Expression
from phalanx.spark.reader import LEAF, PARTITION, ROW_ID, Piece, ReadTask, ScanContext
from phalanx.spark.types import exchange_type
from phalanx.storage.leaf import fragments_of
from phalanx.storage.location import Location
from phalanx.storage.read_units import LeafToRead, ReadUnit, grouped
from phalanx.storage.records import LeafRow
from phalanx.storage.small_leaves import Member

#: What opening a leaf costs, in bytes that could be read meanwhile.
_OPEN_BYTES = 256 * 1024
#: What a task reads at least, if there is so much.
SMALLEST = 4 * 1024 * 1024
#: So many rows are worth a task, however few bytes they have.
_MANY_ROWS = 100_000
#: The share of a leaf's bytes that is read at least, however few columns are wanted.
_LEAST_SHARE = 1 / 64


@dataclass(frozen=True)
class Cluster:
    """What Spark has to work with."""

    cores: int
    #: How many bytes one task reads at most, about.
    task_bytes: int


@dataclass(frozen=True, kw_only=True)
class ScanSettings:
    """What Spark wants of a scan, and what it has to read with."""

    #: The columns wanted, as Spark's JSON.
    schema: str
    #: Whether only the number of rows is wanted: the schema has a dummy column then.
    without_columns: bool = False
    cluster: Cluster
    filters: Sequence[Expression] = ()
    #: Filters that Spark has made while the query runs. A row that they leave out joins nothing.
    runtime: Sequence[Expression] = ()
    #: Whether these leave out single rows, and not only leaves.
    filters_rows: bool = True
    #: Numbers of leaves that Spark has chosen by their keys; None for all.
    leaves: Sequence[int] | None = None
    limit: int | None = None
    #: Whether the query joins or groups rows: partition keys are of no use otherwise.
    clusters: bool = True
    #: The partition keys that the query can use, as transforms; None for all that there are.
    keys: Sequence[Any] | None = None
    #: Whether Spark's side chooses among the keys, once it has seen them.
    chooses_keys: bool = False
    #: Whether the query joins tables: then it matters how many rows the filters leave.
    joins: bool = False
    #: The session's confs.
    conf: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def columns(self) -> list[dict[str, Any]]:
        """The columns wanted, each as a field of Spark's JSON."""
        fields: list[dict[str, Any]] = json.loads(self.schema)["fields"]
        return fields


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
    """Makes the tasks of one scan of a table."""

    def __init__(self, location: Location, schema: TableSchema, scan: ScanSettings) -> None:
        self._location, self._schema, self._scan = location, schema, scan
        self.columns = [column["name"] for column in scan.columns]
        special = {PARTITION, LEAF, ROW_ID}.difference(schema.tagged.names)
        #: Which of the columns wanted are hidden ones, and not the table's own.
        self.hidden = tuple(name for name in self.columns if name in special)
        self._contexts: dict[frozenset[str], Any] = {}

    @cached_property
    def share(self) -> float:
        """About which share of a leaf's bytes is read: that of the columns wanted."""
        widths = {column.name: _width(column.type) for column in self._schema.arrow}
        wanted = 0
        for column in self._scan.columns:
            # Spark may want only some fields of a struct.
            part = isinstance(column["type"], dict) and column["type"].get("type") == "struct"
            width = _width(exchange_type(column["type"])) if part else 0
            wanted += width or widths.get(column["name"], 0)
        return min(1.0, max(_LEAST_SHARE, wanted / max(1, sum(widths.values()))))

    def piece(
        self,
        row: LeafRow,
        partition: str,
        where: Predicate | None = None,
        fragments: tuple[int, ...] | None = None,
        group: tuple[Any, ...] | None = None,
        given: Given = (),
    ) -> Piece:
        """A leaf as a task reads it, with the values of the hidden columns that are wanted."""
        return Piece(
            ReadUnit((Member(row.location, row.read_version, given),), where, fragments=fragments),
            partition if PARTITION in self.hidden else "",
            row.object_id if LEAF in self.hidden else "",
            group,
        )

    def packed(self, chosen: Sequence[Chosen]) -> list[str]:
        """The commands of tasks of about the same size."""
        return [self._command(pieces) for pieces in self.pieces(chosen)]

    def pieces(self, chosen: Sequence[Chosen]) -> list[list[Piece]]:
        """What each of such tasks reads: small leaves share a task, large ones are cut."""
        return self._pieces(chosen, self._task_bytes(chosen))

    def of_one_key(self, chosen: Sequence[Chosen]) -> list[str]:
        """The commands of the tasks of leaves with the same key: as few as can be."""
        return [self._command(pieces) for pieces in self._pieces(chosen, self._most)]

    def _pieces(self, chosen: Sequence[Chosen], size: int) -> list[list[Piece]]:
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

    def _task_bytes(self, chosen: Sequence[Chosen]) -> int:
        """How large the leaves of one task are: all cores get some, and none reads too much."""
        total = sum(leaf.bytes + _OPEN_BYTES for leaf in chosen)
        cores = max(1, self._scan.cluster.cores)
        rows = sum(leaf.row.row_count or 0 for leaf in chosen)
        least = 0 if rows >= cores * _MANY_ROWS else int(SMALLEST / self.share)
        return max(1, min(self._most, max(least, total // cores)))

    @property
    def _most(self) -> int:
        """The bytes of leaves of which a task reads as much as Spark allows."""
        return int(self._scan.cluster.task_bytes / self.share)

    def _split(self, leaf: Chosen, size: int) -> list[list[Piece]]:
        """A leaf in parts of whole fragments."""
        if leaf.bytes <= size or (leaf.row.fragment_count or 2) < 2:
            return [_together([leaf])]
        sizes = leaf.sizes
        if sizes is None:
            fragments = fragments_of(self._location, leaf.row.location, leaf.row.read_version)
            sizes = {fragment.id: fragment.bytes for fragment in fragments}
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
        return self._schema.only(self._used(pieces))

    def _used(self, pieces: Sequence[Piece]) -> frozenset[str]:
        filters = [piece.unit.where for piece in pieces if piece.unit.where is not None]
        filtered = {column.path[0] for where in filters for column in columns_of(where)}
        return frozenset(filtered.union(self.columns))

    def _command(self, pieces: Sequence[Piece]) -> str:
        used = self._used(pieces)
        if used not in self._contexts:
            context = ScanContext(
                self._location.uri,
                self._location.options,
                self._schema.only(used),
                self._scan.schema,
                self._scan.without_columns,
                self._scan.limit,
                self.hidden,
            )
            self._contexts[used] = _Pickled(context)
        return command_of(ReadTask(self._contexts[used], pieces), self._scan.schema)


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


class _Pickled:
    """A value that many tasks share: pickled once, and itself again where it is loaded."""

    def __init__(self, value: Any) -> None:
        self._pickle = pickle.dumps(value)

    def __reduce__(self) -> Any:
        return pickle.loads, (self._pickle,)


#: The type of what a task returns that does not read: one row with a message.
MESSAGE = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "message", "type": "binary", "nullable": False, "metadata": {}}],
    }
)


def message(value: Any) -> pa.RecordBatch:
    """What such a task returns."""
    return pa.record_batch([pa.array([pickle.dumps(value)], pa.binary())], names=["message"])


def command_of(task: Any, schema: str = MESSAGE) -> str:
    """A callable with the type of its rows, pickled as Spark's workers expect it."""
    from pyspark_phalanx import Task

    return base64.b64encode(pickle.dumps((Task(task), _struct(schema)))).decode()


@lru_cache(maxsize=16)
def _struct(schema: str) -> _Pickled:
    from pyspark.sql.types import StructType

    return _Pickled(StructType.fromJson(json.loads(schema)))


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
