"""Permanent views."""

import pytest
from pyspark.errors import AnalysisException

from tests.spark.needs import needs

pytestmark = needs("views")


@pytest.fixture(scope="module")
def base(shared_lake):
    """A table that views read."""
    shared_lake.sql("CREATE TABLE {db}.t AS SELECT id, id % 2 AS part FROM range(6)")
    return shared_lake


def test_create_read_and_drop(base):
    base.sql("CREATE VIEW {db}.odd AS SELECT id FROM {db}.t WHERE part = 1")
    assert base.rows("SELECT * FROM {db}.odd") == [(1,), (3,), (5,)]
    assert base.rows("SHOW VIEWS IN {db}") == [(base.name, "odd", False)]
    assert [row[1] for row in base.rows("SHOW TABLES IN {db}")] == ["odd", "t"]
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        base.sql("CREATE VIEW {db}.odd AS SELECT 1 AS x")
    base.sql("CREATE VIEW IF NOT EXISTS {db}.odd AS SELECT 1 AS x")
    assert base.rows("SELECT count(*) FROM {db}.odd") == [(3,)]
    base.sql("DROP VIEW {db}.odd")
    base.sql("DROP VIEW IF EXISTS {db}.odd")
    with pytest.raises(AnalysisException, match="NOT_FOUND"):
        base.sql("SELECT * FROM {db}.odd")


def test_replace_alter_and_rename(base):
    base.sql("CREATE OR REPLACE VIEW {db}.v AS SELECT 1 AS x")
    base.sql("CREATE OR REPLACE VIEW {db}.v AS SELECT 2 AS x")
    assert base.rows("SELECT * FROM {db}.v") == [(2,)]
    base.sql("ALTER VIEW {db}.v AS SELECT 3 AS x, 4 AS y")
    base.sql("ALTER VIEW {db}.v RENAME TO {db}.w")
    assert base.rows("SELECT * FROM {db}.w") == [(3, 4)]
    assert base.rows("SHOW VIEWS IN {db}") == [(base.name, "w", False)]
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        base.sql("ALTER VIEW {db}.w RENAME TO {db}.t")
    base.sql("DROP VIEW {db}.w")


def test_columns_comments_and_properties(base):
    base.sql("""
        CREATE VIEW {db}.named (number COMMENT 'the key', half) COMMENT 'a view'
        TBLPROPERTIES ('team' = 'us') AS SELECT id, part FROM {db}.t
    """)
    rows = base.sql("DESCRIBE EXTENDED {db}.named").collect()
    shown = {row.col_name: (row.data_type, row.comment) for row in rows}
    assert shown["number"] == ("bigint", "the key")
    assert shown["Comment"][0] == "a view"
    assert base.rows("SELECT number FROM {db}.named WHERE half = 0") == [(0,), (2,), (4,)]
    base.sql("ALTER VIEW {db}.named SET TBLPROPERTIES ('tier' = '1')")
    properties = dict(base.rows("SHOW TBLPROPERTIES {db}.named"))
    assert (properties["team"], properties["tier"]) == ("us", "1")
    ((text,),) = base.rows("SHOW CREATE TABLE {db}.named")
    base.sql("DROP VIEW {db}.named")
    base.spark.sql(text)
    assert base.rows("SELECT max(number) FROM {db}.named") == [(5,)]
    base.sql("DROP VIEW {db}.named")


def test_names_in_the_query_mean_what_they_meant(base):
    """The catalog and namespace in which it was created come with it."""
    base.sql("USE {db}")
    try:
        base.sql("CREATE VIEW here AS SELECT count(*) AS n FROM t")
    finally:
        base.sql("USE spark_catalog.default")
    assert base.rows("SELECT n FROM {db}.here") == [(6,)]
    base.sql("CREATE VIEW {db}.above AS SELECT n + 1 AS n FROM {db}.here")
    assert base.rows("SELECT n FROM {db}.above") == [(7,)]
    base.sql("DROP VIEW {db}.above")
    base.sql("DROP VIEW {db}.here")


def test_a_view_and_a_table_share_their_names(base):
    base.sql("CREATE VIEW {db}.v AS SELECT 1 AS x")
    for statement in (
        "CREATE TABLE {db}.v (id INT)",
        "CREATE TABLE {db}.v AS SELECT 1 AS id",
        "ALTER TABLE {db}.t RENAME TO {db}.v",
        "CREATE VIEW {db}.t AS SELECT 1 AS x",
    ):
        with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
            base.sql(statement)
    for statement in ("DROP TABLE {db}.v", "DROP VIEW {db}.t", "INSERT INTO {db}.v VALUES (1)"):
        with pytest.raises(AnalysisException):
            base.sql(statement)
    assert base.rows("SELECT * FROM {db}.v") == [(1,)]
    base.sql("DROP VIEW {db}.v")


def test_namespaces_with_views(lake):
    lake.sql("CREATE NAMESPACE {db}.a")
    lake.sql("CREATE VIEW {db}.a.v AS SELECT 1 AS x")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        lake.sql("DROP NAMESPACE {db}.a")
    lake.sql("DROP NAMESPACE {db}.a CASCADE")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        lake.sql("CREATE VIEW {db}.a.v AS SELECT 1 AS x")
