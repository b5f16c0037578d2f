"""How work is timed and figures are printed."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One measured figure and its bound: an upper bound, or a lower one with `at_least`."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    at_least: bool = False

    @property
    def ok(self) -> bool:
        if self.bound is None:
            return True
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        text = f"{self.name:<62} {self.value:>10.2f} {self.unit:<5}"
        if self.bound is not None:
            sign = ">=" if self.at_least else "<="
            text += f"  wanted {sign} {self.bound:g}  {'ok' if self.ok else 'SHORT'}"
        return text


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(runs: int, *works: Callable[[], Any]) -> list[float]:
    """The median time of each piece of work in seconds. The pieces run in turn.

    Every second turn goes backward: a piece is faster after one that has used the same data.
    """
    times: list[list[float]] = [[] for _ in works]
    for run in range(runs):
        turn = list(zip(times, works, strict=True))
        for spans, work in reversed(turn) if run % 2 else turn:
            spans.append(seconds(work))
    return [statistics.median(spans) for spans in times]


def peak_memory() -> float:
    """The peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
