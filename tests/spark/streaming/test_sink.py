"""Tables that streams write to: every epoch lands once, in the mode that was asked for."""

import datetime as dt

import pytest
from pyspark.errors import StreamingQueryException

import phalanx
from tests.spark.streaming.feeds import Feed, forget_commit, run


@pytest.fixture
def feed(spark, tmp_path):
    return Feed(spark, tmp_path / "feed")


@pytest.fixture
def checkpoint(tmp_path):
    return tmp_path / "checkpoint"


@pytest.fixture
def one_partition(spark):
    """A stream that groups keeps a store of state for each partition of its shuffles."""
    key = "spark.sql.shuffle.partitions"
    before = spark.conf.get(key)
    spark.conf.set(key, "1")
    yield
    spark.conf.set(key, before)


def writer(stream, checkpoint, mode="append", **options):
    made = stream.writeStream.format("phalanx").outputMode(mode)
    return made.option("checkpointLocation", str(checkpoint)).options(**options)


def test_append_to_a_table_that_the_stream_makes(lake, feed, checkpoint):
    feed.add((1, "a"), (2, "b"), (3, None))
    feed.add((4, "a"))
    run(writer(feed.stream(), checkpoint).partitionBy("part"), lake["t"])
    assert lake.rows("SELECT * FROM {db}.t") == [(1, "a"), (2, "b"), (3, None), (4, "a")]
    table = lake.open("t")
    assert [field.field_id for field in table.spec.fields] == ["part"]
    history = table.snapshots().to_pylist()
    assert [made["operation"] for made in history] == ["create", "append", "append"]
    query, zero = history[1]["transaction_id"].split(":")
    assert zero == "0"
    assert history[2]["transaction_id"] == f"{query}:1"
    assert f'"{query}"' in (checkpoint / "metadata").read_text()

    feed.add((5, "c"))
    run(writer(feed.stream(), checkpoint), lake["t"])
    assert len(lake.rows("SELECT * FROM {db}.t")) == 5
    assert lake.open("t").snapshots().column("transaction_id")[-1].as_py() == f"{query}:2"


def test_append_by_path(lake, feed, checkpoint, tmp_path):
    """Spark does not know the catalog then, so it cannot cluster by its functions."""
    lake.sql("CREATE TABLE {db}.t (id BIGINT, part STRING) PARTITIONED BY (bucket(4, id), part)")
    path = lake.path / "t"
    feed.add(*[(n, "ab"[n % 2]) for n in range(20)])
    run(writer(feed.stream(), checkpoint, path=str(path)))
    feed.add((20, "a"))
    query = writer(feed.stream(), checkpoint).trigger(availableNow=True).start(str(path))
    query.awaitTermination()
    assert phalanx.open(path).count() == 21
    assert lake.sql("SELECT id FROM {db}.t WHERE id = 7").count() == 1
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        run(writer(feed.stream(), checkpoint, path=str(tmp_path / "nothing")))


def test_an_epoch_that_is_replayed_does_nothing(lake, feed, checkpoint):
    """The driver died after the commit, before the checkpoint said so; and long ago."""
    feed.add((1, "a"), (2, "b"))
    feed.add((3, "a"))
    run(writer(feed.stream(), checkpoint), lake["t"])
    version = lake.open("t").version
    assert forget_commit(checkpoint) == 1
    run(writer(feed.stream(), checkpoint), lake["t"])
    assert lake.open("t").version == version
    table = lake.open("t")
    table.append([{"id": 9, "part": "z"}])
    table.vacuum(dt.timedelta(0), force=True)
    assert table.snapshots().column("operation").to_pylist() == ["append", "vacuum"]
    forget_commit(checkpoint)
    run(writer(feed.stream(), checkpoint), lake["t"])
    assert lake.rows("SELECT id FROM {db}.t") == [(1,), (2,), (3,), (9,)]


def test_two_queries_write_to_one_table_and_a_new_checkpoint_is_a_new_query(lake, feed, checkpoint):
    feed.add((1, "a"))
    for number in range(2):
        run(writer(feed.stream(), checkpoint.with_name(f"c{number}")), lake["t"])
    assert lake.rows("SELECT * FROM {db}.t") == [(1, "a"), (1, "a")]
    for number in range(2):
        forget_commit(checkpoint.with_name(f"c{number}"))
        run(writer(feed.stream(), checkpoint.with_name(f"c{number}")), lake["t"])
    assert lake.rows("SELECT * FROM {db}.t") == [(1, "a"), (1, "a")]


