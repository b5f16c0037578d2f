"""Defaults of columns: as they are written, as they are shown, and what rows get from them."""

import datetime as dt
import getpass
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import phalanx
from tests.spark.needs import needs


@pytest.fixture
def twin(lake, spark):
    """Run a statement on a table of the lake and on a Parquet table, and compare the answers.

    `{db}.t` is the table, and `{using}` its format.
    """
    twins = f"spark_catalog.default.{lake.name}_"

    def run(text):
        found = []
        for db, using in ((f"lake.{lake.name}.", "phalanx"), (twins, "parquet")):
            statement = text.replace("{db}.", db).replace("{using}", using)
            found.append([tuple(row) for row in spark.sql(statement).collect()])
        mine, other = found
        if text.startswith("SELECT"):
            assert mine == other
        return mine

    yield run
    for row in spark.sql("SHOW TABLES IN spark_catalog.default").collect():
        if row.tableName.startswith(f"{lake.name}_"):
            spark.sql(f"DROP TABLE spark_catalog.default.{row.tableName}")


def created(lake, table="t"):
    """The columns in SHOW CREATE TABLE."""
    text = lake.sql(f"SHOW CREATE TABLE {{db}}.{table}").first()[0]
    columns = text[text.index("(") + 1 : text.index(")\nUSING")]
    return [line.strip().replace(" COLLATE UTF8_BINARY", "") for line in columns.split(",\n")]


class TestNotConstant:
    @needs("partial_insert")
    def test_the_time_of_the_statement(self, twin):
        twin(
            "CREATE TABLE {db}.t (id INT, at TIMESTAMP DEFAULT current_timestamp(), "
            "day DATE DEFAULT current_date(), by STRING DEFAULT current_user()) USING {using}"
        )
        for id in (1, 2):
            twin(f"INSERT INTO {{db}}.t (id) VALUES ({id})")
        assert twin("SELECT count(DISTINCT at) FROM {db}.t") == [(2,)]
        twin("SELECT id, day, by FROM {db}.t ORDER BY id")

    @needs("partial_insert")
    def test_an_added_column(self, twin, lake):
        """Existing rows hold the time of the change, and new rows that of their statement."""
        twin("CREATE TABLE {db}.t (id INT) USING {using}")
        twin("INSERT INTO {db}.t VALUES (1), (2)")
        twin("ALTER TABLE {db}.t ADD COLUMN at TIMESTAMP DEFAULT current_timestamp()")
        twin("INSERT INTO {db}.t (id) VALUES (3)")
        twin("INSERT INTO {db}.t VALUES (4, NULL)")
        query = "SELECT id, dense_rank() OVER (ORDER BY at) FROM {db}.t ORDER BY id"
        assert twin(query) == [(1, 2), (2, 2), (3, 3), (4, 1)]
        lake.open("t").optimize()
        assert twin(query) == [(1, 2), (2, 2), (3, 3), (4, 1)]

    def test_rows_from_python(self, lake):
        lake.sql(
            "CREATE TABLE {db}.t (id INT, at TIMESTAMP NOT NULL DEFAULT now(), "
            "by STRING DEFAULT USER, n INT DEFAULT 2 * 21)"
        )
        before = dt.datetime.now(dt.UTC)
        lake.open("t").append([{"id": 1}]).append(pa.table({"id": pa.array([2], pa.int32())}))
        found = lake.open("t").scan().to_arrow().sort_by("id").to_pylist()
        assert before <= found[0]["at"] <= found[1]["at"] <= dt.datetime.now(dt.UTC)
        assert {(row["by"], row["n"]) for row in found} == {(getpass.getuser(), 42)}

    @needs("partial_insert")
    def test_rows_from_python_that_only_spark_can_complete(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT, y INT DEFAULT year(current_date()))")
        said = r"'y' is missing, and its default year\(current_date\(\)\) is known only to Spark"
        with pytest.raises(phalanx.InvalidInput, match=said):
            lake.open("t").append([{"id": 1}])
        lake.open("t").append([{"id": 1, "y": 5}])
        lake.sql("INSERT INTO {db}.t (id) VALUES (2)")
        assert lake.rows("SELECT id, y = year(current_date()) FROM {db}.t") == [
            (1, False),
            (2, True),
        ]

    @needs("partial_insert")
    def test_other_writes(self, lake, spark):
        """DataFrames, MERGE and UPDATE take the same defaults as INSERT."""
        lake.sql("CREATE TABLE {db}.t (id BIGINT, at TIMESTAMP DEFAULT current_timestamp(), n INT)")
        spark.range(3).writeTo(lake["t"]).append()
        lake.sql("INSERT INTO {db}.t VALUES (3, DEFAULT, DEFAULT), (4, NULL, 4)")
        lake.sql("INSERT INTO {db}.t BY NAME SELECT 5L AS id")
        lake.sql(
            "MERGE INTO {db}.t t USING (SELECT explode(array(4L, 6L)) AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET n = 5 "
            "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
        )
        assert lake.rows("SELECT id FROM {db}.t WHERE at IS NULL") == [(4,)]
        lake.sql("UPDATE {db}.t SET at = DEFAULT WHERE id = 4")
        assert lake.rows("SELECT count(DISTINCT at), count(at) FROM {db}.t") == [(5, 7)]

    def test_a_stream(self, lake, spark, tmp_path):
        """Spark leaves columns that a stream lacks to the table."""
        lake.sql("CREATE TABLE {db}.s (id BIGINT)")
        lake.sql("INSERT INTO {db}.s VALUES (1), (2)")
        lake.sql("CREATE TABLE {db}.t (id BIGINT, at TIMESTAMP DEFAULT current_timestamp(), n INT)")
        before = dt.datetime.now(dt.UTC)
        rows = spark.readStream.table(lake["s"]).writeStream
        started = rows.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        started.toTable(lake["t"]).awaitTermination()
        found = lake.open("t").scan().to_arrow()
        assert len(set(found["at"].to_pylist())) == 1
        assert before <= found["at"][0].as_py() <= dt.datetime.now(dt.UTC)


