"""A pipeline in PySpark: events stream in, are cleaned and merged, aggregated, kept in shape.

Run it with `python examples/pipeline.py`. `--events` scales it up.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

SCHEMA = "id BIGINT, ts TIMESTAMP, country STRING, amount DOUBLE"


class Pipeline:
    """Three tables, raw, clean and daily, and the steps between them.

    A step may be repeated at any time: a stream goes on where its checkpoint says, and merges of
    the same rows change nothing.
    """

    def __init__(self, spark: Any, namespace: str, folder: Path):
        self.spark, self.namespace, self.folder = spark, namespace, folder
        (folder / "incoming").mkdir(parents=True, exist_ok=True)
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {namespace}.raw ({SCHEMA}) USING phalanx "
            "PARTITIONED BY (days(ts))"
        )
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {namespace}.clean ({SCHEMA}) USING phalanx "
            "PARTITIONED BY (country, bucket(4, id))"
        )
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {namespace}.daily "
            "(day DATE, country STRING, events BIGINT, total DOUBLE) USING phalanx "
            "PARTITIONED BY (country)"
        )

    def arrive(self, number: int, count: int) -> None:
        """A file of events comes in: a tenth was sent before, and some are not valid."""
        first = number * (count - count // 10)
        events = [
            {
                "id": id,
                "ts": f"2026-03-{1 + id % 5:02}T{id % 24:02}:00:00Z",
                "country": [None, "US", "DE", "FR"][id % 4],
                "amount": float(id % 100),
            }
            for id in range(first, first + count)
        ]
        lines = "\n".join(map(json.dumps, events))
        (self.folder / "incoming" / f"{number}.json").write_text(lines, encoding="utf-8")

    def ingest(self) -> None:
        """Stream what has arrived into the raw table, each file once."""
        events = self.spark.readStream.schema(SCHEMA).json(str(self.folder / "incoming"))
        self._run(events.writeStream.format("phalanx"), "ingest").toTable(
            f"{self.namespace}.raw"
        ).awaitTermination()

    def clean(self) -> None:
        """Stream new rows of the raw table into the clean one: valid ones, each id once."""
        rows = self.spark.readStream.table(f"{self.namespace}.raw")
        self._run(rows.writeStream.foreachBatch(self._merge), "clean").start().awaitTermination()

    def _merge(self, batch: Any, number: int) -> None:
        valid = batch.where("country IS NOT NULL").dropDuplicates(["id"])
        valid.createOrReplaceTempView("batch")
        batch.sparkSession.sql(
            f"MERGE INTO {self.namespace}.clean t USING batch s "
            "ON t.country = s.country AND t.id = s.id "
            "WHEN MATCHED AND t.amount <> s.amount THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def _run(self, stream: Any, name: str) -> Any:
        checkpoint = str(self.folder / "checkpoints" / name)
        return stream.option("checkpointLocation", checkpoint).trigger(availableNow=True)

    def aggregate(self) -> None:
        """Replace the totals by those of today's clean rows, in one transaction."""
        self.spark.sql(
            f"INSERT OVERWRITE {self.namespace}.daily "
            "SELECT CAST(ts AS DATE), country, count(*), sum(amount) "
            f"FROM {self.namespace}.clean GROUP BY 1, 2"
        )

    def upkeep(self) -> list[str]:
        """Compact small files, remove what is no longer needed, and look for damage."""
        catalog, database = self.namespace.split(".")
        reports = []
        for table in ("raw", "clean", "daily"):
            self.spark.sql(f"CALL {catalog}.system.optimize('{database}.{table}')")
            self.spark.sql(f"CALL {catalog}.system.vacuum('{database}.{table}')")
            report = self.spark.sql(f"CALL {catalog}.system.check('{database}.{table}')").first()
            reports.append(report.report)
        return reports


def main(spark: Any, namespace: str, folder: Path, count: int = 400) -> dict[str, object]:
    """Returns the figures, for those who want to compare them. `namespace` must exist."""
    pipeline = Pipeline(spark, namespace, folder)
    for number in range(2):
        pipeline.arrive(number, count)
        pipeline.ingest()
        pipeline.clean()
    pipeline.aggregate()
    raw, clean = (spark.table(f"{namespace}.{name}").count() for name in ("raw", "clean"))
    print(f"{raw} raw rows, {clean} clean ones")
    spark.table(f"{namespace}.daily").orderBy("day", "country").show(4)
    reports = pipeline.upkeep()
    print("\n".join(reports))
    events = spark.sql(f"SELECT sum(events) FROM {namespace}.daily").first()[0]
    return {"raw": raw, "clean": clean, "events": events, "reports": reports}


if __name__ == "__main__":
    from phalanx.spark import session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=400, help="events in each file")
    with tempfile.TemporaryDirectory() as temporary:
        conf = {"spark.log.level": "ERROR", "spark.sql.session.timeZone": "UTC"}
        running = session(Path(temporary) / "lake", master="local[2]", conf=conf)
        running.sql("CREATE NAMESPACE lake.web")
        main(running, "lake.web", Path(temporary) / "files", parser.parse_args().events)
        running.stop()
