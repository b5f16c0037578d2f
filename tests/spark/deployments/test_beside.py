"""A catalog of Phalanx beside one of Iceberg, in one session."""

import shutil
import subprocess
from pathlib import Path

import pytest

from phalanx.spark import features
from tests.spark.deployments.conftest import QUIET
from tests.spark.deployments.processes import Driver, Failure

ICEBERG = "1.12.0"
ROWS = "SELECT id, CASE WHEN id % 2 = 0 THEN 'even' END parity FROM range(10)"


@pytest.fixture(scope="module")
def iceberg():
    """The jar of Iceberg for this Spark, from Maven's folder or its repository."""
    name = f"iceberg-spark-runtime-{features.minor()}_2.13"
    path = Path.home() / f".m2/repository/org/apache/iceberg/{name}/{ICEBERG}/{name}-{ICEBERG}.jar"
    maven = shutil.which("mvn")
    if not path.exists() and maven:
        artifact = f"-Dartifact=org.apache.iceberg:{name}:{ICEBERG}"
        command = [maven, "-q", "dependency:get", artifact, "-Dtransitive=false"]
        subprocess.run(command, capture_output=True, timeout=120)
    if not path.exists():
        pytest.skip(f"Iceberg {ICEBERG} for Spark {features.minor()} cannot be had here")
    return path


@pytest.fixture(scope="module")
def both(bridge, iceberg, tmp_path_factory):
    folder = tmp_path_factory.mktemp("beside")
    confs = {
        **QUIET,
        "spark.jars": str(iceberg),
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog",
        "spark.sql.catalog.spark_catalog.type": "hadoop",
        "spark.sql.catalog.spark_catalog.warehouse": str(folder / "iceberg"),
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }
    options = {"warehouse": str(folder / "lake"), "master": "local[2]", "conf": confs}
    driver = Driver(folder, options)
    driver.sql(f"CREATE TABLE lake.default.ours PARTITIONED BY (bucket(4, id)) AS {ROWS}")
    driver.sql(
        "CREATE TABLE spark_catalog.default.theirs USING iceberg "
        f"PARTITIONED BY (bucket(4, id)) AS {ROWS}"
    )
    yield driver
    driver.stop()


def test_a_join_of_both(both):
    rows = both.sql(
        "SELECT a.id, a.parity, b.parity FROM lake.default.ours a "
        "JOIN spark_catalog.default.theirs b ON a.id = b.id WHERE a.id > 6"
    )
    assert rows == [(7, None, None), (8, "even", "even"), (9, None, None)]


def test_rows_go_both_ways(both):
    both.sql("CREATE TABLE lake.default.copy AS SELECT * FROM spark_catalog.default.theirs")
    both.sql(
        "MERGE INTO spark_catalog.default.theirs t USING lake.default.ours s ON t.id = s.id + 5 "
        "WHEN MATCHED THEN UPDATE SET parity = 'ours' WHEN NOT MATCHED THEN INSERT *"
    )
    count = "SELECT count(*), count_if(parity = 'ours') FROM"
    assert both.sql(f"{count} spark_catalog.default.theirs") == [(15, 5)]
    assert both.sql(f"{count} lake.default.copy") == [(10, 0)]


def test_each_takes_its_own_statements(both):
    """Both have `ALTER TABLE … ADD PARTITION FIELD` and procedures of the same name."""
    both.sql("ALTER TABLE lake.default.ours ADD PARTITION FIELD parity")
    both.sql("ALTER TABLE spark_catalog.default.theirs ADD PARTITION FIELD parity")
    fields = both.sql("SELECT DISTINCT spec_id FROM spark_catalog.default.theirs.files")
    assert fields == [(0,)]
    both.sql("INSERT INTO spark_catalog.default.theirs VALUES (100, 'x')")
    both.sql("INSERT INTO lake.default.ours VALUES (100, 'x')")
    assert len(both.sql("SELECT DISTINCT spec_id FROM spark_catalog.default.theirs.files")) == 2
    assert both.sql("SELECT count(*) FROM lake.default.ours WHERE parity = 'x'") == [(1,)]
    both.sql("CALL lake.system.optimize('default.ours')")
    both.sql("CALL spark_catalog.system.rewrite_manifests('default.theirs')")
    with pytest.raises(Failure, match="unknown column 'nothing_of_this_name'"):
        both.sql("ALTER TABLE lake.default.ours ADD PARTITION FIELD nothing_of_this_name")
