"""Aggregates that tasks compute beside the data are the ones that Spark computes on Parquet."""

import pytest
from pyspark.errors import PySparkException

ROWS = (
    "SELECT id, CAST(id % 5 AS INT) AS k, "
    "element_at(array('US', 'DE', NULL), CAST(id % 3 AS INT) + 1) AS country, "
    "IF(id % 4 = 0, NULL, CAST(id - 300 AS INT)) AS n, CAST(id % 100 AS TINYINT) AS b, "
    "IF(id % 90 = 0, double('NaN'), id * 0.5D) AS x, CAST(id * 0.25 AS FLOAT) AS f, "
    "CAST((id - 200) * 1.37 AS DECIMAL(15, 2)) AS price, CAST(id % 11 * 0.01 AS DECIMAL(15, 2)) "
    "AS discount, concat('s', id % 7) AS s, DATE '2024-01-01' + CAST(id % 9 AS INT) AS d, "
    "TIMESTAMP '2024-01-01' + make_dt_interval(0, CAST(id % 4 AS INT)) AS ts, id % 2 = 0 AS even, "
    "struct(id AS i, CAST(id AS DECIMAL(10, 1)) AS d) AS nested FROM range(700)"
)
COMPUTED = [
    "SELECT sum(id), sum(n), sum(b), sum(f), sum(price), count(n), count(*) FROM {db}.t",
    "SELECT avg(n), avg(b), avg(x), avg(f), avg(price) FROM {db}.t WHERE x < 99",
    "SELECT sum(x), avg(x), max(x), min(x) FROM {db}.t",
    "SELECT k, sum(id), avg(price), count(*), min(s), max(d) FROM {db}.t GROUP BY k",
    "SELECT country, sum(price) FROM {db}.t GROUP BY country",
    "SELECT country, k, sum(n), max(x), min(x) FROM {db}.t GROUP BY country, k",
    "SELECT s, d, sum(n) FROM {db}.t WHERE id > 50 AND country = 'US' GROUP BY s, d",
    "SELECT ts, even, count(*) FROM {db}.t GROUP BY ts, even",
    "SELECT n, count(*), sum(price) FROM {db}.t GROUP BY n",
    "SELECT price, sum(discount) FROM {db}.t GROUP BY price",
    "SELECT sum(price * (1 - discount)), avg(price * (1 - discount)) FROM {db}.t",
    "SELECT k, sum(price * (1 - discount) * (1 + discount)) FROM {db}.t GROUP BY k",
    "SELECT sum(x * 2.0D + f) FROM {db}.t WHERE x < 100",
    "SELECT sum(nested.i), max(nested.d) FROM {db}.t",
    "SELECT sum(id), max(s) FROM {db}.t WHERE id % 90000 = 89999",
    "SELECT k, sum(id) FROM {db}.t WHERE id % 90000 = 89999 GROUP BY k",
    "SELECT DISTINCT s, k FROM {db}.t",
    "SELECT k, sum(id) AS s FROM {db}.t GROUP BY k HAVING sum(id) > 48000 ORDER BY s LIMIT 2",
    "SELECT sum(total) FROM (SELECT k, sum(id) AS total FROM {db}.t GROUP BY k)",
]
LEFT_TO_SPARK = [
    "SELECT sum(DISTINCT k) FROM {db}.t",
    "SELECT sum(n + 1) FROM {db}.t",
    "SELECT avg(id) FROM {db}.t",
    "SELECT x, count(*) FROM {db}.t GROUP BY x",
    "SELECT sum(price / 3) FROM {db}.t",
    "SELECT sum(n) FILTER (WHERE k = 1), count(*) FROM {db}.t",
    "SELECT lower(s), sum(n) FROM {db}.t GROUP BY lower(s)",
    "SELECT max(even) FROM {db}.t WHERE n > 5",
    "SELECT stddev(x) FROM {db}.t WHERE x < 10",
]


@pytest.fixture(scope="module")
def table(shared_lake):
    shared_lake.both("t", ROWS, "country, bucket(2, id)")
    return shared_lake


@pytest.mark.parametrize("query", COMPUTED)
def test_computed(table, query):
    table.same(query)
    assert " read, version" in table.plan(query)


@pytest.mark.parametrize("query", LEFT_TO_SPARK)
def test_left_to_spark(table, query):
    table.same(query)
    assert "columns [" in table.plan(query)


@pytest.fixture
def ansi(spark):
    def turn(value):
        spark.conf.set("spark.sql.ansi.enabled", value)

    yield turn
    spark.conf.unset("spark.sql.ansi.enabled")


def test_sums_that_overflow(lake, ansi):
    """As in Spark: an error, NULL for try_sum, or without ANSI a number that wraps around."""
    lake.both("t", "SELECT 9223372036854775000 + id AS n, id % 2 AS k FROM range(4)", "k")
    for query in ("SELECT sum(n) FROM {db}.t", "SELECT k, sum(n) FROM {db}.t GROUP BY k"):
        with pytest.raises(PySparkException, match="ARITHMETIC_OVERFLOW"):
            lake.rows(query)
    lake.same("SELECT try_sum(n) FROM {db}.t")
    lake.same("SELECT k, try_sum(n), max(n) FROM {db}.t GROUP BY k")
    ansi("false")
    lake.same("SELECT sum(n) FROM {db}.t")


