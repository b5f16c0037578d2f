"""The `phalanx` command: upkeep of tables, and other formats, from a shell or a timer.

Each command opens one table, calls the method of the same name and prints its report: as text, or
as JSON for machines. It exits with 1 when a call was refused, or when check or repair leave damage;
with 2 when the command line is wrong; and with 0 otherwise.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import phalanx
from phalanx.errors import PhalanxError
from phalanx.model.properties import span_of
from phalanx.table.format import count_text

if TYPE_CHECKING:
    # `phalanx --help` need not load what a table can do.
    from phalanx.table.advise import Action, Advice, BetterSpec, Finding

Arguments = argparse.Namespace


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns what the process exits with."""
    arguments = _parser().parse_args(argv)
    try:
        report = arguments.run(arguments)
    except PhalanxError as error:
        print(f"phalanx: {error}", file=sys.stderr)
        return 1
    _show(_json(report) if arguments.json else str(report))
    return 0 if arguments.run not in (_check, _repair) or report.ok else 1


def _show(text: str) -> None:
    """Print a text. The reader may stop before its end, as `head` does."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python flushes the rest when it exits: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open(arguments: Arguments) -> phalanx.Table:
    return phalanx.open(arguments.table, storage_options=dict(arguments.storage_option))


@dataclasses.dataclass(frozen=True)
class ShownAdvice:
    """Advice that says what to do as commands of this kind."""

    #: The table, as the command line names it.
    table: str
    advice: Advice

    @property
    def ok(self) -> bool:
        return self.advice.ok

    def __str__(self) -> str:
        return self.advice.text(self._command)

    def _command(self, action: Action) -> str:
        """The command for an action; a call in Python where there is none."""
        words = ["phalanx", _VERBS.get(action.verb, action.verb), self.table]
        for name, values in action.arguments.items():
            if not all(isinstance(value, str) for value in values):
                return f"{action}  # in Python: a command cannot name a field that is an expression"
            if name == "partition_by":
                words += values or ["--unpartitioned"]
            else:
                words += [f"--{name.replace('_', '-')}", *values]
        return shlex.join(words)

    def to_json(self) -> dict[str, Any]:
        shown = dataclasses.asdict(self.advice)
        parts: list[tuple[dict[str, Any], Finding | BetterSpec]] = [
            *zip(shown["findings"], self.advice.findings, strict=True)
        ]
        if self.advice.better is not None:
            parts.append((shown["better"], self.advice.better))
        for part, advised in parts:
            part["actions"] = [dataclasses.asdict(action) for action in advised.actions]
            part["python"] = advised.python
            part["commands"] = [self._command(action) for action in advised.actions]
        return shown


#: Methods whose commands have other names.
_VERBS = {"evolve_partitioning": "evolve"}


def _advise(arguments: Arguments) -> object:
    bounds = {} if arguments.leaf_bytes is None else {"leaf_bytes": arguments.leaf_bytes}
    return ShownAdvice(arguments.table, _open(arguments).advise(**bounds))


@dataclasses.dataclass(frozen=True)
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


def _evolve(arguments: Arguments) -> object:
    table = _open(arguments)
    before = table.spec.id
    table.evolve_partitioning(arguments.fields)
    return Partitioning(table.uri, table.version, tuple(arguments.fields), table.spec.id != before)


def _optimize(arguments: Arguments) -> object:
    return _open(arguments).optimize(
        arguments.where,
        arguments.target_rows,
        arguments.target_bytes,
        arguments.dry_run,
        sort_by=arguments.sort_by,
        zorder_by=arguments.zorder_by,
    )


def _rewrite(arguments: Arguments) -> object:
    return _open(arguments).rewrite(
        arguments.where,
        step_rows=arguments.step_rows,
        step_bytes=arguments.step_bytes,
        max_steps=arguments.max_steps,
        dry_run=arguments.dry_run,
    )


def _expire(arguments: Arguments) -> object:
    return _open(arguments).expire_snapshots(_age(arguments), arguments.dry_run)


def _vacuum(arguments: Arguments) -> object:
    return _open(arguments).vacuum(_age(arguments), arguments.dry_run, arguments.force)


def _age(arguments: Arguments) -> dt.timedelta | None:
    return None if arguments.older_than is None else span_of(arguments.older_than)


@dataclasses.dataclass(frozen=True)
class Imported:
    """A table that was made from another format, or from another client's table."""

    uri: str
    version: int
    partitions: int
    rows: int

    def __str__(self) -> str:
        return (
            f"{self.uri}: version {self.version} with {count_text(self.rows, 'row')} in "
            f"{count_text(self.partitions, 'partition')}"
        )


def _import(arguments: Arguments) -> object:
    table = _format(arguments).import_(
        arguments.path,
        arguments.table,
        [] if arguments.unpartitioned else arguments.partition_by,
        storage_options=dict(arguments.storage_option),
    )
    return Imported(table.uri, table.version, table.scan().plan().total, table.count())


def _upgrade(arguments: Arguments) -> object:
    table = phalanx.interop.upgrade(
        arguments.table,
        branches=arguments.branches,
        storage_options=dict(arguments.storage_option),
    )
    return Imported(table.uri, table.version, table.scan().plan().total, table.count())


def _export(arguments: Arguments) -> object:
    return _format(arguments).export(
        _open(arguments),
        arguments.path,
        partition_by=[] if arguments.unpartitioned else arguments.partition_by,
        overwrite=arguments.overwrite,
    )


