"""INSERT, INSERT OVERWRITE, DELETE and TRUNCATE in SQL."""

import pytest
from pyspark.errors import AnalysisException

from tests.spark.needs import needs

DDL = "CREATE TABLE {db}.t (id INT, country STRING, n INT) PARTITIONED BY (country)"


@pytest.fixture
def table(lake):
    lake.sql(DDL)
    lake.sql("INSERT INTO {db}.t VALUES (1, 'US', 10), (2, 'DE', 20), (3, NULL, 30), (4, 'US', 40)")
    return lake


def rows(lake):
    return lake.rows("SELECT * FROM {db}.t")


START = [(1, "US", 10), (2, "DE", 20), (3, None, 30), (4, "US", 40)]


@pytest.fixture
def dynamic(spark):
    key = "spark.sql.sources.partitionOverwriteMode"
    before = spark.conf.get(key)
    spark.conf.set(key, "dynamic")
    yield
    spark.conf.set(key, before)


class TestInsert:
    def test_by_position(self, table):
        table.sql("INSERT INTO {db}.t SELECT 5, 'FR', 50")
        assert rows(table) == [*START, (5, "FR", 50)]

    def test_by_name(self, table):
        table.sql("INSERT INTO {db}.t BY NAME SELECT 50 AS n, 'FR' AS country, 5 AS id")
        assert rows(table) == [*START, (5, "FR", 50)]

    @needs("partial_insert")
    def test_some_columns(self, table):
        table.sql("INSERT INTO {db}.t (n, id) VALUES (50, 5)")
        assert rows(table) == [*START, (5, None, 50)]

    def test_into_a_partition(self, table):
        table.sql("INSERT INTO {db}.t PARTITION (country = 'FR') VALUES (5, 50)")
        assert rows(table) == [*START, (5, "FR", 50)]

    def test_from_itself(self, table):
        table.sql("INSERT INTO {db}.t SELECT id + 10, country, n FROM {db}.t")
        assert len(rows(table)) == 8
        assert table.open("t").version == 3

    def test_nothing(self, table):
        table.sql("INSERT INTO {db}.t SELECT * FROM {db}.t WHERE false")
        assert rows(table) == START

    def test_too_few_columns(self, table):
        with pytest.raises(
            AnalysisException, match=r"INSERT_COLUMN_ARITY_MISMATCH|NOT_ENOUGH_DATA"
        ):
            table.sql("INSERT INTO {db}.t SELECT 1")
        assert rows(table) == START

    def test_a_value_of_another_type(self, table):
        with pytest.raises(Exception, match=r"CAST_INVALID_INPUT|CANNOT_SAFELY_CAST"):
            table.sql("INSERT INTO {db}.t SELECT 'x', 'US', 1")
        assert rows(table) == START

    def test_values_are_cast(self, table):
        table.sql("INSERT INTO {db}.t SELECT 5L, 'FR', 50BD")
        assert rows(table) == [*START, (5, "FR", 50)]

    def test_a_job_that_fails_changes_nothing(self, table):
        with pytest.raises(Exception, match="no good"):
            table.sql(
                "INSERT INTO {db}.t SELECT id, IF(id = 99, raise_error('no good'), 'US'), 1 "
                "FROM range(100)"
            )
        assert rows(table) == START
        assert table.open("t").version == 2

    def test_one_transaction_for_a_job(self, table):
        table.sql(
            "INSERT INTO {db}.t SELECT /*+ REPARTITION(4) */ id, concat('c', id % 5), 1 "
            "FROM range(50)"
        )
        assert table.open("t").version == 3
        assert len(rows(table)) == 54

    def test_new_rows_of_an_old_partition(self, table):
        table.sql("INSERT INTO {db}.t VALUES (7, 'US', 70), (8, NULL, 80)")
        assert table.rows("SELECT id FROM {db}.t WHERE country = 'US'") == [(1,), (4,), (7,)]
        assert table.rows("SELECT id FROM {db}.t WHERE country IS NULL") == [(3,), (8,)]

    def test_an_empty_string_is_not_null(self, table):
        table.sql("INSERT INTO {db}.t VALUES (7, '', 70)")
        assert table.rows("SELECT id FROM {db}.t WHERE country = ''") == [(7,)]
        assert table.rows("SELECT id FROM {db}.t WHERE country IS NULL") == [(3,)]


