"""ALTER TABLE: columns and partition fields, in one snapshot each and without touching a row."""

import datetime as dt

import pytest
from pyspark.errors import AnalysisException

from tests.spark.needs import needs

MAKE = (
    "CREATE TABLE {db}.t (id BIGINT NOT NULL, n INT COMMENT 'a number', "
    "s STRUCT<a: INT, b: STRING>, c STRING, f FLOAT, d DECIMAL(5, 2)) PARTITIONED BY (c)"
)
ROWS = (
    "INSERT INTO {db}.t VALUES (1, 10, struct(1, 'x'), 'A', 0.5, 1.25), "
    "(2, NULL, NULL, 'B', NULL, NULL)"
)


@pytest.fixture
def table(lake):
    lake.sql(MAKE)
    lake.sql(ROWS)
    return lake


class TestColumns:
    @needs("partial_insert")
    def test_add(self, table):
        table.sql("ALTER TABLE {db}.t ADD COLUMN x DOUBLE COMMENT 'new' AFTER id")
        assert table.sql("SELECT * FROM {db}.t").columns == ["id", "x", "n", "s", "c", "f", "d"]
        assert table.rows("SELECT id, x FROM {db}.t") == [(1, None), (2, None)]
        table.sql("INSERT INTO {db}.t (id, x, c) VALUES (3, 1.5, 'A')")
        assert table.rows("SELECT id FROM {db}.t WHERE x IS NULL") == [(1,), (2,)]
        assert table.rows("SELECT id FROM {db}.t WHERE x > 1") == [(3,)]
        field = table.sql("SELECT x FROM {db}.t").schema["x"]
        assert field.metadata["comment"] == "new"
        assert table.open("t").version == 4

    @needs("partial_insert")
    def test_several_at_once_are_one_snapshot(self, table):
        table.sql("ALTER TABLE {db}.t ADD COLUMNS (x INT FIRST, y VARCHAR(5), s.c BIGINT)")
        assert table.open("t").version == 3
        assert table.sql("SELECT * FROM {db}.t").columns[0] == "x"
        assert table.sql("SELECT s.c FROM {db}.t").collect() == [(None,), (None,)]
        with pytest.raises(Exception, match="EXCEED_LIMIT_LENGTH"):
            table.sql("INSERT INTO {db}.t (id, y) VALUES (9, 'too long')")

    @needs("partial_insert")
    @pytest.mark.parametrize(
        ("type", "default", "value"),
        [
            ("INT", "7", 7),
            ("STRING", "'it\\'s'", "it's"),
            ("DATE", "date'2024-02-29'", dt.date(2024, 2, 29)),
            ("BOOLEAN", "true", True),
            ("DOUBLE", "-0.5", -0.5),
            ("TIMESTAMP_NTZ", "timestamp_ntz'2024-01-01 12:00:00'", dt.datetime(2024, 1, 1, 12)),
        ],
    )
    def test_with_a_default(self, table, type, default, value):
        table.sql(f"ALTER TABLE {{db}}.t ADD COLUMN x {type} DEFAULT {default}")
        assert table.rows("SELECT x FROM {db}.t") == [(value,), (value,)]
        table.sql("INSERT INTO {db}.t (id, c) VALUES (3, 'A')")
        table.sql("INSERT INTO {db}.t (id, c, x) VALUES (4, 'A', NULL)")
        assert table.sql("SELECT x FROM {db}.t ORDER BY id").collect() == [
            (value,),
            (value,),
            (value,),
            (None,),
        ]

    @needs("partial_insert")
    def test_a_default_of_a_new_table(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT, x INT DEFAULT 5)")
        lake.sql("INSERT INTO {db}.t (id) VALUES (1)")
        lake.open("t").append([{"id": 2}])
        assert lake.rows("SELECT * FROM {db}.t") == [(1, 5), (2, 5)]

    def test_drop(self, table):
        table.sql("ALTER TABLE {db}.t DROP COLUMN n")
        table.sql("ALTER TABLE {db}.t DROP COLUMN IF EXISTS never")
        table.sql("ALTER TABLE {db}.t DROP COLUMN s.a")
        assert table.sql("SELECT * FROM {db}.t").columns == ["id", "s", "c", "f", "d"]
        assert table.rows("SELECT s.b FROM {db}.t") == [("x",), (None,)]
        table.sql("ALTER TABLE {db}.t ADD COLUMN n INT")
        assert table.rows("SELECT n FROM {db}.t") == [(None,), (None,)]
        assert table.rows("SELECT n FROM {db}.t VERSION AS OF 2") == [(10,), (None,)]

    @needs("partial_insert")
    def test_rename_of_what_it_is_partitioned_by(self, table):
        table.sql("ALTER TABLE {db}.t RENAME COLUMN c TO country")
        assert table.rows("SELECT id FROM {db}.t WHERE country = 'A'") == [(1,)]
        plan = table.sql("EXPLAIN SELECT id FROM {db}.t WHERE country = 'A'").collect()[0][0]
        assert "partitions 1/2" in plan
        table.sql("INSERT INTO {db}.t (id, country) VALUES (3, 'A')")
        assert table.rows("SELECT id FROM {db}.t WHERE country = 'A'") == [(1,), (3,)]
        assert table.rows("SELECT count(*) FROM {db}.t.partitions") == [(2,)]

    @needs("partial_insert")
    def test_wider_types(self, table):
        table.sql("ALTER TABLE {db}.t ALTER COLUMN n TYPE BIGINT")
        table.sql("ALTER TABLE {db}.t ALTER COLUMN f TYPE DOUBLE")
        table.sql("ALTER TABLE {db}.t ALTER COLUMN d TYPE DECIMAL(10, 2)")
        table.sql("INSERT INTO {db}.t (id, n, d) VALUES (3, 5000000000, 12345678.25)")
        assert table.rows("SELECT n FROM {db}.t WHERE n >= 10") == [(10,), (5000000000,)]
        assert table.rows("SELECT max(n), sum(f), count(d) FROM {db}.t") == [(5000000000, 0.5, 2)]
        with pytest.raises(AnalysisException):
            table.sql("ALTER TABLE {db}.t ALTER COLUMN n TYPE INT")

    def test_longer_texts(self, lake):
        lake.sql("CREATE TABLE {db}.v (x VARCHAR(3), y CHAR(2), z VARCHAR(3) COMMENT 'c')")
        lake.sql("INSERT INTO {db}.v VALUES ('abc', 'ab', 'abc')")
        lake.sql("ALTER TABLE {db}.v ALTER COLUMN x TYPE VARCHAR(10)")
        lake.sql("ALTER TABLE {db}.v ALTER COLUMN z TYPE STRING")
        lake.sql("ALTER TABLE {db}.v ALTER COLUMN y TYPE VARCHAR(5)")
        lake.sql("INSERT INTO {db}.v VALUES ('abcdefghij', 'abcde', 'much longer than that')")
        shown = [row[:2] for row in lake.sql("DESCRIBE {db}.v").collect()]
        assert shown[:3] == [("x", "varchar(10)"), ("y", "varchar(5)"), ("z", "string")]
        with pytest.raises(Exception, match="EXCEED_LIMIT_LENGTH"):
            lake.sql("INSERT INTO {db}.v VALUES ('abcdefghijk', 'x', 'x')")
        assert lake.sql("SELECT * FROM {db}.v").count() == 2

    def test_replace_all_columns(self, lake):
        lake.sql("CREATE TABLE {db}.v AS SELECT 1 AS id, 'x' AS s")
        lake.sql("ALTER TABLE {db}.v REPLACE COLUMNS (s BIGINT COMMENT 'new', b STRING)")
        assert lake.open("v").version == 2
        assert lake.sql("SELECT * FROM {db}.v").dtypes == [("s", "bigint"), ("b", "string")]
        assert lake.rows("SELECT * FROM {db}.v") == [(None, None)]
        lake.sql("INSERT INTO {db}.v VALUES (7, 'y')")
        assert lake.rows("SELECT * FROM {db}.v WHERE s = 7") == [(7, "y")]
        assert lake.rows("SELECT * FROM {db}.v VERSION AS OF 1") == [(1, "x")]

    def test_nullable_comment_and_place(self, table):
        table.sql("ALTER TABLE {db}.t ALTER COLUMN id DROP NOT NULL")
        table.sql("ALTER TABLE {db}.t ALTER COLUMN n COMMENT 'another'")
        table.sql("ALTER TABLE {db}.t ALTER COLUMN d FIRST")
        found = table.sql("SELECT * FROM {db}.t").schema
        assert found.names[0] == "d"
        assert found["id"].nullable
        assert found["n"].metadata["comment"] == "another"
        with pytest.raises(AnalysisException, match="Cannot change nullable column"):
            table.sql("ALTER TABLE {db}.t ALTER COLUMN n SET NOT NULL")

    def test_impossible_changes(self, table):
        for statement in (
            "ADD COLUMN n INT",
            "DROP COLUMN never",
            "RENAME COLUMN id TO n",
            "ADD COLUMN x INT AFTER never",
        ):
            with pytest.raises(AnalysisException):
                table.sql(f"ALTER TABLE {{db}}.t {statement}")
        assert table.open("t").version == 2


