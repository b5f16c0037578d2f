"""A table as a pyarrow dataset: engines push their filters and columns down."""

import math

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import phalanx
from phalanx.errors import InvalidInput
from phalanx.table.scan import Scan

ROWS = pa.table(
    {
        "id": pa.array(range(100), pa.int64()),
        "kind": [f"k{n % 10}" for n in range(100)],
        "f": pa.array([math.nan if n % 7 == 0 else n / 4 for n in range(100)]),
        "s": [None if n % 9 == 0 else {"x": n} for n in range(100)],
    }
)


@pytest.fixture(scope="module")
def t(tmp_path_factory):
    return phalanx.create(tmp_path_factory.mktemp("t") / "t", ROWS, ["kind"])


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """NULL in every column, NaN and a negative zero."""
    rows = {
        "k": ["a", None, "b", "b", "z"],
        "i": [1, 2, None, 4, 5],
        "f": [1.0, math.nan, 7.0, -0.0, None],
        "b": [True, False, None, True, None],
    }
    return phalanx.create(tmp_path_factory.mktemp("odd") / "t", rows, ["k"])


@pytest.fixture
def reads(monkeypatch):
    """The columns that were read and from how many leaves, one entry for each scan."""
    entries = []
    whole = Scan._batches

    def batches(self, ordered):
        entries.append((sorted(self.schema.names), self.plan().selected))
        return whole(self, ordered)

    monkeypatch.setattr(Scan, "_batches", batches)
    return entries


class TestDuckDB:
    @pytest.mark.parametrize(
        ("where", "leaves"),
        [
            ("kind = 'k3'", 1),
            ("kind IN ('k3', 'k4')", 2),
            ("kind > 'k7' AND id < 50", 2),
            ("kind = 'k3' OR kind = 'k5'", 2),
            ("f > 5 AND kind = 'k1'", 1),
            ("kind IS NULL", 0),
            ("s.x = 13", 10),
            ("length(kind) = 2", 10),
        ],
    )
    def test_partitions_are_pruned(self, t, reads, where, leaves):
        rows = duckdb.sql(f"SELECT id, f FROM t WHERE {where} ORDER BY id").fetchall()
        ((columns, read),) = reads
        assert read == leaves
        assert "s" not in columns or "s.x" in where
        plain = ROWS  # noqa: F841
        expected = duckdb.sql(f"SELECT id, f FROM plain WHERE {where} ORDER BY id").fetchall()
        assert str(rows) == str(expected)

    def test_a_join_of_two_tables(self, t, tmp_path):
        rows = pa.table({"kind": ["k1"], "n": [7]})
        other = phalanx.create(tmp_path / "o", rows, ["kind"])  # noqa: F841
        assert duckdb.sql("SELECT sum(n) FROM t JOIN other USING (kind)").fetchall() == [(70,)]

    def test_a_scan_is_a_stream(self, t):
        s = t.scan(where="kind = 'k3'")  # noqa: F841
        assert duckdb.sql("SELECT count(*) FROM s").fetchall() == [(10,)]


class TestPolars:
    def test_partitions_and_columns_are_pruned(self, t, reads):
        lazy = pl.scan_pyarrow_dataset(t)
        frame = lazy.filter((pl.col("kind") == "k3") & (pl.col("id") > 20)).select("f").collect()
        assert frame.height == 8
        assert reads == [(["f", "id", "kind"], 1)]

    def test_nan(self, t):
        # Polars itself would count NaN; pyarrow, which it hands the filter to, does not.
        plain = pl.scan_pyarrow_dataset(pa.dataset.dataset(ROWS)).filter(pl.col("f") > 5).collect()
        assert pl.scan_pyarrow_dataset(t).filter(pl.col("f") > 5).collect().height == plain.height

    def test_everything(self, t):
        assert pl.scan_pyarrow_dataset(t).collect().height == 100


class TestPyArrow:
    def test_scanner(self, t, reads):
        scanner = t.scanner(columns=["f"], filter=pc.field("kind") == "k3", batch_size=7)
        assert scanner.to_table().schema.names == ["f"]
        assert reads == [(["f", "kind"], 1)]
        assert scanner.to_reader().read_all().num_rows == scanner.count_rows() == 10
        assert scanner.head(3).num_rows == 3

    def test_what_only_pyarrow_can_filter_by(self, t, reads):
        filter = pc.equal(pc.utf8_length(pc.field("kind")), 2)
        both = filter & (pc.field("kind") == "k4")
        assert t.to_table(filter=both).num_rows == 10
        assert reads[0][1] == 1

    def test_rows(self, t):
        assert isinstance(t, pa.dataset.Dataset)
        assert t.to_table(["id"]).num_rows == t.count_rows() == 100
        assert t.count_rows(pc.field("kind") == "k4") == 10
        assert sum(batch.num_rows for batch in t.to_batches(filter=pc.field("id") < 3)) == 3
        assert t.head(3).num_rows == 3
        assert t.head().num_rows == 5
        assert t.head(2, columns=["id"]).schema.names == ["id"]
        assert t.head(0).num_rows == 0
        with pytest.raises(InvalidInput, match="the number of rows is a whole number"):
            t.head(-1)
        assert t.filter("id < 3").count() == 3
        assert t.partition_expression.equals(pc.scalar(True))

    def test_every_method_of_a_dataset_is_replaced(self):
        for name in dir(pa.dataset.Dataset):
            if not name.startswith("_"):
                assert getattr(phalanx.Table, name) is not getattr(pa.dataset.Dataset, name), name

    def test_an_unknown_column(self, t):
        with pytest.raises(InvalidInput, match="unknown column 'nope'"):
            t.scanner(columns=["nope"])
        with pytest.raises(InvalidInput, match="unknown column 'nope'"):
            t.to_table(filter=pc.field("nope") == 1)


