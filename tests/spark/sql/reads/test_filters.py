"""WHERE of every kind, on partition columns and others, against plain Parquet."""

import re

import pytest

from tests.spark.needs import needs

ROWS = """
SELECT
  CAST(id AS INT) AS id,
  IF(id % 7 = 0, NULL, id - 20) AS n,
  CASE id % 6 WHEN 0 THEN NULL WHEN 1 THEN 'US' WHEN 2 THEN 'us' WHEN 3 THEN 'DE'
    WHEN 4 THEN '' ELSE 'a_b%c' END AS country,
  CASE id % 8 WHEN 0 THEN double('NaN') WHEN 1 THEN double('-0.0') WHEN 2 THEN 0.0D
    WHEN 3 THEN NULL WHEN 4 THEN double('-Infinity') WHEN 5 THEN double('Infinity')
    ELSE CAST(id - 20 AS DOUBLE) / 3 END AS x,
  CAST(CASE id % 5 WHEN 0 THEN 'NaN' WHEN 1 THEN '0.1' WHEN 2 THEN '-0.0' WHEN 3 THEN NULL
    ELSE '16777217' END AS FLOAT) AS f,
  CAST(IF(id % 9 = 0, NULL, (id - 20) * 1.25) AS DECIMAL(9, 2)) AS price,
  timestamp'2023-12-30 22:00:00' + make_dt_interval(0, CAST(id * 5 AS INT)) AS ts,
  timestamp_ntz'2023-12-30 22:00:00' + make_dt_interval(0, CAST(id * 5 AS INT)) AS local,
  IF(id % 11 = 0, NULL, date'2023-12-30' + CAST(id / 4 AS INT)) AS day,
  IF(id % 3 = 0, NULL, id % 2 = 0) AS flag,
  IF(id % 10 = 0, NULL, unhex(lpad(hex(id * 6), 4, '0'))) AS raw,
  named_struct('city', IF(id % 4 = 0, NULL, concat('c', id % 3)), 'n', id % 5) AS at,
  array(id % 3, NULL) AS list
FROM range(48)
"""

LAYOUTS = {
    "plain": "",
    "by_country": "country",
    "by_day": "days(ts)",
    "by_numbers": "truncate(10, n), bucket(4, id)",
    "by_local": "hours(local)",
    "by_many": "country, day, flag",
    "by_nested": "at.city, truncate(20, price)",
}

