import dataclasses
import datetime as dt
import shutil

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import CorruptTable, InvalidInput, TableExists, TableNotFound
from phalanx.model.schema import TableSchema
from phalanx.model.specs import build_spec
from phalanx.storage import manifest
from phalanx.storage.head import Head
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion, SwapLost
from phalanx.storage.manifest_update import NAMESPACE, ManifestUpdate
from phalanx.transaction.commit import first_update

NOW = dt.datetime(2025, 12, 10, tzinfo=dt.UTC)


SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string())])


@pytest.fixture
def location(root):
    phalanx.create(root, SCHEMA, ["country"])
    return Location(root)


@pytest.fixture
def head(location):
    return ManifestVersion(location).head()


def new_head():
    schema = TableSchema.assign(SCHEMA)
    return Head.first(schema, build_spec(1, ["country"], schema), NOW, "strong")


def next_rows(head, *namespaces, removed=()):
    """What a transaction writes that adds some namespaces and removes others."""
    update = ManifestUpdate(head.specs)
    for id in namespaces:
        update.put(id, NAMESPACE, {}, {"country": id})
    update.put_head(dataclasses.replace(head, sequence=head.sequence + 1))
    update.remove(removed)
    return update


def ids(location, type="namespace"):
    found = ManifestVersion(location)._read(["object_id"], f"object_type = '{type}'")
    return sorted(found.column("object_id").to_pylist())


class TestRows:
    def test_partition_values_are_typed(self, head):
        rows = ManifestUpdate(head.specs)
        rows.put("v1$a", NAMESPACE, {"partition.country": "ü"}, {"country": "ü"})
        (found,) = rows.to_table().to_pylist()
        assert found["partition_field_country"] == "ü"
        assert found["metadata"] == '{"partition.country": "ü"}'

    def test_a_row_that_is_added_again_replaces_the_first(self, head):
        rows = ManifestUpdate(head.specs)
        rows.put("v1$a", NAMESPACE)
        rows.put("v1$a", NAMESPACE, {"x": "y"})
        assert len(rows) == 1
        assert rows.to_table()["metadata"].to_pylist() == ['{"x": "y"}']


class TestCreate:
    def test_it_can_be_read_at_once(self, root):
        location, head = Location(root), new_head()
        manifest.create(location, head, first_update(head))
        found = ManifestVersion(location)
        assert found.head() == head
        assert found.table_id == head.table_id
        assert ids(location) == ["v1"]

    def test_the_guard_is_set(self, location):
        flags = ManifestVersion(location).metadata["lance.namespace.manifest.writer_feature_flags"]
        assert int(flags) != 0

    def test_a_second_one_is_refused(self, location, head):
        before = ManifestVersion(location).version
        with pytest.raises(TableExists, match="already a table"):
            manifest.create(location, head, first_update(head))
        assert ManifestVersion(location).version == before

    def test_of_two_creators_one_wins(self, location, head, monkeypatch):
        """Both have looked and found nothing; the second to commit is told so."""
        looks = iter([False, True])
        monkeypatch.setattr(manifest, "exists", lambda _: next(looks))
        before = ManifestVersion(location).version
        other = new_head()
        with pytest.raises(TableExists):
            manifest.create(location, other, first_update(other))
        found = ManifestVersion(location)
        assert (found.version, found.head()) == (before, head)

    def test_a_file_is_in_the_way(self, root):
        root.write_text("not a folder")
        with pytest.raises(TableExists, match="is a file"):
            manifest.create(Location(root), new_head(), first_update(new_head()))

    def test_a_file_is_further_up_the_way(self, root):
        root.write_text("not a folder")
        with pytest.raises(TableExists, match="is a file"):
            manifest.create(Location(root / "inside"), new_head(), first_update(new_head()))

    def test_what_cannot_be_read_is_not_replaced(self, location, head):
        for file in (location.path / "__manifest" / "_versions").iterdir():
            file.write_bytes(b"damaged")
        with pytest.raises(CorruptTable, match="cannot read the manifest"):
            manifest.create(location, head, first_update(head))


class TestOpening:
    def test_where_there_is_nothing(self, root):
        with pytest.raises(TableNotFound, match=r"there is no table at .*phalanx\.create"):
            ManifestVersion(Location(root))

    def test_where_there_is_a_file(self, root):
        root.write_text("not a folder")
        with pytest.raises(TableNotFound):
            ManifestVersion(Location(root))

    def test_a_version_that_is_gone(self, location):
        with pytest.raises(TableNotFound, match="version 99"):
            ManifestVersion(location, 99)

    def test_a_store_that_nobody_knows(self):
        with pytest.raises(InvalidInput, match="cannot reach foo://lake/t"):
            ManifestVersion(Location("foo://lake/t"))

    def test_a_plain_dataset_is_no_table(self, root):
        lance.write_dataset(pa.table({"a": [1]}), root / "__manifest")
        with pytest.raises(TableNotFound, match="no Lance namespace"):
            ManifestVersion(Location(root)).head()

    def test_a_namespace_without_specs_is_no_table(self, root):
        rows = {"object_id": ["a"], "object_type": ["table"], "metadata": ["{}"]}
        lance.write_dataset(pa.table(rows), root / "__manifest")
        with pytest.raises(TableNotFound, match="no partitioned table"):
            ManifestVersion(Location(root)).head()

    def test_two_heads_are_one_too_many(self, location, head):
        rows = next_rows(head).to_table()
        lance.write_dataset(rows, location.manifest, mode="append")
        with pytest.raises(CorruptTable, match="2 head rows: run check"):
            ManifestVersion(location).head()