class TestColumnsThatComeWithRows:
    """A write adds the columns that its rows have and the table has not, where it is told to."""

    @needs("insert_schema_evolution")
    def test_insert(self, table):
        table.sql(
            "INSERT WITH SCHEMA EVOLUTION INTO {db}.t BY NAME SELECT 3L AS id, 'C' AS c, 1.5D AS x"
        )
        assert table.rows("SELECT id, x FROM {db}.t") == [(1, None), (2, None), (3, 1.5)]

    @needs("insert_schema_evolution")
    def test_fields_of_structs(self, table):
        table.sql(
            "INSERT WITH SCHEMA EVOLUTION INTO {db}.t BY NAME "
            "SELECT 3L AS id, 'C' AS c, named_struct('a', 1, 'b', 'y', 'z', 2D) AS s"
        )
        assert table.rows("SELECT s.z FROM {db}.t") == [(2.0,), (None,), (None,)]

    @needs("merge_schema_evolution")
    def test_merge(self, table):
        table.sql(
            "MERGE WITH SCHEMA EVOLUTION INTO {db}.t t USING (SELECT 1L AS id, 'A' AS c, 5 AS w) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        assert table.rows("SELECT id, w FROM {db}.t") == [(1, 5), (2, None)]

    @needs("insert_schema_evolution")
    def test_wider_types(self, lake):
        lake.sql("CREATE TABLE {db}.w (id INT, f FLOAT, d DECIMAL(5, 2)) PARTITIONED BY (id)")
        lake.sql("INSERT INTO {db}.w VALUES (1, 0.5, 1.25)")
        lake.sql("INSERT WITH SCHEMA EVOLUTION INTO {db}.w SELECT 3000000000L, 0.1D, 12345.67BD")
        lake.sql("""
            MERGE WITH SCHEMA EVOLUTION INTO {db}.w t USING (SELECT 4000000000L AS id, 'x' AS s) s
            ON t.id = s.id WHEN NOT MATCHED THEN INSERT *
        """)
        assert lake.sql("SELECT * FROM {db}.w").dtypes == [
            ("id", "bigint"),
            ("f", "double"),
            ("d", "decimal(7,2)"),
            ("s", "string"),
        ]
        rows = [(row.id, row.f, row.s) for row in lake.sql("SELECT * FROM {db}.w").collect()]
        assert sorted(rows) == [
            (1, 0.5, None),
            (3000000000, 0.1, None),
            (4000000000, None, "x"),
        ]

    @needs("insert_schema_evolution")
    def test_narrower_and_other_types_are_cast(self, lake):
        lake.sql("CREATE TABLE {db}.w (id BIGINT, s STRING)")
        lake.sql("INSERT WITH SCHEMA EVOLUTION INTO {db}.w SELECT 1, 2")
        assert lake.sql("SELECT * FROM {db}.w").dtypes == [("id", "bigint"), ("s", "string")]
        assert lake.rows("SELECT * FROM {db}.w") == [(1, "2")]

    @needs("insert_schema_evolution")
    def test_beside_varchar_and_char(self, lake):
        lake.sql("CREATE TABLE {db}.w (v VARCHAR(3), c CHAR(2), l ARRAY<VARCHAR(2)>)")
        lake.sql("INSERT WITH SCHEMA EVOLUTION INTO {db}.w SELECT 'abc', 'x', array('a'), 1 AS n")
        lake.sql("INSERT WITH SCHEMA EVOLUTION INTO {db}.w BY NAME SELECT 'b' AS v, 2 AS n, 3 AS m")
        lake.sql("""
            MERGE WITH SCHEMA EVOLUTION INTO {db}.w t USING (SELECT 'abc' AS v, 'y' AS c, 4 AS k) s
            ON t.v = s.v WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
        """)
        assert lake.rows("SELECT * FROM {db}.w") == [
            ("abc", "y ", ["a"], 1, None, 4),
            ("b", None, None, 2, 3, None),
        ]
        described = [(row[0], row[1]) for row in lake.sql("DESCRIBE {db}.w").collect()]
        assert described[:4] == [
            ("v", "varchar(3)"),
            ("c", "char(2)"),
            ("l", "array<varchar(2)>"),
            ("n", "int"),
        ]
        for too_long in ("SELECT 'abcd' AS v, 5 AS z", "SELECT array('abc') AS l, 5 AS z"):
            with pytest.raises(Exception, match="EXCEED_LIMIT_LENGTH"):
                lake.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {{db}}.w BY NAME {too_long}")
        assert lake.rows("SELECT count(*) FROM {db}.w") == [(2,)]

    @needs("insert_schema_evolution")
    def test_the_option_of_a_frame(self, lake, spark):
        lake.sql("CREATE TABLE {db}.w (id INT)")
        rows = spark.sql("SELECT 1L AS id, 'x' AS a")
        rows.writeTo(lake["w"]).option("mergeSchema", "true").append()
        rows.selectExpr("id", "2 AS b").write.option("mergeSchema", True).mode(
            "append"
        ).saveAsTable(lake["w"])
        path = str(lake.path / "w")
        rows.selectExpr("3L AS id", "4 AS c").write.format("phalanx").option(
            "mergeSchema", "true"
        ).mode("append").save(path)
        assert lake.sql("SELECT * FROM {db}.w").columns == ["id", "a", "b", "c"]
        assert lake.rows("SELECT id, a, b, c FROM {db}.w") == [
            (1, "x", None, None),
            (1, None, 2, None),
            (3, None, None, 4),
        ]
        with pytest.raises(AnalysisException, match="d"):
            rows.selectExpr("5L AS id", "6 AS d").writeTo(lake["w"]).append()

    @needs("insert_schema_evolution")
    def test_insert_into_goes_by_position(self, lake, spark):
        """Columns beyond those of the table are added; names of the others mean nothing."""
        lake.sql("CREATE TABLE {db}.w (id INT, p STRING) PARTITIONED BY (p)")
        rows = spark.sql("SELECT 1L AS foo, 'a' AS bar, 5 AS extra")
        rows.write.option("mergeSchema", "true").insertInto(lake["w"])
        rows = spark.sql("SELECT 3000000000 AS extra, 'b' AS id, 6 AS p")
        rows.write.option("mergeSchema", "true").insertInto(lake["w"])
        assert lake.sql("SELECT * FROM {db}.w").dtypes == [
            ("id", "bigint"),
            ("p", "string"),
            ("extra", "int"),
        ]
        assert lake.rows("SELECT * FROM {db}.w") == [(1, "a", 5), (3000000000, "b", 6)]
        rows = spark.sql("SELECT 7 AS x, 'b' AS y, 8 AS z")
        rows.write.option("mergeSchema", "true").mode("overwrite").insertInto(lake["w"])
        assert lake.rows("SELECT * FROM {db}.w") == [(7, "b", 8)]
        rows = spark.sql("SELECT 7 AS x, 'b' AS y, 8 AS z, 9 AS ID")
        with pytest.raises(AnalysisException, match="'ID' already, perhaps in another case"):
            rows.write.option("mergeSchema", "true").insertInto(lake["w"])
        assert lake.rows("SELECT * FROM {db}.w") == [(7, "b", 8)]
        for wrong in ("SELECT 1 AS id", "SELECT 1 AS id, 'a' AS p"):
            with pytest.raises(AnalysisException, match="NOT_ENOUGH_DATA_COLUMNS"):
                spark.sql(wrong).write.option("mergeSchema", "true").insertInto(lake["w"])
        with pytest.raises(AnalysisException, match="TOO_MANY_DATA_COLUMNS"):
            spark.sql("SELECT 1, 'a', 5, 6").write.insertInto(lake["w"])

    @needs("partial_insert")
    def test_not_without_being_told(self, table):
        with pytest.raises(AnalysisException, match="EXTRA_COLUMNS"):
            table.sql("INSERT INTO {db}.t BY NAME SELECT 3L AS id, 'C' AS c, 1.5D AS x")


class TestPartitionFields:
    def fields(self, lake):
        table = lake.open("t")
        return table.spec.spell(table._snapshot.head.schema)

    @needs("partial_insert")
    def test_add_drop_and_replace(self, table):
        table.sql("ALTER TABLE {db}.t ADD PARTITION FIELD bucket(4, id)")
        table.sql("INSERT INTO {db}.t (id, c) VALUES (3, 'A'), (4, 'B')")
        table.sql("alter table {db}.t replace partition field bucket(4, id) with truncate(10, n)")
        table.sql("ALTER TABLE {db}.t DROP PARTITION FIELD c")
        assert self.fields(table) == ["truncate(10, n)"]
        table.sql("INSERT INTO {db}.t (id, c, n) VALUES (5, 'A', 25)")
        assert table.rows("SELECT id FROM {db}.t WHERE c = 'A'") == [(1,), (3,), (5,)]
        assert table.rows("SELECT id FROM {db}.t WHERE n = 25") == [(5,)]
        plan = table.sql("EXPLAIN SELECT id FROM {db}.t WHERE c = 'B'").collect()[0][0]
        assert "partitions 3/5" in plan
        assert table.rows("SELECT count(DISTINCT spec_id) FROM {db}.t.specs") == [(4,)]

    def test_what_is_not_there(self, table):
        with pytest.raises(AnalysisException, match="there is no partition field days"):
            table.sql("ALTER TABLE {db}.t DROP PARTITION FIELD days(id)")
        with pytest.raises(AnalysisException, match="partitioned like that already"):
            table.sql("ALTER TABLE {db}.t REPLACE PARTITION FIELD c WITH c")
        with pytest.raises(AnalysisException, match="say what comes in its place"):
            table.sql("ALTER TABLE {db}.t REPLACE PARTITION FIELD c")
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            table.sql("ALTER TABLE {db}.never ADD PARTITION FIELD c")
        with pytest.raises(AnalysisException, match="unknown column 'never'"):
            table.sql("ALTER TABLE {db}.t ADD PARTITION FIELD never")


class TestProcedures:
    def test_evolve_and_rewrite(self, table):
        call = f"CALL lake.system.evolve_partitioning('{table.name}.t', 'bucket(2, id), c')"
        assert table.rows(call) == [(3, "v2: bucket(2, id), c")]
        before = table.rows("SELECT * FROM {db}.t")
        dry = table.sql(f"CALL lake.system.rewrite('{table.name}.t', dry_run => true)").first()
        assert (dry.rows, dry.left) == (2, 2)
        done = table.sql(f"CALL lake.system.rewrite(table => '{table.name}.t')").first()
        assert (done.rows, done.steps, done.left) == (2, 1, 0)
        assert table.rows("SELECT * FROM {db}.t") == before
        assert table.rows("SELECT DISTINCT spec FROM {db}.t.partitions") == [(2,)]

    @needs("partial_insert")
    def test_optimize(self, table):
        for id in (3, 4, 5):
            table.sql(f"INSERT INTO {{db}}.t (id, c) VALUES ({id}, 'A')")
        before = table.rows("SELECT * FROM {db}.t")
        call = f"CALL lake.system.optimize(table => '{table.name}.t', where => \"c = 'A'\""
        dry = table.sql(f"{call}, dry_run => true)").first()
        assert (dry.partitions, dry.files_before, dry.files_after) == (1, 4, 1)
        done = table.sql(f"{call}, sort_by => 'id DESC')").first()
        assert (done.rewritten, done.files_after) == (1, 1)
        assert table.rows("SELECT * FROM {db}.t") == before
        assert [row.id for row in table.sql("SELECT id FROM {db}.t WHERE c = 'A'").collect()] == [
            5,
            4,
            3,
            1,
        ]

    def test_many_partitions_in_several_tasks(self, lake):
        lake.sql(
            "CREATE TABLE {db}.t PARTITIONED BY (k) AS SELECT id, id % 20 AS k FROM range(400)"
        )
        for n in range(2):
            lake.sql(f"INSERT INTO {{db}}.t SELECT id + {400 * (n + 1)}, id % 20 FROM range(400)")
        lake.sql("DELETE FROM {db}.t WHERE id % 7 = 0")
        before = lake.rows("SELECT * FROM {db}.t")
        done = lake.sql(f"CALL lake.system.optimize('{lake.name}.t')").first()
        assert (done.rewritten, done.files_before, done.files_after) == (20, 60, 20)
        assert lake.rows("SELECT * FROM {db}.t") == before
        lake.sql("ALTER TABLE {db}.t REPLACE PARTITION FIELD k WITH bucket(3, id)")
        call = f"CALL lake.system.rewrite('{lake.name}.t', step_rows => 200"
        assert lake.sql(f"{call}, max_steps => 2)").first().steps == 2
        done = lake.sql(f"{call})").first()
        assert (done.left, done.notes) == (0, "")
        assert lake.rows("SELECT * FROM {db}.t") == before
        assert lake.rows("SELECT count(*) FROM {db}.t.partitions") == [(3,)]
        assert lake.open("t").check().ok

    def test_advise_and_expire(self, table):
        found = [
            row.report for row in table.sql(f"CALL lake.system.advise('{table.name}.t')").collect()
        ]
        # What to do is written as statements there, and the rest as in Python.
        expected = str(table.open("t").advise()).splitlines()
        assert [line for line in found if "CALL lake.system." not in line] == [
            line for line in expected if not line.strip().startswith("table.")
        ]
        table.sql(
            "ALTER TABLE {db}.t SET TBLPROPERTIES ('retention.snapshots' = '1 days', "
            "'retention.min_snapshots' = '1')"
        )
        found = table.sql(f"CALL lake.system.expire_snapshots('{table.name}.t')").first().report
        assert found.startswith("expired 0 snapshots")
