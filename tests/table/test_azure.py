"""Tables in Azure Blob Storage, as far as a server on this machine goes.

The server is Azurite, which is no Python package: the tests run where PHALANX_AZURITE names its
program, `azurite-blob`.
"""

import base64
import datetime as dt
import hmac
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from contextlib import contextmanager

import pyarrow as pa
import pytest

import phalanx
from phalanx.cli import main
from phalanx.storage.shared_file import SharedFile
from tests.transaction.processes import together

SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string())])
SECRET = base64.b64encode(b"hush-hush-do-not-tell").decode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(command, url, **more):
    """A server that answers at a URL, whatever it says."""
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **more}
    )
    try:
        for _ in range(300):
            assert server.poll() is None, f"{command[0]} has ended"
            try:
                urllib.request.urlopen(url, timeout=1).close()
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        server.kill()
        server.wait()


@contextmanager
def azure(folder):
    program, port = os.environ.get("PHALANX_AZURITE"), free_port()
    if program is None:
        pytest.skip("PHALANX_AZURITE names no server")
    endpoint = f"http://127.0.0.1:{port}/lake"
    command = [program, "--location", str(folder), "--blobPort", str(port), "--silent"]
    command += ["--skipApiVersionCheck", "--disableTelemetry"]
    with running(command, endpoint, AZURITE_ACCOUNTS=f"lake:{SECRET}"):
        options = {
            "account_name": "lake",
            "account_key": SECRET,
            "azure_storage_endpoint": endpoint,
            "allow_http": "true",
        }
        make_container(endpoint)
        yield "az://tables", options


def make_container(endpoint):
    """What no store's client that we have can do: a signed request."""
    date = dt.datetime.now(dt.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    lines = ["PUT", *[""] * 11, *(f"{k}:{v}" for k, v in headers.items())]
    text = "\n".join([*lines, "/lake/lake/tables", "restype:container"])
    signature = hmac.digest(base64.b64decode(SECRET), text.encode(), "sha256")
    headers["Authorization"] = f"SharedKey lake:{base64.b64encode(signature).decode()}"
    headers["Content-Length"] = "0"
    request = urllib.request.Request(
        f"{endpoint}/tables?restype=container", method="PUT", headers=headers
    )
    urllib.request.urlopen(request, timeout=10).close()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with azure(tmp_path_factory.mktemp("store")) as (root, options):
        yield root, options


@pytest.fixture
def table(store):
    root, options = store
    uri = f"{root}/{uuid.uuid4().hex}"
    table = phalanx.create(uri, SCHEMA, ["country"], storage_options=options)
    return table.append([{"id": 1, "country": "a/b=$ü"}, {"id": 2, "country": None}])


def test_every_change(table, store):
    table.append([{"id": i, "country": "DE"} for i in range(3, 9)])
    assert table.delete("id = 3") == 1
    assert table.update({"country": "'FR'"}, "id = 4") == 1
    assert (
        table.merge([{"id": 5, "country": "IT"}, {"id": 9, "country": "DE"}], ["id"]).updated == 1
    )
    table.optimize()
    again = phalanx.open(table.uri, storage_options=store[1])
    assert sorted(again.to_arrow()["id"].to_pylist()) == [1, 2, 4, 5, 6, 7, 8, 9]
    assert again.count("country = 'a/b=$ü'") == 1
    assert phalanx.open(table.uri, version=2, storage_options=store[1]).count() == 2
    assert again.vacuum(older_than="0", force=True)
    assert again.check().ok
    again.drop()
    with pytest.raises(phalanx.TableNotFound):
        phalanx.open(table.uri, storage_options=store[1])


def append_many(uri, options, first):
    table = phalanx.open(uri, storage_options=options)
    for i in range(6):
        table.append([{"id": first + i, "country": "DE"}])


def test_writers_at_once(table, store):
    together(*((append_many, table.uri, store[1], 100 * n) for n in range(1, 4)))
    table.refresh()
    expected = {1, 2, *(100 * n + i for n in range(1, 4) for i in range(6))}
    assert set(table.to_arrow()["id"].to_pylist()) == expected
    assert table.count() == 20
    assert table.check().ok


def test_the_file_that_writers_stand_in_line_with(table):
    file = SharedFile(table._snapshot.location, "line")
    assert file.read() is None
    first = file.write(b"one", None)
    assert file.write(b"other", None) is None
    assert file.read() == first
    second = file.write(b"two", first)
    assert file.write(b"three", first) is None
    assert file.read() == second


def test_the_command_line(table, store, capsys):
    options = [arg for k, v in store[1].items() for arg in ("--storage-option", f"{k}={v}")]
    assert main(["count", table.uri, "id = 1", *options]) == 0
    assert capsys.readouterr().out.strip() == "1"


def test_secrets_stay_secret(store):
    root, options = store
    with pytest.raises(phalanx.TableNotFound) as caught:
        phalanx.open(f"{root}/nowhere", storage_options=options)
    assert SECRET not in str(caught.value)
