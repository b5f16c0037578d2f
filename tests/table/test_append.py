import datetime as dt
import threading

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

import phalanx
from phalanx import InvalidInput
from phalanx.table.partitioned_writer import PartitionedWriter

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("country", pa.string()),
        ("ts", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
    ]
)
MOMENT = dt.datetime(2025, 12, 10, 12)
ROWS = [
    {"id": 1, "country": "US", "ts": MOMENT, "tags": ["a", "b"]},
    {"id": 2, "country": None, "ts": None, "tags": []},
    {"id": 3, "country": "US", "ts": MOMENT, "tags": None},
]
DATA = pa.Table.from_pylist(ROWS, schema=SCHEMA)


@pytest.fixture
def table(root):
    return phalanx.create(root, SCHEMA, ["country"])


def rows(table):
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def to_parquet(folder):
    pyarrow.parquet.write_table(DATA, folder / "part.parquet")
    return pyarrow.dataset.dataset(folder)


class TestSources:
    @pytest.mark.parametrize(
        "make",
        [
            lambda _: DATA,
            lambda _: DATA.to_batches()[0],
            lambda _: DATA.to_reader(max_chunksize=1),
            lambda _: pyarrow.dataset.dataset(DATA),
            to_parquet,
            lambda _: ROWS,
            lambda _: pl.from_arrow(DATA),
            lambda _: duckdb.from_arrow(DATA),
            lambda _: duckdb.from_arrow(DATA).order("id").to_arrow_table(),
            lambda _: pd.DataFrame(ROWS),
            lambda _: DATA.to_pandas(types_mapper=pd.ArrowDtype),
            lambda _: DATA.select(["tags", "ts", "country", "id"]),
            lambda _: pa.concat_tables([DATA.slice(0, 1), DATA.slice(1, 0), DATA.slice(1)]),
        ],
        ids=[
            "table",
            "batch",
            "reader",
            "dataset",
            "parquet",
            "dicts",
            "polars",
            "duckdb relation",
            "duckdb result",
            "pandas",
            "pandas with arrow",
            "columns in another order",
            "chunks",
        ],
    )
    def test_rows_come_from(self, table, tmp_path, make):
        folder = tmp_path / "source"
        folder.mkdir()
        table.append(make(folder))
        assert rows(table) == ROWS
        assert table.scan().schema == SCHEMA

    def test_another_table(self, table, tmp_path):
        table.append(DATA)
        other = phalanx.create(tmp_path / "other", SCHEMA, ["bucket(2, id)"])
        other.append(table)
        other.append(table.scan(where="id > 1"))
        assert [row["id"] for row in rows(other)] == [1, 2, 2, 3, 3]

    def test_the_table_itself(self, table):
        table.append(DATA)
        table.append(table.scan())
        assert table.count() == 6

    @pytest.mark.parametrize(
        "data",
        [[], DATA.slice(0, 0), DATA.slice(0, 0).to_reader()],
        ids=["dicts", "table", "reader"],
    )
    def test_nothing(self, table, data):
        table.append(data)
        assert table.count() == 0
        assert table.partitions().num_rows == 0

    def test_columns_that_are_not_given_are_null(self, table):
        table.append(pa.table({"id": [1]}))
        assert rows(table) == [{"id": 1, "country": None, "ts": None, "tags": None}]


