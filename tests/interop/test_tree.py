"""Trees that others have made: found by listing, typed by a schema or by their values."""

import datetime as dt
import os
from decimal import Decimal

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import phalanx
from phalanx.interop import parquet
from tests.interop.samples import same_rows


@pytest.fixture
def tree(tmp_path):
    """Makes a tree of files: the rows of each by its folder."""

    def write(files):
        for number, (folder, rows) in enumerate(files):
            place = tmp_path / "tree" / folder
            place.mkdir(parents=True, exist_ok=True)
            table = rows if isinstance(rows, pa.Table) else pa.table(rows)
            pq.write_table(table, place / f"part-{number:05}.parquet")
        return tmp_path / "tree"

    return write


@pytest.fixture
def imported(tree, tmp_path):
    """Makes a tree and imports it."""

    def run(files, *arguments, **options):
        return parquet.import_(tree(files), tmp_path / "table", *arguments, **options)

    return run


ONE = {"id": [1]}


class TestTypes:
    def test_the_documents_example(self, imported):
        table = imported(
            [
                ("event_date=2025-12-10/country=US", ONE),
                ("event_date=2025-12-10/country=CN", ONE),
                ("event_date=2025-12-11/country=US", ONE),
                ("event_date=2025-12-11/country=FR", ONE),
            ]
        )
        assert table.schema.field("event_date").type == pa.date32()
        assert table.schema.field("country").type == pa.string()
        assert table.spec.spell(table._snapshot.head.schema) == ["event_date", "country"]
        scan = table.scan(where="event_date = '2025-12-11' AND country != 'FR'")
        assert [leaf.values for leaf in scan.plan().leaves] == [
            {"event_date": dt.date(2025, 12, 11), "country": "US"}
        ]
        assert table.version == 1

    def test_two_digits_are_a_number_where_the_schema_says_so(self, imported):
        schema = pa.schema([("id", pa.int64()), ("year", pa.int32()), ("month", pa.int8())])
        files = [("year=2024/month=01", ONE), ("year=2024/month=12", ONE)]
        table = imported(files, schema=schema)
        assert table.count("month = 1") == 1
        assert table.schema == schema

    def test_two_digits_stay_text_otherwise(self, imported):
        table = imported([("year=2024/month=01", ONE), ("year=2024/month=12", ONE)])
        assert table.schema.field("year").type == pa.int64()
        assert table.schema.field("month").type == pa.string()
        assert sorted(table.scan(["month"]).to_arrow()["month"].to_pylist()) == ["01", "12"]

    @pytest.mark.parametrize(
        ("texts", "type"),
        [
            (["1", "-5"], pa.int64()),
            (["1", "+5"], pa.string()),
            (["9223372036854775808"], pa.string()),
            (["2024-02-29", "__HIVE_DEFAULT_PARTITION__"], pa.date32()),
            (["2024-02-30"], pa.string()),
            (["2024-2-9"], pa.string()),
            (["1.5"], pa.string()),
            (["true"], pa.string()),
            (["__HIVE_DEFAULT_PARTITION__"], pa.string()),
            (["1", ""], pa.string()),
        ],
    )
    def test_a_type_is_inferred_where_nothing_is_lost(self, imported, texts, type):
        table = imported([(f"p={text}", ONE) for text in texts])
        assert table.schema.field("p").type == type
        assert table.count() == len(texts)

    @pytest.mark.parametrize(
        ("text", "type", "value"),
        [
            ("007", pa.int16(), 7),
            ("18446744073709551615", pa.uint64(), 2**64 - 1),
            ("TRUE", pa.bool_(), True),
            ("3.14", pa.float32(), pytest.approx(3.14)),
            ("Infinity", pa.float64(), float("inf")),
            ("1.5", pa.decimal128(5, 2), Decimal("1.50")),
            ("2024-01-01T10%3A30%3A00Z", pa.timestamp("us", "UTC"), None),
            ("2024-01-01%2010%3A30%3A00", pa.timestamp("us", "UTC"), None),
            ("2024-01-01 12:30:00+02:00", pa.timestamp("s", "UTC"), None),
            ("10%3A30%3A00", pa.time32("s"), dt.time(10, 30)),
        ],
    )
    def test_values_of_each_type(self, imported, text, type, value):
        schema = pa.schema([("id", pa.int64()), ("p", type)])
        table = imported([(f"p={text}", ONE)], schema=schema)
        if value is None:
            value = dt.datetime(2024, 1, 1, 10, 30, tzinfo=dt.UTC)
        assert table.scan().to_arrow()["p"].to_pylist() == [value]

    @pytest.mark.parametrize(
        ("text", "type"),
        [
            ("x", pa.int32()),
            ("1.5", pa.int32()),
            ("300", pa.int8()),
            ("", pa.int32()),
            ("yes", pa.bool_()),
            ("1.555", pa.decimal128(5, 2)),
            ("1e400", pa.float64()),
            ("2024-13-01", pa.date32()),
            ("a", pa.list_(pa.int8())),
        ],
    )
    def test_a_value_that_does_not_fit_is_refused(self, imported, tmp_path, text, type):
        schema = pa.schema([("id", pa.int64()), ("p", type)])
        with pytest.raises(phalanx.InvalidInput, match="does not fit the column 'p'"):
            imported([(f"p={text}", ONE)], schema=schema)
        assert not (tmp_path / "table").exists()

    def test_null_in_a_column_that_must_not_be_null(self, imported):
        schema = pa.schema([("id", pa.int64()), pa.field("p", pa.int32(), False)])
        with pytest.raises(phalanx.InvalidInput, match="must not be NULL"):
            imported([("p=__HIVE_DEFAULT_PARTITION__", ONE)], schema=schema)

    def test_values_in_the_path_count_where_files_store_the_column_too(self, imported):
        table = imported([("p=1", {"id": [1], "p": pa.array([2], pa.int16())})])
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "p": 1}]
        assert table.schema.field("p").type == pa.int16()


