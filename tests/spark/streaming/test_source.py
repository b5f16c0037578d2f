"""Tables that streams read: each row once, from where it was asked for and as fast."""

import pytest
from pyspark.errors import StreamingQueryException

import phalanx
from tests.spark.needs import needs
from tests.spark.streaming.feeds import forget_commit, run


@pytest.fixture
def checkpoint(tmp_path):
    return tmp_path / "checkpoint"


@pytest.fixture
def events(lake):
    """Versions 2 and 3 of `lake.<n>.t` have added rows 0 to 5, and row 6."""
    lake.sql(
        "CREATE TABLE {db}.t (id BIGINT, part STRING, ts TIMESTAMP, v ARRAY<FLOAT>) "
        "PARTITIONED BY (part, bucket(2, id))"
    )
    insert(lake, 0, 6)
    insert(lake, 6, 7)
    return lake


def insert(lake, first, last):
    lake.sql(
        "INSERT INTO {db}.t SELECT id, if(id % 3 = 0, NULL, concat('p', id % 2)), "
        f"timestamp_seconds(id), array(CAST(id AS FLOAT)) FROM range({first}, {last}, 1, 1)"
    )


def reader(lake, **options):
    return lake.spark.readStream.options(**options)


def copy(lake, stream, checkpoint, **options):
    """Run a stream into `lake.<n>.out` until all is read; the ids that are there, in batches."""
    writer = stream.writeStream.option("checkpointLocation", str(checkpoint)).options(**options)
    run(writer, lake["out"])
    return batches(lake.open("out"))


def batches(table):
    """The ids that each version has added."""
    found, before = [], []
    for version in range(2, table.version + 1):
        now = phalanx.open(table.uri, version=version).scan(["id"]).to_arrow().column("id")
        now = now.to_pylist()
        found.append(sorted(set(now) - set(before)))
        assert len(set(now)) == len(now)
        before = now
    return found


def test_a_table_and_what_comes_later(events, checkpoint):
    stream = reader(events).table(events["t"])
    assert stream.schema == events.spark.table(events["t"]).schema
    assert copy(events, stream, checkpoint) == [[0, 1, 2, 3, 4, 5, 6]]
    insert(events, 7, 9)
    insert(events, 9, 10)
    assert copy(events, stream, checkpoint) == [[0, 1, 2, 3, 4, 5, 6], [7, 8, 9]]
    assert events.rows("SELECT * FROM {db}.out") == events.rows("SELECT * FROM {db}.t")
    # Nothing new is no batch.
    assert len(copy(events, stream, checkpoint)) == 2


def test_columns_that_are_in_no_file(events, checkpoint):
    """What partitions give is read at each version as it was then."""
    off = "ALTER TABLE {db}.t SET TBLPROPERTIES ('materialize_partition_columns' = '%s')"
    events.sql(off % "false")
    insert(events, 7, 10)
    stream = reader(events, maxFilesPerTrigger=2).table(events["t"])
    copy(events, stream, checkpoint)
    events.sql(off % "true")
    insert(events, 10, 13)
    events.open("t").rewrite()
    insert(events, 13, 14)
    copy(events, stream, checkpoint)
    assert events.rows("SELECT * FROM {db}.out") == events.rows("SELECT * FROM {db}.t")
    assert events.rows("SELECT count(*), count(part) FROM {db}.out") == [(14, 9)]


def test_by_path_with_limits_and_a_replay(events, checkpoint):
    """The driver dies after a commit of the sink; the batch is read again, and not written."""
    options = {"startingVersion": 2, "maxVersionsPerTrigger": 1}
    stream = reader(events, **options).format("phalanx").load(str(events.path / "t"))
    assert copy(events, stream, checkpoint) == [[0, 1, 2, 3, 4, 5], [6]]
    assert forget_commit(checkpoint) == 1
    insert(events, 7, 8)
    assert copy(events, stream, checkpoint) == [[0, 1, 2, 3, 4, 5], [6], [7]]
    forget_commit(checkpoint)
    assert copy(events, stream, checkpoint) == [[0, 1, 2, 3, 4, 5], [6], [7]]


def test_the_first_batch_again_after_the_table_has_moved_on(events, checkpoint):
    stream = reader(events).table(events["t"])
    assert copy(events, stream, checkpoint) == [[0, 1, 2, 3, 4, 5, 6]]
    assert forget_commit(checkpoint) == 0
    events.sql("DROP TABLE {db}.out")
    insert(events, 7, 8)
    assert copy(events, stream, checkpoint) == [[0, 1, 2, 3, 4, 5, 6], [7]]


def test_a_running_query_sees_what_is_added(events, checkpoint):
    stream = reader(events, startingVersion="latest").table(events["t"])
    writer = stream.writeStream.option("checkpointLocation", str(checkpoint))
    query = writer.toTable(events["out"])
    try:
        query.processAllAvailable()
        insert(events, 7, 8)
        query.processAllAvailable()
        events.open("t").append([{"id": 8, "part": "x"}])
        query.processAllAvailable()
        assert batches(events.open("out")) == [[7], [8]]
        events.sql("DELETE FROM {db}.t WHERE id = 1")
        with pytest.raises(StreamingQueryException, match=r"\(delete\) changes or removes rows"):
            query.processAllAvailable()
    finally:
        query.stop()
    insert(events, 9, 10)
    stream = reader(events, skipChangeCommits="true").table(events["t"])
    assert copy(events, stream, checkpoint) == [[7], [8], [9]]


@needs("hidden_columns_of_streams")
def test_columns_and_filters_and_hidden_columns(events, checkpoint):
    stream = reader(events).table(events["t"]).where("part IS NULL").selectExpr("_partition", "id")
    run(stream.writeStream.option("checkpointLocation", str(checkpoint)), events["out"])
    expected = events.rows("SELECT _partition, id FROM {db}.t WHERE part IS NULL")
    assert events.rows("SELECT * FROM {db}.out") == expected
    assert len(expected) == 3


def test_trigger_once_reads_all(events, checkpoint):
    stream = reader(events, maxFilesPerTrigger=1).table(events["t"])
    writer = stream.writeStream.option("checkpointLocation", str(checkpoint)).trigger(once=True)
    query = writer.toTable(events["out"])
    query.awaitTermination()
    assert batches(events.open("out")) == [[0, 1, 2, 3, 4, 5, 6]]


def test_what_is_refused(events, checkpoint, spark, tmp_path):
    stream = reader(events, maxRowsPerTrigger="few").table(events["t"])
    with pytest.raises(StreamingQueryException, match="maxRowsPerTrigger is a whole number"):
        copy(events, stream, checkpoint)
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.readStream.format("phalanx").load(str(tmp_path / "nothing"))
    with pytest.raises(Exception, match="does not support"):
        spark.readStream.table(events["t.snapshots"])
