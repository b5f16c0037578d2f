"""The server that stands for Google Cloud Storage keeps its rules."""

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from obstore.store import GCSStore

from tests import gcs


@pytest.fixture(scope="module")
def server():
    with gcs.running("lake", "other") as server:
        yield server


@pytest.fixture
def store(server):
    server.buckets["lake"].clear()
    return client(server)


def client(server, bucket="lake", **config):
    config = {"service_account_key": server.service_account, "base_url": server.url, **config}
    return GCSStore(
        bucket,
        config=config,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


def test_an_object(store):
    made = obstore.put(store, "a b/ü%", b"0123456789")
    found = obstore.get(store, "a b/ü%")
    assert bytes(found.bytes()) == b"0123456789"
    meta = obstore.head(store, "a b/ü%")
    assert (meta["size"], meta["e_tag"], meta["version"]) == (10, made["e_tag"], made["version"])
    assert bytes(obstore.get_range(store, "a b/ü%", start=2, end=5)) == b"234"
    assert bytes(obstore.get(store, "a b/ü%", options={"range": {"suffix": 3}}).bytes()) == b"789"
    assert bytes(obstore.get(store, "a b/ü%", options={"range": {"offset": 8}}).bytes()) == b"89"
    with pytest.raises(GenericError, match="416"):
        obstore.get_range(store, "a b/ü%", start=10, end=11)
    obstore.delete(store, "a b/ü%")
    for look in (obstore.get, obstore.head, obstore.delete):
        with pytest.raises(FileNotFoundError):
            look(store, "a b/ü%")


def test_conditions(store):
    one = obstore.put(store, "x", b"1", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "x", b"2", mode="create")
    two = obstore.put(store, "x", b"2", mode={"version": one["version"]})
    for stale in (one["version"], "1"):
        with pytest.raises(PreconditionError):
            obstore.put(store, "x", b"3", mode={"version": stale})
    assert int(two["version"]) > int(one["version"])
    obstore.copy(store, "x", "y")
    with pytest.raises(AlreadyExistsError):
        obstore.copy(store, "x", "y", overwrite=False)
    with pytest.raises(FileNotFoundError):
        obstore.copy(store, "none", "z")
    assert bytes(obstore.get(store, "y").bytes()) == b"2"


def test_one_of_many_creates(store):
    def create(number):
        try:
            return obstore.put(store, "x", b"%d" % number, mode="create")["version"]
        except AlreadyExistsError:
            return None

    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(create, range(100)))
    (version,) = filter(None, made)
    assert bytes(obstore.get(store, "x").bytes()) == b"%d" % made.index(version)


def test_lists_come_in_pages(store):
    names = sorted(f"{folder}/{n:03}" for folder in ("a", "a.b", "é") for n in range(30))
    for name in [*names, "top"]:
        obstore.put(store, name, b"1")
    assert [m["path"] for p in obstore.list(store) for m in p] == sorted([*names, "top"])
    assert [m["path"] for p in obstore.list(store, "a") for m in p] == names[30:60]
    after = obstore.list(store, offset="a/010")
    assert [m["path"] for p in after for m in p][:2] == ["a/011", "a/012"]
    found = obstore.list_with_delimiter(store)
    assert found["common_prefixes"] == ["a", "a.b", "é"]
    assert [m["path"] for m in found["objects"]] == ["top"]
    for n in range(50):
        obstore.put(store, f"deep/{n}/x", b"1")
    assert len(obstore.list_with_delimiter(store, "deep")["common_prefixes"]) == 50


def test_uploads_in_parts(store, server):
    data = bytes(range(256)) * 4 * 1024 * 11
    assert len(data) > 2 * gcs.PART_BYTES
    obstore.put(store, "x", data, use_multipart=True, chunk_size=gcs.PART_BYTES)
    assert bytes(obstore.get(store, "x").bytes()) == data
    with pytest.raises(GenericError, match="EntityTooSmall"):
        obstore.put(store, "y", data, use_multipart=True, chunk_size=gcs.PART_BYTES - 1)
    assert set(server.buckets["lake"]) == {"x"}


def test_who_may_come_in(store, server):
    obstore.put(store, "x", b"1")
    other = json.dumps({**json.loads(server.service_account), "private_key_id": "other"})
    with gcs.running() as stranger:
        wrong = ({"service_account_key": k} for k in (other, stranger.service_account))
        for config in (*wrong, {"skip_signature": True, "service_account_key": other}):
            with pytest.raises(Exception, match="401"):
                obstore.get(client(server, **config), "x")
    token = GCSStore(
        "lake",
        config={"bearer_token": server.token, "base_url": server.url},
        client_options={"allow_http": True},
    )
    assert obstore.head(token, "x")["size"] == 1


def test_buckets(store, server):
    obstore.put(store, "x", b"1")
    with pytest.raises(FileNotFoundError):
        obstore.get(client(server, "other"), "x")
    with pytest.raises(Exception, match="NoSuchBucket"):
        obstore.put(client(server, "none"), "x", b"1")


def test_what_it_does_not_know_it_refuses(server):
    headers = {"Authorization": f"Bearer {server.token}"}
    for method, path, more in (
        ("GET", "/lake", {}),
        ("GET", "/lake/x?acl", {}),
        ("GET", "/lake/x", {"If-Match": "y"}),
        ("PUT", "/lake/x", {"If-None-Match": "*"}),
        ("POST", "/lake/x?uploads", {"x-goog-if-generation-match": "0"}),
    ):
        request = urllib.request.Request(server.url + path, method=method, headers=headers | more)
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(request, timeout=10)


def test_a_slower_pace(store, server, monkeypatch):
    monkeypatch.setattr(server, "rest_seconds", 60)
    obstore.put(store, "slow", b"1")
    for change in (lambda: obstore.put(store, "slow", b"2"), lambda: obstore.delete(store, "slow")):
        with pytest.raises(GenericError, match="429"):
            change()
    obstore.put(store, "other", b"1")
    assert bytes(obstore.get(store, "slow").bytes()) == b"1"
