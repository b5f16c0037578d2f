"""Commits to a table of 100k leaves, many concurrent writers, and a delete of many partitions."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import phalanx
from bench.measure import Figure, seconds
from bench.planning import table_of

COMMITS = 500
WRITERS = (8, 16)
EACH = 25
BY_ONE = 100
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string())])


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def small_commits(folder: Path) -> list[Figure]:
    """One small append after another, and an open and plan after each."""
    table = table_of(folder, 100_000)

    def rows(number: int) -> list[dict[str, Any]]:
        day = dt.datetime(2030, 1, 1 + number % 20)
        return [{"id": 34, "ts": day, "country": "C01"}]

    for number in range(20):
        table.append(rows(number))
    commits, reads = [], []
    for number in range(COMMITS):
        commits.append(seconds(lambda n=number: table.append(rows(n))) * 1e3)
        reads.append(seconds(lambda: look(folder)) * 1e3)
    first, last = commits[: COMMITS // 5], commits[-COMMITS // 5 :]
    return [
        Figure(f"append to 100k leaves, p50 of {COMMITS}", percentile(commits, 0.5), "ms", 40),
        Figure("append to 100k leaves, p95", percentile(commits, 0.95), "ms", 80),
        Figure(
            "the last fifth / the first fifth, p50",
            statistics.median(last) / statistics.median(first),
            "x",
        ),
        Figure("open and plan in between, p50", percentile(reads, 0.5), "ms", 25),
    ]


def look(folder: Path) -> None:
    where = "ts = '2030-01-05' AND country = 'C01' AND id = 34"
    assert phalanx.open(folder).scan(where=where).plan().selected == 1


def write(
    uri: str,
    worker: int,
    hot: bool,
    gate: Any,
    results: Any,
    each: int,
    options: dict[str, str] | None,
) -> None:
    table = phalanx.open(uri, storage_options=options)
    key = "hot" if hot else f"p{worker}"
    table.append([{"id": -1, "k": key}])  # what the first one loads is not a commit's
    gate.wait()
    times = []
    for number in range(each):
        rows = [{"id": worker * each + number, "k": key}]
        times.append(seconds(lambda rows=rows: table.append(rows)))
    results.put(times)


def together(
    uri: Path | str,
    workers: int,
    hot: bool,
    each: int = EACH,
    options: dict[str, str] | None = None,
) -> tuple[float, float, float]:
    """Commits per second, the slowest commit in seconds, and the slowest writer over the mean."""
    phalanx.create(uri, SCHEMA, partition_by=["k"], storage_options=options)
    context = multiprocessing.get_context("spawn")
    gate, results = context.Barrier(workers + 1), context.Queue()
    processes = [
        context.Process(target=write, args=(str(uri), n, hot, gate, results, each, options))
        for n in range(workers)
    ]
    for process in processes:
        process.start()
    gate.wait()
    start = time.perf_counter()
    found = [results.get() for _ in processes]
    took = time.perf_counter() - start
    for process in processes:
        process.join()
    assert phalanx.open(uri, storage_options=options).count("id >= 0") == workers * each
    totals = [sum(times) for times in found]
    worst = max(totals) / statistics.mean(totals)
    return workers * each / took, max(map(max, found)), worst


def many_writers(root: Path) -> list[Figure]:
    figures = []
    for hot in (False, True):
        kind = "one hot partition" if hot else "different partitions"
        alone, _, _ = together(root / f"alone-{hot}", 1, hot, BY_ONE)
        figures.append(Figure(f"1 writer, {kind}", alone, "/s"))
        for writers in WRITERS:
            rate, slowest, worst = together(root / f"{writers}-{hot}", writers, hot)
            figures += [
                Figure(f"{writers} writers, {kind}", rate, "/s"),
                Figure(f"{writers} writers / 1 writer", rate / alone, "x", 0.9, at_least=True),
                Figure("slowest commit", slowest, "s", 2),
                Figure("slowest writer / mean", worst, "x"),
            ]
    return figures


def mass_delete(folder: Path) -> list[Figure]:
    """Delete 1,000 whole partitions in one transaction."""
    table = table_of(folder, 100_000)
    took = seconds(lambda: table.delete("ts >= '2025-01-01' AND ts < '2025-01-11'"))
    return [Figure("delete 1,000 of 100k partitions", took, "s", 1)]


def main() -> int:
    root = Path(tempfile.mkdtemp())
    works = [
        lambda: small_commits(root / "commits"),
        lambda: many_writers(root),
        lambda: mass_delete(root / "mass"),
    ]
    good = True
    try:
        for work in works:
            figures = work()
            print(*figures, sep="\n", flush=True)
            good &= all(figure.ok for figure in figures)
    finally:
        shutil.rmtree(root)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
