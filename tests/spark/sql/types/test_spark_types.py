"""Every type of Spark that can be stored: written, read, and filtered by."""

import pytest
from pyspark.errors import AnalysisException

from tests.spark.needs import needs

#: A type, and values of it as SQL. NULL is added to each.
TYPES = [
    ("BOOLEAN", ["true", "false"]),
    ("TINYINT", ["-128Y", "127Y", "0Y"]),
    ("SMALLINT", ["-32768S", "32767S"]),
    ("INT", ["-2147483648", "2147483647", "-1"]),
    ("BIGINT", ["-9223372036854775808L", "9223372036854775807L"]),
    ("FLOAT", ["float('NaN')", "float('-Infinity')", "float('-0.0')", "0.0F", "3.4e38F", "0.1F"]),
    ("DOUBLE", ["double('NaN')", "double('Infinity')", "double('-0.0')", "0.0D", "5e-324D"]),
    ("DECIMAL(5, 2)", ["-999.99BD", "0.01BD"]),
    ("DECIMAL(18, 0)", ["999999999999999999BD", "-999999999999999999BD", "-1BD", "0BD"]),
    ("DECIMAL(19, 0)", ["9999999999999999999BD", "-9223372036854775809BD"]),
    ("DECIMAL(38, 10)", ["-9999999999999999999999999999.9999999999BD"]),
    ("STRING", ["''", "'a'", "'añ😀'", "'10'", "'x''y'", "repeat('long', 1000)"]),
    ("VARCHAR(5)", ["'abc'", "''"]),
    ("BINARY", ["X''", "X'00FF'", "X'616263'"]),
    ("DATE", ["date'0001-01-01'", "date'1969-12-31'", "date'9999-12-31'"]),
    ("TIMESTAMP", ["timestamp'0002-01-01 00:00:00'", "timestamp'1969-12-31 23:59:59.999999'"]),
    ("TIMESTAMP", ["timestamp'9999-12-31 23:59:59.999999'", "timestamp'2024-03-31 01:30:00'"]),
    ("TIMESTAMP_NTZ", ["timestamp_ntz'0001-01-01 00:00:00'", "timestamp_ntz'2024-03-31 02:30:00'"]),
    ("ARRAY<INT>", ["array(1, NULL, 3)", "array()"]),
    ("ARRAY<STRING>", ["array('a', NULL, '')"]),
    ("ARRAY<ARRAY<DOUBLE>>", ["array(array(1.5D, NULL), NULL, array())"]),
    ("MAP<STRING, INT>", ["map('a', 1, 'b', NULL)", "map()"]),
    ("MAP<INT, STRUCT<x: INT>>", ["map(1, named_struct('x', 1), 2, NULL)"]),
    ("STRUCT<a: INT, b: STRING>", ["named_struct('a', 1, 'b', NULL)"]),
    (
        "STRUCT<a: STRUCT<b: STRUCT<c: ARRAY<DECIMAL(5, 1)>>>>",
        ["named_struct('a', named_struct('b', named_struct('c', array(1.5BD, NULL))))"],
    ),
    (
        "ARRAY<STRUCT<at: TIMESTAMP, d: DATE>>",
        ["array(named_struct('at', timestamp'2024-01-01 12:00:00', 'd', NULL), NULL)"],
    ),
]


def fill(lake, type, values):
    """A table with the values and NULL, and a Parquet copy of what it should hold."""
    rows = ", ".join(f"({n}, {value})" for n, value in enumerate([*values, "NULL"]))
    lake.sql(f"CREATE TABLE {{db}}.t (id INT, v {type})")
    lake.sql(f"INSERT INTO {{db}}.t VALUES {rows}")
    plain = "STRING" if "CHAR" in type else type
    lake.copy("t", f"SELECT id, CAST(v AS {plain}) AS v FROM VALUES {rows} AS t(id, v)")


@pytest.mark.parametrize(("type", "values"), TYPES, ids=[type for type, _ in TYPES])
def test_values_come_back(lake, type, values):
    fill(lake, type, values)
    assert len(lake.same("SELECT id, v FROM {db}.t")) == len(values) + 1
    assert lake.same("SELECT id FROM {db}.t WHERE v IS NULL")[0].id == len(values)
    if "MAP" in type:
        return
    plain = "STRING" if "CHAR" in type else type
    asked = [
        f"SELECT '{op}', {n}, id FROM {{db}}.t WHERE v {op} CAST({value} AS {plain})"
        for n, value in enumerate(values)
        for op in ("=", "<")
    ]
    lake.same(" UNION ALL ".join(asked))