class TestTypes:
    """A value fits where it stays what it is."""

    @pytest.mark.parametrize(
        ("type", "column", "expected"),
        [
            (pa.int64(), pa.array([1, None], pa.int8()), [1, None]),
            (pa.int8(), pa.array([127, -128], pa.int64()), [127, -128]),
            (pa.uint8(), pa.array([255], pa.int64()), [255]),
            (pa.float64(), pa.array([1.5], pa.float32()), [1.5]),
            (pa.float64(), pa.array([2**53, None]), [2.0**53, None]),
            (pa.float32(), pa.array([2**24]), [2.0**24]),
            (pa.int64(), pa.array([-1.0, None]), [-1, None]),
            (pa.list_(pa.int64()), pa.array([[1.0, None]]), [[1, None]]),
            (pa.string(), pa.array(["a"], pa.large_string()), ["a"]),
            (pa.string(), pa.array(["a"], pa.string_view()), ["a"]),
            (pa.string(), pa.array(["a", "a"]).dictionary_encode(), ["a", "a"]),
            (pa.dictionary(pa.int32(), pa.string()), pa.array(["a"]), ["a"]),
            (pa.string(), pa.nulls(2), [None, None]),
            (pa.timestamp("ns"), pa.array([1], pa.timestamp("s")), None),
            (pa.timestamp("us"), pa.array([-1_000, None], pa.timestamp("ns")), None),
            (pa.timestamp("s", "UTC"), pa.array([10**9], pa.timestamp("ns", "Asia/Tokyo")), None),
            (pa.timestamp("us", "UTC"), pa.array([0], pa.timestamp("us", "Asia/Tokyo")), None),
            (pa.list_(pa.float32(), 2), pa.array([[1, 2]], pa.list_(pa.float32())), [[1.0, 2.0]]),
            (
                pa.list_(pa.int64()),
                pa.array([[1]], pa.list_(pa.field("element", pa.int32()))),
                [[1]],
            ),
            (
                pa.struct([("a", pa.int64())]),
                pa.array([{"a": 1}], pa.struct([("a", pa.int8())])),
                None,
            ),
            (
                pa.map_(pa.string(), pa.int64()),
                pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
                None,
            ),
        ],
        ids=str,
    )
    def test_what_fits(self, root, type, column, expected):
        table = phalanx.create(root, pa.schema([("x", type)]))
        table.append(pa.table({"x": column}))
        found = table.scan().to_arrow()
        assert found.schema.field("x").type == type
        assert found["x"].to_pylist() == (
            column.cast(type).to_pylist() if expected is None else expected
        )

    @pytest.mark.parametrize(
        ("type", "column"),
        [
            (pa.int64(), pa.array(["1"])),
            (pa.int64(), pa.array([1.5])),
            (pa.int64(), pa.array([float("nan")])),
            (pa.int64(), pa.array([2.0**63])),
            (pa.int8(), pa.array([128.0])),
            (pa.int8(), pa.array([128])),
            (pa.uint8(), pa.array([-1])),
            (pa.float32(), pa.array([0.1])),
            (pa.float32(), pa.array([2.0])),
            (pa.float64(), pa.array([2**53 + 1])),
            (pa.float32(), pa.array([2**24 + 1])),
            (pa.list_(pa.int64()), pa.array([[1.0, 1.5]])),
            (pa.string(), pa.array([1])),
            (pa.string(), pa.array([b"a"])),
            (pa.bool_(), pa.array([1])),
            (pa.date32(), pa.array([MOMENT])),
            (pa.timestamp("us"), pa.array([1_000, 1_001], pa.timestamp("ns"))),
            (pa.timestamp("s"), pa.array([-1], pa.timestamp("ms"))),
            (pa.timestamp("us"), pa.array([1], pa.timestamp("us", "UTC"))),
            (pa.timestamp("us", "UTC"), pa.array([1], pa.timestamp("us"))),
            (pa.timestamp("ns"), pa.array([2**60], pa.timestamp("s"))),
            (pa.decimal128(5, 2), pa.array([1], pa.decimal128(6, 2))),
            (pa.list_(pa.float32(), 2), pa.array([[1]], pa.list_(pa.float32()))),
            (pa.list_(pa.float32(), 2), pa.array([[1]], pa.list_(pa.float32(), 1))),
            (pa.struct([("a", pa.int64())]), pa.array([{"a": 1, "b": 2}])),
            (pa.struct([("a", pa.int64()), ("b", pa.int64())]), pa.array([{"b": 1, "a": 2}])),
            (pa.struct([pa.field("a", pa.int64(), False)]), pa.array([{"a": 1}, {"a": None}])),
            (pa.list_(pa.field("item", pa.int64(), False)), pa.array([[1, None]])),
        ],
        ids=str,
    )
    def test_what_does_not(self, root, type, column):
        table = phalanx.create(root, pa.schema([("x", type)]))
        with pytest.raises(InvalidInput, match="column 'x"):
            table.append(pa.table({"x": column}))
        assert (phalanx.open(root).version, phalanx.open(root).count()) == (1, 0)

    def test_a_null_struct_has_no_fields_to_miss(self, root):
        type = pa.struct([pa.field("a", pa.int64(), False)])
        table = phalanx.create(root, pa.schema([("x", type)]))
        table.append(pa.table({"x": pa.array([None, {"a": 1}], type)}))
        assert table.scan().to_arrow()["x"].to_pylist() == [None, {"a": 1}]