class TestFrames:
    def test_rows(self, t):
        assert len(t) == 100
        assert t.to_arrow().num_rows == len(t.to_pandas()) == t.to_polars().height == 100
        assert bool(phalanx.Table(t._snapshot))
        assert t.scan("id").to_numpy().sum() == sum(range(100))
        assert t.scan(columns="kind", limit=2).to_polars().height == 2

    def test_embeddings_are_a_matrix(self, tmp_path):
        schema = pa.schema([("v", pa.list_(pa.float32(), 3))])
        table = phalanx.create(tmp_path / "t", pa.table({"v": [[1, 2, 3], [4, 5, 6]]}, schema))
        assert table.scan("v").to_numpy().shape == (2, 3)

    def test_more_columns_are_no_array(self, t):
        with pytest.raises(InvalidInput, match="the values of one column, and there are 4"):
            t.scan().to_numpy()

    @pytest.mark.parametrize("size", [1, 7, 100, 1000])
    def test_batches_of_a_size(self, t, size):
        sizes = [batch.num_rows for batch in t.scan().to_batches(batch_size=size)]
        assert sum(sizes) == 100
        assert set(sizes[:-1]) <= {size}
        ids = [i for b in t.scan().to_batches(batch_size=size) for i in b.column("id").to_pylist()]
        assert ids == t.to_arrow().column("id").to_pylist()

    def test_batches_of_no_size(self, t):
        with pytest.raises(InvalidInput, match="batch_size is a whole number from 1"):
            t.scan().to_batches(batch_size=0)


class TestDataFusion:
    def count(self, table, where):
        context = datafusion.SessionContext()
        context.register_dataset("t", table)
        return context.sql(f"SELECT count(*) AS n FROM t WHERE {where}").to_pydict()["n"][0]

    @pytest.mark.parametrize(
        ("where", "leaves"),
        [
            ("kind = 'k3'", 1),
            ("kind IN ('k3', 'k4') AND id > 50", 2),
            ("kind NOT IN ('k0', 'k1', 'k2', 'k3', 'k4')", 5),
            ("kind IS NULL", 0),
            ("upper(kind) = 'K3'", 10),
        ],
    )
    def test_partitions_are_pruned(self, t, reads, where, leaves):
        assert self.count(t, where) == t.count(where)
        assert reads[0][1] == leaves

    @pytest.mark.parametrize(
        "where",
        [
            "k NOT IN ('a', 'c', 'd', 'e', 'x')",
            "k IN ('a', 'c', 'd', 'e', NULL)",
            "NOT (k = 'a')",
            "k IS NOT NULL AND NOT (k <> 'a')",
            "i NOT IN (1, 12, 13, 14, 15)",
            "f NOT IN (1, 2, 3, 4, 5, 6)",
            "f IN (0, 2, 3, 4, 5, 6)",
            "f > 2",
            "NOT (f > 2)",
            "f = 0",
            "f >= f",
            "i >= i",
            "i > f",
            "k = 'a' OR i > f",
            "f BETWEEN 0 AND 3",
            "b",
            "NOT b",
            "b IS NULL OR i > 1",
            "f > CAST('NaN' AS DOUBLE)",
            "f = CAST('NaN' AS DOUBLE)",
            "f < CAST('Infinity' AS DOUBLE)",
        ],
    )
    def test_filters_mean_what_they_mean_in_sql(self, odd, where):
        """Whether DataFusion hands a filter over is its business: rows are those of our own SQL."""
        assert self.count(odd, where) == odd.count(where)


class TestTextFilters:
    """The face of a pyarrow dataset takes filters as `scan` does, beside pyarrow's own."""

    @pytest.mark.parametrize("filter", ["id < 3", [("id", "<", 3)], pc.field("id") < 3])
    def test_all_of_its_methods(self, t, filter):
        assert t.count_rows(filter) == 3
        assert t.to_table(filter=filter).num_rows == 3
        assert t.to_table(["kind"], filter).column_names == ["kind"]
        assert sum(batch.num_rows for batch in t.to_batches(filter=filter)) == 3
        assert t.head(2, ["id"], filter=filter).num_rows == 2

    def test_partitions_are_pruned(self, t, reads):
        t.to_table(filter="kind = 'k1'")
        assert reads[-1][1] == 1

    def test_what_is_none(self, t):
        with pytest.raises(InvalidInput, match="unknown column 'nope'"):
            t.to_table(filter="nope = 1")
        with pytest.raises(InvalidInput, match="unknown column 'nope'"):
            t.to_table(["nope"], "id = 1")
