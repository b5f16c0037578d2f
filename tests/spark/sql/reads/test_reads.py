"""Projections, nested fields, LIMIT, metadata columns, counts and joins."""

import pytest

ROWS = """
SELECT id, concat('c', id % 4) AS country,
  named_struct('a', id, 'b', named_struct('c', concat('x', id), 'd', id * 2)) AS s,
  array(named_struct('p', id, 'q', 'z')) AS list, map('k', id) AS m,
  IF(id % 5 = 0, NULL, id * 1.5D) AS x
FROM range(40)
"""


@pytest.fixture(scope="module")
def filled(shared_lake):
    shared_lake.both("t", ROWS, "country, bucket(2, id)")
    shared_lake.both(
        "u", "SELECT id AS k, concat('c', id % 3) AS country FROM range(20)", "country"
    )
    return shared_lake


QUERIES = [
    "SELECT * FROM {db}.t",
    "SELECT count(*) FROM {db}.t",
    "SELECT 1 FROM {db}.t",
    "SELECT count(*) FROM {db}.t WHERE country = 'c1'",
    "SELECT country FROM {db}.t",
    "SELECT s.a FROM {db}.t",
    "SELECT s.b.d, s.b FROM {db}.t WHERE s.b.c = 'x7'",
    "SELECT list.p, m['k'], list[0].q FROM {db}.t",
    "SELECT country, count(*), sum(x), min(id), max(s.a) FROM {db}.t GROUP BY country",
    "SELECT DISTINCT country FROM {db}.t WHERE id > 37",
    "SELECT t.id, u.k FROM {db}.t t JOIN {db}.u u ON t.country = u.country AND t.id = u.k",
    "SELECT t.id, u.k FROM {db}.t t LEFT JOIN {db}.u u ON t.country = u.country",
    "SELECT t.country, count(u.k) FROM {db}.t t FULL JOIN {db}.u u ON t.country = u.country "
    "GROUP BY t.country",
    "SELECT id FROM {db}.t WHERE country IN (SELECT country FROM {db}.u WHERE k = 2)",
    "SELECT id FROM {db}.t WHERE country NOT IN (SELECT country FROM {db}.u WHERE k = 2)",
    "SELECT id FROM {db}.t t WHERE EXISTS (SELECT 1 FROM {db}.u u WHERE u.k = t.id)",
    "SELECT id, row_number() OVER (PARTITION BY country ORDER BY id) FROM {db}.t",
    "SELECT a.id, b.id FROM {db}.t a JOIN {db}.t b ON a.country = b.country AND a.id < b.id",
    "SELECT id FROM {db}.t UNION SELECT k FROM {db}.u",
    "SELECT id FROM {db}.t WHERE x > (SELECT avg(x) FROM {db}.t)",
    "SELECT ID, Country FROM {db}.t WHERE COUNTRY = 'c1'",
    "SELECT id FROM {db}.t ORDER BY id DESC LIMIT 3",
    "SELECT id FROM {db}.t ORDER BY id LIMIT 3 OFFSET 2",
]


@pytest.mark.parametrize("query", QUERIES)
def test_same(filled, query):
    filled.same(query)


class TestPruningOfColumns:
    def columns(self, lake, query):
        plan = lake.sql(f"EXPLAIN {query}").collect()[0][0]
        return plan.split("columns [")[1].split("]")[0]

    def test_only_what_is_asked_for(self, filled):
        assert self.columns(filled, "SELECT id FROM {db}.t") == "id"
        # Lance filters by x, and hands only ids over.
        assert self.columns(filled, "SELECT sum(id) FROM {db}.t WHERE x > 1") == "id"

    def test_fields_of_structs(self, filled):
        found = filled.sql("SELECT s.b.d FROM {db}.t")
        scan = found._jdf.queryExecution().executedPlan().collectLeaves().apply(0).scan()
        assert scan.readSchema().simpleString() == "struct<s:struct<b:struct<d:bigint>>>"


class TestLimit:
    @pytest.mark.parametrize("limit", [0, 1, 5, 39, 100])
    def test_without_order(self, filled, limit):
        rows = filled.sql(f"SELECT id FROM {{db}}.t LIMIT {limit}").collect()
        assert len({row.id for row in rows}) == len(rows) == min(limit, 40)

    def test_after_a_filter(self, filled):
        rows = filled.sql("SELECT id FROM {db}.t WHERE x > 50 LIMIT 2").collect()
        assert len(rows) == 2
        assert all(row.id * 1.5 > 50 for row in rows)
        assert len(filled.sql("SELECT id FROM {db}.t WHERE country = 'c1' LIMIT 3").collect()) == 3
        query = "SELECT id FROM {db}.t WHERE upper(country) = 'C1' LIMIT 30"
        assert len(filled.sql(query).collect()) == 10

    def test_few_partitions_are_read(self, filled):
        plan = filled.sql("EXPLAIN SELECT id FROM {db}.t LIMIT 1").collect()[0][0]
        assert "partitions 1/8" in plan


class TestMetadataColumns:
    def test_partition(self, filled):
        rows = filled.rows("SELECT DISTINCT _partition FROM {db}.t WHERE country = 'c1'")
        assert len(rows) == 2
        assert all("c1" in name for (name,) in rows)

    def test_row_ids_are_unique_in_a_leaf(self, filled):
        query = "SELECT count(*), count(DISTINCT _leaf, _rowid), count(DISTINCT _leaf) FROM {db}.t"
        assert filled.rows(query) == [(40, 40, 8)]

    def test_they_are_hidden(self, filled):
        assert filled.sql("SELECT * FROM {db}.t").columns == [
            "id",
            "country",
            "s",
            "list",
            "m",
            "x",
        ]

    def test_only_they(self, filled):
        assert len(filled.rows("SELECT _leaf FROM {db}.t WHERE id = 3")) == 1
        assert len(filled.rows("SELECT _rowid FROM {db}.t")) == 40

    def test_a_column_of_that_name(self, lake):
        lake.sql("CREATE TABLE {db}.t AS SELECT 1 AS id, 'mine' AS _partition")
        assert lake.rows("SELECT _partition FROM {db}.t") == [("mine",)]


class TestDataFrames:
    def test_by_path(self, filled):
        path = str(filled.path / "t")
        found = filled.spark.read.format("phalanx").load(path)
        assert found.where("country = 'c1'").count() == 10
        assert filled.spark.read.format("phalanx").load(f"file:{path}").count() == 40

    def test_by_path_in_sql(self, filled):
        query = f"SELECT count(*) FROM phalanx.`{filled.path}/t`"
        assert filled.rows(query) == [(40,)]

    def test_a_path_without_a_table(self, filled, tmp_path):
        with pytest.raises(Exception, match=r"TABLE_OR_VIEW_NOT_FOUND|PATH_NOT_FOUND"):
            filled.spark.read.format("phalanx").load(str(tmp_path / "none")).collect()

    def test_without_a_path(self, filled):
        with pytest.raises(Exception, match="a path is needed"):
            filled.spark.read.format("phalanx").load()

    def test_table(self, filled):
        assert filled.spark.table(filled["t"]).select("s.b.c").count() == 40
