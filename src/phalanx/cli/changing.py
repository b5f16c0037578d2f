"""Commands that make tables, add rows, and change how a table is laid out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

import phalanx
from phalanx.cli.app import NamedTable, command, many, pairs, version_of
from phalanx.cli.types import schema_of
from phalanx.errors import InvalidInput
from phalanx.model.specs import entries_of
from phalanx.table.format import count_text
from phalanx.table.sources import is_file


@dataclass(frozen=True)
class Created:
    """A table that was made: anew, from another format, or from another client's table."""

    uri: str
    version: int
    partitions: int
    rows: int

    def __str__(self) -> str:
        return (
            f"{self.uri}: version {self.version} with {count_text(self.rows, 'row')} in "
            f"{count_text(self.partitions, 'partition')}"
        )


def _created(table: phalanx.Table) -> Created:
    return Created(table.uri, table.version, table.scan().plan().total, table.count())


@dataclass(frozen=True)
class Committed:
    """What one transaction has done."""

    uri: str
    version: int
    operation: str | None
    rows_added: int
    rows_removed: int
    leaves: int

    def __str__(self) -> str:
        added, removed = count_text(self.rows_added, "row"), count_text(self.rows_removed, "row")
        changed = count_text(self.leaves, "partition")
        return (
            f"{self.uri}: version {self.version}, {added} added and {removed} removed in {changed}"
        )


def _committed(table: phalanx.Table) -> Committed:
    (row,) = table.history().slice(0, 1).to_pylist()
    names = ("version", "operation", "rows_added", "rows_removed", "leaves")
    return Committed(table.uri, *(row[name] for name in names))


# create and append

_FIELDS_HELP = "such as country, 'days(ts)' or 'bucket(16, id)'"


@command(
    "create",
    "Load",
    examples=[
        "phalanx create lake/events 'id BIGINT NOT NULL' 'ts TIMESTAMP' 'country STRING' \\",
        "    --partition-by 'days(ts)' country",
        "phalanx create lake/events --from 'events/*.parquet' --partition-by 'days(ts)'",
    ],
    busy="creating the table",
)
@click.argument("columns", metavar="[COLUMN]...", nargs=-1)
@many("--partition-by", metavar="FIELD...", help=f"The partition fields, {_FIELDS_HELP}.")
@click.option("--from", "source", metavar="FILES", help="Take columns and rows from files.")
@pairs("--property", "properties", help="A table property, such as 'retention.snapshots=30 days'.")
@click.option("--weak", is_flag=True, help="Without atomic changes and time travel.")
@click.option("--layout", type=click.Choice(["flat", "hive"]), help="Where leaves are placed.")
def create(
    target: NamedTable,
    columns: tuple[str, ...],
    partition_by: tuple[str, ...],
    source: str | None,
    properties: dict[str, str],
    weak: bool,
    layout: str | None,
) -> Created:
    """Create a table: with columns as in SQL, or from files.

    FILES are a path or a glob of Parquet, CSV, JSON, Arrow or ORC files. Types are those of SQL,
    such as BIGINT, DOUBLE, STRING, TIMESTAMP, DATE, DECIMAL(10, 2), ARRAY<STRING> and VECTOR(768),
    or Arrow's.
    """
    file = next((word for word in columns if is_file(word)), None)
    if file is not None and source is None:
        raise InvalidInput(f"{file} is a file and no column: take its rows with --from {file}")
    if bool(columns) == (source is not None):
        raise InvalidInput("give the columns, such as 'id BIGINT', or take them --from files")
    table = phalanx.create(
        target.name,
        schema_of(columns) if source is None else source,
        _split(partition_by),
        "weak" if weak else "strong",
        dict(target.storage_options),
        properties,
        layout=layout,
    )
    return _created(table)


