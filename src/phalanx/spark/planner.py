"""Planning for Spark: which filters help, which leaves are read, and by which tasks."""

from __future__ import annotations

import base64
import datetime as dt
import json
import pickle
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.model.predicates import EVERYTHING, Predicate, columns_of
from phalanx.model.schema import TableSchema
from phalanx.spark.door import Reply, Request, operation
from phalanx.spark.filters import Untranslatable, conjunction_of, predicate_of
from phalanx.spark.handles import Handle
from phalanx.spark.reader import LEAF, PARTITION, ROW_ID, AboutTask, Piece, ReadTask
from phalanx.spark.transforms import Reported, reported, types_of
from phalanx.spark.types import exchange_type
from phalanx.storage import bundle
from phalanx.storage.bundle import Member
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaves import LeafRow
from phalanx.table.plan import Plan, values_of
from phalanx.table.scan import are_small
from phalanx.transaction.snapshot import Snapshot

#: Up to how many small leaves partition keys are reported to Spark, at a task for each leaf.
KEYED_LEAVES = "spark.sql.phalanx.keyedLeaves"
_KEYED_LEAVES = 256
#: What opening a leaf costs, in bytes that could be read meanwhile.
_OPEN_BYTES = 256 * 1024
_SMALLEST_TASK = 4 * 1024 * 1024
_KEPT = 8


@operation
def push_filters(request: Request) -> Reply:
    """For each filter whether it `decides` (Spark need not look again), `helps` or is `useless`."""
    handle = Handle.from_json(request["table"])
    if handle.about is not None:
        return {"filters": ["useless"] * len(request["filters"])}
    snapshot = handle.snapshot()
    return {"filters": [_judge(snapshot, f, request["zone"]) for f in request["filters"]]}


def _judge(snapshot: Snapshot, filter: Mapping[str, Any], zone: str) -> str:
    try:
        predicate = predicate_of(filter, snapshot.head.schema, zone)
    except Untranslatable:
        return "useless"
    plan = Plan(snapshot, predicate)
    return "decides" if bool(np.all(plan.certain[plan.indices])) else "helps"


@operation
def partition_keys(request: Request) -> Reply:
    """The keys of the leaves that filters leave over, for Spark to evaluate what only it can."""
    snapshot = Handle.from_json(request["table"]).snapshot()
    predicate = conjunction_of(request["filters"], snapshot.head.schema, request["zone"])
    fields = reported(snapshot.head.spec, snapshot.head.schema)
    keys = [
        {"leaf": int(index), "key": _key(snapshot, snapshot.leaves.row(int(index)), fields)}
        for index in Plan(snapshot, predicate).indices
    ]
    return {"types": types_of(fields), "keys": keys}


def _key(snapshot: Snapshot, row: LeafRow, fields: Sequence[Reported]) -> list[Any]:
    values = values_of(snapshot, row)
    return [spelled(f.key([values[part.field_id] for part in f.fields])) for f in fields]