class TestPythonValues:
    """Arrow would cut some values to fit; they are refused instead."""

    @pytest.mark.parametrize(
        ("type", "value"),
        [
            (pa.int64(), 1.5),
            (pa.int64(), 2**70),
            (pa.int8(), 300),
            (pa.uint8(), -1),
            (pa.int64(), True),
            (pa.string(), 5),
            (pa.date32(), MOMENT),
            (pa.timestamp("s"), MOMENT.replace(microsecond=5)),
            (pa.timestamp("us"), MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=5)))),
            (pa.timestamp("us"), 5),
            (pa.time32("s"), dt.time(1, 2, 3, 4)),
            (pa.list_(pa.int64()), [1, 1.5]),
            (pa.struct([("a", pa.int64())]), {"a": 1, "typo": 2}),
            (pa.struct([("a", pa.int64())]), {"a": 1.5}),
            (pa.map_(pa.string(), pa.int64()), {"a": 1.5}),
        ],
        ids=str,
    )
    def test_what_would_change(self, root, type, value):
        table = phalanx.create(root, pa.schema([("x", type)]))
        for data in ([{"x": value}], pd.DataFrame({"x": pd.Series([value], dtype=object)})):
            with pytest.raises(InvalidInput, match="column 'x' does not fit"):
                table.append(data)
        assert phalanx.open(root).version == 1

    @pytest.mark.parametrize(
        ("type", "value", "kept"),
        [
            (pa.int64(), 1.0, 1),
            (pa.float32(), 0.1, np.float32(0.1)),
            (pa.list_(pa.float32(), 2), [0.5, 0.25], [0.5, 0.25]),
            (pa.struct([("a", pa.int64()), ("b", pa.string())]), {"b": "x"}, {"a": None, "b": "x"}),
            (pa.map_(pa.string(), pa.int64()), {"a": 1}, [("a", 1)]),
            (pa.timestamp("us", "UTC"), MOMENT, MOMENT.replace(tzinfo=dt.UTC)),
            (pa.date32(), dt.date(1969, 12, 31), dt.date(1969, 12, 31)),
            (pa.dictionary(pa.int8(), pa.string()), "a", "a"),
            (pa.binary(), b"\0\xff", b"\0\xff"),
        ],
        ids=str,
    )
    def test_what_stays(self, root, type, value, kept):
        table = phalanx.create(root, pa.schema([("x", type)]))
        table.append([{"x": value}, {"x": None}, {}])
        assert table.scan().to_arrow()["x"].to_pylist() == [kept, None, None]


