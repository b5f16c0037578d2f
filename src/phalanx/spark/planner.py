"""Planning for Spark: which filters help, which leaves are read, and by which tasks."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np

from phalanx.model.predicates import EVERYTHING, Predicate, columns_of
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionSpec
from phalanx.spark.conf import KEYED_LEAVES, resolve
from phalanx.spark.dispatch import Reply, Request, operation
from phalanx.spark.filters import Untranslatable, conjunction_of, predicate_of
from phalanx.spark.handles import Handle
from phalanx.spark.reader import PARTITION, AboutTask, Piece
from phalanx.spark.tasks import SMALLEST, Chosen, Tasks, command_of
from phalanx.spark.transforms import Reported, reported, types_of
from phalanx.spark.types import is_finer
from phalanx.storage.leaf_index import LeafRow
from phalanx.storage.read_units import are_small
from phalanx.table.plan import Plan, values_of
from phalanx.transaction.snapshot import Snapshot

#: Up to how many leaves the tasks come with the plan, which saves a call.
_FEW_LEAVES = 16
_KEPT = 8


@operation
def push_filters(request: Request) -> Reply:
    """For each filter whether it `decides` (Spark need not look again), `helps` or is `useless`."""
    handle = Handle.from_json(request["table"])
    if handle.about is not None:
        return {"filters": ["useless"] * len(request["filters"])}
    snapshot, zone, alone = handle.snapshot(), request["zone"], request["alone"]
    return {"filters": [_judge(snapshot, f, zone, alone) for f in request["filters"]]}


def _judge(snapshot: Snapshot, filter: Mapping[str, Any], zone: str, alone: bool) -> str:
    """Lance evaluates every filter that helps. Where tables are joined, Spark gets it back all the
    same, for it prunes one table by another only where it sees that filters leave little of it."""
    try:
        predicate = predicate_of(filter, snapshot.head.schema, zone)
    except Untranslatable:
        return "useless"
    # Times finer than Spark's may fall on the other side of a bound once they are Spark's.
    if any(is_finer(column.type) for column in columns_of(predicate)):
        return "helps"
    if alone:
        return "decides"
    plan = Plan(snapshot, predicate)
    return "decides" if bool(np.all(plan.certain[plan.indices])) else "helps"


@operation
def partition_keys(request: Request) -> Reply:
    """The keys of the leaves that filters leave over, for Spark to evaluate what only it can."""
    snapshot = Handle.from_json(request["table"]).snapshot()
    predicate = conjunction_of(request["filters"], snapshot.head.schema, request["zone"])
    fields = reported(snapshot.head.spec, snapshot.head.schema)
    keys = [
        {"leaf": row.index, "key": _key(snapshot, row, fields)}
        for row in snapshot.leaves.rows(Plan(snapshot, predicate).indices)
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
    """What a scan would read: how much of it, by which keys, and the plan in one line.

    Where that is little, the tasks come along.
    """
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
        "tasks": {},
        "partitioning": [],
        "key_types": [],
        "unkeyed": "it is a table about a table",
        "total": 1,
        "selected": 1,
        "rows": None,
        "bytes": None,
        "summary": f"version {handle.version}",
    }


_planners: OrderedDict[str, Planner] = OrderedDict()


def _planner(request: Request) -> Planner:
    """The planner of a scan: the one that has just planned it, or a new one."""
    key = json.dumps(request, sort_keys=True)
    found = _planners.pop(key, None)
    if found is None:
        found = Planner(Handle.from_json(request["table"]).snapshot(), request)
    _planners[key] = found
    while len(_planners) > _KEPT:
        _planners.popitem(last=False)
    return found


class Planner:
    """One scan."""

    def __init__(self, snapshot: Snapshot, request: Request) -> None:
        self._request, self._snapshot = request, snapshot
        schema, zone = self._snapshot.head.schema, request["zone"]
        self._tasks = Tasks(self._snapshot.location, schema, request)
        self._plan = Plan(self._snapshot, conjunction_of(request["filters"], schema, zone))
        self._indices = self._plan.indices
        if request.get("leaves") is not None:
            self._indices = np.intersect1d(self._indices, np.array(request["leaves"], np.int64))
        # Spark has planned by the keys of these: what a join leaves of them has the same, or none.
        self._planned = self._indices
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
        fields, chosen = [] if packed else self._keys[0], self._chosen(self._indices)
        if fields:
            return self._keyed(chosen, fields)
        return [{"command": command} for command in self._tasks.packed(chosen)]

    def pieces(self, indices: Any, groups: Mapping[int, Any]) -> list[list[Piece]]:
        """Leaves cut into tasks. Those of different groups are never in one piece."""
        return self._tasks.pieces(self._chosen(indices, groups))

    def seen_through(self, pieces: Sequence[Piece]) -> TableSchema:
        """The table's columns that pieces are read or filtered by."""
        return self._tasks.seen_through(pieces)

    def _chosen(self, indices: Any, groups: Mapping[int, Any] | None = None) -> list[Chosen]:
        leaves = self._snapshot.leaves
        small = are_small(leaves.row_counts[indices], leaves.byte_counts[indices]).tolist()
        return [
            self._leaf(row, is_small, None if groups is None else groups[row.index])
            for row, is_small in zip(leaves.rows(indices), small, strict=True)
        ]

    def plan(self) -> Reply:
        """What is known of the scan before its tasks are made."""
        fields, unkeyed = self._keys
        bytes = self._snapshot.leaves.byte_counts[self._indices]
        counts = self._snapshot.leaves.row_counts[self._indices]
        rows = None if bool(np.any(counts < 0)) else int(counts.sum())
        few = len(bytes) <= _FEW_LEAVES and not bool(np.any(bytes > SMALLEST))
        return {
            "tasks": {"packed": self.tasks(True), "keyed": self.tasks(False)} if few else {},
            "partitioning": [field.to_key() for field in fields],
            "key_types": types_of(fields),
            "unkeyed": unkeyed,
            "total": self._plan.total,
            "selected": len(self._indices),
            "rows": rows,
            "bytes": int(np.where(bytes < 0, SMALLEST, bytes).sum() * self._tasks.share),
            "summary": self._summary(),
        }

    def _summary(self) -> str:
        pruned = self._plan.total - len(self._indices)
        by = self._plan.pruned_by if self._plan.pruned else "join keys" if pruned else "nothing"
        return (
            f"partitions {len(self._indices)}/{self._plan.total}, pruned by: {by}, "
            f"columns [{', '.join(self._tasks.columns)}], version {self._snapshot.sequence}"
        )

    def _leaf(self, row: LeafRow, is_small: bool, group: Any = None) -> Chosen:
        hidden = self._tasks.hidden
        name = self._plan.name_of(row) if PARTITION in hidden else ""
        piece = self._tasks.piece(row, name, where=self._plan.residual(row.index), group=group)
        return Chosen(row, piece, row.byte_count or SMALLEST, is_small and not hidden)

    # Tasks with partition keys, one or more for each leaf

    @cached_property
    def _keys(self) -> tuple[list[Reported], str]:
        """The partition transforms that are reported to Spark; where there are none, why."""
        head, leaves = self._snapshot.head, self._snapshot.leaves
        if self._request.get("limit") is not None:
            return [], "the scan has a limit"
        if not len(self._planned):
            return [], "no partition is left"
        bound = resolve(KEYED_LEAVES, confs=self._request["conf"])
        small = leaves.byte_counts[self._planned] < self._request["task_bytes"] // 4
        if int(small.sum()) > bound:
            count, name = int(small.sum()), KEYED_LEAVES.name
            return [], f"{count:,} small partitions are more than {name} = {bound}"
        ids = set(np.unique(leaves.spec_ids[self._planned]).tolist())
        specs = [spec for spec in head.specs if spec.id in ids]
        fields = reported(_shared(specs), head.schema)
        usable = [
            field
            for field in fields
            if field.can_be_a_key and all(path[0] in self._tasks.columns for path in field.sources)
        ]
        if usable:
            return usable, ""
        unable = [field.name for field in fields if not field.can_be_a_key]
        if unable:
            return [], f"Spark does not join by {', '.join(unable)}"
        if len(specs) > 1:
            return [], f"its partitions are of {len(specs)} specs that have no field in common"
        return [], "it is not partitioned by what is read"

    def _keyed(self, chosen: Sequence[Chosen], fields: Sequence[Reported]) -> list[Reply]:
        tasks = []
        for leaf in chosen:
            key = _key(self._snapshot, leaf.row, fields)
            tasks += [{"command": command, "key": key} for command in self._tasks.alone(leaf)]
        return tasks


