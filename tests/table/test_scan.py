import datetime as dt
import gc
import itertools
import threading
import time

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput
from phalanx.storage import small_leaves
from phalanx.storage.leaf import Leaf
from phalanx.table import scan as scanning

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("day", pa.date32()),
        ("country", pa.string()),
        ("amount", pa.float64()),
    ]
)
COUNTRIES = ["CA", "DE", None, "US"]


def make_rows():
    days = [dt.date(2024, 12, 31), dt.date(2025, 1, 1), dt.date(2025, 6, 1), None]
    rows = []
    for id, (day, country) in enumerate(itertools.product(days, COUNTRIES)):
        for extra in (0, 100):
            amount = None if id % 5 == 0 else (id + extra) / 2
            rows.append({"id": id + extra, "day": day, "country": country, "amount": amount})
    return rows


ROWS = make_rows()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """16 leaves of two rows each, from two appends."""
    table = phalanx.create(
        tmp_path_factory.mktemp("scans"), SCHEMA, ["year(day)", "country", "day"]
    )
    data = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    table.append(data.slice(0, 20))
    table.append(data.slice(20))
    return table


def workers():
    """The threads of pools."""
    return {thread for thread in threading.enumerate() if "ThreadPool" in thread.name}


def by_id(rows):
    return sorted(rows, key=lambda row: row["id"])


class TestRows:
    def test_all(self, table):
        found = table.scan().to_arrow()
        assert found.schema.equals(SCHEMA, check_metadata=True)
        assert by_id(found.to_pylist()) == by_id(ROWS)

    @pytest.mark.parametrize(
        ("where", "matches"),
        [
            ("country = 'US'", lambda r: r["country"] == "US"),
            ("country IS NULL", lambda r: r["country"] is None),
            ("day >= '2025-01-01'", lambda r: r["day"] and r["day"].year == 2025),
            ("day < '2025-03-01'", lambda r: r["day"] and r["day"] < dt.date(2025, 3, 1)),
            ("amount > 3", lambda r: r["amount"] is not None and r["amount"] > 3),
            ("NOT amount > 3", lambda r: r["amount"] is not None and r["amount"] <= 3),
            ("id % 2 = 0", lambda r: r["id"] % 2 == 0),
            (
                "country IN ('US', 'CA') AND amount IS NULL OR day IS NULL",
                lambda r: (
                    (r["country"] in ("US", "CA") and r["amount"] is None) or r["day"] is None
                ),
            ),
            ("year(day) = 2025", lambda r: r["day"] and r["day"].year == 2025),
            ("country LIKE 'U%'", lambda r: r["country"] == "US"),
            ("country <=> NULL", lambda r: r["country"] is None),
            ("country <> 'US'", lambda r: r["country"] not in (None, "US")),
            ("TRUE", lambda r: True),
            ("FALSE", lambda r: False),
            ("NULL", lambda r: False),
        ],
        ids=lambda value: value if isinstance(value, str) else "rows",
    )
    def test_where(self, table, where, matches):
        expected = by_id(row for row in ROWS if matches(row))
        scan = table.scan(where=where)
        assert by_id(scan.to_arrow().to_pylist()) == expected
        assert scan.count() == table.count(where) == len(expected)

    def test_columns_in_the_order_asked_for(self, table):
        found = table.scan(columns=["country", "id"], where="amount = 3.5").to_arrow()
        assert found.to_pylist() == [{"country": "US", "id": 7}]
        assert found.schema == pa.schema([SCHEMA.field("country"), SCHEMA.field("id")])

    def test_no_columns_still_have_rows(self, table):
        found = table.scan(columns=[], where="country = 'US'").to_arrow()
        assert (found.num_columns, found.num_rows) == (0, 8)

    @pytest.mark.parametrize("limit", [0, 1, 3, 31, 32, 1000])
    def test_limit(self, table, limit):
        found = table.scan(limit=limit).to_arrow()
        assert found.num_rows == table.scan(limit=limit).count() == min(limit, 32)
        assert found.schema == SCHEMA

    def test_limit_with_a_filter(self, table):
        scan = table.scan(where="amount > 3 AND country = 'US'", limit=2)
        found = scan.to_arrow().to_pylist()
        assert len(found) == scan.count() == 2
        assert all(row["amount"] > 3 and row["country"] == "US" for row in found)

    def test_a_scan_can_be_read_twice(self, table):
        scan = table.scan(where="country = 'US'")
        assert scan.to_arrow().equals(scan.to_arrow())


