"""Joins and groups by partition: without a shuffle, and with the rows that Parquet gives."""

import pytest

from tests.spark.needs import needs

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
    "truncated strings": (
        "truncate(1, country)",
        "truncate(1, country)",
        "a.country = b.country AND a.id = b.id",
        0,
    ),
    "days with months": ("days(ts)", "months(ts)", "a.ts = b.ts", 0),
    "hours with days": ("hours(ts)", "days(ts)", "a.ts = b.ts", 0),
    "months with years": ("months(ts)", "years(ts)", "a.ts = b.ts", 0),
    "days and a bucket": (
        "days(ts), bucket(4, id)",
        "months(ts), bucket(2, id)",
        "a.ts = b.ts AND a.id = b.id",
        0,
    ),
    "some of the keys": ("country, bucket(4, id)", "country, bucket(4, id)", "a.id = b.id", 0),
    "equal or both NULL": ("country", "country", "a.country <=> b.country AND a.id = b.id", 2),
    "keys that are never equal": ("country", "k", "a.country = b.country AND a.id = b.id", 1),
    "more join keys": ("bucket(4, id)", "bucket(4, id)", "a.id = b.id AND a.k = b.k", 0),
    "more keys on one side": (
        "country, k",
        "country",
        "a.country = b.country AND a.k = b.k AND a.id = b.id",
        0,
    ),
    "keys in another order": (
        "country, bucket(4, id)",
        "bucket(2, id), country",
        "a.country = b.country AND a.id = b.id",
        0,
    ),
    "other keys beside a common one": (
        "country, k",
        "bucket(2, id), country",
        "a.country = b.country AND a.k = b.k AND a.id = b.id",
        0,
    ),
    "one side unpartitioned": ("bucket(4, id)", "", "a.id = b.id", 1),
}
KINDS = ["INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"]
#: The cases that are tried with joins of every kind; the others with two.
EVERY_KIND = ("bucket 24 with 16", "more keys on one side", "one side unpartitioned")

_GROUPS = "(SELECT id FROM {db}.b GROUP BY id HAVING bit_or(k) > 1)"
SAME_GROUPS_TWICE = (
    "SELECT a.id, a.x, b.y FROM {db}.a a JOIN {db}.b b ON a.id = b.id "
    f"WHERE a.id IN {_GROUPS} AND b.id IN {_GROUPS}"
)


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
    return lake.plan(query).count("Exchange ")


@pytest.mark.parametrize(
    "case",
    [
        *(case for case in CASES if case != "some of the keys"),
        pytest.param("some of the keys", marks=needs("join_by_some_keys")),
    ],
)
def test_join(lake, joining, case):
    left, right, condition, wanted = CASES[case]
    lake.both("a", LEFT, left)
    lake.both("b", RIGHT, right)
    for kind in KINDS if case in EVERY_KIND else ("INNER", "FULL"):
        columns = "a.*" if kind in ("LEFT SEMI", "LEFT ANTI") else "a.*, b.*"
        query = f"SELECT {columns} FROM {{db}}.a a {kind} JOIN {{db}}.b b ON {condition}"
        lake.same(query)
        assert shuffles(lake, query) == wanted, kind


def tasks(lake, query):
    """How many tasks read each table."""
    leaves = lake.sql(query)._jdf.queryExecution().executedPlan().collectLeaves()
    return [leaves.apply(at).inputPartitions().size() for at in range(leaves.size())]


