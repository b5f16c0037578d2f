"""Spark Connect: a server of its own, made with `conf()`, and PySpark's own client."""

import importlib.util

import pytest

from examples.declarative import run
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
        with subtests.test("search"):
            search(client)
        with subtests.test("a declarative pipeline"):
            if importlib.util.find_spec("pyspark.pipelines") is None:
                pytest.skip("this Spark has no declarative pipelines")
            declarative_pipeline(client, server, tmp_path)
    finally:
        client.stop()


def search(client):
    """By the function of Python and by that of SQL; leaves are searched on the server."""
    client.sql(
        "CREATE TABLE lake.db.docs (id BIGINT, tenant STRING, body STRING, v ARRAY<FLOAT>) "
        "USING phalanx PARTITIONED BY (tenant) TBLPROPERTIES ('vector.v.dimension' = '2')"
    )
    client.sql(
        "INSERT INTO lake.db.docs SELECT id, element_at(array('a', 'b', 'c'), int(id % 3) + 1), "
        "concat('fox ', id), array(float(id), float(0)) FROM range(60)"
    )
    client.python(
        "from phalanx.spark import search\n"
        "def ids(frame): return [row['id'] for row in frame.collect()]"
    )
    near = client.python("result = ids(search(spark, 'lake.db.docs', [30.2, 0.0], k=4))")
    assert near == [30, 31, 29, 32]
    exact = client.python(
        "result = ids(search(spark, 'lake.db.docs', text='fox 7', column='body', k=1))"
    )
    assert exact == [7]
    client.python("from phalanx.spark.searching import register; register(spark)")
    assert client.sql(
        "SELECT id FROM phalanx_search('lake.db.docs', vector => array(30.2F, 0F), k => 2, "
        "filter => \"tenant = 'b'\")"
    ) == [(28,), (31,)]


def declarative_pipeline(client, server, folder):
    """Spark creates the tables and fills them."""
    client.sql("CREATE NAMESPACE lake.declared")
    run.main(run.Pipeline(folder / "pipeline", "declared", server), {}, 100, files=1)
    raw, clean = (
        client.sql(f"SELECT count(*), count(DISTINCT id) FROM lake.declared.{name}")
        for name in ("raw", "clean")
    )
    valid = [id for id in range(100) if id % 4]
    assert raw == [(100, 100)]
    assert clean == [(len(valid), len(valid))]
    assert client.sql("SELECT sum(events), sum(total) FROM lake.declared.daily") == [
        (len(valid), float(sum(valid)))
    ]
    partitions = client.sql("SHOW PARTITIONS lake.declared.daily")
    assert partitions == [("country=DE",), ("country=FR",), ("country=US",)]
