"""The first rows of many new leaves: versions that are written as Lance would write them."""

import datetime as dt
import errno
import os
import shutil
from decimal import Decimal

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation

import phalanx
from phalanx.model.schema import TableSchema
from phalanx.storage import first_versions
from phalanx.storage.first_versions import FirstVersion, create_file
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta, Written
from phalanx.storage.location import Location
from phalanx.storage.main_branch import MainBranch
from phalanx.storage.new_leaves import NewLeaves
from phalanx.storage.protobuf import parse

ROWS = [
    pa.table({"id": [1], "part": [0.5]}),
    pa.table({"text": ["a", None, "long " * 300], "day": [dt.date(2024, 1, 2)] * 3}),
    pa.table({"s": [{"a": 1, "b": ["x", "y"]}], "d": [Decimal("1.50")]}),
    pa.table({"v": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "m": [True]}),
    pa.table({f"c{n}": [n] for n in range(300)}),
]


@pytest.fixture(autouse=True)
def no_templates():
    first_versions._templates.clear()


@pytest.fixture
def commits(monkeypatch):
    """The detached commits that Lance has made."""
    made, commit = [], lance.LanceDataset.commit

    def counted(*args, **options):
        made.extend([args] * options.get("detached", False))
        return commit(*args, **options)

    monkeypatch.setattr(lance.LanceDataset, "commit", counted)
    return made


def written(root, rows, count=4):
    """New leaves and the files that were written for them."""
    schema, creator = TableSchema.assign(rows.schema), NewLeaves()
    leaves = [Leaf(Location(root), f"{n:08x}_v1$n{n:015}$dataset", schema) for n in range(count)]
    return [(leaf, LeafDelta(added=(creator.create(leaf).write(rows),))) for leaf in leaves]


def files(leaf, version):
    """The members of a version's manifest and of its transaction, and how its file ends."""
    raw = (leaf.location.path / leaf.folder / f"_versions/d{version}.manifest").read_bytes()
    start = int.from_bytes(raw[-16:-8], "little")
    manifest, inline = parse(raw[start + 4 : -16]), raw[4:start]
    assert int.from_bytes(raw[:4], "little") == len(inline)
    assert int.from_bytes(raw[start : start + 4], "little") == len(raw) - start - 20
    return manifest, parse(inline), raw[-8:]


@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: rows.schema.names[0])
def test_they_are_what_lance_writes(tmp_path, rows, commits):
    leaves = written(tmp_path, rows)
    versions = [leaf.commit(None, delta) for leaf, delta in leaves]
    assert len(commits) == 1
    for (leaf, delta), ours in zip(leaves, versions, strict=True):
        first_versions._templates.clear()
        by_lance = leaf.commit(None, delta)
        assert by_lance != ours
        (mine, mine_tx, mine_end), (its, its_tx, its_end) = (
            files(leaf, ours),
            files(leaf, by_lance),
        )
        # Only Lance writes the transaction once more, in a file of its own, and names it.
        assert 12 in [part[0] for part in its]
        mine, its = ([part for part in parts if part[0] != 12] for parts in (mine, its))
        assert [part[:2] for part in mine] == [part[:2] for part in its]
        # A version and the time.
        assert {a[0] for a, b in zip(mine, its, strict=True) if a != b} == {3, 7}
        assert {a[0] for a, b in zip(mine_tx, its_tx, strict=True) if a != b} == {2}
        assert len(mine_tx) == len(its_tx)
        assert mine_end == its_end
    assert len(commits) == 5


def test_plain_lance_reads_them(tmp_path):
    rows = ROWS[0]
    for leaf, delta in written(tmp_path, rows):
        version = leaf.commit(None, delta)
        dataset = lance.dataset(leaf.uri, version=version)
        assert dataset.to_table().equals(rows)
        assert dataset.version == version
        transaction = dataset.read_transaction(version)
        assert transaction.read_version == 1
        assert isinstance(transaction.operation, LanceOperation.Append)
        assert leaf.changes(1, version)[0].adds_rows
        more = leaf.commit(version, LeafDelta(added=(leaf.writer(version).write(rows),)))
        assert leaf.count(more, None) == 2
        assert MainBranch(leaf.location, leaf.folder).publish(version) == []
        lance.dataset(leaf.uri).cleanup_old_versions(
            older_than=dt.timedelta(0), delete_unverified=True
        )
        assert lance.dataset(leaf.uri).to_table().equals(rows)


