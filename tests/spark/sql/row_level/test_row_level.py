"""DELETE, UPDATE and MERGE of rows that Spark chooses."""

import numpy as np
import pytest
from pyspark.errors import AnalysisException

import phalanx
from phalanx.table.operations.change_rows import ChangeRows
from phalanx.table.scan import predicate_of

ROWS = (
    "SELECT id, CAST(id % 7 AS INT) AS n, "
    "element_at(array('US', 'DE', NULL), CAST(id % 3 AS INT) + 1) AS country, id * 0.5D AS x "
    "FROM range(200)"
)


@pytest.fixture
def table(lake):
    lake.both("t", ROWS, "country, bucket(2, id)")
    return lake


def expect(lake, query):
    """What the table holds must be what a query gives on the copy as it was."""
    spark = lake.spark
    lake.copy("expected", query.replace("{t}", f"copy_{lake.name}_t"))
    found = sorted(map(tuple, spark.table(lake["t"]).collect()), key=repr)
    wanted = sorted(map(tuple, spark.table(f"copy_{lake.name}_expected").collect()), key=repr)
    assert found == wanted
    assert lake.open("t").count() == len(wanted)


class TestDelete:
    @pytest.mark.parametrize(
        "where",
        [
            "n % 3 = 0",
            "id % 7 = 1 AND country = 'US'",
            "upper(country) = 'DE'",
            "x IN (SELECT max(x) FROM {db}.t)",
            "country IS NULL AND length(CAST(id AS STRING)) > 1",
            "true",
            "id < 0",
        ],
    )
    def test_where(self, table, where):
        table.sql(f"DELETE FROM {{db}}.t WHERE {where}")
        copied = where.replace("{db}.t", f"copy_{table.name}_t")
        expect(table, f"SELECT * FROM {{t}} WHERE NOT coalesce({copied}, false)")

    def test_a_whole_partition_opens_no_leaf(self, table):
        before = {row["uri"]: row["version"] for row in table.open("t").partitions().to_pylist()}
        table.sql("DELETE FROM {db}.t WHERE country = 'US'")
        after = {row["uri"]: row["version"] for row in table.open("t").partitions().to_pylist()}
        assert len(after) == len(before) - 2
        assert after.items() <= before.items()
        expect(table, "SELECT * FROM {t} WHERE NOT coalesce(country = 'US', false)")

    @pytest.mark.parametrize("where", ["country = 'US'", "n % 3 = 0"])
    def test_the_session_says_how_it_is_isolated(self, table, where):
        conf = "spark.sql.phalanx.isolation"
        table.spark.conf.set(conf, "none")
        try:
            with pytest.raises(AnalysisException, match=f"the conf {conf} is 'serializable' or"):
                table.sql(f"DELETE FROM {{db}}.t WHERE {where}")
        finally:
            table.spark.conf.unset(conf)

    def test_again_and_again(self, table):
        for n in range(4):
            table.sql(f"DELETE FROM {{db}}.t WHERE n % 7 = {n} AND id % 2 = 0")
        expect(table, "SELECT * FROM {t} WHERE NOT (n < 4 AND id % 2 = 0)")


class TestUpdate:
    def test_in_place(self, table):
        table.sql("UPDATE {db}.t SET x = x + 1000, n = NULL WHERE id % 5 = 2")
        expect(
            table,
            "SELECT id, IF(id % 5 = 2, NULL, n), country, IF(id % 5 = 2, x + 1000, x) FROM {t}",
        )

    def test_rows_move_to_other_partitions(self, table):
        table.sql("UPDATE {db}.t SET country = 'FR' WHERE n = 3")
        expect(table, "SELECT id, n, IF(n = 3, 'FR', country), x FROM {t}")
        leaves = table.rows("SELECT DISTINCT _partition FROM {db}.t WHERE country = 'FR'")
        assert all("FR" in name for (name,) in leaves)

    def test_all_rows(self, table):
        table.sql("UPDATE {db}.t SET country = NULL")
        expect(table, "SELECT id, n, CAST(NULL AS STRING), x FROM {t}")


