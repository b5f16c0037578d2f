"""DataFrames: writeTo, and save by path."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F


@pytest.fixture
def frame(spark):
    return spark.sql("SELECT CAST(id AS INT) AS id, concat('c', id % 2) AS c FROM range(4)")


def rows(lake, table="t"):
    return lake.rows(f"SELECT * FROM {{db}}.{table}")


ROWS = [(0, "c0"), (1, "c1"), (2, "c0"), (3, "c1")]


class TestWriteTo:
    def test_create(self, lake, frame):
        frame.writeTo(lake["t"]).using("phalanx").partitionedBy("c").create()
        assert rows(lake) == ROWS
        assert lake.open("t").partitions().num_rows == 2
        with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
            frame.writeTo(lake["t"]).create()

    def test_create_with_transforms_and_properties(self, lake, frame):
        writer = frame.withColumn("ts", F.lit("2024-01-01").cast("timestamp")).writeTo(lake["t"])
        writer.partitionedBy(
            F.partitioning.days("ts"), F.partitioning.bucket(4, "id")
        ).tableProperty("team", "us").create()
        names = [field.field_id for field in lake.open("t").spec.fields]
        assert names == ["ts_year", "ts_month", "ts_day", "id_bucket"]
        assert ("team", "us") in lake.rows("SHOW TBLPROPERTIES {db}.t")

    def test_replace(self, lake, frame):
        with pytest.raises(AnalysisException, match="NOT_FOUND"):
            frame.writeTo(lake["t"]).replace()
        frame.writeTo(lake["t"]).createOrReplace()
        frame.select("c").writeTo(lake["t"]).replace()
        assert rows(lake) == [("c0",), ("c0",), ("c1",), ("c1",)]
        frame.writeTo(lake["t"]).partitionedBy("c").createOrReplace()
        assert rows(lake) == ROWS

    def test_append(self, lake, frame):
        frame.writeTo(lake["t"]).create()
        frame.select("c", "id").writeTo(lake["t"]).append()
        assert rows(lake) == sorted(ROWS * 2)

    def test_append_with_other_columns(self, lake, frame):
        frame.writeTo(lake["t"]).create()
        with pytest.raises(AnalysisException):
            frame.withColumn("more", F.lit(1)).writeTo(lake["t"]).append()
        assert rows(lake) == ROWS

    def test_overwrite_partitions(self, lake, frame):
        frame.writeTo(lake["t"]).partitionedBy("c").create()
        frame.limit(1).withColumn("id", F.lit(9)).writeTo(lake["t"]).overwritePartitions()
        assert rows(lake) == [(1, "c1"), (3, "c1"), (9, "c0")]

    def test_overwrite_partitions_of_a_table_without_any(self, lake, frame):
        frame.writeTo(lake["t"]).create()
        frame.limit(1).writeTo(lake["t"]).overwritePartitions()
        assert rows(lake) == [(0, "c0")]

    def test_overwrite_by_condition(self, lake, frame):
        frame.writeTo(lake["t"]).partitionedBy("c").create()
        frame.where("id = 3").writeTo(lake["t"]).overwrite(F.col("c") == "c1")
        assert rows(lake) == [(0, "c0"), (2, "c0"), (3, "c1")]

    def test_overwrite_by_condition_on_another_column(self, lake, frame):
        frame.writeTo(lake["t"]).partitionedBy("c").create()
        frame.where("id = 3").writeTo(lake["t"]).overwrite(F.col("id") > 0)
        assert rows(lake) == [(0, "c0"), (3, "c1")]

    def test_overwrite_by_condition_with_rows_outside_of_it(self, lake, frame):
        """As Spark's API says: rows that match go, and all rows of the frame come."""
        frame.writeTo(lake["t"]).create()
        frame.withColumn("c", F.lit("new")).writeTo(lake["t"]).overwrite(F.col("c") == "c1")
        kept = frame.where("c <> 'c1'").count()
        assert lake.rows("SELECT count(*), count_if(c = 'new') FROM {db}.t") == [
            (kept + frame.count(), frame.count())
        ]

    def test_a_condition_that_cannot_be_pushed_down(self, lake, frame):
        frame.writeTo(lake["t"]).create()
        with pytest.raises(AnalysisException):
            frame.writeTo(lake["t"]).overwrite(F.hash("id") == 1)
        assert rows(lake) == ROWS

    def test_save_as_table(self, lake, frame):
        frame.write.partitionBy("c").saveAsTable(lake["t"])
        frame.write.mode("append").insertInto(lake["t"])
        assert len(rows(lake)) == 8
        frame.write.mode("overwrite").saveAsTable(lake["t"])
        assert rows(lake) == ROWS
        frame.write.mode("ignore").saveAsTable(lake["t"])
        assert rows(lake) == ROWS

    def test_a_named_transaction_lands_once(self, lake, frame):
        frame.writeTo(lake["t"]).create()
        for _ in range(2):
            frame.writeTo(lake["t"]).option("transaction_id", "load-7").append()
        assert len(rows(lake)) == 8


