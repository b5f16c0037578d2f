"""CREATE, REPLACE, DROP and RENAME TABLE."""

import pytest
from pyspark.errors import AnalysisException

from tests.spark.needs import needs

COLUMNS = "(id BIGINT NOT NULL, country STRING)"


class TestCreate:
    def test_an_empty_table(self, lake):
        lake.sql(f"CREATE TABLE {{db}}.t {COLUMNS} USING phalanx")
        assert lake.rows("SELECT * FROM {db}.t") == []
        assert lake.open("t").version == 1

    def test_without_using(self, lake):
        lake.sql(f"CREATE TABLE {{db}}.t {COLUMNS}")
        assert lake.open("t").schema.names == ["id", "country"]

    def test_twice(self, lake):
        lake.sql(f"CREATE TABLE {{db}}.t {COLUMNS}")
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
            lake.sql(f"CREATE TABLE {{db}}.t {COLUMNS}")

    def test_if_not_exists(self, lake):
        lake.sql(f"CREATE TABLE {{db}}.t {COLUMNS}")
        lake.sql("INSERT INTO {db}.t VALUES (1, 'DE')")
        lake.sql("CREATE TABLE IF NOT EXISTS {db}.t (other STRING)")
        assert lake.rows("SELECT * FROM {db}.t") == [(1, "DE")]

    def test_in_a_namespace_that_is_not_there(self, lake):
        with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
            lake.sql(f"CREATE TABLE {{db}}.none.t {COLUMNS}")

    def test_in_a_nested_namespace(self, lake):
        lake.sql("CREATE NAMESPACE {db}.inner")
        lake.sql(f"CREATE TABLE {{db}}.inner.t {COLUMNS}")
        lake.sql("INSERT INTO {db}.inner.t VALUES (1, 'DE')")
        assert lake.rows("SELECT country FROM {db}.inner.t") == [("DE",)]

    def test_names_with_other_letters(self, lake):
        lake.sql("CREATE TABLE {db}.`Ünïcode täble` (`a b` INT, `select` STRING, `x-y` INT)")
        lake.sql("INSERT INTO {db}.`Ünïcode täble` VALUES (1, 'x', 2)")
        query = "SELECT `x-y`, `select`, `a b` FROM {db}.`Ünïcode täble` WHERE `a b` = 1"
        assert lake.rows(query) == [(2, "x", 1)]

    def test_an_impossible_column(self, lake):
        with pytest.raises(AnalysisException, match="Lance uses that name itself"):
            lake.sql("CREATE TABLE {db}.t (`_rowaddr` INT)")

    @pytest.mark.parametrize("name", ["_hidden", ".dot", "a/b"])
    def test_impossible_names(self, lake, name):
        with pytest.raises(AnalysisException, match="is not a name for a table"):
            lake.sql(f"CREATE TABLE {{db}}.`{name}` {COLUMNS}")

    @needs("create_table_like")
    def test_like(self, lake):
        lake.sql(f"CREATE TABLE {{db}}.t {COLUMNS} PARTITIONED BY (country)")
        lake.sql("CREATE TABLE {db}.u LIKE {db}.t")
        assert lake.open("u").schema == lake.open("t").schema
        assert lake.open("u").spec == lake.open("t").spec


