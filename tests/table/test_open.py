import copy
import datetime as dt
import pickle
import shutil

import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput, TableNotFound

SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string())])


@pytest.fixture
def table(root):
    table = phalanx.create(root, SCHEMA, ["country"])
    table.append([{"id": 1, "country": "US"}])
    table.append([{"id": 2, "country": "CA"}])
    return table


def ids(table):
    return sorted(table.scan().to_arrow()["id"].to_pylist())


class TestWhere:
    def test_by_path_string_or_uri(self, root, table, monkeypatch):
        monkeypatch.chdir(root.parent)
        for place in (root, str(root), f"{root}/", f"file://{root}", root.name):
            assert phalanx.open(place).count() == 2

    def test_in_the_home_of_a_user(self, root, table, monkeypatch):
        monkeypatch.setenv("HOME", str(root.parent))
        assert phalanx.open(f"~/{root.name}").uri == str(root)
        monkeypatch.chdir(root.parent)
        phalanx.create("~x", SCHEMA)
        assert (root.parent / "~x").is_dir()

    def test_whether_there_is_one(self, root, table):
        assert phalanx.exists(root)
        assert not phalanx.exists(root / "nothing")
        assert not phalanx.exists(root.parent)
        for file in (root / "__manifest" / "_versions").iterdir():
            file.write_bytes(b"x")
        assert phalanx.exists(root)

    @pytest.mark.parametrize("name", ["a b", "a%20b", "ü", "x#y?z", "conflict", "a:b", "$x", "'"])
    def test_folders_of_any_name(self, tmp_path, name):
        table = phalanx.create(tmp_path / name, SCHEMA, ["country"])
        table.append([{"id": 1, "country": "US"}])
        assert phalanx.open(tmp_path / name).scan(where="id = 1").to_arrow().num_rows == 1
        assert (tmp_path / name / "__manifest").is_dir()

    def test_a_table_can_be_moved(self, root, table):
        moved = root.rename(root.parent / "moved")
        again = phalanx.open(moved)
        assert ids(again) == [1, 2]
        again.append([{"id": 3, "country": "US"}])
        assert ids(phalanx.open(moved)) == [1, 2, 3]
        assert phalanx.open(moved).partitions().num_rows == 2


class TestWhen:
    def test_by_version(self, root, table):
        assert ids(phalanx.open(root, version=1)) == []
        assert ids(phalanx.open(root, version=2)) == [1]
        assert ids(phalanx.open(root, version=3)) == [1, 2]
        assert phalanx.open(root, version=2).version == 2

    def test_by_time(self, root, table):
        times = table.snapshots()["committed_at"].to_pylist()
        assert [phalanx.open(root, version=time).version for time in times] == [1, 2, 3]
        assert phalanx.open(root, dt.datetime.now(dt.UTC)).version == 3

    def test_everything_is_as_it_was(self, root, table):
        old = phalanx.open(root, version=2)
        assert old.partitions()["country"].to_pylist() == ["US"]
        assert old.snapshots()["version"].to_pylist() == [1, 2]
        assert old.count_by(["country"]).to_pylist() == [{"country": "US", "count": 1}]

    def test_refresh_goes_to_the_newest(self, root, table):
        old = phalanx.open(root, version=1)
        assert old.refresh().version == 3
        assert ids(old) == [1, 2]


class TestRefused:
    def test_a_path_with_nothing(self, root):
        with pytest.raises(TableNotFound, match=f"there is no table at {root}: make one"):
            phalanx.open(root)
        assert not root.exists()

    def test_a_folder_that_is_no_table(self, root):
        root.mkdir()
        with pytest.raises(TableNotFound, match="there is no table"):
            phalanx.open(root)

    def test_a_file(self, root):
        root.write_text("hello")
        with pytest.raises(TableNotFound, match="there is no table"):
            phalanx.open(root)

    @pytest.mark.parametrize("uri", ["", None, 7])
    def test_what_is_no_place(self, uri):
        with pytest.raises(InvalidInput, match="path or URI"):
            phalanx.open(uri)

    def test_a_version_that_is_not_there(self, root, table):
        with pytest.raises(TableNotFound, match="no version 9: its newest is 3"):
            phalanx.open(root, version=9)

    def test_a_time_before_it(self, root, table):
        with pytest.raises(TableNotFound, match="did not exist yet"):
            phalanx.open(root, version=dt.datetime(1999, 1, 1, tzinfo=dt.UTC))


def test_leaves_without_a_manifest(root):
    """A table that lost it, or one that is being created: there is none, and there can be one."""
    phalanx.create(root, pa.schema([("id", pa.int64())])).append([{"id": 1}])
    shutil.rmtree(root / "__manifest")
    with pytest.raises(TableNotFound, match="has leaves and no manifest; if a table was there"):
        phalanx.open(root)
    table = phalanx.create(root, pa.schema([("id", pa.int64())]))
    assert table.count() == 0
    assert table.append([{"id": 2}]).count() == 1


class TestCopies:
    """A table in another process, or in a copy of something, is opened where it is."""

    @pytest.mark.parametrize(
        "make", [copy.deepcopy, copy.copy, lambda t: pickle.loads(pickle.dumps(t))]
    )
    def test_it_stays_at_its_version(self, root, table, make):
        old = phalanx.open(root, version=2)
        copied = make(old)
        assert (copied.uri, copied.version, ids(copied)) == (old.uri, 2, [1])
        assert ids(make(table)) == [1, 2]
        copied.append([{"id": 3, "country": "US"}])
        assert ids(table.refresh()) == [1, 2, 3]

    def test_a_weak_table(self, tmp_path):
        table = phalanx.create(tmp_path / "w", {"id": [1]}, transactions="weak")
        assert pickle.loads(pickle.dumps(table)).count() == 1

    def test_storage_options_go_along_as_those_of_a_scan_do(self, table):
        table._snapshot.location.options = {"region": "here"}
        for thing in (table, table.scan()):
            assert pickle.loads(pickle.dumps(thing))._snapshot.location.options == {
                "region": "here"
            }


def test_as_python_knows_it(table):
    with phalanx.open(table.uri) as opened:
        assert opened.columns == ["id", "country"]
        rows = [id for batch in opened for id in batch["id"].to_pylist()]
        assert sorted(rows) == [1, 2]
        scanned = [batch.num_rows for batch in opened.scan(where="id = 1")]
    assert scanned == [1]
    assert opened.count() == 2  # nothing was closed
