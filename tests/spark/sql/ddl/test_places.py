"""Tables in other places: LOCATION, and the option `path`."""

import pytest
from pyspark.errors import AnalysisException

import phalanx


@pytest.fixture
def place(tmp_path):
    return tmp_path / "there" / "events"


def test_a_table_elsewhere(lake, place):
    lake.sql(f"CREATE TABLE {{db}}.t (id INT, p STRING) PARTITIONED BY (p) LOCATION '{place}'")
    lake.sql("INSERT INTO {db}.t VALUES (1, 'a')")
    assert phalanx.open(place).count() == 1
    assert not (lake.path / "t").exists()
    assert lake.rows("SELECT id FROM {db}.T") == [(1,)]
    assert lake.rows("SELECT rows FROM {db}.t.partitions") == [(1,)]
    assert lake.rows("SHOW TABLES IN {db}") == [(lake.name, "t", False)]
    ((text,),) = lake.rows("SHOW CREATE TABLE {db}.t")
    assert f"LOCATION '{place}'" in text
    assert "Type: EXTERNAL" in lake.rows("SHOW TABLE EXTENDED IN {db} LIKE 't'")[0][3]
    lake.sql("ALTER TABLE {db}.t ADD COLUMN x INT")
    lake.sql("ALTER TABLE {db}.t RENAME TO {db}.u")
    lake.sql("CREATE OR REPLACE TABLE {db}.u AS SELECT 7 AS id")
    assert phalanx.open(place).to_arrow().to_pylist() == [{"id": 7}]
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        lake.sql("CREATE TABLE {db}.u (id INT)")
    lake.sql("DROP TABLE {db}.u")
    assert lake.rows("SHOW TABLES IN {db}") == []
    assert phalanx.open(place).count() == 1


def test_a_table_that_is_there_gets_a_name(lake, place):
    lake.spark.range(3).write.format("phalanx").save(str(place))
    lake.sql(f"CREATE TABLE {{db}}.t USING phalanx LOCATION '{place}'")
    lake.sql(f"CREATE TABLE {{db}}.u (id BIGINT) USING phalanx OPTIONS (path '{place}')")
    assert lake.sql("SELECT * FROM {db}.t JOIN {db}.u USING (id)").count() == 3
    for columns in ("(id STRING)", "(id BIGINT, x INT)", "(id BIGINT) PARTITIONED BY (id)"):
        with pytest.raises(AnalysisException, match="another table at"):
            lake.sql(f"CREATE TABLE {{db}}.v {columns} LOCATION '{place}'")
    with pytest.raises(AnalysisException, match="choose another place"):
        lake.sql(f"CREATE TABLE {{db}}.v LOCATION '{place}' AS SELECT 1L AS id")
    assert phalanx.open(place).count() == 3


def test_as_select(lake, place):
    lake.sql(f"CREATE TABLE {{db}}.t LOCATION '{place}' AS SELECT id FROM range(4)")
    assert phalanx.open(place).count() == 4
    with pytest.raises(AnalysisException, match="drop it first"):
        lake.sql(f"CREATE OR REPLACE TABLE {{db}}.t LOCATION '{place}2' AS SELECT 1 AS id")


def test_its_own_place_and_a_relative_one(lake):
    lake.sql(f"CREATE TABLE {{db}}.t (id INT) LOCATION '{lake.path / 't'}'")
    assert "LOCATION" not in lake.rows("SHOW CREATE TABLE {db}.t")[0][0]
    with pytest.raises(AnalysisException, match="absolute path or a URI"):
        lake.sql("CREATE TABLE {db}.u (id INT) LOCATION 'somewhere'")


def test_a_table_that_has_gone_from_there(lake, place):
    lake.sql(f"CREATE TABLE {{db}}.t (id INT) LOCATION '{place}'")
    phalanx.open(place).drop()
    with pytest.raises(AnalysisException, match="NOT_FOUND"):
        lake.sql("SELECT * FROM {db}.t")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        lake.sql("CREATE TABLE {db}.t (id INT)")
    lake.sql("DROP TABLE IF EXISTS {db}.t")
    lake.sql("CREATE TABLE {db}.t (id INT)")