class TestCreateAsSelect:
    def test_rows_and_table_come_together(self, lake):
        lake.sql(
            "CREATE TABLE {db}.t USING phalanx PARTITIONED BY (country) "
            "AS SELECT id, if(id % 2 = 0, 'DE', 'FR') AS country FROM range(4)"
        )
        table = lake.open("t")
        assert table.version == 1
        assert table.partitions().num_rows == 2
        assert lake.rows("SELECT * FROM {db}.t") == [(0, "DE"), (1, "FR"), (2, "DE"), (3, "FR")]

    def test_a_query_that_fails_makes_no_table(self, lake):
        with pytest.raises(Exception, match="no good"):
            lake.sql(
                "CREATE TABLE {db}.t AS SELECT if(id = 3, raise_error('no good'), id) AS id "
                "FROM range(5)"
            )
        assert lake.rows("SHOW TABLES IN {db}") == []
        lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
        assert lake.rows("SELECT * FROM {db}.t") == [(1,)]

    def test_of_no_rows(self, lake):
        lake.sql("CREATE TABLE {db}.t PARTITIONED BY (id) AS SELECT id FROM range(0)")
        assert lake.rows("SELECT * FROM {db}.t") == []

    def test_where_there_is_one(self, lake):
        lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
        with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
            lake.sql("CREATE TABLE {db}.t AS SELECT 2 AS id")
        lake.sql("CREATE TABLE IF NOT EXISTS {db}.t AS SELECT 3 AS id")
        assert lake.rows("SELECT * FROM {db}.t") == [(1,)]

    def test_weak_transactions(self, lake):
        lake.sql(
            "CREATE TABLE {db}.t PARTITIONED BY (id) TBLPROPERTIES ('transactions' = 'weak') "
            "AS SELECT id FROM range(3)"
        )
        lake.sql("INSERT INTO {db}.t VALUES (9)")
        assert lake.rows("SELECT * FROM {db}.t") == [(0,), (1,), (2,), (9,)]


class TestReplace:
    def test_with_other_columns(self, lake):
        lake.sql("CREATE TABLE {db}.t PARTITIONED BY (country) AS SELECT 1L AS id, 'DE' AS country")
        before = lake.open("t").version
        lake.sql("REPLACE TABLE {db}.t (name STRING, size INT) PARTITIONED BY (bucket(4, name))")
        assert lake.rows("SELECT * FROM {db}.t") == []
        lake.sql("INSERT INTO {db}.t VALUES ('x', 1)")
        assert lake.rows("SELECT size, name FROM {db}.t WHERE name = 'x'") == [(1, "x")]
        old = lake.sql(f"SELECT * FROM {{db}}.t VERSION AS OF {before}")
        assert old.columns == ["id", "country"]
        assert [tuple(row) for row in old.collect()] == [(1, "DE")]

    def test_as_select_from_itself(self, lake):
        lake.sql("CREATE TABLE {db}.t PARTITIONED BY (id) AS SELECT id FROM range(3)")
        lake.sql("REPLACE TABLE {db}.t AS SELECT id + 10 AS id, 'x' AS more FROM {db}.t")
        assert lake.rows("SELECT * FROM {db}.t") == [(10, "x"), (11, "x"), (12, "x")]

    def test_a_query_that_fails_changes_nothing(self, lake):
        lake.sql("CREATE TABLE {db}.t AS SELECT id FROM range(3)")
        with pytest.raises(Exception, match="no good"):
            lake.sql(
                "CREATE OR REPLACE TABLE {db}.t AS "
                "SELECT if(id = 1, raise_error('no good'), 'x') AS name FROM range(2)"
            )
        assert lake.rows("SELECT id FROM {db}.t") == [(0,), (1,), (2,)]
        assert lake.open("t").version == 1

    def test_fields_of_the_same_name_are_other_fields(self, lake):
        lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
        lake.sql("REPLACE TABLE {db}.t AS SELECT 'text' AS id")
        assert lake.rows("SELECT * FROM {db}.t") == [("text",)]
        assert lake.rows("SELECT * FROM {db}.t VERSION AS OF 1") == [(1,)]

    def test_of_nothing(self, lake):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            lake.sql("REPLACE TABLE {db}.t (id INT)")
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            lake.sql("REPLACE TABLE {db}.t AS SELECT 1 AS id")

    def test_create_or_replace(self, lake):
        lake.sql("CREATE OR REPLACE TABLE {db}.t AS SELECT 1 AS id")
        lake.sql("CREATE OR REPLACE TABLE {db}.t AS SELECT 'x' AS name")
        assert lake.rows("SELECT * FROM {db}.t") == [("x",)]
        lake.sql("CREATE OR REPLACE TABLE {db}.t (n INT)")
        assert lake.rows("SELECT * FROM {db}.t") == []
        assert lake.open("t").version == 3

    def test_with_other_transactions(self, lake):
        lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
        with pytest.raises(AnalysisException, match="has strong transactions"):
            lake.sql("REPLACE TABLE {db}.t (n INT) TBLPROPERTIES ('transactions' = 'weak')")
        assert lake.rows("SELECT * FROM {db}.t") == [(1,)]

    def test_many_times_with_the_same_partitioning(self, lake):
        for n in range(3):
            lake.sql(
                f"CREATE OR REPLACE TABLE {{db}}.t PARTITIONED BY (c) AS SELECT {n} AS n, 'x' AS c"
            )
        assert lake.rows("SELECT * FROM {db}.t WHERE c = 'x'") == [(2, "x")]
        for n in range(3):
            assert lake.rows(f"SELECT n FROM {{db}}.t VERSION AS OF {n + 1}") == [(n,)]