def test_char_is_padded_and_varchar_is_checked(lake):
    lake.sql("CREATE TABLE {db}.t (c CHAR(5), v VARCHAR(3))")
    lake.sql("INSERT INTO {db}.t VALUES ('abc', 'xyz')")
    assert lake.rows("SELECT c, length(c), v FROM {db}.t WHERE c = 'abc'") == [("abc  ", 5, "xyz")]
    with pytest.raises(Exception, match="EXCEED_LIMIT_LENGTH"):
        lake.sql("INSERT INTO {db}.t VALUES ('abc', 'wxyz')")


@pytest.fixture
def times_of_day(spark):
    """Spark has to be asked for its TIME type."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.unset("spark.sql.timeType.enabled")


@needs("time")
@pytest.mark.usefixtures("times_of_day")
def test_time(lake):
    lake.sql("CREATE TABLE {db}.t (id INT, v TIME(6)) PARTITIONED BY (bucket(2, id))")
    lake.sql("INSERT INTO {db}.t VALUES (1, time'12:30:00.123456'), (2, NULL), (3, time'00:00:00')")
    query = "SELECT id, CAST(v AS STRING) FROM {db}.t"
    assert lake.rows(query) == [(1, "12:30:00.123456"), (2, None), (3, "00:00:00")]
    assert lake.rows("SELECT id FROM {db}.t WHERE v > time'01:00:00'") == [(1,)]


@needs("time")
@pytest.mark.usefixtures("times_of_day")
def test_time_as_a_default(lake):
    lake.sql("CREATE TABLE {db}.t (id INT)")
    lake.sql("INSERT INTO {db}.t VALUES (1)")
    lake.sql("ALTER TABLE {db}.t ADD COLUMN v TIME(6) DEFAULT TIME '01:02:03.000004'")
    lake.sql("INSERT INTO {db}.t (id) VALUES (2)")
    query = "SELECT id, CAST(v AS STRING) FROM {db}.t"
    assert lake.rows(query) == [(1, "01:02:03.000004"), (2, "01:02:03.000004")]


def test_day_time_interval(lake):
    lake.sql("CREATE TABLE {db}.t (id INT, v INTERVAL DAY TO SECOND)")
    lake.sql("INSERT INTO {db}.t VALUES (1, INTERVAL '1 02:03:04.5' DAY TO SECOND), (2, NULL)")
    query = "SELECT id, v = INTERVAL '1 02:03:04.5' DAY TO SECOND FROM {db}.t"
    assert lake.rows(query) == [(1, True), (2, None)]
    query = "SELECT id FROM {db}.t WHERE v > INTERVAL '1' DAY"
    assert lake.rows(query) == [(1,)]


class TestNotNull:
    def test_it_is_kept(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT NOT NULL, s STRUCT<a: INT NOT NULL>)")
        assert lake.sql("SELECT * FROM {db}.t").schema["id"].nullable is False
        assert lake.sql("SELECT * FROM {db}.t").schema["s"].dataType["a"].nullable is False

    def test_a_null_is_refused(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT NOT NULL, s STRING)")
        with pytest.raises(Exception, match=r"(?i)null"):
            lake.sql("INSERT INTO {db}.t SELECT IF(id = 1, NULL, id), 'x' FROM range(3)")
        assert lake.rows("SELECT * FROM {db}.t") == []

    def test_inside_a_struct(self, lake):
        lake.sql("CREATE TABLE {db}.t (s STRUCT<a: INT NOT NULL>)")
        with pytest.raises(Exception, match=r"(?i)null"):
            lake.sql(
                "INSERT INTO {db}.t SELECT named_struct('a', IF(id = 1, NULL, 1)) FROM range(3)"
            )
        lake.sql("INSERT INTO {db}.t VALUES (NULL), (named_struct('a', 1))")
        assert lake.rows("SELECT s.a FROM {db}.t") == [(1,), (None,)]


class TestVectors:
    def test_they_are_read_as_arrays(self, lake):
        lake.sql(
            "CREATE TABLE {db}.t (id INT, v ARRAY<FLOAT>, w ARRAY<DOUBLE>) "
            "TBLPROPERTIES ('vector.v.dimension' = '3', 'vector.w.dimension' = '2')"
        )
        lake.sql(
            "INSERT INTO {db}.t VALUES (1, array(1F, 2F, 3F), array(0.1D, 0.2D)), (2, NULL, NULL)"
        )
        schema = lake.open("t").schema
        assert str(schema.field("v").type) == "fixed_size_list<item: float>[3]"
        assert str(schema.field("w").type) == "fixed_size_list<item: double>[2]"
        query = "SELECT id, v, w FROM {db}.t"
        assert lake.rows(query) == [(1, [1.0, 2.0, 3.0], [0.1, 0.2]), (2, None, None)]
        assert lake.rows("SELECT v[1] FROM {db}.t WHERE id = 1") == [(2.0,)]

    @pytest.mark.parametrize("value", ["array(1F, 2F)", "array()", "array(1F, 2F, 3F, 4F)"])
    def test_another_length_is_refused(self, lake, value):
        lake.sql("CREATE TABLE {db}.t (v ARRAY<FLOAT>) TBLPROPERTIES ('vector.v.dimension' = '3')")
        with pytest.raises(Exception, match=r"'v'.*every list must have 3 items") as caught:
            lake.sql(f"INSERT INTO {{db}}.t VALUES ({value})")
        assert "Traceback" not in str(caught.value)
        assert lake.rows("SELECT * FROM {db}.t") == []

    def test_a_null_inside_is_kept(self, lake):
        lake.sql("CREATE TABLE {db}.t (v ARRAY<FLOAT>) TBLPROPERTIES ('vector.v.dimension' = '2')")
        lake.sql("INSERT INTO {db}.t VALUES (array(1F, NULL)), (NULL), (array(3F, 4F))")
        assert lake.rows("SELECT v FROM {db}.t") == [(None,), ([1.0, None],), ([3.0, 4.0],)]

    BAD = (
        ("v ARRAY<FLOAT>", "vector.w.dimension", "3", "names no column"),
        ("v ARRAY<STRING>", "vector.v.dimension", "3", "'v' is not a vector"),
        ("v FLOAT", "vector.v.dimension", "3", "'v' is not a vector"),
        ("v ARRAY<FLOAT>", "vector.v.dimension", "0", "whole number"),
        ("v ARRAY<FLOAT>", "vector.v.dimension", "many", "whole number"),
    )

    @pytest.mark.parametrize(("column", "key", "value", "said"), BAD)
    def test_bad_dimensions(self, lake, column, key, value, said):
        with pytest.raises(AnalysisException, match=said):
            lake.sql(f"CREATE TABLE {{db}}.t ({column}) TBLPROPERTIES ('{key}' = '{value}')")

    def test_create_as_select(self, lake):
        lake.sql(
            "CREATE TABLE {db}.t TBLPROPERTIES ('vector.v.dimension' = '2') "
            "AS SELECT id, array(CAST(id AS FLOAT), 1F) AS v FROM range(3)"
        )
        assert lake.rows("SELECT v FROM {db}.t WHERE id > 0") == [([1.0, 1.0],), ([2.0, 1.0],)]


def test_variants(lake):
    """They lie in files as their binary, and Python sees them so."""
    lake.sql("CREATE TABLE {db}.v (id INT, v VARIANT, many ARRAY<VARIANT>) PARTITIONED BY (id)")
    lake.sql("""
        INSERT INTO {db}.v
        SELECT 1, parse_json('{"a": 1, "b": [true, null]}'), array(parse_json('"x"'), NULL)
        UNION ALL SELECT 2, parse_json('null'), array() UNION ALL SELECT 3, NULL, NULL
    """)
    assert lake.sql("SELECT * FROM {db}.v").dtypes[1:] == [
        ("v", "variant"),
        ("many", "array<variant>"),
    ]
    lake.sql("UPDATE {db}.v SET v = parse_json('[7]') WHERE id = 3")
    query = "SELECT id, to_json(v), variant_get(v, '$.a', 'int'), to_json(many) FROM {db}.v"
    assert lake.rows(query) == [
        (1, '{"a":1,"b":[true,null]}', 1, '["x",null]'),
        (2, "null", None, "[]"),
        (3, "[7]", None, None),
    ]
    assert lake.rows("SELECT count(v), count(*) FROM {db}.v WHERE v IS NOT NULL") == [(3, 3)]
    stored = lake.open("v").scan("v", where="id = 1").to_arrow().column("v")[0].as_py()
    assert set(stored) == {"value", "metadata"}
    lake.sql("CREATE TABLE {db}.copy AS SELECT v FROM {db}.v")
    assert "v VARIANT" in lake.rows("SHOW CREATE TABLE {db}.copy")[0][0]
    with pytest.raises(AnalysisException, match="v"):
        lake.sql("CREATE TABLE {db}.p (v VARIANT) PARTITIONED BY (v)")
