"""The leaves of one write: the first is created by Lance, the others share its files."""

import datetime as dt
import errno
import os
import shutil
from decimal import Decimal

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.model.schema import TableSchema
from phalanx.storage import leaf as leaf_module
from phalanx.storage import new_leaves
from phalanx.storage.files import FIRST_FILE
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.location import Location
from phalanx.storage.main_branch import MainBranch
from phalanx.storage.new_leaves import NewLeaves

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64())])


def made(root, count, first=0):
    """New leaves, each with one row, and their versions."""
    schema = TableSchema.assign(SCHEMA, first)
    creator, leaves = NewLeaves(), []
    for number in range(count):
        leaf = Leaf(Location(root), f"{number:08x}_v1$n{number:015}$dataset", schema)
        written = creator.create(leaf).write(pa.table({"id": [number], "part": [0]}, SCHEMA))
        leaves.append((leaf, leaf.commit(None, LeafDelta(added=(written,)))))
    return leaves


def links(leaf):
    folder = os.path.join(leaf.uri, "_versions")
    return max(os.stat(os.path.join(folder, name)).st_nlink for name in os.listdir(folder))


@pytest.fixture(params=[0, 7], ids=["ids from 0", "ids from 7"])
def leaves(request, tmp_path):
    return made(tmp_path, 5, request.param)


def test_they_hold_their_rows(leaves):
    for number, (leaf, version) in enumerate(leaves):
        assert leaf.open(version).to_table()["id"].to_pylist() == [number]
        assert leaf.is_current(leaf.open(version))
        assert lance.dataset(leaf.uri).count_rows() == 0
        assert lance.dataset(leaf.uri).version == 1
    assert {links(leaf) for leaf, _ in leaves} == {5}


def test_plain_lance_reads_and_writes_them(leaves):
    for number, (leaf, version) in enumerate(leaves):
        assert lance.dataset(leaf.uri).read_transaction(1) is not None
        assert MainBranch(leaf.location, leaf.folder).publish(version) == []
        rows = pa.table({"id": [100], "part": [0]}, SCHEMA)
        dataset = lance.write_dataset(rows, leaf.uri, mode="append")
        assert dataset.to_table()["id"].to_pylist() == [number, 100]
    # Cleaning up one of them leaves the others alone.
    lance.dataset(leaves[0][0].uri).cleanup_old_versions(delete_unverified=True)
    assert [lance.dataset(leaf.uri, version=1).count_rows() for leaf, _ in leaves[1:]] == [0] * 4


def test_the_first_may_go(leaves):
    shutil.rmtree(leaves[0][0].uri)
    assert [leaf.count(version, None) for leaf, version in leaves[1:]] == [1] * 4


def test_without_links(tmp_path, monkeypatch):
    tried = []

    def refuse(*_):
        tried.append(1)
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    leaves = made(tmp_path, 4)
    assert [leaf.count(version, None) for leaf, version in leaves] == [1] * 4
    assert len(tried) == 1  # it is not tried again
    assert {links(leaf) for leaf, _ in leaves} == {1}


def test_a_leaf_that_exists_is_used(tmp_path):
    leaves = made(tmp_path, 3)
    again = made(tmp_path, 4)
    assert [leaf.count(version, None) for leaf, version in leaves + again] == [1] * 7


def test_an_empty_folder_that_somebody_left_is_used(tmp_path):
    (tmp_path / f"{1:08x}_v1$n{1:015}$dataset" / "_versions").mkdir(parents=True)
    assert [leaf.count(version, None) for leaf, version in made(tmp_path, 3)] == [1] * 3


def test_files_have_a_limited_number_of_links(tmp_path, monkeypatch):
    monkeypatch.setattr(new_leaves, "_MOST_LINKS", 2)
    assert [links(leaf) for leaf, _ in made(tmp_path, 7)] == [3, 3, 3, 3, 3, 3, 1]


