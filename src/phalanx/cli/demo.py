"""`phalanx demo`: a table of events to try every command on, made, pruned, evolved and searched."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import RenderableType
from rich.text import Text

import phalanx
from phalanx.cli.output import grid
from phalanx.table.format import count_text

ROWS = 200_000
_DAYS = 60
_START = 1_735_689_600_000_000  # 2025-01-01T00:00:00Z in microseconds
_COUNTRIES = ["US", "DE", "FR", "JP", "BR", None]
_SHARES = [0.55, 0.15, 0.12, 0.1, 0.06, 0.02]
_ONE_COUNTRY = "country = 'US'"
_KINDS = ["view", "click", "search", "purchase"]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("ts", pa.timestamp("us", "UTC")),
        ("country", pa.string()),
        ("kind", pa.string()),
        ("amount", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Step:
    """One thing that was shown: what, what came of it, and how long it took."""

    what: str
    result: str
    seconds: float


@dataclass(frozen=True)
class Demo:
    """What the demo has done, and what to try next."""

    uri: str
    steps: tuple[Step, ...]
    next_commands: tuple[str, ...]

    def __rich_console__(self, *_: Any) -> Iterator[RenderableType]:
        rows = ((step.what, step.result, f"{step.seconds:.2f} s") for step in self.steps)
        yield grid(("step", "result", "time"), rows, ["time"])
        yield Text("\nTry next:", style="bold")
        for command in self.next_commands:
            yield Text(f"  {command}")


def run_demo(folder: str, rows: int = ROWS) -> Demo:
    """Make a table in a folder and show what can be done with it.

    Raises TableExists if the demo has run there before.
    """
    uri = os.path.join(folder, "events")
    steps: list[Step] = []

    def step(what: str, run: Callable[[], str]) -> None:
        start = time.perf_counter()
        steps.append(Step(what, run(), time.perf_counter() - start))

    table = phalanx.create(uri, SCHEMA, ["months(ts)", "country"])
    step("append one transaction", lambda: _appended(table, rows))
    where = "country = 'DE' AND ts >= '2025-02-01'"
    step(f"prune by {where}", lambda: _pruned(table, where))
    step("count one country, from metadata", lambda: f"{table.count(_ONE_COUNTRY):,} rows")
    step("delete, atomic across partitions", lambda: _deleted(table))
    step("travel back in time", lambda: _traveled(table))
    step("evolve to days(ts), country", lambda: _evolved(table, rows))
    step("compact what was deleted from", lambda: _compacted(table))
    name = shlex.quote(uri)
    return Demo(
        table.uri,
        tuple(steps),
        (
            f"phalanx describe {name}",
            f"phalanx explain {name} \"WHERE country = 'JP' AND ts < '2025-01-15'\"",
            f"phalanx explore {name}",
        ),
    )


def events(first: int, count: int, days: int, seed: int) -> pa.Table:
    """Events of some days, most of them from one country."""
    random = np.random.default_rng(seed)
    span = days * 86_400_000_000
    countries = pa.array(random.choice(len(_COUNTRIES), count, p=_SHARES))
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "ts": pa.array(_START + random.integers(0, span, count), SCHEMA[1].type),
            "country": pa.array(_COUNTRIES).take(countries),
            "kind": pa.array(_KINDS).take(pa.array(random.integers(0, 4, count))),
            "amount": random.gamma(2.0, 20.0, count).round(2),
        },
        schema=SCHEMA,
    )


def _appended(table: phalanx.Table, rows: int) -> str:
    table.append(events(0, rows, _DAYS, 42))
    leaves = table.scan().plan().total
    return f"{count_text(rows, 'row')} in {count_text(leaves, 'partition')}"


def _pruned(table: phalanx.Table, where: str) -> str:
    plan = table.scan(where=where).plan()
    return f"{plan.selected} of {plan.total} partitions, {table.count(where):,} rows"


def _deleted(table: phalanx.Table) -> str:
    return f"{count_text(table.delete('amount < 1'), 'row')} deleted, version {table.version}"


def _traveled(table: phalanx.Table) -> str:
    before = phalanx.open(table.uri, version=table.version - 1)
    return f"version {before.version} still has {before.count():,} rows, now {table.count():,}"


def _compacted(table: phalanx.Table) -> str:
    report = table.optimize()
    return f"{count_text(report.leaves, 'partition')} rewritten"


def _evolved(table: phalanx.Table, rows: int) -> str:
    table.evolve_partitioning(["days(ts)", "country"])
    table.append(events(rows, rows // 20, 5, 7))
    specs = ", ".join(f"v{spec.id}" for spec in table.specs)
    return f"specs {specs}, {count_text(table.scan().plan().total, 'partition')}, no row moved"