class TestMerge:
    @pytest.fixture
    def source(self, table):
        table.sql(
            "CREATE TABLE {db}.s AS SELECT id, 100 AS n, 'ZZ' AS country, -1D AS x "
            "FROM range(190, 210)"
        )
        return table

    def test_several_clauses(self, source):
        source.sql("""
            MERGE INTO {db}.t t USING {db}.s s ON t.id = s.id
            WHEN MATCHED AND s.id % 3 = 0 THEN DELETE
            WHEN MATCHED THEN UPDATE SET country = s.country, x = s.x
            WHEN NOT MATCHED AND s.id % 2 = 0 THEN INSERT *
            WHEN NOT MATCHED BY SOURCE AND t.id < 10 THEN DELETE
            WHEN NOT MATCHED BY SOURCE AND t.id < 20 THEN UPDATE SET n = -5
        """)
        expect(
            source,
            """
            SELECT id, CASE WHEN id BETWEEN 10 AND 19 THEN -5 ELSE n END,
                   IF(id >= 190, 'ZZ', country), IF(id >= 190, -1D, x)
            FROM {t} WHERE id >= 10 AND NOT (id >= 190 AND id % 3 = 0)
            UNION ALL SELECT id, 100, 'ZZ', -1D FROM range(200, 210) WHERE id % 2 = 0
            """,
        )

    def test_a_row_that_matches_twice_is_refused(self, source):
        source.sql("INSERT INTO {db}.s SELECT * FROM {db}.s")
        with pytest.raises(Exception, match="MERGE_CARDINALITY_VIOLATION"):
            source.sql(
                "MERGE INTO {db}.t t USING {db}.s s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET x = s.x"
            )
        expect(source, "SELECT * FROM {t}")

    @pytest.mark.parametrize(
        ("where", "partitions"),
        [("country = 'US'", "2/6"), ("id = 190", "2/6"), ("id % 5 = 1", "4/6")],
        ids=["partition", "bucket", "row"],
    )
    def test_what_is_merged_chooses_what_is_read(self, table, where, partitions):
        table.sql("CREATE TABLE {db}.s AS SELECT id, country, -1D AS x FROM {db}.t")
        source = f"(SELECT * FROM {{db}}.s WHERE {where})"
        merge = (
            f"MERGE INTO {{db}}.t t USING {source} s ON t.id = s.id AND t.country = s.country "
            "WHEN MATCHED AND t.n < 5 THEN UPDATE SET x = s.x "
            "WHEN NOT MATCHED THEN INSERT (id, country, x) VALUES (s.id, s.country, s.x)"
        )
        plan = table.sql(f"EXPLAIN {merge}").collect()[0][0]
        assert f"{table['t']} partitions {partitions}," in plan
        table.sql(merge)
        expect(
            table,
            f"SELECT id, n, country, IF({where} AND country IS NOT NULL AND n < 5, -1D, x) "
            f"FROM {{t}} UNION ALL "
            f"SELECT id, NULL, country, -1D FROM {{t}} WHERE country IS NULL AND {where}",
        )
        # A row that is matched twice is noticed.
        table.sql("INSERT INTO {db}.s SELECT * FROM {db}.s")
        with pytest.raises(Exception, match="MERGE_CARDINALITY_VIOLATION"):
            table.sql(merge)

    def test_nothing_matches(self, source):
        version = source.open("t").version
        source.sql(
            "MERGE INTO {db}.t t USING {db}.s s ON t.id = s.id + 1000 WHEN MATCHED THEN DELETE"
        )
        expect(source, "SELECT * FROM {t}")
        assert source.open("t").version == version