class TestDrop:
    def test_it_is_gone(self, lake):
        lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
        lake.sql("DROP TABLE {db}.t")
        assert not (lake.path / "t").exists()
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            lake.sql("SELECT * FROM {db}.t")

    def test_if_exists(self, lake):
        lake.sql("DROP TABLE IF EXISTS {db}.t")
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            lake.sql("DROP TABLE {db}.t")

    def test_purge(self, lake):
        lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
        lake.sql("DROP TABLE {db}.t PURGE")
        assert lake.rows("SHOW TABLES IN {db}") == []

    def test_and_made_again_with_the_same_name(self, lake):
        lake.sql("CREATE TABLE {db}.t PARTITIONED BY (id) AS SELECT 1 AS id")
        assert lake.rows("SELECT * FROM {db}.t") == [(1,)]
        lake.sql("DROP TABLE {db}.t")
        lake.sql("CREATE TABLE {db}.t PARTITIONED BY (id) AS SELECT 2 AS id")
        assert lake.rows("SELECT * FROM {db}.t") == [(2,)]


class TestProviders:
    @pytest.mark.parametrize("provider", ["iceberg", "parquet", "delta"])
    @pytest.mark.parametrize(
        "statement",
        [
            "CREATE TABLE {db}.x (id INT) USING {provider}",
            "CREATE TABLE {db}.x USING {provider} AS SELECT 1 AS id",
            "CREATE OR REPLACE TABLE {db}.x USING {provider} AS SELECT 1 AS id",
        ],
    )
    def test_a_foreign_one_is_refused(self, shared_lake, statement, provider):
        with pytest.raises(AnalysisException, match=f"tables of Phalanx, not of {provider}"):
            shared_lake.sql(statement.replace("{provider}", provider))
        assert shared_lake.rows("SHOW TABLES IN {db}") == []

    def test_of_a_frame(self, lake):
        rows = lake.spark.range(3)
        rows.write.saveAsTable(lake["t"])
        rows.writeTo(lake["u"]).using("Phalanx").create()
        with pytest.raises(AnalysisException, match="not of orc"):
            rows.write.format("orc").saveAsTable(lake["v"])
        with pytest.raises(AnalysisException, match="not of delta"):
            rows.writeTo(lake["v"]).using("delta").create()
        assert [row[1] for row in lake.rows("SHOW TABLES IN {db}")] == ["t", "u"]


class TestRename:
    def test_to_another_name(self, lake):
        lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
        for name in (f"{lake.name}.u", "{db}.v", "w"):
            table = lake.rows("SHOW TABLES IN {db}")[0][1]
            lake.sql(f"ALTER TABLE {{db}}.{table} RENAME TO {name}")
            assert lake.rows("SHOW TABLES IN {db}") == [(lake.name, name[-1], False)]
        assert lake.rows("SELECT * FROM {db}.w") == [(1,)]

    def test_to_a_name_that_is_taken(self, lake):
        lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
        lake.sql("CREATE TABLE {db}.u AS SELECT 2 AS id")
        with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
            lake.sql(f"ALTER TABLE {{db}}.t RENAME TO {lake.name}.u")
        assert lake.rows("SELECT * FROM {db}.u") == [(2,)]

    def test_of_nothing(self, lake):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            lake.sql(f"ALTER TABLE {{db}}.t RENAME TO {lake.name}.u")

    def test_to_a_namespace_that_is_not_there(self, lake):
        lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
        with pytest.raises(AnalysisException, match="there is no namespace none"):
            lake.sql("ALTER TABLE {db}.t RENAME TO none.t")
