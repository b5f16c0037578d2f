"""The same rows and queries in Phalanx, Parquet, Iceberg and Delta, each on a Spark that it has.

Not part of `make bench`: run it with `make bench ARGS=peers` on a quiet machine. Environments with
other versions of Spark are made as `make test-spark` makes them; the jars come from Maven's
repository, for which `mvn` must be there. A system that cannot be had is left out, and that is
said. BENCH_ROWS changes the size, and BENCH_PEERS the systems, for example `phalanx,parquet`. With
BENCH_CHART, a folder, the results are also written there, as `peers.svg` and `peers.md`.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sparks
from bench.chart import chart, markdown
from bench.measure import Figure

ROWS = int(os.environ.get("BENCH_ROWS", "4000000"))
FILES = 8
#: How many sessions are started for their first query.
FIRSTS = 3
#: How much slower than the fastest peer counts as equal.
EQUAL = 1.05
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "phalanx-peers"


@dataclass(frozen=True)
class System:
    """A system to compare with: the minor of Spark, and the artifact that it comes from."""

    name: str
    spark: str
    version: str = ""
    artifact: str = ""
    #: How the names of the jars begin that it needs besides those of Spark.
    jars: tuple[str, ...] = ()


_ICEBERG = ("4.1", "1.12.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13", ("iceberg",))
SYSTEMS = (
    System("phalanx", "4.3"),
    System("parquet", "4.3"),
    System("iceberg", *_ICEBERG),
    System("iceberg-mor", *_ICEBERG),
    System(
        "delta",
        "4.2",
        "4.4.0",
        "io.delta:delta-spark_4.2_2.13",
        ("delta", "RoaringBitmap", "shims", "jts-core", "unitycatalog"),
    ),
)


class Unavailable(Exception):
    """A system cannot be had here."""


def jars_of(system: System) -> str:
    """The jars of a system, as Spark's conf takes them. They are kept in the user's cache."""
    if not system.artifact:
        return ""
    group, name = system.artifact.split(":")
    folder = CACHE / f"{name}-{system.version}"
    if not folder.exists():
        maven = shutil.which("mvn")
        if maven is None:
            raise Unavailable("Maven is not installed")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            Path(scratch, "pom.xml").write_text(
                "<project><modelVersion>4.0.0</modelVersion><groupId>bench</groupId>"
                "<artifactId>peer</artifactId><version>1</version><dependencies><dependency>"
                f"<groupId>{group}</groupId><artifactId>{name}</artifactId>"
                f"<version>{system.version}</version></dependency></dependencies></project>"
            )
            command = [maven, "-q", "dependency:copy-dependencies", "-DincludeScope=runtime"]
            command.append(f"-DoutputDirectory={scratch}/jars")
            done = subprocess.run(command, cwd=scratch, capture_output=True, timeout=600)
            if done.returncode:
                raise Unavailable(f"{system.artifact}:{system.version} cannot be downloaded")
            os.replace(f"{scratch}/jars", folder)
    needed = [jar for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(system.jars)]
    return ",".join(map(os.fspath, needed))


def make_rows(folder: Path) -> None:
    """Rows as events have them, the same every time."""
    folder.mkdir(parents=True)
    for number, ids in enumerate(np.array_split(np.arange(ROWS, dtype=np.int64), FILES)):
        random = np.random.default_rng(1000 + number)
        keys = np.char.mod("%016x", random.integers(0, 2**63, len(ids), dtype=np.int64))
        text = np.char.add(np.char.add("event of user ", keys), "-payload!!")
        countries = np.char.mod("C%02d", random.integers(0, 20, len(ids)))
        table = pa.table(
            {
                "id": ids,
                "ts": pa.array(1735689600_000000 + ids * 3_000000, pa.timestamp("us", "UTC")),
                "country": countries,
                "amount": np.round(random.random(len(ids)) * 1000, 4),
                "category": pa.array(random.integers(0, 1000, len(ids)), pa.int32()),
                "text": text,
            }
        )
        pq.write_table(table, folder / f"part-{number}.parquet")


def run(system: System, data: Path, folder: Path) -> tuple[str, dict[str, float]]:
    """What a system runs on, and its seconds."""
    jars = jars_of(system)
    try:
        python = sparks.python(system.spark) if system.artifact else Path(sys.executable)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"PySpark {system.spark} cannot be installed: {error}") from None
    command = [os.fspath(python), "-m", "bench.peer", system.name, os.fspath(data)]
    command += [os.fspath(folder), jars]
    version, figures = _answer(command)
    firsts = [_answer([*command, "first"])[1] for _ in range(FIRSTS)]
    for name in firsts[0]:
        figures[name] = statistics.median(first[name] for first in firsts)
    return f"{system.name} {system.version} on Spark {version}", figures


def _answer(command: list[str]) -> tuple[str, dict[str, float]]:
    """What `bench.peer` prints: the version of Spark, and seconds."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(done.stderr.strip().splitlines()[-1] if done.stderr else "it failed")
    reply = json.loads(done.stdout.strip().splitlines()[-1])
    return reply["spark"], reply["figures"]


def main() -> int:
    wanted = os.environ.get("BENCH_PEERS", ",".join(system.name for system in SYSTEMS)).split(",")
    root = Path(tempfile.mkdtemp())
    results: dict[str, dict[str, float]] = {}
    try:
        make_rows(root / "data" / "rows")
        for system in SYSTEMS:
            if system.name not in wanted:
                continue
            try:
                text, results[system.name] = run(system, root / "data", root / system.name)
                print(f"  {text}", flush=True)
            except Unavailable as error:
                print(f"  {system.name} is left out: {error}", flush=True)
            shutil.rmtree(root / system.name, ignore_errors=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if os.environ.get("BENCH_CHART") and "phalanx" in results:
        folder = Path(os.environ["BENCH_CHART"])
        title = f"{ROWS / 1e6:g} million rows: time of each system / time of Phalanx"
        (folder / "peers.svg").write_text(chart(title, results), encoding="utf-8")
        (folder / "peers.md").write_text(markdown(results), encoding="utf-8")
    return report(results)


def report(results: dict[str, dict[str, float]]) -> int:
    """Print all seconds, and ours against those of the fastest peer. Returns 1 if one is faster."""
    ours = results.pop("phalanx", {})
    print(f"\n  {'':<26}" + "".join(f"{name:>13}" for name in ("phalanx", *results)))
    short = 0
    for name, mine in ours.items():
        others = {peer: figures[name] for peer, figures in results.items() if name in figures}
        cells = [mine, *(others.get(peer) for peer in results)]
        row = "".join(f"{cell:>13.2f}" if cell is not None else f"{'-':>13}" for cell in cells)
        print(f"  {name:<26}{row}")
    for name, mine in ours.items():
        others = {peer: figures[name] for peer, figures in results.items() if name in figures}
        if others:
            best = min(others, key=lambda peer: others[peer])
            figure = Figure(f"{name}, against {best}", mine / others[best], "x", EQUAL)
            short |= not figure.ok
            print(figure)
    return short


if __name__ == "__main__":
    sys.exit(main())
