"""Tables whose files do not hold partition columns, in SQL."""

import pytest

OFF = "TBLPROPERTIES ('materialize_partition_columns' = 'false')"
ROWS = [(1, "a", 10), (2, "a", 20), (3, "b", 30), (4, None, 40)]


@pytest.fixture
def table(lake):
    lake.sql(f"CREATE TABLE {{db}}.t (id INT, c STRING, n INT) PARTITIONED BY (c) {OFF}")
    lake.sql("INSERT INTO {db}.t VALUES (1, 'a', 10), (2, 'a', 20), (3, 'b', 30), (4, NULL, 40)")
    return lake


def rows(lake, where="TRUE"):
    return lake.rows(f"SELECT id, c, n FROM {{db}}.t WHERE {where}")


def columns(lake):
    leaves = lake.open("t").scan().plan().leaves
    return {leaf.values["c"]: leaf.open().schema.names for leaf in leaves}


def ordered(found):
    return sorted(found, key=repr)


def test_files_lack_the_column(table):
    assert columns(table) == {part: ["id", "n"] for part in ("a", "b", None)}
    assert rows(table) == ordered(ROWS)


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("c = 'a'", [1, 2]),
        ("c = 'a' AND n > 10", [2]),
        ("c IS NULL OR n = 10", [1, 4]),
        ("upper(c) = 'B'", [3]),
        ("c <=> NULL", [4]),
        ("c || n = 'a20'", [2]),
    ],
)
def test_filters(table, where, ids):
    assert rows(table, where) == ordered(row for row in ROWS if row[0] in ids)
    assert table.rows(f"SELECT count(*) FROM {{db}}.t WHERE {where}") == [(len(ids),)]


def test_some_columns(table):
    assert table.rows("SELECT c FROM {db}.t") == ordered((row[1],) for row in ROWS)
    found = table.rows("SELECT c, _partition, id FROM {db}.t WHERE c = 'b'")
    assert [(row[0], row[2]) for row in found] == [("b", 3)]


def test_aggregates(table):
    query = "SELECT c, count(*), sum(n), min(c), max(n) FROM {db}.t GROUP BY c"
    expected = [("a", 2, 30, "a", 20), ("b", 1, 30, "b", 30), (None, 1, 40, None, 40)]
    assert table.rows(query) == ordered(expected)
    assert table.rows("SELECT min(c), max(c), count(c) FROM {db}.t") == [("a", "b", 3)]
    assert table.rows("SELECT c, max(n) FROM {db}.t WHERE n < 35 GROUP BY c") == ordered(
        [("a", 20), ("b", 30)]
    )


def test_joins(table):
    query = "SELECT x.id, y.id FROM {db}.t x JOIN {db}.t y ON x.c = y.c AND x.id < y.id"
    assert table.rows(query) == [(1, 2)]


def test_row_level_changes(table):
    table.sql("DELETE FROM {db}.t WHERE c = 'a' AND n = 10")
    table.sql("UPDATE {db}.t SET c = 'z', n = n + 1 WHERE c = 'b' OR id = 2")
    table.sql(
        "MERGE INTO {db}.t t USING (SELECT 4 AS id, 'z' AS c UNION ALL SELECT 9, 'new') s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.c = s.c "
        "WHEN NOT MATCHED THEN INSERT (id, c, n) VALUES (s.id, s.c, 0)"
    )
    expected = [(2, "z", 21), (3, "z", 31), (4, "z", 40), (9, "new", 0)]
    assert rows(table) == ordered(expected)
    assert set(map(tuple, columns(table).values())) == {("id", "n")}
    assert table.open("t").check().ok


def test_switching(table):
    table.sql("ALTER TABLE {db}.t SET TBLPROPERTIES ('materialize_partition_columns' = 'true')")
    table.sql("INSERT INTO {db}.t VALUES (5, 'a', 50), (6, 'd', 60)")
    assert columns(table) == {
        "a": ["id", "n"],
        "b": ["id", "n"],
        "d": ["id", "n", "c"],
        None: ["id", "n"],
    }
    more = [*ROWS, (5, "a", 50), (6, "d", 60)]
    assert rows(table) == ordered(more)
    call = f"CALL lake.system.rewrite('{table.name}.t'"
    (planned,) = table.sql(f"{call}, dry_run => true)").collect()
    (done,) = table.sql(f"{call})").collect()
    assert planned["columns"] == done["columns"] == 3
    assert (done["rows"], done["left"], done["notes"]) == (0, 0, "")
    assert set(map(tuple, columns(table).values())) == {("id", "n", "c")}
    assert rows(table) == ordered(more)
    table.sql("ALTER TABLE {db}.t UNSET TBLPROPERTIES ('materialize_partition_columns')")
    table.sql("INSERT INTO {db}.t VALUES (7, 'e', 70)")
    assert columns(table)["e"] == ["id", "c", "n"]
    assert rows(table) == ordered([*more, (7, "e", 70)])


def test_another_partitioning(table):
    table.open("t").evolve_partitioning(["bucket(2, c)"])
    table.sql("INSERT INTO {db}.t VALUES (5, 'a', 50)")
    assert rows(table) == ordered([*ROWS, (5, "a", 50)])
    table.sql(f"CALL lake.system.rewrite('{table.name}.t')")
    assert rows(table) == ordered([*ROWS, (5, "a", 50)])


def test_many_partitions(lake):
    """More than are read by a task each."""
    lake.sql(
        f"CREATE TABLE {{db}}.t PARTITIONED BY (p) {OFF} AS "
        "SELECT CAST(id % 40 AS INT) AS p, CAST(id AS INT) AS id FROM range(400)"
    )
    expected = [(n % 40, n) for n in range(400)]
    assert lake.rows("SELECT p, id FROM {db}.t") == ordered(expected)
    assert lake.rows("SELECT p, id FROM {db}.t WHERE p > 5 AND id % 3 = 0") == ordered(
        row for row in expected if row[0] > 5 and row[1] % 3 == 0
    )
    assert lake.rows("SELECT sum(p), count(p) FROM {db}.t WHERE id < 100") == [
        (sum(row[0] for row in expected if row[1] < 100), 100)
    ]


def test_replace(table):
    table.sql(
        f"CREATE OR REPLACE TABLE {{db}}.t PARTITIONED BY (id) {OFF} AS "
        "SELECT id, c, n FROM {db}.t"
    )
    assert rows(table) == ordered(ROWS)
    assert {tuple(x.open().schema.names) for x in table.open("t").scan().plan().leaves} == {
        ("c", "n")
    }
    table.sql("CREATE OR REPLACE TABLE {db}.t PARTITIONED BY (c) AS SELECT id, c, n FROM {db}.t")
    assert rows(table) == ordered(ROWS)


def test_a_value_that_it_does_not_take(lake):
    with pytest.raises(Exception, match="materialize_partition_columns is 'true' or 'false'"):
        lake.sql(
            "CREATE TABLE {db}.t (id INT) TBLPROPERTIES ('materialize_partition_columns' = 'no')"
        )