class TestPandas:
    @pytest.mark.parametrize(
        ("type", "column", "expected"),
        [
            (pa.int64(), pd.Series([1.0, None]), [1, None]),
            (pa.int64(), pd.Series([1, None], dtype="Int64"), [1, None]),
            (pa.int8(), pd.Series([1, 2]), [1, 2]),
            (pa.float64(), pd.Series([1, 2]), [1.0, 2.0]),
            (pa.float64(), pd.Series([1.5, np.nan]), [1.5, None]),
            (pa.string(), pd.Series(["a", None], dtype="string"), ["a", None]),
            (pa.string(), pd.Series(["a", "a"], dtype="category"), ["a", "a"]),
            (
                pa.timestamp("us"),
                pd.Series(pd.to_datetime(["2025-12-10 12:00", None])),
                [MOMENT, None],
            ),
            (pa.date32(), pd.Series([dt.date(2025, 12, 10)]), [dt.date(2025, 12, 10)]),
            (pa.list_(pa.float32(), 2), pd.Series([np.array([1, 2], "f4"), None]), [[1, 2], None]),
        ],
        ids=str,
    )
    def test_what_fits(self, root, type, column, expected):
        table = phalanx.create(root, pa.schema([("x", type)]))
        table.append(pd.DataFrame({"x": column}))
        assert table.scan().to_arrow()["x"].to_pylist() == expected

    @pytest.mark.parametrize(
        ("type", "column"),
        [
            (pa.int64(), pd.Series([1.5])),
            (pa.int8(), pd.Series([300])),
            (pa.int64(), pd.Series([True])),
            (pa.bool_(), pd.Series([1])),
            (pa.string(), pd.Series([1])),
            (pa.timestamp("us"), pd.Series([1])),
            (pa.timestamp("us"), pd.Series(pd.to_datetime([1], unit="ns"))),
            (pa.timestamp("us"), pd.Series(pd.to_datetime(["2025-12-10"]).tz_localize("UTC"))),
            (pa.date32(), pd.Series(pd.to_datetime(["2025-12-10"]))),
            (pa.int64(), pd.Series(["x"])),
        ],
        ids=str,
    )
    def test_what_does_not(self, root, type, column):
        table = phalanx.create(root, pa.schema([("x", type)]))
        with pytest.raises(InvalidInput, match="column 'x'"):
            table.append(pd.DataFrame({"x": column}))
        assert phalanx.open(root).version == 1


class TestAlike:
    """What rows come in makes no difference to whether they fit."""

    @pytest.mark.parametrize(
        ("type", "values", "fit"),
        [
            (pa.timestamp("us"), pd.to_datetime(["2025-12-10 12:00"]).as_unit("ns"), True),
            (pa.timestamp("us"), pd.to_datetime([1_001], unit="ns"), False),
            (pa.timestamp("us", "UTC"), pd.to_datetime([1_000], unit="ns", utc=True), True),
            (pa.timestamp("us", "UTC"), pd.to_datetime([1_000], unit="ns"), False),
            (pa.int64(), [1.0, 2.0], True),
            (pa.int64(), [1.0, 2.5], False),
            (pa.float64(), [1, 2], True),
            (pa.float64(), [2**53 + 1], False),
            (pa.float32(), [0.5], False),
            (pa.int8(), [127], True),
            (pa.int8(), [128], False),
            (pa.bool_(), [1], False),
        ],
        ids=str,
    )
    def test_it(self, root, type, values, fit):
        frame = pd.DataFrame({"x": pd.Series(values)})
        arrow = pa.Table.from_pandas(frame, preserve_index=False)
        sources = [frame, arrow, arrow.to_reader(), pl.from_arrow(arrow), pa.dataset.dataset(arrow)]
        table = phalanx.create(root, pa.schema([("x", type)]))
        for number, source in enumerate(sources, 1):
            if fit:
                table.append(source)
                assert table.count() == number * len(frame)
            else:
                with pytest.raises(InvalidInput, match="column 'x'"):
                    table.append(source)
        assert len(table.scan().to_arrow()["x"].unique()) == (len(frame) if fit else 0)