class TestShown:
    DEFAULTS = (
        ("INT", "42"),
        ("INT", "5 + 5"),
        ("INT", "NULL"),
        ("BIGINT", "-9223372036854775808"),
        ("DECIMAL(5,2)", "1.5"),
        ("STRING", "'it\\'s \\\\'"),
        ("VARCHAR(3)", "'abc'"),
        ("TIMESTAMP", "current_timestamp()"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '2026-01-02 03:04:05'"),
        ("DATE", "CURRENT_DATE"),
        ("INTERVAL DAY TO SECOND", "INTERVAL '1 02:03:04.5' DAY TO SECOND"),
        ("ARRAY<INT>", "array(1, NULL)"),
        ("ARRAY<STRING>", "array()"),
        ("MAP<STRING, INT>", "map()"),
        ("MAP<STRING, ARRAY<INT>>", "map('a', array(1), 'b', NULL)"),
        ("STRUCT<a: INT, b: STRING>", "named_struct('a', 1, 'b', current_user())"),
    )

    @needs("partial_insert")
    def test_as_written(self, lake):
        """SHOW CREATE TABLE says it, and what it says makes the same table."""
        columns = [f"c{at} {type} DEFAULT {sql}" for at, (type, sql) in enumerate(self.DEFAULTS)]
        lake.sql(f"CREATE TABLE {{db}}.t (id INT, {', '.join(columns)})")
        assert created(lake) == ["id INT", *columns]
        text = lake.sql("SHOW CREATE TABLE {db}.t").first()[0]
        lake.sql("INSERT INTO {db}.t (id) VALUES (1)")
        first = lake.rows("SELECT * EXCEPT (c7) FROM {db}.t")
        lake.sql("DROP TABLE {db}.t")
        lake.sql(text)
        assert created(lake) == ["id INT", *columns]
        lake.sql("INSERT INTO {db}.t (id) VALUES (1)")
        assert lake.rows("SELECT * EXCEPT (c7) FROM {db}.t") == first

    def test_describe(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT, n INT DEFAULT 42, at TIMESTAMP DEFAULT now())")
        rows = lake.rows("DESCRIBE EXTENDED {db}.t")
        assert ("n", "int", "42") in rows
        assert ("at", "timestamp", "now()") in rows

    @needs("create_table_like")
    def test_other_tables_from_it(self, lake):
        """LIKE, AS SELECT and REPLACE: all take the newest default, and not that of old rows."""
        lake.sql("CREATE TABLE {db}.t (id INT)")
        lake.sql("ALTER TABLE {db}.t ADD COLUMN n INT DEFAULT 1")
        lake.sql("ALTER TABLE {db}.t ALTER COLUMN n SET DEFAULT 2")
        lake.sql("CREATE TABLE {db}.a LIKE {db}.t")
        lake.sql("CREATE TABLE {db}.b AS SELECT * FROM {db}.t")
        lake.sql("CREATE OR REPLACE TABLE {db}.b AS SELECT * FROM {db}.t")
        for table in ("a", "b"):
            assert created(lake, table) == ["id INT", "n INT DEFAULT 2"]
            lake.open(table).append([{"id": 1}])
            assert lake.rows(f"SELECT n FROM {{db}}.{table}") == [(2,)]
        lake.sql("REPLACE TABLE {db}.b (id INT, n DATE DEFAULT current_date())")
        assert created(lake, "b") == ["id INT", "n DATE DEFAULT current_date()"]


class TestAlter:
    @needs("partial_insert")
    def test_set_and_drop(self, twin, lake):
        twin("CREATE TABLE {db}.t (id INT, n INT DEFAULT 1, m INT) USING {using}")
        twin("INSERT INTO {db}.t (id) VALUES (1)")
        twin("ALTER TABLE {db}.t ADD COLUMN k INT DEFAULT 1")
        for id, (column, change) in enumerate(
            [("n", "SET DEFAULT 1 + 1"), ("m", "SET DEFAULT 2"), ("k", "SET DEFAULT 2"),
             ("n", "DROP DEFAULT"), ("k", "DROP DEFAULT"), ("k", "SET DEFAULT 3")], 2
        ):  # fmt: skip
            twin(f"ALTER TABLE {{db}}.t ALTER COLUMN {column} {change}")
            twin(f"INSERT INTO {{db}}.t (id) VALUES ({id})")
        twin("SELECT * FROM {db}.t ORDER BY id")
        assert created(lake) == ["id INT", "n INT", "m INT DEFAULT 2", "k INT DEFAULT 3"]
        lake.open("t").append([{"id": 9}])
        assert lake.rows("SELECT n, m, k FROM {db}.t WHERE id = 9") == [(None, 2, 3)]

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("n SET DEFAULT 'x'", "INVALID_DEFAULT_VALUE"),
            ("n SET DEFAULT rand()", "INVALID_DEFAULT_VALUE"),
            ("n SET DEFAULT (SELECT 1)", "INVALID_DEFAULT_VALUE"),
            ("n SET DEFAULT id", "INVALID_DEFAULT_VALUE"),
            ("s.a SET DEFAULT 1", "'s.a' is inside another column"),
        ],
    )
    def test_refused(self, lake, change, said):
        lake.sql("CREATE TABLE {db}.t (id INT, n INT, s STRUCT<a: INT>)")
        with pytest.raises(AnalysisException, match=said):
            lake.sql(f"ALTER TABLE {{db}}.t ALTER COLUMN {change}")
        assert lake.open("t").version == 1

    @needs("partial_insert")
    def test_a_column_that_must_not_be_null(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT, n INT NOT NULL DEFAULT 1)")
        lake.sql("INSERT INTO {db}.t (id) VALUES (1)")
        lake.sql("ALTER TABLE {db}.t ALTER COLUMN n DROP DEFAULT")
        with pytest.raises(AnalysisException, match="n"):
            lake.sql("INSERT INTO {db}.t (id) VALUES (2)")
        lake.sql("ALTER TABLE {db}.t ALTER COLUMN n SET DEFAULT 3")
        lake.sql("INSERT INTO {db}.t (id) VALUES (3)")
        assert lake.rows("SELECT id, n FROM {db}.t") == [(1, 1), (3, 3)]

    @needs("partial_insert")
    def test_columns_that_change(self, lake):
        lake.sql(
            "CREATE TABLE {db}.t (id INT, n INT DEFAULT 40 + 2, f FLOAT DEFAULT 0.1, "
            "d DATE DEFAULT current_date(), y INT DEFAULT year(current_date()))"
        )
        lake.sql("ALTER TABLE {db}.t ALTER COLUMN n TYPE BIGINT")
        lake.sql("ALTER TABLE {db}.t ALTER COLUMN f TYPE DOUBLE")
        lake.sql("ALTER TABLE {db}.t ALTER COLUMN y TYPE BIGINT")
        lake.sql("ALTER TABLE {db}.t RENAME COLUMN n TO m")
        lake.sql("ALTER TABLE {db}.t ALTER COLUMN m FIRST")
        lake.sql("ALTER TABLE {db}.t ALTER COLUMN m COMMENT 'more'")
        lake.open("t").change_type("d", pa.timestamp("us"))
        assert created(lake) == [
            "m BIGINT DEFAULT 42 COMMENT 'more'",
            "id INT",
            "f DOUBLE DEFAULT 0.10000000149011612D",
            "d TIMESTAMP_NTZ DEFAULT current_date()",
            "y BIGINT DEFAULT year(current_date())",
        ]
        lake.sql("INSERT INTO {db}.t (id) VALUES (1)")
        query = "SELECT m, f, d = current_date(), y = year(current_date()) FROM {db}.t"
        assert lake.rows(query) == [(42, 0.10000000149011612, True, True)]

    @needs("partial_insert")
    def test_fields_of_a_struct(self, lake):
        lake.sql(
            "CREATE TABLE {db}.t (id INT, s STRUCT<a: INT, b: STRING> "
            "DEFAULT named_struct('a', 1, 'b', 'x'))"
        )
        lake.sql("INSERT INTO {db}.t (id) VALUES (1)")
        lake.sql("ALTER TABLE {db}.t ADD COLUMN s.c BIGINT FIRST")
        lake.sql("INSERT INTO {db}.t (id) VALUES (2)")
        row = (None, 1, "x")
        assert lake.rows("SELECT s.* FROM {db}.t") == [row, row]


