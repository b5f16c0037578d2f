"""Spark Connect: a server of its own, made with `conf()`, and PySpark's own client."""

import pytest

from phalanx.spark import conf
from tests.spark.deployments.conftest import QUIET
from tests.spark.deployments.processes import (
    Driver,
    end,
    free_port,
    listens,
    spark_process,
    wait_for,
)
from tests.spark.deployments.steps import walk


@pytest.fixture(scope="module")
def server(bridge, tmp_path_factory):
    """The address of a server that has the catalog `lake`."""
    folder = tmp_path_factory.mktemp("server")
    port = free_port()
    confs = {
        **QUIET,
        **conf(warehouse=folder / "lake"),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    process = spark_process(
        folder,
        "server",
        *("spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]", "--driver-memory", "1g"),
        *(part for key, value in confs.items() for part in ("--conf", f"{key}={value}")),
        "spark-internal",
    )
    try:
        wait_for(lambda: listens(port), "the server", process, folder / "server.log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        end(process)


def test_connect(server, subtests, tmp_path):
    client = Driver(tmp_path, {"remote": server})
    try:
        walk(client, subtests)
    finally:
        client.stop()