class TestFiles:
    def test_columns_come_and_go_between_files(self, imported):
        table = imported(
            [
                ("p=1", {"id": pa.array([1], pa.int32())}),
                ("p=2", {"id": pa.array([2**40], pa.int64()), "name": ["b"]}),
            ]
        )
        assert table.schema.field("id").type == pa.int64()
        assert sorted(table.scan().to_arrow().to_pylist(), key=str) == [
            {"id": 1, "p": 1, "name": None},
            {"id": 2**40, "p": 2, "name": "b"},
        ]

    def test_files_that_do_not_agree(self, imported):
        with pytest.raises(phalanx.InvalidInput, match=r"int64 in one file and string in .*p=2"):
            imported([("p=1", {"x": [1]}), ("p=2", {"x": ["a"]})])

    def test_a_schema_that_lacks_a_column(self, imported):
        with pytest.raises(phalanx.InvalidInput, match="no column 'id'"):
            imported([("p=1", ONE)], schema=pa.schema([("p", pa.int8())]))

    def test_a_schema_with_another_type(self, imported):
        schema = pa.schema([("id", pa.int8()), ("p", pa.string()), ("new", pa.string())])
        assert imported([("p=1", ONE)], schema=schema).schema == schema

    def test_a_value_that_the_schema_cannot_hold(self, imported):
        schema = pa.schema([("id", pa.int8()), ("p", pa.string())])
        with pytest.raises(phalanx.InvalidInput, match="column 'id' does not fit int8"):
            imported([("p=1", {"id": [300]})], schema=schema)

    def test_instants_of_the_oldest_kind(self, tmp_path):
        moments = [dt.datetime(1, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3, 456789)]
        moments.append(dt.datetime(9999, 12, 31))
        os.mkdir(tmp_path / "tree")
        pq.write_table(
            pa.table({"ts": pa.array(moments, pa.timestamp("us"))}),
            tmp_path / "tree" / "part-0.parquet",
            use_deprecated_int96_timestamps=True,
        )
        table = parquet.import_(tmp_path / "tree", tmp_path / "table")
        assert table.schema.field("ts").type == pa.timestamp("us", "UTC")
        assert table.scan().to_arrow()["ts"].to_pylist()[1] == moments[1].replace(tzinfo=dt.UTC)

    def test_hidden_files_are_skipped(self, tree, tmp_path):
        root = tree([("_p=1", ONE)])
        (root / "_SUCCESS").touch()
        (root / "_p=1" / ".part-1.parquet.tmp").write_bytes(b"half")
        (root / "_temporary").mkdir()
        (root / "_temporary" / "part-2.parquet").write_bytes(b"half")
        assert parquet.import_(root, tmp_path / "table").count() == 1

    def test_a_file_that_is_not_parquet(self, tree, tmp_path):
        root = tree([("p=1", ONE)])
        (root / "p=1" / "notes.txt").write_text("hello")
        with pytest.raises(phalanx.InvalidInput, match=r"notes.txt is no Parquet file"):
            parquet.import_(root, tmp_path / "table")

    def test_many_rows_in_little_memory(self, imported):
        rows = pa.table({"id": range(300_000)})
        table = imported([("p=1", rows), ("p=2", rows)], buffer_bytes=2**20)
        assert table.count_by(["p"]).to_pydict() == {"p": [1, 2], "count": [300_000, 300_000]}