class TestOrder:
    def test_by_partition_values_then_as_written(self, table):
        found = table.scan().to_arrow().to_pylist()

        def position(row):
            day, country = row["day"], row["country"]
            year = -1 if day is None else day.year
            return (year, country or "", day or dt.date.min)

        assert found == sorted(found, key=position)
        for _, leaf in itertools.groupby(found, key=position):
            ids = [row["id"] for row in leaf]
            assert ids == [ids[0], ids[0] + 100]

    def test_the_same_every_time(self, table):
        first = table.scan(where="id > 3").to_arrow()
        assert all(table.scan(where="id > 3").to_arrow().equals(first) for _ in range(5))

    def test_without_it_the_rows_are_the_same(self, table):
        batches = list(table.scan(where="id > 3").to_batches(ordered=False))
        found = pa.Table.from_batches(batches).to_pylist()
        assert by_id(found) == by_id(row for row in ROWS if row["id"] > 3)

    def test_a_limit_holds_without_it(self, table):
        batches = table.scan(limit=5).to_batches(ordered=False)
        assert sum(batch.num_rows for batch in batches) == 5


class TestStreaming:
    @pytest.fixture
    def large(self, root, monkeypatch):
        """12 leaves, each of which comes in many batches."""
        monkeypatch.setattr("phalanx.storage.leaf.BATCH_BYTES", 4_096)
        monkeypatch.setattr(scanning, "HANDED_OVER_BYTES", 4_096)
        monkeypatch.setattr("phalanx.storage.read_units._SMALL_ROWS", 0)
        table = phalanx.create(root, pa.schema([("k", pa.int32()), ("x", pa.int64())]), ["k"])
        rows = range(12 * 4_000)
        table.append(pa.table({"k": pa.array([i % 12 for i in rows], pa.int32()), "x": list(rows)}))
        return table

    @pytest.mark.parametrize("ordered", [True, False])
    def test_batches_come_before_everything_is_read(self, large, ordered, monkeypatch):
        read = []
        scan = Leaf.scan

        def counting(self, *args, **options):
            for batch in scan(self, *args, **options):
                read.append(batch.num_rows)
                yield batch

        monkeypatch.setattr(Leaf, "scan", counting)
        batches = large.scan().to_batches(ordered)
        first = next(batches)
        time.sleep(0.3)
        # What waits is bounded: a few batches for each leaf under way, not the whole table.
        assert sum(read) < 12 * 4_000
        total = first.num_rows + sum(batch.num_rows for batch in batches)
        assert total == sum(read) == 12 * 4_000

    @pytest.mark.parametrize("ordered", [True, False])
    @pytest.mark.parametrize("how", ["close", "forget", "fail"])
    def test_stopping_early_leaves_no_threads(self, large, ordered, how):
        before = workers()
        batches = large.scan().to_batches(ordered)
        next(batches)
        assert workers() > before
        if how == "close":
            batches.close()
        elif how == "forget":
            del batches
            gc.collect()
        else:
            with pytest.raises(ZeroDivisionError):
                batches.throw(ZeroDivisionError())
        assert workers() == before

    def test_a_reader_that_is_dropped(self, large):
        before = workers()
        reader = large.scan().to_reader()
        reader.read_next_batch()
        del reader
        gc.collect()
        assert workers() == before

    @pytest.mark.parametrize("ordered", [True, False])
    def test_a_failure_while_reading_reaches_the_reader(self, large, ordered, monkeypatch):
        scan = Leaf.scan
        calls = itertools.count()

        def failing(self, *args, **options):
            yield from scan(self, *args, **options)
            if next(calls) == 2:
                raise OSError("the disk is gone")

        before = workers()
        monkeypatch.setattr(Leaf, "scan", failing)
        with pytest.raises(OSError, match="the disk is gone"):
            list(large.scan().to_batches(ordered))
        assert workers() == before

    def test_leaves_are_read_at_a_time(self, large, monkeypatch):
        meeting = threading.Barrier(4)
        scan = Leaf.scan

        def meeting_others(self, *args, **options):
            meeting.wait(timeout=10)
            yield from scan(self, *args, **options)

        monkeypatch.setattr(Leaf, "scan", meeting_others)
        assert large.scan().to_arrow().num_rows == 12 * 4_000