def test_complete_replaces_the_whole_table(lake, feed, checkpoint, one_partition):
    """Each epoch once: one that is replayed does not take away what has come since."""
    lake.sql("CREATE TABLE {db}.t (part STRING, count BIGINT) PARTITIONED BY (part)")
    lake.sql("INSERT INTO {db}.t VALUES ('old', 1)")
    counts = feed.stream().groupBy("part").count()
    feed.add((1, "a"), (2, "b"))
    feed.add((3, "a"), (4, None))
    run(writer(counts, checkpoint, "complete"), lake["t"])
    assert lake.rows("SELECT * FROM {db}.t") == [("a", 2), ("b", 1), (None, 1)]
    operations = lake.open("t").snapshots().column("operation").to_pylist()
    assert operations == ["create", "append", "overwrite", "overwrite"]
    assert lake.rows("SELECT * FROM {db}.t VERSION AS OF 3") == [("a", 1), ("b", 1)]
    lake.sql("INSERT INTO {db}.t VALUES ('new', 1)")
    forget_commit(checkpoint)
    run(writer(counts, checkpoint, "complete"), lake["t"])
    assert ("new", 1) in lake.rows("SELECT * FROM {db}.t")


def test_update_is_refused(lake, feed, checkpoint, one_partition):
    feed.add((1, "a"))
    counts = feed.stream().groupBy("part").count()
    with pytest.raises(
        StreamingQueryException, match=r"lake\.n\d+\.t does not support Update mode"
    ):
        run(writer(counts, checkpoint, "update"), lake["t"])
    assert lake.rows("SELECT * FROM {db}.t") == []


def test_a_continuous_trigger_is_refused(lake, spark, checkpoint):
    rates = spark.readStream.format("rate").load().selectExpr("value AS id")
    query = writer(rates, checkpoint).trigger(continuous="1 second").toTable(lake["t"])
    with pytest.raises(StreamingQueryException, match="takes rows in micro-batches"):
        query.awaitTermination(60)
    query.stop()


def test_an_epoch_without_rows_is_no_snapshot(lake, feed, checkpoint):
    feed.add((1, "a"))
    feed.add((2, "b"))
    run(writer(feed.stream().where("id = 2"), checkpoint), lake["t"])
    assert lake.open("t").snapshots().column("operation").to_pylist() == ["create", "append"]


def test_columns_are_told_by_their_names(lake, feed, checkpoint):
    lake.sql("CREATE TABLE {db}.t (part STRING, more DOUBLE, id BIGINT)")
    feed.add((1, "a"))
    stream = feed.stream().selectExpr("CAST(id AS INT) AS ID", "part")
    run(writer(stream, checkpoint), lake["t"])
    assert lake.rows("SELECT * FROM {db}.t") == [("a", None, 1)]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (["id", "part", "1 AS extra"], "the table has no column 'extra': it has id, part"),
        (["part"], "column 'id' is missing, and it must not be NULL"),
        (["CAST(id AS STRING) AS id", "part"], "column 'id' is string, and the table has int64"),
        (["id", "part", "id AS ID"], "a column appears twice"),
        (["nullif(id, 1) AS id", "part"], "column 'id' holds NULL, and it must not be NULL"),
    ],
)
def test_rows_that_do_not_fit_are_refused(lake, feed, checkpoint, columns, sentence):
    lake.sql("CREATE TABLE {db}.t (id BIGINT NOT NULL, part STRING)")
    feed.add((1, "a"))
    with pytest.raises(StreamingQueryException, match=sentence):
        run(writer(feed.stream().selectExpr(*columns), checkpoint), lake["t"])
    assert lake.open("t").version == 1


def test_a_transaction_id_of_the_users_is_refused(lake, feed, checkpoint):
    """With it, all epochs after the first would do nothing."""
    feed.add((1, "a"))
    with pytest.raises(StreamingQueryException, match="leave the option transaction_id out"):
        run(writer(feed.stream(), checkpoint, transaction_id="mine"), lake["t"])


def test_a_weak_table_is_refused(lake, feed, checkpoint):
    lake.sql("CREATE TABLE {db}.t (id BIGINT) TBLPROPERTIES ('transactions' = 'weak')")
    feed.add((1, "a"))
    with pytest.raises(StreamingQueryException, match="is weak and cannot be written by a stream"):
        run(writer(feed.stream().select("id"), checkpoint), lake["t"])


def test_a_table_that_was_made_again_is_another_one(lake, feed, checkpoint):
    """A running stream goes on with the table as it is now, but not with another one."""
    feed.add((1, "a"))
    query = writer(feed.stream(), checkpoint).toTable(lake["t"])
    try:
        query.processAllAvailable()
        lake.sql("INSERT INTO {db}.t VALUES (5, 'b')")
        feed.add((2, "a"))
        query.processAllAvailable()
        assert lake.rows("SELECT id FROM {db}.t") == [(1,), (2,), (5,)]
        lake.sql("DROP TABLE {db}.t")
        lake.sql("CREATE TABLE {db}.t (id BIGINT, part STRING)")
        feed.add((3, "a"))
        with pytest.raises(StreamingQueryException, match="was dropped and made again"):
            query.processAllAvailable()
    finally:
        query.stop()