class TestAsFewTasksAsTheJoinNeeds:
    """Leaves share a task if the join cannot tell their keys apart."""

    @pytest.mark.parametrize(
        ("left", "right", "condition", "wanted"),
        [
            ("days(ts)", "months(ts)", "a.ts = b.ts", [2, 2]),
            ("days(ts), bucket(4, id)", "months(ts)", "a.ts = b.ts", [2, 2]),
            ("months(ts), bucket(8, id)", "bucket(4, id)", "a.id = b.id", [2, 2]),
            ("bucket(24, id)", "bucket(16, id)", "a.id = b.id", [2, 2]),
            ("country, bucket(2, id)", "bucket(2, id), k", "a.id = b.id", [2, 2]),
        ],
    )
    def test_a_join(self, lake, joining, left, right, condition, wanted):
        lake.both("a", LEFT, left)
        lake.both("b", RIGHT, right)
        for kind in ("INNER", "FULL", "LEFT ANTI"):
            columns = "a.*" if kind == "LEFT ANTI" else "a.*, b.*"
            query = f"SELECT {columns} FROM {{db}}.a a {kind} JOIN {{db}}.b b ON {condition}"
            lake.same(query)
            assert shuffles(lake, query) == 0
            assert tasks(lake, query) == wanted

    def test_days_become_months_if_there_are_too_many(self, lake, spark, joining):
        lake.both("a", LEFT, "days(ts), bucket(2, id)")
        lake.both("b", RIGHT, "days(ts), bucket(2, id)")
        query = "SELECT a.*, b.y FROM {db}.a a LEFT JOIN {db}.b b ON a.ts = b.ts AND a.id = b.id"
        assert tasks(lake, query) == [60, 45]
        spark.conf.set("spark.sql.phalanx.keyedLeaves", "5")
        lake.same(query)
        assert shuffles(lake, query) == 0
        assert tasks(lake, query) == [2, 2]

    @pytest.mark.parametrize(
        ("left", "right", "condition"),
        [
            ("days(ts), bucket(3, id)", "days(ts)", "a.ts = b.ts"),
            ("country, k, bucket(6, id)", "bucket(4, id), k, country", "a.k = b.k"),
        ],
    )
    def test_too_many_although_some_are_not_used(
        self, lake, spark, joining, left, right, condition
    ):
        lake.both("a", LEFT, left)
        lake.both("b", RIGHT, right)
        spark.conf.set("spark.sql.phalanx.keyedLeaves", "1")
        lake.same(f"SELECT a.*, b.y FROM {{db}}.a a FULL JOIN {{db}}.b b ON {condition}")

    def test_after_the_partitioning_has_changed(self, lake, joining):
        lake.both("a", LEFT, "days(ts), bucket(8, id)")
        lake.both("b", RIGHT, "months(ts), bucket(4, id)")
        lake.sql("ALTER TABLE {db}.a ADD PARTITION FIELD country")
        lake.sql("INSERT INTO {db}.a " + LEFT.replace("range(300)", "range(300, 400)"))
        lake.copy("a", LEFT.replace("range(300)", "range(400)"))
        query = "SELECT a.*, b.y FROM {db}.a a FULL JOIN {db}.b b ON a.ts = b.ts AND a.id = b.id"
        lake.same(query)
        assert shuffles(lake, query) == 0
        assert tasks(lake, query) == [2, 2]

    def test_buckets_with_few_rows(self, lake, joining):
        """They share tasks, at least one for each core, unless a table of the query is large."""
        lake.both("a", LEFT, "bucket(6, id)")
        lake.both("b", RIGHT, "bucket(9, id)")
        lake.both("c", RIGHT, "country, bucket(4, id)")
        lake.both("plain", RIGHT)
        join = "SELECT a.*, b.y FROM {db}.a a FULL JOIN {db}.%s b ON a.id = b.id"
        for right, wanted in (("b", [3, 3]), ("c", [2, 2]), ("plain", [2, 1])):
            lake.same(join % right)
            assert tasks(lake, join % right) == wanted
        groups = "SELECT id, count(*), max(y) FROM {db}.c GROUP BY id, country"
        lake.same(groups)
        assert (shuffles(lake, groups), tasks(lake, groups)) == (0, [3])
        large = "(SELECT id, id AS z FROM range(20000000))"
        frame = lake.sql(f"SELECT a.*, z FROM {{db}}.a a LEFT JOIN {large} b ON a.id = b.id")
        assert frame.rdd.getNumPartitions() == 6

    def test_a_chain_of_joins(self, lake, joining):
        """All of them agree, also where only the last one asks for coarser keys."""
        lake.both("a", LEFT, "days(ts)")
        lake.both("b", RIGHT, "days(ts)")
        lake.both("c", LEFT, "years(ts)")
        query = (
            "SELECT a.*, b.y FROM {db}.a a JOIN {db}.b b ON a.ts = b.ts "
            "LEFT SEMI JOIN {db}.c c ON a.ts = c.ts AND a.id = c.id"
        )
        lake.same(query)
        assert shuffles(lake, query) == 0
        assert tasks(lake, query) == [1, 1, 1]

    def test_groups_of_many_keys_with_few_rows(self, lake, spark, joining):
        lake.both("a", LEFT, "k")
        query = "SELECT k, sum(x), count(DISTINCT id) FROM {db}.a GROUP BY k"
        assert (shuffles(lake, query), tasks(lake, query)) == (0, [5])
        spark.conf.set("spark.sql.phalanx.keyedLeaves", "4")
        lake.same(query)
        assert tasks(lake, query) == [1]
        assert shuffles(lake, query) > 0