FILTERS = [
    # numbers
    "n = 3",
    "n <> 3",
    "n < -5",
    "n <= -5",
    "n > 20",
    "n >= 20",
    "n BETWEEN -3 AND 3",
    "n IN (1, 2, -7)",
    "n IN (1, NULL)",
    "n NOT IN (1, 2)",
    "n NOT IN (1, NULL)",
    "NOT n = 3",
    "n IS NULL",
    "n IS NOT NULL",
    "n <=> NULL",
    "n <=> 3",
    "NOT (n <=> 3)",
    "n = NULL",
    "n > 2.5",
    "n = 9223372036854775807",
    "n % 2 = 0",
    "n % 3 = -1",
    "n % 3 IN (1, NULL)",
    "NOT n % 3 = 1",
    "n % 7 IS NULL",
    "n % 5 <=> NULL",
    "n % 4 > 1 AND id % 2 = 1",
    "id % 3000000000 = 7",
    "CAST(id AS TINYINT) % 5 = 2",
    "CAST(n AS INT) % 5 = 2",
    "abs(n) < 4",
    "-n > 15",
    "n + 1 = 4",
    "n = id - 20",
    "n < id",
    "id = 7",
    "3 < n",
    "n IN (SELECT 3)",
    # strings
    "country = 'US'",
    "country <> 'US'",
    "country = ''",
    "country IN ('US', 'DE')",
    "country IN ('US', NULL)",
    "country NOT IN ('US', 'x')",
    "country IS NULL",
    "country IS NOT NULL",
    "country <=> NULL",
    "country LIKE 'U%'",
    "country LIKE '%s'",
    "country LIKE '%\\\\_b%'",
    "country LIKE 'a_b%c'",
    "country NOT LIKE 'U%'",
    "startswith(country, 'a_')",
    "contains(country, '%')",
    "endswith(country, 'S')",
    "upper(country) = 'US'",
    "length(country) = 2",
    "country > 'E'",
    "country < 'a'",
    "coalesce(country, 'none') = 'none'",
    "country || 'x' = 'USx'",
    "country RLIKE '^[A-Z]+$'",
    "country = 'US' OR country IS NULL",
    "country = 'US' OR n = 3",
    "country = 'US' AND n > 0",
    "NOT (country = 'US' AND n > 0)",
    "NOT (country = 'US' OR n IS NULL)",
    # floats
    "x = 0",
    "x = -0.0D",
    "x <=> -0.0D",
    "x = double('NaN')",
    "x <> double('NaN')",
    "x > double('Infinity')",
    "x >= double('Infinity')",
    "x < 0",
    "x <= 0",
    "isnan(x)",
    "NOT isnan(x)",
    "x IN (0.0D, double('NaN'))",
    "x IS NULL",
    "x > 3.3",
    "NOT x > 3.3",
    "f = 0.1F",
    "f = 0.1D",
    "f = 16777217",
    "f > 0.1D",
    "f = CAST('NaN' AS FLOAT)",
    "f < 0.1BD",
    "f = -0.0F",
    "f <= 0",
    # decimals
    "price = 1.25",
    "price > -3.75",
    "price IN (1.25, 2.5, NULL)",
    "price = 1.2500",
    "price < 0.001",
    "price > 1.3D",
    "price IS NULL",
    "price BETWEEN -1 AND 1",
    # dates and timestamps
    "day = date'2023-12-31'",
    "day > '2024-01-01'",
    "day IS NULL",
    "year(day) = 2024",
    "month(day) = 1",
    "day IN (date'2023-12-31', date'2024-01-03')",
    "day(day) = 31",
    "ts = timestamp'2023-12-31 03:00:00'",
    "ts >= '2024-01-01'",
    "ts < date'2024-01-02'",
    "CAST(ts AS DATE) = date'2024-01-01'",
    "CAST(ts AS DATE) <> date'2024-01-01'",
    "CAST(ts AS DATE) > date'2024-01-01'",
    "CAST(ts AS DATE) <= date'2024-01-01'",
    "CAST(ts AS DATE) IN (date'2024-01-01', date'2024-01-03')",
    "year(ts) = 2023",
    "month(ts) = 12 AND day(ts) = 31",
    "hour(ts) = 3",
    "date_trunc('MONTH', ts) = '2024-01-01'",
    "ts BETWEEN '2023-12-31' AND '2023-12-31 23:59:59'",
    "local = timestamp_ntz'2023-12-31 03:00:00'",
    "local >= '2024-01-01'",
    "CAST(local AS DATE) = date'2024-01-01'",
    "year(local) = 2024",
    "hour(local) < 4",
    "local > ts",
    "dayofweek(ts) = 1",
    "ts + INTERVAL 1 DAY > '2024-01-03'",
    "CAST(local AS TIMESTAMP) = ts",
    "unix_date(day) > 19722",
    # booleans, binary, nested
    "flag",
    "NOT flag",
    "flag = true",
    "flag IS NULL",
    "flag <=> false",
    "flag IS NOT true",
    "raw = X'0006'",
    "raw > X'0100'",
    "raw IS NULL",
    "raw IN (X'0006', X'000C')",
    "at.city = 'c1'",
    "at.city IS NULL",
    "at.n = 3 AND at.city = 'c2'",
    "at IS NULL",
    "at.city LIKE 'c%'",
    "list[0] = 1",
    "array_contains(list, 2L)",
    "size(list) = 2",
    # constants
    "true",
    "false",
    "CAST(NULL AS BOOLEAN)",
    "1 = 0",
]


@pytest.fixture(scope="module")
def filled(shared_lake):
    rows = shared_lake.spark.sql(ROWS).cache()
    for name, partitioned_by in LAYOUTS.items():
        shared_lake.both(name, rows, partitioned_by)
    rows.unpersist()
    return shared_lake


def all_of(filters, table):
    """One query for many filters: each row says which it is of."""
    return " UNION ALL ".join(
        f"SELECT {number} AS filter, id FROM {{db}}.{table} WHERE {where}"
        for number, where in enumerate(filters)
    )


def check(lake, filters, table):
    try:
        lake.same(all_of(filters, table))
    except AssertionError:
        # Which one is it?
        for where in filters:
            lake.same(f"SELECT id FROM {{db}}.{table} WHERE {where}")
        raise


#: Every filter on every layout takes minutes: the others are for `make soak`.
_AT_ONCE = ("by_many", "by_nested")


@pytest.mark.parametrize(
    "layout",
    [pytest.param(name, marks=() if name in _AT_ONCE else pytest.mark.soak) for name in LAYOUTS],
)
def test_filters(filled, layout):
    for start in range(0, len(FILTERS), 25):
        check(filled, FILTERS[start : start + 25], layout)


TIMES = [where for where in FILTERS if "ts" in where.lower() or "local" in where or "day" in where]


@pytest.mark.parametrize("name", ["America/Los_Angeles", "Asia/Kolkata"])
@pytest.mark.parametrize("layout", ["by_day", "by_local"])
def test_times_in_another_zone(filled, zone, name, layout):
    zone(name)
    for start in range(0, len(TIMES), 25):
        check(filled, TIMES[start : start + 25], layout)


