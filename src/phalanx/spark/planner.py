"""Planning for Spark: which filters help, which leaves are read, and by which tasks."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.lru import LruCache
from phalanx.model.predicates import EVERYTHING, Predicate, columns_of, conjoin
from phalanx.model.schema import TableSchema
from phalanx.model.selectivity import share_of
from phalanx.model.specs import PartitionSpec
from phalanx.spark.conf import CHANGED_BYTES, KEYED_LEAVES, resolve
from phalanx.spark.dispatch import Reply, operation
from phalanx.spark.filters import Expression, Untranslatable, conjunction_of, predicate_of
from phalanx.spark.handles import Handle
from phalanx.spark.reader import PARTITION, MetadataTask, Piece
from phalanx.spark.requests import Request
from phalanx.spark.tasks import SMALLEST, Chosen, ScanSettings, Tasks, command_of
from phalanx.spark.transforms import Reported, chosen, reported, types_of
from phalanx.spark.types import is_finer
from phalanx.storage.records import LeafRow
from phalanx.table.plan import Plan, values_of
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import read_statistics

#: Up to how many leaves the tasks come with the plan, which saves a call.
_FEW_LEAVES = 16
_KEPT = 8
#: A key with so many rows is worth a task of its own: to shuffle them would take longer.
_ROWS_OF_A_TASK = 20_000
#: By how many leaves it is judged how many rows a filter leaves.
_SAMPLED = 32
#: Spark is never told that filters leave less than this share. Values may be spread unevenly, and
#: it broadcasts what seems to be small.
_LEAST_LEFT = 1 / 8


@operation(Request)
def load(request: Request) -> Reply:
    """Do nothing but load what a query needs. Asked before there is one."""
    from phalanx.spark import catalog  # noqa: F401

    return {}


@dataclass(frozen=True, kw_only=True)
class FilterRequest(Request):
    """A table and filters."""

    table: Handle
    filters: Sequence[Expression]


@dataclass(frozen=True, kw_only=True)
class PushFilters(FilterRequest):
    """Filters that Spark would like to push down, and whether the table is joined with nothing."""

    alone: bool


@operation(PushFilters)
def push_filters(request: PushFilters) -> Reply:
    """For each filter whether it `decides` (Spark need not look again), `helps` or is `useless`."""
    if request.table.about is not None:
        return {"filters": ["useless"] * len(request.filters)}
    snapshot = request.table.snapshot()
    judged = [_judge(snapshot, f, request.zone, request.alone) for f in request.filters]
    return {"filters": judged}


def _judge(snapshot: Snapshot, filter: Expression, zone: str, alone: bool) -> str:
    """What a filter is good for.

    Lance evaluates every filter that helps. Where tables are joined, Spark gets it back in any
    case: it prunes one table by the keys of another only where it sees a filter on that one. A
    check for NULL does not count as one, and would keep aggregates from being pushed down.
    """
    try:
        predicate = predicate_of(filter, snapshot.head.schema, zone)
    except Untranslatable:
        return "useless"
    # Times finer than Spark's may fall on the other side of a bound once they are Spark's.
    if any(is_finer(column.type) for column in columns_of(predicate)):
        return "helps"
    if alone or filter.get("call") == "IS_NOT_NULL":
        return "decides"
    plan = Plan(snapshot, predicate)
    return "decides" if bool(np.all(plan.certain[plan.indices])) else "helps"


@operation(FilterRequest)
def partition_keys(request: FilterRequest) -> Reply:
    """The keys of the leaves that filters select, for Spark to evaluate what only it can."""
    snapshot = request.table.snapshot()
    predicate = conjunction_of(request.filters, snapshot.head.schema, request.zone)
    fields = reported(snapshot.head.spec, snapshot.head.schema)
    keys = [
        {"leaf": row.index, "key": _key(snapshot, row, fields)}
        for row in snapshot.leaves.rows(Plan(snapshot, predicate).indices)
    ]
    return {"types": types_of(fields), "keys": keys}


def _key(snapshot: Snapshot, row: LeafRow, fields: Sequence[Reported]) -> list[Any]:
    values = values_of(snapshot, row)
    return [spelled(f.key([values[part.field_id] for part in f.fields])) for f in fields]


def _numbered_keys(snapshot: Snapshot, indices: Any, fields: Sequence[Reported]) -> Any:
    """A number for each leaf: leaves with the same key have the same, counted from 0."""
    numbers = np.zeros(len(indices), np.int64)
    for field in fields:
        for part in field.fields:
            column = snapshot.leaves.column(part.column_name)
            codes = field.codes(column)[indices]
            numbers = numbers * (int(codes.max(initial=0)) + 2) + codes + 1
            numbers = np.unique(numbers, return_inverse=True)[1]
    return numbers


def spelled(value: Any) -> Any:
    """A value as Spark's side reads it: dates in days, timestamps in microseconds."""
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