def test_the_smaller_side_of_a_join_by_keys_is_looked_up(lake, spark, joining):
    """Neither side is sorted, unless the rows of a key would take too much memory."""
    lake.both("a", LEFT, "bucket(4, id)")
    lake.both("b", RIGHT, "bucket(8, id)")
    for kind in ("INNER", "LEFT", "RIGHT", "LEFT SEMI", "LEFT ANTI"):
        columns = "a.*" if kind in ("LEFT SEMI", "LEFT ANTI") else "a.*, b.*"
        query = f"SELECT {columns} FROM {{db}}.a a {kind} JOIN {{db}}.b b ON a.id = b.id AND x > y"
        lake.same(query)
        plan = lake.plan(query)
        assert "ShuffledHashJoin" in plan
        assert "Sort " not in plan
    by_another_column = "SELECT a.*, b.y FROM {db}.a a JOIN {db}.b b ON a.k = b.k"
    assert "SortMergeJoin" in lake.plan(by_another_column)
    spark.conf.set("spark.sql.sources.v2.bucketing.enabled", "false")
    assert "SortMergeJoin" in lake.plan(query)  # each part is then as large as Spark makes it
    spark.conf.set("spark.sql.sources.v2.bucketing.enabled", "true")
    hinted = "SELECT /*+ MERGE(b) */ * FROM {db}.a a JOIN {db}.b b ON a.id = b.id"
    assert "SortMergeJoin" in lake.plan(hinted)
    for name in ("c", "d"):
        lake.both(name, "SELECT id, 'x' AS x, 'y' AS y FROM range(300000)", "bucket(1, id)")
    large = "SELECT c.*, d.x AS x2, d.y AS y2 FROM {db}.c c JOIN {db}.d d ON c.id = d.id"
    assert "SortMergeJoin" in lake.plan(large)
    skewed = "SELECT id, IF(id < 299900, 0, CAST(id % 99 AS INT)) AS k, 'x' AS x, 'y' AS y "
    for name in ("e", "f"):
        lake.both(name, skewed + "FROM range(300000)", "k")
    skewed = large.replace(".c c", ".e c").replace(".d d", ".f d") + " AND c.k = d.k"
    assert "SortMergeJoin" in lake.plan(skewed)
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "10MB")
    assert "BroadcastHashJoin" in lake.plan(query)


def test_large_sides_are_sorted_by_numbers_of_few_bytes(lake, joining):
    """They are looked up if the numbers are wide, or if one side has far fewer rows, or few."""
    narrow = "SELECT id, 'x' AS x, 'y' AS y FROM range({rows})"
    wide = "SELECT id * 100000000000 AS id, 'x' AS x, 'y' AS y FROM range(210000)"
    lake.both("a", narrow.format(rows=210000), "bucket(2, id)")
    lake.both("b", narrow.format(rows=250000), "bucket(2, id)")
    lake.both("c", narrow.format(rows=500000), "bucket(2, id)")
    lake.both("d", wide, "bucket(2, id)")
    lake.both("e", narrow.format(rows=150000), "bucket(2, id)")
    joined = "SELECT {{columns}} FROM {{db}}.{one} a {kind} JOIN {{db}}.{other} b ON a.id = b.id"

    def plan(one, other, kind="INNER"):
        query = joined.format(one=one, other=other, kind=kind)
        lake.same(query.replace("{columns}", "count(*), sum(a.id)"))
        return lake.plan(query.replace("{columns}", "a.id, a.x"))

    for kind in ("INNER", "LEFT", "RIGHT", "LEFT SEMI", "LEFT ANTI"):
        assert "SortMergeJoin" in plan("a", "b", kind)
    for one, other in (("a", "c"), ("a", "d"), ("d", "a"), ("e", "e")):
        assert "ShuffledHashJoin" in plan(one, other)


