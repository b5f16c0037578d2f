"""What a person sees of a scan: its line in EXPLAIN, its metrics, its statistics."""

import pytest


@pytest.fixture(scope="module")
def filled(shared_lake):
    shared_lake.sql(
        "CREATE TABLE {db}.t PARTITIONED BY (country) AS "
        "SELECT id, concat('c', id % 10) AS country, 'x' AS more FROM range(1000)"
    )
    return shared_lake


def plan(lake, query):
    return lake.sql(f"EXPLAIN FORMATTED {query}").collect()[0][0]


def test_the_line(filled):
    text = plan(filled, "SELECT id FROM {db}.t WHERE country IN ('c1', 'c2')")
    assert "partitions 2/10, pruned by: country, columns [id], version 1" in text


def test_nothing_is_pruned(filled):
    text = plan(filled, "SELECT id, more FROM {db}.t")
    assert "partitions 10/10, pruned by: nothing, columns [id, more], version 1" in text


def test_all_is_pruned(filled):
    text = plan(filled, "SELECT id FROM {db}.t WHERE country = 'none'")
    assert "partitions 0/10" in text or "LocalTableScan" in text
    assert filled.rows("SELECT id FROM {db}.t WHERE country = 'none'") == []


def metrics(frame):
    """The metrics of the scans in a plan that has run."""
    found = {}

    def visit(node):
        name = node.getClass().getSimpleName()
        if name == "AdaptiveSparkPlanExec":
            visit(node.executedPlan())
            return
        if name.endswith("QueryStageExec"):
            visit(node.plan())
            return
        if name == "BatchScanExec":
            every = node.metrics()
            keys = every.keysIterator()
            while keys.hasNext():
                key = keys.next()
                found[key] = found.get(key, 0) + every.apply(key).value()
        children = node.children()
        for at in range(children.size()):
            visit(children.apply(at))

    visit(frame._jdf.queryExecution().executedPlan())
    return found


def test_metrics(filled):
    frame = filled.sql("SELECT id FROM {db}.t WHERE country = 'c1' AND id > 500")
    assert len(frame.collect()) == 50
    found = metrics(frame)
    assert found["leavesPlanned"] == 1
    assert found["leavesPruned"] == 9
    assert 50 <= found["rowsRead"] <= 100
    assert found["bytesRead"] > 0


def test_statistics(filled, spark):
    spark.conf.set("spark.sql.cbo.enabled", "true")  # without it, Spark keeps no row counts
    try:
        check_statistics(filled)
    finally:
        spark.conf.unset("spark.sql.cbo.enabled")


def check_statistics(filled):
    frame = filled.sql("SELECT id FROM {db}.t WHERE country = 'c1'")
    stats = frame._jdf.queryExecution().optimizedPlan().collectLeaves().apply(0).stats()
    assert int(str(stats.rowCount().get())) == 100
    assert 0 < int(str(stats.sizeInBytes())) < 1_000_000


def test_the_description_of_a_write(filled, lake):
    lake.sql("CREATE TABLE {db}.t (id INT)")
    text = lake.sql("EXPLAIN INSERT INTO {db}.t SELECT 1").collect()[0][0]
    assert "AppendData" in text
