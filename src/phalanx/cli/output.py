"""What commands print: tables, trees and bars for people, JSON for machines, progress for neither.

Reports go to the standard output, everything else to the standard error. Colors, and widths that
follow the window, are for terminals only: what is piped is plain text, and no line of it is cut.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid
from rich.text import Text

from phalanx.cli.words import in_shell_words
from phalanx.progress import reported
from phalanx.table.cells import cell_text, harmless, json_value

#: The width of what is not a terminal: nothing is cut there.
_UNBOUNDED = 100_000
#: How long a command is quiet before it shows that it is at work.
_PATIENCE_SECONDS = 1.0
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def console(to_errors: bool = False) -> Console:
    """A console on the standard output, or on the standard error."""
    stream = sys.stderr if to_errors else sys.stdout
    terminal = stream.isatty()
    return Console(
        file=stream,
        width=None if terminal else _UNBOUNDED,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not terminal,
    )


def show(report: Any, as_json: bool, table: str | None = None) -> None:
    """Print a report about a table, as the command line calls it.

    The reader may stop before its end, as `head` does.
    """
    try:
        if as_json:
            print(json.dumps(json_of(report), indent=2, ensure_ascii=False), flush=True)
        else:
            has_form = hasattr(report, "__rich_console__")
            emit(report if has_form else plain(in_shell_words(str(report), table)))
    except BrokenPipeError:
        # Python flushes the rest when it exits: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def emit(rendered: RenderableType) -> None:
    """Print something; where nobody sees them, spaces at the ends of lines are left out."""
    out = console()
    if out.is_terminal:
        out.print(rendered)
    else:
        with out.capture() as text:
            out.print(rendered)
        print("\n".join(line.rstrip() for line in text.get().split("\n")), end="")
    sys.stdout.flush()


def json_of(report: Any) -> Any:
    """A report as JSON: what its `to_json` says, or its fields."""
    shown = report.to_json() if hasattr(report, "to_json") else dataclasses.asdict(report)
    if hasattr(report, "ok"):
        shown["ok"] = report.ok
    return json_value(shown)


def plain(text: str) -> Text:
    """A text that may hold values of a table, line by line without control characters."""
    return Text("\n".join(map(harmless, text.split("\n"))))


def grid(
    titles: Sequence[str], rows: Iterable[Iterable[Any]], numbers: Iterable[str] = ()
) -> RenderableType:
    """A table for people; the columns in `numbers` are aligned to the right."""
    table = Grid(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    right = set(numbers)
    for title in titles:
        table.add_column(
            Text(cell_text(title)),
            justify="right" if title in right else "left",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: Any) -> RenderableType:
    if isinstance(value, Text):
        return value
    return Text(cell_text(value), style="dim" if value is None else "")


def facts(pairs: Mapping[str, Any]) -> RenderableType:
    """Names and what they are, one pair to a line."""
    table = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        table.add_row(name, _cell(value))
    return table


def bar(share: float, width: int = 20) -> str:
    """A share of 1 as a bar. What is not nothing shows."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width)


def note(text: str) -> None:
    """Say something that is not part of a report."""
    console(to_errors=True).print(plain(text), style="dim")


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Show how far something is if it takes longer than a second, on a terminal only."""
    errors = console(to_errors=True)
    if not errors.is_terminal:
        yield
        return
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
    )
    task = progress.add_task(what, total=None)
    timer = threading.Timer(_PATIENCE_SECONDS, progress.start)
    timer.daemon = True
    timer.start()
    try:
        with reported(what, lambda done, total: progress.update(task, completed=done, total=total)):
            yield
    finally:
        timer.cancel()
        timer.join()
        progress.stop()