class TestRefused:
    """One sentence, and the table is as it was."""

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (pa.table({"country": ["US"]}), "column 'id' is missing, and it must not be NULL"),
            (pa.table({"id": pa.array([1, None])}), "column 'id' holds NULL"),
            (pa.table({"id": ["x"]}), "column 'id' is string, and the table has int64"),
            (
                pa.table({"id": [1], "extra": [1]}),
                "no column 'extra': it has id, country, ts, tags",
            ),
            (pa.table({"ID": [1]}), "no column 'ID'"),
            (pa.table([pa.array([1]), pa.array([2])], names=["id", "id"]), "appears twice"),
            ([{"country": "US"}], "column 'id' holds NULL"),
            ([{"id": 1, "extra": 1}], "no column 'extra'"),
            ([{"id": 1}, 5], "a list of rows holds dicts"),
            (pd.DataFrame({"id": [1], "extra": [1]}), "no column 'extra'"),
            (pd.DataFrame([[1, 2]], columns=["id", "id"]), "appears twice"),
            (pd.DataFrame([[1]]), "no column '0'"),
            ({"id": [1]}, "cannot read rows from dict"),
            (None, "cannot read rows from NoneType"),
            ("rows.csv", "cannot read rows from str"),
        ],
        ids=str,
    )
    def test_rows_that_do_not_fit(self, root, table, data, message):
        with pytest.raises(InvalidInput, match=message):
            table.append(data)
        assert phalanx.open(root).version == 1
        assert phalanx.open(root).partitions().num_rows == 0

    @pytest.mark.parametrize("size", [0, -1, "1", None])
    def test_a_buffer_of_no_size(self, root, table, size):
        with pytest.raises(InvalidInput, match="buffer_bytes must be at least 1"):
            table.append(DATA, buffer_bytes=size)
        assert phalanx.open(root).version == 1


class TestCutting:
    def test_each_leaf_gets_its_rows_in_their_order(self, root):
        schema = pa.schema([("id", pa.int64()), ("k", pa.int32())])
        table = phalanx.create(root, schema, ["k"])
        keys = np.random.default_rng(0).integers(0, 7, 5_000)
        table.append(pa.table({"id": np.arange(5_000), "k": pa.array(keys, pa.int32())}))
        for leaf in table.scan().plan().leaves:
            k = leaf.values["k"]
            found = table.scan(where=f"k = {k}").to_arrow()["id"].to_pylist()
            assert found == np.flatnonzero(keys == k).tolist()

    def test_many_fields(self, root):
        """More combinations than a 64-bit number can count."""
        names = [f"k{i}" for i in range(12)]
        schema = pa.schema([(name, pa.int64()) for name in names])
        table = phalanx.create(root, schema, names)
        rng = np.random.default_rng(0)
        data = {name: rng.integers(0, 60, 60) for name in names}
        table.append(pa.table(data))
        assert table.partitions().num_rows == 60
        assert sorted(map(str, table.scan().to_arrow().to_pylist())) == sorted(
            map(str, pa.table(data).to_pylist())
        )

    def test_no_fields_at_all(self, root):
        table = phalanx.create(root, SCHEMA)
        table.append(DATA)
        table.append(DATA)
        assert table.scan().to_arrow()["id"].to_pylist() == [1, 2, 3, 1, 2, 3]
        assert table.partitions().num_rows == 1


class Stream:
    """A stream of rows that is made as it is read."""

    SCHEMA = pa.schema([("k", pa.int32()), ("text", pa.string())])

    def __init__(self, batches, rows=2_000, keys=20):
        self.batches, self.rows, self.keys, self.made = batches, rows, keys, 0

    def __iter__(self):
        rng = np.random.default_rng(0)
        for _ in range(self.batches):
            keys = pa.array(rng.integers(0, self.keys, self.rows), pa.int32())
            text = pa.array(["some text of thirty characters"] * self.rows)
            batch = pa.record_batch([keys, text], schema=self.SCHEMA)
            self.made += batch.nbytes
            yield batch

    def reader(self):
        return pa.RecordBatchReader.from_batches(self.SCHEMA, iter(self))


