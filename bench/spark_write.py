"""Write 10M rows to 100 partitions in Spark, compared with Spark's partitioned Parquet write."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.engine import spark
from bench.measure import Figure, interleaved

ROWS = 10_000_000
QUERY = (
    "SELECT id, CAST(id % 100 AS INT) AS tenant, id * 0.5 AS x, CAST(id % 1000 AS INT) AS b, "
    "concat('name-', id % 5000) AS name, TIMESTAMP '2024-01-01' + make_dt_interval(0, 0, 0, id) "
    f"AS ts FROM range({ROWS})"
)
COLUMNS = "id BIGINT, tenant INT, x DECIMAL(22,1), b INT, name STRING, ts TIMESTAMP"


class Memory:
    """The peak memory of all Python workers of Spark together, in MB."""

    def __init__(self) -> None:
        self.peak = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.is_set():
            self.peak = max(self.peak, sum(map(_held, _workers())))
            time.sleep(0.1)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def _workers() -> list[Path]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if "pyspark.daemon" in (process / "cmdline").read_text():
                found.append(process)
        except OSError:
            continue
    return found


def _held(process: Path) -> float:
    try:
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def main() -> int:
    folder = Path(tempfile.mkdtemp())
    engine = spark(folder)
    try:
        for name, distribution in (("clustered", "hash"), ("scattered", "none")):
            engine.sql(
                f"CREATE TABLE lake.db.{name} ({COLUMNS}) USING phalanx PARTITIONED BY (tenant) "
                f"TBLPROPERTIES ('write.distribution' = '{distribution}')"
            )
        rows = engine.sql(QUERY)

        def clustered() -> None:
            rows.writeTo("lake.db.clustered").append()

        def scattered() -> None:
            rows.writeTo("lake.db.scattered").append()

        def parquet() -> None:
            path = str(folder / "parquet")
            rows.write.mode("append").partitionBy("tenant").parquet(path)

        memory = Memory()
        clustered()
        parquet()
        ours, none, theirs = interleaved(3, clustered, scattered, parquet)
        memory.stop()
        assert engine.table("lake.db.clustered").count() == 4 * ROWS
    finally:
        engine.stop()
        shutil.rmtree(folder)
    figures = [
        Figure(
            f"10M rows into 100 partitions: {ours:.1f} s, Parquet {theirs:.1f} s",
            ours / theirs,
            "x",
            1.15,
        ),
        Figure(f"with write.distribution = none: {none:.1f} s", none / theirs, "x"),
        Figure("peak memory of the Python workers", memory.peak, "MB"),
    ]
    print(*figures, sep="\n")
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
