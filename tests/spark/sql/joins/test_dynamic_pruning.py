"""Partitions that a join leaves over, known only when its other side has been read."""

import pytest

FACTS = (
    "SELECT id, CAST(id % 40 AS INT) AS k, concat('c', id % 10) AS country, "
    "TIMESTAMP '2024-01-01' + make_dt_interval(CAST(id % 40 AS INT)) AS ts, id * 0.5D AS x "
    "FROM range(400)"
)
DIMENSION = (
    "SELECT id, CAST(id AS INT) AS k, concat('c', id) AS country, "
    "TIMESTAMP '2024-01-01' + make_dt_interval(CAST(id AS INT)) AS ts, id % 20 AS kind "
    "FROM range(40)"
)
#: How the facts are partitioned, the column of the join, and which partitions are left of how many.
CASES = {
    "identity": ("k", "k", "2/40"),
    "a string": ("country", "country", "1/10"),
    "a bucket": ("bucket(16, id)", "id", "2/16"),
    "days": ("days(ts)", "ts", "2/40"),
    "several fields": ("country, bucket(4, id)", "id", "10/40"),
}


@pytest.fixture
def planned_at_once(spark):
    """The plan stays as it was made, so that it can be looked at."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    yield
    spark.conf.set("spark.sql.adaptive.enabled", "true")


def after(lake, query):
    """The plan of a query that has run: scans tell what they read."""
    frame = lake.sql(query)
    frame.collect()
    return frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("case", CASES)
def test_a_filter_on_the_other_side(lake, planned_at_once, case):
    partitioned_by, column, left = CASES[case]
    lake.both("facts", FACTS, partitioned_by)
    lake.both("dims", DIMENSION)
    query = (
        f"SELECT f.*, d.kind FROM {{db}}.facts f JOIN {{db}}.dims d ON f.{column} = d.{column} "
        "WHERE d.kind = 3"
    )
    rows = lake.same(query)
    assert len(rows) in (2, 20, 40)
    plan = after(lake, query)
    assert f"partitions {left}, pruned by: join keys" in plan


@pytest.mark.parametrize(
    "definition",
    [
        "SELECT id, rand() AS r FROM {db}.facts WHERE k IN "
        "(SELECT k FROM {db}.dims WHERE kind = 3 GROUP BY k HAVING count(*) > 0)",
        "SELECT g.key AS id, g.n, rand() AS r FROM "
        "(SELECT k AS key, max(x) AS n FROM {db}.facts GROUP BY k HAVING max(x) > 1) g "
        "WHERE g.key IN (SELECT k FROM {db}.dims WHERE kind = 3)",
        "SELECT g.key AS id, g.r FROM "
        "(SELECT k AS key, rand() AS r FROM {db}.facts GROUP BY k HAVING count(*) > 0) g "
        "LEFT SEMI JOIN (SELECT k FROM {db}.facts WHERE id < 30) f ON f.k = g.key",
    ],
    ids=["by groups", "of groups", "of random groups"],
)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.id, a.r = b.r AS same FROM c a JOIN c b ON a.id = b.id WHERE a.r >= 0",
        "SELECT id FROM c UNION ALL SELECT id FROM c",
    ],
    ids=["joined", "added"],
)
def test_a_random_definition_that_is_used_twice(lake, definition, query):
    """Spark cannot run it with what prunes in it: it gives the columns of each use new names."""
    lake.both("facts", FACTS, "k")
    lake.both("dims", DIMENSION, "kind")
    assert lake.same(f"WITH c AS ({definition}) {query}")


def test_no_large_side_is_read_twice_to_prune_buckets(lake, planned_at_once, spark):
    """So many rows have values in every bucket."""
    lake.both("facts", "SELECT id, id AS x FROM range(200000)", "bucket(4, id)")
    lake.both("many", "SELECT id, id % 9 AS kind FROM range(150000)")
    lake.both("few", "SELECT id, id % 9 AS kind FROM range(50)")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        query = "SELECT f.x FROM {db}.facts f JOIN {db}.%s m ON f.id = m.id WHERE m.kind = 1"
        assert "dynamicpruning" not in lake.plan(query % "many")
        assert "dynamicpruningexpression(id" in lake.plan(query % "few")
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


@pytest.mark.parametrize(
    ("condition", "prunes"),
    [
        ("m.at < 50000", False),
        ("m.at < 3", True),
        ("m.kind = 'k1'", True),
    ],
)
def test_buckets_are_pruned_by_few_rows(lake, planned_at_once, condition, prunes):
    """To collect the values of many takes long, and they are in every bucket."""
    lake.both("facts", "SELECT id, id AS x FROM range(400000)", "bucket(4, id)")
    many = "SELECT id, id AS at, concat('k', id) AS kind FROM range(150000)"
    lake.both("many", many)
    query = f"SELECT f.x FROM {{db}}.facts f JOIN {{db}}.many m ON f.id = m.id WHERE {condition}"
    lake.same(query)
    plan = lake.plan(query)
    assert "BroadcastHashJoin" in plan
    assert ("dynamicpruning" in plan) == prunes


def test_a_broadcast_is_read_once_however_many_keys_it_has(lake, planned_at_once, spark):
    lake.both("facts", FACTS, "k")
    lake.both("dims", DIMENSION, "k")
    query = "SELECT f.x FROM {db}.facts f JOIN {db}.dims d ON f.k = d.k WHERE d.kind = 3"
    lake.same(query)
    assert "SubqueryBroadcast" in lake.plan(query)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_what_prunes_is_the_broadcast_that_is_joined(lake, spark, adaptive):
    """Although joins by keys in it are hashed."""
    lake.both("facts", FACTS, "days(ts)")
    lake.both("a", FACTS, "bucket(4, id)")
    lake.both("b", FACTS, "bucket(8, id)")
    query = (
        "SELECT /*+ BROADCAST(x) */ f.id, x.y FROM {db}.facts f JOIN (SELECT a.ts, b.x AS y "
        "FROM {db}.a a JOIN {db}.b b ON a.id = b.id WHERE a.k = 7) x ON f.ts = x.ts"
    )
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        lake.same(query)
        plan = after(lake, query)
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
        spark.conf.set("spark.sql.adaptive.enabled", "true")
    assert "ShuffledHashJoin" in plan
    assert "partitions 1/40, pruned by: join keys" in plan
    assert "SubqueryBroadcast" in plan


def test_a_hint_to_broadcast(lake, planned_at_once, spark):
    """Then many rows prune buckets, too: they are read in any case."""
    lake.both("facts", "SELECT id, id AS x FROM range(20000)", "bucket(16, id)")
    lake.both("dims", "SELECT id, id AS y FROM range(20000)")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "1000")
    query = (
        "SELECT /*+ BROADCAST(d) */ f.x FROM {db}.facts f JOIN {db}.dims d ON f.id = d.id "
        "WHERE d.y = 5"
    )
    try:
        lake.same(query)
        assert "partitions 1/16, pruned by: join keys" in after(lake, query)
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_with_coarser_keys(lake, planned_at_once, spark):
    """The keys that Spark has planned by stay the same when a join prunes partitions."""
    lake.both("facts", FACTS, "days(ts), bucket(6, id)")
    lake.both("more", FACTS.replace("range(400)", "range(100, 600)"), "months(ts), bucket(4, id)")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        for kind in ("JOIN", "LEFT JOIN", "FULL JOIN"):
            lake.same(
                f"SELECT f.id, m.x FROM {{db}}.facts f {kind} {{db}}.more m ON f.ts = m.ts "
                "AND f.id = m.id WHERE m.k = 3"
            )
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_nothing_is_left(lake, planned_at_once):
    lake.both("facts", FACTS, "k")
    lake.both("dims", DIMENSION)
    query = "SELECT * FROM {db}.facts f JOIN {db}.dims d ON f.k = d.k WHERE d.kind + d.id = -1"
    assert lake.same(query) == []
    assert "partitions 0/40, pruned by: join keys" in after(lake, query)


def test_with_a_filter_on_this_side(lake, planned_at_once):
    lake.both("facts", FACTS, "k")
    lake.both("dims", DIMENSION)
    query = (
        "SELECT f.id, d.kind FROM {db}.facts f JOIN {db}.dims d ON f.k = d.k "
        "WHERE d.kind = 3 AND f.k > 10"
    )
    assert len(lake.same(query)) == 10
    assert "partitions 1/40" in after(lake, query)


def test_beside_a_join_without_a_shuffle(lake, planned_at_once, spark):
    """Both large tables keep their keys in step when one of them is pruned."""
    lake.both("facts", FACTS, "bucket(8, id)")
    lake.both("more", FACTS.replace("range(400)", "range(100, 600)"), "bucket(8, id)")
    lake.both("dims", DIMENSION)
    for kind in ("JOIN", "LEFT JOIN", "FULL JOIN"):
        query = (
            f"SELECT /*+ BROADCAST(d), MERGE(f, m) */ f.id, m.x, d.kind FROM {{db}}.facts f {kind} "
            "{db}.more m ON f.id = m.id JOIN {db}.dims d ON f.id = d.id WHERE d.kind = 3"
        )
        lake.same(query)
    plan = after(lake, query.replace("FULL JOIN", "JOIN"))
    assert plan.count("Exchange hash") == 0
    assert "pruned by: join keys" in plan


@pytest.mark.parametrize(
    ("keys", "pruned"),
    [
        ("id < 7000", "partitions 2/4, pruned by: join keys"),
        # What lies between the least and the greatest key is not told apart from the keys.
        ("id < 3500 OR id >= 27500", "partitions 4/4, pruned by: nothing"),
        # So few keys are sent one by one.
        ("id < 1000 OR id >= 30500", "partitions 2/4, pruned by: join keys"),
    ],
)
def test_many_keys_are_a_range(lake, planned_at_once, keys, pruned):
    """Thousands of keys are not sent one by one: their range prunes."""
    lake.both("facts", "SELECT id, id % 7 AS x FROM range(40000)", "truncate(10000, id)")
    lake.both("dims", f"SELECT 9000 + id AS id, id % 2 AS kind FROM range(31000) WHERE {keys}")
    query = (
        "SELECT /*+ BROADCAST(d) */ count(*), sum(f.x) FROM {db}.facts f JOIN {db}.dims d "
        "ON f.id = d.id WHERE d.kind = 1"
    )
    lake.same(query)
    assert pruned in after(lake, query)


def test_the_size_is_that_in_memory(lake):
    """Spark broadcasts by it: files are compressed, and these are a few bytes for many rows."""
    lake.sql("CREATE TABLE {db}.t AS SELECT 1L AS a, 2L AS b, id % 2 AS c FROM range(100000)")
    plan = lake.sql("SELECT a, c FROM {db}.t")._jdf.queryExecution().optimizedPlan()
    assert plan.stats().sizeInBytes() == 100_000 * (8 + 8 + 8)


def test_the_size_is_that_of_the_rows_that_filters_leave(lake):
    """Judged by the bounds of columns, and only where tables are joined."""
    lake.sql("CREATE TABLE {db}.t AS SELECT id AS a, 2L AS b FROM range(100000)")
    lake.sql("CREATE TABLE {db}.u AS SELECT id AS a FROM range(10)")

    def size(condition):
        query = f"SELECT t.b FROM {{db}}.t t JOIN {{db}}.u u ON t.a = u.a WHERE {condition}"
        leaves = lake.sql(query)._jdf.queryExecution().optimizedPlan().collectLeaves()
        return max(leaves.apply(at).stats().sizeInBytes() for at in range(leaves.size()))

    whole = 100_000 * (8 + 8 + 8)
    assert size("t.b > 0") == whole
    assert size("t.a < 50000") == pytest.approx(whole / 2, rel=0.01)
    assert size("t.a = 3") == whole / 8
