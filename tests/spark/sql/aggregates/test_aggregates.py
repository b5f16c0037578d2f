"""Aggregates that the manifest answers are the ones that a scan gives."""

import pytest

ROWS = (
    "SELECT id, TIMESTAMP '2023-11-01' + make_dt_interval(CAST(id AS INT)) AS ts, "
    "element_at(array('US', 'DE', NULL), CAST(id % 3 AS INT) + 1) AS country, "
    "IF(id % 4 = 0, NULL, CAST(id AS INT)) AS n, "
    "IF(id % 9 = 0, double('NaN'), id * 0.5D) AS x, concat('s', id) AS s FROM range(120)"
)
ANSWERED = [
    "SELECT count(*) FROM {db}.t",
    "SELECT count(*) FROM {db}.t WHERE country = 'US'",
    "SELECT count(*) FROM {db}.t WHERE country IS NULL",
    "SELECT count(*) FROM {db}.t WHERE country = 'nowhere'",
    "SELECT country, count(*) FROM {db}.t GROUP BY country",
    "SELECT country, count(*), count(n), count(id), count(country) FROM {db}.t GROUP BY country",
    "SELECT min(id), max(id), min(ts), max(ts), min(n), max(n), min(s), max(s) FROM {db}.t",
    "SELECT country, min(n), max(ts) FROM {db}.t WHERE country <> 'DE' GROUP BY country",
    "SELECT max(country), min(country), count(country) FROM {db}.t",
    "SELECT max(id) FROM {db}.t WHERE country = 'nowhere'",
    "SELECT year(ts), count(*) FROM {db}.t GROUP BY year(ts)",
    "SELECT year(ts), month(ts), country, count(*) FROM {db}.t GROUP BY 1, 2, 3",
    "SELECT count(*) FROM {db}.t WHERE ts >= '2024-01-01'",
    "SELECT max(x), min(x) FROM {db}.t WHERE ts >= '2023-12-01'",
    "SELECT country, min(x), max(x), max(id) FROM {db}.t GROUP BY country",
    "SELECT count(*), max(s) FROM {db}.t WHERE id < 0",
    "SELECT country, count(*) FROM {db}.t WHERE id < 0 GROUP BY country",
]
#: Queries with how many of the leaves are read.
DOUBTFUL = {
    "SELECT count(*) FROM {db}.t WHERE ts >= '2024-01-15'": 3,
    "SELECT count(*), count(n), min(s), max(id) FROM {db}.t WHERE ts < '2023-12-05 12:00'": 3,
    "SELECT country, count(*), min(ts) FROM {db}.t WHERE ts >= '2024-01-15' GROUP BY country": 3,
    "SELECT country, count(n) FROM {db}.t WHERE ts = '2024-01-15 00:00' GROUP BY country": 3,
    "SELECT month(ts), max(n) FROM {db}.t WHERE ts > '2024-01-15' AND country = 'US' GROUP BY 1": 1,
    "SELECT count(*) FROM {db}.t WHERE id < 3 AND n IS NULL": 3,
    "SELECT count(*), max(s) FROM {db}.t WHERE id % 500 = 499": 12,
    "SELECT country, count(*) FROM {db}.t WHERE id % 500 = 499 GROUP BY country": 12,
}
READ = [
    "SELECT count(DISTINCT country) FROM {db}.t",
    "SELECT sum(id) FROM {db}.t",
    "SELECT n, count(*) FROM {db}.t GROUP BY n",
    "SELECT country, count(*) FROM {db}.t WHERE id % 2 = 0 GROUP BY country",
]


@pytest.fixture(scope="module")
def table(shared_lake):
    shared_lake.both("t", ROWS, "months(ts), country")
    return shared_lake


@pytest.mark.parametrize("query", ANSWERED)
def test_answered(table, query):
    table.same(query)
    assert "LocalTableScan" in table.plan(query)
    assert "BatchScan" not in table.plan(query)