class TestSaveByPath:
    def read(self, lake, path):
        found = lake.spark.read.format("phalanx").load(path)
        return sorted((tuple(row) for row in found.collect()), key=repr)

    @pytest.fixture
    def path(self, tmp_path):
        return str(tmp_path / "by path" / "table")

    def test_error_if_exists(self, lake, frame, path):
        frame.write.format("phalanx").partitionBy("c").save(path)
        assert self.read(lake, path) == ROWS
        with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
            frame.write.format("phalanx").save(path)
        frame.limit(1).write.format("phalanx").mode("ignore").save(path)
        assert self.read(lake, path) == ROWS

    def test_ignore_makes_a_table(self, lake, frame, path):
        frame.write.format("phalanx").mode("ignore").save(path)
        assert self.read(lake, path) == ROWS

    def test_append_and_overwrite(self, lake, frame, path):
        frame.write.format("phalanx").partitionBy("c").save(path)
        frame.write.format("phalanx").mode("append").save(path)
        assert len(self.read(lake, path)) == 8
        frame.limit(1).write.format("phalanx").mode("overwrite").save(path)
        assert self.read(lake, path) == [(0, "c0")]

    @pytest.mark.parametrize("mode", ["append", "overwrite"])
    def test_a_path_without_a_table(self, lake, frame, path, mode):
        frame.write.format("phalanx").mode(mode).save(path)
        assert self.read(lake, path) == ROWS
        frame.write.format("phalanx").mode(mode).save(path)
        assert len(self.read(lake, path)) == (8 if mode == "append" else 4)

    def test_a_path_without_a_table_by_partition(self, lake, frame, path):
        writer = (
            frame.write.format("phalanx").mode("append").option("partition_by", "c, bucket(2, id)")
        )
        writer.save(path)
        assert self.read(lake, path) == ROWS
        found = lake.spark.read.format("phalanx").load(path).where("c = 'c0'")
        assert "pruned by: c" in found._jdf.queryExecution().toString()

    def test_a_job_that_fails_makes_no_table(self, lake, frame, path):
        bad = frame.withColumn("x", F.expr("IF(id = 1, raise_error('no good'), 1)"))
        with pytest.raises(Exception, match="no good"):
            bad.write.format("phalanx").mode("append").save(path)
        frame.write.format("phalanx").save(path)
        assert self.read(lake, path) == ROWS

    def test_of_no_rows(self, lake, frame, path):
        frame.where("false").write.format("phalanx").mode("append").save(path)
        assert self.read(lake, path) == []

    def test_an_insert_in_sql_makes_no_table(self, lake, path):
        with pytest.raises(AnalysisException, match="NOT_FOUND"):
            lake.sql(f"INSERT INTO phalanx.`{path}` VALUES (1)")
