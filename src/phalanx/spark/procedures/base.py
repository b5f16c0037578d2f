"""Procedures: `CALL <catalog>.system.<name>(table => 'db.events', …)`, one class for each.

A procedure declares its parameters and the columns of its result, and returns rows as dicts. One
that has much to do lets Spark's workers do it, in one round or several.
"""

from __future__ import annotations

import base64
import datetime as dt
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from phalanx.errors import InvalidInput, TableNotFound
from phalanx.model.properties import span_of
from phalanx.model.specs import CustomField, entries_of
from phalanx.spark import foreign
from phalanx.spark.catalog import CatalogRequest
from phalanx.spark.dispatch import Reply, operation
from phalanx.spark.planner import spelled
from phalanx.spark.relations import VIEW
from phalanx.spark.tasks import Cluster
from phalanx.spark.times import moment_of, version_of
from phalanx.spark.warehouse import Warehouse, parts_of
from phalanx.storage.location import Location
from phalanx.table.table import Table
from phalanx.transaction.snapshot import Snapshot, Version

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
PATH = Parameter("path", "STRING", "a folder that all workers reach")
PARTITION_BY = Parameter(
    "partition_by", "STRING", "the fields of the new table; by default those of the source", "null"
)
FOLDERS = Parameter(
    "partition_by", "STRING", "columns that become folders; by default those of the table", "null"
)
OVERWRITE = Parameter("overwrite", "BOOLEAN", "replace what is there", "false")
WHERE = Parameter("where", "STRING", "which partitions: those that may hold such rows", "null")


@dataclass(frozen=True)
class Invocation:
    """One call of a procedure."""

    #: The name of the catalog.
    catalog: str
    warehouse: Warehouse
    #: The value of every parameter: SQL fills in defaults.
    arguments: Mapping[str, Any]
    cluster: Cluster
    #: The namespace of names that are of one part.
    namespace: Sequence[str] = ()
    #: The time zone of the session.
    zone: str = "UTC"

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def age(self, name: str) -> dt.timedelta | dt.datetime | None:
        """The value of a parameter that is a span of time, such as '7 days', or a time."""
        text = self[name]
        return None if text is None else moment_of(text, self.zone) or span_of(text)

    def version(self, name: str, table: Table) -> Version | None:
        """The value of a parameter that is a version: a number, a tag or a time."""
        text = self[name]
        return None if text is None else version_of(text, self.zone, table._snapshot)

    @property
    def parts(self) -> list[str]:
        """The name of the table in parts; a path is one. Raises InvalidInput without a name."""
        name = self.arguments.get(TABLE.name)
        if not name:
            raise InvalidInput("which table? Give table => 'namespace.name'")
        if "/" in name:
            return [name]
        parts = parts_of(name)
        return [*self.namespace, *parts] if len(parts) == 1 else self.warehouse.within(parts)

    @property
    def location(self) -> Location:
        """The place of the table, whether it is there or not."""
        return self.warehouse.existing(self.parts) or self.warehouse.location(self.parts)

    @property
    def new_location(self) -> Location:
        """The place of a table that is to be made. Raises InvalidInput without its namespace."""
        parts = self.parts
        *namespace, _ = parts
        if namespace and not self.warehouse.namespace_exists(namespace):
            name = ".".join(namespace)
            raise InvalidInput(f"the catalog has no namespace {name}: create it first")
        if self.warehouse.relation(parts, VIEW) is not None:
            raise InvalidInput(f"{'.'.join(parts)} is a view: choose another name for the table")
        return self.warehouse.existing(parts) or self.warehouse.location(self.warehouse.new(parts))

    @property
    def partition_by(self) -> list[str | CustomField] | None:
        """The fields to partition by; None if the call does not say."""
        text = self[PARTITION_BY.name]
        return None if text is None else [*entries_of(text)]

    def open(self) -> Table:
        """The table at its newest version. Raises TableNotFound."""
        try:
            return Table(Snapshot.latest(self.location))
        except TableNotFound:
            name = ".".join(self.parts)
            raise TableNotFound(
                f"the catalog has no table {name}: SHOW TABLES lists them"
            ) from None