@dataclass(frozen=True, kw_only=True)
class PlanScan(Request):
    """A table and what is wanted of it."""

    table: Handle
    scan: ScanSettings


@operation(PlanScan)
def plan_scan(request: PlanScan) -> Reply:
    """What a scan would read: how much of it, by which keys, and the plan in one line.

    The tasks of a small scan come with it.
    """
    handle = request.table
    if handle.about is not None:
        return _metadata_plan(handle)
    return planner_of(handle, request.scan, request.zone).plan()


@dataclass(frozen=True, kw_only=True)
class ScanTasks(PlanScan):
    """A scan that was planned, and whether leaves share tasks, without partition keys."""

    packed: bool


@operation(ScanTasks)
def scan_tasks(request: ScanTasks) -> Reply:
    """The tasks of a scan."""
    handle, scan = request.table, request.scan
    if handle.about is None:
        return {"tasks": planner_of(handle, scan, request.zone).tasks(request.packed)}
    task = MetadataTask(handle, scan.schema, scan.without_columns)
    return {"tasks": [{"command": command_of(task, scan.schema)}]}


def _metadata_plan(handle: Handle) -> Reply:
    return {
        "tasks": {},
        "partitioning": [],
        "key_types": [],
        "unkeyed": "it is a metadata table",
        "too_many": "",
        "keys": 0,
        "largest": 0,
        "total": 1,
        "selected": 1,
        "rows": None,
        "bytes": None,
        "share": 1.0,
        "left": None,
        "changed_bytes": 0,
        "summary": f"version {handle.version}",
    }


_planners: LruCache[str, Planner] = LruCache(_KEPT)


def planner_of(handle: Handle, scan: ScanSettings, zone: str) -> Planner:
    """The planner of a scan: the one that has just planned it, or a new one."""
    key = repr((handle, scan, zone))
    planner = _planners.get(key)
    if planner is None:
        planner = Planner(handle.snapshot(), scan, zone)
        _planners.put(key, planner)
    return planner


