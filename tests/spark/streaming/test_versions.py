"""Offsets of streams: whatever the limits and wherever one stops, every row comes once."""

import base64
import datetime as dt
import json
import pickle
import random

import pyarrow as pa
import pytest

import phalanx
from phalanx import PhalanxError
from phalanx.spark.handles import Handle
from phalanx.spark.types import spark_schema
from tests.spark.door import CLUSTER, call
from tests.table.test_incremental import Compact

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


def row(id, part="a"):
    return {"id": id, "part": part}


def flat(batches):
    return [id for batch in batches for id in batch]


class Reader:
    """A stream as Spark drives it: an offset, and batches from one to the next."""

    def __init__(self, root, start=None, zone="UTC", **options):
        table = phalanx.open(root)
        self.schema = table.schema
        handle = Handle.of(table._snapshot)
        options = {name: str(value) for name, value in options.items()}
        self.started = call("start_stream", zone, table=handle.to_json(), options=options)
        self.offset = self.started["initial"] if start is None else start
        self.until = None

    def find(self, limited=True):
        found = call(
            "next_offset",
            stream=self.started["stream"],
            start=self.offset,
            limited=limited,
            until=self.until,
        )
        return found["end"]

    def read(self, end):
        scan = {"schema": json.dumps(spark_schema(self.schema)), "cluster": CLUSTER}
        stream, start = self.started["stream"], self.offset
        reply = call("stream_tasks", stream=stream, start=start, end=end, scan=scan)
        found = []
        for command in reply["tasks"]:
            task, _ = pickle.loads(base64.b64decode(command))
            for batch in task(iter(())):
                found += batch.column("id").to_pylist()
        return sorted(found)

    def batch(self, limited=True):
        """The ids of the next batch; None where there is nothing new."""
        end = self.find(limited)
        if end == self.offset:
            return None
        found = self.read(end)
        self.offset = end
        return found

    def rest(self):
        """The batches until nothing is left."""
        found = []
        while (batch := self.batch()) is not None:
            found.append(batch)
        return found


@pytest.fixture
def table(root):
    """Versions 2 and 3 have added rows 1 to 3 and row 4."""
    table = phalanx.create(root, SCHEMA, ["part"])
    table.append([row(1), row(2), row(3, "b")])
    table.append([row(4)])
    return table


def test_all_rows_first_then_what_is_added(root, table):
    reader = Reader(root)
    assert reader.rest() == [[1, 2, 3, 4]]
    table.append([row(5)])
    table.append([row(6, "c")])
    assert reader.rest() == [[5, 6]]
    table.tag("x")
    # A version without rows moves the offset, so that it need not be there any more later.
    assert reader.rest() == [[]]
    assert reader.rest() == []


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("earliest", [[1, 2, 3, 4]]),
        ("latest", [[]]),
        ("1", [[1, 2, 3, 4]]),
        ("2", [[1, 2, 3, 4]]),
        ("3", [[4]]),
        ("4", [[]]),
    ],
)
def test_where_it_starts(root, table, version, expected):
    reader = Reader(root, startingVersion=version)
    assert reader.rest() == expected
    table.append([row(5)])
    assert reader.rest() == [[5]]


