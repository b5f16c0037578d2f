"""The tables of pipeline.py as a Spark Declarative Pipeline: they say what is in them, Spark when.

Run it with `python examples/declarative/run.py`. `--events` scales it up, and with
`--remote sc://host:15002` it runs on a Spark Connect server that has the catalog `lake`.

Spark creates the tables with the columns of their queries. They are partitioned by columns:
`partition_cols` and `PARTITIONED BY` of a pipeline take no transforms.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


class Pipeline:
    """A folder with the definitions, what they read, and a spec that says where the tables are."""

    def __init__(self, folder: Path, database: str, remote: str | None = None):
        self.folder, self.remote = folder, remote
        self.incoming = folder / "incoming"
        self.incoming.mkdir(parents=True, exist_ok=True)
        shutil.copytree(HERE / "transformations", folder / "transformations", dirs_exist_ok=True)
        # YAML takes JSON.
        spec = {
            "name": "events",
            "storage": (folder / "storage").as_uri(),
            "catalog": "lake",
            "database": database,
            "configuration": {
                "events.folder": os.fspath(self.incoming),
                "spark.sql.session.timeZone": "UTC",
            },
            "libraries": [{"glob": {"include": "transformations/**"}}],
        }
        (folder / "spark-pipeline.yml").write_text(json.dumps(spec, indent=2), encoding="utf-8")

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
        (self.incoming / f"{number}.json").write_text(lines, encoding="utf-8")

    def run(self, confs: dict[str, str]) -> None:
        """Bring all tables up to date. `confs` are those of a Spark that this starts by itself.

        Spark starts a Connect server for the pipeline, which takes them from spark-defaults.conf.
        """
        import pyspark

        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        if self.remote is None:
            environment["SPARK_CONF_DIR"] = os.fspath(self.folder)
            lines = "".join(f"{key} {value}\n" for key, value in confs.items())
            (self.folder / "spark-defaults.conf").write_text(lines, encoding="utf-8")
        command = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
        remote = [] if self.remote is None else ["--remote", self.remote]
        subprocess.run([command, *remote, "run"], cwd=self.folder, env=environment, check=True)


def main(pipeline: Pipeline, confs: dict[str, str], count: int, files: int = 2) -> None:
    """Run the pipeline after each of some files. Its database must exist."""
    for number in range(files):
        pipeline.arrive(number, count)
        pipeline.run(confs)


if __name__ == "__main__":
    import phalanx
    from phalanx.spark import conf

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=400, help="events in each file")
    parser.add_argument("--remote", help="the address of a Spark Connect server")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        lake = Path(temporary) / "lake"
        (lake / "web").mkdir(parents=True)
        confs = {**conf(lake), "spark.log.level": "ERROR", "spark.ui.enabled": "false"}
        main(Pipeline(Path(temporary) / "files", "web", arguments.remote), confs, arguments.events)
        if arguments.remote is None:
            for name in ("raw", "clean", "daily"):
                print(f"{name}: {len(phalanx.open(lake / 'web' / name)):,} rows")
