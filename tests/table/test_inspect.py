import datetime as dt
import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import phalanx

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("country", pa.string())])
DAY = dt.date(2025, 12, 10)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    table = phalanx.create(tmp_path_factory.mktemp("looks"), SCHEMA, ["day", "bucket(2, country)"])
    table.append([{"id": 1, "day": DAY, "country": "US"}], transaction_id="first")
    table.append([{"id": 2, "day": DAY, "country": "US"}, {"id": 3, "day": None, "country": None}])
    return table


class TestPartitions:
    def test_fields_of_specs_that_have_leaves(self, tmp_path):
        table = phalanx.create(tmp_path, SCHEMA, ["country"])
        assert "country" in table.partitions().schema.names
        table.append([{"id": 1, "day": DAY, "country": "US"}])
        table.evolve_partitioning(["day"])
        assert table.partitions().schema.names[:4] == ["spec", "country", "day", "rows"]
        table.rewrite()
        assert table.partitions().schema.names[:3] == ["spec", "day", "rows"]

    def test_one_row_for_each_leaf(self, table):
        found = table.partitions()
        assert found.schema.names == [
            "spec",
            "day",
            "country_bucket",
            "rows",
            "bytes",
            "fragments",
            "version",
            "uri",
        ]
        assert found.schema.field("day").type == pa.date32()
        assert found.schema.field("version").type == pa.uint64()
        assert found["day"].to_pylist() == [None, DAY]
        assert found["rows"].to_pylist() == [1, 2]
        assert found["fragments"].to_pylist() == [1, 2]
        assert found["spec"].to_pylist() == [1, 1]
        assert min(found["bytes"].to_pylist()) > 0

    def test_each_can_be_opened(self, table):
        for leaf in table.partitions().to_pylist():
            assert lance.dataset(leaf["uri"], version=leaf["version"]).count_rows() == leaf["rows"]

    def test_a_table_without_fields(self, root):
        table = phalanx.create(root, SCHEMA)
        assert table.partitions().num_rows == 0
        table.append([{"id": 1}])
        assert table.partitions()["rows"].to_pylist() == [1]

    def test_a_field_that_is_called_like_one_of_our_columns(self, root):
        schema = pa.schema([("rows", pa.int64()), ("version", pa.string()), ("spec", pa.string())])
        table = phalanx.create(root, schema, schema.names)
        table.append([{"rows": 7, "version": "v1", "spec": "s"}])
        (found,) = table.partitions().to_pylist()
        assert [found[f"partition.{name}"] for name in schema.names] == [7, "v1", "s"]
        assert (found["rows"], found["spec"]) == (1, 1)


class TestSnapshots:
    def test_one_row_for_each_transaction(self, table):
        found = table.snapshots()
        assert found["version"].to_pylist() == [1, 2, 3]
        assert found["operation"].to_pylist() == ["create", "append", "append"]
        assert found["rows_added"].to_pylist() == [0, 1, 2]
        assert found["rows_removed"].to_pylist() == [0, 0, 0]
        assert found["leaves"].to_pylist() == [0, 1, 2]
        assert found["transaction_id"].to_pylist()[1] == "first"

    def test_times_rise(self, table):
        times = table.snapshots()["committed_at"].to_pylist()
        assert times == sorted(times)
        assert abs(times[-1] - dt.datetime.now(dt.UTC)) < dt.timedelta(hours=1)


class TestFiles:
    def test_one_row_for_each_file(self, table):
        found = table.files().to_pylist()
        assert len(found) == 3
        assert sum(file["rows"] for file in found) == 3
        assert all(file["deleted_rows"] == 0 for file in found)
        for file in found:
            path = Path(file["path"])
            assert path.stat().st_size == file["bytes"]
            assert path.is_relative_to(table.uri)

    def test_with_the_values_of_their_partition(self, table):
        days = [json.loads(file["partition"])["day"] for file in table.files().to_pylist()]
        assert sorted(days, key=str) == ["2025-12-10", "2025-12-10", None]

    def test_sizes_are_those_of_the_partitions(self, table):
        total = sum(file["bytes"] for file in table.files().to_pylist())
        assert total == sum(table.partitions()["bytes"].to_pylist())

    def test_an_empty_table(self, root):
        found = phalanx.create(root, SCHEMA).files()
        assert found.num_rows == 0
        assert "path" in found.schema.names
