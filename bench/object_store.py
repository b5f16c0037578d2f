"""Commits in an object store: one writer, and six that take turns.

The store is a server on this machine: MinIO where `PHALANX_MINIO` names its program, else moto. The
bounds are for MinIO. Moto is one process in Python and mostly busy with itself, so its figures are
only shown.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import boto3

from bench.commits import together
from bench.measure import Figure

WRITERS = 6
#: How many commits each of them makes, and how many one that is alone: in MinIO and in moto.
COMMITS = {"MinIO": (10, 40), "moto": (3, 6)}
KEY = "benchmark"

MOTO = """
import sys, time, logging
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
ThreadedMotoServer("127.0.0.1", int(sys.argv[1]), verbose=False).start()
time.sleep(86400)
"""


@contextlib.contextmanager
def store() -> Iterator[tuple[str, dict[str, str]]]:
    """An object store with a bucket `lake`: its name, and its storage options."""
    minio = os.environ.get("PHALANX_MINIO")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if minio:
            command = [minio, "server", "--quiet", "--address", f"127.0.0.1:{port}", folder]
        else:
            command = [sys.executable, "-c", MOTO, str(port)]
        own = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": KEY, "MINIO_BROWSER": "off"}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        server = subprocess.Popen(command, env={**os.environ, **own}, **quiet)
        try:
            options = {
                "access_key_id": KEY,
                "secret_access_key": KEY,
                "region": "us-east-1",
                "endpoint": f"http://127.0.0.1:{port}",
                "allow_http": "true",
            }
            create_bucket(options)
            yield "MinIO" if minio else "moto", options
        finally:
            server.terminate()
            server.wait()


def create_bucket(options: dict[str, str]) -> None:
    client: Any = boto3.client(
        "s3",
        endpoint_url=options["endpoint"],
        region_name=options["region"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            client.create_bucket(Bucket="lake")
            return
        except Exception:  # the server is not up yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def writers(name: str, options: dict[str, str]) -> list[Figure]:
    is_real = name == "MinIO"
    each, by_one = COMMITS[name]
    figures = []
    for hot in (False, True):
        kind = "one hot partition" if hot else "different partitions"
        alone, _, _ = together(f"s3://lake/alone-{hot}", 1, hot, by_one, options)
        uri = f"s3://lake/together-{hot}"
        rate, slowest, worst = together(uri, WRITERS, hot, each, options)
        ratio = f"{name}: {WRITERS} writers / 1 writer"
        bounds = (0.9, 2) if is_real else (None, None)
        figures += [
            Figure(f"{name}: 1 writer, {kind}", alone, "/s"),
            Figure(f"{name}: {WRITERS} writers, {kind}", rate, "/s"),
            Figure(ratio, rate / alone, "x", bounds[0], at_least=True),
            Figure(f"{name}: slowest commit", slowest, "s", bounds[1]),
            Figure(f"{name}: slowest writer / mean", worst, "x"),
        ]
    return figures


def main() -> int:
    with store() as (name, options):
        figures = writers(name, options)
    print(*figures, sep="\n", flush=True)
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