def test_a_start_at_a_time(root, table):
    times = table.snapshots().column("committed_at").to_pylist()
    assert Reader(root, startingTimestamp=times[1].isoformat()).rest() == [[1, 2, 3, 4]]
    later = times[1] + dt.timedelta(microseconds=1)
    assert Reader(root, startingTimestamp=later.isoformat()).rest() == [[4]]
    assert Reader(root, startingTimestamp="2020-01-01").rest() == [[1, 2, 3, 4]]
    assert Reader(root, startingTimestamp="2999-01-01").rest() == [[]]
    # One without a zone is of the session's: this moment was hours ago in Tokyo.
    text = later.replace(tzinfo=None).isoformat()
    assert Reader(root, startingTimestamp=text, zone="Asia/Tokyo").rest() == [[1, 2, 3, 4]]
    assert Reader(root, startingTimestamp=text, zone="-09:00").rest() == [[]]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingVersion": "0"}, "startingVersion is a version, 'earliest' or 'latest'"),
        ({"startingVersion": "first"}, "startingVersion is a version, 'earliest' or 'latest'"),
        ({"startingVersion": "9"}, "has no version 9 yet: its newest is 3"),
        ({"startingTimestamp": "soon"}, "startingTimestamp is a time such as"),
        ({"startingVersion": "1", "startingTimestamp": "2020-01-01"}, "only one of them"),
        ({"maxFilesPerTrigger": "0"}, "maxFilesPerTrigger is a whole number from 1, not '0'"),
        ({"maxrowspertrigger": "many"}, "maxRowsPerTrigger is a whole number from 1"),
        ({"skipChangeCommits": "yes"}, "skipChangeCommits is true or false, not 'yes'"),
        ({"versionAsOf": "1"}, "say startingVersion"),
    ],
)
def test_options_that_are_refused(root, table, options, sentence):
    with pytest.raises(PhalanxError, match=sentence):
        Reader(root, **options).rest()


def test_limits(root, table):
    table.append([row(5), row(6, "c")])
    table.append([row(7)])
    reader = Reader(root, maxFilesPerTrigger="1", startingVersion="2")
    assert reader.rest() == [[1, 2], [3], [4], [5], [6], [7]]
    assert Reader(root, maxFilesPerTrigger="2", startingVersion="2").rest() == [
        [1, 2, 3],
        [4, 5],
        [6, 7],
    ]
    assert Reader(root, maxRowsPerTrigger="3", startingVersion="2").rest() == [
        [1, 2, 3],
        [4, 5, 6],
        [7],
    ]
    # A file is read whole, also where it has more rows than are allowed.
    assert Reader(root, maxRowsPerTrigger="1", startingVersion="2").rest() == [
        [1, 2],
        [3],
        [4],
        [5],
        [6],
        [7],
    ]
    assert Reader(root, maxBytesPerTrigger="1", startingVersion="4").rest() == [[5], [6], [7]]
    assert Reader(root, maxBytesPerTrigger="1000000").rest() == [[1, 2, 3, 4, 5, 6, 7]]
    assert Reader(root, maxVersionsPerTrigger="1", startingVersion="2").rest() == [
        [1, 2, 3],
        [4],
        [5, 6],
        [7],
    ]
    assert Reader(root, maxVersionsPerTrigger="2", startingVersion="2").rest() == [
        [1, 2, 3, 4],
        [5, 6, 7],
    ]
    assert Reader(root, maxVersionsPerTrigger="3", maxRowsPerTrigger="4").rest() == [
        [1, 2, 4, 5],
        [3, 6, 7],
    ]


def test_a_limit_cuts_the_table_as_it_is(root, table):
    """The files of the first version come in the order of partitions, and the next ones later."""
    reader = Reader(root, maxFilesPerTrigger="1")
    assert reader.batch() == [1, 2]
    table.append([row(5)])
    assert reader.rest() == [[4], [3], [5]]


def test_no_limit_is_held_where_spark_wants_everything(root, table):
    table.append([row(5)])
    reader = Reader(root, maxFilesPerTrigger="1")
    assert reader.batch(limited=False) == [1, 2, 3, 4, 5]


def test_only_what_was_there_at_a_time(root, table):
    reader = Reader(root, startingVersion="2")
    reader.until = 3
    table.append([row(5)])
    assert reader.rest() == [[1, 2, 3, 4]]


def test_the_first_batch_is_the_same_when_it_is_run_again(root, table):
    """Nothing but its end was written down when the driver died."""
    for options in ({}, {"startingVersion": "latest"}, {"maxFilesPerTrigger": "2"}):
        end = Reader(root, **options).find()
        first = Reader(root, **options).read(end)
        table.append([row(9)])
        assert Reader(root, **options).read(end) == first