class TestSmallLeaves:
    """They are read many at a time."""

    @pytest.fixture
    def small(self, root):
        """60 leaves of 10 rows."""
        table = phalanx.create(root, pa.schema([("k", pa.int32()), ("x", pa.int64())]), ["k"])
        rows = range(600)
        table.append(pa.table({"k": pa.array([i % 60 for i in rows], pa.int32()), "x": list(rows)}))
        return table

    @pytest.fixture
    def jobs(self, monkeypatch):
        """How many leaves were read together, each time."""
        found = []
        scan = small_leaves.scan

        def recording(location, schema, members, *args):
            found.append(len(members))
            return scan(location, schema, members, *args)

        monkeypatch.setattr(small_leaves, "scan", recording)
        return found

    def test_as_many_jobs_as_there_are_threads(self, small, jobs):
        assert small.scan().to_arrow()["k"].to_pylist() == [k for k in range(60) for _ in range(10)]
        assert sorted(jobs) == [4, *[7] * 8]

    def test_what_is_left_to_filter_differs(self, small, jobs):
        where = "k < 20 OR x % 600 < 25"  # the bounds of x would rule leaves out
        found = small.scan(where=where).to_arrow()
        assert sorted(found["x"].to_pylist()) == sorted(
            x for x in range(600) if x % 60 < 20 or x < 25
        )
        assert sum(jobs) == 60
        assert small.scan(where=where).count() == 205

    def test_a_limit_reads_no_more_than_it_needs(self, small, jobs):
        assert small.scan(limit=5).to_arrow()["k"].to_pylist() == [0] * 5
        assert set(jobs) == {1}
        jobs.clear()
        assert small.scan(limit=25).to_arrow()["k"].to_pylist() == [0] * 10 + [1] * 10 + [2] * 5
        assert set(jobs) == {3}

    def test_leaves_with_deleted_rows_among_them(self, small):
        small.delete("x % 7 = 0 AND k IN (3, 30, 31)")
        left = [x for x in range(600) if x % 7 or x % 60 not in (3, 30, 31)]
        wanted = sorted(left, key=lambda x: (x % 60, x))
        for ordered in (True, False):
            batches = list(small.scan().to_batches(ordered))
            found = [x for batch in batches for x in batch.column("x").to_pylist()]
            assert (found if ordered else sorted(found, key=lambda x: (x % 60, x))) == wanted
        assert small.scan(where="x < 300").count() == sum(x < 300 for x in left)

    def test_a_handle_sees_what_it_was_opened_at(self, small):
        assert small.scan().to_arrow().num_rows == 600
        other = phalanx.open(small.uri)
        other.append(pa.table({"k": pa.array([5], pa.int32()), "x": [1_000]}))
        other.delete("x = 7")
        assert set(small.scan().to_arrow()["x"].to_pylist()) == set(range(600))
        small.refresh()
        assert set(small.scan().to_arrow()["x"].to_pylist()) == {*range(600), 1_000} - {7}

    @pytest.mark.parametrize("ordered", [True, False])
    def test_what_waits_is_not_read_when_nobody_wants_it(self, small, ordered, monkeypatch):
        started, released = [], threading.Event()
        first = small.scan().plan().leaves[0].row.location
        scan = small_leaves.scan

        def slow(location, schema, members, *args):
            started.append(members)
            if members[0].folder != first:
                released.wait(timeout=10)
            yield from scan(location, schema, members, *args)

        monkeypatch.setattr(small_leaves, "scan", slow)
        monkeypatch.setattr(small_leaves, "LARGEST", 1)
        batches = small.scan().to_batches(ordered)
        next(batches)
        threading.Timer(0.2, released.set).start()
        batches.close()
        # One has been read, and each thread was busy with another.
        assert len(started) <= scanning.READERS + 1


