"""Commands that look at a table and change nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text
from rich.tree import Tree

import phalanx
from phalanx.cli.app import (
    COUNT,
    POSITIVE,
    NamedTable,
    at_option,
    command,
    many,
    version_of,
    where_option,
)
from phalanx.cli.output import bar, facts, grid, plain
from phalanx.cli.rows import show_rows
from phalanx.errors import InvalidInput
from phalanx.table.cells import cell_text, harmless, rows_of
from phalanx.table.describe import Description, description_of
from phalanx.table.diff import Difference
from phalanx.table.format import count_text, size_text
from phalanx.table.plan import Plan
from phalanx.table.pruning_steps import PruningSteps
from phalanx.table.tree import MEASURES, PartitionTree, TreeNode

#: From how many times the median on the largest leaf is called skewed.
_SKEWED = 10.0


def filter_of(text: str | None) -> str | None:
    """A filter as people write it after a query: the word WHERE may stand before it.

    Raises InvalidInput for a whole query.
    """
    if text is None:
        return None
    word, *rest = text.split(maxsplit=1) or [""]
    if word.upper() == "SELECT":
        raise InvalidInput(
            "a filter is what stands after WHERE in a query, such as \"country = 'US'\"; whole "
            "queries are for `phalanx sql`, which explains them with --explain"
        )
    return rest[0] if word.upper() == "WHERE" and rest else text


# info and schema


@dataclass(frozen=True)
class Info:
    """The facts about a table."""

    description: Description

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self.description)

    def __rich_console__(self, *_: Any) -> Iterator[RenderableType]:
        yield Text(harmless(self.description.uri), style="bold")
        yield facts(_facts(self.description))


def _facts(table: Description) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "version": f"{table.version:,}, committed {table.committed_at:%Y-%m-%d %H:%M:%S} UTC",
        "transactions": table.transactions,
        "partitioned by": ", ".join(table.partition_by) or "nothing",
        "rows": "unknown" if table.rows is None else f"{table.rows:,}",
        "size": "unknown" if table.bytes is None else size_text(table.bytes),
        "partitions": f"{table.leaves:,}",
        "files": "unknown" if table.files is None else f"{table.files:,}",
        "columns": ", ".join(column.name for column in table.columns),
    }
    if table.layout != "flat":
        shown["layout"] = table.layout
    if len(table.specs) > 1:
        shown["specs"] = ", ".join(
            f"v{spec.id} ({count_text(spec.leaves, 'leaf')})" for spec in table.specs
        )
    if table.tags:
        shown["tags"] = ", ".join(f"{name} -> {version}" for name, version in table.tags.items())
    if table.indexes:
        shown["indexes"] = ", ".join(f"{name} ({kind})" for name, kind in table.indexes.items())
    for name, value in table.properties.items():
        shown[name] = value
    return {name: cell_text(value, None) for name, value in shown.items()}


@command(
    "info",
    "Look",
    examples=["phalanx info lake/events", "phalanx info s3://bucket/events --json"],
    busy="reading the manifest",
)
@at_option
def info(target: NamedTable, version: str | None) -> Info:
    """Say how large a table is, and how it is partitioned."""
    return Info(description_of(target.open(version)._snapshot))


@dataclass(frozen=True)
class Schema:
    """The columns of a table, and its partition specs."""

    description: Description

    def to_json(self) -> dict[str, Any]:
        shown = dataclasses.asdict(self.description)
        return {key: shown[key] for key in ("uri", "version", "columns", "specs")}

    def __rich_console__(self, *_: Any) -> Iterator[RenderableType]:
        yield grid(
            ("id", "column", "type", "null", "default", "partitioned by"),
            (
                (
                    column.id,
                    column.name,
                    column.type,
                    "" if column.nullable else "NOT NULL",
                    column.default or "",
                    ", ".join(column.partition_fields),
                )
                for column in self.description.columns
            ),
            ["id"],
        )
        for spec in self.description.specs:
            state = "for new rows" if spec.is_current else "earlier"
            fields = ", ".join(field.spelled for field in spec.fields) or "nothing"
            text = f"spec v{spec.id} ({state}, {count_text(spec.leaves, 'leaf')}): {fields}"
            yield plain(text)


@command("schema", "Look", examples=["phalanx schema lake/events --at 3"])
@at_option
def schema(target: NamedTable, version: str | None) -> Schema:
    """List the columns with their ids, and the partition specs."""
    return Schema(description_of(target.open(version)._snapshot))


# head


@command(
    "head",
    "Look",
    examples=["phalanx head lake/events", "phalanx head lake/events -n 3 --columns id country"],
    busy="reading rows",
    prints_itself=True,
)
@click.option("-n", "--rows", type=COUNT, default=10, show_default=True, help="How many.")
@many("--columns", metavar="COLUMN...", help="Only these columns.")
@at_option
def head(
    target: NamedTable, rows: int, columns: tuple[str, ...], version: str | None, as_json: bool
) -> None:
    """Show the first rows."""
    scan = target.open(version).scan(list(columns) or None, limit=rows)
    show_rows(scan.to_batches(), scan.schema, as_json, rows)


# describe


@dataclass(frozen=True)
class PartitionView:
    """The partition tree of a table, as far as it is shown."""

    description: Description
    tree: PartitionTree
    by: str
    depth: int
    limit: int

    def to_json(self) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self.description),
            "tree": [self._json(node) for node in self.tree.roots()],
        }

    def _json(self, node: TreeNode) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": node.name, "field": node.field, "value": node.value}
        shown |= {name: node.measure(name) for name in MEASURES}
        shown["skew"] = node.skew
        if node.depth < self.depth and not node.is_leaf:
            below = self.tree.children(node, self.by, self.limit)
            shown["children"] = [self._json(child) for child in below.nodes]
            if below.more:
                shown["more"] = {"nodes": below.more, **below.rest}
        return shown

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        yield Text(harmless(self.description.uri), style="bold")
        yield facts(_facts(self.description))
        roots = self.tree.roots()
        total = sum(root.measure(self.by) for root in roots)
        for root in roots:
            yield Text()
            tree = Tree(self._line(root, total), guide_style="dim")
            self._grow(tree, root, total)
            yield tree

    def _grow(self, tree: Tree, parent: TreeNode, total: int) -> None:
        if parent.depth >= self.depth or parent.is_leaf:
            return
        below = self.tree.children(parent, self.by, self.limit)
        for node in below.nodes:
            self._grow(tree.add(self._line(node, total)), node, total)
        if below.more:
            rest = f"… {below.more:,} more with {below.rest['rows']:,} rows in "
            tree.add(Text(rest + count_text(below.rest["leaves"], "leaf"), style="dim"))

    def _line(self, node: TreeNode, total: int) -> Text:
        line = Text(cell_text(node.name), style="" if node.depth else "bold")
        line.append("  ")
        line.append(bar(node.measure(self.by) / total if total else 0, 16), style="cyan")
        rows = "? rows" if node.unknown else count_text(node.rows, "row")
        size = "" if node.unknown else f", {size_text(node.bytes)}"
        line.append(f"  {rows}{size}", style="dim")
        if not node.is_leaf:
            line.append(f", {count_text(node.leaves, 'leaf')}", style="dim")
            if node.skew is not None and node.skew >= _SKEWED:
                line.append(f"  skewed: the largest has {node.skew:,.0f}x the median", "yellow")
        return line


@command(
    "describe",
    "Look",
    examples=["phalanx describe lake/events", "phalanx describe lake/events --by bytes --depth 2"],
    busy="reading the manifest",
)
@click.option("--by", type=click.Choice(MEASURES), default="rows", help="What bars are for.")
@click.option("--depth", type=COUNT, default=3, show_default=True, help="How many levels to show.")
@click.option("--limit", type=POSITIVE, default=10, show_default=True, help="How many siblings.")
@at_option
def describe(
    target: NamedTable, by: str, depth: int, limit: int, version: str | None
) -> PartitionView:
    """Draw the partition tree, with rows, bytes and skew."""
    snapshot = target.open(version)._snapshot
    tree = PartitionTree(snapshot)
    return PartitionView(description_of(snapshot), tree, by, depth, limit)


# partitions


@dataclass(frozen=True)
class ListedRows:
    """Rows of metadata: partitions, snapshots or indexes."""

    rows: pa.Table
    #: How many there are, if not all are listed.
    total: int
    #: Columns that only machines get.
    hidden: tuple[str, ...] = ()

    def to_json(self) -> list[dict[str, Any]]:
        return [row for batch in self.rows.to_batches() for row in rows_of(batch)]

    def __rich_console__(self, *_: Any) -> Iterator[RenderableType]:
        schema = self.rows.schema
        numbers = [field.name for field in schema if pa.types.is_integer(field.type)]
        shown = [name for name in schema.names if name not in self.hidden]
        rows = ([_measure(name, row[name]) for name in shown] for row in self.to_json())
        yield grid(shown, rows, numbers)
        if self.total > self.rows.num_rows:
            yield Text(f"{self.rows.num_rows:,} of {self.total:,}: give --limit for more", "dim")


#: Columns that hold numbers of things.
_COUNTS = {"rows", "fragments", "count", "leaves", "rows_added", "rows_removed", "rows_indexed"}
_COUNTS |= {"rows_unindexed", "leaves_indexed", "leaves_behind", "min_rows"}


def _measure(name: str, value: Any) -> Any:
    """A number of things or bytes as people read it."""
    if isinstance(value, int) and name in _COUNTS:
        return f"{value:,}"
    return size_text(value) if isinstance(value, int) and name == "bytes" else value


@command(
    "partitions",
    "Look",
    examples=[
        "phalanx partitions lake/events",
        "phalanx partitions lake/events --where \"country = 'US'\" --sort-by bytes --limit 5",
    ],
    busy="reading the manifest",
)
@where_option("Only partitions that may hold such rows.")
@click.option(
    "--sort-by", type=click.Choice(["rows", "bytes", "fragments"]), help="The largest first."
)
@click.option("--limit", type=COUNT, help="How many; by default 50, and all with --json.")
@at_option
def partitions(
    target: NamedTable,
    where: str | None,
    sort_by: str | None,
    limit: int | None,
    version: str | None,
) -> ListedRows:
    """List the partitions, one row each, with their sizes.

    With --json, also the URI of each leaf and its version.
    """
    table = target.open(version)
    plan = table.scan(where=filter_of(where)).plan()
    rows = table.partitions().take(pa.array(plan.indices))
    if sort_by is not None:
        rows = rows.sort_by([(sort_by, "descending")])
    if limit is None:
        limit = rows.num_rows if click.get_current_context().params["as_json"] else 50
    return ListedRows(rows.slice(0, limit), rows.num_rows, ("version", "uri"))


# explain


@dataclass(frozen=True)
class Explanation:
    """Which leaves a filter selects, and why the others are left out."""

    plan: Plan
    steps: PruningSteps
    limit: int

    def to_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "uri": plan.snapshot.location.uri,
            "version": plan.snapshot.sequence,
            "total": plan.total,
            "selected": plan.selected,
            "pruned": plan.pruned,
            "rows": plan.rows,
            "bytes": plan.bytes,
            "steps": [
                {
                    "spec": step.spec.id,
                    "field": None if step.field is None else step.field.field_id,
                    "transform": step.spelled,
                    "condition": step.condition_text,
                    "before": step.before,
                    "after": step.after,
                    "rows_pruned": step.rows_pruned,
                    "bytes_pruned": step.bytes_pruned,
                }
                for step in self.steps.steps
            ],
            "leaves": [
                {
                    "partition": plan.name_of(leaf.row),
                    "uri": leaf.uri,
                    "rows": leaf.rows,
                    "residual": leaf.residual,
                }
                for leaf in plan.first_leaves(self.limit)
            ],
            "pruned_leaves": [
                {"partition": plan.name_of(row), "rows": row.row_count, "reason": reason}
                for row, reason in self._pruned()
            ],
        }

    def _pruned(self) -> Iterator[tuple[Any, str | None]]:
        return self.steps.reasons(np.flatnonzero(self.steps.pruned_at >= 0)[: self.limit])

    def __rich_console__(self, *_: Any) -> Iterator[RenderableType]:
        plan = self.plan
        yield plain(plan.explain().split("\n    ")[0])
        if self.steps.steps and plan.pruned:
            yield Text()
            yield grid(
                ("spec", "field", "filter", "leaves", "left", "", "rows pruned", "size pruned"),
                (
                    (
                        f"v{step.spec.id}",
                        step.spelled or "(none)",
                        step.condition_text or "(says nothing about it)",
                        f"{step.before:,}",
                        f"{step.after:,}",
                        bar(step.after / step.before if step.before else 0, 12),
                        f"{step.rows_pruned:,}",
                        size_text(step.bytes_pruned),
                    )
                    for step in self.steps.steps
                ),
                ["leaves", "left", "rows pruned", "size pruned"],
            )
        yield Text()
        for leaf in plan.first_leaves(self.limit):
            line = Text("  read    ", style="green")
            line.append(cell_text(plan.short_name_of(leaf.row), 100), style="default")
            rows = "? rows" if leaf.rows is None else count_text(leaf.rows, "row")
            line.append(f"  {rows}", style="dim")
            if leaf.residual is not None:
                line.append(f"  filter: {cell_text(leaf.residual, 100)}", style="dim")
            yield line
        if plan.selected > self.limit:
            yield Text(f"          … and {plan.selected - self.limit:,} more", style="dim")
        for row, reason in self._pruned():
            line = Text("  pruned  ", style="red")
            line.append(cell_text(plan.short_name_of(row), 100), style="dim")
            line.append(f"  {cell_text(reason, 160)}", style="dim")
            yield line
        if plan.pruned > self.limit:
            yield Text(f"          … and {plan.pruned - self.limit:,} more", style="dim")


@command(
    "explain",
    "Query",
    examples=["phalanx explain lake/events \"WHERE country = 'US' AND ts >= '2025-06-01'\""],
    busy="reading the manifest",
)
@click.argument("where", metavar="FILTER")
@click.option("--limit", type=COUNT, default=5, show_default=True, help="How many leaves to name.")
@at_option
def explain(target: NamedTable, where: str, limit: int, version: str | None) -> Explanation:
    """Show which partitions a filter leaves to read, and why the others are pruned."""
    plan = target.open(version).scan(where=filter_of(where)).plan()
    return Explanation(plan, PruningSteps(plan), limit)


# snapshots and diff


@command(
    "snapshots",
    "Look",
    examples=["phalanx snapshots lake/events --limit 5"],
    busy="reading the manifest",
)
@click.option("--limit", type=COUNT, help="How many; by default 20, and all with --json.")
def snapshots(target: NamedTable, limit: int | None) -> ListedRows:
    """List the versions of a table, newest first: when and by what they were made."""
    table = target.open()
    rows = table.history()
    names: dict[int, list[str]] = {}
    for name, version in sorted(table.tags().items()):
        names.setdefault(version, []).append(name)
    tags = [", ".join(names.get(version, [])) or None for version in rows["version"].to_pylist()]
    rows = rows.append_column("tags", pa.array(tags, pa.string()))
    if limit is None:
        limit = rows.num_rows if click.get_current_context().params["as_json"] else 20
    times = pc.cast(rows["committed_at"], pa.timestamp("s", "UTC"), safe=False)
    rows = rows.set_column(rows.schema.names.index("committed_at"), "committed_at", times)
    return ListedRows(rows.slice(0, limit), rows.num_rows, ("transaction_id",))


@command(
    "diff",
    "Look",
    examples=["phalanx diff lake/events 3", "phalanx diff lake/events 2025-12-01 2025-12-31"],
    busy="reading two manifests",
)
@click.argument("before", metavar="VERSION")
@click.argument("after", metavar="[VERSION]", required=False)
def diff(target: NamedTable, before: str, after: str | None) -> Difference:
    """Compare two versions, or one with the newest: partitions, columns, properties.

    A version is a number, a tag, or a time.
    """
    table: phalanx.Table = target.open()
    first = version_of(before)
    assert first is not None
    return table.diff(first, version_of(after))
