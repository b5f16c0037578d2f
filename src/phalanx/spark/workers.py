"""How Spark's Python workers talk to Spark, where PySpark has no function of its own for it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any


def worker_run(work: Callable[[Any, Any], None], infile: Any, outfile: Any) -> None:
    """Read what Spark sends to every worker, do the work, and say that the worker can be kept.

    An error in `work` is sent to Spark, and ends this process.
    """
    from pyspark.accumulators import _accumulatorRegistry
    from pyspark.serializers import SpecialLengths
    from pyspark.util import handle_worker_exception
    from pyspark.worker_util import (
        check_python_version,
        send_accumulator_updates,
        setup_broadcasts,
        setup_memory_limits,
        setup_spark_files,
    )

    try:
        check_python_version(infile)
        setup_memory_limits(int(os.environ.get("PYSPARK_PLANNER_MEMORY_MB", "-1")))
        setup_spark_files(infile)
        setup_broadcasts(infile)
        _accumulatorRegistry.clear()
        work(infile, outfile)
    except BaseException as error:
        handle_worker_exception(error, outfile)
        sys.exit(-1)
    send_accumulator_updates(outfile)
    if _read(infile) != SpecialLengths.END_OF_STREAM:
        # Anything else tells Spark not to use this worker again.
        _write(SpecialLengths.END_OF_DATA_SECTION, outfile)
        sys.exit(-1)
    _write(SpecialLengths.END_OF_STREAM, outfile)


def _read(file: Any) -> int:
    return int.from_bytes(file.read(4), "big", signed=True)


def _write(number: int, file: Any) -> None:
    file.write(number.to_bytes(4, "big", signed=True))


@contextlib.contextmanager
def connection() -> Iterator[Any]:
    """The connection to the Java process that has started this one."""
    from pyspark.util import local_connect_and_auth

    port = int(os.environ.get("PYTHON_WORKER_FACTORY_PORT", "-1"))
    place = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH", port)
    file, _ = local_connect_and_auth(place, os.environ.get("PYTHON_WORKER_FACTORY_SECRET"))
    _write(os.getpid(), file)
    file.flush()
    try:
        yield file
    finally:
        file.close()
