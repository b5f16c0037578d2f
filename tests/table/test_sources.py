"""Rows from files, dicts, frames and iterators."""

import datetime as dt

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import phalanx
from phalanx.errors import InvalidInput, TableExists

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "kind": ["a", "b", None],
        "at": pa.array([dt.datetime(2025, 1, n) for n in (1, 2, 3)], pa.timestamp("us")),
    }
)
SCHEMA = ROWS.schema


@pytest.fixture
def table(tmp_path):
    return phalanx.create(tmp_path / "t", SCHEMA, ["kind"])


def sorted_rows(table):
    return table.to_arrow().sort_by("id").to_pylist()


class TestFiles:
    def test_every_format(self, table, tmp_path):
        pq.write_table(ROWS, tmp_path / "x.parquet")
        pyarrow.csv.write_csv(ROWS, tmp_path / "x.csv")
        pyarrow.feather.write_feather(ROWS, str(tmp_path / "x.arrow"))
        pyarrow.orc.write_table(ROWS, tmp_path / "x.orc")
        lines = (f'{{"id": {n}, "kind": "j"}}\n' for n in range(3))
        (tmp_path / "x.jsonl").write_text("".join(lines))
        for name in ("x.parquet", "x.csv", "x.arrow", "x.orc", "x.jsonl"):
            before = len(table)
            table.append(tmp_path / name)
            assert len(table) == before + 3, name
        assert table.count("kind = 'a' AND at = '2025-01-01'") == 4

    def test_a_glob_in_one_transaction(self, table, tmp_path):
        for n in range(3):
            pq.write_table(ROWS, tmp_path / f"x{n}.parquet")
        table.append(str(tmp_path / "x*.parquet"))
        assert (len(table), table.version) == (9, 2)

    def test_a_path_with_brackets_is_itself(self, table, tmp_path):
        pq.write_table(ROWS, tmp_path / "x[1].parquet")
        table.append(tmp_path / "x[1].parquet")
        assert len(table) == 3

    def test_merge_and_overwrite(self, table, tmp_path):
        pq.write_table(ROWS, tmp_path / "x.parquet")
        assert table.merge(str(tmp_path / "x.parquet"), on="id").inserted == 3
        table.overwrite(str(tmp_path / "x.parquet"))
        assert sorted_rows(table) == ROWS.to_pylist()

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("nope.parquet", "there is no file"),
            ("nope*.parquet", "there is no file"),
            ("x.xlsx", "cannot tell the format of"),
            ("", "cannot tell the format of"),
            ("bad.parquet", "cannot read"),
        ],
    )
    def test_what_cannot_be_read(self, table, tmp_path, name, message):
        (tmp_path / "x.xlsx").write_text("x")
        (tmp_path / "bad.parquet").write_text("x")
        with pytest.raises(InvalidInput, match=message):
            table.append(str(tmp_path / name))
        assert table.version == 1

    def test_files_of_two_formats(self, table, tmp_path):
        pq.write_table(ROWS, tmp_path / "x.parquet")
        pyarrow.csv.write_csv(ROWS, tmp_path / "x.csv")
        with pytest.raises(InvalidInput, match="cannot tell the format"):
            table.append(str(tmp_path / "x.*"))


class TestDicts:
    def test_columns(self, table):
        table.append({"id": [1, 2], "kind": ["a", None]})
        assert [row["kind"] for row in sorted_rows(table)] == ["a", None]

    def test_arrow_columns(self, table):
        table.append({"id": pa.array([1, 2]), "kind": pa.array(["a", None])})
        assert [row["kind"] for row in sorted_rows(table)] == ["a", None]

    def test_one_row(self, table):
        table.append({"id": 1, "kind": "a"})
        assert sorted_rows(table) == [{"id": 1, "kind": "a", "at": None}]

    def test_columns_of_different_length(self, table):
        with pytest.raises(InvalidInput, match="each a list of the same length"):
            table.append({"id": [1, 2], "kind": ["a"]})

    def test_merge(self, table):
        table.append(ROWS)
        counts = table.upsert({"id": [1, 9], "kind": ["z", "z"]}, on="id")
        assert (counts.inserted, counts.updated) == (1, 1)
        assert sorted_rows(table)[0] == {**ROWS.to_pylist()[0], "kind": "z"}


class TestIterators:
    def test_batches_are_a_stream(self, table):
        table.append(iter(ROWS.to_batches(max_chunksize=1)))
        assert sorted_rows(table) == ROWS.to_pylist()

    def test_tables_and_frames(self, table):
        table.append(part for part in [ROWS, pl.from_arrow(ROWS)])
        assert len(table) == 6

    def test_dicts(self, table):
        table.append({"id": n} for n in range(3))
        assert len(table) == 3

    def test_a_list_of_batches(self, table):
        table.append(ROWS.to_batches(max_chunksize=1))
        assert len(table) == 3

    def test_nothing(self, table):
        table.append(iter([]))
        assert len(table) == 0

    def test_a_batch_that_does_not_fit(self, table):
        other = pa.table({"nope": [1]})
        with pytest.raises(InvalidInput, match="the columns of the first one"):
            table.append(iter([ROWS, other]))
        assert table.refresh().version == 1

    def test_a_lazy_frame(self, table):
        table.append(pl.from_arrow(ROWS).lazy().filter(pl.col("id") > 1))
        assert len(table) == 2


