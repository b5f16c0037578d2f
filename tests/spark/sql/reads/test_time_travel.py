"""VERSION AS OF, TIMESTAMP AS OF, tags, and which version a query reads."""

import datetime as dt

import pytest
from pyspark.errors import AnalysisException


@pytest.fixture
def grown(lake):
    """A table whose version n has the rows 1 to n."""
    lake.sql("CREATE TABLE {db}.t PARTITIONED BY (id) AS SELECT 1 AS id")
    lake.sql("INSERT INTO {db}.t VALUES (2)")
    lake.sql("INSERT INTO {db}.t VALUES (3)")
    lake.open("t").tag("second", 2)
    return lake


def test_version(grown):
    assert grown.rows("SELECT * FROM {db}.t VERSION AS OF 1") == [(1,)]
    assert grown.rows("SELECT * FROM {db}.t VERSION AS OF 2") == [(1,), (2,)]
    assert grown.rows("SELECT * FROM {db}.t FOR VERSION AS OF '2' WHERE id = 2") == [(2,)]


def test_tag(grown):
    assert grown.rows("SELECT * FROM {db}.t VERSION AS OF 'second'") == [(1,), (2,)]


def test_two_versions_in_one_query(grown):
    query = "SELECT n.id FROM {db}.t n LEFT ANTI JOIN {db}.t VERSION AS OF 1 o ON n.id = o.id"
    assert grown.rows(query) == [(2,), (3,)]


def test_timestamp(grown, zone):
    snapshots = grown.open("t").snapshots().to_pylist()
    times = {row["version"]: row["committed_at"] for row in snapshots}
    between = times[1] + (times[2] - times[1]) / 2
    text = between.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    assert grown.rows(f"SELECT * FROM {{db}}.t TIMESTAMP AS OF '{text}'") == [(1,)]
    zone("Asia/Tokyo")
    local = (between.astimezone(dt.UTC) + dt.timedelta(hours=9)).strftime("%Y-%m-%d %H:%M:%S.%f")
    assert grown.rows(f"SELECT * FROM {{db}}.t TIMESTAMP AS OF '{local}'") == [(1,)]
    found = grown.spark.read.option("timestampAsOf", local).table(grown["t"])
    assert [row.id for row in found.collect()] == [1]


@pytest.mark.parametrize("version", ["99", "0", "'none'"])
def test_a_version_that_is_not_there(grown, version):
    with pytest.raises(AnalysisException) as caught:
        grown.sql(f"SELECT * FROM {{db}}.t VERSION AS OF {version}")
    assert version.strip("'") in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_time_before_the_table(grown):
    with pytest.raises(AnalysisException) as caught:
        grown.sql("SELECT * FROM {db}.t TIMESTAMP AS OF '2001-01-01'")
    assert "Phalanx failed" not in str(caught.value)


def test_options(grown):
    read = grown.spark.read
    assert read.option("versionAsOf", 1).table(grown["t"]).count() == 1
    by_path = grown.spark.read.format("phalanx").option("versionAsOf", "second")
    assert by_path.load(str(grown.path / "t")).count() == 2


def test_tables_about_an_old_version(grown):
    assert len(grown.rows("SELECT * FROM {db}.t.partitions VERSION AS OF 2")) == 2


def test_writing_to_an_old_version_is_refused(grown):
    old = grown.spark.range(1).selectExpr("CAST(id AS INT)").write.format("phalanx")
    with pytest.raises(AnalysisException):
        old.option("versionAsOf", 1).mode("append").save(str(grown.path / "t"))
    assert len(grown.rows("SELECT * FROM {db}.t")) == 3


class TestOneVersionForAQuery:
    def test_two_references_while_somebody_writes(self, grown):
        """The second reference is planned after the commit, and still reads the same version."""
        first = grown.spark.table(grown["t"])
        second = grown.spark.table(grown["t"])
        joined = first.alias("a").join(second.alias("b"), "id", "full")
        grown.open("t").append([{"id": 4}])
        found = sorted(row.id for row in joined.collect())
        assert found in ([1, 2, 3], [1, 2, 3, 4])

    def test_a_self_join_in_one_statement(self, grown):
        query = (
            "SELECT count(*) FROM {db}.t a FULL JOIN {db}.t b ON a.id = b.id "
            "WHERE a.id IS NULL OR b.id IS NULL"
        )
        frame = grown.sql(query)
        grown.open("t").append([{"id": 5}])
        assert frame.collect()[0][0] == 0

    def test_a_cached_frame_keeps_its_rows(self, grown):
        cached = grown.spark.table(grown["t"]).cache()
        try:
            assert cached.count() == 3
            grown.open("t").append([{"id": 6}])
            assert cached.count() == 3
            assert grown.rows("SELECT * FROM {db}.t VERSION AS OF 1") == [(1,)]
        finally:
            cached.unpersist()

    def test_the_next_query_sees_the_newest(self, grown):
        assert grown.rows("SELECT count(*) FROM {db}.t") == [(3,)]
        grown.open("t").append([{"id": 7}])
        assert grown.rows("SELECT count(*) FROM {db}.t") == [(4,)]

    def test_a_cached_table_follows_writes_of_this_session(self, grown):
        grown.sql("CACHE TABLE {db}.t")
        try:
            grown.sql("INSERT INTO {db}.t VALUES (8)")
            assert grown.rows("SELECT count(*) FROM {db}.t") == [(4,)]
        finally:
            grown.sql("UNCACHE TABLE {db}.t")
