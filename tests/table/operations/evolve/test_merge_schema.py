"""New columns that come with the rows."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput
from tests.table.operations.evolve.columns import (
    SCHEMA,
    column,
    ids,
    row,
)


class TestMergeSchema:
    def test_new_columns_come_with_the_rows(self, table):
        rows = pa.table({"id": pa.array([4], pa.int32()), "n": [7], "words": [["a", "b"]]})
        table.append(rows, merge_schema=True)
        assert table.version == 3
        assert table.snapshots()["operation"].to_pylist()[-1] == "append"
        assert table.schema.names == [*SCHEMA.names, "n", "words"]
        assert column(table, "n") == {1: None, 2: None, 3: None, 4: 7}
        assert column(table, "words")[4] == ["a", "b"]

    @pytest.mark.parametrize(
        "data",
        [
            [{"id": 4, "n": 1.5}, {"id": 5}],
            pd.DataFrame({"id": [4, 5], "n": [1.5, None]}),
            pa.table({"id": [4, 5], "n": [1.5, None]}).to_reader(),
            pa.table({"id": [4, 5], "n": [1.5, None]}).to_batches()[0],
            pa.dataset.dataset(pa.table({"id": [4, 5], "n": [1.5, None]})),
            pl.DataFrame({"id": [4, 5], "n": [1.5, None]}),
        ],
        ids=lambda data: f"{type(data).__module__}.{type(data).__name__}",
    )
    def test_whatever_rows_come_in(self, table, data):
        table.append(data, merge_schema=True)
        assert column(table, "n", "id > 3") == {4: 1.5, 5: None}

    def test_overwrite_and_merge(self, table):
        table.overwrite([{"id": 2, "part": "b", "n": 1}], "partitions", merge_schema=True)
        assert column(table, "n") == {1: None, 2: 1, 3: None}
        counts = table.merge([{"id": 2, "part": "b", "m": "x"}], ["id"], merge_schema=True)
        assert counts["updated"] == 1
        assert column(table, "m") == {1: None, 2: "x", 3: None}
        table.overwrite([{"id": 1, "k": 2}], where="id = 1", merge_schema=True)
        assert column(table, "k") == {1: 2, 2: None, 3: None}
        assert table.snapshots()["operation"].to_pylist()[2:4] == ["overwrite", "merge"]

    def test_nothing_new(self, table):
        table.append([row(4)], merge_schema=True)
        assert table.schema == SCHEMA
        assert ids(table) == [1, 2, 3, 4]

    def test_refused(self, table):
        with pytest.raises(InvalidInput, match="no column 'n'"):
            table.append([row(4, n=1)])
        with pytest.raises(InvalidInput, match="no type"):
            table.append([row(4, n=None)], merge_schema=True)
        with pytest.raises(InvalidInput):
            table.append([row(4, n=1), row(5, n="x")], merge_schema=True)
        with pytest.raises(InvalidInput):
            table.append(pa.table({"id": ["x"], "n": [1]}), merge_schema=True)
        assert phalanx.open(table.uri).version == 2


class TestInside:
    """New fields inside of structs, lists and maps."""

    ITEMS = pa.list_(pa.struct([("x", pa.int32())]))
    NAMES = pa.map_(pa.string(), pa.struct([("x", pa.int32())]))

    @pytest.fixture
    def nested(self, root):
        schema = pa.schema([("id", pa.int64()), ("a", self.ITEMS), ("m", self.NAMES)])
        return phalanx.create(root, schema).append([{"id": 1, "a": [{"x": 1}, None], "m": None}])

    @pytest.mark.parametrize("kind", ["rows", "frame", "table", "reader"])
    def test_whatever_rows_come_in(self, nested, kind):
        rows = [
            {"id": 2, "a": [{"x": 2, "y": "two", "s": {"z": 1.5}}]},
            {"id": 3, "a": [{"y": "three"}, {"x": 3}]},
        ]
        data = {
            "rows": lambda: rows,
            "frame": lambda: pd.DataFrame(rows),
            "table": lambda: pa.Table.from_pylist(rows),
            "reader": lambda: pa.Table.from_pylist(rows).to_reader(),
        }[kind]()
        nested.append(data, merge_schema=True)
        assert nested.schema.field("a").type == pa.list_(
            pa.struct([("x", pa.int32()), ("y", pa.string()), ("s", pa.struct([("z", "float64")]))])
        )
        assert column(nested, "a") == {
            1: [{"x": 1, "y": None, "s": None}, None],
            2: [{"x": 2, "y": "two", "s": {"z": 1.5}}],
            3: [{"x": None, "y": "three", "s": None}, {"x": 3, "y": None, "s": None}],
        }
        assert nested.version == 3

    def test_in_a_map_and_in_a_merge(self, nested):
        values = pa.map_(pa.string(), pa.struct([("y", pa.int64())]))
        rows = pa.table({"id": [1, 2], "m": pa.array([[("k", {"y": 1})]] * 2, values)})
        nested.merge(rows, "id", merge_schema=True)
        assert column(nested, "m") == {n: [("k", {"x": None, "y": 1})] for n in (1, 2)}
        assert column(nested, "a")[1] == [{"x": 1}, None]

    def test_refused(self, nested):
        with pytest.raises(InvalidInput, match="column 'a'"):
            nested.append([{"id": 2, "a": [{"y": 1}]}])
        with pytest.raises(InvalidInput, match=r"'a\.element\.y' is new and has no type"):
            nested.append([{"id": 2, "a": [{"y": None}]}], merge_schema=True)
        rows = pa.table({"id": [2], "a": [{"x": 1, "y": 2}]})
        with pytest.raises(InvalidInput, match="'a' is struct"):
            nested.append(rows, merge_schema=True)
        keys = pa.map_(pa.struct([("k", pa.int64())]), pa.int64())
        nested.add_column("k", keys)
        more = pa.map_(pa.struct([("k", pa.int64()), ("l", pa.int64())]), pa.int64())
        rows = pa.table({"id": [2], "k": pa.array([[({"k": 1, "l": 2}, 3)]], more)})
        with pytest.raises(InvalidInput, match="keys of a map"):
            nested.append(rows, merge_schema=True)