class TestOverwrite:
    def test_everything(self, table):
        table.sql("INSERT OVERWRITE {db}.t VALUES (9, 'FR', 90)")
        assert rows(table) == [(9, "FR", 90)]

    def test_everything_with_nothing(self, table):
        table.sql("INSERT OVERWRITE {db}.t SELECT * FROM {db}.t WHERE false")
        assert rows(table) == []

    def test_from_itself(self, table):
        table.sql("INSERT OVERWRITE {db}.t SELECT id, country, n + 1 FROM {db}.t WHERE n > 10")
        assert rows(table) == [(2, "DE", 21), (3, None, 31), (4, "US", 41)]

    def test_one_partition(self, table):
        table.sql("INSERT OVERWRITE {db}.t PARTITION (country = 'US') VALUES (9, 90)")
        assert rows(table) == [(2, "DE", 20), (3, None, 30), (9, "US", 90)]

    def test_one_partition_with_nothing(self, table):
        table.sql(
            "INSERT OVERWRITE {db}.t PARTITION (country = 'US') "
            "SELECT id, n FROM {db}.t WHERE false"
        )
        assert rows(table) == [(2, "DE", 20), (3, None, 30)]

    def test_the_partition_of_null(self, table):
        table.sql("INSERT OVERWRITE {db}.t PARTITION (country = NULL) VALUES (9, 90)")
        assert rows(table) == [(1, "US", 10), (2, "DE", 20), (4, "US", 40), (9, None, 90)]

    def test_replace_where(self, table):
        table.sql("INSERT INTO {db}.t REPLACE WHERE country = 'US' AND n > 20 VALUES (9, 'US', 90)")
        assert rows(table) == [(1, "US", 10), (2, "DE", 20), (3, None, 30), (9, "US", 90)]

    def test_replace_where_with_rows_that_do_not_match(self, table):
        table.sql("INSERT INTO {db}.t REPLACE WHERE country = 'US' VALUES (9, 'DE', 90)")
        kept = [row for row in START if row[1] != "US"]
        assert rows(table) == [*kept, (9, "DE", 90)]

    def test_a_query_that_fails_leaves_the_rows(self, table):
        with pytest.raises(Exception, match="no good"):
            table.sql("INSERT OVERWRITE {db}.t SELECT raise_error('no good'), 'US', 1")
        assert rows(table) == START


@pytest.mark.usefixtures("dynamic")
class TestDynamicOverwrite:
    def test_only_the_partitions_that_are_written_to(self, table):
        table.sql("INSERT OVERWRITE {db}.t VALUES (9, 'US', 90), (8, 'FR', 80)")
        assert rows(table) == [(2, "DE", 20), (3, None, 30), (8, "FR", 80), (9, "US", 90)]

    def test_the_partition_of_null(self, table):
        table.sql("INSERT OVERWRITE {db}.t VALUES (9, NULL, 90)")
        assert rows(table) == [(1, "US", 10), (2, "DE", 20), (4, "US", 40), (9, None, 90)]

    def test_nothing(self, table):
        table.sql("INSERT OVERWRITE {db}.t SELECT * FROM {db}.t WHERE false")
        assert rows(table) == START

    def test_static_and_dynamic_partitions(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT, a STRING, b STRING) PARTITIONED BY (a, b)")
        lake.sql("INSERT INTO {db}.t VALUES (1, 'x', 'p'), (2, 'x', 'q'), (3, 'y', 'p')")
        lake.sql("INSERT OVERWRITE {db}.t PARTITION (a = 'x', b) VALUES (9, 'p')")
        assert rows(lake) == [(2, "x", "q"), (3, "y", "p"), (9, "x", "p")]

    def test_buckets_and_times(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT, ts TIMESTAMP) PARTITIONED BY (days(ts))")
        lake.sql(
            "INSERT INTO {db}.t VALUES (1, timestamp'2024-01-01 05:00'), "
            "(2, timestamp'2024-01-02 05:00')"
        )
        lake.sql("INSERT OVERWRITE {db}.t VALUES (3, timestamp'2024-01-01 23:00')")
        assert lake.rows("SELECT id FROM {db}.t") == [(2,), (3,)]