def _format(arguments: Arguments) -> Any:
    """The module of the format that a command line names, or that the path shows."""
    is_delta = os.path.isdir(os.path.join(arguments.path, "_delta_log"))
    name = arguments.format or ("delta" if is_delta else "parquet")
    return getattr(phalanx.interop, name)


def _check(arguments: Arguments) -> object:
    return phalanx.check(arguments.table, dict(arguments.storage_option))


def _repair(arguments: Arguments) -> object:
    options = dict(arguments.storage_option)
    return phalanx.repair(arguments.table, arguments.dry_run, options, stray=arguments.stray)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="phalanx",
        description="Upkeep of partitioned Lance tables, and other formats in and out.",
        epilog="'phalanx COMMAND --help' says what a command takes.",
    )
    parser.add_argument("--version", action="version", version=f"phalanx {phalanx.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(
        name: str, run: Callable[[Arguments], object], text: str
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        added.add_argument(
            "table", metavar="TABLE", help="a path or URI, such as s3://bucket/table"
        )
        added.add_argument(
            "--storage-option",
            metavar="KEY=VALUE",
            type=_pair,
            action="append",
            default=[],
            help="an option of the object store; give secrets in its environment variables",
        )
        added.add_argument("--json", action="store_true", help="print the report as JSON")
        return added

    def dry_run(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")

    def where(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--where", metavar="FILTER", help="take partitions that may hold such rows"
        )

    def number(parser: argparse.ArgumentParser, name: str, text: str) -> None:
        parser.add_argument(name, metavar="N", type=int, help=text)

    advise = command("advise", _advise, "Say which partitions are too small, too large or skewed.")
    number(advise, "--leaf-bytes", "how large a leaf should be (512 MiB)")

    evolve = command("evolve", _evolve, "Partition new rows in another way.")
    partitioning = evolve.add_mutually_exclusive_group(required=True)
    partitioning.add_argument(
        "fields",
        metavar="FIELD",
        nargs="*",
        default=[],
        help="such as country, 'days(ts)' or 'bucket(16, id)'",
    )
    partitioning.add_argument("--unpartitioned", action="store_true", help="by nothing: one leaf")

    optimize = command(
        "optimize", _optimize, "Put the rows of each partition into fewer, larger files."
    )
    where(optimize)
    number(optimize, "--target-rows", "rows of a file (1,048,576)")
    number(optimize, "--target-bytes", "bytes of a file (128 MiB)")
    optimize.add_argument(
        "--sort-by", metavar="COLUMN", nargs="+", help="sort the rows of each leaf"
    )
    optimize.add_argument(
        "--zorder-by", metavar="COLUMN", nargs="+", help="cluster them by several columns"
    )
    dry_run(optimize)

    rewrite = command("rewrite", _rewrite, "Move rows of earlier specs into the newest partitions.")
    where(rewrite)
    number(rewrite, "--step-rows", "rows of one transaction (67,108,864)")
    number(rewrite, "--step-bytes", "bytes of one transaction (4 GiB)")
    number(rewrite, "--max-steps", "stop after so many transactions")
    dry_run(rewrite)

    expire = command("expire-snapshots", _expire, "Expire old snapshots; no file goes yet.")
    expire.add_argument("--older-than", metavar="SPAN", help="such as '7 days'")
    dry_run(expire)

    vacuum = command("vacuum", _vacuum, "Remove old snapshots and the files that nothing needs.")
    vacuum.add_argument("--older-than", metavar="SPAN", help="such as '7 days'")
    vacuum.add_argument("--force", action="store_true", help="also files younger than 24 hours")
    dry_run(vacuum)

    def other(parser: argparse.ArgumentParser, path: str, fields: str) -> None:
        parser.add_argument("path", metavar="PATH", help=path)
        parser.add_argument(
            "--format",
            choices=["parquet", "delta"],
            help="by default delta if PATH is a Delta table, and parquet otherwise",
        )
        partitioning = parser.add_mutually_exclusive_group()
        partitioning.add_argument("--partition-by", metavar="FIELD", nargs="+", help=fields)
        partitioning.add_argument("--unpartitioned", action="store_true", help="by nothing")

    imports = command("import", _import, "Make a table from Parquet files or a Delta table.")
    other(
        imports,
        "the folder of the Parquet files, or the Delta table",
        "such as country or 'days(ts)'; by default as the source is",
    )
    exports = command("export", _export, "Write a table as Parquet files or as a Delta table.")
    other(exports, "the folder to write", "columns that become folders; by default the table's own")
    exports.add_argument("--overwrite", action="store_true", help="replace what is there")

    upgrade = command(
        "upgrade", _upgrade, "Make a table of ours of one that another client has made."
    )
    upgrade.add_argument(
        "--branches",
        choices=["refuse", "copy"],
        default="refuse",
        help="what to do with partitions that are read on a branch",
    )

    command("check", _check, "Look for every inconsistency.")
    repair = command("repair", _repair, "Repair what check finds where that is possible.")
    repair.add_argument(
        "--stray",
        choices=["keep", "take", "drop"],
        default="keep",
        help="what to do with rows that only you can tell whether they belong to the table",
    )
    dry_run(repair)
    return parser


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError("write it as KEY=VALUE")  # the value may be a secret
    return key, value


def _json(report: Any) -> str:
    shown = report.to_json() if hasattr(report, "to_json") else dataclasses.asdict(report)
    if hasattr(report, "ok"):
        shown["ok"] = report.ok
    return json.dumps(shown, indent=2, default=str)
