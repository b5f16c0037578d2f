"""Columns with dots and backticks in their names."""

import pytest

from tests.spark.needs import needs

COLUMNS = """(id INT, `a.b` INT, `x``y` STRING, s STRUCT<`p.q`: INT, `r``s`: INT>,
    a STRUCT<b: INT>)"""
ROWS = """
    (1, 10, 'one', named_struct('p.q', 1, 'r`s', 2), named_struct('b', 5)),
    (2, 20, 'two', NULL, NULL),
    (3, NULL, NULL, named_struct('p.q', NULL, 'r`s', 3), named_struct('b', 6))
"""


def made(lake):
    lake.sql(f"CREATE TABLE {{db}}.t {COLUMNS} PARTITIONED BY (`a.b`, bucket(2, `x``y`))")
    lake.sql(f"INSERT INTO {{db}}.t VALUES {ROWS}")
    return lake


@pytest.fixture(scope="module")
def shared(shared_lake):
    return made(shared_lake)


@pytest.fixture
def table(lake):
    return made(lake)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT `a.b`, `x``y`, a.b FROM {db}.t WHERE id = 1", [(10, "one", 5)]),
        ("SELECT id FROM {db}.t WHERE `a.b` = 10", [(1,)]),
        ("SELECT id FROM {db}.t WHERE `x``y` = 'two'", [(2,)]),
        ("SELECT id FROM {db}.t WHERE a.b = 6", [(3,)]),
        ("SELECT id FROM {db}.t WHERE s.`p.q` = 1 OR s.`r``s` = 3", [(1,), (3,)]),
        ("SELECT id FROM {db}.t WHERE `a.b` % 20 = 0 AND upper(`x``y`) = 'TWO'", [(2,)]),
        ("SELECT `a.b`, count(*) FROM {db}.t GROUP BY `a.b`", [(10, 1), (20, 1), (None, 1)]),
        ("SELECT min(`a.b`), max(`x``y`), count(`x``y`) FROM {db}.t", [(10, "two", 2)]),
        ("SELECT l.id FROM {db}.t l JOIN {db}.t r ON l.`a.b` = r.`a.b` AND r.id = 2", [(2,)]),
    ],
)
def test_select(shared, query, expected):
    assert shared.rows(query) == expected


def test_partitions_are_pruned(shared):
    table = shared.open("t")
    assert table.scan(where="`a.b` = 10").plan().selected == 1
    plan = shared.sql("SELECT id FROM {db}.t WHERE `a.b` = 10")._jdf.queryExecution().toString()
    assert "partitions 1/3" in plan
    shown = shared.rows("SHOW PARTITIONS {db}.t")
    assert all(partition.startswith("a.b=") for (partition,) in shown), shown
    (made,) = shared.rows("SHOW CREATE TABLE {db}.t")
    assert "PARTITIONED BY (`a.b`, bucket(2, `x``y`))" in made[0]


def test_rows_change(table):
    table.sql("UPDATE {db}.t SET `a.b` = `a.b` + 1, `x``y` = 'ONE' WHERE `a.b` = 10")
    table.sql("""
        MERGE INTO {db}.t t USING (SELECT 11 AS `a.b`, 'merged' AS `x``y`) s ON t.`a.b` = s.`a.b`
        WHEN MATCHED THEN UPDATE SET t.`x``y` = s.`x``y`
    """)
    table.sql("DELETE FROM {db}.t WHERE `a.b` IS NULL")
    assert table.rows("SELECT id, `a.b`, `x``y` FROM {db}.t") == [(1, 11, "merged"), (2, 20, "two")]
    table.sql("CREATE TABLE {db}.u PARTITIONED BY (`a.b`) AS SELECT id AS `i.d`, `a.b` FROM {db}.t")
    table.sql("INSERT OVERWRITE {db}.u PARTITION (`a.b` = 11) SELECT 99")
    table.spark.table(table["u"]).where("`i.d` = 99").writeTo(table["u"]).append()
    assert table.rows("SELECT * FROM {db}.u") == [(2, 20), (99, 11), (99, 11)]
    table.sql("ALTER TABLE {db}.u DROP PARTITION (`a.b` = 11)")
    assert table.rows("SELECT * FROM {db}.u") == [(2, 20)]


@needs("partial_insert")
def test_columns_change(table):
    table.sql("ALTER TABLE {db}.t RENAME COLUMN `a.b` TO c")
    table.sql("ALTER TABLE {db}.t RENAME COLUMN id TO `i.d`")
    table.sql("ALTER TABLE {db}.t ADD COLUMNS (`new.one` INT DEFAULT 7, s.`t.u` INT)")
    table.sql("ALTER TABLE {db}.t ALTER COLUMN `i.d` TYPE BIGINT")
    table.sql("ALTER TABLE {db}.t DROP COLUMN s.`p.q`")
    table.sql("ALTER TABLE {db}.t ADD PARTITION FIELD truncate(10, `i.d`)")
    table.sql("INSERT INTO {db}.t (`i.d`, c, `x``y`) VALUES (4, 10, 'one')")
    table.sql("ALTER TABLE {db}.t RENAME COLUMN c TO `c.d`")
    query = "SELECT `i.d`, `x``y`, s, `new.one` FROM {db}.t WHERE `c.d` = 10"
    assert table.rows(query) == [(1, "one", (2, None), 7), (4, "one", None, 7)]
    assert table.open("t").check().ok
