"""PARTITIONED BY: every transform, and what is refused."""

import pytest
from pyspark.errors import AnalysisException

ROWS = """
SELECT
  CAST(id - 6 AS BIGINT) AS n,
  timestamp'1969-11-30 21:30:00' + make_dt_interval(CAST(id * 17 AS INT), CAST(id AS INT)) AS ts,
  timestamp_ntz'1969-11-30 21:30:00' + make_dt_interval(CAST(id * 17 AS INT)) AS local,
  date'1969-12-25' + CAST(id * 3 AS INT) AS day,
  IF(id % 5 = 0, NULL, substring('añb😀cdef', CAST(id % 4 AS INT) + 1)) AS name,
  CAST(id * 7 - 20 AS DECIMAL(10, 2)) / 4 AS price,
  CAST(id AS DOUBLE) - 3.5 AS x,
  id % 2 = 0 AS flag,
  encode(CAST(id AS STRING), 'UTF-8') AS raw,
  named_struct('city', IF(id % 3 = 0, 'Rome', 'Oslo')) AS at
FROM range(12)
UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
"""

TRANSFORMS = [
    ("n", "identity(n)"),
    ("name", "identity(name)"),
    ("flag", "identity(flag)"),
    ("day", "identity(day)"),
    ("price", "identity(price)"),
    ("ts", "identity(ts)"),
    ("at.city", "identity(at.city)"),
    ("years(ts)", "years(ts)"),
    ("months(ts)", "months(ts)"),
    ("days(ts)", "days(ts)"),
    ("hours(ts)", "hours(ts)"),
    ("year(ts)", "years(ts)"),
    ("month(ts)", "month(ts)"),
    ("day(day)", "day(day)"),
    ("hour(local)", "hour(local)"),
    ("days(local)", "days(local)"),
    ("days(day)", "days(day)"),
    ("bucket(4, n)", "bucket(4, n)"),
    ("bucket(4, name)", "bucket(4, name)"),
    ("bucket(4, raw)", "bucket(4, raw)"),
    ("bucket(3, price)", "bucket(3, price)"),
    ("bucket(3, x)", "bucket(3, x)"),
    ("truncate(5, n)", "truncate(5, n)"),
    ("truncate(2, name)", "truncate(2, name)"),
    ("truncate(2, price)", "truncate(2, price)"),
    ("multi_bucket(4, n, name)", "multi_bucket(4, n, name)"),
    ("bucket(4, n, name)", "multi_bucket(4, n, name)"),
    ("expr('week', \"date_trunc('week', col0)\", ts)", None),
]


@pytest.fixture(scope="module")
def source(shared_lake):
    shared_lake.both("source", ROWS)
    return shared_lake


@pytest.mark.parametrize(("written", "shown"), TRANSFORMS)
def test_transform(source, lake, written, shown):
    lake.sql(
        f"CREATE TABLE {{db}}.t PARTITIONED BY ({written}) AS SELECT * FROM {source['source']}"
    )
    expected = source.rows("SELECT * FROM {db}.source")
    assert lake.rows("SELECT * FROM {db}.t") == expected
    parts = [r.data_type for r in lake.sql("DESCRIBE {db}.t").collect() if r.col_name == "Part 0"]
    if shown is None:
        assert parts[0].startswith("expr(")
    elif not shown.startswith("identity"):
        assert parts == [shown]


def test_several(source, lake):
    lake.sql(
        "CREATE TABLE {db}.t PARTITIONED BY (days(ts), name, bucket(4, n), truncate(3, n)) "
        f"AS SELECT * FROM {source['source']}"
    )
    assert lake.rows("SELECT * FROM {db}.t") == source.rows("SELECT * FROM {db}.source")
    fields = [field.field_id for field in lake.open("t").spec.fields]
    assert fields == ["ts_year", "ts_month", "ts_day", "name", "n_bucket", "n_truncate"]


def test_a_column_declared_in_the_partitioning(lake):
    lake.sql("CREATE TABLE {db}.t (id INT) PARTITIONED BY (country STRING)")
    lake.sql("INSERT INTO {db}.t VALUES (1, 'DE')")
    assert lake.rows("SELECT * FROM {db}.t WHERE country = 'DE'") == [(1, "DE")]


BAD = [
    ("x BIGINT", "none", "none"),
    ("x BIGINT", "bucket(0, x)", "bucket"),
    ("x BIGINT", "bucket(-1, x)", "bucket"),
    ("x BIGINT", "bucket(4, none)", "none"),
    ("x BIGINT", "days(x)", "(x)"),
    ("x STRING", "years(x)", "(x)"),
    ("x BOOLEAN", "truncate(3, x)", "truncate(3, x)"),
    ("x BIGINT", "truncate(0, x)", "width must be"),
    ("x DATE", "hours(x)", "(x)"),
    ("x BIGINT", "zorder(x)", "zorder"),
    ("x BINARY", "x", "by x:"),
    ("x ARRAY<INT>", "x", "by x:"),
    ("x MAP<STRING, INT>", "bucket(2, x)", "bucket(2, x)"),
    ("x BIGINT", "x, x", "x"),
    ("x BIGINT", "expr('r', 'random()', x)", "random"),
    ("x BIGINT", "expr('r', 'col0 +', x)", "col0"),
    ("x BIGINT", "expr('r', x)", "expr takes"),
]


@pytest.mark.parametrize(("columns", "partitioned_by", "said"), BAD)
def test_what_is_refused(lake, columns, partitioned_by, said):
    with pytest.raises(AnalysisException) as caught:
        lake.sql(f"CREATE TABLE {{db}}.t ({columns}) PARTITIONED BY ({partitioned_by})")
    text = str(caught.value)
    assert said in text
    assert "Traceback" not in text
    assert "Phalanx failed" not in text
    assert lake.rows("SHOW TABLES IN {db}") == []


TYPES = [
    ("x INTERVAL YEAR TO MONTH", "'x'"),
    ("x VOID", "'x'"),
    ("x STRING COLLATE UTF8_LCASE", "'x'"),
    ("x ARRAY<STRING COLLATE UNICODE>", "'x'"),
    ("x STRUCT<a: ARRAY<INTERVAL YEAR TO MONTH>>", "'x.a.element'"),
    ("x INT, X INT", "X"),
    ("_rowid BIGINT", "'_rowid'"),
]


@pytest.mark.parametrize(("columns", "said"), TYPES)
def test_a_type_that_cannot_be_stored(lake, columns, said):
    with pytest.raises(AnalysisException) as caught:
        lake.sql(f"CREATE TABLE {{db}}.t (id INT, {columns})")
    text = str(caught.value)
    assert said.lower() in text.lower()
    assert "Traceback" not in text
    assert "Phalanx failed" not in text
    assert lake.rows("SHOW TABLES IN {db}") == []


def test_a_generated_or_default_column_is_refused_or_kept(lake):
    with pytest.raises(AnalysisException):
        lake.sql("CREATE TABLE {db}.t (id INT, twice INT GENERATED ALWAYS AS (id * 2))")