class TestReaders:
    """A scan is an Arrow stream: others read it without a copy of the rows in between."""

    def test_duckdb(self, table):
        scan = table.scan(where="day IS NOT NULL")  # noqa: F841 - DuckDB finds it by name
        found = duckdb.sql("SELECT country, count(*) AS n FROM scan GROUP BY ALL ORDER BY ALL")
        assert found.fetchall() == [("CA", 6), ("DE", 6), ("US", 6), (None, 6)]

    def test_polars(self, table):
        frame = pl.DataFrame(table.scan(where="country = 'US'"))
        assert frame["amount"].sum() == sum(
            row["amount"] or 0 for row in ROWS if row["country"] == "US"
        )
        assert len(pl.from_arrow(table.scan(columns=["id"]))) == 32

    def test_pandas(self, table):
        scan = table.scan(columns=["id", "country"], where="country = 'US'")
        assert scan.to_pandas()["country"].unique().tolist() == ["US"]
        assert isinstance(scan.to_pandas(), pd.DataFrame)

    def test_pyarrow(self, table):
        assert pa.table(table.scan()).equals(table.scan().to_arrow())
        assert pa.table(table).num_rows == 32
        assert table.scan().to_reader().read_all().num_rows == 32
        assert pa.RecordBatchReader.from_stream(table.scan(limit=3)).read_all().num_rows == 3


class TestPlans:
    def test_what_is_read(self, table):
        plan = table.scan(where="country = 'US' AND day >= '2025-01-01'").plan()
        assert (plan.total, plan.selected, plan.pruned) == (16, 2, 14)
        first, second = plan.leaves
        assert first.values == {"day_year": 2025, "country": "US", "day": dt.date(2025, 1, 1)}
        assert second.values["day"] == dt.date(2025, 6, 1)
        assert (first.rows, first.residual) == (2, None)
        assert first.uri.startswith(table.uri)
        assert first.version > 2**40
        assert plan.rows == 4

    def test_what_is_left_to_check(self, table):
        plan = table.scan(where="country = 'US' AND amount > 3").plan()
        assert plan.selected == 4
        assert {leaf.residual for leaf in plan.leaves} == {"amount > 3.0"}

    def test_nothing_is_read(self, table, monkeypatch):
        monkeypatch.setattr("phalanx.storage.leaf.open_leaf", None)
        monkeypatch.setattr("phalanx.storage.small_leaves.open_leaf", None)
        scan = table.scan(where="country = 'US' AND amount > 3")
        assert scan.plan().selected == 4
        assert scan.explain()
        assert table.scan(where="country = 'nowhere'").to_arrow().num_rows == 0
        assert table.scan(limit=0).to_arrow().num_rows == 0

    def test_long_values_are_cut_for_people(self, root):
        table = phalanx.create(root, pa.schema([("id", pa.int64()), ("c", pa.string())]), ["c"])
        long = "x" * 100_000
        table.append([{"id": 1, "c": long}])
        scan = table.scan(where=f"id > 0 AND c = '{long}'")
        assert len(scan.explain()) < 1000
        assert "c=xxxx" in scan.explain()
        assert "… (100,000 characters)" in scan.explain()
        assert "1 row  filter: id >= 1" in scan.explain()
        (leaf,) = scan.plan().leaves
        assert leaf.values == {"c": long}
        assert len(repr(leaf)) < 1000
        with pytest.raises(InvalidInput) as caught:
            table.update({"id": f"CAST('{long}' AS BIGINT)"})
        assert len(str(caught.value)) < 1000

    def test_explained(self, table):
        text = table.scan(["id"], where="country = 'US' AND amount > 3").explain()
        lines = text.splitlines()
        assert lines[0] == f"scan of {table.uri}, version 3"
        assert lines[1].split() == ["columns", "id"]
        assert "where       country = 'US' AND amount > 3.0" in text
        assert "partitions  4 of 16 (12 pruned, 75.0%), 8 rows, " in text
        assert "fragments   4 of 16" in text
        assert "pruned by   country" in text
        assert "filter      left for 4 of 4 partitions" in text
        assert "day_year=2025 / country=US / day=2025-06-01  2 rows  filter: amount > 3.0" in text

    def test_explained_without_a_filter(self, table):
        text = table.scan().explain()
        assert "partitions  16 of 16 (0 pruned, 0.0%), 32 rows" in text
        assert "where" not in text
        assert "… and 6 more" in text

    def test_explained_where_values_decide(self, table):
        assert "none left" in table.scan(where="country = 'US'").explain()

    def test_one_plan_for_many_questions(self, table):
        scan = table.scan(where="country = 'US'")
        assert scan.plan() is scan.plan()