class TestPlannedAgainWhileItRuns:
    """Spark plans a query again when a part of it has run, and knows what was decided before."""

    @pytest.fixture(autouse=True)
    def adaptive(self, lake, spark, joining):
        spark.conf.set("spark.sql.adaptive.enabled", "true")
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "1000")
        lake.both("a", LEFT, "bucket(4, id)")
        lake.both("b", RIGHT, "bucket(8, id)")
        lake.both("few", "SELECT CAST(id AS INT) AS k, id AS z FROM range(4)")

    def final_plan(self, lake, query):
        """The plan that has run, without the one that it began with."""
        frame = lake.sql(query)
        frame.collect()
        plan = frame._jdf.queryExecution().executedPlan().toString()
        return plan.partition("== Initial Plan ==")[0]

    @pytest.mark.parametrize("kind", ["INNER", "LEFT", "LEFT SEMI", "LEFT ANTI"])
    def test_a_join_behind_a_broadcast(self, lake, kind):
        query = (
            "SELECT a.* FROM {db}.a a JOIN {db}.few f ON a.k = f.k "
            f"{kind} JOIN {{db}}.b b ON a.id = b.id"
        )
        lake.same(query)
        plan = self.final_plan(lake, query)
        assert "ShuffledHashJoin" in plan
        assert "Exchange hashpartitioning" not in plan
        # One broadcast and the result: no part is planned a second time.
        assert "ResultQueryStage 1" in plan
        assert "ReusedExchange" not in plan

    @pytest.mark.parametrize("kind", ["INNER", "LEFT SEMI"])
    def test_a_join_with_groups(self, lake, kind):
        query = (
            f"SELECT a.x FROM {{db}}.a a {kind} JOIN (SELECT id, bit_or(k) AS y FROM {{db}}.b "
            "GROUP BY id HAVING bit_or(k) > 1) b ON a.id = b.id JOIN {db}.few f ON a.k = f.k"
        )
        lake.same(query)
        plan = self.final_plan(lake, query)
        assert "ShuffledHashJoin" in plan
        assert "Exchange hashpartitioning" not in plan

    def test_groups_that_a_query_has_twice(self, lake):
        """Their rows are read and grouped once, and what is left of them is shuffled."""
        lake.same(SAME_GROUPS_TWICE)
        plan = self.final_plan(lake, SAME_GROUPS_TWICE)
        assert plan.count("HashAggregate(") == 1
        assert "ReusedExchange" in plan
        assert "shuffled for the join" not in plan
        assert "Exchange hashpartitioning" not in plan

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("spark.sql.sources.v2.bucketing.shuffle.enabled", "false"),
            ("spark.sql.sources.v2.bucketing.partiallyClusteredDistribution.enabled", "true"),
            ("spark.sql.autoBroadcastJoinThreshold", "10MB"),
        ],
    )
    def test_groups_that_spark_would_not_shuffle_to_the_keys(self, lake, spark, name, value):
        """Then neither they nor the tables are shuffled."""
        before = spark.conf.get(name)
        spark.conf.set(name, value)
        try:
            lake.same(SAME_GROUPS_TWICE)
            assert "Exchange hashpartitioning" not in self.final_plan(lake, SAME_GROUPS_TWICE)
        finally:
            spark.conf.set(name, before)

    def test_subqueries(self, lake):
        query = (
            "SELECT a.id, a.x FROM {db}.a a WHERE a.x > (SELECT avg(b.y) FROM {db}.b b "
            "JOIN {db}.few f ON b.k = f.k) AND a.id IN (SELECT id FROM {db}.b WHERE y > 20)"
        )
        lake.same(query)
        assert "Exchange hashpartitioning" not in self.final_plan(lake, query)