def test_sums_of_decimals_that_overflow(lake, ansi):
    """The type of the parts is that of the column, and the sum has ten more digits."""
    lake.both(
        "t", "SELECT CAST(99999.9 - id AS DECIMAL(6, 1)) AS d, id % 3 AS k FROM range(40)", "k"
    )
    lake.same("SELECT sum(d) FROM {db}.t")
    lake.same("SELECT k, sum(d), avg(d) FROM {db}.t GROUP BY k")
    nines = "CAST('" + "9" * 38 + "' AS DECIMAL(38, 0))"
    lake.both("u", f"SELECT {nines} AS d, id AS k FROM range(2)", "k")
    with pytest.raises(PySparkException, match=r"ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE"):
        lake.rows("SELECT sum(d) FROM {db}.u")
    ansi("false")
    lake.same("SELECT sum(d) FROM {db}.u")


def test_products_that_overflow(lake, ansi):
    nines = "CAST('" + "9" * 20 + "' AS DECIMAL(38, 0))"
    lake.both("t", f"SELECT {nines} AS d, id AS k FROM range(2)", "k")
    with pytest.raises(PySparkException, match=r"NUMERIC_VALUE_OUT_OF_RANGE"):
        lake.rows("SELECT sum(d * d) FROM {db}.t")
    ansi("false")
    lake.same("SELECT sum(d * d) FROM {db}.t")


@pytest.mark.parametrize("by", ["", "GROUP BY k"])
def test_constants(lake, by):
    lake.both("t", "SELECT id, id % 2 AS k FROM range(5)", "k")
    constants = ("1.5D", "1.0", "CAST(2.5 AS DECIMAL(38, 2))", "7", "'a'", "NULL")
    for constant in constants:
        lake.same(f"SELECT count({constant}), min({constant}), max({constant}) FROM {{db}}.t {by}")
    for constant in constants[:4]:
        lake.same(f"SELECT sum({constant}), avg({constant}) FROM {{db}}.t WHERE id > 1 {by}")


def test_decimals_of_many_digits(lake):
    lake.both(
        "t",
        "SELECT CAST(IF(id % 2 = 0, '123456789012345678.00', '1.00') AS DECIMAL(20, 2)) AS a, "
        "CAST(IF(id % 2 = 1, '123456789012345678.00', '1.00') AS DECIMAL(20, 2)) AS b, "
        "CAST(NULL AS DECIMAL(38, 2)) AS n, id % 2 AS k FROM range(8)",
        "k",
    )
    lake.same("SELECT sum(a * b), sum(a + b), sum(n + n), sum(n * 2.0) FROM {db}.t")


def test_averages_of_intervals(lake):
    lake.both("t", "SELECT id, CAST(id % 2 AS INT) AS k FROM range(5)", "k")
    lake.same("SELECT CAST(avg(CAST(k AS INTERVAL MONTH)) AS STRING) FROM {db}.t")


def test_averages_of_longs(lake):
    """Spark adds doubles up, so that nothing overflows."""
    lake.both("t", "SELECT 9223372036854775000 + id AS n, id % 2 AS k FROM range(4)", "k")
    lake.same("SELECT avg(n) FROM {db}.t")


def test_many_groups(lake):
    """They are not combined in the tasks if they are as many as rows."""
    lake.both("t", "SELECT id, id % 7000 AS g, id AS n FROM range(20000)", "bucket(2, id)")
    lake.same("SELECT g, sum(n), count(*) FROM {db}.t GROUP BY g")
    lake.same("SELECT id, sum(n) FROM {db}.t GROUP BY id")


def test_after_changes_of_the_schema(lake):
    lake.both("t", "SELECT id, CAST(id AS INT) AS n, id % 3 AS k FROM range(60)", "k")
    lake.sql("ALTER TABLE {db}.t ALTER COLUMN n TYPE BIGINT")
    lake.sql("ALTER TABLE {db}.t RENAME COLUMN n TO m")
    lake.sql("ALTER TABLE {db}.t ADD COLUMN c INT DEFAULT 4")
    lake.sql("INSERT INTO {db}.t VALUES (60, 9000000000, 5, 7)")
    lake.sql("DELETE FROM {db}.t WHERE id = 8")
    lake.copy("t", f"SELECT * FROM {lake['t']}")
    lake.same("SELECT sum(m), sum(c), count(*) FROM {db}.t")
    lake.same("SELECT c, k, sum(m) FROM {db}.t GROUP BY c, k")


def test_hardly_any_rows_to_a_group(shared_lake):
    """Tasks would return nearly as many rows as they read."""
    rows = "SELECT id, id - id % 3 AS thirds, id % 90 AS few FROM range(120000)"
    shared_lake.both("ids", rows, "bucket(2, id)")
    for column, computed in (("thirds", False), ("few", True), ("id", False), ("few, id", False)):
        query = f"SELECT {column}, sum(id) FROM {{db}}.ids GROUP BY {column}"
        shared_lake.same(query)
        assert (" read, version" in shared_lake.plan(query)) == computed, column


@pytest.mark.parametrize("aggregate", ["count(*)", "sum(n)"])
def test_spark_knows_how_large_an_answer_is(lake, aggregate):
    """So that it can broadcast one that it joins with."""
    lake.both("t", ROWS, "k")
    query = (
        f"SELECT t.id, g.s FROM {{db}}.t t JOIN (SELECT k, {aggregate} AS s FROM {{db}}.t "
        "GROUP BY k) g ON t.k = g.k"
    )
    lake.same(query)
    plan = lake.sql(query)._jdf.queryExecution().optimizedPlan()
    leaves = plan.collectLeaves()
    sizes = [leaves.apply(at).stats().sizeInBytes() for at in range(leaves.size())]
    assert len(sizes) == 2
    assert max(sizes) < 100_000
    assert "BroadcastHashJoin" in lake.plan(query)