class TestAlike:
    """Leaves that get the same number of rows are written by one call of Lance."""

    ROWS = (
        pa.table({"id": [1, None, 3], "part": [-0.0, float("nan"), None]}),
        pa.table({"text": ["a", None, "long " * 300], "day": [dt.date(2024, 1, 2)] * 3}),
        pa.table({"s": [{"a": 1, "b": ["x", "y"]}, None], "d": [Decimal("1.50"), None]}),
        pa.table({"v": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "m": [True]}),
        pa.table({"e": pa.array(["x", "y", "x"]).dictionary_encode()}),
        pa.table({"nothing": pa.nulls(2, pa.string())}),
    )

    @pytest.fixture
    def calls(self, monkeypatch):
        """How many files each call of Lance has written."""
        made, write = [], leaf_module.write_fragments

        def counted(*args, **options):
            fragments = write(*args, **options)
            made.append(len(fragments))
            return fragments

        monkeypatch.setattr(leaf_module, "write_fragments", counted)
        return made

    def leaves(self, root, schema, count):
        schema = TableSchema.assign(schema)
        folders = [f"{number:08x}_v1$n{number:015}$dataset" for number in range(count)]
        return [Leaf(Location(root), folder, schema) for folder in folders]

    def files(self, leaf):
        return [path.read_bytes() for path in leaf.location.path.glob(f"{leaf.folder}/data/*")]

    @pytest.mark.parametrize("rows", ROWS, ids=lambda rows: rows.schema.names[0])
    def test_their_files_are_as_if_each_was_written_alone(self, tmp_path, rows, calls):
        every = pa.concat_tables([rows] * 5)
        leaves = self.leaves(tmp_path / "together", rows.schema, 5)
        written = NewLeaves().write_alike(leaves, every)
        assert calls == [1, 4]  # the first is created by Lance
        creator = NewLeaves()
        for leaf, files, alone in zip(
            leaves, written, self.leaves(tmp_path / "alone", rows.schema, 5), strict=True
        ):
            creator.create(alone).write(rows)
            assert self.files(leaf) == self.files(alone)
            version = leaf.commit(None, LeafDelta(added=(files,)))
            stored = lance.dataset(leaf.uri, version=version).to_table()
            assert str(stored.to_pylist()) == str(rows.to_pylist())
            assert (files.rows, files.file_count) == (rows.num_rows, 1)

    def test_each_gets_its_own(self, tmp_path, calls):
        rows = pa.table({"id": range(3_000), "part": range(3_000)}, SCHEMA)
        leaves = self.leaves(tmp_path, SCHEMA, 1_000)
        for number, (leaf, files) in enumerate(
            zip(leaves, NewLeaves().write_alike(leaves, rows), strict=True)
        ):
            version = leaf.commit(None, LeafDelta(added=(files,)))
            assert leaf.open(version).to_table().equals(rows.slice(number * 3, 3))
        assert calls == [1, 999]

    def test_one_that_another_writer_creates_is_written_alone(self, tmp_path, calls):
        leaves = self.leaves(tmp_path, SCHEMA, 5)
        leaves[0].create()
        leaves[3].create()
        rows = pa.table({"id": range(10), "part": [0] * 10}, SCHEMA)
        written = NewLeaves().write_alike(leaves, rows)
        versions = [
            leaf.commit(None, LeafDelta(added=(files,)))
            for leaf, files in zip(leaves, written, strict=True)
        ]
        ids = [
            leaf.open(version).to_table()["id"].to_pylist()
            for leaf, version in zip(leaves, versions, strict=True)
        ]
        assert ids == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
        assert [len(self.files(leaf)) for leaf in leaves] == [1] * 5

    def test_without_links_each_is_written_alone(self, tmp_path, monkeypatch, calls):
        def refuse(*_):
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", refuse)
        leaves = self.leaves(tmp_path, SCHEMA, 3)
        rows = pa.table({"id": range(3), "part": [0] * 3}, SCHEMA)
        for number, (leaf, files) in enumerate(
            zip(leaves, NewLeaves().write_alike(leaves, rows), strict=True)
        ):
            version = leaf.commit(None, LeafDelta(added=(files,)))
            assert leaf.open(version).to_table()["id"].to_pylist() == [number]
        assert calls == [1] * 3

    def test_files_that_cannot_be_moved_are_written_again(self, tmp_path, monkeypatch, calls):
        """Folders may have quotas of their own, and a vacuum with force may delete a new file."""
        rename = os.rename

        def refuse(source, target):
            if f"{2:015}" in target:
                raise OSError(errno.EXDEV, "another quota")
            if f"{4:015}" in target:
                os.remove(source)
            rename(source, target)

        monkeypatch.setattr(os, "rename", refuse)
        leaves = self.leaves(tmp_path, SCHEMA, 6)
        rows = pa.table({"id": range(6), "part": [0] * 6}, SCHEMA)
        written = NewLeaves().write_alike(leaves, rows)
        for number, (leaf, files) in enumerate(zip(leaves, written, strict=True)):
            version = leaf.commit(None, LeafDelta(added=(files,)))
            assert leaf.open(version).to_table()["id"].to_pylist() == [number]
        assert calls == [1, 5, 1, 1]

    def test_more_leaves_than_a_file_has_links(self, tmp_path, monkeypatch):
        monkeypatch.setattr(new_leaves, "_MOST_LINKS", 2)
        leaves = self.leaves(tmp_path, SCHEMA, 9)
        rows = pa.table({"id": range(9), "part": [0] * 9}, SCHEMA)
        written = NewLeaves().write_alike(leaves, rows)
        for number, (leaf, files) in enumerate(zip(leaves, written, strict=True)):
            version = leaf.commit(None, LeafDelta(added=(files,)))
            assert leaf.open(version).to_table()["id"].to_pylist() == [number]
        assert max(links(leaf) for leaf in leaves) <= 3


