"""Commands that read rows: scan, count, sql and search; and indexes, which make that faster."""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from rich.console import RenderableType

import phalanx
from phalanx.cli.app import (
    COUNT,
    POSITIVE,
    NamedTable,
    at_option,
    command,
    many,
    pairs,
    where_option,
)
from phalanx.cli.looking import ListedRows, filter_of
from phalanx.cli.output import note, show, working
from phalanx.cli.rows import show_rows
from phalanx.errors import InvalidInput, PhalanxError
from phalanx.table.engines import ArrowDataset, DatasetFragment, Scanner
from phalanx.table.format import count_text

# scan and count


@command(
    "scan",
    "Query",
    examples=[
        "phalanx scan lake/events --where \"country = 'US'\" --columns id ts --limit 20",
        "phalanx scan lake/events --json | jq '.[].id'",
    ],
    busy="reading rows",
    prints_itself=True,
)
@where_option("Only rows that match.")
@many("--columns", metavar="COLUMN...", help="Only these columns.")
@click.option("--limit", type=COUNT, help="How many rows; by default 100, and all with --json.")
@at_option
def scan(
    target: NamedTable,
    where: str | None,
    columns: tuple[str, ...],
    limit: int | None,
    version: str | None,
    as_json: bool,
) -> None:
    """Print rows."""
    rows = target.open(version).scan(list(columns) or None, filter_of(where), limit)
    show_rows(rows.to_batches(), rows.schema, as_json, limit)


@dataclass(frozen=True)
class Count:
    """How many rows match."""

    count: int

    def __str__(self) -> str:
        return str(self.count)


@dataclass(frozen=True)
class CountedGroups:
    """How many rows match, by groups."""

    rows: pa.Table

    def to_json(self) -> Any:
        return ListedRows(self.rows, self.rows.num_rows).to_json()

    def __rich_console__(self, *_: Any) -> Iterator[RenderableType]:
        yield ListedRows(self.rows, self.rows.num_rows)


@command(
    "count",
    "Query",
    examples=["phalanx count lake/events", 'phalanx count lake/events "ts >= now()" --by country'],
    busy="counting",
)
@click.argument("where", metavar="[FILTER]", required=False)
@many("--by", metavar="COLUMN...", help="For each value of these columns or partition fields.")
@at_option
def count(
    target: NamedTable, where: str | None, by: tuple[str, ...], version: str | None
) -> Count | CountedGroups:
    """Count rows, from the manifest where partition values decide the filter."""
    table = target.open(version)
    if by:
        return CountedGroups(table.count_by(list(by), filter_of(where)))
    return Count(table.count(filter_of(where)))


# sql


class Watched(ArrowDataset):
    """A table for DataFusion that keeps what it was asked for when a query was planned."""

    def __init__(self, table: phalanx.Table) -> None:
        super().__init__(table._snapshot)
        self.scanners: list[Scanner] = []

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Scanner:
        scanner = DatasetFragment(self).scanner(None, columns, filter)
        self.scanners.append(scanner)
        return scanner


@dataclass(frozen=True)
class TableRead:
    """What a query reads of one table."""

    table: str
    columns: tuple[str, ...]
    partitions: int
    total: int
    rows: int | None

    def __str__(self) -> str:
        rows = "" if self.rows is None else f", {count_text(self.rows, 'row')}"
        return f"{self.table}: {self.partitions:,} of {self.total:,} partitions{rows}"


@dataclass(frozen=True)
class QueryPlan:
    """What a query reads, and how DataFusion runs it."""

    reads: tuple[TableRead, ...]
    plan: str

    def __str__(self) -> str:
        return "\n".join([*map(str, self.reads), self.plan.rstrip()])


def _reads(tables: Mapping[str, Watched]) -> tuple[TableRead, ...]:
    names: dict[Watched, str] = {}
    for name, table in tables.items():
        names[table] = name
    reads = []
    for table, name in names.items():
        for scanner in table.scanners:
            plan = scanner.scan.plan()
            columns = tuple(scanner.projected_schema.names)
            reads.append(TableRead(name, columns, plan.selected, plan.total, plan.rows))
    return tuple(reads)


