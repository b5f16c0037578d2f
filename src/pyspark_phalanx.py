"""What Spark's Python workers run for Phalanx: the planner's requests, and the work of tasks.

It is a module of its own because Spark's daemon runs only modules whose names begin with
`pyspark`. It imports little, because every worker loads it first, and Spark starts new workers
often: it ends those that have been idle for a minute.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import socket
import stat
import sys
import zipimport
from collections.abc import Iterator
from typing import Any

#: How the names of Spark's own Python archives begin.
_ARCHIVES = ("pyspark", "py4j", "spark-core")
#: How many modules were loaded when they were last kept out of garbage collection.
_frozen = 0
#: Whether the sockets of this worker have been told to send at once.
_sends_at_once = False


def main(infile: Any, outfile: Any) -> None:
    """Answer one request to the planner. Spark's daemon calls it."""
    prepare()
    try:
        from pyspark.sql.worker.utils import worker_run
    except ImportError:
        from phalanx.spark.workers import worker_run

    worker_run(_answer, infile, outfile)


def _answer(infile: Any, outfile: Any) -> None:
    from phalanx.spark.dispatch import answer

    length = int.from_bytes(infile.read(4), "big")
    reply = answer(infile.read(length))
    outfile.write(len(reply).to_bytes(4, "big") + reply)
    freeze()


class Task:
    """A function over batches that Spark runs in a worker. It is loaded when it is called.

    An error in it reaches Spark's side as one sentence.
    """

    def __init__(self, work: Any) -> None:
        self._pickled = pickle.dumps(work)

    def __call__(self, batches: Any) -> Iterator[Any]:
        prepare()
        use_own_cores_only()
        from phalanx.spark.dispatch import TaskFailure

        try:
            yield from pickle.loads(self._pickled)(batches)
        except Exception as error:
            raise TaskFailure(error) from error
        freeze()


def loading() -> tuple[Any, Any]:
    """What a worker runs before there is a task for it, and the type of its rows.

    Spark's side asks for it by this name.
    """
    from pyspark.sql.types import BinaryType, StructField, StructType

    return Task(_load), StructType([StructField("message", BinaryType(), False)])


def _load(batches: Any) -> Iterator[Any]:
    """Load what tasks need that read, and send a row as they do."""
    import pyarrow as pa

    import phalanx.spark.reader  # noqa: F401

    yield pa.record_batch([pa.array([b""], pa.binary())], names=["message"])
    for _ in batches:
        pass


def prepare() -> None:
    """Make this worker faster. No user's code runs in it: the bridge has its own workers."""
    without_pandas()
    keep_archives()
    send_at_once()


def use_own_cores_only() -> None:
    """Keep Lance to the cores that Spark gives a task, usually one. It is not loaded yet.

    Other cores have tasks of their own. With a thread for each core, most of what a small leaf
    takes is that one thread wakes another.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    os.environ.setdefault("TOKIO_WORKER_THREADS", str(task.cpus() if task else 1))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def send_at_once() -> None:
    """Keep what this worker sends from waiting until Spark has confirmed what was sent before.

    A task sends little, in several parts, and each would wait for up to 40 ms. Spark asks for this
    on its own side only.
    """
    global _sends_at_once
    if _sends_at_once:
        return
    _sends_at_once = True
    with contextlib.suppress(OSError):
        for name in os.listdir("/dev/fd"):
            _without_delay(int(name))


def _without_delay(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # closed meanwhile, or a socket that never waits
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def keep_archives() -> None:
    """Keep Spark's own archives from being listed again and again.

    Earlier versions of PySpark forget all that is known about modules before every task, and to
    list what is in pyspark.zip, once for each of its packages, takes longer than most tasks. So
    does spark-core.jar, which is on the path too. They do not change while Spark runs.
    """
    setattr(zipimport.zipimporter, "invalidate_caches", _forget_others)  # noqa: B010


_forget = zipimport.zipimporter.invalidate_caches


def _forget_others(finder: zipimport.zipimporter) -> None:
    if not os.path.basename(finder.archive).startswith(_ARCHIVES):
        _forget(finder)


def without_pandas() -> None:
    """Keep pandas from being loaded into this worker, which takes longer than most queries.

    PyArrow imports it with the first array that it makes.
    """
    if not any(isinstance(finder, _NoPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NoPandas())


class _NoPandas:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not loaded in Phalanx's workers", name=name)


def freeze() -> None:
    """Exclude what is loaded from the garbage collection that Spark's daemon runs every time."""
    global _frozen
    if len(sys.modules) != _frozen:
        gc.collect()
        gc.freeze()
        _frozen = len(sys.modules)


if __name__ == "__main__":
    from phalanx.spark.workers import connection

    with connection() as file:
        main(file, file)
