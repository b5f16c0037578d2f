"""The worker that Spark starts for Phalanx: it answers one request at a time.

It is a module of its own because Spark's daemon runs only modules whose names begin with
`pyspark`. Everything it does is in `phalanx.spark.door`.
"""

from __future__ import annotations

import gc
from typing import Any

from pyspark.sql.worker.utils import worker_run
from pyspark.worker_util import get_sock_file_to_executor

_frozen = False


def _answer(infile: Any, outfile: Any) -> None:
    from phalanx.spark.door import answer

    length = int.from_bytes(infile.read(4), "big")
    reply = answer(infile.read(length))
    outfile.write(len(reply).to_bytes(4, "big") + reply)
    freeze()


def freeze() -> None:
    """Keep what is loaded out of garbage collection, which Spark's daemon does every time."""
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True


def main(infile: Any, outfile: Any) -> None:
    """What Spark's daemon calls, for each request."""
    worker_run(_answer, infile, outfile)


if __name__ == "__main__":
    with get_sock_file_to_executor() as file:
        main(file, file)