def name_of(uri: str) -> str:
    """What a query calls a table: the last part of its path, as an identifier."""
    last = posixpath.basename(uri.replace("\\", "/").rstrip("/")) or "t"
    return re.sub(r"\W", "_", last.removesuffix(".lance")) or "t"


def planned(query: str, tables: Mapping[str, Watched]) -> Any:
    """A query as a DataFrame of DataFusion. Raises InvalidInput for one that cannot be planned.

    Statements that change something, or reach for files, are refused: a query only reads tables.
    """
    import datafusion  # most commands do without it

    context = datafusion.SessionContext()
    for name, table in tables.items():
        context.register_dataset(name, table)
    only_reads = datafusion.SQLOptions()
    for allow in ("with_allow_ddl", "with_allow_dml", "with_allow_statements"):
        only_reads = getattr(only_reads, allow)(False)
    with _naming_errors("the query was refused"):
        return context.sql_with_options(query, only_reads)


@contextlib.contextmanager
def _naming_errors(what: str) -> Iterator[None]:
    """Errors of DataFusion as one sentence. It has no class of its own for them."""
    try:
        yield
    except (PhalanxError, BrokenPipeError):
        raise
    except Exception as error:
        raise InvalidInput(f"{what}: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return re.sub(r"^(DataFusion error: )?", "", text.splitlines()[0])


@command(
    "sql",
    "Query",
    examples=[
        'phalanx sql lake/events "SELECT country, count(*) FROM events GROUP BY country"',
        'phalanx sql lake/events "SELECT * FROM events JOIN people USING (id)" \\',
        "    --with people=lake/people",
    ],
    busy="running the query",
    prints_itself=True,
)
@click.argument("query")
@pairs("--with", "others", metavar="NAME=TABLE", help="Another table for the query.")
@click.option("--limit", type=COUNT, help="How many rows; by default 100, and all with --json.")
@click.option("--explain", is_flag=True, help="Only say which partitions the query would read.")
@at_option
def sql(
    target: NamedTable,
    query: str,
    others: dict[str, str],
    limit: int | None,
    explain: bool,
    version: str | None,
    as_json: bool,
) -> None:
    """Run a SQL query with DataFusion, without Spark.

    The table is called by the last part of its path (events for s3://bucket/events), and also t.
    Filters and columns are pushed down, so that only the partitions that are needed are read.
    """
    own = Watched(target.open(version))
    tables = {"t": own, name_of(target.name): own}
    for name, uri in others.items():
        tables[name] = Watched(NamedTable(uri, target.storage_options).open())
    frame = planned(query, tables)
    if explain:
        with _naming_errors("the query was refused"):
            plan = frame.execution_plan().display_indent()
        show(QueryPlan(_reads(tables), plan), as_json)
        return
    if limit is not None:
        frame = frame.limit(limit)
    with _naming_errors("the query failed"):
        batches = (batch.to_pyarrow() for batch in frame.execute_stream())
        show_rows(batches, frame.schema(), as_json, limit)
    if not as_json:
        for read in _reads(tables):
            note(f"read {read}")


# search


@command(
    "search",
    "Query",
    examples=[
        "phalanx search lake/docs 'partitioned tables' --column body",
        "phalanx search lake/docs --vector '[0.1, 0.2, 0.3]' -k 5 --where \"tenant = 'acme'\"",
        "phalanx search lake/docs --vector @query.json",
    ],
    busy="searching",
    prints_itself=True,
)
@click.argument("text", metavar="[TEXT]", required=False)
@click.option("--vector", metavar="JSON|@FILE", help="Numbers as JSON, or a file with them.")
@click.option("--column", help="The column to search, if there are several.")
@click.option("-k", type=POSITIVE, default=10, show_default=True, help="How many rows.")
@where_option("Only among rows that match.")
@many("--columns", metavar="COLUMN...", help="Only these columns.")
@click.option("--exact", is_flag=True, help="Compare with all vectors, without an index.")
@at_option
def search(
    target: NamedTable,
    text: str | None,
    vector: str | None,
    column: str | None,
    k: int,
    where: str | None,
    columns: tuple[str, ...],
    exact: bool,
    version: str | None,
    as_json: bool,
) -> None:
    """Find the rows that match a text best, or are nearest to a vector, or both."""
    if text is None and vector is None:
        raise InvalidInput("say what to search for: a text, or --vector")
    rows = target.open(version).search(
        None if vector is None else _vector(vector),
        column,
        k,
        filter_of(where),
        list(columns) or None,
        text=text,
        use_index=not exact,
    )
    show_rows(rows.to_batches(), rows.schema, as_json, k)


def _vector(text: str) -> list[float]:
    """Numbers in JSON, or in a file of JSON. Raises InvalidInput for anything else."""
    try:
        content = Path(text[1:]).read_text() if text.startswith("@") else text
        numbers = json.loads(content)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"the vector cannot be read: {error}") from None
    if not isinstance(numbers, list) or not numbers:
        raise InvalidInput("a vector is a JSON list of numbers, such as '[0.1, 0.2]'")
    return numbers


