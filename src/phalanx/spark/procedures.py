"""Procedures: `CALL <catalog>.system.<name>(table => 'db.events', …)`, one class for each.

A procedure says its parameters, its result and what it does; the rows it returns are dicts.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from phalanx.errors import InvalidInput
from phalanx.spark.door import Reply, Request, operation
from phalanx.spark.planner import spelled
from phalanx.spark.transforms import entries_of
from phalanx.spark.warehouse import Warehouse
from phalanx.table import health
from phalanx.table.properties import span_of
from phalanx.table.table import Table
from phalanx.transaction.snapshot import Snapshot

Arguments = Mapping[str, Any]
Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Parameter:
    """A parameter with its Spark type; `default` is SQL, and without one it must be given."""

    name: str
    type: str
    comment: str
    default: str | None = None


TABLE = Parameter("table", "STRING", "the table: namespace and name, or a path")
DRY_RUN = Parameter("dry_run", "BOOLEAN", "say what would be done, and do nothing", "false")


class Procedure(ABC):
    """One procedure."""

    name: ClassVar[str]
    #: What it does, for DESCRIBE PROCEDURE.
    description: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]]
    #: The columns of its result, with their Spark types.
    result: ClassVar[Mapping[str, str]]

    @abstractmethod
    def call(
        self, warehouse: Warehouse, arguments: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Any]]:
        """Carry it out. Raises a PhalanxError where it cannot be done."""


def _table(warehouse: Warehouse, arguments: Arguments) -> Table:
    return Table(Snapshot.latest(_location(warehouse, arguments)))


def _location(warehouse: Warehouse, arguments: Arguments) -> Any:
    name = arguments.get("table")
    if not name:
        raise InvalidInput("which table? Give table => 'namespace.name'")
    return warehouse.location([name] if "/" in name else name.replace("`", "").split("."))


def _span(text: str | None) -> dt.timedelta | None:
    """A span of time such as '7 days'."""
    return None if text is None else span_of(text)


def _version(text: str) -> int | str:
    return int(text) if text.isdigit() else text


class Vacuum(Procedure):
    name = "vacuum"
    description = "Remove old snapshots and the files that no retained snapshot needs."
    parameters = (
        TABLE,
        Parameter("older_than", "STRING", "how old what goes must be, such as '7 days'", "null"),
        DRY_RUN,
        Parameter("force", "BOOLEAN", "also remove files younger than 24 hours", "false"),
    )
    result: ClassVar = {"report": "STRING"}

    def call(
        self, warehouse: Warehouse, arguments: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Any]]:
        report = _table(warehouse, arguments).vacuum(
            _span(arguments["older_than"]), bool(arguments["dry_run"]), bool(arguments["force"])
        )
        return _lines(report)


class ExpireSnapshots(Procedure):
    name = "expire_snapshots"
    description = "Give up snapshots that were the newest only before some time; no file goes yet."
    parameters = (
        TABLE,
        Parameter(
            "older_than",
            "STRING",
            "how old they must be, such as '30 days'; the table's own retention, if not given",
            "null",
        ),
        DRY_RUN,
    )
    result: ClassVar = {"report": "STRING"}

    def call(
        self, warehouse: Warehouse, arguments: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Any]]:
        span = _span(arguments["older_than"])
        report = _table(warehouse, arguments).expire_snapshots(span, bool(arguments["dry_run"]))
        return _lines(report)


class Rollback(Procedure):
    name = "rollback"
    description = "Bring an earlier version or tag back, as a new snapshot."
    parameters = (TABLE, Parameter("version", "STRING", "the version, or the name of a tag"))
    result: ClassVar = {"version": "BIGINT"}

    def call(
        self, warehouse: Warehouse, arguments: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Any]]:
        table = _table(warehouse, arguments)
        table.rollback(_version(arguments["version"]))
        return [{"version": table.version}]


class Tag(Procedure):
    name = "tag"
    description = "Give a version a name, which keeps it."
    parameters = (
        TABLE,
        Parameter("name", "STRING", "the name"),
        Parameter("version", "STRING", "the version; the newest, if none is given", "null"),
    )
    result: ClassVar = {"name": "STRING", "version": "BIGINT"}

    def call(
        self, warehouse: Warehouse, arguments: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Any]]:
        table = _table(warehouse, arguments)
        version = arguments["version"]
        table.tag(arguments["name"], None if version is None else _version(version))
        return [{"name": arguments["name"], "version": table.tags()[arguments["name"]]}]


class DropTag(Procedure):
    name = "drop_tag"
    description = "Take a tag away."
    parameters = (TABLE, Parameter("name", "STRING", "the name"))
    result: ClassVar = {"name": "STRING"}

    def call(
        self, warehouse: Warehouse, arguments: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Any]]:
        _table(warehouse, arguments).drop_tag(arguments["name"])
        return [{"name": arguments["name"]}]


class Check(Procedure):
    name = "check"
    description = "Look for every inconsistency in a table; nothing is changed."
    parameters = (TABLE,)
    result: ClassVar = {"report": "STRING"}

    def call(
        self, warehouse: Warehouse, arguments: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Any]]:
        return _lines(health.check(_location(warehouse, arguments)))


class Repair(Procedure):
    name = "repair"
    description = "Mend what check finds where it can be mended, and say what cannot."
    parameters = (TABLE, DRY_RUN)
    result: ClassVar = {"report": "STRING"}

    def call(
        self, warehouse: Warehouse, arguments: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Any]]:
        return _lines(health.repair(_location(warehouse, arguments), bool(arguments["dry_run"])))


WHERE = Parameter("where", "STRING", "which partitions: those that may hold such rows", "null")


class EvolvePartitioning(Procedure):
    name = "evolve_partitioning"
    description = "Partition by other fields from now on; rows that are there stay where they are."
    parameters = (
        TABLE,
        Parameter("partition_by", "STRING", "the fields, such as 'days(ts), bucket(16, id)'"),
    )
    result: ClassVar = {"version": "BIGINT", "spec": "STRING"}

    def call(
        self, warehouse: Warehouse, arguments: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Any]]:
        table = _table(warehouse, arguments)
        table.evolve_partitioning(entries_of(arguments["partition_by"] or ""))
        fields = ", ".join(table.spec.spell(table._snapshot.head.schema))
        return [{"version": table.version, "spec": f"v{table.spec.id}: {fields or 'nothing'}"}]


class Optimize(Procedure):
    name = "optimize"
    description = "Put the rows of each partition into fewer, larger files, sorted if asked."
    parameters = (
        TABLE,
        WHERE,
        Parameter("target_rows", "BIGINT", "rows of a file, about", "null"),
        Parameter("target_bytes", "BIGINT", "bytes of a file, about", "null"),
        Parameter("sort_by", "STRING", "columns to sort by, such as 'ts DESC, id'", "null"),
        Parameter("zorder_by", "STRING", "columns to order by together: 'x, y'", "null"),
        DRY_RUN,
    )
    result: ClassVar = {
        "partitions": "BIGINT",
        "rewritten": "BIGINT",
        "files_before": "BIGINT",
        "files_after": "BIGINT",
        "bytes_before": "BIGINT",
        "bytes_after": "BIGINT",
        "notes": "STRING",
    }

    def call(
        self, warehouse: Warehouse, arguments: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Any]]:
        report = _table(warehouse, arguments).optimize(
            arguments["where"],
            arguments["target_rows"],
            arguments["target_bytes"],
            bool(arguments["dry_run"]),
            sort_by=_sorting(arguments["sort_by"]),
            zorder_by=_names(arguments["zorder_by"]),
        )
        return [
            {
                "partitions": report.leaves,
                "rewritten": report.rewritten,
                "files_before": report.files_before,
                "files_after": report.files_after,
                "bytes_before": report.bytes_before,
                "bytes_after": report.bytes_after,
                "notes": "; ".join(report.notes),
            }
        ]


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip().strip("`") for name in text.split(",")]


def _sorting(text: str | None) -> list[str | tuple[str, str]] | None:
    """`ts DESC, id` as `optimize` takes it."""
    found: list[str | tuple[str, str]] = []
    for entry in _names(text) or ():
        name, _, order = entry.partition(" ")
        match order.strip().upper():
            case "" | "ASC":
                found.append(name)
            case "DESC":
                found.append((name, "descending"))
            case _:
                raise InvalidInput(f"cannot sort by {entry!r}: write a column, and DESC after it")
    return found or None


class Rewrite(Procedure):
    name = "rewrite"
    description = "Move rows of earlier specs into the partitions of the newest, step by step."
    parameters = (
        TABLE,
        WHERE,
        Parameter("step_rows", "BIGINT", "rows of a step at most", "null"),
        Parameter("step_bytes", "BIGINT", "bytes of a step at most", "null"),
        Parameter("max_steps", "INT", "steps at most; call it again to go on", "null"),
        DRY_RUN,
    )
    result: ClassVar = {
        "rows": "BIGINT",
        "bytes": "BIGINT",
        "steps": "BIGINT",
        "partitions": "BIGINT",
        "left": "BIGINT",
        "notes": "STRING",
    }

    def call(
        self, warehouse: Warehouse, arguments: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Any]]:
        report = _table(warehouse, arguments).rewrite(
            arguments["where"],
            step_rows=arguments["step_rows"],
            step_bytes=arguments["step_bytes"],
            max_steps=arguments["max_steps"],
            dry_run=bool(arguments["dry_run"]),
        )
        return [
            {
                "rows": report.rows,
                "bytes": report.bytes,
                "steps": report.steps,
                "partitions": report.leaves,
                "left": report.left,
                "notes": "; ".join(report.notes),
            }
        ]


class Advise(Procedure):
    name = "advise"
    description = (
        "Say which partitions are too small, too large or skewed, and what would be better."
    )
    parameters = (TABLE,)
    result: ClassVar = {"report": "STRING"}

    def call(
        self, warehouse: Warehouse, arguments: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Any]]:
        return _lines(_table(warehouse, arguments).advise())


def _lines(report: object) -> list[Mapping[str, Any]]:
    return [{"report": line} for line in str(report).splitlines()]


PROCEDURES: dict[str, Procedure] = {
    made.name: made
    for made in (
        Vacuum(),
        ExpireSnapshots(),
        Rollback(),
        Tag(),
        DropTag(),
        Check(),
        Repair(),
        EvolvePartitioning(),
        Optimize(),
        Rewrite(),
        Advise(),
    )
}


@operation
def list_procedures(request: Request) -> Reply:
    """Every procedure, as Spark wants to know it."""
    return {
        "procedures": [
            {
                "name": found.name,
                "description": found.description,
                "parameters": [
                    {"name": p.name, "type": p.type, "comment": p.comment}
                    | ({} if p.default is None else {"default": p.default})
                    for p in found.parameters
                ],
            }
            for found in PROCEDURES.values()
        ]
    }


@operation
def call_procedure(request: Request) -> Reply:
    """Carry a procedure out; its rows."""
    found = PROCEDURES[request["name"]]
    rows = found.call(Warehouse(request["catalog"]), request["arguments"])
    types = {"BIGINT": "long", "STRING": "string", "BOOLEAN": "boolean"}
    return {
        "rows": [[spelled(row[name]) for name in found.result] for row in rows],
        "schema": {
            "type": "struct",
            "fields": [
                {"name": name, "type": types[type], "nullable": True, "metadata": {}}
                for name, type in found.result.items()
            ],
        },
    }