class TestRights:
    """A file that is linked or moved keeps the rights that it had elsewhere."""

    def test_a_group_that_files_inherit(self, tmp_path):
        plain, shared = tmp_path / "plain", tmp_path / "shared"
        plain.mkdir()
        shared.mkdir()
        shared.chmod(0o2770)
        assert new_leaves._rules(str(plain)).group is None
        assert new_leaves._rules(str(shared)).group == shared.stat().st_gid
        assert new_leaves._rules(str(shared / "k=1")) == new_leaves._rules(str(shared))

    def test_a_default_acl(self, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "getxattr", lambda path, name: path.encode(), raising=False)
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        assert new_leaves._rules(str(tmp_path / "a")) != new_leaves._rules(str(tmp_path / "b"))

    def test_only_leaves_with_the_same_rights_share_files(self, root, monkeypatch):
        real = new_leaves._rules

        def rules(folder):
            tenant = next((name for name in ("k=1", "k=2") if f"/{name}" in folder), None)
            return real(folder)._replace(acl=tenant and tenant.encode())

        monkeypatch.setattr(new_leaves, "_rules", rules)
        schema = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("c", pa.int64())])
        table = phalanx.create(root, schema, ["k", "c"], layout="hive")
        moved, rename = [], os.rename
        monkeypatch.setattr(os, "rename", lambda *paths: moved.append(paths) or rename(*paths))
        table.append([{"id": n, "k": 1 + n % 2, "c": n} for n in range(40)])
        assert moved
        for source, target in moved:
            assert ("/k=1/" in source) == ("/k=1/" in target)
        firsts = {}
        for path in root.rglob(FIRST_FILE):
            tenant = path.relative_to(root).parts[0]
            if tenant.startswith("k="):
                firsts.setdefault(path.stat().st_ino, set()).add(tenant)
        assert len(firsts) == 2
        assert all(len(tenants) == 1 for tenants in firsts.values())
        assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(40))

    def test_a_folder_that_was_there_is_not_shared(self, tmp_path, monkeypatch):
        """Somebody has prepared it for one partition, perhaps with rights of its own."""
        real = new_leaves._rules
        prepared = f"{0:08x}_v1$n{0:015}$dataset"
        (tmp_path / prepared).mkdir()

        def rules(folder):
            return real(folder)._replace(acl=b"own" if folder.endswith(prepared) else None)

        monkeypatch.setattr(new_leaves, "_rules", rules)
        leaves = made(tmp_path, 4)
        assert [links(leaf) for leaf, _ in leaves] == [1, 3, 3, 3]


def test_a_table_of_many_leaves(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    table.append([{"id": n, "part": n % 50} for n in range(100)], durable=True)
    assert table.count() == 100
    assert table.check().ok
    table.delete("part < 25")
    table.append([{"id": n, "part": n % 50} for n in range(100)])
    assert table.count() == 150
    assert sorted(table.scan(where="part = 3").to_arrow()["id"].to_pylist()) == [3, 53]
    assert table.check().ok
