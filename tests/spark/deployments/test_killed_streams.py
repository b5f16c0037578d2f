"""A stream from one table to another whose driver is killed: every row comes once."""

import contextlib
import datetime as dt
import os
import random
import signal
import threading
import time

import pyarrow as pa
import pytest

import phalanx
from phalanx import TableNotFound
from tests.spark.deployments.conftest import QUIET
from tests.spark.deployments.processes import Driver

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
COPY = """
stream = spark.readStream.options(**{options!r}).table("lake.db.source")
writer = stream.writeStream.option("checkpointLocation", {checkpoint!r})
query = writer.trigger({trigger}).partitionBy("part").toTable("lake.db.copy")
query.awaitTermination()
"""


class Writer(threading.Thread):
    """Somebody who adds rows to a table until told to stop."""

    def __init__(self, root, chance):
        super().__init__(daemon=True)
        self._table = phalanx.create(root, SCHEMA, ["part"])
        self._chance, self._over, self.rows, self.error = chance, threading.Event(), 0, None

    def run(self):
        try:
            while not self._over.is_set():
                count = self._chance.randint(1, 5)
                ids = range(self.rows, self.rows + count)
                parts = [self._chance.choice(["a", "b", "c", None]) for _ in ids]
                self._table.append(pa.table({"id": pa.array(ids, pa.int64()), "part": parts}))
                self.rows += count
                time.sleep(0.2)
        except Exception as error:
            self.error = error

    def stop(self):
        self._over.set()
        self.join(60)
        assert self.error is None


@pytest.mark.soak
@pytest.mark.parametrize("kills", [2, 12])
def test_a_driver_that_is_killed(bridge, tmp_path, kills):
    """At any moment, and just after it has committed: then the epoch is tried again."""
    chance = random.Random(kills)
    lake, checkpoint = tmp_path / "lake", tmp_path / "checkpoint"
    writer = Writer(lake / "db" / "source", chance)
    writer.start()
    repeated = 0
    for number in range(kills):
        driver = start(tmp_path, "processingTime='0 seconds'", maxFilesPerTrigger=2)
        before = version(lake / "db" / "copy")
        wait_until(driver, lambda before=before: version(lake / "db" / "copy") > before + 1)
        if number % 3:
            time.sleep(chance.random() * 2)
        kill(driver)
        repeated += newest(checkpoint / "offsets") > newest(checkpoint / "commits")
        # The record of what has landed does not go with the snapshots.
        phalanx.open(lake / "db" / "copy").expire_snapshots(dt.timedelta(0))
    writer.stop()
    driver = start(tmp_path, "availableNow=True")
    driver.wait()
    driver.stop()
    copied = phalanx.open(lake / "db" / "copy")
    found = copied.scan().to_arrow().sort_by("id")
    assert found.column("id").to_pylist() == list(range(writer.rows))
    source = phalanx.open(lake / "db" / "source").scan(["id", "part"]).to_arrow().sort_by("id")
    assert found.equals(source)
    assert copied.check().ok
    if kills > 10:
        assert repeated


def start(folder, trigger, **options):
    """A driver that copies."""
    session = {"warehouse": str(folder / "lake"), "master": "local[2]", "conf": QUIET}
    driver = Driver(folder, session)
    checkpoint = str(folder / "checkpoint")
    driver.send(python=COPY.format(checkpoint=checkpoint, trigger=trigger, options=options))
    return driver


def kill(driver):
    """The driver, its JVM and its workers end at once."""
    os.killpg(driver.process.pid, signal.SIGKILL)
    driver.process.wait(30)


def wait_until(driver, condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        alive = driver.process.poll() is None and time.monotonic() < until
        assert alive, f"the stream stands still:\n{driver.log.read_text()[-4000:]}"
        time.sleep(0.01)


def version(root):
    with contextlib.suppress(TableNotFound):
        return phalanx.open(root).version
    return 0


def newest(folder):
    """The last epoch that a log of the checkpoint has."""
    numbers = [int(path.name) for path in folder.glob("*") if path.name.isdigit()]
    return max(numbers, default=-1)