@command(
    "append",
    "Load",
    examples=[
        "phalanx append lake/events today.parquet",
        "phalanx append lake/events a.csv b.csv --transaction-id load-2025-12-31",
    ],
    busy="writing rows",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--merge-schema", is_flag=True, help="Add columns that the table does not have.")
@click.option("--transaction-id", help="A name: if it was committed before, nothing happens.")
def append(
    target: NamedTable, files: tuple[str, ...], merge_schema: bool, transaction_id: str | None
) -> Committed:
    """Add the rows of files, all of them in one transaction."""
    table = target.open()
    with table.transaction(transaction_id=transaction_id) as transaction:
        for file in files:
            transaction.append(file, merge_schema=merge_schema)
    return _committed(table)


# Other formats

_FORMAT = click.option(
    "--format",
    "format",
    type=click.Choice(["parquet", "delta"]),
    help="By default delta if PATH is a Delta table, and parquet otherwise.",
)
_UNPARTITIONED = click.option("--unpartitioned", is_flag=True, help="By nothing.")


def _fields(partition_by: Sequence[str], unpartitioned: bool) -> list[str] | None:
    """The partition fields of a command line; None if it does not say."""
    if partition_by and unpartitioned:
        raise click.UsageError("--partition-by and --unpartitioned exclude each other")
    return [] if unpartitioned else _split(partition_by) or None


def _split(fields: Sequence[str]) -> list[str]:
    """Partition fields, one or several of them in a word: `country 'days(ts), bucket(16, id)'`."""
    return [entry for field in fields for entry in entries_of(field)]


def _format(path: str, name: str | None) -> Any:
    """The module of the format that a command line names, or that the path shows."""
    is_delta = os.path.isdir(os.path.join(path, "_delta_log"))
    return getattr(phalanx.interop, name or ("delta" if is_delta else "parquet"))


@command(
    "import",
    "Load",
    examples=[
        "phalanx import lake/events warehouse/events_parquet",
        "phalanx import lake/events warehouse/events_delta --partition-by 'days(ts)'",
    ],
    busy="importing",
)
@click.argument("path")
@_FORMAT
@many("--partition-by", metavar="FIELD...", help="By default as the source is partitioned.")
@_UNPARTITIONED
def import_(
    target: NamedTable,
    path: str,
    format: str | None,
    partition_by: tuple[str, ...],
    unpartitioned: bool,
) -> Created:
    """Make a table from a folder of Parquet files or a Delta table."""
    table = _format(path, format).import_(
        path,
        target.name,
        _fields(partition_by, unpartitioned),
        storage_options=dict(target.storage_options),
    )
    return _created(table)


@command(
    "export",
    "Load",
    examples=[
        "phalanx export lake/events out/events",
        "phalanx export lake/events d --format delta",
    ],
    busy="exporting",
)
@click.argument("path")
@_FORMAT
@many("--partition-by", metavar="FIELD...", help="Columns that become folders.")
@_UNPARTITIONED
@click.option("--overwrite", is_flag=True, help="Replace what is there.")
def export(
    target: NamedTable,
    path: str,
    format: str | None,
    partition_by: tuple[str, ...],
    unpartitioned: bool,
    overwrite: bool,
) -> Any:
    """Write a table as Parquet files or as a Delta table."""
    fields = _fields(partition_by, unpartitioned)
    return _format(path, format).export(
        target.open(), path, partition_by=fields, overwrite=overwrite
    )


@command(
    "upgrade",
    "Load",
    examples=["phalanx upgrade lake/events", "phalanx upgrade lake/tree"],
    busy="upgrading",
)
@click.option(
    "--branches",
    type=click.Choice(["refuse", "copy"]),
    default="refuse",
    help="What to do with partitions that are read on a branch.",
)
def upgrade(target: NamedTable, branches: str) -> Created:
    """Turn a table that another client has made into a Phalanx table, without moving a row.

    That is a table of the earlier specification, or a tree of key=value folders with Lance datasets
    in it.
    """
    options = dict(target.storage_options)
    if target.open()._snapshot.manifest.is_listed:
        return _created(phalanx.interop.hive.adopt(target.name, storage_options=options))
    return _created(
        phalanx.interop.upgrade(target.name, branches=branches, storage_options=options)
    )


# evolve, rollback and tag


@dataclass(frozen=True)
class Partitioning:
    """How new rows are partitioned now."""

    uri: str
    version: int
    partition_by: tuple[str, ...]
    changed: bool

    def __str__(self) -> str:
        fields = ", ".join(self.partition_by) or "nothing"
        if not self.changed:
            return f"{self.uri}: partitioned by {fields} already, so nothing was changed"
        return f"{self.uri}: from version {self.version} on, partitioned by {fields}"


@dataclass(frozen=True)
class MadeStrong:
    """A table that has atomic changes and time travel."""

    uri: str
    version: int

    def __str__(self) -> str:
        return f"{self.uri}: strong, at version {self.version}"


@command(
    "evolve",
    "Change",
    examples=[
        "phalanx evolve lake/events 'hours(ts)' country",
        "phalanx evolve lake/events --unpartitioned",
    ],
    busy="changing the partitioning",
)
@click.argument("fields", metavar="[FIELD]...", nargs=-1)
@click.option("--unpartitioned", is_flag=True, help="By nothing: one leaf.")
@click.option("--strong", is_flag=True, help="Give a weak table atomic changes and time travel.")
def evolve(
    target: NamedTable, fields: tuple[str, ...], unpartitioned: bool, strong: bool
) -> Partitioning | MadeStrong:
    """Partition new rows in another way. Rows that are there stay until they are rewritten.

    A field is a column, or such as 'days(ts)', 'bucket(16, id)' or 'truncate(4, zip)'.
    """
    if bool(fields) + unpartitioned + strong != 1:
        raise click.UsageError("give partition fields, or one of --unpartitioned and --strong")
    table = target.open()
    if strong:
        table.make_strong()
        return MadeStrong(table.uri, table.version)
    before = table.spec.id
    partition_by = _split(fields)
    table.evolve_partitioning(partition_by)
    return Partitioning(table.uri, table.version, tuple(partition_by), table.spec.id != before)


@dataclass(frozen=True)
class RolledBack:
    """A table that has the rows of an earlier version again."""

    uri: str
    version: int
    #: The version whose rows it has.
    restored: int

    def __str__(self) -> str:
        return f"{self.uri}: version {self.version} has what version {self.restored} had"


@command(
    "rollback",
    "Change",
    examples=["phalanx rollback lake/events 41", "phalanx rollback lake/events before-the-load"],
)
@click.argument("version", metavar="VERSION")
def rollback(target: NamedTable, version: str) -> RolledBack:
    """Bring back the rows, the schema and the partitioning of an earlier version.

    VERSION is a number, a tag, or a time. This makes a new version: the others are kept.
    """
    restored = target.open(version).version
    table = target.open().rollback(restored)
    return RolledBack(table.uri, table.version, restored)


@dataclass(frozen=True)
class Tags:
    """The tags of a table."""

    uri: str
    tags: dict[str, int]

    def __str__(self) -> str:
        if not self.tags:
            return f"{self.uri} has no tags"
        return "\n".join(f"{name} -> {version}" for name, version in self.tags.items())


@command(
    "tag",
    "Change",
    examples=[
        "phalanx tag lake/events                       # list them",
        "phalanx tag lake/events before-the-load       # the newest version",
        "phalanx tag lake/events audited 41",
        "phalanx tag lake/events audited --drop",
    ],
)
@click.argument("name", metavar="[NAME]", required=False)
@click.argument("version", metavar="[VERSION]", required=False)
@click.option("--drop", is_flag=True, help="Remove the tag.")
def tag(target: NamedTable, name: str | None, version: str | None, drop: bool) -> Tags:
    """Give a version a name, which keeps it from expiring."""
    if drop and (name is None or version is not None):
        raise click.UsageError("--drop takes the name of a tag")
    table = target.open()
    if name is not None and drop:
        table.drop_tag(name)
    elif name is not None:
        table.tag(name, version_of(version))
    return Tags(table.uri, dict(sorted(table.tags().items())))