class TestNested:
    @needs("partial_insert")
    def test_existing_and_new_rows(self, twin):
        twin("CREATE TABLE {db}.t (id INT) USING {using}")
        twin("INSERT INTO {db}.t VALUES (1)")
        twin("ALTER TABLE {db}.t ADD COLUMN a ARRAY<BIGINT> DEFAULT array(1, 2)")
        twin("ALTER TABLE {db}.t ADD COLUMN e ARRAY<STRING> DEFAULT array()")
        twin("INSERT INTO {db}.t (id) VALUES (2)")
        twin("INSERT INTO {db}.t VALUES (3, NULL, NULL)")
        twin("SELECT * FROM {db}.t ORDER BY id")
        twin("SELECT id FROM {db}.t WHERE e IS NULL")
        twin("SELECT id FROM {db}.t WHERE array_contains(a, 2) ORDER BY id")

    @needs("partial_insert")
    def test_structs_and_maps(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT)")
        lake.sql("INSERT INTO {db}.t VALUES (1)")
        lake.sql(
            "ALTER TABLE {db}.t ADD COLUMNS ("
            "s STRUCT<a: INT, b: ARRAY<DATE>> DEFAULT named_struct('a', 1, 'b', array(NULL)), "
            "m MAP<STRING, DECIMAL(5, 2)> DEFAULT map('x', 1.5))"
        )
        lake.sql("INSERT INTO {db}.t (id) VALUES (2)")
        query = "SELECT id, s.a, s.b, m['x'], size(m) FROM {db}.t WHERE s.a = 1 ORDER BY id"
        expected = (1, [None], Decimal("1.50"), 1)
        assert lake.rows(query) == [(1, *expected), (2, *expected)]
        assert lake.rows("SELECT id FROM {db}.t WHERE s IS NULL OR m IS NULL") == []

    @needs("partial_insert")
    def test_a_vector(self, lake):
        lake.sql(
            "CREATE TABLE {db}.t (id INT, v ARRAY<FLOAT> DEFAULT array(0.5F, 1.5F)) "
            "TBLPROPERTIES ('vector.v.dimension' = '2')"
        )
        lake.sql("INSERT INTO {db}.t (id) VALUES (1)")
        lake.open("t").append([{"id": 2}])
        assert lake.rows("SELECT v FROM {db}.t") == [([0.5, 1.5],), ([0.5, 1.5],)]
        with pytest.raises(AnalysisException, match="'v' holds a value"):
            lake.sql(
                "CREATE TABLE {db}.u (id INT, v ARRAY<FLOAT> DEFAULT array(0.5F)) "
                "TBLPROPERTIES ('vector.v.dimension' = '2')"
            )