def test_a_commit_may_be_repeated(tmp_path):
    """Another version is made, as by Lance: both hold the rows once."""
    for leaf, delta in written(tmp_path, ROWS[0]):
        versions = {leaf.commit(None, delta) for _ in range(3)}
        assert len(versions) == 3
        assert {leaf.count(version, None) for version in versions} == {1}


def test_lance_commits_other_leaves(tmp_path, commits):
    (a, first), (b, second), (c, third), (d, fourth) = written(tmp_path, ROWS[0])
    a.commit(None, first)
    fragments = second.added[0].fragments
    two = LeafDelta(added=(second.added[0], b.writer(1).write(ROWS[0])))
    assert b.count(b.commit(None, two), None) == 2
    # A leaf whose empty version is not the one that is known, and one of another schema.
    empty = c.location.path / c.folder / "_versions" / f"{2**64 - 2}.manifest"
    shutil.copy(empty, f"{empty}.own")
    os.replace(f"{empty}.own", empty)
    assert c.count(c.commit(None, third), None) == 1
    wider = TableSchema.assign(ROWS[0].schema.append(pa.field("more", pa.int8())))
    leaf = Leaf(d.location, d.folder, wider)
    assert leaf.count(leaf.commit(None, fourth), None) == 1
    assert len(commits) >= 4
    before = len(commits)
    assert b.count(b.commit(None, LeafDelta(added=(Written(fragments),))), None) == 1
    assert len(commits) == before


def test_lance_commits_where_files_cannot_be_created(tmp_path, monkeypatch, commits):
    leaves = written(tmp_path, ROWS[0])
    leaves[0][0].commit(None, leaves[0][1])

    def refuse(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert [leaf.count(leaf.commit(None, delta), None) for leaf, delta in leaves] == [1] * 4
    assert len(commits) == 5
    assert not list(tmp_path.rglob("*#*"))


def test_a_folder_that_is_gone_is_lances_to_report(tmp_path):
    leaves = written(tmp_path, ROWS[0])
    leaves[0][0].commit(None, leaves[0][1])
    leaf, delta = leaves[1]
    shutil.rmtree(leaf.uri)
    leaf.commit(None, delta)  # it is created again; verifying finds that the file is missing
    assert first_versions.FirstCommit(leaf.uri, leaf.stored, ()).write() is None


def test_another_shape_is_not_copied(tmp_path):
    leaf, delta = written(tmp_path, ROWS[0])[0]
    version = leaf.commit(None, delta)
    folder = leaf.location.path / leaf.folder
    manifest = (folder / f"_versions/d{version}.manifest").read_bytes()
    (fragment,) = delta.added[0].fragments
    FirstVersion(manifest, fragment)
    for damaged in (manifest[1:], manifest[:-1], b"", b"\xff" + manifest[1:]):
        with pytest.raises((ValueError, first_versions.struct.error)):
            FirstVersion(damaged, fragment)
    other = type(fragment)(fragment.id, fragment.files, fragment.physical_rows + 1)
    with pytest.raises(ValueError, match="shape"):
        FirstVersion(manifest, other)


def test_nothing_is_replaced(tmp_path):
    place = tmp_path / "d1.manifest"
    create_file(f"{place}", b"first")
    with pytest.raises(FileExistsError):
        create_file(f"{place}", b"second")
    assert place.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["d1.manifest"]


def test_a_table_of_many_leaves(root, commits):
    table = phalanx.create(root, pa.schema([("k", pa.int64()), ("v", pa.float64())]), ["k"])
    rows = pa.table({"k": list(range(60)) * 2, "v": [float(n) for n in range(120)]})
    table.append(rows)
    assert len(commits) < 20
    files = [path for path in root.glob("*dataset/**/*") if path.is_file()]
    assert len(files) < 60 * 3 + 20  # rows, the version that has them, and the empty one
    assert table.check().ok
    assert table.scan().to_arrow().sort_by("v").equals(rows)
    table.append(rows)
    table.optimize()
    assert table.vacuum(older_than=dt.timedelta(0), force=True)
    assert table.check().ok
    assert table.count() == 240
