"""CREATE, DROP and SHOW NAMESPACES."""

import pytest
from pyspark.errors import AnalysisException


def test_create_show_drop(lake):
    lake.sql("CREATE NAMESPACE {db}.a COMMENT 'first' WITH PROPERTIES ('team' = 'us')")
    lake.sql("CREATE NAMESPACE {db}.b")
    assert lake.rows("SHOW NAMESPACES IN {db}") == [(f"{lake.name}.a",), (f"{lake.name}.b",)]
    found = dict(lake.rows("DESCRIBE NAMESPACE EXTENDED {db}.a"))
    assert found["Comment"] == "first"
    assert "(team,us)" in found["Properties"]
    lake.sql("DROP NAMESPACE {db}.a")
    assert lake.rows("SHOW NAMESPACES IN {db}") == [(f"{lake.name}.b",)]


def test_in_the_catalog(lake):
    assert (lake.name,) in lake.rows("SHOW NAMESPACES IN lake")


def test_twice(lake):
    with pytest.raises(AnalysisException, match="SCHEMA_ALREADY_EXISTS"):
        lake.sql("CREATE NAMESPACE {db}")
    lake.sql("CREATE NAMESPACE IF NOT EXISTS {db}")


def test_drop_of_nothing(lake):
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        lake.sql("DROP NAMESPACE {db}.none")
    lake.sql("DROP NAMESPACE IF EXISTS {db}.none")


def test_drop_with_tables_needs_cascade(lake):
    lake.sql("CREATE NAMESPACE {db}.a")
    lake.sql("CREATE TABLE {db}.a.t AS SELECT 1 AS id")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        lake.sql("DROP NAMESPACE {db}.a")
    assert lake.rows("SELECT * FROM {db}.a.t") == [(1,)]
    lake.sql("DROP NAMESPACE {db}.a CASCADE")
    assert lake.rows("SHOW NAMESPACES IN {db}") == []


def test_a_table_is_no_namespace(lake):
    lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
    assert lake.rows("SHOW NAMESPACES IN {db}") == []
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        lake.sql("SHOW TABLES IN {db}.t")


def test_drop_the_default_namespace(lake):
    with pytest.raises(AnalysisException):
        lake.sql("DROP NAMESPACE lake.default CASCADE")


def test_use(lake):
    lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
    try:
        lake.sql("USE {db}")
        assert lake.rows("SELECT * FROM t") == [(1,)]
    finally:
        lake.sql("USE spark_catalog.default")


def test_properties_and_comment(lake):
    lake.sql("ALTER NAMESPACE {db} SET PROPERTIES ('team' = 'us', 'tier' = '1')")
    lake.sql('COMMENT ON NAMESPACE {db} IS "it\'s ours"')
    lake.sql("ALTER NAMESPACE {db} UNSET PROPERTIES ('tier')")
    shown = dict(lake.rows("DESCRIBE NAMESPACE EXTENDED {db}"))
    assert shown["Comment"] == "it's ours"
    assert shown["Properties"] == "((team,us))"
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        lake.sql("COMMENT ON NAMESPACE {db}.none IS 'x'")
    with pytest.raises(AnalysisException, match="leave LOCATION out"):
        lake.sql("CREATE NAMESPACE {db}.there LOCATION 'elsewhere'")