#: Defaults that are given in Python, and how Spark shows them.
GIVEN = [
    (pa.int32(), 42, "42"),
    (pa.int8(), -7, "-7"),
    (pa.int64(), -(2**63), "-9223372036854775808"),
    (pa.uint64(), 2**64 - 1, "18446744073709551615"),
    (pa.bool_(), True, "TRUE"),
    (pa.float64(), 1.5, "1.5D"),
    (pa.float64(), -1e300, "-1e+300D"),
    (pa.float64(), float("-inf"), "CAST('-Infinity' AS DOUBLE)"),
    (pa.float32(), 0.1, "0.1F"),
    (pa.float16(), 0.5, "0.5F"),
    (pa.decimal128(5, 2), Decimal("-1.50"), "-1.50"),
    (pa.decimal128(38, 38), Decimal("1e-38"), "0.00000000000000000000000000000000000001"),
    (pa.string(), "x", "'x'"),
    (pa.string(), "", "''"),
    (pa.string(), "it's\\n\n", "concat('it', chr(39), 's', chr(92), 'n\n')"),
    (pa.large_string(), 'ü"`$', "'ü\"`$'"),
    (pa.binary(), b"\x00\xff", "X'00ff'"),
    (pa.date32(), dt.date(2026, 1, 1), "DATE '2026-01-01'"),
    (pa.date32(), dt.date(1, 1, 1), "DATE '0001-01-01'"),
    (
        pa.timestamp("us", "UTC"),
        dt.datetime(2026, 1, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        "TIMESTAMP '2026-01-01 02:03:04.000005Z'",
    ),
    (pa.timestamp("us"), dt.datetime(2026, 1, 1), "TIMESTAMP_NTZ '2026-01-01 00:00:00'"),
    (pa.timestamp("ns"), dt.datetime(2026, 1, 1), "TIMESTAMP_NTZ '2026-01-01 00:00:00'"),
    (
        pa.duration("us"),
        -dt.timedelta(days=1, hours=2, microseconds=3),
        "INTERVAL '-1 02:00:00.000003' DAY TO SECOND",
    ),
    (pa.list_(pa.int64()), [1, None], "array(1L, NULL)"),
    (pa.list_(pa.field("item", pa.int8(), False)), [1], "array(1Y)"),
    (pa.list_(pa.list_(pa.string())), [[], None, ["x"]], "array(array(), NULL, array('x'))"),
    (pa.list_(pa.float32(), 2), [0.1, 0.5], "array(0.1F, 0.5F)"),
    (pa.list_(pa.decimal128(10, 2)), [Decimal("1.50")], "array(1.50BD)"),
    (pa.map_(pa.string(), pa.int16()), [], "map()"),
    (pa.map_(pa.int64(), pa.date32()), [(5, None)], "map(5L, NULL)"),
    (
        pa.struct([pa.field("a'b", pa.int16(), False), ("c", pa.list_(pa.bool_()))]),
        {"a'b": 1, "c": [False]},
        "named_struct(concat('a', chr(39), 'b'), 1S, 'c', array(FALSE))",
    ),
]


@needs("partial_insert")
@pytest.mark.parametrize("escaped", ["false", "true"])
def test_defaults_from_python(lake, spark, escaped):
    """Spark shows them as one would write them, and reads them back as the same values."""
    columns = [(f"c{at}", type) for at, (type, _, _) in enumerate(GIVEN)]
    table = phalanx.create(lake.path / "t", pa.schema([("id", pa.int32())]))
    with table.transaction() as tx:
        for (name, type), (_, value, _) in zip(columns, GIVEN, strict=True):
            tx.add_column(name, type, default=value)
    spark.conf.set("spark.sql.parser.escapedStringLiterals", escaped)
    try:
        table.append([{"id": 1}])
        lake.sql("INSERT INTO {db}.t (id) VALUES (2)")
        shown = lake.sql("SHOW CREATE TABLE {db}.t").first()[0]
    finally:
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")
    for (name, _), (_, _, sql) in zip(columns, GIVEN, strict=True):
        assert f" DEFAULT {sql}" in shown, name
    mine, theirs = lake.open("t").scan().to_arrow().sort_by("id").to_pylist()
    assert theirs == mine | {"id": 2}
    assert lake.rows("SELECT * EXCEPT (id) FROM {db}.t WHERE id = 1") == lake.rows(
        "SELECT * EXCEPT (id) FROM {db}.t WHERE id = 2"
    )


@needs("partial_insert")
def test_a_default_of_a_time_zone(lake, spark, zone):
    """Constants are those of the session that has set them; rows from Python hold these."""
    zone("America/New_York")
    lake.sql("CREATE TABLE {db}.t (id INT, at TIMESTAMP DEFAULT TIMESTAMP '2026-01-01 00:00:00')")
    lake.sql("INSERT INTO {db}.t (id) VALUES (1)")
    lake.open("t").append([{"id": 2}])
    at = dt.datetime(2026, 1, 1, 5, tzinfo=dt.UTC)
    assert lake.open("t").scan().to_arrow()["at"].to_pylist() == [at, at]
