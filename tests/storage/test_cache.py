"""Snapshots on disk: they save work, and never change an answer."""

import shutil

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.lru import LruCache
from phalanx.storage import cache
from phalanx.storage.leaf_index import LeafIndex
from phalanx.storage.manifest import ManifestVersion
from phalanx.transaction import commit, snapshot

SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string())])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache of its own that keeps small tables too, and a process without memory."""
    monkeypatch.setenv("PHALANX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "SMALLEST", 2)
    monkeypatch.setattr(snapshot, "_recent", LruCache(0))
    return tmp_path / "cache"


@pytest.fixture
def table(root):
    table = phalanx.create(root, SCHEMA, ["country"])
    add(table, "US", "CA", "DE")
    return table


def add(table, *countries):
    table.append([{"id": 1, "country": country} for country in countries])


def files(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def read_back(root):
    """The table as another process sees it."""
    return {row["country"]: row["rows"] for row in phalanx.open(root).partitions().to_pylist()}


class TestUse:
    def test_a_snapshot_is_kept(self, root, table, folder):
        assert phalanx.open(root).count() == 3
        (name,) = files(folder)
        assert name.endswith(".arrow")

    def test_and_used(self, root, table, monkeypatch):
        phalanx.open(root).count()

        def fail(*_):
            raise AssertionError("the manifest was read")

        monkeypatch.setattr(LeafIndex, "read", fail)
        table = phalanx.open(root)
        assert table.count() == 3
        assert table.version == 2
        assert sorted(table.scan().to_arrow()["country"].to_pylist()) == ["CA", "DE", "US"]

    def test_it_is_no_older_than_the_table(self, root, table):
        assert read_back(root) == {"US": 1, "CA": 1, "DE": 1}
        add(table, "US", "FR", None)
        assert read_back(root) == {"US": 2, "CA": 1, "DE": 1, "FR": 1, None: 1}
        table.delete("country = 'CA'")
        assert read_back(root) == {"US": 2, "DE": 1, "FR": 1, None: 1}

    @pytest.mark.parametrize("change", ["append", "delete"])
    def test_a_commit_that_changes_many_leaves_keeps_its_own(self, root, monkeypatch, change):
        """Otherwise the next process would read all leaves from the manifest."""
        monkeypatch.setattr(snapshot, "_MANY_LEAVES", 3)
        table = phalanx.create(root, SCHEMA, ["country"])
        add(table, *"abcdefgh")
        wanted = dict.fromkeys("abcdefgh", 1)
        if change == "delete":
            table.delete("country < 'e'")
            wanted = dict.fromkeys("efgh", 1)
        monkeypatch.setattr(LeafIndex, "read", None)
        monkeypatch.setattr(LeafIndex, "of_rows", None)
        assert read_back(root) == wanted
        assert phalanx.open(root).scan().to_arrow().num_rows == len(wanted)

    def test_also_one_that_updates_the_indexes_afterward(self, root, monkeypatch):
        monkeypatch.setattr(snapshot, "_MANY_LEAVES", 3)
        monkeypatch.setattr(commit, "_REINDEX_ROWS", 20)
        table = phalanx.create(root, SCHEMA, ["country"])
        add(table, *"abc")
        before = lance.dataset(root / "__manifest").version
        add(table, *"defghijklm")
        manifest = ManifestVersion(table._snapshot.location)
        assert manifest.version > before + 1
        _, leaves, is_current = cache.load(manifest)
        assert is_current
        assert len(leaves) == 13

    def test_a_commit_that_changes_a_few_does_not(self, root, folder, monkeypatch):
        monkeypatch.setattr(snapshot, "_MANY_LEAVES", 3)
        table = phalanx.create(root, SCHEMA, ["country"])
        add(table, *"abc")
        add(table, *"def")
        table.delete("country < 'c'")
        assert files(folder) == []

    def test_what_a_commit_keeps_is_what_the_manifest_holds(self, root, monkeypatch):
        monkeypatch.setattr(snapshot, "_MANY_LEAVES", 0)
        table = phalanx.create(root, SCHEMA, ["country"])
        add(table, *"hgfedcba", None)
        add(table, *"abxyz")
        table.delete("country IN ('a', 'x')")
        add(table, *"bcwz")
        manifest = table._snapshot.manifest
        head, leaves, is_current = cache.load(manifest)
        assert is_current
        assert head == manifest.head()
        assert leaves.table.to_pylist() == LeafIndex.read(manifest, head).table.to_pylist()

    def test_an_old_version_is_not_taken_for_the_newest(self, root, table):
        add(table, "FR", "US")
        assert phalanx.open(root, version=2).count() == 3
        assert phalanx.open(root).count() == 5
        assert phalanx.open(root, version=2).count() == 3
        assert phalanx.open(root, version=1).count() == 0

    def test_small_tables_are_not_worth_it(self, root, folder):
        table = phalanx.create(root, SCHEMA, ["country"])
        add(table, "US")
        assert phalanx.open(root).count() == 1
        assert files(folder) == []

    def test_it_can_be_turned_off(self, root, table, folder, monkeypatch):
        monkeypatch.setenv("PHALANX_CACHE", "off")
        assert phalanx.open(root).count() == 3
        assert files(folder) == []


class TestDoubt:
    def test_a_damaged_file_is_ignored(self, root, table, folder):
        phalanx.open(root).count()
        for name in files(folder):
            (folder / name).write_bytes(b"ARROW1 and no more")
        assert phalanx.open(root).count() == 3

    def test_a_folder_that_cannot_be_written(self, root, table, folder):
        folder.write_text("a file is in the way")
        assert phalanx.open(root).count() == 3

    @pytest.fixture(params=[0, 16], ids=["on disk", "in the process"], autouse=True)
    def memory(self, request, monkeypatch):
        """What a process remembers is doubted in the same way."""
        monkeypatch.setattr(snapshot, "_recent", LruCache(request.param))

    def test_another_table_in_the_same_place(self, root, table):
        assert phalanx.open(root).count() == 3
        shutil.rmtree(root)
        other = phalanx.create(root, SCHEMA, ["country"])
        add(other, "FR", "FR", "ES")
        assert read_back(root) == {"FR": 2, "ES": 1}

    def test_the_same_table_from_a_copy(self, root, table, tmp_path):
        """A copy goes back in history and on from there in another way."""
        shutil.copytree(root, tmp_path / "copy")
        add(table, "US", "US", "FR")
        assert read_back(root) == {"US": 3, "CA": 1, "DE": 1, "FR": 1}
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "copy", root)
        assert read_back(root) == {"US": 1, "CA": 1, "DE": 1}
        add(phalanx.open(root), "ES")
        assert read_back(root) == {"US": 1, "CA": 1, "DE": 1, "ES": 1}


class TestSize:
    def test_the_oldest_make_room(self, tmp_path, folder, monkeypatch):
        monkeypatch.setenv("PHALANX_CACHE_BYTES", "1")
        for name in ("a", "b", "c"):
            table = phalanx.create(tmp_path / name, SCHEMA, ["country"])
            add(table, "US", "CA")
            assert phalanx.open(tmp_path / name).count() == 2
        assert len(files(folder)) == 1

    def test_nothing_is_left_half_written(self, root, table, folder):
        phalanx.open(root).count()
        assert not [name for name in files(folder) if name.endswith(".tmp")]
