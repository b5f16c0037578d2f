"""Manifests of other clients."""

import json

import lance
import pyarrow as pa
import pytest

import phalanx
from tests.conformance.appendices import (
    APPENDIX_A_BY_DATE,
    APPENDIX_A_BY_YEAR,
    APPENDIX_A_SCHEMA,
    DAY_1,
    DAY_2,
    SCHEMA,
    StockClient,
    row,
)


def make_leaf(folder, *batches):
    """A leaf as another client writes it: version 1 on main, then detached versions."""
    dataset = lance.write_dataset(batches[0], folder)
    versions = [dataset.version]
    for batch in batches[1:]:
        fragments = lance.fragment.write_fragments(batch, dataset)
        dataset = lance.LanceDataset.commit(
            dataset,
            lance.LanceOperation.Append(fragments),
            read_version=dataset.version,
            detached=True,
        )
        versions.append(dataset.version)
    return versions


def rows(*found):
    return pa.Table.from_pylist([row(*cells) for cells in found], schema=SCHEMA)


def write_foreign(root, *, strong=True):
    """Appendix C as another client would write it: no head row, names at random."""
    leaf_1 = "v1$k7m2n9p4q8r5s3t6$dataset"
    leaf_2 = "v2$e9f0g1h2i3j4k5l6$m7n8o9p0q1r2s3t4$dataset"
    folder_1, folder_2 = f"b4a3c2d1_{leaf_1}", f"aabbccdd_{leaf_2}"
    versions_1 = make_leaf(root / folder_1, rows((1, DAY_1, "CA")), rows((2, DAY_1, "US")))
    versions_2 = make_leaf(root / folder_2, rows((3, DAY_2, "US")))
    columns = ["object_id", "object_type", "location", "read_version"]
    fields = ["event_date", "event_year", "country"]
    cells = [
        ("v1", "namespace", None, None, None, None, None),
        ("v1$k7m2n9p4q8r5s3t6", "namespace", None, None, DAY_1, None, None),
        (leaf_1, "table", folder_1, None, DAY_1, None, None),
        (f"{leaf_1}$1", "table_version", None, versions_1[0], None, None, None),
        (f"{leaf_1}$2", "table_version", None, versions_1[1], None, None, None),
        ("v2", "namespace", None, None, None, None, None),
        ("v2$e9f0g1h2i3j4k5l6", "namespace", None, None, None, 2025, None),
        ("v2$e9f0g1h2i3j4k5l6$m7n8o9p0q1r2s3t4", "namespace", None, None, None, 2025, "US"),
        (leaf_2, "table", folder_2, None, None, 2025, "US"),
        (f"{leaf_2}$1", "table_version", None, versions_2[0], None, None, None),
    ]
    names = [*columns, *(f"partition_field_{field}" for field in fields)]
    schema = pa.schema(
        [
            *((name, pa.string()) for name in columns[:3]),
            ("read_version", pa.uint64()),
            ("partition_field_event_date", pa.date32()),
            ("partition_field_event_year", pa.int32()),
            ("partition_field_country", pa.string()),
        ]
    )
    found = [dict(zip(names, line, strict=True)) for line in cells]
    if not strong:
        found = [line for line in found if line["object_type"] != "table_version"]
    table = pa.Table.from_pylist(found, schema=schema)
    if not strong:
        table = table.drop_columns(["read_version"])
    table = table.append_column("metadata", pa.array(["{}"] * table.num_rows))
    dataset = lance.write_dataset(table, root / "__manifest")
    metadata = {
        "schema": json.dumps(APPENDIX_A_SCHEMA),
        "partition_spec_v1": json.dumps(APPENDIX_A_BY_DATE),
        "partition_spec_v2": json.dumps(APPENDIX_A_BY_YEAR),
    }
    lance.LanceDataset.commit(
        dataset,
        lance.LanceOperation.UpdateConfig(
            table_metadata_updates=lance.LanceOperation.UpdateMap(metadata)
        ),
        read_version=dataset.version,
    )


class TestForeignManifests:
    def test_the_newest_row_of_the_timeline_is_read(self, root):
        write_foreign(root)
        table = phalanx.open(root)
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
        assert [spec.id for spec in table.specs] == [1, 2]
        assert table.spec.id == 2
        # Nobody has proven the declared NOT NULL.
        assert table.schema == pa.schema([field.with_nullable(True) for field in SCHEMA])

    def test_it_is_pruned_across_specs(self, root):
        write_foreign(root)
        scan = phalanx.open(root).scan(where="event_date = '2025-12-10' AND country = 'US'")
        assert scan.plan().selected == 2, "the year of the second leaf is 2025 too"
        assert scan.to_arrow()["id"].to_pylist() == [2]
        assert scan.count() == 1
        assert phalanx.open(root).scan(where="event_date = '2024-12-10'").plan().selected == 0

    def test_without_read_versions_main_is_read(self, root):
        write_foreign(root, strong=False)
        table = phalanx.open(root)
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3]
        assert table.count() == 2
        (folder,) = root.glob("*_v2$*")
        lance.write_dataset(rows((4, DAY_2, "US")), folder, mode="append")
        assert sorted(phalanx.open(root).scan().to_arrow()["id"].to_pylist()) == [1, 3, 4]

    def test_it_is_only_read(self, root):
        write_foreign(root)
        before = lance.dataset(root / "__manifest").version
        with pytest.raises(phalanx.UnsupportedTable, match="another client"):
            phalanx.open(root).append([row(4, DAY_1, "US")])
        assert lance.dataset(root / "__manifest").version == before
        assert len(list(root.iterdir())) == 3

    def test_without_columns_of_partition_values(self, root):
        """The five columns that a namespace without partitions has: leaves cannot be told apart."""
        write_foreign(root, strong=False)
        dataset = lance.dataset(root / "__manifest")
        values = [name for name in dataset.schema.names if name.startswith("partition_field_")]
        dataset.drop_columns(values)
        dataset.add_columns({"base_objects": "CAST(NULL AS STRING)"})
        with pytest.raises(phalanx.UnsupportedTable) as error:
            phalanx.open(root).count()
        assert str(error.value) == (
            f"the table {root} was made by another client, and its manifest has no column "
            "partition_field_event_date, so the values of its partition field 'event_date' are not "
            "known: the Lance partitioning specification asks for this column, and its client must "
            "add it"
        )
        dataset.delete("object_type = 'table'")
        assert phalanx.open(root).count() == 0, "no leaf, so nothing is missing"

    def test_metadata_that_cannot_be_read(self, root):
        write_foreign(root)
        dataset = lance.dataset(root / "__manifest")
        for key, text in {"schema": "{", "partition_spec_v2": '{"id": 2}'}.items():
            updates = lance.LanceOperation.UpdateMap({key: text})
            lance.LanceDataset.commit(
                dataset,
                lance.LanceOperation.UpdateConfig(table_metadata_updates=updates),
                read_version=dataset.version,
            )
            with pytest.raises(phalanx.UnsupportedTable, match="its metadata cannot be read: "):
                phalanx.open(root)

    def test_the_stock_client_reads_it_too(self, root):
        """The hand-made manifest is one that stock clients accept."""
        write_foreign(root)
        client = StockClient(str(root))
        tables = ["$".join(t) for id in client.spaces() for t in client.tables(id)]
        leaves = phalanx.open(root).scan().plan().leaves
        assert sorted(tables) == sorted(leaf.row.object_id for leaf in leaves)