def spelled(value: Any) -> Any:
    """A partition value as Spark's side reads it: dates in days, timestamps in microseconds."""
    match value:
        case dt.datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
            return (moment - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(microseconds=1)
        case dt.date():
            return value.toordinal() - dt.date(1970, 1, 1).toordinal()
        case bytes():
            return base64.b64encode(value).decode()
        case dt.time():
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return (seconds * 1_000_000 + value.microsecond) * 1_000
        case dt.timedelta():
            return value // dt.timedelta(microseconds=1)
        case float():
            # As Java spells them.
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(
                str(value), str(value)
            )
        case Decimal():
            return str(value)
    return value


@operation
def plan_scan(request: Request) -> Reply:
    """What a scan would read: how much of it, by which keys, and the plan in one line."""
    handle = Handle.from_json(request["table"])
    return _plan_about(handle) if handle.about is not None else _planner(request).plan()


@operation
def scan_tasks(request: Request) -> Reply:
    """The tasks of a scan, with partition keys unless they are to be given up."""
    handle, packed = Handle.from_json(request["table"]), request.pop("packed")
    if handle.about is None:
        return {"tasks": _planner(request).tasks(packed)}
    task = AboutTask(handle, request["schema"], request["empty"])
    return {"tasks": [{"command": command_of(task, request["schema"])}]}


def _plan_about(handle: Handle) -> Reply:
    return {
        "partitioning": [],
        "key_types": [],
        "total": 1,
        "selected": 1,
        "rows": None,
        "bytes": None,
        "summary": f"version {handle.version}",
    }


_planners: OrderedDict[str, _Planner] = OrderedDict()


def _planner(request: Request) -> _Planner:
    """The planner of a scan: the one that has just planned it, or a new one."""
    key = json.dumps(request, sort_keys=True)
    found = _planners.pop(key, None)
    if found is None:
        found = _Planner(Handle.from_json(request["table"]), request)
    _planners[key] = found
    while len(_planners) > _KEPT:
        _planners.popitem(last=False)
    return found


@dataclass(frozen=True)
class _Leaf:
    """A leaf to be read, with what its task will weigh."""

    row: LeafRow
    piece: Piece
    bytes: int
    #: Whether it can be read together with others.
    bundled: bool


class _Planner:
    """One scan."""

    def __init__(self, handle: Handle, request: Request) -> None:
        self._request = request
        self._snapshot = handle.snapshot()
        schema, zone = self._snapshot.head.schema, request["zone"]
        self._columns = [field["name"] for field in json.loads(request["schema"])["fields"]]
        special = {PARTITION, LEAF, ROW_ID}.difference(schema.tagged.names)
        self._hidden = tuple(name for name in self._columns if name in special)
        self._plan = Plan(self._snapshot, conjunction_of(request["filters"], schema, zone))
        self._indices = self._plan.indices
        if request.get("leaves") is not None:
            self._indices = np.intersect1d(self._indices, np.array(request["leaves"], np.int64))
        for predicate in _translatable(request.get("runtime") or (), schema, zone):
            self._indices = np.intersect1d(self._indices, Plan(self._snapshot, predicate).indices)
        if request.get("limit") is not None:
            self._indices = self._enough(request["limit"])

    def _enough(self, limit: int) -> Any:
        """The first leaves that have as many rows as are wanted."""
        certain = self._plan.certain[self._indices]
        counts = np.where(certain, self._snapshot.leaves.row_counts[self._indices], 0)
        reached = np.flatnonzero(np.cumsum(np.maximum(counts, 0)) >= limit)
        return self._indices[: reached[0] + 1] if len(reached) else self._indices

    def tasks(self, packed: bool) -> list[Reply]:
        """The tasks; all with keys, or none."""
        small = are_small(self._snapshot.leaves, self._indices).tolist()
        chosen = [
            self._leaf(int(index), is_small)
            for index, is_small in zip(self._indices, small, strict=True)
        ]
        fields = [] if packed else self._keys()
        return self._keyed(chosen, fields) if fields else self._packed(chosen)

    def plan(self) -> Reply:
        """What is known of the scan before its tasks are made."""
        fields = self._keys()
        bytes = self._snapshot.leaves.byte_counts[self._indices]
        counts = self._snapshot.leaves.row_counts[self._indices]
        rows = None if bool(np.any(counts < 0)) else int(counts.sum())
        return {
            "partitioning": [field.to_key() for field in fields],
            "key_types": types_of(fields),
            "total": self._plan.total,
            "selected": len(self._indices),
            "rows": rows,
            "bytes": int(np.where(bytes < 0, _SMALLEST_TASK, bytes).sum() * self._share()),
            "summary": self._summary(),
        }

    def _summary(self) -> str:
        pruned = self._plan.total - len(self._indices)
        by = self._plan.pruned_by if self._plan.pruned else "join keys" if pruned else "nothing"
        return (
            f"partitions {len(self._indices)}/{self._plan.total}, pruned by: {by}, "
            f"columns [{', '.join(self._columns)}], version {self._snapshot.sequence}"
        )

    def _leaf(self, index: int, is_small: bool) -> _Leaf:
        row = self._snapshot.leaves.row(index)
        named, leaf_named = PARTITION in self._hidden, LEAF in self._hidden
        piece = Piece(
            (Member(row.location, row.read_version),),
            self._plan.residual(index),
            partition=self._plan.name_of(row) if named else "",
            leaf=row.object_id if leaf_named else "",
        )
        bundled = is_small and not self._hidden
        return _Leaf(row, piece, row.byte_count or _SMALLEST_TASK, bundled)

    def _share(self) -> float:
        """What part of the bytes the columns are, roughly."""
        schema = self._snapshot.head.schema.arrow
        whole = sum(_width(field.type) for field in schema)
        fields = json.loads(self._request["schema"])["fields"]
        return min(1.0, sum(_width(exchange_type(f["type"])) for f in fields) / max(whole, 1))

    def _task_bytes(self, chosen: Sequence[_Leaf]) -> int:
        """How much one task reads: all cores get some, and none more than Spark allows."""
        total = sum(leaf.bytes + _OPEN_BYTES for leaf in chosen)
        each = total // max(1, int(self._request["cores"]))
        most: int = self._request["task_bytes"]
        return max(1, min(most, max(_SMALLEST_TASK, each)))

    # Tasks with partition keys, one or more for each leaf

    def _keys(self) -> list[Reported]:
        """The partition transforms that are reported to Spark."""
        head, leaves = self._snapshot.head, self._snapshot.leaves
        if self._request.get("limit") is not None or not len(self._indices):
            return []
        if bool(np.any(leaves.spec_ids[self._indices] != head.spec_id)):
            return []
        bound = int(self._request["conf"].get(KEYED_LEAVES, _KEYED_LEAVES))
        small = leaves.byte_counts[self._indices] < self._request["task_bytes"] // 4
        if int(small.sum()) > bound:
            return []
        return [
            field
            for field in reported(head.spec, head.schema)
            if field.can_be_a_key and all(path[0] in self._columns for path in field.sources)
        ]

    def _keyed(self, chosen: Sequence[_Leaf], fields: Sequence[Reported]) -> list[Reply]:
        tasks = []
        for leaf in chosen:
            key = _key(self._snapshot, leaf.row, fields)
            for pieces in self._split(leaf, self._request["task_bytes"]):
                tasks.append({"command": self._command(pieces), "key": key})
        return tasks

    # Tasks of about the same size

    def _packed(self, chosen: Sequence[_Leaf]) -> list[Reply]:
        size = self._task_bytes(chosen)
        tasks: list[list[Piece]] = []
        waiting: list[_Leaf] = []
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
        return [{"command": self._command(pieces)} for pieces in tasks]

    def _split(self, leaf: _Leaf, size: int) -> list[list[Piece]]:
        """A leaf in parts of whole fragments."""
        if leaf.bytes <= size or (leaf.row.fragment_count or 2) < 2:
            return [[leaf.piece]]
        at = Leaf(self._snapshot.location, leaf.row.location, self._snapshot.head.schema)
        parts: list[list[int]] = []
        weight = 0
        for id, bytes in at.fragment_sizes(leaf.row.read_version).items():
            if not parts or weight + bytes > size:
                parts.append([])
                weight = 0
            parts[-1].append(id)
            weight += bytes
        if len(parts) < 2:
            return [[leaf.piece]]
        return [[replace(leaf.piece, fragments=tuple(ids))] for ids in parts]

    def _command(self, pieces: Sequence[Piece]) -> str:
        location, request = self._snapshot.location, self._request
        filters = [piece.where for piece in pieces if piece.where is not None]
        used = {column.path[0] for where in filters for column in columns_of(where)}
        task = ReadTask(
            location.uri,
            location.options,
            self._snapshot.head.schema.only({*self._columns, *used}),
            pieces,
            request["schema"],
            request["empty"],
            request.get("limit"),
            self._hidden,
        )
        return command_of(task, request["schema"])


def _together(leaves: Sequence[_Leaf]) -> list[Piece]:
    """The pieces of a task, with small leaves that have the same filter left in one."""
    found: list[Piece] = []
    open = False
    for leaf in leaves:
        last = found[-1] if found and open and leaf.bundled else None
        if last is None or last.where != leaf.piece.where or len(last.members) >= bundle.LARGEST:
            found.append(leaf.piece)
        else:
            found[-1] = replace(last, members=last.members + leaf.piece.members)
        open = leaf.bundled
    return found


def _translatable(
    filters: Iterable[Mapping[str, Any]], schema: TableSchema, zone: str
) -> Iterable[Predicate]:
    for filter in filters:
        try:
            yield predicate_of(filter, schema, zone)
        except Untranslatable:
            yield EVERYTHING


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