class TestDelete:
    FILTERS = (
        "country = 'US'",
        "country IS NULL",
        "n > 15",
        "country = 'US' AND n > 15",
        "id IN (1, 2)",
        "country IN ('US', NULL)",
        "NOT country = 'US'",
        "country <=> NULL",
        "true",
        "false",
        "n = 10 OR country = 'DE'",
    )

    @pytest.mark.parametrize("where", FILTERS)
    def test_where(self, table, where):
        kept = table.rows(f"SELECT * FROM {{db}}.t WHERE NOT coalesce({where}, false)")
        table.sql(f"DELETE FROM {{db}}.t WHERE {where}")
        assert rows(table) == kept

    def test_without_where(self, table):
        table.sql("DELETE FROM {db}.t")
        assert rows(table) == []

    def test_what_only_spark_can_decide(self, table):
        table.sql("DELETE FROM {db}.t WHERE country = 'US' AND length(concat('x', n)) = 3")
        assert rows(table) == [(2, "DE", 20), (3, None, 30)]

    def test_the_old_version_is_still_there(self, table):
        table.sql("DELETE FROM {db}.t WHERE country = 'US'")
        assert table.rows("SELECT * FROM {db}.t VERSION AS OF 2") == START

    def test_rows_of_another_writer(self, table):
        table.open("t").append([{"id": 9, "country": "US", "n": 1}])
        table.sql("DELETE FROM {db}.t WHERE country = 'US'")
        assert rows(table) == [(2, "DE", 20), (3, None, 30)]


class TestTruncate:
    def test_all_rows_go(self, table):
        table.sql("TRUNCATE TABLE {db}.t")
        assert rows(table) == []
        assert table.rows("SELECT * FROM {db}.t VERSION AS OF 2") == START
        table.sql("INSERT INTO {db}.t VALUES (1, 'US', 10)")
        assert rows(table) == [(1, "US", 10)]


class TestBatches:
    """Rows go to Python in batches of as many rows, and bytes, as Spark's confs say."""

    @pytest.fixture(params=[("Records", "3"), ("Records", "0"), ("Bytes", "100b")], ids="-".join)
    def small(self, request, spark):
        name, value = request.param
        key = f"spark.sql.execution.arrow.max{name}PerBatch"
        before = spark.conf.get(key)
        spark.conf.set(key, value)
        yield
        spark.conf.set(key, before)

    ROWS = (
        "SELECT CAST(id AS INT) AS id, IF(id % 7 = 0, NULL, concat('c', id % 3)) AS country, "
        "CAST(id AS INT) AS n FROM range(0, 50, 1, 2)"
    )

    def expected(self, changed=0):
        after = (
            (i, None if i % 7 == 0 else f"c{i % 3}", i + (1000 if i < changed else 0))
            for i in range(50)
        )
        return sorted(after, key=repr)

    def test_insert(self, lake, small):
        lake.sql(DDL)
        lake.sql(f"INSERT INTO {{db}}.t {self.ROWS}")
        assert rows(lake) == self.expected()

    def test_merge(self, lake, small):
        lake.sql(DDL)
        lake.sql(f"INSERT INTO {{db}}.t {self.ROWS} WHERE id < 30")
        lake.sql(
            f"MERGE INTO {{db}}.t AS t USING ({self.ROWS}) AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET n = s.n + 1000 WHEN NOT MATCHED THEN INSERT *"
        )
        assert rows(lake) == self.expected(changed=30)