def _shared(specs: Sequence[PartitionSpec]) -> PartitionSpec:
    """The newest of some specs, with the fields that all of them have."""
    newest = max(specs, key=lambda spec: spec.id)
    common = set.intersection(*({field.field_id for field in spec.fields} for spec in specs))
    return replace(newest, fields=tuple(f for f in newest.fields if f.field_id in common))


def _translatable(
    filters: Iterable[Mapping[str, Any]], schema: TableSchema, zone: str
) -> Iterable[Predicate]:
    for filter in filters:
        try:
            yield predicate_of(_with_null(filter), schema, zone)
        except Untranslatable:
            yield EVERYTHING


def _with_null(filter: Mapping[str, Any]) -> Mapping[str, Any]:
    """A filter of values that Spark has found meanwhile, where NULL is one of them.

    For a join that would be no match. For UPDATE and MERGE it is the group of rows with NULL, and
    they must be read. The two look the same, and to read more is never wrong.
    """
    items = filter["args"][1:] if filter.get("call") == "IN" else []
    known = [item for item in items if item.get("value", "") is not None]
    if len(known) == len(items):
        return filter
    column = filter["args"][0]
    nulls = {"call": "IS_NULL", "args": [column]}
    return {"call": "OR", "args": [{**filter, "args": [column, *known]}, nulls]} if known else nulls
