"""Changes to columns that the table is partitioned by."""

import datetime as dt

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.transaction import commit
from phalanx.transaction.snapshot import Snapshot
from tests.table.operations.evolve.columns import (
    ROWS,
    SCHEMA,
    ids,
    leaves,
    row,
)


class TestPartitionSources:
    def test_rename(self, table):
        table.rename_column("part", "land")
        plan = table.scan(where="land = 'a'").plan()
        assert (plan.selected, plan.leaves[0].residual) == (1, None)
        table.append([{"id": 4, "land": "b"}])
        assert ids(table, "land = 'b'") == [2, 4]
        assert table.partitions().num_rows == 3
        assert table.count_by(["land"])["count"].to_pylist() == [1, 1, 2]
        assert table.spec.spell(table._snapshot.head.schema) == ["land"]

    def test_a_dropped_one_counts_as_null(self, table):
        table.drop_column("part")
        assert ids(table) == [1, 2, 3]
        table.append([{"id": 4}, {"id": 5}])
        found = {r["part"]: r["rows"] for r in table.partitions().to_pylist()}
        assert found == {None: 3, "a": 1, "b": 1}
        assert ids(table) == [1, 2, 3, 4, 5]
        assert table.delete("id IN (1, 4)") == 2
        assert table.update({"f": "0"}, "id = 2") == 1
        assert {r["part"]: r["rows"] for r in table.partitions().to_pylist()} == {None: 3}
        assert table.count_by(["part"]).to_pylist() == [{"part": None, "count": 3}]
        with pytest.raises(InvalidInput, match="was dropped"):
            table.count_by(["part"], "id > 2")
        assert "dropped column" in repr(table)
        assert table.check().ok

    def test_a_dropped_one_in_several_specs(self, root):
        table = phalanx.create(root, SCHEMA, ["multi_bucket(4, id, part)"])
        table.append(ROWS)
        table.evolve_partitioning([phalanx.expr("upper(col0)", ["part"], name="big"), "day"])
        table.append([row(4)])
        table.drop_column("part")
        table.append([{"id": 5, "day": dt.date(2025, 1, 4)}])
        assert ids(table) == [1, 2, 3, 4, 5]
        assert ids(table, "day = DATE '2025-01-04'") == [4, 5]
        assert table.partitions()["big"].to_pylist().count("A") == 1
        assert table.check().ok

    def test_another_by_its_name(self, table):
        table.drop_column("part").add_column("part", pa.string(), default="z")
        assert ids(table, "part = 'a'") == []
        assert ids(table, "part = 'z'") == [1, 2, 3]
        table.evolve_partitioning(["part"])
        assert [f.field_id for f in table.spec.fields] == ["part_2"]
        table.append([row(4, "a")])
        assert ids(table, "part = 'a'") == [4]
        assert table.check().ok

    @pytest.mark.parametrize("entry", ["id", "truncate(2, id)", "bucket(4, id)"])
    def test_wider(self, root, entry):
        table = phalanx.create(root, SCHEMA, [entry]).append(ROWS)
        before = leaves(table)
        table.change_type("id", pa.int64())
        assert leaves(table) == before
        table.append([row(1), row(2), {"id": 2**40}])
        assert len(leaves(table)) <= len(before) + 1, "values are where they were"
        for id in (1, 2, 3, 2**40):
            assert set(ids(table, f"id = {id}")) == {id}
            assert table.scan(where=f"id = {id}").plan().selected == 1
        if entry != "bucket(4, id)":
            name = table.spec.fields[0].column_name
            manifest = lance.dataset(f"{table.uri}/__manifest")
            assert manifest.schema.field(name).type == pa.int64()
        assert table.check().ok
        assert phalanx.open(root, version=2).count("id = 2") == 1

    @pytest.mark.parametrize("values", [[], [None], [None, 1]], ids=["none", "null", "some"])
    def test_wider_and_readable_all_the_time(self, root, monkeypatch, values):
        """Also where the manifest's column has no value: without the column nobody can read."""
        table = phalanx.create(root, SCHEMA, ["id"])
        if values:
            table.append([{"id": value, "part": "a"} for value in values])
        table.evolve_partitioning(["id", "bucket(4, part)"])
        dropped, seen, real, drop = [], [], commit.reach, lance.LanceDataset.drop_columns

        def recording(self, names):
            dropped.extend(names)
            return drop(self, names)

        monkeypatch.setattr(lance.LanceDataset, "drop_columns", recording)

        def with_a_reader(name):
            if name == "commit.columns-added":
                found = Snapshot(ManifestVersion(Location(root)))
                seen.append((found.head.schema.arrow.field("id").type, len(found.leaves)))
            real(name)

        monkeypatch.setattr(commit, "reach", with_a_reader)
        table.change_type("id", pa.int64())
        assert seen == [(pa.int32(), len(values))]
        assert not dropped
        table.append([{"id": 2**40, "part": "a"}])
        assert table.count() == len(values) + 1
        assert table.check().ok

    @pytest.mark.parametrize("version", [2, 4])
    def test_wider_floats_and_back(self, root, version):
        table = phalanx.create(root, SCHEMA, ["f"])
        table.append([row(1, f=0.1), row(2, f=float("nan")), row(3, f=None), row(4, f=-0.0)])
        table.change_type("f", pa.float64())
        table.append([row(1, f=0.1), row(6, f=0.0)])
        # A tenth in 32 bits is not a tenth in 64: two partitions.
        assert table.partitions().num_rows == 5
        assert ids(table, "f = 0.1") == [1]
        assert ids(table, "f = 0") == [4, 6]
        table.rollback(version)
        table.append([row(5, f=0.5)])
        assert ids(table, "f = 0") == ([4] if version == 2 else [4, 6])
        assert ids(table, "f = 0.5") == [5]
        assert table.scan(where="f = 0.5").plan().selected == 1
        table.append([row(7, f=0.5)])
        assert table.count("f = 0.5") == 2
        assert table.check().ok

    def test_wider_in_a_transaction_with_rows(self, root):
        table = phalanx.create(root, SCHEMA, ["f", "id"]).append([row(1, f=0.1)])
        with table.transaction() as tx:
            tx.append([row(1, f=0.1), row(2, f=0.1), row(3, f=None)])
            tx.change_type("f", pa.float64())
            tx.change_type("id", pa.int64())
            tx.append([row(1, f=0.1), {"id": 2**40, "f": 0.5}])
            assert tx.count("f = 0.5") == 1
        assert table.partitions().num_rows == 5
        assert sorted(r["rows"] for r in table.partitions().to_pylist()) == [1, 1, 1, 1, 2]
        assert ids(table, "f = 0.1") == [1]
        assert ids(table, "f > 0.1 AND f < 0.2") == [1, 1, 2]
        assert ids(table, "f = 0.5") == [2**40]
        assert table.check().ok

    def test_a_date_cannot_become_a_timestamp(self, root):
        table = phalanx.create(root, SCHEMA, ["day"])
        table.evolve_partitioning(["part"])
        with pytest.raises(InvalidInput, match="belong elsewhere"):
            table.change_type("day", pa.timestamp("us"))

    def test_evolve_after_a_rename(self, table):
        table.rename_column("part", "land")
        table.evolve_partitioning(["land", "id"])
        assert [f.field_id for f in table.spec.fields] == ["part", "id"]
        table.append([{"id": 4, "land": "a"}])
        assert table.scan(where="land = 'a'").plan().selected == 2