class Planner:
    """Plans one scan: which leaves are read, with which keys, and by which tasks."""

    def __init__(self, snapshot: Snapshot, scan: ScanSettings, zone: str) -> None:
        """`zone` is that of the session, which the filters are in."""
        self._snapshot, self._scan = snapshot, scan
        schema = snapshot.head.schema
        self._tasks = Tasks(snapshot.location, schema, scan)
        filters = conjunction_of(scan.filters, schema, zone)
        self._plan = Plan(snapshot, filters)
        selected, self._indices = self._plan.indices, self._plan.to_read
        if scan.leaves is not None:
            leaves = np.array(scan.leaves, np.int64)
            selected, self._indices = _within(leaves, selected, self._indices)
        # Spark has planned by the keys of these: after a join has pruned them, they must be the
        # same keys, or none.
        self._planned = self._indices
        runtime = list(_translatable(scan.runtime, schema, zone))
        for plan in (Plan(snapshot, predicate) for predicate in runtime):
            (selected,) = _within(plan.indices, selected)
            (self._indices,) = _within(plan.to_read, self._indices)
        drops_rows = scan.filters_rows and scan.limit is None
        #: The filters of a running join that leave out single rows, too, and the plan with them.
        self._row_filters = [p for p in runtime if drops_rows and _is_exact(p)]
        self._row_plan = self._plan
        if self._row_filters:
            self._row_plan = Plan(snapshot, conjoin([filters, *self._row_filters]))
            (selected,) = _within(self._row_plan.indices, selected)
            (self._indices,) = _within(self._row_plan.to_read, self._indices)
        #: How many leaves partition values select, and how many of them bounds rule out.
        self._selected, self._skipped = len(selected), len(selected) - len(self._indices)
        if scan.limit is not None:
            self._indices = self._enough(scan.limit)

    def _enough(self, limit: int) -> Any:
        """The first leaves that together have as many rows as are wanted."""
        certain = self._plan.certain[self._indices]
        counts = np.where(certain, self._snapshot.leaves.row_counts[self._indices], 0)
        reached = np.flatnonzero(np.cumsum(np.maximum(counts, 0)) >= limit)
        return self._indices[: reached[0] + 1] if len(reached) else self._indices

    def tasks(self, packed: bool) -> list[Reply]:
        """The tasks: with a key each, unless they are to be packed or there are no keys."""
        fields, chosen = [] if packed else self._keys[0], self._chosen(self._indices)
        if fields:
            return self._keyed(chosen, fields)
        return [{"command": command} for command in self._tasks.packed(chosen)]

    @property
    def leaves(self) -> list[LeafRow]:
        """The leaves that are read."""
        return self._snapshot.leaves.rows(self._indices)

    @property
    def columns(self) -> list[str]:
        """The columns of the table that are read."""
        names = {field["name"] for field in json.loads(self._scan.schema)["fields"]}
        return [name for name in self._snapshot.head.schema.tagged.names if name in names]

    def pieces(self, indices: Any, groups: Mapping[int, Any]) -> list[list[Piece]]:
        """What tasks read of some leaves. Those of different groups are never in one piece."""
        return self._tasks.pieces(self._chosen(indices, groups))

    def seen_through(self, pieces: Sequence[Piece]) -> TableSchema:
        """The table's columns that pieces are read or filtered by."""
        return self._tasks.seen_through(pieces)

    def _chosen(self, indices: Any, groups: Mapping[int, Any] | None = None) -> list[Chosen]:
        leaves = self._snapshot.leaves
        small = self._row_plan.are_small(indices).tolist()
        return [
            self._leaf(row, is_small, None if groups is None else groups[row.index])
            for row, is_small in zip(leaves.rows(indices), small, strict=True)
        ]

    def plan(self) -> Reply:
        """What is known of the scan before its tasks are made."""
        fields, unkeyed = self._keys
        keys = self._rows_by_key(fields)
        bytes = self._snapshot.leaves.byte_counts[self._indices]
        counts = self._snapshot.leaves.row_counts[self._indices]
        rows = None if bool(np.any(counts < 0)) else int(counts.sum())
        share = self._share_left() if rows and self._scan.joins else 1.0
        few = len(bytes) <= _FEW_LEAVES and not bool(np.any(bytes > SMALLEST))
        return {
            "tasks": self._ready() if few else {},
            "partitioning": [field.to_key() for field in fields],
            "key_types": types_of(fields),
            "unkeyed": unkeyed,
            "too_many": self._too_many(keys),
            "keys": len(keys),
            "largest": int(keys.max(initial=0)),
            "total": self._plan.total,
            "selected": len(self._indices),
            "rows": rows,
            "bytes": int(np.where(bytes < 0, SMALLEST, bytes).sum() * self._tasks.share),
            "share": max(_LEAST_LEFT, share),
            "left": None if rows is None else int(rows * share),
            "changed_bytes": resolve(CHANGED_BYTES, confs=self._scan.conf),
            "summary": self._summary(),
        }

    def _share_left(self) -> float:
        """About which share of the rows the filters leave, judged by some of the leaves."""
        leaves, certain = self._snapshot.leaves, self._plan.certain[self._indices]
        counts = leaves.row_counts[self._indices]
        doubtful = self._indices[~certain & (counts > 0)]
        if not len(doubtful):
            return 1.0
        rows = leaves.rows(doubtful[:: -(-len(doubtful) // _SAMPLED)])
        known = read_statistics(self._snapshot, rows)
        sampled = kept = 0.0
        for row in rows:
            where, count = self._plan.residual(row.index), row.row_count or 0
            sampled += count
            kept += count * share_of(where or EVERYTHING, known.get(row.object_id, {}), count)
        left = counts[certain].sum() + counts[~certain].sum() * kept / sampled
        return float(left / counts.sum())

    def _ready(self) -> dict[str, list[Reply]]:
        """The tasks of a small scan: with keys, and also packed where that makes a difference.

        Whether keys are of use Spark knows only after it has seen them.
        """
        tasks = {"keyed": self.tasks(False)}
        if self._keys[0] and len(self._indices) > 1:
            tasks["packed"] = self.tasks(True)
        return tasks

    def _summary(self) -> str:
        left, by = len(self._indices) + self._skipped, "nothing"
        if self._plan.pruned:
            by = self._plan.pruned_by
        elif self._selected < self._plan.selected:
            by = "join keys"
        elif left < self._selected:
            by = "the limit"
        joined = dict.fromkeys(c.path[0] for p in self._row_filters for c in columns_of(p))
        rows = f"rows filtered by join keys: {', '.join(joined)}, " if joined else ""
        skipped = ""
        if self._skipped:
            columns = self._row_plan.bounded_columns or "join keys"
            skipped = f"{self._skipped} skipped by bounds of {columns}, "
        return (
            f"partitions {left}/{self._plan.total}, pruned by: {by}, {skipped}{rows}"
            f"columns [{', '.join(self._tasks.columns)}], version {self._snapshot.sequence}"
        )

    def _leaf(self, row: LeafRow, is_small: bool, group: Any = None) -> Chosen:
        hidden = self._tasks.hidden
        name = self._plan.name_of(row) if PARTITION in hidden else ""
        piece = self._tasks.piece(
            row,
            name,
            where=self._row_plan.residual(row.index),
            group=group,
            given=self._snapshot.head.given(row.spec_id, row.keys),
        )
        return Chosen(row, piece, row.byte_count or SMALLEST, is_small and not hidden)

    # Tasks with partition keys, one or more for each key

    @cached_property
    def _keys(self) -> tuple[list[Reported], str]:
        """The partition transforms that are reported to Spark; where there are none, why."""
        head, leaves, scan = self._snapshot.head, self._snapshot.leaves, self._scan
        if not scan.clusters:
            return [], "the query neither joins nor groups rows"
        if scan.limit is not None:
            return [], "the scan has a limit"
        if not len(self._planned):
            return [], "no partition is left"
        ids = set(np.unique(leaves.spec_ids[self._planned]).tolist())
        specs = [spec for spec in head.specs if spec.id in ids]
        fields = reported(_shared(specs), head.schema)
        usable = [
            field
            for field in fields
            if field.can_be_a_key and all(path[0] in self._tasks.columns for path in field.sources)
        ]
        if scan.keys is not None:
            usable = chosen(usable, scan.keys)
        if usable:
            # Spark's side chooses among the keys, and gives up those that are too many.
            too_many = "" if scan.chooses_keys else self._too_many(self._rows_by_key(usable))
            return ([], too_many) if too_many else (usable, "")
        unable = [field.name for field in fields if not field.can_be_a_key]
        if unable:
            return [], f"Spark does not join by {', '.join(unable)}"
        if len(specs) > 1:
            return [], f"its partitions are of {len(specs)} specs that have no field in common"
        return [], "it is not partitioned by what is read"

    def _too_many(self, rows: Any) -> str:
        """Why a task for each key would cost more than to shuffle the rows; empty if it would not.

        `rows` are those of each key. A task takes some milliseconds, however little it reads.
        """
        bound = resolve(KEYED_LEAVES, confs=self._scan.conf)
        if len(rows) <= bound or rows.sum() >= len(rows) * _ROWS_OF_A_TASK:
            return ""
        name = KEYED_LEAVES.name
        return f"{len(rows):,} keys with few rows each are more than {name} = {bound}"

    def _rows_by_key(self, fields: Sequence[Reported]) -> Any:
        """How many rows each key has, before a join has pruned any."""
        if not fields:
            return np.zeros(0)
        rows = self._snapshot.leaves.row_counts[self._planned]
        numbers = _numbered_keys(self._snapshot, self._planned, fields)
        return np.bincount(numbers, np.where(rows < 0, _ROWS_OF_A_TASK, rows))

    def _keyed(self, chosen: Sequence[Chosen], fields: Sequence[Reported]) -> list[Reply]:
        """The tasks of each key. Leaves with the same key share them."""
        numbers = _numbered_keys(self._snapshot, self._indices, fields).tolist()
        groups: dict[int, list[Chosen]] = {}
        for number, leaf in zip(numbers, chosen, strict=True):
            groups.setdefault(number, []).append(leaf)
        tasks = []
        for leaves in groups.values():
            key = _key(self._snapshot, leaves[0].row, fields)
            commands = self._tasks.of_one_key(leaves)
            tasks += [{"command": command, "key": key} for command in commands]
        return tasks


def _within(chosen: Any, *indices: Any) -> list[Any]:
    """Indices of leaves, without those that are not chosen."""
    return [np.intersect1d(some, chosen) for some in indices]


def _shared(specs: Sequence[PartitionSpec]) -> PartitionSpec:
    """The newest of some specs, with the fields that all of them have."""
    newest = max(specs, key=lambda spec: spec.id)
    common = set.intersection(*({field.field_id for field in spec.fields} for spec in specs))
    return replace(newest, fields=tuple(f for f in newest.fields if f.field_id in common))


def _translatable(
    filters: Iterable[Expression], schema: TableSchema, zone: str
) -> Iterable[Predicate]:
    """Runtime filters as predicates. One that cannot be translated prunes nothing."""
    for filter in filters:
        try:
            yield predicate_of(_with_null(filter), schema, zone)
        except Untranslatable:
            yield EVERYTHING


def _is_exact(predicate: Predicate) -> bool:
    """Whether Spark compares the columns of a runtime filter as Phalanx does, value by value."""
    types = [column.type for column in columns_of(predicate)]
    return bool(types) and not any(is_finer(t) or pa.types.is_floating(t) for t in types)


def _with_null(filter: Expression) -> Expression:
    """A runtime filter `c IN (…)` that also selects NULL, if NULL is one of its values.

    In a join, NULL matches nothing. In UPDATE and MERGE it stands for the group of rows with NULL,
    which must be read. Both look alike here, and to read more is never wrong.
    """
    items = filter["args"][1:] if filter.get("call") == "IN" else []
    known = [item for item in items if item.get("value", "") is not None]
    if len(known) == len(items):
        return filter
    column = filter["args"][0]
    nulls = {"call": "IS_NULL", "args": [column]}
    return {"call": "OR", "args": [{**filter, "args": [column, *known]}, nulls]} if known else nulls
