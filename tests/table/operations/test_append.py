import datetime as dt

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

import phalanx
from phalanx import InvalidInput

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


class TestRefused:
    """One sentence, and the table is as it was."""

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (pa.table({"country": ["US"]}), "column 'id' is missing, and it must not be NULL"),
            ([{"country": "US"}], "column 'id' is missing, and it must not be NULL"),
            ([{"country": "US"}, {"id": 2}], "column 'id' holds NULL"),
            (pa.table({"id": pa.array([1, None])}), "column 'id' holds NULL"),
            (pa.table({"id": ["x"]}), "column 'id' is string, and the table has int64"),
            (
                pa.table({"id": [1], "extra": [1]}),
                "no column 'extra': it has id, country, ts, tags",
            ),
            (pa.table({"ID": [1]}), "no column 'ID'"),
            (pa.table([pa.array([1]), pa.array([2])], names=["id", "id"]), "appears twice"),
            ([{"id": 1, "extra": 1}], "no column 'extra'"),
            ([{"id": 1}, 5], "a list of rows holds dicts"),
            (pd.DataFrame({"id": [1], "extra": [1]}), "no column 'extra'"),
            (pd.DataFrame([[1, 2]], columns=["id", "id"]), "appears twice"),
            (pd.DataFrame([[1]]), "no column '0'"),
            ({"id": [1], "nope": [1]}, "nope"),
            ({"id": [1], "country": "x"}, "each a list of the same length"),
            (None, "cannot read rows from NoneType"),
            ("rows.csv", "there is no file rows.csv"),
            ([5], "cannot read rows from an iterator of int"),
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
        with pytest.raises(InvalidInput, match="buffer_bytes is a whole number from 1"):
            table.append(DATA, buffer_bytes=size)
        assert phalanx.open(root).version == 1


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


class TestUnpartitioned:
    def test_no_fields_at_all(self, root):
        table = phalanx.create(root, SCHEMA)
        table.append(DATA)
        table.append(DATA)
        assert table.scan().to_arrow()["id"].to_pylist() == [1, 2, 3, 1, 2, 3]
        assert table.partitions().num_rows == 1
