"""Names: those that no table can have, those that differ in case, those with a catalog."""

import pytest
from pyspark.errors import AnalysisException

from tests.spark.needs import needs


@pytest.fixture
def here(lake):
    """The namespace is the current one."""
    lake.sql("USE {db}")
    yield lake
    lake.sql("USE spark_catalog.default")


@pytest.fixture
def case_sensitive(spark):
    spark.conf.set("spark.sql.caseSensitive", "true")
    yield
    spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize("format", ["parquet", "orc", "json", "csv"])
def test_files_by_their_path(here, tmp_path, format):
    path = f"{tmp_path}/files"
    here.spark.range(3).write.format(format).save(path)
    assert here.sql(f"SELECT * FROM {format}.`{path}`").count() == 3


IMPOSSIBLE = ["`_x`", "`.x`", "`a/b`", "{db}.`_x`", "lake._q.t", "{db}._q.t"]


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_name_that_nothing_can_have_is_not_found(here, name):
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        here.sql(f"SELECT * FROM {name}")
    here.sql(f"DROP TABLE IF EXISTS {name}")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        here.sql(f"ALTER TABLE {name} ADD COLUMN x INT")


@needs("views")
def test_a_view_that_cannot_be(here):
    for name in IMPOSSIBLE:
        here.sql(f"DROP VIEW IF EXISTS {name}")
        with pytest.raises(AnalysisException, match="VIEW_NOT_FOUND"):
            here.sql(f"DROP VIEW {name}")


def test_a_namespace_that_cannot_be(lake):
    for name in ("lake._q", "{db}.`.x`"):
        with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
            lake.sql(f"SHOW TABLES IN {name}")
        lake.sql(f"DROP NAMESPACE IF EXISTS {name}")


def test_procedures_take_any_name(here):
    here.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
    for name in (here["t"], f"`lake`.`{here.name}`.`t`", f"{here.name}.t", "t", here["T"]):
        assert here.rows(f"CALL lake.system.check('{name}')")[0][0].startswith("ok")
    with pytest.raises(AnalysisException, match="no table none"):
        here.sql("CALL lake.system.optimize('lake.none.t')")


class TestCase:
    def test_it_does_not_count(self, lake):
        lake.sql("CREATE TABLE {db}.Events AS SELECT 1 AS id")
        upper = lake.name.upper()
        lake.sql(f"INSERT INTO lake.{upper}.EVENTS VALUES (2)")
        assert lake.rows("SELECT * FROM {db}.events") == [(1,), (2,)]
        assert lake.rows("SELECT rows FROM {db}.EVENTS.partitions") == [(2,)]
        with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
            lake.sql("CREATE TABLE {db}.EVENTS (id INT)")
        lake.sql("CREATE TABLE IF NOT EXISTS {db}.EVENTS (id INT)")
        with pytest.raises(AnalysisException, match="SCHEMA_ALREADY_EXISTS"):
            lake.sql(f"CREATE NAMESPACE lake.{upper}")
        assert lake.rows(f"SHOW TABLES IN lake.{upper}") == [(upper, "Events", False)]
        lake.sql("ALTER TABLE {db}.events ADD COLUMN x INT")
        lake.sql("DROP TABLE {db}.eventS")
        assert lake.rows("SHOW TABLES IN {db}") == []

    def test_it_counts_where_the_session_says_so(self, lake, case_sensitive):
        lake.sql("CREATE TABLE {db}.Events AS SELECT 1 AS id")
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            lake.sql("SELECT * FROM {db}.events")
        with pytest.raises(AnalysisException, match="differ in case alone"):
            lake.sql("CREATE TABLE {db}.events (id INT)")
        with pytest.raises(AnalysisException, match="differ in case alone"):
            lake.sql("ALTER TABLE {db}.Events RENAME TO events")

    @needs("views")
    def test_of_a_view(self, lake, case_sensitive):
        lake.sql("CREATE TABLE {db}.Events AS SELECT 1 AS id")
        with pytest.raises(AnalysisException, match="differ in case alone"):
            lake.sql("CREATE VIEW {db}.events AS SELECT 1 AS x")
        lake.spark.conf.set("spark.sql.caseSensitive", "false")
        with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
            lake.sql("CREATE VIEW {db}.eVENTS AS SELECT 1 AS x")