@dataclass(frozen=True)
class Work:
    """What Spark's workers are to do before a procedure goes on."""

    #: Functions from nothing to one message, pickled as Spark's workers expect them.
    commands: Sequence[str]
    #: What the procedure must know then. Any worker may go on with it, so it is pickled.
    state: Any


class Procedure(ABC):
    """One procedure."""

    name: ClassVar[str]
    #: What it does, for DESCRIBE PROCEDURE.
    description: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]]
    #: The columns of its result, with their Spark types.
    result: ClassVar[Mapping[str, str]]
    #: Whether queries return other rows after it, so that what Spark has cached is outdated.
    changes_rows: ClassVar[bool] = False

    @abstractmethod
    def call(self, invocation: Invocation) -> Work | Rows:
        """Carry it out, or say what workers do first.

        Raises a PhalanxError where it cannot be done.
        """


class Distributed(Procedure):
    """A procedure that lets Spark's workers do the larger part, in one round or several."""

    @abstractmethod
    def go_on(self, state: Any, messages: Sequence[Any], cluster: Cluster) -> Work | Rows:
        """Continue after a round of work. `messages` are what the workers have returned."""


#: Procedures that return their report, line by line.
REPORT: Mapping[str, str] = {"report": "STRING"}


def report(text: object) -> Rows:
    """A report as rows."""
    return [{"report": line} for line in str(text).splitlines()]


def names_of(text: str | None) -> list[str] | None:
    """The columns of a list such as `x, y`; None if the call does not say."""
    return None if text is None else [n.strip().strip("`") for n in text.split(",") if n.strip()]


PROCEDURES: dict[str, Procedure] = {}
P = TypeVar("P", bound=type[Procedure])


def register(kind: P) -> P:
    """Make a procedure callable by its name."""
    PROCEDURES[kind.name] = kind()
    return kind


@operation(CatalogRequest)
def list_procedures(request: CatalogRequest) -> Reply:
    """Every procedure, with all that Spark wants to know of it."""
    return {
        "instead": dict(foreign.PROCEDURES),
        "procedures": [
            {
                "name": procedure.name,
                "description": procedure.description,
                "parameters": [
                    {"name": p.name, "type": p.type, "comment": p.comment}
                    | ({} if p.default is None else {"default": p.default})
                    for p in procedure.parameters
                ],
            }
            for procedure in PROCEDURES.values()
        ],
    }


@dataclass(frozen=True, kw_only=True)
class CallProcedure(CatalogRequest):
    """A procedure and its arguments; after a round of work, also its state and the messages."""

    name: str
    arguments: Mapping[str, Any]
    cluster: Cluster
    #: The current namespace, if the catalog is the current one.
    namespace: Sequence[str] = ()
    state: bytes | None = None
    messages: Sequence[bytes] = ()


@operation(CallProcedure)
def call_procedure(request: CallProcedure) -> Reply:
    """Carry a procedure out, or go on with it: its rows, or what workers do next."""
    procedure = PROCEDURES[request.name]
    invocation = Invocation(
        request.catalog.name,
        request.warehouse,
        request.arguments,
        request.cluster,
        request.namespace,
        request.zone,
    )
    if request.state is None:
        rows = procedure.call(invocation)
    else:
        assert isinstance(procedure, Distributed), procedure.name
        messages = [pickle.loads(message) for message in request.messages]
        rows = procedure.go_on(pickle.loads(request.state), messages, request.cluster)
    if isinstance(rows, Work):
        state = base64.b64encode(pickle.dumps(rows.state)).decode()
        return {"work": list(rows.commands), "state": state}
    types = {"BIGINT": "long", "STRING": "string", "BOOLEAN": "boolean"}
    changed = {"changed": invocation.parts} if procedure.changes_rows else {}
    return changed | {
        "rows": [[spelled(row[name]) for name in procedure.result] for row in rows],
        "schema": {
            "type": "struct",
            "fields": [
                {"name": name, "type": types[type], "nullable": True, "metadata": {}}
                for name, type in procedure.result.items()
            ],
        },
    }
