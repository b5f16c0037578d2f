"""Other formats in Spark: procedures, and what Spark's own readers make of exports."""

import datetime as dt

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException

import phalanx
from tests.interop.samples import HOSTILE


@pytest.fixture
def table(lake):
    lake.sql("CREATE TABLE {db}.t (id INT, ts TIMESTAMP, country STRING) PARTITIONED BY (country)")
    lake.sql(
        "INSERT INTO {db}.t VALUES (1, TIMESTAMP '2025-01-01 00:00:00', 'US'), "
        "(2, NULL, 'a/b'), (3, TIMESTAMP '9999-12-31 00:00:00', NULL)"
    )
    return lake


def call(lake, procedure, table, **arguments):
    given = "".join(f", {name} => '{value}'" for name, value in arguments.items())
    return lake.sql(
        f"CALL lake.system.{procedure}(table => '{lake.name}.{table}'{given})"
    ).collect()


ALL = "SELECT id, ts, country FROM {db}.t"


def test_parquet_out_and_in(table, tmp_path):
    ((version, files, rows, size),) = call(table, "export_parquet", "t", path=tmp_path / "tree")
    assert (version, files, rows) == (2, 3, 3)
    assert size > 0
    assert call(table, "import_parquet", "back", path=tmp_path / "tree") == [(1, 3, 3)]
    assert table.rows("SELECT id, ts, country FROM {db}.back") == table.rows(ALL)
    assert table.open("back").check().ok
    call(
        table,
        "import_parquet",
        "other",
        path=tmp_path / "tree",
        partition_by="days(ts), bucket(2, id)",
    )
    assert table.rows("SELECT id, ts, country FROM {db}.other") == table.rows(ALL)


def test_parquet_that_spark_wrote(lake, tmp_path):
    frame = lake.spark.sql(
        "SELECT id, timestamp_seconds(id) AS ts, id % 3 AS p, concat('a/', id % 2) AS s "
        "FROM range(100)"
    )
    frame.write.partitionBy("p", "s").parquet(str(tmp_path / "tree"))
    ((version, partitions, rows),) = call(lake, "import_parquet", "t", path=tmp_path / "tree")
    assert (version, partitions, rows) == (1, 6, 100)
    expected = sorted((tuple(row) for row in frame.collect()), key=repr)
    assert lake.rows("SELECT id, ts, p, s FROM {db}.t") == expected


def test_delta_out_and_in(table, tmp_path):
    (first,) = call(table, "export_delta", "t", path=tmp_path / "delta")
    assert (first.delta_version, first.files_added, first.rows_added) == (0, 3, 3)
    table.sql("INSERT INTO {db}.t VALUES (4, NULL, 'DE')")
    (second,) = call(table, "export_delta", "t", path=tmp_path / "delta")
    assert (second.delta_version, second.files_added, second.files_kept) == (1, 1, 3)
    assert DeltaTable(tmp_path / "delta").count() == 4
    assert call(table, "import_delta", "back", path=tmp_path / "delta") == [(1, 4, 4)]
    assert table.rows("SELECT id, ts, country FROM {db}.back") == table.rows(ALL)


def test_spark_reads_the_bare_files_of_a_delta_table(table, tmp_path):
    call(table, "export_delta", "t", path=tmp_path / "delta")
    files = [str(file) for file in (tmp_path / "delta").rglob("part-*.parquet")]
    frame = table.spark.read.parquet(*files).select("id", "ts", "country")
    assert sorted((tuple(row) for row in frame.collect()), key=repr) == table.rows(ALL)


def test_spark_reads_a_tree(spark, tmp_path):
    values = [value for value in HOSTILE if value != ""]
    rows = pa.table(
        {"id": range(len(values)), "p": values, "d": [dt.date(2024, 2, 29)] * len(values)}
    )
    ours = phalanx.create(tmp_path / "t", rows.schema, ["d", "p"]).append(rows)
    phalanx.interop.parquet.export(ours, tmp_path / "tree")
    frame = spark.read.schema("id LONG, p STRING, d DATE").parquet(str(tmp_path / "tree"))
    found = sorted((tuple(row) for row in frame.select("id", "p", "d").collect()), key=repr)
    assert found == sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


def test_spark_does_not_read_the_empty_string_from_a_path(spark, tmp_path):
    rows = pa.table({"id": [1], "p": [""]})
    ours = phalanx.create(tmp_path / "t", rows.schema, ["p"]).append(rows)
    phalanx.interop.parquet.export(ours, tmp_path / "tree")
    with pytest.raises(Exception, match=r"(?i)empty partition column value"):
        spark.read.parquet(str(tmp_path / "tree")).collect()


def test_refusals(table, tmp_path):
    with pytest.raises(AnalysisException, match="there is no folder"):
        call(table, "import_parquet", "new", path=tmp_path / "nowhere")
    call(table, "export_parquet", "t", path=tmp_path / "tree")
    with pytest.raises(AnalysisException, match="there is already a table"):
        call(table, "import_parquet", "t", path=tmp_path / "tree")
    with pytest.raises(AnalysisException, match="is not empty"):
        call(table, "export_parquet", "t", path=tmp_path / "tree")
    call(table, "export_parquet", "t", path=tmp_path / "tree", overwrite="true")
    with pytest.raises(AnalysisException, match="no namespace elsewhere"):
        table.sql(
            f"CALL lake.system.import_parquet(table => 'elsewhere.t', path => '{tmp_path}/tree')"
        ).collect()
