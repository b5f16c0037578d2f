"""`make demo`: a table of events in Spark and Python, looked at from all sides in a minute."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import phalanx

ROWS = 300_000
USERS = 2_000
DIMENSION = 16
#: Where `make demo` leaves its tables. `make clean` removes them.
FOLDER = Path("build/demo")


def main(spark: Any, namespace: str, folder: Path, rows: int = ROWS) -> dict[str, Any]:
    """Show everything. The tables are in `folder`. Returns the figures."""
    demo = Demo(spark, namespace, folder, rows)
    figures: dict[str, Any] = {}
    for show in (
        demo.load,
        demo.prune,
        demo.count,
        demo.join,
        demo.search,
        demo.change,
        demo.evolve,
        demo.travel,
    ):
        figures |= show()
    return figures


class Demo:
    """One step after the other. Each prints what it does and the figure that matters."""

    def __init__(self, spark: Any, namespace: str, folder: Path, rows: int):
        self.spark, self.rows, self.folder = spark, rows, folder
        self.events, self.users = f"{namespace}.events", f"{namespace}.users"

    def load(self) -> dict[str, Any]:
        step(
            "Load", f"{self.rows:,} events through Spark, by month, country and bucket of the user"
        )
        self.spark.sql(
            f"CREATE TABLE {self.events} (id BIGINT NOT NULL, ts TIMESTAMP, country STRING, "
            "user BIGINT, amount DOUBLE, embedding ARRAY<FLOAT>) USING phalanx "
            "PARTITIONED BY (months(ts), country, bucket(4, user)) "
            f"TBLPROPERTIES ('vector.embedding.dimension' = '{DIMENSION}')"
        )
        minutes = 90 * 24 * 60
        with timed() as took:
            self.spark.sql(
                f"INSERT INTO {self.events} SELECT id, "
                "TIMESTAMP '2026-01-01 00:00:00' + "
                f"make_dt_interval(0, 0, CAST(id * 7919 % {minutes} AS INT)), "
                "element_at(array('US', 'DE', 'FR', 'JP'), CAST(id * 31 % 4 AS INT) + 1), "
                f"id * 104729 % {USERS}, round(rand(1) * 200, 2), "
                f"transform(sequence(1, {DIMENSION}), i -> CAST(sin(id * i) AS FLOAT)) "
                f"FROM range({self.rows})"
            )
        partitions = len(self.open().partitions())
        result(f"{partitions} partitions in one transaction", took)
        return {"partitions": partitions}

    def prune(self) -> dict[str, Any]:
        where = "ts >= '2026-02-10' AND ts < '2026-02-12' AND country = 'DE' AND amount > 150"
        step("Prune", f"SELECT … WHERE {where}")
        with timed() as took:
            rows = self.spark.sql(f"SELECT id, amount FROM {self.events} WHERE {where}").count()
        plan = self.open().scan(where=where).plan()
        share = 1 - plan.selected / plan.total
        result(
            f"{rows:,} rows from {plan.selected} of {plan.total} partitions: "
            f"{share:.0%} were not opened",
            took,
        )
        return {"selected": plan.selected, "total": plan.total, "matching": rows}

    def count(self) -> dict[str, Any]:
        step("Count", "SELECT country, count(*), max(ts) … GROUP BY country")
        query = f"SELECT country, count(*) AS n, max(ts) FROM {self.events} GROUP BY 1 ORDER BY 1"
        with timed() as took:
            rows = self.spark.sql(query).collect()
        counts = {row.country: row.n for row in rows}
        from_manifest = "LocalTableScan" in plan_of(self.spark.sql(query))
        result(
            f"{counts}, "
            + ("all from the manifest: no file was opened" if from_manifest else "by reading"),
            took,
        )
        return {"counts": counts, "from_manifest": from_manifest}

    def join(self) -> dict[str, Any]:
        step("Join", f"with {USERS:,} users in 8 buckets; the events have 4")
        self.spark.sql(
            f"CREATE TABLE {self.users} (id BIGINT NOT NULL, plan STRING) USING phalanx "
            "PARTITIONED BY (bucket(8, id))"
        )
        self.spark.sql(
            f"INSERT INTO {self.users} "
            f"SELECT id, IF(id % 10 = 0, 'pro', 'free') FROM range({USERS})"
        )
        join = f"SELECT u.plan FROM {self.events} e JOIN {self.users} u ON e.user = u.id"
        threshold = self.spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
        # The tables of a demo are small enough to be broadcast. Real ones are not.
        self.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        try:
            with timed() as took:
                rows = self.spark.sql(join).count()
            shuffles = len(re.findall("Exchange hashpartitioning", plan_of(self.spark.sql(join))))
        finally:
            self.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", threshold)
        result(f"{rows:,} rows joined, {shuffles} shuffles", took)
        return {"joined": rows, "shuffles": shuffles}

    def search(self) -> dict[str, Any]:
        step("Search", "in Python: the events most like event 41, in France, then anywhere")
        table = self.open()
        query = table.scan(["embedding"], where="id = 41").to_arrow()["embedding"][0].as_py()
        with timed() as took:
            near = table.search(
                query, column="embedding", k=3, where="country = 'FR'", columns=["id", "country"]
            )
            best = table.search(query, column="embedding", k=1, columns=["id"])["id"][0].as_py()
        countries = sorted(set(near["country"].to_pylist()))
        result(f"{near['id'].to_pylist()} in {countries}, {best} anywhere", took)
        return {"countries": countries, "nearest": best}

    def change(self) -> dict[str, Any]:
        step("Change", "UPDATE over all partitions, DELETE of one country: one transaction each")
        with timed() as took:
            self.spark.sql(f"UPDATE {self.events} SET amount = 0 WHERE amount > 199.5")
            self.spark.sql(f"DELETE FROM {self.events} WHERE country = 'JP'")
        last = self.open().snapshots().to_pylist()[-1]
        result(f"{last['rows_removed']:,} rows deleted by the last", took)
        return {"deleted": last["rows_removed"]}

    def evolve(self) -> dict[str, Any]:
        step("Evolve", "from now on by day: nothing that is there is rewritten")
        table = self.open()
        with timed() as took:
            table.evolve_partitioning(["days(ts)", "country"])
        self.spark.sql(
            f"INSERT INTO {self.events} "
            f"SELECT {self.rows} + id, TIMESTAMP '2026-04-01 00:00:00' + make_dt_interval(0, id), "
            "'DE', id, 1, NULL FROM range(96)"
        )
        table.refresh()
        day = table.scan(where="ts >= '2026-04-02' AND ts < '2026-04-03'").plan()
        result(f"a day of the new rows is {day.selected} partition of {day.total}", took)
        return {"day": day.selected, "specs": len(table.specs)}

    def travel(self) -> dict[str, Any]:
        step("Travel", "the table before all that")
        with timed() as took:
            then = self.spark.sql(f"SELECT * FROM {self.events} VERSION AS OF 2").count()
        now = len(self.open())
        result(f"{then:,} rows at version 2, {now:,} at version {self.open().version}", took)
        return {"then": then, "now": now}

    def open(self) -> phalanx.Table:
        return phalanx.open(self.folder / "events")


def step(name: str, text: str) -> None:
    bold, end = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}{name:<8}{end} {text}", flush=True)


def result(text: str, took: list[float]) -> None:
    print(f"{'':<8} {text} ({took[0]:.2f} s)", flush=True)


@contextmanager
def timed() -> Iterator[list[float]]:
    """The seconds that a block took, as the only element of a list once it has ended."""
    took: list[float] = []
    start = time.perf_counter()
    yield took
    took.append(time.perf_counter() - start)


def plan_of(frame: Any) -> str:
    """The physical plan as text."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def start(folder: Path) -> Any:
    """A quiet Spark session with an empty warehouse in `folder`."""
    from phalanx.spark import session

    shutil.rmtree(folder, ignore_errors=True)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = {
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
    }
    spark = session(folder, master="local[2]", conf=quiet)
    spark.sql("CREATE NAMESPACE lake.shop")
    return spark


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="how many events to make")
    arguments = parser.parse_args()
    print("Starting Spark …", flush=True)
    running = start(FOLDER)
    began = time.perf_counter()
    main(running, "lake.shop", FOLDER / "shop", arguments.rows)
    running.stop()
    table = FOLDER / "shop" / "events"
    took = time.perf_counter() - began
    print(f"\nAll of it took {took:.0f} s. The tables are in {FOLDER}. Try next:")
    print(f"  .venv/bin/phalanx describe {table}                       the partitions as a tree")
    print(f"  .venv/bin/phalanx explain {table} \"country = 'DE'\"       what a filter would read")
    print(f"  .venv/bin/phalanx explore {table}                        all of it in your browser")
