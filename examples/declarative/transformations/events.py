"""The table that events stream into."""

from __future__ import annotations

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id BIGINT, ts TIMESTAMP, country STRING, amount DOUBLE"

spark = SparkSession.active()


@pipelines.table(format="phalanx", partition_cols=["country"])
def raw() -> DataFrame:
    """Every event as it came in; each file is read once."""
    return spark.readStream.schema(SCHEMA).json(str(spark.conf.get("events.folder")))
