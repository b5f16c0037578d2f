"""Commands that keep a table in shape: by hand, or from a timer."""

from __future__ import annotations

import dataclasses
import datetime as dt
import shlex
from dataclasses import dataclass
from typing import Any

import click

import phalanx
from phalanx.cli.app import NamedTable, command, dry_run_option, many, where_option
from phalanx.model.properties import span_of
from phalanx.table.advise import Action, Advice, BetterSpec, Finding

_WHOLE_LEAVES = "Take partitions that may hold such rows."
_OLDER_THAN = click.option("--older-than", metavar="SPAN", help="Such as 7d, 12h or 0.")


def _span(text: str | None) -> dt.timedelta | None:
    return None if text is None else span_of(text)


# advise


@dataclass(frozen=True)
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


@command(
    "advise",
    "Keep in shape",
    examples=["phalanx advise lake/events", "phalanx advise lake/events --leaf-bytes 134217728"],
    busy="reading the manifest",
)
@click.option("--leaf-bytes", metavar="N", type=int, help="How large a leaf should be (512 MiB).")
def advise(target: NamedTable, leaf_bytes: int | None) -> ShownAdvice:
    """Say which partitions are too small, too large or skewed, and what to do."""
    bounds = {} if leaf_bytes is None else {"leaf_bytes": leaf_bytes}
    return ShownAdvice(target.name, target.open().advise(**bounds))


# optimize and rewrite


@command(
    "optimize",
    "Keep in shape",
    examples=[
        "phalanx optimize lake/events --dry-run",
        "phalanx optimize lake/events --where \"ts >= '2025-12-01'\" --sort-by ts id",
    ],
    busy="compacting",
)
@where_option(_WHOLE_LEAVES)
@click.option("--target-rows", metavar="N", type=int, help="Rows of a file (1,048,576).")
@click.option("--target-bytes", metavar="N", type=int, help="Bytes of a file (128 MiB).")
@many("--sort-by", metavar="COLUMN...", help="Sort the rows of each leaf.")
@many("--zorder-by", metavar="COLUMN...", help="Cluster them by several columns.")
@dry_run_option
def optimize(
    target: NamedTable,
    where: str | None,
    target_rows: int | None,
    target_bytes: int | None,
    sort_by: tuple[str, ...],
    zorder_by: tuple[str, ...],
    dry_run: bool,
) -> Any:
    """Put the rows of each partition into fewer, larger files."""
    return target.open().optimize(
        where,
        target_rows,
        target_bytes,
        dry_run,
        sort_by=list(sort_by) or None,
        zorder_by=list(zorder_by) or None,
    )


@command(
    "rewrite",
    "Keep in shape",
    examples=["phalanx rewrite lake/events --dry-run", "phalanx rewrite lake/events --max-steps 1"],
    busy="moving rows",
)
@where_option(_WHOLE_LEAVES)
@click.option("--step-rows", metavar="N", type=int, help="Rows of one transaction (67,108,864).")
@click.option("--step-bytes", metavar="N", type=int, help="Bytes of one transaction (4 GiB).")
@click.option("--max-steps", metavar="N", type=int, help="Stop after so many transactions.")
@dry_run_option
def rewrite(
    target: NamedTable,
    where: str | None,
    step_rows: int | None,
    step_bytes: int | None,
    max_steps: int | None,
    dry_run: bool,
) -> Any:
    """Move rows of earlier specs into the newest partitions."""
    return target.open().rewrite(
        where, step_rows=step_rows, step_bytes=step_bytes, max_steps=max_steps, dry_run=dry_run
    )


# expire and vacuum


@command(
    "expire",
    "Keep in shape",
    examples=["phalanx expire lake/events --older-than 30d"],
    busy="expiring snapshots",
    also="expire-snapshots",
)
@_OLDER_THAN
@dry_run_option
def expire(target: NamedTable, older_than: str | None, dry_run: bool) -> Any:
    """Expire old snapshots; no file goes yet."""
    return target.open().expire_snapshots(_span(older_than), dry_run)


@command(
    "vacuum",
    "Keep in shape",
    examples=["phalanx vacuum lake/events --dry-run", "phalanx vacuum lake/events --older-than 7d"],
    busy="looking for files that nothing needs",
)
@_OLDER_THAN
@click.option("--force", is_flag=True, help="Also files younger than 24 hours.")
@dry_run_option
def vacuum(target: NamedTable, older_than: str | None, force: bool, dry_run: bool) -> Any:
    """Remove old snapshots and the files that nothing needs."""
    return target.open().vacuum(_span(older_than), dry_run, force)


# check and repair


@command(
    "check",
    "Keep in shape",
    examples=["phalanx check lake/events && echo whole"],
    busy="looking at every leaf",
    fails_if_not_ok=True,
)
def check(target: NamedTable) -> Any:
    """Look for every inconsistency. Exits with 1 if there is damage."""
    return phalanx.check(target.name, dict(target.storage_options))


@command(
    "repair",
    "Keep in shape",
    examples=["phalanx repair lake/events --dry-run", "phalanx repair lake/events --stray take"],
    busy="repairing",
    fails_if_not_ok=True,
)
@click.option(
    "--stray",
    type=click.Choice(["keep", "take", "drop"]),
    default="keep",
    help="What to do with rows that only you can tell whether they belong to the table.",
)
@dry_run_option
def repair(target: NamedTable, stray: str, dry_run: bool) -> Any:
    """Repair what check finds where that is possible. Exits with 1 if damage is left."""
    return phalanx.repair(target.name, dry_run, dict(target.storage_options), stray=stray)