class TestGroups:
    """Of a large table, Spark finds out which partitions hold rows that change, and reads those."""

    @pytest.fixture(autouse=True, params=["0", str(2**29)], ids=["large", "small"])
    def bound(self, request, spark):
        conf = "spark.sql.phalanx.changedBytes"
        spark.conf.set(conf, request.param)
        yield int(request.param)
        spark.conf.unset(conf)

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE {db}.t SET x = 0 WHERE upper(country) = 'US' AND length(country) > n",
            "MERGE INTO {db}.t t USING (SELECT explode(array(2, 5)) AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET x = 0",
        ],
        ids=["update", "merge"],
    )
    def test_only_of_large_tables(self, table, bound, change):
        plan = table.sql(f"EXPLAIN {change}").collect()[0][0]
        prunes = "RuntimeFilters: [dynamicpruningexpression" in plan
        # Earlier versions of Spark do so only if they replace whole partitions.
        assert prunes == (bound == 0 and table.spark.version >= "4.3")

    @pytest.mark.parametrize(
        ("type", "values", "partitioning"),
        [
            ("INT", "(1, 1), (2, NULL), (3, 2)", "g"),
            ("INT", "(1, 1), (2, NULL), (3, -2)", "bucket(4, g)"),
            ("STRING", "(1, 'a'), (2, NULL), (3, '')", "truncate(1, g)"),
            ("DATE", "(1, date'1969-12-31'), (2, NULL), (3, date'2024-02-29')", "years(g)"),
            ("DOUBLE", "(1, double('NaN')), (2, NULL), (3, -0.0D)", "g"),
        ],
        ids=["identity", "bucket", "truncate", "years", "double"],
    )
    def test_rows_without_a_value_belong_to_one(self, lake, type, values, partitioning):
        lake.sql(f"CREATE TABLE {{db}}.t (id INT, g {type}, v INT) PARTITIONED BY ({partitioning})")
        lake.sql(f"INSERT INTO {{db}}.t SELECT *, 0 FROM VALUES {values}")
        lake.sql("UPDATE {db}.t SET v = 1 WHERE id > 0")
        assert lake.rows("SELECT id, v FROM {db}.t") == [(1, 1), (2, 1), (3, 1)]
        lake.sql("UPDATE {db}.t SET v = 2 WHERE g IS NULL")
        assert lake.rows("SELECT id, v FROM {db}.t") == [(1, 1), (2, 2), (3, 1)]
        lake.sql(
            "MERGE INTO {db}.t t USING (SELECT explode(array(1, 2, 3, 4)) AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = t.v + 10 "
            "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 0)"
        )
        assert lake.rows("SELECT id, v FROM {db}.t") == [(1, 11), (2, 12), (3, 11), (4, 0)]
        lake.sql(
            "MERGE INTO {db}.t t USING (SELECT 2 AS id) s ON t.id = s.id "
            "WHEN MATCHED AND isnull(t.g) THEN DELETE"
        )
        assert lake.rows("SELECT id FROM {db}.t") == [(1,), (3,), (4,)]


class TestConflicts:
    def change(self, table, isolation):
        """A delete that was prepared by Spark, while somebody else changes the table."""
        handle = table.open("t")
        ids = table.rows("SELECT _leaf, _rowid FROM {db}.t WHERE country = 'US' AND n = 0")
        gone = {}
        for leaf, id in ids:
            gone.setdefault(leaf, []).append(id)
        gone = {leaf: np.array(found) for leaf, found in gone.items()}
        return handle, ChangeRows("delete", handle._snapshot, gone, [], isolation)

    def commit(self, handle, change, isolation):
        scope = predicate_of("country = 'US'", handle._snapshot)
        with handle.transaction(isolation=isolation) as tx:
            tx.change_rows(change, scope)

    def test_rows_added_meanwhile_are_a_conflict(self, table):
        handle, change = self.change(table, "serializable")
        table.sql("INSERT INTO {db}.t VALUES (0, 0, 'US', 0)")
        with pytest.raises(phalanx.ConflictError):
            self.commit(handle, change, "serializable")
        expect(table, "SELECT * FROM {t} UNION ALL SELECT 0, 0, 'US', 0D")

    def test_under_snapshot_isolation_they_are_not(self, table):
        handle, change = self.change(table, "snapshot")
        table.sql("INSERT INTO {db}.t VALUES (0, 0, 'US', 0)")
        self.commit(handle, change, "snapshot")
        expect(
            table,
            "SELECT * FROM {t} WHERE NOT coalesce(country = 'US' AND n = 0, false) "
            "UNION ALL SELECT 0, 0, 'US', 0D",
        )

    @pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
    def test_the_same_rows_changed_meanwhile_are(self, table, isolation):
        handle, change = self.change(table, isolation)
        table.sql("UPDATE {db}.t SET x = 1 WHERE country = 'US'")
        with pytest.raises(phalanx.ConflictError):
            self.commit(handle, change, isolation)
        expect(table, "SELECT id, n, country, IF(country = 'US', 1D, x) FROM {t}")

    def test_other_partitions_do_not_matter(self, table):
        handle, change = self.change(table, "serializable")
        table.sql("INSERT INTO {db}.t VALUES (0, 0, 'DE', 0)")
        self.commit(handle, change, "serializable")
        expect(
            table,
            "SELECT * FROM {t} WHERE NOT coalesce(country = 'US' AND n = 0, false) "
            "UNION ALL SELECT 0, 0, 'DE', 0D",
        )


def test_a_weak_table_is_refused(lake):
    lake.sql("CREATE TABLE {db}.w (id INT) TBLPROPERTIES ('transactions' = 'weak')")
    lake.sql("INSERT INTO {db}.w VALUES (1), (2)")
    with pytest.raises(AnalysisException, match="weak"):
        lake.sql("UPDATE {db}.w SET id = 3 WHERE id + 1 = 2")
