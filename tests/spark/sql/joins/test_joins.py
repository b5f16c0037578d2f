"""Joins and groups by partition: without a shuffle, and with the rows that Parquet gives."""

import pytest

LEFT = (
    "SELECT id, CAST(id % 5 AS INT) AS k, "
    "TIMESTAMP '2024-01-01' + make_dt_interval(CAST(id % 60 AS INT)) AS ts, "
    "element_at(array('US', 'DE', NULL), CAST(id % 3 AS INT) + 1) AS country, id * 1.5D AS x "
    "FROM range(300)"
)
RIGHT = (
    "SELECT id * 2 AS id, CAST(id % 4 AS INT) AS k, TIMESTAMP '2024-01-10' + "
    "make_dt_interval(CAST(id % 45 AS INT)) AS ts, "
    "element_at(array('US', 'FR', NULL), CAST(id % 3 AS INT) + 1) AS country, id * 2.5D AS y "
    "FROM range(200)"
)
#: Partitioning of both sides, the condition of the join, and how many shuffles it needs.
CASES = {
    "identity": ("country", "country", "a.country = b.country AND a.id = b.id", 0),
    "bucket": ("bucket(4, id)", "bucket(4, id)", "a.id = b.id", 0),
    "bucket 16 with 8": ("bucket(16, id)", "bucket(8, id)", "a.id = b.id", 0),
    "bucket 24 with 16": ("bucket(24, id)", "bucket(16, id)", "a.id = b.id", 0),
    "truncate": ("truncate(10, id)", "truncate(10, id)", "a.id = b.id", 0),
    "two fields": (
        "country, bucket(4, id)",
        "country, bucket(4, id)",
        "a.country = b.country AND a.id = b.id",
        0,
    ),
    "days with months": ("days(ts)", "months(ts)", "a.ts = b.ts", 0),
    "more join keys": ("bucket(4, id)", "bucket(4, id)", "a.id = b.id AND a.k = b.k", 0),
    "one side unpartitioned": ("bucket(4, id)", "", "a.id = b.id", 1),
}
KINDS = ["INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"]


@pytest.fixture
def joining(spark):
    """Nothing is broadcast, and many leaves still have keys."""
    wanted = {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.phalanx.keyedLeaves": "256",
        "spark.sql.adaptive.enabled": "false",
    }
    before = {key: spark.conf.get(key) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    yield
    for key, value in before.items():
        spark.conf.set(key, value)


def shuffles(lake, query):
    return lake.sql(query)._jdf.queryExecution().executedPlan().toString().count("Exchange ")


@pytest.mark.parametrize("case", CASES)
def test_join(lake, joining, case):
    left, right, condition, wanted = CASES[case]
    lake.both("a", LEFT, left)
    lake.both("b", RIGHT, right)
    for kind in KINDS:
        columns = "a.*" if kind in ("LEFT SEMI", "LEFT ANTI") else "a.*, b.*"
        query = f"SELECT {columns} FROM {{db}}.a a {kind} JOIN {{db}}.b b ON {condition}"
        lake.same(query)
        assert shuffles(lake, query) == wanted, kind


@pytest.mark.parametrize(
    "query",
    [
        "SELECT country, sum(x) FROM {db}.a GROUP BY country",
        "SELECT country, k, count(*), max(x) FROM {db}.a GROUP BY country, k",
        "SELECT id, sum(x) OVER (PARTITION BY country ORDER BY id) FROM {db}.a",
    ],
)
def test_groups_and_windows(lake, joining, query):
    lake.both("a", LEFT, "country")
    lake.same(query)
    assert shuffles(lake, query) == 0