def test_three_tables(lake, joining):
    lake.both("a", LEFT, "bucket(8, id)")
    lake.both("b", RIGHT, "bucket(4, id)")
    lake.both("c", LEFT.replace("range(300)", "range(50, 400)"), "bucket(2, id)")
    for kind in ("INNER", "LEFT", "FULL"):
        query = (
            f"SELECT a.*, b.y, c.x FROM {{db}}.a a {kind} JOIN {{db}}.b b ON a.id = b.id "
            f"{kind} JOIN {{db}}.c c ON a.id = c.id"
        )
        lake.same(query)
        if kind != "FULL":  # after a full join, a's ids are not where they were
            assert shuffles(lake, query) == 0, kind


def test_a_skewed_key(lake, joining):
    """One partition has nearly all rows, in several files; the other side has one row for it."""
    skewed = "SELECT id, CAST(if(id % 10 < 8, 1, id % 7) AS INT) AS k FROM range({rows})"
    lake.both("a", skewed.replace("{rows}", "900"), "k")
    lake.sql("INSERT INTO {db}.a " + skewed.replace("{rows}", "900, 1500"))
    lake.copy("a", skewed.replace("{rows}", "1500"))
    lake.both("b", "SELECT CAST(id AS INT) AS k, id * 2 AS y FROM range(9)", "k")
    for kind in KINDS:
        columns = "a.*" if kind in ("LEFT SEMI", "LEFT ANTI") else "a.*, b.*"
        query = f"SELECT {columns} FROM {{db}}.a a {kind} JOIN {{db}}.b b ON a.k = b.k"
        lake.same(query)
        assert shuffles(lake, query) == 0, kind


def test_one_side_without_keys_and_fewer_partitions(lake, joining):
    """SPARK-59050: the side that is shuffled must be cut as the other one is, gaps included."""
    rows = "SELECT id % 40 AS id, id AS x FROM range(400) WHERE id % 4 <> 1"
    lake.both("a", rows, "bucket(16, id)")
    lake.both("b", "SELECT id % 20 AS id, id AS y FROM range(60)", "")
    for kind in KINDS:
        columns = "a.*" if kind in ("LEFT SEMI", "LEFT ANTI") else "a.*, b.*"
        lake.same(f"SELECT {columns} FROM {{db}}.a a {kind} JOIN {{db}}.b b ON a.id = b.id")
        lake.same(
            f"SELECT {columns.replace('b.*', 'b.y')} FROM {{db}}.a a {kind} JOIN {{db}}.b b "
            "ON a.id = b.id WHERE a.id < 9"
        )


def test_the_smaller_side_has_no_use_for_its_keys(lake, spark, joining):
    """To shuffle the larger side for them saves little, and Spark could no longer broadcast it."""
    lake.both("a", "SELECT id, id AS x FROM range(40)", "bucket(4, id)")
    lake.both("b", "SELECT id % 40 AS id, id AS y FROM range(4000)", "")
    query = "SELECT a.*, b.y FROM {db}.a a JOIN {db}.b b ON a.id = b.id"
    assert shuffles(lake, query) == 1
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "100")
    lake.same(query)
    assert shuffles(lake, query) == 2
    assert "given up so that Spark may broadcast it" in lake.plan(query)
    # Spark never broadcasts the left side of these.
    for kind in ("LEFT", "FULL", "LEFT ANTI"):
        other = f"SELECT a.* FROM {{db}}.a a {kind} JOIN {{db}}.b b ON a.id = b.id"
        lake.same(other)
        assert shuffles(lake, other) == 1
    # It is so much larger than the threshold that no filter will make it small enough.
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "5")
    assert shuffles(lake, query) == 1