class TestDistribution:
    def test_none(self, lake):
        lake.sql(
            "CREATE TABLE {db}.t (id INT, c STRING) PARTITIONED BY (c) "
            "TBLPROPERTIES ('write.distribution' = 'none')"
        )
        lake.sql("INSERT INTO {db}.t SELECT id, concat('c', id % 3) FROM range(30)")
        assert lake.rows("SELECT c, count(*) FROM {db}.t GROUP BY c") == [
            ("c0", 10),
            ("c1", 10),
            ("c2", 10),
        ]
        assert lake.open("t").partitions().num_rows == 3

    def test_hash_puts_a_partition_into_one_file(self, lake):
        lake.sql("CREATE TABLE {db}.t (id INT, c STRING) PARTITIONED BY (c)")
        lake.sql("INSERT INTO {db}.t SELECT id, concat('c', id % 3) FROM range(0, 30, 1, 5)")
        assert lake.open("t").files().num_rows == 3

    def test_another_word(self, lake):
        with pytest.raises(Exception, match=r"write.distribution is 'hash' or 'none', not 'some'"):
            lake.sql("CREATE TABLE {db}.t (id INT) TBLPROPERTIES ('write.distribution' = 'some')")
        lake.sql("CREATE TABLE {db}.t (id INT)")
        frame = lake.spark.range(1).selectExpr("CAST(id AS INT)")
        with pytest.raises(Exception, match=r"the option write.distribution is 'hash' or 'none'"):
            frame.writeTo(lake["t"]).option("write.distribution", "some").append()

    def test_the_session_takes_precedence_over_the_table(self, lake):
        lake.sql(
            "CREATE TABLE {db}.t (id INT, c STRING) PARTITIONED BY (c) "
            "TBLPROPERTIES ('write.distribution' = 'none')"
        )
        conf = "spark.sql.phalanx.write.distribution"
        lake.spark.conf.set(conf, "hash")
        try:
            lake.sql("INSERT INTO {db}.t SELECT id, concat('c', id % 3) FROM range(0, 30, 1, 5)")
            assert lake.open("t").files().num_rows == 3
            lake.spark.conf.set(conf, "some")
            with pytest.raises(Exception, match=f"the conf {conf} is 'hash' or 'none', not 'some'"):
                lake.sql("INSERT INTO {db}.t VALUES (1, 'c1')")
        finally:
            lake.spark.conf.unset(conf)

    def test_by_an_expression(self, lake):
        lake.sql(
            "CREATE TABLE {db}.t (id INT, ts TIMESTAMP) "
            "PARTITIONED BY (expr('week', \"date_trunc('week', col0)\", ts), bucket(2, id))"
        )
        lake.sql(
            "INSERT INTO {db}.t SELECT id, timestamp'2024-01-01' + make_interval(0, 0, 0, id) "
            "FROM range(21)"
        )
        query = "SELECT id FROM {db}.t WHERE ts < '2024-01-08'"
        assert lake.rows(query) == [(n,) for n in range(7)]


class TestConflicts:
    def test_an_append_between_is_kept(self, table):
        frame = table.spark.range(3).selectExpr("CAST(id AS INT)", "'US' AS country", "1 AS n")
        table.open("t").append([{"id": 99, "country": "US", "n": 1}])
        frame.writeTo(table["t"]).append()
        assert len(rows(table)) == 8

    def test_a_schema_that_changed_under_a_frame(self, lake):
        lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id")
        frame = lake.spark.table(lake["t"])
        lake.sql("REPLACE TABLE {db}.t AS SELECT 'x' AS name")
        try:
            found = [tuple(row) for row in frame.collect()]
        except AnalysisException:
            return
        assert found == [(1,)]