class TestPruning:
    """The plan says how many partitions are read."""

    def partitions(self, lake, query):
        plan = lake.sql(f"EXPLAIN FORMATTED {query}").collect()[0][0]
        return plan.split("partitions ")[1].split(",")[0]

    def test_by_a_value(self, filled):
        query = "SELECT * FROM {db}.by_country WHERE country = 'US'"
        assert self.partitions(filled, query) == "1/6"

    def test_by_null(self, filled):
        query = "SELECT * FROM {db}.by_country WHERE country IS NULL"
        assert self.partitions(filled, query) == "1/6"

    @needs("partition_predicate")
    def test_by_a_function_that_only_spark_knows(self, filled):
        query = "SELECT * FROM {db}.by_country WHERE upper(country) = 'US'"
        assert self.partitions(filled, query) == "2/6"
        query = "SELECT * FROM {db}.by_many WHERE length(country) = 2 AND dayofweek(day) = 1"
        read, total = self.partitions(filled, query).split("/")
        assert int(read) < int(total) / 3
        assert filled.same(query.replace("*", "id"))

    def test_by_a_range_of_days(self, filled):
        query = "SELECT * FROM {db}.by_day WHERE ts < '2023-12-31'"
        read, total = self.partitions(filled, query).split("/")
        assert 0 < int(read) < int(total) / 4

    def test_by_cast_to_date_only_in_utc(self, filled, zone):
        query = "SELECT * FROM {db}.by_day WHERE CAST(ts AS DATE) = date'2024-01-01'"
        read, total = self.partitions(filled, query).split("/")
        assert int(read) < int(total) / 4
        zone("Asia/Tokyo")
        filled.same(query.replace("*", "id"))

    def test_by_the_bounds_of_another_column(self, filled):
        """The numbers grow with the days."""
        query = "SELECT * FROM {db}.by_day WHERE id BETWEEN 20 AND 22"
        read, total = map(int, self.partitions(filled, query).split("/"))
        assert read == total
        plan = filled.sql(f"EXPLAIN FORMATTED {query}").collect()[0][0]
        assert f"pruned by: nothing, {total - 1} skipped by bounds of id, " in plan
        assert filled.same(query.replace("*", "id"))

    def test_by_a_limit(self, filled):
        plan = filled.sql("EXPLAIN FORMATTED SELECT * FROM {db}.by_day LIMIT 2").collect()[0][0]
        assert "pruned by: the limit, " in plan

    def test_no_filter_is_left_where_partitions_decide(self, filled):
        query = "EXPLAIN SELECT * FROM {db}.by_country WHERE country = 'US'"
        assert not re.search(r"\bFilter\b", filled.sql(query).collect()[0][0])


def test_identity_on_floats(lake):
    """NaN, both zeros, and infinities are partition values, and Spark's own functions see them."""
    rows = (
        "SELECT double(v) AS x, id FROM VALUES ('NaN', 1), ('-0.0', 2), ('0.0', 3), "
        "('Infinity', 4), ('-Infinity', 5), (NULL, 6), ('1.5', 7) AS t(v, id)"
    )
    lake.both("t", rows, "x")
    filters = [
        "abs(x) > 1",
        "isnan(x)",
        "x IS NULL",
        "x = 0",
        "CAST(x AS STRING) = 'NaN'",
        "CAST(x AS STRING) = '-0.0'",
        "sqrt(x) >= 0",
        "x > 1",
    ]
    check(lake, filters, "t")


def test_identity_on_every_type(lake):
    """Spark evaluates what only it can on the keys of partitions, of any type."""
    rows = (
        "SELECT CAST(id AS TINYINT) AS a, CAST(id AS SMALLINT) AS b, "
        "CAST(id AS DECIMAL(20, 3)) AS c, "
        "CAST(id AS FLOAT) / 3 AS d, "
        "timestamp'1960-01-01' + make_dt_interval(0, 0, 0, id / 7) AS e, "
        "timestamp_ntz'1960-01-01' + make_dt_interval(0, 0, 0, id / 7) AS f, "
        "date'1960-01-01' + CAST(id AS INT) AS g, id % 2 = 0 AS h, "
        "repeat('é', CAST(id AS INT)) AS i, "
        "id FROM range(3) UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 9"
    )
    lake.both("t", rows, "a, b, c, d, e, f, g, h, i")
    filters = [
        "a % 2 = 0",
        "b % 2 = 1",
        "c % 2 = 0",
        "d * 3 > 1",
        "date_format(e, 'SSSSSS') > '1'",
        "date_format(f, 'SSSSSS') > '1'",
        "date_format(g, 'dd') = '02'",
        "CAST(h AS STRING) = 'true'",
        "length(i) = 2",
        "coalesce(a, 5) = 5",
        "hash(a, c) > 0",
        "c = 1 AND length(i) < 5",
    ]
    check(lake, filters, "t")
