import datetime as dt
import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import phalanx
from phalanx import CorruptTable
from phalanx.model.schema import TableSchema
from phalanx.model.specs import build_spec
from phalanx.storage.leaf_index import LeafIndex
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.records import LeafRow

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("country", pa.string())])
DAY = dt.date(2025, 12, 10)


def read(root):
    manifest = ManifestVersion(Location(root))
    return LeafIndex.read(manifest, manifest.head())


@pytest.fixture
def table(root):
    table = phalanx.create(root, SCHEMA, ["year(day)", "country"])
    rows = [(1, DAY, "US"), (2, DAY, "CA"), (3, None, "US"), (4, dt.date(1969, 1, 1), None)]
    table.append([{"id": id, "day": day, "country": country} for id, day, country in rows])
    table.append([{"id": 5, "day": DAY, "country": "CA"}])
    return table


class TestReading:
    def test_leaves_are_in_the_order_of_their_values(self, root, table):
        leaves = read(root)
        keys = [leaves.row(i).keys for i in range(len(leaves))]
        assert keys == [(None, "US"), (1969, None), (2025, "CA"), (2025, "US")]

    def test_what_is_known_of_one(self, root, table):
        leaf = read(root).row(2)
        assert (leaf.keys, leaf.row_count, leaf.fragment_count, leaf.version_number) == (
            (2025, "CA"),
            2,
            2,
            2,
        )
        assert leaf.byte_count > 0
        assert leaf.read_version > 2**63
        assert leaf.location.endswith("_" + leaf.object_id)
        assert leaf.object_id == "$".join(["v1", *leaf.names, "dataset"])

    def test_counts(self, root, table):
        assert read(root).row_counts.tolist() == [1, 1, 2, 1]
        assert read(root).fragment_counts.tolist() == [1, 1, 2, 1]

    def test_a_table_without_rows_has_none(self, root):
        phalanx.create(root, SCHEMA, ["country"])
        leaves = read(root)
        assert len(leaves) == 0
        assert leaves.range_of(1) == (0, 0)
        assert leaves.row_counts.dtype == np.int64

    def test_a_table_without_fields_has_one(self, root):
        table = phalanx.create(root, SCHEMA)
        table.append([{"id": 1}])
        (leaf,) = [read(root).row(0)]
        assert (leaf.keys, leaf.object_id) == ((), "v1$dataset")

    def test_a_lost_column_is_told(self, root, table):
        head = ManifestVersion(Location(root)).head()
        ManifestVersion(Location(root)).dataset.drop_columns(["partition_field_country"])
        with pytest.raises(CorruptTable, match="lost the column partition_field_country"):
            LeafIndex.read(ManifestVersion(Location(root)), head)


class TestFinding:
    def test_by_all_values(self, root, table):
        leaves = read(root)
        for index in range(len(leaves)):
            assert leaves.find(table.spec, leaves.row(index).keys) == index

    def test_by_the_outermost(self, root, table):
        assert read(root).find(table.spec, (2025,)) == 2
        assert read(root).find(table.spec, ()) == 0

    @pytest.mark.parametrize("keys", [(2024, "US"), (2025, "DE"), (2025, None), (None, None)])
    def test_none(self, root, table, keys):
        assert read(root).find(table.spec, keys) is None

    def test_in_any_order_of_fields_and_specs(self):
        """Halving finds what a look at every leaf finds, also where a spec turns the order."""
        schema = TableSchema.assign(
            pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.int64())])
        )
        specs = [
            build_spec(number, fields, schema)
            for number, fields in enumerate([["a", "b"], ["c", "b", "a"], ["b"], []], 1)
        ]
        random = np.random.default_rng(3)
        values = {"a": [None, -1, 0, 7], "b": [None, "", "x", "é"], "c": [None, 5, 2**40]}
        leaves = set()
        for spec in specs:
            names = [field.field_id for field in spec.fields]
            for _ in range(25):
                leaves.add(
                    (spec.id, tuple(values[n][random.integers(len(values[n]))] for n in names))
                )
        found = made(leaves, specs)
        assert len(found) == len(leaves)
        for spec in specs:
            fields = [values[field.field_id] for field in spec.fields]
            own = [keys for id, keys in leaves if id == spec.id]
            for depth in range(len(fields) + 1):
                for keys in itertools.product(*fields[:depth]):
                    matching = [k for k in own if k[:depth] == keys]
                    assert len(found.find_all(spec, keys)) == len(matching)
                    index = found.find(spec, keys)
                    if index is None:
                        assert not matching
                    else:
                        row = found.row(index)
                        assert (row.spec_id, row.keys[:depth]) == (spec.id, keys)
                        assert found.holds(row)

    def test_the_same_leaf_elsewhere(self, root, table):
        leaves = read(root)
        row = leaves.row(2)
        assert leaves.holds(row)
        table.append([{"id": 9, "day": DAY, "country": "CA"}])
        assert not read(root).holds(row), "it has another version"
        table.append([{"id": 9, "day": None, "country": "AA"}])
        assert not read(root).holds(leaves.row(3)), "it has another place"
        assert not leaves.holds(None)
        assert not leaves.holds(replace(row, index=-1))
        assert not leaves.holds(replace(row, index=99))
        assert not leaves.holds(replace(row, read_version=None))


def made(leaves, specs):
    """Leaves with these specs and values, as if read from a manifest."""
    rows = [
        LeafRow(-1, f"v{id}$n{n}$dataset", f"f{n}", 2**63 + n, id, keys, 1, 1, 1, 1)
        for n, (id, keys) in enumerate(sorted(leaves, key=repr))
    ]
    types = {"object_id": pa.string(), "location": pa.string(), "spec_id": pa.int32()}
    types |= {"read_version": pa.uint64()}
    types |= {
        n: pa.int64() for n in ("version_number", "row_count", "byte_count", "fragment_count")
    }
    fields = {field.column_name: field.result_type for spec in specs for field in spec.fields}
    empty = pa.schema([*types.items(), *fields.items()]).empty_table()
    return LeafIndex._sorted(empty, specs).apply(rows)


class TestColumns:
    def test_values_and_codes(self, root, table):
        column = read(root).column("partition_field_country")
        assert column.values.to_pylist() == ["CA", "US"]
        assert column.codes.tolist() == [1, -1, 0, 1]
        assert column.arrow().to_pylist() == ["US", None, "CA", "US"]

    def test_of_a_spec(self, root, table):
        columns = read(root).columns_of(table.spec)
        assert list(columns) == ["day_year", "country"]
        assert columns["day_year"].numbers().tolist() == [0, 1969, 2025, 2025]