CHANGES = {
    "delete": lambda t: t.delete("id = 1"),
    "update": lambda t: t.update({"id": "id"}, "id = 2"),
    "overwrite": lambda t: t.overwrite([row(8)]),
    "merge": lambda t: t.merge([row(4)], ["id"]),
    "rollback": lambda t: t.rollback(2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_version_that_changes_rows(root, table, name):
    reader = Reader(root)
    reader.rest()
    table.append([row(5)])
    CHANGES[name](table)
    table.append([row(6)])
    # What comes before it is passed on; then the stream stops, however often it is started.
    assert reader.batch() == [5]
    for offset in (reader.offset, reader.offset):
        again = Reader(root, start=offset)
        with pytest.raises(PhalanxError, match=rf"version 5 of .* \({name}\) changes or removes"):
            again.batch()
    assert Reader(root, start=reader.offset, skipChangeCommits="true").rest() == [[6]]
    reader = Reader(root, startingVersion="2", skipChangeCommits="true", maxRowsPerTrigger="1")
    assert flat(reader.rest()) == [1, 2, 3, 4, 5, 6]


def test_upkeep_is_passed_over(root, table):
    """Rows are in other files and partitions afterwards, and none of them comes again."""
    reader = Reader(root)
    reader.rest()
    table.append([row(5)])
    table.optimize()
    table.append([row(6)])
    table.evolve_partitioning(["bucket(2, id)"])
    table.append([row(7)])
    table.rewrite()
    table.append([row(8)])
    for limits in ({}, {"maxFilesPerTrigger": "1"}):
        assert flat(Reader(root, start=reader.offset, **limits).rest()) == [5, 6, 7, 8]
        first = flat(Reader(root, startingVersion="1", **limits).rest())
        assert sorted(first) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sorted(flat(Reader(root, maxFilesPerTrigger="1").rest())) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_version_that_nobody_expected_to_change_rows(root, table):
    """Several versions are looked at together, and then one by one to tell which it was."""
    reader = Reader(root)
    reader.rest()
    table.append([row(5)])
    with table.transaction() as tx:
        tx._transaction.run(Compact("unheard of"))
    table.append([row(6)])
    assert reader.batch() == [5]
    with pytest.raises(PhalanxError, match=r"version 5 of .* \(unheard of\) changes or removes"):
        reader.batch()


def test_a_batch_that_was_to_skip_is_not_planned_without(root, table):
    table.delete("id = 1")
    end = Reader(root, startingVersion="2", skipChangeCommits="true").find()
    with pytest.raises(PhalanxError, match="skipChangeCommits"):
        Reader(root, startingVersion="2").read(end)


def test_versions_that_have_expired(root, table):
    reader = Reader(root)
    reader.rest()
    table.append([row(5)])
    table.append([row(6)])
    table.vacuum(dt.timedelta(0), force=True)
    with pytest.raises(PhalanxError, match=r"needs for that has expired .*another checkpoint"):
        reader.batch()
    with pytest.raises(PhalanxError, match="has expired"):
        Reader(root, startingVersion="1").batch()
    with pytest.raises(PhalanxError, match="has expired"):
        Reader(root, startingTimestamp="2020-01-01").batch()
    assert Reader(root).rest() == [[1, 2, 3, 4, 5, 6]]


def test_a_stream_that_has_read_all_survives_an_expiry(root, table):
    reader = Reader(root)
    reader.rest()
    table.vacuum(dt.timedelta(0), force=True)
    table.append([row(5)])
    assert flat(reader.rest()) == [5]


def test_another_schema(root, table):
    """What was added before is passed on first; then a stream that is started again goes on."""
    reader = Reader(root, skipChangeCommits="true")
    reader.rest()
    table.append([row(5)])
    replace(root, pa.schema([("id", pa.int64()), ("part", pa.string()), ("x", pa.int64())]))
    phalanx.open(root).append([{"id": 6, "part": "a", "x": 1}])
    assert reader.batch() == [5]
    with pytest.raises(PhalanxError, match=r"schema of .* was changed in version 5: start the str"):
        reader.batch()
    again = Reader(root, start=reader.offset, skipChangeCommits="true")
    assert again.rest() == [[6]]
    with pytest.raises(PhalanxError, match=r"version 2 of .* has another schema than .* now"):
        Reader(root, startingVersion="2").batch()


def test_a_schema_that_grows(root, table):
    """A stream that was down meanwhile reads what came before through the table's schema."""
    reader = Reader(root)
    reader.rest()
    table.append([row(5)])
    table.add_column("n", pa.int32())
    table.append([{"id": 6, "part": "a", "n": 1}])
    assert reader.batch() == [5]
    with pytest.raises(PhalanxError, match=r"was changed in version 5"):
        reader.batch()
    stopped = reader.offset
    assert Reader(root, start=stopped).rest() == [[6]]
    # Where a type is widened, the rows that were there are written anew beside those that come.
    table.change_type("n", pa.int64())
    table.append([{"id": 7, "part": "a", "n": 2**40}, {"id": 8, "part": "b", "n": 0}])
    table.rename_column("n", "m")
    table.append([{"id": 9, "part": "a", "m": None}])
    assert flat(Reader(root, start=stopped).rest()) == [6, 7, 8, 9]
    assert Reader(root, start=stopped, maxFilesPerTrigger="1").rest()[:2] == [[6], [7]]
    assert flat(Reader(root, startingVersion="1").rest()) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def replace(root, schema):
    from concurrent.futures import ThreadPoolExecutor

    from phalanx.table.create import replace_table, replaced_head

    base = phalanx.open(root)._snapshot
    with ThreadPoolExecutor(1) as pool:
        replace_table(base, replaced_head(base.head, schema, ["part"], {}), [], pool, 0.0)


def test_a_table_that_was_made_again(root, table, tmp_path):
    reader = Reader(root)
    reader.rest()
    root.rename(tmp_path / "away")
    phalanx.create(root, SCHEMA, ["part"]).append([row(1)])
    with pytest.raises(PhalanxError, match="was dropped and made again"):
        reader.batch()
    with pytest.raises(PhalanxError, match="the checkpoint is of another table"):
        Reader(root, start=reader.offset).batch()


def test_a_weak_table_is_refused(root):
    phalanx.create(root, SCHEMA, transactions="weak")
    with pytest.raises(PhalanxError, match="is weak and cannot be read by a stream"):
        Reader(root)


@pytest.mark.parametrize("seed", range(3))
def test_every_row_comes_once(root, seed):
    """Writers, limits and restarts at random; a batch may be planned twice."""
    chance = random.Random(seed)
    table = phalanx.create(root, SCHEMA, ["part"])
    table.append([row(0)])
    numbers, expected, got = iter(range(1, 10_000)), [0], []
    offset = None
    for _ in range(12):
        for _ in range(chance.randrange(4)):
            rows = [row(next(numbers), chance.choice("abc")) for _ in range(chance.randrange(5))]
            expected += [made["id"] for made in rows]
            table.append(rows)
        if chance.random() < 0.3:
            table.set_properties({"x": str(chance.random())})
        what = chance.choice(["Files", "Rows", "Bytes", "Versions"])
        most = chance.choice([1, 2, 5, 2000])
        reader = Reader(root, start=offset, **{f"max{what}PerTrigger": str(most)})
        for _ in range(chance.randrange(4)):
            end = reader.find()
            if chance.random() < 0.5:
                reader = Reader(root, start=reader.offset)
            if end != reader.offset:
                got += reader.read(end)
                reader.offset = end
            offset = reader.offset
    got += flat(Reader(root, start=offset).rest())
    assert sorted(got) == expected
