"""Folders that hold tables, on a disk and in an object store."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

import phalanx
from phalanx.storage import folders
from phalanx.storage.location import Location


@pytest.fixture(params=["disk", "s3", "gs"])
def place(request, tmp_path):
    """A function from a name to a place in a fresh folder."""
    if request.param == "disk":
        return lambda name="": Location(tmp_path / "root" / name)
    options = request.getfixturevalue(f"{request.param}_options")
    root = f"{request.param}://lake/{uuid.uuid4().hex}"
    return lambda name="": Location(f"{root}/{name}".rstrip("/"), options)


def test_a_folder_that_is_not_there(place):
    assert folders.children(place("none")) == set()
    assert folders.read(place("none"), "file") is None


def test_write_and_read(place):
    folders.write(place("a"), "file.json", b"{}")
    assert folders.read(place("a"), "file.json") == b"{}"
    assert folders.read(place("a"), "other.json") is None
    folders.write(place("a"), "file.json", b"more")
    assert folders.read(place("a"), "file.json") == b"more"


def test_create_and_delete(place):
    assert folders.create(place("a"), "file.json", b"one")
    assert not folders.create(place("a"), "file.json", b"two")
    assert folders.read(place("a"), "file.json") == b"one"
    assert folders.children(place("a")) == {"file.json"}
    assert folders.delete(place("a"), "file.json")
    assert not folders.delete(place("a"), "file.json")
    assert not folders.delete(place("none"), "file.json")


def test_one_of_many_creates(tmp_path):
    at = Location(tmp_path / "a")
    with ThreadPoolExecutor(8) as pool:
        wins = list(pool.map(lambda n: folders.create(at, "f", b"%d" % n), range(32)))
    assert wins.count(True) == 1
    assert folders.read(at, "f") == b"%d" % wins.index(True)


def test_children(place):
    folders.write(place("a"), "one", b"1")
    folders.write(place("a/inner"), "two", b"2")
    folders.write(place("b"), "three", b"3")
    assert folders.children(place()) == {"a", "b"}
    assert folders.children(place("a")) == {"one", "inner"}


def test_a_name_that_begins_like_another(place):
    folders.write(place("ab"), "x", b"1")
    assert folders.children(place("a")) == set()


def test_remove(place):
    folders.write(place("a"), "one", b"1")
    folders.write(place("a/inner"), "two", b"2")
    folders.write(place("ab"), "three", b"3")
    folders.remove(place("a"))
    assert folders.children(place("a")) == set()
    assert folders.children(place()) == {"ab"}


def test_remove_a_table(place):
    at = place("t")
    table = phalanx.create(at.uri, _schema(), ["id"], storage_options=at.options)
    table.append([{"id": 1}])
    folders.remove(at)
    with pytest.raises(phalanx.TableNotFound):
        phalanx.open(at.uri, storage_options=at.options)
    assert folders.children(at) == set()


def test_what_another_process_has_deleted_meanwhile(gs_options, monkeypatch):
    """Unlike S3, Google's store says that a file was missing."""
    at = Location(f"gs://lake/{uuid.uuid4().hex}", gs_options)
    folders.write(at, "one", b"1")
    folders.write(at, "two", b"2")
    monkeypatch.setattr(folders, "children", lambda _: {"one", "none"})
    assert folders.delete(at, "one")
    assert not folders.delete(at, "none")
    session = folders._session(at)
    monkeypatch.setattr(session, "list", lambda: ["one", "two"], raising=False)
    monkeypatch.setattr(folders, "_session", lambda _: session)
    folders.remove(at)
    monkeypatch.undo()
    assert folders.children(at) == set()


def test_a_store_that_cannot_be_listed(gs_options):
    """A bucket that does not exist is empty, and one that nothing is known of is not."""
    assert folders.children(Location("gs://nobody/a", gs_options)) == set()
    wrong = {**gs_options, "service_account_key": "hush-hush-do-not-tell"}
    with pytest.raises(phalanx.StorageError, match="cannot list gs://lake/a: the key of") as e:
        folders.children(Location("gs://lake/a", wrong))
    assert "hush" not in str(e.value)


def test_the_trash_is_gone_too(tmp_path):
    folders.write(Location(tmp_path / "root" / "a"), "one", b"1")
    folders.remove(Location(tmp_path / "root" / "a"))
    assert list((tmp_path / "root").iterdir()) == []


def _schema():
    import pyarrow as pa

    return pa.schema([("id", pa.int64())])
