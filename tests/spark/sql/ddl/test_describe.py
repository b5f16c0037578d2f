"""SHOW, DESCRIBE, TBLPROPERTIES and comments."""

import pytest
from pyspark.errors import AnalysisException

from tests.spark.needs import needs

DDL = """
CREATE TABLE {db}.t (
  id BIGINT NOT NULL COMMENT 'the key',
  ts TIMESTAMP,
  at STRUCT<city: STRING COMMENT 'where', zip: INT NOT NULL>,
  name STRING,
  short VARCHAR(10),
  fixed CHAR(3),
  price DECIMAL(12, 2),
  v ARRAY<FLOAT>,
  `a b` INT)
USING phalanx
PARTITIONED BY (days(ts), name, bucket(16, id), truncate(3, name), multi_bucket(4, id, name),
  expr('week', "date_trunc('week', col0)", ts), at.city)
COMMENT "it's a table"
TBLPROPERTIES ('vector.v.dimension' = '3', 'team' = "it's us")
"""


def described(lake, table="t"):
    rows = lake.sql(f"DESCRIBE EXTENDED {{db}}.{table}").collect()
    return [(row.col_name, row.data_type, row.comment) for row in rows]


class TestShowCreateTable:
    @needs("doubled_quotes")
    def test_it_makes_an_equal_table(self, lake):
        lake.sql(DDL)
        ((text,),) = lake.rows("SHOW CREATE TABLE {db}.t")
        first = described(lake)
        schema, spec = lake.open("t").schema, lake.open("t").spec
        lake.sql("DROP TABLE {db}.t")
        lake.spark.sql(text)
        assert lake.open("t").schema.equals(schema, check_metadata=True)
        assert [f.spell(lake.open("t")._snapshot.head.schema) for f in lake.open("t").spec.fields]
        assert lake.open("t").spec == spec
        assert described(lake) == first

    def test_of_a_plain_table(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT)")
        ((text,),) = lake.rows("SHOW CREATE TABLE {db}.t")
        assert "LOCATION" not in text
        assert "version" not in text
        lake.sql("CREATE NAMESPACE {db}.elsewhere")
        lake.spark.sql(text.replace(lake["t"], lake["elsewhere.t"]))
        assert lake.open("elsewhere/t").schema.names == ["id"]


class TestDescribe:
    def test_columns(self, lake):
        lake.sql(DDL)
        found = {name: (kind, comment) for name, kind, comment in described(lake)}
        assert found["id"] == ("bigint", "the key")
        assert found["at"] == ("struct<city:string,zip:int not null>", None) or found["at"][
            0
        ].startswith("struct<city:string")
        assert found["price"] == ("decimal(12,2)", None)
        assert found["v"] == ("array<float>", None)
        assert found["short"][0] == "varchar(10)"
        assert found["fixed"][0] == "char(3)"

    def test_partitioning_place_version_and_mode(self, lake):
        lake.sql(DDL)
        found = {name: kind for name, kind, _ in described(lake)}
        assert found["Part 0"] == "days(ts)"
        assert found["Part 2"] == "bucket(16, id)"
        assert found["Location"].endswith(f"{lake.name}/t")
        assert found["Provider"] == "phalanx"
        assert found["Comment"] == "it's a table"
        assert "transactions=strong" in found["Table Properties"]
        assert "version=1" in found["Table Properties"]
        assert "team=it's us" in found["Table Properties"]

    def test_the_version_moves(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT)")
        lake.sql("INSERT INTO {db}.t VALUES (1)")
        found = {name: kind for name, kind, _ in described(lake)}
        assert "version=2" in found["Table Properties"]

    def test_one_column(self, lake):
        lake.sql(DDL)
        found = dict(lake.rows("DESCRIBE {db}.t id"))
        assert found["data_type"] == "bigint"
        assert found["comment"] == "the key"


class TestShow:
    def test_tables(self, lake):
        for name in ("b", "a", "other"):
            lake.sql(f"CREATE TABLE {{db}}.{name} (id INT)")
        names = [row[1] for row in lake.rows("SHOW TABLES IN {db}")]
        assert names == ["a", "b", "other"]
        assert [row[1] for row in lake.rows("SHOW TABLES IN {db} LIKE 'o*'")] == ["other"]

    def test_tables_of_nothing(self, lake):
        with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
            lake.sql("SHOW TABLES IN {db}.none")

    def test_columns(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT, name STRING)")
        assert lake.rows("SHOW COLUMNS IN {db}.t") == [("id",), ("name",)]

    def test_properties(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT) TBLPROPERTIES ('a' = 'x')")
        assert ("a", "x") in lake.rows("SHOW TBLPROPERTIES {db}.t")


class TestProperties:
    def test_set_and_unset(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT) TBLPROPERTIES ('a' = '1')")
        lake.sql("ALTER TABLE {db}.t SET TBLPROPERTIES ('a' = '2', 'b' = '3')")
        lake.sql("ALTER TABLE {db}.t UNSET TBLPROPERTIES ('a')")
        lake.sql("ALTER TABLE {db}.t UNSET TBLPROPERTIES IF EXISTS ('never')")
        found = dict(lake.rows("SHOW TBLPROPERTIES {db}.t"))
        assert found["b"] == "3"
        assert "a" not in found

    @pytest.mark.parametrize("key", ["transactions", "version"])
    def test_some_cannot_be_set(self, lake, key):
        lake.sql("CREATE TABLE {db}.t (id INT)")
        with pytest.raises(AnalysisException, match=f"the property '{key}' cannot be changed"):
            lake.sql(f"ALTER TABLE {{db}}.t SET TBLPROPERTIES ('{key}' = '2')")

    def test_a_value_that_a_property_does_not_take(self, lake):
        with pytest.raises(AnalysisException, match="the property anchor is one of"):
            lake.sql("CREATE TABLE {db}.t (id INT) TBLPROPERTIES ('anchor' = 'sometimes')")

    def test_transactions_that_are_none(self, lake):
        with pytest.raises(AnalysisException, match="transactions are 'strong' or 'weak'"):
            lake.sql("CREATE TABLE {db}.t (id INT) TBLPROPERTIES ('transactions' = 'firm')")

    def test_properties_change_no_rows(self, lake):
        lake.sql("CREATE TABLE {db}.t PARTITIONED BY (id) AS SELECT id FROM range(3)")
        lake.sql("ALTER TABLE {db}.t SET TBLPROPERTIES ('a' = '2')")
        assert lake.rows("SELECT * FROM {db}.t") == [(0,), (1,), (2,)]


class TestComments:
    def test_on_a_table(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT) COMMENT 'first'")
        lake.sql("COMMENT ON TABLE {db}.t IS 'second'")
        found = {name: kind for name, kind, _ in described(lake)}
        assert found["Comment"] == "second"

    def test_they_survive_a_write(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT COMMENT 'key') COMMENT 'first'")
        lake.sql("INSERT INTO {db}.t VALUES (1)")
        found = {name: (kind, comment) for name, kind, comment in described(lake)}
        assert found["id"] == ("int", "key")
        assert found["Comment"][0] == "first"
