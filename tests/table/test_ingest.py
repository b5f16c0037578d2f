"""Values that fit the types of a table, and values that do not."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import phalanx
from phalanx import InvalidInput

MOMENT = dt.datetime(2025, 12, 10, 12)


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
                pa.struct([("a", pa.int64()), ("b", pa.int64())]),
                pa.array([{"b": 1, "a": 2}]),
                [{"a": 2, "b": 1}],
            ),
            (
                pa.list_(pa.struct([("a", pa.int64()), ("b", pa.int64())])),
                pa.array([[{"b": 1}, None], None]),
                [[{"a": None, "b": 1}, None], None],
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
            (
                pa.struct([("a", pa.int64()), pa.field("b", pa.int64(), False)]),
                pa.array([{"a": 1}]),
            ),
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


class TestTextForATime:
    """Text is not cast, because formats and zones differ: the error says what to write."""

    @pytest.mark.parametrize(
        ("type", "better"),
        [
            (pa.timestamp("us"), "datetime.datetime.fromisoformat"),
            (pa.date32(), "datetime.date.fromisoformat"),
            (pa.time64("us"), "datetime.time.fromisoformat"),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("make", [list, pd.DataFrame])
    def test_values(self, root, type, better, make):
        table = phalanx.create(root, pa.schema([("ts", type)]))
        with pytest.raises(InvalidInput, match=rf"'ts'.*text.*{better}\('2025-01-01'\)"):
            table.append(make([{"ts": None}, {"ts": "2025-01-01"}]))

    def test_a_column(self, root):
        table = phalanx.create(root, pa.schema([("ts", pa.timestamp("us"))]))
        with pytest.raises(InvalidInput, match=r"is string, .* timestamp.*: cast it first"):
            table.append(pa.table({"ts": ["2025-01-01"]}))