class TestNested:
    SCHEMA = pa.schema(
        [
            ("id", pa.int64()),
            (
                "place",
                pa.struct([("city", pa.string()), ("geo", pa.struct([("x", pa.float32())]))]),
            ),
            ("tags", pa.list_(pa.string())),
            ("vector", pa.list_(pa.float32(), 3)),
            ("attributes", pa.map_(pa.string(), pa.int64())),
            ("events", pa.list_(pa.struct([("at", pa.timestamp("us", "UTC")), ("n", pa.int8())]))),
        ]
    )
    ROWS = (
        {
            "id": 1,
            "place": {"city": "Ulm", "geo": {"x": 1.5}},
            "tags": ["a", None],
            "vector": [1.0, 2.0, 3.0],
            "attributes": [("k", 1), ("l", None)],
            "events": [{"at": dt.datetime(2025, 1, 1, tzinfo=dt.UTC), "n": 1}, None],
        },
        dict.fromkeys(["id", "place", "tags", "vector", "attributes", "events"]),
        {
            "id": 3,
            "place": {"city": None, "geo": None},
            "tags": [],
            "vector": [0.0, 0.0, 0.0],
            "attributes": [],
            "events": [],
        },
        {
            "id": 4,
            "place": {"city": "Ulm", "geo": {"x": None}},
            "tags": None,
            "vector": None,
            "attributes": None,
            "events": None,
        },
    )

    @pytest.fixture(params=[(), ("place.city",), ("bucket(3, id)", "place.geo.x")], ids=str)
    def table(self, root, request):
        table = phalanx.create(root, self.SCHEMA, request.param)
        table.append(list(self.ROWS))
        return table

    def test_rows_come_back(self, table):
        found = table.scan().to_arrow()
        assert found.schema == self.SCHEMA
        assert sorted(found.to_pylist(), key=str) == sorted(self.ROWS, key=str)

    @pytest.mark.parametrize(
        ("where", "ids"),
        [
            ("place.city = 'Ulm'", [1, 4]),
            ("place.city IS NULL", [3, None]),
            ("place IS NULL", [None]),
            ("place.geo.x > 1", [1]),
            ("tags IS NULL", [4, None]),
            ("vector IS NOT NULL AND place.city = 'Ulm'", [1]),
            ("array_length(tags) = 2", [1]),
        ],
    )
    def test_filters(self, table, where, ids):
        found = table.scan(columns=["id"], where=where).to_arrow()["id"].to_pylist()
        assert sorted(found, key=str) == ids
        assert table.count(where) == len(ids)


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {"columns": ["nope"]},
                "unknown column 'nope': the table has id, day, country, amount",
            ),
            ({"columns": 5}, "columns is a name or a list of names"),
            ({"columns": "nope"}, "unknown column 'nope'"),
            ({"columns": ["id", "id"]}, "asked for twice"),
            ({"limit": -1}, "a limit is a whole number from 0, not -1"),
            ({"limit": 1.5}, "a limit is a whole number"),
            ({"limit": True}, "a limit is a whole number"),
            ({"where": "nope = 1"}, "unknown column 'nope'"),
            ({"where": "place.city = 'x'"}, r"unknown column 'place\.city'"),
            (
                {"where": "country ="},
                "cannot parse the filter 'country =': expected .* found the end",
            ),
            ({"where": ""}, "cannot parse the filter ''"),
            ({"where": "country = 'US' AND"}, "cannot parse"),
            ({"where": "country = 'US'; DROP TABLE x"}, "cannot parse .* position 15"),
            ({"where": "(country = 'US'"}, "cannot parse"),
            ({"where": 5}, "a filter is SQL text, a pyarrow expression or tuples, not int"),
            ({"where": ["id = 1"]}, "a filter is made of tuples such as"),
            ({"where": "id"}, "not a condition"),
            ({"where": "id = 'abc'"}, "cannot compare"),
            ({"where": "day = 'soon'"}, "not a date"),
            ({"where": "country > 5"}, "cannot compare"),
            ({"where": "frobnicate(id) = 1"}, "frobnicate"),
            ({"where": "random() < 0.5"}, "volatile"),
        ],
        ids=str,
    )
    def test_at_once(self, table, options, message):
        with pytest.raises(InvalidInput, match=message):
            table.scan(**options)
        if "where" in options:
            with pytest.raises(InvalidInput, match=message):
                table.count(options["where"])