class TestMemory:
    """Rows wait in a buffer of a stated size, however many there are."""

    BUFFER = 1_000_000

    @pytest.fixture
    def table(self, root):
        return phalanx.create(root, Stream.SCHEMA, ["k"])

    def test_what_waits_is_bounded(self, table, monkeypatch):
        waiting = []
        make_room = PartitionedWriter._make_room

        def watched(self):
            waiting.append(self._waiting)
            make_room(self)
            assert self._waiting <= self._buffer_bytes // 2
            held = sum(t.nbytes for g in self._groups.values() for t in g.waiting)
            assert 0.9 * self._waiting <= held <= self._waiting

        monkeypatch.setattr(PartitionedWriter, "_make_room", watched)
        stream = Stream(batches=100)
        table.append(stream.reader(), buffer_bytes=self.BUFFER)
        assert stream.made > 7 * self.BUFFER
        assert len(waiting) > 5
        # A part of a chunk comes on top of a buffer that is just not full.
        assert max(waiting) < 1.3 * self.BUFFER
        assert table.count() == 100 * 2_000

    def test_so_is_all_memory(self, table):
        peak = 0
        done = threading.Event()
        before = pa.total_allocated_bytes()

        def watch():
            nonlocal peak
            while not done.wait(0.001):
                peak = max(peak, pa.total_allocated_bytes() - before)

        watcher = threading.Thread(target=watch)
        watcher.start()
        stream = Stream(batches=150)
        try:
            table.append(stream.reader(), buffer_bytes=self.BUFFER)
        finally:
            done.set()
            watcher.join()
        assert stream.made > 11 * self.BUFFER
        assert peak < 5 * self.BUFFER

    def test_a_large_batch_is_cut(self, root, table, monkeypatch):
        sizes = []
        write = PartitionedWriter.write

        def watched(self, tables):
            def measured():
                for one in tables:
                    sizes.append(one.nbytes)
                    yield one

            return write(self, measured())

        monkeypatch.setattr(PartitionedWriter, "write", watched)
        batch = next(iter(Stream(batches=1, rows=100_000)))
        table.append(pa.Table.from_batches([batch]), buffer_bytes=self.BUFFER)
        assert len(sizes) > 10
        assert max(sizes) < self.BUFFER
        assert table.count() == 100_000

    def test_large_partitions_get_large_files(self, root):
        """The largest groups are written first, and small ones wait for company."""
        table = phalanx.create(root, Stream.SCHEMA, ["k"])

        def batches():
            for i in range(60):
                keys = np.zeros(2_000, np.int32)
                keys[0] = i % 5 + 1
                text = ["some text of thirty characters"] * 2_000
                yield pa.record_batch([pa.array(keys), pa.array(text)], schema=Stream.SCHEMA)

        reader = pa.RecordBatchReader.from_batches(Stream.SCHEMA, batches())
        table.append(reader, buffer_bytes=self.BUFFER)
        leaves = {row["k"]: row for row in table.partitions().to_pylist()}
        assert leaves[0]["rows"] == 60 * 1_999
        assert leaves[0]["fragments"] > 3
        assert [leaves[k]["fragments"] for k in range(1, 6)] == [1] * 5


class TestNoColumns:
    @pytest.mark.parametrize(
        "rows",
        [
            pa.table({"id": [1]}).select([]),
            pa.record_batch({"id": [1, 2]}).select([]),
            lambda: pa.RecordBatchReader.from_batches(
                pa.schema([]), [pa.record_batch({"id": [1, 2]}).select([])]
            ),
            pd.DataFrame(index=range(4)),
        ],
        ids=["table", "batch", "reader", "pandas"],
    )
    @pytest.mark.parametrize("change", ["append", "overwrite"])
    def test_rows_without_any_are_refused(self, root, rows, change):
        """Arrow makes a million of them."""
        table = phalanx.create(root, pa.schema([("id", pa.int64())]))
        table.append([{"id": 7}])
        with pytest.raises(phalanx.InvalidInput, match="the rows have no column"):
            getattr(table, change)(rows() if callable(rows) else rows)
        assert phalanx.open(root).scan().to_arrow()["id"].to_pylist() == [7]

    def test_without_rows_there_is_nothing_to_refuse(self, root):
        table = phalanx.create(root, pa.schema([("id", pa.int64())]))
        for rows in (pa.table({}), pd.DataFrame(), []):
            table.append(rows)
        table.append([{}, {}])
        assert table.scan().to_arrow()["id"].to_pylist() == [None, None]
