"""The first rows of a new leaf: a version on main that plain Lance reads like any other."""

import datetime as dt
import errno
import itertools
import os
import threading
from decimal import Decimal

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation

from phalanx.model.schema import TableSchema
from phalanx.storage import first_rows
from phalanx.storage.files import DETACHED, RANDOM, DatasetFolder, is_commit_of_ours, is_lasting
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.location import Location
from phalanx.storage.main_branch import MainBranch
from phalanx.storage.new_leaves import NewLeaves

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ROWS = [
    pa.table({"id": [1], "part": [0.5]}),
    pa.table({"text": ["a", None, "long " * 300], "day": [dt.date(2024, 1, 2)] * 3}),
    pa.table({"s": [{"a": 1, "b": ["x", "y"]}], "d": [Decimal("1.50")]}),
    pa.table({"v": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "m": [True]}),
    pa.table({f"c{n}": [n] for n in range(300)}),
]


@pytest.fixture(autouse=True)
def no_templates():
    first_rows._templates.clear()


def new_leaf(root, schema=SCHEMA, number=0, first=0):
    folder = f"{number:08x}_v1$n{number:015}$dataset"
    return Leaf(Location(root), folder, TableSchema.assign(schema, first), begins_on_main=True)


def written(leaf, *ids, table=None):
    """Rows as a change to a leaf, with a file for each."""
    table = pa.table({"id": [*ids], "text": ["x"] * len(ids)}, SCHEMA) if table is None else table
    writer = NewLeaves().create(leaf)
    return LeafDelta(added=tuple(writer.write(table.slice(n, 1)) for n in range(table.num_rows)))


def ids(leaf, version=None):
    return leaf.open(version).to_table()["id"].to_pylist()


def is_on_main(version):
    return RANDOM <= version < DETACHED


def files(leaf):
    return sorted(file.path for file in DatasetFolder(leaf.location, leaf.folder).files)


@pytest.mark.parametrize("first", [0, 7], ids=["ids from 0", "ids from 7"])
@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: rows.schema.names[0])
def test_a_leaf_is_two_files(tmp_path, rows, first):
    versions = set()
    for number in range(4):
        leaf = new_leaf(tmp_path, rows.schema, number, first)
        delta = LeafDelta(added=(NewLeaves().create(leaf).write(rows),))
        assert not os.path.exists(f"{leaf.uri}/_versions")
        version = leaf.commit(None, delta)
        assert is_on_main(version)
        assert not leaf.hides_rows
        assert [path.partition("/")[0] for path in files(leaf)] == ["_versions", "data"]
        assert leaf.is_current(leaf.open(version))
        for dataset in (lance.dataset(leaf.uri), lance.dataset(leaf.uri, version=version)):
            assert str(dataset.to_table().to_pylist()) == str(rows.to_pylist())
            assert dataset.version == dataset.latest_version == version
        assert is_commit_of_ours(leaf.open(None), version)
        assert MainBranch(leaf.location, leaf.folder).foreign_commits() == []
        versions.add(version)
    assert len(versions) == 4


