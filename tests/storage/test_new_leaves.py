"""The leaves of one write: the first is created by Lance, the others share its files."""

import errno
import os
import shutil

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.model.schema import TableSchema
from phalanx.storage import new_leaves
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
