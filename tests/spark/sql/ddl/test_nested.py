"""Columns whose lists and maps have fields inside that change."""

import pytest
from pyspark.errors import AnalysisException

from tests.spark.needs import needs


@pytest.fixture
def table(lake):
    lake.sql("""
        CREATE TABLE {db}.t (id INT, p STRING, a ARRAY<STRUCT<x: INT, y: STRING>>,
            m MAP<STRUCT<k: INT>, STRUCT<x: INT>>, n ARRAY<INT>) PARTITIONED BY (p)
    """)
    lake.sql("""
        INSERT INTO {db}.t VALUES
        (1, 'a', array(named_struct('x', 1, 'y', 'one'), NULL),
            map(named_struct('k', 1), named_struct('x', 1)), array(1)),
        (2, 'b', NULL, NULL, NULL), (3, 'b', array(), map(), array())
    """)
    return lake


def test_alter(table):
    table.sql(
        "ALTER TABLE {db}.t ADD COLUMNS (a.element.l INT COMMENT 'long', m.value.l INT FIRST)"
    )
    table.sql("ALTER TABLE {db}.t ALTER COLUMN a.element.l TYPE BIGINT")
    table.sql("ALTER TABLE {db}.t ALTER COLUMN n.element TYPE BIGINT")
    table.sql("ALTER TABLE {db}.t RENAME COLUMN a.element.y TO z")
    table.sql("ALTER TABLE {db}.t DROP COLUMN a.element.x")
    table.sql("ALTER TABLE {db}.t ADD COLUMN a.element.x INT")
    table.sql("ALTER TABLE {db}.t DROP COLUMN IF EXISTS a.element.none")
    assert table.sql("SELECT * FROM {db}.t").dtypes[2:] == [
        ("a", "array<struct<z:string,l:bigint,x:int>>"),
        ("m", "map<struct<k:int>,struct<l:int,x:int>>"),
        ("n", "array<bigint>"),
    ]
    table.sql("""
        INSERT INTO {db}.t VALUES (4, 'b',
            array(named_struct('z', 'four', 'l', 5000000000, 'x', 4)),
            map(named_struct('k', 4), named_struct('l', 4, 'x', 4)), array(5000000000))
    """)
    table.sql("UPDATE {db}.t SET n = array(7) WHERE id = 1")
    assert table.rows("SELECT id, a, map_values(m), n FROM {db}.t") == [
        (1, [("one", None, None), None], [(None, 1)], [7]),
        (2, None, None, None),
        (3, [], [], []),
        (4, [("four", 5000000000, 4)], [(4, 4)], [5000000000]),
    ]
    assert table.rows("SELECT id FROM {db}.t WHERE exists(a, e -> e.l > 1)") == [(4,)]
    assert table.rows("SELECT id, a.y FROM {db}.t VERSION AS OF 2 WHERE a IS NOT NULL") == [
        (1, ["one", None]),
        (3, []),
    ]
    assert table.open("t").check().ok


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ADD COLUMN m.key.l INT", "belongs to the keys of a map"),
        ("DROP COLUMN m.key.k", "belongs to the keys of a map"),
        ("ALTER COLUMN m.key.k TYPE BIGINT", "belongs to the keys of a map"),
        ("RENAME COLUMN n.element TO e", "is not a struct"),
        ("ALTER COLUMN n.element COMMENT 'an element'", "only its type can change"),
        ("ADD COLUMN a.l INT", "is not a struct"),
    ],
)
def test_refused(table, change, message):
    with pytest.raises(AnalysisException, match=message):
        table.sql(f"ALTER TABLE {{db}}.t {change}")
    assert table.open("t").version == 2


@needs("insert_schema_evolution")
def test_fields_that_come_with_rows(table):
    table.sql("""
        INSERT WITH SCHEMA EVOLUTION INTO {db}.t BY NAME SELECT 4 AS id, 'a' AS p,
            array(named_struct('x', 4, 'y', 'four', 'l', true)) AS a,
            map(named_struct('k', 4), named_struct('x', 5000000000L, 'l', 'm')) AS m
    """)
    table.sql("""
        MERGE WITH SCHEMA EVOLUTION INTO {db}.t t USING (SELECT 2 AS id,
            array(named_struct('x', 2, 'y', 'two', 'l', false, 'w', 1.5D)) AS a) s
        ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = s.a
    """)
    assert table.rows("SELECT id, a, map_values(m) FROM {db}.t") == [
        (1, [(1, "one", None, None), None], [(1, None)]),
        (2, [(2, "two", False, 1.5)], None),
        (3, [], []),
        (4, [(4, "four", True, None)], [(5000000000, "m")]),
    ]


@needs("insert_schema_evolution")
def test_the_option_of_a_frame(table, spark):
    rows = spark.sql("SELECT 4 AS id, array(named_struct('x', 4, 'y', 'four', 'l', 1.5D)) AS a")
    rows.write.option("mergeSchema", "true").mode("append").saveAsTable(table["t"])
    assert table.rows("SELECT id, a.l FROM {db}.t WHERE a IS NOT NULL") == [
        (1, [None, None]),
        (3, []),
        (4, [1.5]),
    ]