@pytest.mark.parametrize("query", DOUBTFUL)
def test_only_what_is_in_doubt_is_read(table, query):
    table.same(query)
    assert f" and {DOUBTFUL[query]} read," in table.plan(query)


@pytest.mark.parametrize("query", READ)
def test_read(table, query):
    table.same(query)
    assert "BatchScan" in table.plan(query)


def test_another_time_zone(table, zone):
    zone("America/New_York")
    query = "SELECT year(ts), month(ts), count(*) FROM {db}.t GROUP BY 1, 2"
    table.same(query)
    assert "BatchScan" in table.plan(query)


def test_after_changes(lake):
    lake.both("t", ROWS, "country")
    lake.sql("DELETE FROM {db}.t WHERE id IN (0, 119)")
    lake.sql("UPDATE {db}.t SET n = 7 WHERE id = 5")
    lake.copy("t", f"SELECT * FROM {lake['t']}")
    for query in ("SELECT min(id), max(id), count(n), min(n) FROM {db}.t", *ANSWERED[:6]):
        lake.same(query)
    # US lost a row and has another value, NULL lost a row; nothing happened to DE.
    assert "1 answered from the manifest and 2 read" in lake.plan("SELECT min(id) FROM {db}.t")
    lake.sql(f"CALL lake.system.rollback('{lake.name}.t', '1')")
    lake.copy("t", ROWS)
    for query in ANSWERED[:8]:
        lake.same(query)
    assert "LocalTableScan" in lake.plan("SELECT min(id) FROM {db}.t")


def test_groups_of_nan(lake):
    """It is one group, in however many leaves."""
    lake.both("t", ROWS, "x, bucket(2, id)")
    query = "SELECT x, count(*), max(id) FROM {db}.t WHERE isnan(x) OR x < 3 GROUP BY x"
    lake.same(query)
    lake.same("SELECT x, count(*) FROM {db}.t GROUP BY x")
    assert "BatchScan" not in lake.plan("SELECT x, count(*) FROM {db}.t GROUP BY x")


@pytest.mark.parametrize("type", ["DOUBLE", "FLOAT"])
def test_floats(lake, type):
    """NaN is above every number, zeros are two, and a part may be NULL."""
    rows = ", ".join(
        f"('{part}', CAST('{x}' AS {type}))"
        for part, values in {
            "nan": ["NaN", "1.5", "-Infinity"],
            "only nan": ["NaN", "NaN"],
            "zero": ["0.0", "3.25"],
            "negative zero": ["-0.0", "7"],
            "below": ["-3.25", "-0.0"],
            "huge": ["1e30", "Infinity"],
        }.items()
        for x in values
    )
    nulls = f", ('null', CAST(NULL AS {type})), ('nan', NULL)"
    lake.both("t", f"SELECT * FROM VALUES {rows}{nulls} AS v(part, x)", "part")
    queries = [
        "SELECT part, min(x), max(x) FROM {db}.t GROUP BY part",
        "SELECT min(x), max(x) FROM {db}.t",
        "SELECT min(x), max(x) FROM {db}.t WHERE part LIKE '%nan'",
        "SELECT min(x), max(x), count(x) FROM {db}.t WHERE part IN ('null', 'only nan')",
        "SELECT part, min(x), max(x) FROM {db}.t WHERE x > 1 GROUP BY part",
        "SELECT CAST(min(x) AS STRING) FROM {db}.t WHERE part = 'negative zero'",
        "SELECT CAST(min(x) AS STRING), CAST(max(x) AS STRING) FROM {db}.t WHERE part = 'zero'",
        "SELECT CAST(max(x) AS STRING) FROM {db}.t WHERE part = 'below'",
    ]
    for query in queries:
        lake.same(query)
    assert "LocalTableScan" in lake.plan("SELECT min(x) FROM {db}.t WHERE part = 'nan'")
    assert "3 answered from the manifest and 1 read" in lake.plan(
        "SELECT part, max(x) FROM {db}.t WHERE part IN ('nan', 'zero', 'below', 'huge') "
        "GROUP BY part",
    )