@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: rows.schema.names[0])
def test_what_is_filled_in_is_what_lance_writes(tmp_path, rows, monkeypatch):
    """The second leaf is made from the template, and the third without."""
    made = []
    for number in range(3):
        if number == 2:
            monkeypatch.setattr(first_rows.FirstVersion, "fits", lambda *_: False)
        leaf = new_leaf(tmp_path, rows.schema, number)
        leaf.commit(None, LeafDelta(added=(NewLeaves().create(leaf).write(rows),)))
        (name,) = os.listdir(f"{leaf.uri}/_versions")
        with open(f"{leaf.uri}/_versions/{name}", "rb") as file:
            made.append(file.read())
    # They differ in names, numbers, ids and times, whose lengths may differ by some bytes.
    assert len({len(raw) // 64 for raw in made}) <= 2
    assert made[1][-8:] == made[2][-8:]


def test_several_files(tmp_path):
    leaf = new_leaf(tmp_path)
    version = leaf.commit(None, written(leaf, 1, 2, 3))
    assert is_on_main(version)
    assert ids(leaf, version) == ids(leaf) == [1, 2, 3]
    assert leaf.fragment_ids(version) == {0, 1, 2}


def test_lance_goes_on_from_there(tmp_path):
    leaf = new_leaf(tmp_path)
    first = leaf.commit(None, written(leaf, 1, 2))
    main = MainBranch(leaf.location, leaf.folder)
    second = leaf.commit(first, LeafDelta(added=written(leaf, 3).added))
    assert second >= DETACHED
    assert ids(leaf) == [1, 2]
    assert leaf.changes(first, second)[0].adds_rows
    assert main.publish(first) == []
    assert leaf.newest() == first
    assert main.publish(second) == []
    assert (leaf.newest(), ids(leaf)) == (first + 1, [1, 2, 3])
    # A rollback to the first rows is published once, and is not taken for a commit of others.
    assert main.publish(first) == main.publish(first) == []
    assert (leaf.newest(), ids(leaf)) == (first + 2, [1, 2])
    os.unlink(f"{leaf.uri}/{first_rows.main_file(first)}")
    assert main.foreign_commits() == []
    dataset = lance.write_dataset(pa.table({"id": [9], "text": ["y"]}), leaf.uri, mode="append")
    assert dataset.version == first + 3
    (foreign,) = main.foreign_commits()
    assert (foreign.version, foreign.rows_added) == (first + 3, 1)
    assert len(main.publish(second)) == 1
    dataset.delete("id = 1")
    dataset.tags.create("then", first + 3)
    dataset.create_branch("other")
    assert lance.dataset(leaf.uri, version="then").count_rows() == 3
    assert len(main.foreign_commits()) == 2


def test_stock_cleanup_keeps_what_is_on_main(tmp_path):
    leaf = new_leaf(tmp_path)
    version = leaf.commit(None, written(leaf, 1))
    lance.dataset(leaf.uri).cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    assert ids(leaf, version) == [1]


def test_it_may_be_hidden(tmp_path):
    leaf = new_leaf(tmp_path)
    version = leaf.commit(None, written(leaf, 1))
    main = MainBranch(leaf.location, leaf.folder)
    assert main.withdraw() == main.withdraw() == []
    assert (leaf.newest(), ids(leaf), ids(leaf, version)) == (version + 1, [], [1])
    assert main.foreign_commits() == []
    assert main.publish(version) == []
    assert ids(leaf) == [1]


class TestTwoWriters:
    """They create the same leaf, or one of them died before its rows were part of the table."""

    def test_the_second_is_detached(self, tmp_path):
        one, other = new_leaf(tmp_path), new_leaf(tmp_path)
        ours, theirs = written(one, 1), written(other, 2)
        first = one.commit(None, ours)
        second = other.commit(None, theirs)
        assert is_on_main(first)
        assert second >= DETACHED
        assert (one.hides_rows, other.hides_rows) == (False, True)
        assert (ids(one, first), ids(other, second), ids(one)) == ([1], [2], [1])
        # Whoever loses the swap adds its rows to those of the winner.
        assert ids(one, one.commit(second, ours)) == [2, 1]
        assert ids(other, other.commit(first, theirs)) == [1, 2]

    def test_also_with_several_files(self, tmp_path):
        one, other = new_leaf(tmp_path), new_leaf(tmp_path)
        first = one.commit(None, written(one, 1))
        second = other.commit(None, written(other, 2, 3))
        assert (second >= DETACHED, other.hides_rows) == (True, True)
        assert (ids(one, first), ids(other, second)) == ([1], [2, 3])

    def test_one_commits_detached_first(self, tmp_path):
        """Rows that its transaction changes again never show on main."""
        one, other = new_leaf(tmp_path), new_leaf(tmp_path)
        first = one.commit(None, written(one, 1), whole=False)
        second = other.commit(None, written(other, 2))
        assert min(first, second) >= DETACHED
        assert one.hides_rows
        assert other.hides_rows
        assert (ids(one, first), ids(one, second), ids(one)) == ([1], [2], [])

    @pytest.mark.parametrize("at", ["data only", "no version", "half written", "staged"])
    def test_one_has_died(self, tmp_path, at):
        one, other = new_leaf(tmp_path), new_leaf(tmp_path)
        written(one, 1)
        if at == "staged":
            os.mkdir(f"{one.uri}/{first_rows.STAGED_VERSIONS}abc")
            with open(f"{one.uri}/{first_rows.STAGED_VERSIONS}abc/1.manifest", "wb") as file:
                file.write(b"half")
        elif at != "data only":
            os.mkdir(f"{one.uri}/_versions")
        if at == "half written":
            with open(f"{one.uri}/_versions/d{DETACHED}.manifest#1", "wb") as file:
                file.write(b"half")
        version = other.commit(None, written(other, 2))
        assert is_on_main(version) == (at != "half written")
        assert ids(other, version) == [2]
        assert ids(other) == ([2] if is_on_main(version) else [])

    def test_lance_creates_an_empty_version_at_the_same_time(self, tmp_path, monkeypatch):
        """It has looked before the other writer has committed, and writes its version after it."""
        one, other = new_leaf(tmp_path), new_leaf(tmp_path)
        ours, theirs = written(one, 1), written(other, 2)
        first = one.commit(None, ours)
        os.rename(f"{one.uri}/_versions", f"{one.uri}/away")
        created = other.created()[0]
        assert created.version == 1
        (name,) = os.listdir(f"{one.uri}/away")
        os.rename(f"{one.uri}/away/{name}", f"{one.uri}/_versions/{name}")
        monkeypatch.setattr(other, "created", lambda: (created, True))
        second = other.commit(None, theirs)
        assert other.hides_rows
        assert ids(other, second) == [2]
        assert ids(one, first) == [1]
        assert MainBranch(other.location, other.folder).withdraw() == []
        assert ids(one) == []
        assert ids(one, first) == [1]

    def test_many_at_once(self, tmp_path):
        leaves = [new_leaf(tmp_path) for _ in range(8)]
        deltas = [written(leaf, number) for number, leaf in enumerate(leaves)]
        start, versions = threading.Barrier(8), {}

        def commit(number):
            start.wait()
            versions[number] = leaves[number].commit(None, deltas[number])

        threads = [threading.Thread(target=commit, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        on_main = [number for number, version in versions.items() if is_on_main(version)]
        assert len(on_main) == 1
        assert [n for n in range(8) if not leaves[n].hides_rows] == on_main
        assert ids(leaves[0]) == on_main
        assert [ids(leaves[n], versions[n]) for n in range(8)] == [[n] for n in range(8)]


class TestWithoutIt:
    """Where it does not work, Lance creates the leaf, as it does elsewhere."""

    @pytest.mark.parametrize("function", ["mkdir", "rename"])
    def test_the_file_system_refuses(self, tmp_path, monkeypatch, function):
        leaf = new_leaf(tmp_path)
        delta, real = written(leaf, 1), getattr(os, function)

        def refuse(*paths):
            if first_rows.STAGED_VERSIONS in paths[0]:
                raise OSError(errno.EPERM, "not here")
            real(*paths)

        monkeypatch.setattr(os, function, refuse)
        version = leaf.commit(None, delta)
        assert version >= DETACHED
        assert (ids(leaf, version), ids(leaf)) == ([1], [])
        assert not [path for path in files(leaf) if path.startswith(first_rows.STAGED_VERSIONS)]

    def test_no_room_for_temporary_files(self, tmp_path, monkeypatch):
        def refuse(*_, **__):
            raise OSError(errno.ENOSPC, "full")

        monkeypatch.setattr(first_rows.tempfile, "TemporaryDirectory", refuse)
        leaf = new_leaf(tmp_path)
        version = leaf.commit(None, written(leaf, 1))
        assert (version >= DETACHED, ids(leaf, version)) == (True, [1])

    def test_another_shape(self, tmp_path, monkeypatch):
        monkeypatch.setattr(first_rows.FirstRows, "_committed", lambda self: b"something" * 9)
        leaf = new_leaf(tmp_path)
        version = leaf.commit(None, written(leaf, 1))
        assert (version >= DETACHED, ids(leaf, version)) == (True, [1])

    def test_a_folder_that_is_gone(self, tmp_path):
        leaf = new_leaf(tmp_path)
        delta = written(leaf, 1)
        os.rename(leaf.uri, tmp_path / "away")
        version = leaf.commit(None, delta)  # verifying finds that the file is missing
        assert DatasetFolder(leaf.location, leaf.folder).missing(version)


def test_a_leaf_that_comes_back(tmp_path):
    """Its folder is still there: Lance is not asked, and the versions are new ones."""
    leaf = new_leaf(tmp_path)
    first = leaf.commit(None, written(leaf, 1))
    again = leaf.commit(None, written(leaf, 2))
    assert (again >= DETACHED, leaf.hides_rows) == (True, True)
    assert (ids(leaf, first), ids(leaf, again)) == ([1], [2])
    transaction = leaf.open(again).read_transaction(again)
    assert isinstance(transaction.operation, LanceOperation.Append)


@pytest.mark.parametrize("first", [0, 7], ids=["ids from 0", "ids from 7"])
@pytest.mark.parametrize("parts", [1, 2])
def test_they_go_back_to_no_version(tmp_path, parts, first):
    """What was computed on one that the folder has does not hold for them."""
    leaf = new_leaf(tmp_path, first=first)
    others = written(leaf, 7, 8)
    for part in (pa.table({"id": [n], "text": ["x"]}, SCHEMA) for n in range(3)):
        lance.write_dataset(part, leaf.uri, mode="append")
    for _ in range(2):  # the second is made from the template
        version = leaf.commit(None, LeafDelta(added=others.added[:parts]))
        assert version >= DETACHED
        assert ids(leaf, version) == [7, 8][:parts]
        assert [leaf.changes(since, version) for since in (1, 2, 3)] == [None] * 3


def test_numbers_that_last():
    assert [is_lasting(v) for v in (None, 1, RANDOM - 1)] == [False] * 3
    assert [is_lasting(v) for v in (RANDOM, DETACHED - 1, DETACHED)] == [True] * 3


def test_numbers_are_random(tmp_path):
    leaves = [new_leaf(tmp_path, number=n) for n in range(20)]
    versions = sorted(leaf.commit(None, written(leaf, 1)) for leaf in leaves)
    assert all(b - a > 1 for a, b in itertools.pairwise(versions))
