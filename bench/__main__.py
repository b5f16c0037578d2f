"""`make bench`: run every measurement in its own process and print its figures.

Pass names to run only those: `make bench ARGS="planning write"`.
"""

from __future__ import annotations

import subprocess
import sys

ALL = (
    "planning",
    "write",
    "read",
    "counts",
    "commits",
    "object_store",
    "merge",
    "many_leaves",
    "evolve",
    "optimize",
    "search",
    "lookup",
    "interop",
    "hive",
    "upgrade",
    "bridge",
    "spark_scan",
    "spark_prune",
    "spark_write",
    "spark_join",
    "tpch",
)


def main(names: list[str]) -> int:
    short = 0
    for name in names or ALL:
        print(f"\n{name}", flush=True)
        short |= subprocess.call([sys.executable, "-m", f"bench.{name}"])
    return short


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
