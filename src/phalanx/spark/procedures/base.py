"""Procedures: `CALL <catalog>.system.<name>(table => 'db.events', …)`, one class for each.

A procedure says its parameters, its result and what it does; the rows it returns are dicts.
"""

from __future__ import annotations

import base64
import datetime as dt
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from phalanx.errors import InvalidInput, TableNotFound
from phalanx.model.properties import span_of
from phalanx.spark.dispatch import Reply, Request, operation
from phalanx.spark.planner import spelled
from phalanx.spark.warehouse import Warehouse
from phalanx.storage.location import Location
from phalanx.table.check import check_table
from phalanx.table.repair import repair_table
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


@dataclass(frozen=True)
class Work:
    """What Spark's workers are to do before a procedure goes on."""

    #: Functions from nothing to one message, pickled as Spark's workers expect them.
    commands: Sequence[str]
    #: What the procedure must know then. Any worker may go on with it, so it is pickled.
    state: Any


@dataclass(frozen=True)
class Cluster:
    """What Spark has to work with."""

    cores: int


class Procedure(ABC):
    """One procedure."""

    name: ClassVar[str]
    #: What it does, for DESCRIBE PROCEDURE.
    description: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]]
    #: The columns of its result, with their Spark types.
    result: ClassVar[Mapping[str, str]]
    #: Whether queries give other rows after it: what Spark has cached is of no use then.
    changes_rows: ClassVar[bool] = False

    @abstractmethod
    def call(self, warehouse: Warehouse, arguments: Arguments, cluster: Cluster) -> Work | Rows:
        """Carry it out, or say what is to be worked at first.

        Raises a PhalanxError where it cannot be done.
        """


class Distributed(Procedure):
    """A procedure that lets Spark's workers do the larger part, in one round or several."""

    @abstractmethod
    def go_on(self, state: Any, messages: Sequence[Any], cluster: Cluster) -> Work | Rows:
        """What comes after a round, whose messages these are."""


def table_of(warehouse: Warehouse, arguments: Arguments) -> Table:
    """The table that a procedure is called for."""
    try:
        return Table(Snapshot.latest(_location(warehouse, arguments)))
    except TableNotFound:
        name = ".".join(_parts(arguments))
        raise TableNotFound(f"the catalog has no table {name}: SHOW TABLES lists them") from None


def _location(warehouse: Warehouse, arguments: Arguments) -> Location:
    return warehouse.location(_parts(arguments))


def _parts(arguments: Arguments) -> list[str]:
    """The name of the table in parts; a path is one."""
    name = arguments.get("table")
    if not name:
        raise InvalidInput("which table? Give table => 'namespace.name'")
    return [name] if "/" in name else name.replace("`", "").split(".")


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

    def call(self, warehouse: Warehouse, arguments: Arguments, cluster: Cluster) -> Work | Rows:
        report = table_of(warehouse, arguments).vacuum(
            _span(arguments["older_than"]), bool(arguments["dry_run"]), bool(arguments["force"])
        )
        return lines(report)


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

    def call(self, warehouse: Warehouse, arguments: Arguments, cluster: Cluster) -> Work | Rows:
        span = _span(arguments["older_than"])
        report = table_of(warehouse, arguments).expire_snapshots(span, bool(arguments["dry_run"]))
        return lines(report)


class Rollback(Procedure):
    name = "rollback"
    description = "Bring an earlier version or tag back, as a new snapshot."
    parameters = (TABLE, Parameter("version", "STRING", "the version, or the name of a tag"))
    result: ClassVar = {"version": "BIGINT"}
    changes_rows = True

    def call(self, warehouse: Warehouse, arguments: Arguments, cluster: Cluster) -> Work | Rows:
        table = table_of(warehouse, arguments)
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

    def call(self, warehouse: Warehouse, arguments: Arguments, cluster: Cluster) -> Work | Rows:
        table = table_of(warehouse, arguments)
        version = arguments["version"]
        table.tag(arguments["name"], None if version is None else _version(version))
        return [{"name": arguments["name"], "version": table.tags()[arguments["name"]]}]


class DropTag(Procedure):
    name = "drop_tag"
    description = "Take a tag away."
    parameters = (TABLE, Parameter("name", "STRING", "the name"))
    result: ClassVar = {"name": "STRING"}

    def call(self, warehouse: Warehouse, arguments: Arguments, cluster: Cluster) -> Work | Rows:
        table_of(warehouse, arguments).drop_tag(arguments["name"])
        return [{"name": arguments["name"]}]


class Check(Procedure):
    name = "check"
    description = "Look for every inconsistency in a table; nothing is changed."
    parameters = (TABLE,)
    result: ClassVar = {"report": "STRING"}

    def call(self, warehouse: Warehouse, arguments: Arguments, cluster: Cluster) -> Work | Rows:
        return lines(check_table(_location(warehouse, arguments)))


class Repair(Procedure):
    name = "repair"
    description = "Mend what check finds where it can be mended, and say what cannot."
    parameters = (TABLE, DRY_RUN)
    result: ClassVar = {"report": "STRING"}
    changes_rows = True

    def call(self, warehouse: Warehouse, arguments: Arguments, cluster: Cluster) -> Work | Rows:
        return lines(repair_table(_location(warehouse, arguments), bool(arguments["dry_run"])))


def lines(report: object) -> list[Mapping[str, Any]]:
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
    )
}


def register(procedure: Procedure) -> None:
    """Make a procedure callable by its name."""
    PROCEDURES[procedure.name] = procedure


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
    found, warehouse = PROCEDURES[request["name"]], Warehouse(request["catalog"])
    cluster = Cluster(int(request["cores"]))
    if request.get("state") is None:
        rows = found.call(warehouse, request["arguments"], cluster)
    else:
        assert isinstance(found, Distributed), found.name
        state = pickle.loads(base64.b64decode(request["state"]))
        messages = [pickle.loads(base64.b64decode(one)) for one in request["messages"]]
        rows = found.go_on(state, messages, cluster)
    if isinstance(rows, Work):
        state = base64.b64encode(pickle.dumps(rows.state)).decode()
        return {"work": list(rows.commands), "state": state}
    types = {"BIGINT": "long", "STRING": "string", "BOOLEAN": "boolean"}
    changed = {"changed": _parts(request["arguments"])} if found.changes_rows else {}
    return changed | {
        "rows": [[spelled(row[name]) for name in found.result] for row in rows],
        "schema": {
            "type": "struct",
            "fields": [
                {"name": name, "type": types[type], "nullable": True, "metadata": {}}
                for name, type in found.result.items()
            ],
        },
    }
