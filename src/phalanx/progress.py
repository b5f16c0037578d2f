"""How far a long call is: a bar for people who watch, or a function of the caller.

A call of `Table` opens a task. What works for it says how much there is to do and what is done, and
does not know who listens. Without a listener nothing happens.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

#: A function of how much is done and how much there is, None if nobody knows. True shows a bar,
#: False nothing; None shows a bar if somebody watches and it takes longer than a moment.
Progress = Callable[[int, int | None], None] | bool | None

#: How long a call may take before the bar appears, and how often it is drawn, in seconds.
DELAY = 1.5
_INTERVAL = 0.1
_WIDTH = 30


class _Task:
    """A call that has a listener."""

    def __init__(self, listener: Callable[[int, int | None, str], None]) -> None:
        self._listener = listener
        self._done, self._unit = 0, ""
        self._total: int | None = None

    def begin(self, total: int | None, unit: str) -> None:
        self._done, self._total, self._unit = 0, total, unit

    def advance(self, count: int) -> None:
        self._done += count
        self._listener(self._done, self._total, self._unit)


_current: ContextVar[_Task | None] = ContextVar("progress", default=None)


@contextlib.contextmanager
def reported(what: str, progress: Progress = None) -> Iterator[None]:
    """Report how far the body is. Inside of another reported call, that one goes on."""
    if progress is None and _current.get() is not None:
        yield
        return
    bar: _Bar | None = None
    task: _Task | None = None
    if callable(progress):
        function = progress
        task = _Task(lambda done, total, unit: function(done, total))
    elif progress or (progress is None and _is_watched()):
        bar = _Bar(what, 0.0 if progress else DELAY)
        task = _Task(bar.show)
    token = _current.set(task)
    try:
        yield
    finally:
        _current.reset(token)
        if bar is not None:
            bar.end()


def begin(total: int | None, unit: str) -> None:
    """Say how much there is to do from here on; None if nobody knows."""
    task = _current.get()
    if task is not None:
        task.begin(total, unit)


def advance(count: int = 1) -> None:
    """Say that more is done."""
    task = _current.get()
    if task is not None:
        task.advance(count)


def counted(items: Iterable[T], size: Callable[[T], int] = lambda _: 1) -> Iterator[T]:
    """Pass items on, and say that each is done when the next one is asked for."""
    for item in items:
        yield item
        advance(size(item))


def _is_watched() -> bool:
    """Whether standard error is a terminal, or the output of a notebook's cell."""
    if "ipykernel" in sys.modules:
        return True
    stream = sys.stderr
    return stream is not None and hasattr(stream, "isatty") and stream.isatty()


class _Bar:
    """One line on standard error, which is drawn again and again."""

    def __init__(self, what: str, delay: float) -> None:
        self._what, self._next = what, time.monotonic() + delay
        self._line = ""
        self._latest: tuple[int, int | None, str] | None = None

    def show(self, done: int, total: int | None, unit: str) -> None:
        self._latest = done, total, unit
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _INTERVAL
        self._draw(_text(self._what, done, total, unit))

    def end(self) -> None:
        """Draw the last state, if the bar was ever drawn."""
        if self._line and self._latest is not None:
            self._draw(_text(self._what, *self._latest))
            print(file=sys.stderr, flush=True)

    def _draw(self, line: str) -> None:
        blank = " " * (len(self._line) - len(line))
        print(f"\r{line}{blank}", end="", file=sys.stderr, flush=True)
        self._line = line


def _text(what: str, done: int, total: int | None, unit: str) -> str:
    if not total:
        return f"{what}: {done:,} {unit}"
    filled = min(_WIDTH, _WIDTH * done // total)
    bar = "#" * filled + "." * (_WIDTH - filled)
    return f"{what}: [{bar}] {done:,}/{total:,} {unit}"
