"""Generated SELECTs give the same rows on Phalanx and on plain Parquet."""

import random
import time

import pytest

from tests.spark import compare

EVENTS = """
SELECT
  id,
  CAST(IF(id % 13 = 0, NULL, (id * 7919) % 41 - 20) AS INT) AS n,
  IF(id % 11 = 0, NULL, element_at(array('US', 'us', 'DE', '', 'FR', 'Ñ', 'a_b'),
    CAST((id * 31) % 7 AS INT) + 1)) AS country,
  CASE (id * 17) % 9 WHEN 0 THEN NULL WHEN 1 THEN double('NaN') WHEN 2 THEN double('-0.0')
    WHEN 3 THEN double('Infinity') WHEN 4 THEN 0.0D ELSE CAST(id - 150 AS DOUBLE) / 8 END AS x,
  CAST(IF(id % 7 = 3, NULL, ((id * 37) % 500 - 250) / 4.0) AS DECIMAL(8, 2)) AS price,
  IF(id % 17 = 0, NULL,
    timestamp'2023-11-28 20:00:00' + make_dt_interval(0, CAST((id * 53) % 1400 AS INT), 7)) AS ts,
  IF(id % 19 = 0, NULL,
    timestamp_ntz'1969-12-30 20:00:00' + make_dt_interval(0, CAST((id * 29) % 97 AS INT))) AS local,
  IF(id % 23 = 0, NULL, date'1969-12-20' + CAST((id * 3) % 40 AS INT)) AS day,
  IF(id % 5 = 0, NULL, id % 2 = 0) AS flag,
  named_struct('city', IF(id % 4 = 0, NULL, concat('c', id % 6)), 'k', id % 10) AS at
FROM range(300)
"""
USERS = """
SELECT CAST(id AS INT) - 5 AS n, concat('c', id % 8) AS city,
  IF(id % 6 = 0, NULL,
    element_at(array('US', 'DE', 'Ñ', 'none'), CAST(id % 4 AS INT) + 1)) AS country,
  date'1969-12-25' + CAST(id AS INT) AS day
FROM range(40)
"""
LAYOUTS = [
    "",
    "country",
    "days(ts), flag",
    "bucket(4, id), truncate(10, n)",
    "months(day), truncate(1, country)",
    "hours(local)",
    "at.city, year(ts), multi_bucket(3, n, country)",
    "price",
    "x",
]
USER_LAYOUTS = ["", "country", "bucket(8, n)", "days(day)"]

VALUES = {
    "id": ["0", "7", "150", "299", "-1"],
    "n": ["0", "-20", "-7", "5", "20", "99", "2.5", "CAST(NULL AS INT)"],
    "country": ["'US'", "'us'", "'DE'", "''", "'Ñ'", "'zz'", "'a_b'"],
    "x": ["0.0D", "-0.0D", "1.5D", "double('NaN')", "double('Infinity')", "-3", "2.25BD"],
    "price": ["0", "1.25", "-12.5", "62.25", "0.001", "1e1"],
    "ts": [
        "timestamp'2023-12-01 00:00:00'", "timestamp'2024-01-01 03:00:07'", "'2023-12-25'",
        "date'2024-01-10'", "timestamp'2023-11-30 23:59:59.999999'",
    ],
    "local": ["timestamp_ntz'1970-01-01 00:00:00'", "timestamp_ntz'1969-12-31 21:00:00'"],
    "day": ["date'1970-01-01'", "date'1969-12-31'", "'1970-01-15'", "date'2024-01-01'"],
    "at.city": ["'c1'", "'c5'", "'x'"],
}  # fmt: skip
FUNCTIONS = [
    "upper(country) = 'US'", "length(country) = 2", "n % 3 = 0", "abs(n) < 6", "isnan(x)",
    "year(ts) = 2023", "month(ts) = 12", "hour(ts) = 7", "CAST(ts AS DATE) = date'2023-12-24'",
    "CAST(ts AS DATE) > date'2024-01-05'", "date_trunc('MONTH', ts) = '2023-12-01'",
    "year(day) = 1969", "day(day) > 20", "CAST(local AS DATE) = date'1970-01-01'",
    "hour(local) = 3", "flag", "NOT flag", "flag IS NULL", "at.k = 3", "n = at.k",
    "coalesce(country, 'US') = 'US'", "country LIKE 'U%'", "country LIKE '%\\\\_%'",
    "contains(country, 's')", "price * 2 > 10", "CAST(n AS STRING) LIKE '1%'", "id % 50 < 5",
    "date_add(day, 1) = date'1970-01-01'", "x <=> double('NaN')", "dayofweek(day) = 1",
]  # fmt: skip