class TestTrees:
    @pytest.mark.parametrize(
        "folders", [["p=1", "q=1"], ["p=1", "p=1/q=2"], ["p=1/q=1", "q=1/p=1"], ["p=1", ""]]
    )
    def test_folders_that_do_not_agree(self, imported, folders):
        with pytest.raises(phalanx.InvalidInput, match="do not agree on the partition columns"):
            imported([(folder, ONE) for folder in folders])

    @pytest.mark.parametrize("folder", ["2024/01", "p=1/inner", "=1"])
    def test_a_folder_that_names_no_partition(self, imported, folder):
        with pytest.raises(phalanx.InvalidInput, match="names no partition"):
            imported([(folder, ONE)])

    def test_a_column_twice_in_a_path(self, imported):
        with pytest.raises(phalanx.InvalidInput, match="twice in the path"):
            imported([("p=1/p=2", ONE)])

    def test_nothing_there(self, tmp_path):
        with pytest.raises(phalanx.InvalidInput, match="there is no folder"):
            parquet.import_(tmp_path / "nowhere", tmp_path / "table")
        (tmp_path / "empty").mkdir()
        with pytest.raises(phalanx.InvalidInput, match="no Parquet file"):
            parquet.import_(tmp_path / "empty", tmp_path / "table")

    def test_a_link_to_a_folder(self, tree, tmp_path):
        root = tree([("p=1", ONE)])
        (root / "p=2").symlink_to(root / "p=1")
        with pytest.raises(phalanx.InvalidInput, match="is a link"):
            parquet.import_(root, tmp_path / "table")

    def test_a_table_that_exists_stays(self, imported, tree, tmp_path):
        imported([("p=1", ONE)])
        with pytest.raises(phalanx.TableExists):
            parquet.import_(tmp_path / "tree", tmp_path / "table")
        assert phalanx.open(tmp_path / "table").version == 1

    def test_another_partitioning(self, imported):
        files = [(f"p={n}", {"id": range(10)}) for n in range(3)]
        table = imported(files, ["bucket(2, id)", "p"])
        assert len(table.partitions()) == 6
        assert table.count() == 30

    def test_trees_that_pyarrow_writes(self, tmp_path):
        rows = pa.table({"id": range(4), "p": ["a/b", "c d", None, "ü=%"]})
        ds.write_dataset(
            rows,
            tmp_path / "tree",
            format="parquet",
            partitioning=ds.partitioning(pa.schema([("p", pa.string())]), flavor="hive"),
        )
        table = parquet.import_(tmp_path / "tree", tmp_path / "table")
        assert same_rows(table.scan().to_arrow(), rows)

    def test_a_failure_leaves_no_table(self, imported, tmp_path, monkeypatch):
        monkeypatch.setattr("phalanx.transaction.failpoints._visits", {})
        monkeypatch.setenv("PHALANX_FAILPOINT", "write.files-written:raise:2")
        with pytest.raises(OSError, match="failpoint"):
            imported([("p=1", ONE), ("p=2", ONE)])
        monkeypatch.delenv("PHALANX_FAILPOINT")
        with pytest.raises(phalanx.TableNotFound):
            phalanx.open(tmp_path / "table")
        assert parquet.import_(tmp_path / "tree", tmp_path / "table").count() == 2
