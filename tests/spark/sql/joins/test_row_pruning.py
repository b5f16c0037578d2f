"""Rows that a join would drop, left out where they are read, whatever the column of the join is."""

import pytest

from tests.spark.needs import needs

ROWS = 600_000
FACTS = (
    "SELECT id, id % 5000 AS item, concat('s', id % 5000) AS code, CAST(id % 7 AS INT) AS k, "
    f"IF(id % 11 = 0, NULL, id % 5000) AS maybe, CAST(id AS DOUBLE) AS x FROM range({ROWS})"
)
ITEMS = (
    "SELECT id AS item, concat('s', id) AS code, CAST(id AS INT) AS narrow, "
    "CAST(id AS DOUBLE) AS x, concat('b', id % 100) AS brand FROM range(5000)"
)
FILTERED = "rows filtered by join keys: "


@pytest.fixture(scope="module")
def star(shared_lake):
    shared_lake.both("facts", FACTS, "bucket(4, id)")
    shared_lake.both("by_item", FACTS, "bucket(4, item)")
    shared_lake.both("items", ITEMS)
    return shared_lake


@pytest.fixture(params=["true", "false"], ids=["adaptive", "at-once"])
def adaptive(request, spark):
    spark.conf.set("spark.sql.adaptive.enabled", request.param)
    yield
    spark.conf.set("spark.sql.adaptive.enabled", "true")


def after(lake, query):
    """The plan of a query that has run: scans tell what they read."""
    frame = lake.sql(query)
    frame.collect()
    return frame._jdf.queryExecution().executedPlan().toString().split("== Initial Plan ==")[0]


def check(lake, query, *filtered):
    """Compare with Parquet, and see which columns of large tables rows are filtered by."""
    lake.same(query)
    plan = after(lake, query)
    for column in filtered:
        assert f"{FILTERED}{column}," in plan
    assert (FILTERED in plan) == bool(filtered), plan


@pytest.mark.parametrize("column", ["item", "code"])
def test_by_a_column_that_prunes_nothing(star, adaptive, column):
    check(
        star,
        f"SELECT f.id, i.brand FROM {{db}}.facts f JOIN {{db}}.items i ON f.{column} = i.{column} "
        "WHERE i.brand = 'b7'",
        column,
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT i.brand, sum(f.x) FROM {db}.items i, {db}.facts f WHERE f.item = i.item "
        "AND i.brand IN ('b7', 'b9') GROUP BY i.brand",
        "SELECT count(*) FROM {db}.facts "
        "WHERE item IN (SELECT item FROM {db}.items WHERE brand = 'b7')",
        "SELECT sum(g.n), sum(i.x) FROM (SELECT item AS it, max_by(x, id) AS n FROM {db}.facts "
        "GROUP BY item) g JOIN {db}.items i ON g.it = i.item WHERE i.brand = 'b7'",
        "SELECT count(*) FROM {db}.facts f LEFT JOIN {db}.items o ON f.item = o.item + 1 "
        "JOIN {db}.items i ON f.item = i.item WHERE i.brand = 'b7'",
    ],
    ids=["build left", "semi join", "below groups", "below an outer join"],
)
def test_kinds_of_queries(star, query):
    check(star, query, "item")


def test_keys_with_null(star, adaptive):
    check(
        star,
        "SELECT f.id FROM {db}.facts f JOIN (SELECT IF(item = 7, NULL, item) AS item "
        "FROM {db}.items WHERE brand = 'b7') i ON f.maybe = i.item",
        "maybe",
    )


def test_both_scans_of_a_table_that_is_compared_with_its_groups(star, spark):
    """The second one is not joined with the broadcast itself."""
    query = (
        "SELECT sum(f.x) FROM {db}.facts f, {db}.items i WHERE f.item = i.item AND i.brand = 'b7' "
        "AND f.x < (SELECT max_by(x, id) FROM {db}.facts WHERE item = i.item)"
    )
    star.same(query)
    assert after(star, query).count(f"{FILTERED}item,") == 2


@pytest.mark.parametrize(
    "query",
    [
        "SELECT f.id FROM {db}.facts f LEFT JOIN {db}.items i ON f.item = i.item "
        "AND i.brand = 'b7' WHERE f.x < 5000 OR i.item IS NULL",
        "SELECT f.id FROM {db}.facts f LEFT ANTI JOIN {db}.items i ON f.item = i.item "
        "AND i.brand = 'b7'",
        "SELECT f.id FROM {db}.facts f JOIN {db}.items i ON f.item = i.item",
        "SELECT f.id FROM {db}.facts f JOIN {db}.items i ON f.item = i.item "
        "WHERE i.brand = 'b7' AND f.k = 3",
        "SELECT f.id FROM {db}.facts f JOIN {db}.items i ON f.x = i.x WHERE i.brand = 'b7'",
        "SELECT f.id FROM (SELECT * FROM {db}.facts WHERE id + rand(1) >= 0) f "
        "JOIN {db}.items i ON f.item = i.item WHERE i.brand = 'b7'",
    ],
    ids=["outer join", "anti join", "all keys", "filtered itself", "floats", "random"],
)
def test_where_all_rows_are_needed_or_it_would_not_pay(star, query):
    check(star, query)


def test_more_values_than_are_sent(star):
    check(
        star,
        "SELECT f.id FROM {db}.facts f JOIN {db}.items i ON f.item = i.item WHERE i.x <=> i.item",
    )


def test_in_the_middle_of_other_joins(star):
    check(
        star,
        "SELECT a.brand, count(*), sum(g.x) FROM {db}.facts f JOIN {db}.facts g ON f.id = g.id "
        "JOIN {db}.items a ON f.item = a.item WHERE a.brand = 'b7' GROUP BY a.brand",
        "item",
    )


def test_changes_read_every_row_that_they_change(lake):
    lake.both("facts", FACTS, "bucket(4, id)")
    lake.both("items", ITEMS)
    lake.sql(
        "MERGE INTO {db}.facts f USING (SELECT item FROM {db}.items WHERE brand = 'b7') i "
        "ON f.item = i.item WHEN MATCHED THEN UPDATE SET x = -1"
    )
    lake.sql(
        "DELETE FROM {db}.facts WHERE item IN (SELECT item FROM {db}.items WHERE brand = 'b9')"
    )
    found = lake.sql(
        "SELECT count(*), count_if(x = -1), count_if(item % 100 = 9) FROM {db}.facts"
    ).collect()[0]
    assert tuple(found) == (ROWS - 6000, 6000, 0)


@pytest.mark.parametrize("limit", ["", "LIMIT 10"])
@pytest.mark.parametrize("table", ["facts", "by_item"])
@needs("recursive_queries")
def test_loops_read_every_row_that_they_come_to(star, adaptive, table, limit):
    """Each turn joins other rows with the same scan."""
    check(
        star,
        "WITH RECURSIVE r(n, d) AS (SELECT item, 0 FROM {db}.items WHERE item = 5 UNION ALL "
        "SELECT f.id + 1, x.d + 1 FROM "
        f"(SELECT /*+ BROADCAST(r) */ * FROM r WHERE d IN (0, 1, 2, 3, 4, 5) {limit}) x "
        f"JOIN {{db}}.{table} f ON x.n = f.id) SELECT * FROM r",
    )