class Generator:
    """SELECTs, the same ones for the same seed."""

    def __init__(self, seed, tables, users):
        self.random = random.Random(seed)
        self.tables, self.users = tables, users

    def pick(self, *options):
        return self.random.choice(options)

    def filter(self, depth=0):
        kind = self.random.random()
        if depth < 3 and kind < 0.35:
            parts = [self.filter(depth + 1) for _ in range(self.pick(2, 2, 3))]
            joined = f" {self.pick('AND', 'OR')} ".join(parts)
            return f"({joined})"
        if depth < 3 and kind < 0.45:
            return f"NOT ({self.filter(depth + 1)})"
        if kind < 0.6:
            return self.pick(*FUNCTIONS)
        column = self.pick(*VALUES)
        value = lambda: self.pick(*VALUES[column])  # noqa: E731
        match self.pick("compare", "compare", "in", "between", "null"):
            case "compare":
                return f"{column} {self.pick('=', '<>', '<', '<=', '>', '>=', '<=>')} {value()}"
            case "in":
                items = [value() for _ in range(self.pick(1, 2, 4))] + self.pick([], ["NULL"])
                return f"{column} {self.pick('IN', 'NOT IN')} ({', '.join(items)})"
            case "between":
                return f"{column} BETWEEN {value()} AND {value()}"
        return f"{column} IS {self.pick('', 'NOT ')}NULL"

    def query(self):
        table, user = self.pick(*self.tables), self.pick(*self.users)
        where = self.filter()
        match self.pick("rows", "rows", "rows", "group", "group", "count", "join", "semi", "more"):
            case "rows":
                columns = self.random.sample(["id", *VALUES, "flag", "ts"], self.pick(1, 2, 4))
                named = ", ".join(f"{name} AS c{at}" for at, name in enumerate(columns))
                return f"SELECT {named} FROM {table} WHERE {where}"
            case "group":
                keys = self.random.sample(["country", "flag", "day", "n", "at.city", "year(ts)"], 2)
                named = ", ".join(f"{key} AS k{at}" for at, key in enumerate(keys))
                return (
                    f"SELECT {named}, count(*) AS c, count(n) AS cn, sum(price) AS p, "
                    f"min(ts) AS t, max(x) + 0.0D AS x, round(avg(n), 3) AS a FROM {table} "
                    f"WHERE {where} GROUP BY {', '.join(keys)}"  # of two zeros, any is the largest
                )
            case "count":
                return (
                    f"SELECT count(*) AS c, min(id) AS i, max(day) AS d FROM {table} WHERE {where}"
                )
            case "join":
                on = self.pick(
                    "e.country = u.country",
                    "e.n = u.n",
                    "e.at.city = u.city",
                    "e.day = u.day",
                    "e.country = u.country AND e.n = u.n",
                )
                how = self.pick(
                    "JOIN",
                    "LEFT JOIN",
                    "FULL JOIN",
                    "RIGHT JOIN",
                    "LEFT SEMI JOIN",
                    "LEFT ANTI JOIN",
                )
                columns = (
                    "e.id AS id" if "SEMI" in how or "ANTI" in how else "e.id AS id, u.n AS un"
                )
                return (
                    f"SELECT {columns} FROM (SELECT * FROM {table} WHERE {where}) e "
                    f"{how} {user} u ON {on}"
                )
            case "semi":
                test = self.pick("IN", "NOT IN")
                inner = f"SELECT country FROM {user} WHERE n < {self.pick(0, 10, 30)}"
                return f"SELECT id FROM {table} WHERE country {test} ({inner}) AND {where}"
        return self.pick(
            f"SELECT DISTINCT country, flag FROM {table} WHERE {where}",
            f"SELECT id, row_number() OVER (PARTITION BY country ORDER BY id) AS r FROM {table} "
            f"WHERE {where}",
            f"SELECT n FROM {table} WHERE {where} UNION SELECT n FROM {user}",
            f"SELECT a.id AS a, b.id AS b FROM {table} a JOIN {self.pick(*self.tables)} b "
            f"ON a.id = b.id AND a.country = b.country WHERE a.n > 0",
            f"SELECT id FROM {table} WHERE n > (SELECT avg(n) FROM {user}) AND {where}",
            f"SELECT id FROM {table} WHERE {where} ORDER BY id DESC LIMIT 5",
        )


@pytest.fixture(scope="module")
def tables(shared_lake):
    events = shared_lake.spark.sql(EVENTS).cache()
    users = shared_lake.spark.sql(USERS).cache()
    for number, layout in enumerate(LAYOUTS):
        shared_lake.both(f"events{number}", events, layout)
    for number, layout in enumerate(USER_LAYOUTS):
        shared_lake.both(f"users{number}", users, layout)
    return (
        [shared_lake[f"events{number}"] for number in range(len(LAYOUTS))],
        [shared_lake[f"users{number}"] for number in range(len(USER_LAYOUTS))],
    )


def together(queries):
    """Several queries as one, in which each row says which it is of."""
    return " UNION ALL ".join(
        f"SELECT {number} AS query, to_json(struct(*)) AS found FROM ({query})"
        for number, query in enumerate(queries)
    )


def run(spark, seed, count, tables, seconds=None):
    """Compare `count` queries; fewer where that would take too long."""
    generator = Generator(seed, *tables)
    start, done = time.monotonic(), 0
    while done < count and (seconds is None or time.monotonic() - start < seconds):
        queries = [generator.query() for _ in range(6)]
        try:
            compare.same(spark, together(queries))
        except AssertionError:
            for query in queries:
                compare.same(spark, query)
            raise
        done += len(queries)
    return done


def test_hundreds_of_queries(spark, tables):
    assert run(spark, 20, 240, tables, seconds=20) >= 12


@pytest.mark.parametrize(
    "name", ["America/New_York", pytest.param("Asia/Kolkata", marks=pytest.mark.soak)]
)
def test_in_other_zones(spark, tables, zone, name):
    zone(name)
    assert run(spark, 21, 24, tables, seconds=8) >= 6


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_thousands_of_queries(spark, tables, seed):
    run(spark, 1000 + seed, 1000, tables)