# index


@command(
    "index",
    "Change",
    examples=[
        "phalanx index lake/docs                     # list them",
        "phalanx index lake/docs id BTREE",
        "phalanx index lake/docs v IVF_PQ --set metric=cosine --set num_partitions=64",
        "phalanx index lake/docs --refresh",
        "phalanx index lake/docs --drop v_idx",
    ],
    prints_itself=True,
)
@click.argument("column", metavar="[COLUMN]", required=False)
@click.argument("kind", metavar="[KIND]", required=False)
@click.option("--name", help="The name of the index; by default the column's with _idx.")
@where_option("Only leaves that may hold such rows.")
@click.option("--min-rows", type=int, help="Leave out leaves with fewer rows.")
@pairs("--set", "parameters", help="A parameter of the index, such as metric=cosine.")
@click.option("--refresh", is_flag=True, help="Build what indexes lack.")
@click.option("--drop", metavar="NAME", help="Drop an index.")
def index(
    target: NamedTable,
    column: str | None,
    kind: str | None,
    name: str | None,
    where: str | None,
    min_rows: int | None,
    parameters: dict[str, str],
    refresh: bool,
    drop: str | None,
    as_json: bool,
) -> None:
    """List indexes, create one, bring them up to date, or drop one.

    KIND is BTREE, BITMAP, ZONEMAP, BLOOMFILTER, NGRAM or LABEL_LIST for filters, INVERTED for text,
    and IVF_FLAT, IVF_SQ, IVF_PQ, IVF_RQ, IVF_HNSW_FLAT, IVF_HNSW_SQ or IVF_HNSW_PQ for vectors.
    """
    if (column is None) != (kind is None):
        raise InvalidInput("name a column and a kind of index, such as 'id BTREE'")
    if sum((column is not None, refresh, drop is not None)) > 1:
        raise InvalidInput("create an index, --refresh or --drop: one at a time")
    table = target.open()
    if column is not None and kind is not None:
        values = {key: _parameter(value) for key, value in parameters.items()}
        with working(f"building {kind} on {column}"):
            report = table.create_index(column, kind, name, where, min_rows=min_rows, **values)
        show(report, as_json, target.name)
    elif refresh:
        with working("building what indexes lack"):
            report = table.refresh_indexes(name, where)
        show(report, as_json, target.name)
    else:
        if drop is not None:
            table.drop_index(drop)
        rows = table.indexes()
        show(ListedRows(rows, rows.num_rows), as_json)


def _parameter(text: str) -> Any:
    """A parameter as JSON if it is some, such as 64 or true; as text otherwise."""
    try:
        return json.loads(text)
    except ValueError:
        return text
