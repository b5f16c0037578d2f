"""Columns of the manifest, their indexes, and what other clients read."""

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.storage.location import Location
from phalanx.storage.manifest import GUARD_KEY, ManifestVersion
from tests.table.damage import check, kinds, manifest, repair, rows


@pytest.mark.parametrize("key", ["schema", "partition_spec_v1", "phalanx.table_id"])
def test_the_tables_metadata(table, key):
    expected = rows(table)
    old = manifest(table).metadata[key]
    manifest(table).update_metadata({key: "{}"})
    assert kinds(check(table)) == {"copy-differs"}
    before = phalanx.open(table.uri).version
    assert [problem.where for problem in repair(table).mended] == [key]
    assert manifest(table).metadata[key] == old
    assert phalanx.open(table.uri).version == before
    assert rows(table) == expected


def test_the_guard(table):
    manifest(table).update_metadata({GUARD_KEY: "0"})
    assert kinds(check(table)) == {"guard-missing"}
    repair(table)
    assert manifest(table).metadata[GUARD_KEY] != "0"
    assert check(table).problems == []


def test_an_index_that_is_gone(table):
    assert check(table).problems == []
    ManifestVersion(Location(table.uri)).create_indexes()
    indexes = manifest(table).describe_indices()
    (name,) = [index.name for index in indexes if index.field_names == ["object_id"]]
    manifest(table).drop_index(name)
    report = check(table)
    assert report.ok
    assert [problem.kind for problem in report.problems] == ["index-missing"]
    repair(table)
    assert check(table).problems == []


class TestIndexesOfTheManifest:
    """They can be created again, so a table without them is slower and nothing else."""

    @pytest.mark.parametrize("damage", ["gone", "short", "garbage"])
    def test_lost(self, root, damage):
        table = phalanx.create(root, pa.schema([("id", pa.int64()), ("c", pa.string())]), ["c"])
        ManifestVersion(Location(root)).create_indexes()
        table.append([{"id": 1, "c": "a"}]).append([{"id": 2, "c": "b"}])
        for file in (root / "__manifest" / "_indices").rglob("*.*"):
            size = file.stat().st_size
            if damage == "gone":
                file.unlink()
            else:
                file.write_bytes(b"x" * (size // 2 if damage == "short" else size))
        assert phalanx.open(root, version=2).count() == 1
        assert phalanx.open(root).append([{"id": 3, "c": "a"}]).count() == 3
        assert phalanx.open(root).delete("c = 'b'") == 1
        report = phalanx.check(root)
        assert report.ok
        assert {(p.kind, p.where) for p in report.problems} >= {
            ("index-missing", "object_id"),
            ("index-missing", "sequence"),
        }
        repaired = phalanx.repair(root)
        assert [p.kind for p in repaired.mended] == ["index-missing"] * 2
        assert not repaired.unmended
        assert "index-missing" not in {p.kind for p in phalanx.check(root).problems}
        assert sorted(phalanx.open(root).scan().to_arrow()["id"].to_pylist()) == [1, 3]
        assert phalanx.open(root, version=3).count() == 2


def test_the_type_of_a_column(table):
    whole = manifest(table).to_table()
    index = whole.schema.names.index("base_objects")
    other = whole.set_column(index, "base_objects", pa.nulls(len(whole), pa.string()))
    lance.write_dataset(other, manifest(table).uri, mode="overwrite")
    assert {(p.kind, p.where) for p in check(table).damage} == {("column-type", "base_objects")}
    assert [problem.kind for problem in repair(table).unmended] == ["column-type"]