def test_tables_with_several_specs(lake, joining):
    """What their specs have in common is what they are joined by."""
    lake.both("a", LEFT, "bucket(4, id)")
    lake.both("b", RIGHT, "bucket(4, id)")
    lake.sql("ALTER TABLE {db}.a ADD PARTITION FIELD country")
    more = LEFT.replace("range(300)", "range(300, 400)")
    lake.sql("INSERT INTO {db}.a " + more)
    lake.copy("a", LEFT.replace("range(300)", "range(400)"))
    query = "SELECT a.*, b.y FROM {db}.a a FULL JOIN {db}.b b ON a.id = b.id"
    lake.same(query)
    assert shuffles(lake, query) == 0
    lake.sql("ALTER TABLE {db}.a DROP PARTITION FIELD bucket(4, id)")
    lake.sql("INSERT INTO {db}.a " + more.replace("range(300, 400)", "range(400, 450)"))
    lake.copy("a", LEFT.replace("range(300)", "range(450)"))
    lake.same(query)
    assert "specs that have no field in common" in lake.plan(query)


class TestWhyThereIsAShuffle:
    def test_keys_that_do_not_go_together(self, lake, joining):
        lake.both("a", LEFT, "bucket(5, id)")
        lake.both("b", RIGHT, "bucket(7, id)")
        plan = lake.plan("SELECT * FROM {db}.a a JOIN {db}.b b ON a.id = b.id")
        reason = f"its keys, bucket(5, id), do not go with those of {lake['b']}, bucket(7, id)"
        assert plan.count(f"shuffled for the join: {reason}") == 1

    def test_a_transform_that_spark_does_not_join_by(self, lake, joining):
        lake.both("a", LEFT, "multi_bucket(4, id, k)")
        lake.both("b", RIGHT, "multi_bucket(4, id, k)")
        query = "SELECT a.x, b.y FROM {db}.a a JOIN {db}.b b ON a.id = b.id AND a.k = b.k"
        lake.same(query)
        assert lake.plan(query).count("Spark does not join by multi_bucket") == 2

    def test_a_join_by_what_columns_are_made_into(self, lake, joining):
        lake.both("a", LEFT, "country")
        lake.both("b", RIGHT, "country")
        plan = lake.plan("SELECT * FROM {db}.a a JOIN {db}.b b ON a.country <=> b.country")
        assert "shuffled for the join: it is by coalesce(a.country, ''), not by a column" in plan

    def test_too_many_partitions(self, lake, joining, spark):
        spark.conf.set("spark.sql.phalanx.keyedLeaves", "2")
        lake.both("a", LEFT, "truncate(100, id)")
        lake.both("b", LEFT, "truncate(100, id)")
        plan = lake.plan("SELECT * FROM {db}.a a JOIN {db}.b b ON a.id = b.id")
        reason = "3 keys with few rows each are more than spark.sql.phalanx.keyedLeaves = 2"
        assert plan.count(f"shuffled for the join: {reason}") == 2

    def test_turned_off(self, lake, joining, spark):
        lake.both("a", LEFT, "bucket(4, id)")
        lake.both("b", RIGHT, "bucket(4, id)")
        query = "SELECT * FROM {db}.a a JOIN {db}.b b ON a.id = b.id"
        spark.conf.set("spark.sql.sources.v2.bucketing.enabled", "false")
        try:
            plan = lake.plan(query)
        finally:
            spark.conf.set("spark.sql.sources.v2.bucketing.enabled", "true")
        assert plan.count("spark.sql.sources.v2.bucketing.enabled is off") == 2
        assert "shuffled for the join" not in lake.plan(query)

    def test_also_where_a_query_is_planned_as_it_runs(self, lake, joining, spark):
        spark.conf.set("spark.sql.adaptive.enabled", "true")
        lake.both("a", LEFT, "bucket(5, id)")
        lake.both("b", RIGHT, "bucket(7, id)")
        plan = lake.plan("SELECT * FROM {db}.a a JOIN {db}.b b ON a.id = b.id")
        assert "shuffled for the join: its keys, bucket(5, id)" in plan

    def test_a_join_by_other_columns_needs_no_reason(self, lake, joining):
        lake.both("a", LEFT, "bucket(5, id)")
        lake.both("b", RIGHT, "bucket(7, id)")
        plan = lake.plan("SELECT * FROM {db}.a a JOIN {db}.b b ON a.k = b.k")
        assert "shuffled for" not in plan


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
