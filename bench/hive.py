"""A key=value tree of 10,000 leaves that others have made: open it, and read a few of its rows.

The baseline lists the folders of the tree and does nothing else. On a disk whose folders are in
memory that takes a microsecond for each leaf, so a constant of a few milliseconds (the first leaf
is opened, a schema is made) shows. In an object store it does not.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import phalanx
from bench.measure import Figure, seconds
from phalanx.interop import hive_tree
from phalanx.storage import leaf as leaves

DAYS, COUNTRIES = 100, 100


def make_tree(root: Path) -> None:
    """Every leaf is a copy of one: only their folders differ."""
    first = root / "day=0" / "country=0.lance"
    lance.write_dataset(pa.table({"id": range(10), "name": ["x"] * 10}), os.fspath(first))
    for day in range(DAYS):
        for country in range(COUNTRIES):
            path = root / f"day={day}" / f"country={country}.lance"
            if path != first:
                shutil.copytree(first, path, copy_function=os.link)
    for folder in (root, *root.iterdir()):
        os.utime(folder, (time.time() - 3600,) * 2)


def listed(root: Path) -> int:
    """What listing takes: the folders above the leaves, and the names in them."""
    count, folders = 0, [os.fspath(root)]
    while folders:
        inner = []
        for folder in folders:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name.endswith(".lance"):
                            count += 1
                        else:
                            inner.append(entry.path)
        folders = inner
    return count


def best_of(runs: int, *works: Callable[[], Any]) -> list[float]:
    """The shortest time of each piece of work in seconds: a few milliseconds are easily disturbed.

    The pieces run in turn.
    """
    times = [[seconds(work) for work in works] for _ in range(runs)]
    return [min(found) for found in zip(*times, strict=True)]


def main() -> int:
    root = Path(tempfile.mkdtemp())
    make_tree(root)

    def opened_first() -> None:
        hive_tree._trees.clear()
        phalanx.open(root)

    try:
        assert listed(root) == DAYS * COUNTRIES
        opened_first()
        listing, first, again = best_of(
            40, lambda: listed(root), opened_first, lambda: phalanx.open(root)
        )
        table, paths = phalanx.open(root), set()
        real = leaves.open_leaf

        def noted(location, folder, version):  # type: ignore[no-untyped-def]
            paths.add(folder)
            return real(location, folder, version)

        leaves.open_leaf = noted
        rows = table.scan(where="day = 7 AND country < 3").to_arrow().num_rows
        leaves.open_leaf = real
        assert rows == 30
        figures = [
            Figure("list 10,000 leaves", 1000 * listing, "ms"),
            Figure("open the tree for the first time, by listing", first / listing, "x", 1.3),
            Figure("open it again, by listing", again / listing, "x", 1.0),
            Figure("leaves that a query of 3 opens", len(paths), "", 3),
        ]
        print(*figures, sep="\n")
        return int(not all(figure.ok for figure in figures))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    sys.exit(main())