class TestCache:
    """What Lance has read is used again only for the very same manifest."""

    def test_it_goes_from_version_to_version(self, location, head):
        base = ManifestVersion(location)
        after = base.swap(next_rows(head, "v1$a"))
        assert after._cache is base._cache
        assert ManifestVersion(location, known=after)._cache is base._cache
        assert ManifestVersion(location)._cache is not base._cache

    def test_not_to_a_table_that_was_restored(self, location, head, tmp_path):
        base = ManifestVersion(location)
        shutil.copytree(location.uri, tmp_path / "backup")
        known = base.swap(next_rows(head, "v1$a"))
        shutil.rmtree(location.uri)
        shutil.copytree(tmp_path / "backup", location.uri)
        assert ManifestVersion(location, known=base)._cache is not base._cache
        ManifestVersion(location).swap(next_rows(head, "v1$b"))
        again = ManifestVersion(location, known=known)
        assert (again.version, again._cache is known._cache) == (known.version, False)
        assert ids(location) == ["v1", "v1$b"]
        assert again._read(["object_id"], "object_id = 'v1$b'").num_rows == 1

    def test_not_where_files_cannot_be_told_apart(self, location, monkeypatch):
        monkeypatch.setattr(manifest, "_file_identity", lambda *_: None)
        base = ManifestVersion(location)
        assert ManifestVersion(location, known=base)._cache is not base._cache


class TestSwap:
    def test_rows_are_added_and_the_head_replaced(self, location, head):
        base = ManifestVersion(location)
        after = base.swap(next_rows(head, "v1$a"))
        assert ids(location) == ["v1", "v1$a"]
        assert after.head().sequence == 2
        assert after.version == ManifestVersion(location).version
        assert len(ids(location, "__head")) == 1

    def test_the_handle_stays_where_it_was(self, location, head):
        base = ManifestVersion(location)
        base.swap(next_rows(head, "v1$a"))
        assert base.head().sequence == 1
        assert base._read(["object_id"], "object_type = 'namespace'").num_rows == 1

    def test_a_stale_one_loses_whole(self, location, head):
        base, same = ManifestVersion(location), ManifestVersion(location)
        base.swap(next_rows(head, "v1$a"))
        with pytest.raises(SwapLost):
            same.swap(next_rows(head, "v1$b", "v1$c"))
        assert ids(location) == ["v1", "v1$a"]

    def test_rows_can_be_removed_in_the_same_swap(self, location, head):
        ManifestVersion(location).swap(next_rows(head, "v1$a", "v1$b"))
        base = ManifestVersion(location)
        base.swap(next_rows(base.head(), "v1$c", removed=["v1$a"]))
        assert ids(location) == ["v1", "v1$b", "v1$c"]

    def test_a_lost_column_is_told(self, location, head):
        lance.dataset(location.manifest).drop_columns(["partition_field_country"])
        with pytest.raises(CorruptTable, match="lost the columns partition_field_country"):
            ManifestVersion(location).swap(next_rows(head, "v1$a"))

    def test_it_collides_with_a_compaction_and_passes_afterwards(self, location):
        for name in ("v1$a", "v1$b"):
            base = ManifestVersion(location)
            base.swap(next_rows(base.head(), name))
        base = ManifestVersion(location)
        lance.dataset(location.manifest).optimize.compact_files()
        with pytest.raises(SwapLost):
            base.swap(next_rows(base.head(), "v1$c"))
        ManifestVersion(location).swap(next_rows(base.head(), "v1$c"))
        assert ids(location) == ["v1", "v1$a", "v1$b", "v1$c"]


class TestVersions:
    def test_they_rise(self, location, head):
        ManifestVersion(location).swap(next_rows(head))
        versions = ManifestVersion(location).versions()
        assert versions == sorted(versions)
        assert versions[-1] == ManifestVersion(location).version


def test_more_changes_than_are_asked_for_are_not_parsed(root, monkeypatch):
    table = phalanx.create(root, SCHEMA, ["country"])
    first = ManifestVersion(Location(root)).head()
    for number in range(3):
        table.append([{"id": number, "country": "CA"}])
    newest = ManifestVersion(Location(root))
    changes = newest.changes_since(first, ["object_id"], most=3)
    assert [record.sequence for record in changes.transactions] == [2, 3, 4]
    monkeypatch.setattr(manifest, "_transaction_of", None)
    assert newest.changes_since(first, ["object_id"], most=2) is None


def test_a_table_whose_creation_was_cut_short_can_be_opened(root, monkeypatch):
    """The commit landed, the copy of schema and specs for other clients did not."""

    def fail(*_):
        raise OSError("the network is down")

    monkeypatch.setattr(manifest, "_publish", fail)
    phalanx.create(root, SCHEMA, ["country"])
    table = phalanx.open(root)
    table.append([{"id": 1, "country": "US"}])
    assert phalanx.open(root).count() == 1