class TestIndexOfAFrame:
    """A named index is data, as it is to pyarrow; one without a name only numbers the rows."""

    FRAME = pd.DataFrame({"id": [1, 2], "day": [3, 4], "x": ["a", "b"]})

    @pytest.mark.parametrize(
        ("frame", "names"),
        [
            (FRAME.set_index("id"), ["day", "x", "id"]),
            (FRAME.set_index(["id", "day"]), ["x", "id", "day"]),
            (FRAME.rename_axis("row"), ["id", "day", "x", "row"]),
            (FRAME[FRAME["id"] > 0].iloc[::-1], ["id", "day", "x"]),
            (FRAME.set_index("id").rename_axis([None]), ["day", "x"]),
            (FRAME.set_index(["id", "day"]).rename_axis(["id", None]), ["x", "id"]),
            (FRAME[["id"]].set_index("id"), ["id"]),
        ],
        ids=["named", "several", "range", "filtered", "unnamed", "some", "no other column"],
    )
    @pytest.mark.parametrize("whole", [True, False])
    def test_create_and_append(self, tmp_path, frame, names, whole):
        rows = (lambda: frame) if whole else (lambda: iter([frame, frame.iloc[:0]]))
        table = phalanx.create(tmp_path / "t", rows()).append(rows())
        assert table.schema.names == names
        if "id" in names:
            assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 1, 2, 2]

    def test_merge(self, tmp_path):
        table = phalanx.create(tmp_path / "t", self.FRAME)
        counts = table.merge(pd.DataFrame({"id": [2, 3], "x": "new"}).set_index("id"), on="id")
        assert (counts.updated, counts.inserted) == (1, 1)
        assert sorted(table.to_arrow()["x"].to_pylist()) == ["a", "new", "new"]

    def test_a_new_column(self, tmp_path):
        table = phalanx.create(tmp_path / "t", pd.DataFrame({"x": ["a"]}))
        table.append(self.FRAME[["id", "x"]].set_index("id"), merge_schema=True)
        assert table.count("id IN (1, 2)") == 2

    def test_a_name_that_is_taken(self, tmp_path):
        for frame in (
            self.FRAME.set_index("id", drop=False),
            self.FRAME.set_index(["id", "day"]).rename_axis(["id", "id"]),
        ):
            with pytest.raises(InvalidInput, match=r"'id' is .* index .* reset_index"):
                phalanx.create(tmp_path / "t", frame)
        assert not (tmp_path / "t").exists()


class TestCreate:
    """A table from its first rows."""

    @pytest.mark.parametrize(
        "data",
        [
            ROWS,
            ROWS.to_pandas(),
            pl.from_arrow(ROWS),
            pl.from_arrow(ROWS).lazy(),
            ROWS.to_pylist(),
            ROWS.to_pydict(),
            ROWS.to_reader(),
            ROWS.to_batches(),
        ],
        ids=lambda data: type(data).__module__ + "." + type(data).__name__,
    )
    def test_kinds_of_data(self, tmp_path, data):
        table = phalanx.create(tmp_path / "t", data, partition_by=["kind"])
        assert table.version == 1
        assert table.schema.names == SCHEMA.names
        assert sorted_rows(table) == ROWS.to_pylist()
        assert table.partitions().num_rows == 3

    def test_a_file(self, tmp_path):
        pq.write_table(ROWS, tmp_path / "x.parquet")
        table = phalanx.create(tmp_path / "t", tmp_path / "x.parquet", ["kind"])
        assert sorted_rows(table) == ROWS.to_pylist()

    def test_not_null_stays(self, tmp_path):
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
        table = phalanx.create(tmp_path / "t", pa.table({"id": [1]}, schema))
        assert not table.schema.field("id").nullable

    def test_rows_of_a_scan(self, table, tmp_path):
        table.append(ROWS)
        copy = phalanx.create(tmp_path / "copy", table.scan(where="id > 1"), ["days(at)"])
        assert len(copy) == 2

    def test_a_weak_table(self, tmp_path):
        table = phalanx.create(tmp_path / "t", ROWS, ["kind"], transactions="weak")
        assert len(table) == 3

    def test_a_table_that_exists(self, table, tmp_path):
        table.append(ROWS)
        with pytest.raises(TableExists):
            phalanx.create(tmp_path / "t", ROWS)
        assert len(table.refresh()) == 3

    @pytest.mark.parametrize(
        "data", [pd.DataFrame({"b": [1, 2], "a": [1, "x"]}), [{"a": 1}, {"a": "x"}]]
    )
    def test_a_column_of_mixed_types(self, tmp_path, data):
        with pytest.raises(InvalidInput, match=r"column 'a' holds int and str: .* one type"):
            phalanx.create(tmp_path / "t", data)

    def test_rows_without_a_type(self, tmp_path):
        with pytest.raises(InvalidInput, match="has no type"):
            phalanx.create(tmp_path / "t", [{"a": None}])
        assert not (tmp_path / "t").exists()


def test_views_become_plain_types(tmp_path):
    nested = pl.DataFrame({"s": [["a"], []], "t": [{"x": "y"}, None], "b": [b"a", None]})
    table = phalanx.create(tmp_path / "t", nested)
    assert "view" not in str(table.schema)
    assert sorted(map(str, table.to_polars().to_dicts())) == sorted(map(str, nested.to_dicts()))
