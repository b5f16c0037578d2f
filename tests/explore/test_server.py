"""Who may ask the explorer, and what."""

import errno
import inspect
import json
import socket
import subprocess
import sys
import urllib.parse

import pytest

import phalanx
from phalanx.cli import main
from phalanx.errors import PhalanxError
from phalanx.explore import server
from phalanx.explore.views import Views
from tests.cli.test_cli import environment
from tests.explore.conftest import HOSTILE, Client


def test_answers(client):
    status, answer = client.json("api/table")
    assert (status, answer["rows"]) == (200, 27)
    where = urllib.parse.quote("country = 'US'")
    status, answer = client.json(f"api/prune?where={where}")
    assert (status, answer["selected"]) == (200, 3)
    for name in (
        "tree",
        "history",
        "schema",
        "advise",
        "check",
        "leaf?leaf=0",
        "diff?before=1&after=2",
    ):
        assert client.json(f"api/{name}")[0] == 200, name


def test_errors_are_one_sentence(client):
    for path in (
        "api/prune?where=nope%20%3D%201",
        "api/leaf?leaf=999999",
        "api/leaf?leaf=x",
        "api/leaf",
        "api/table?version=99",
        "api/tree?by=nothing",
        f"api/prune?where={'x' * 30_000}",
    ):
        status, answer = client.json(path)
        assert status == 400, path
        assert isinstance(answer["error"], str)
        assert "Traceback" not in answer["error"]


def test_values_are_data(client):
    _, headers, body = client("api/tree")
    assert headers["content-type"] == "application/json"
    assert headers["x-content-type-options"] == "nosniff"
    assert HOSTILE in json.dumps(json.loads(body), ensure_ascii=False).replace('\\"', '"')


def test_the_page_may_load_only_its_own_files(client):
    status, headers, body = client("")
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert b"<script>" not in body
    assert b"style=" not in body


def test_every_file_of_the_page_is_served(client):
    for path in server.STATIC.iterdir():
        status, headers, body = client(f"static/{path.name}")
        assert (status, body) == (200, path.read_bytes())
        if path.suffix == ".js":
            assert headers["content-type"].startswith("text/javascript")


def test_no_other_file_is_served(client):
    for name in (
        "nope.js",
        "..%2Fserver.py",
        "%2e%2e/server.py",
        "../server.py",
        "%2Fetc%2Fpasswd",
    ):
        assert client(f"static/{name}")[0] == 404


def test_nothing_without_the_token(explorer):
    root = explorer.address.rsplit("/", 2)[0]
    for path in ("/", "/api/table", "/wrong/", "/wrong/api/table", "/wrong/static/app.js", "//"):
        status, _, body = Client(root)(path)
        assert status == 404
        assert body == b"not found"
    token = explorer.address.rstrip("/").rsplit("/", 1)[1]
    assert len(token) >= 32
    assert Client(root)(f"/{token[:-1]}/")[0] == 404
    assert Client(root)(f"/{token}")[0] == 404


def test_only_for_this_machine(explorer, client):
    host, port = urllib.parse.urlsplit(explorer.address).netloc.split(":")
    assert host == "127.0.0.1"
    # Another address of this machine is not listened on.
    with socket.socket() as other:
        other.settimeout(5)
        assert other.connect_ex(("127.0.0.2", int(port))) == errno.ECONNREFUSED
    for name in ("evil.example:80", "127.0.0.1.evil.example:80", "evil.example", ":80", "[::1]"):
        assert client("api/table", Host=name)[0] == 421
    for name in (f"localhost:{port}", "127.0.0.1"):
        assert client("api/table", Host=name)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reads(client, method):
    assert client("api/table", method=method)[0] == 405


def test_views_change_nothing(table, client):
    before = table.refresh().version
    for name in server._ARGUMENTS:
        client(f"api/{name}?leaf=0&where=id%20%3E%200&before=1&after=2")
    assert table.refresh().version == before


def test_every_question_is_known():
    """The arguments of a question are those of the method that answers it."""
    for name, types in server._ARGUMENTS.items():
        parameters = inspect.signature(getattr(Views, name)).parameters
        assert set(parameters) - {"self"} == set(types)


def test_a_port_that_is_taken(explorer, table):
    port = int(urllib.parse.urlsplit(explorer.address).port)
    with pytest.raises(PhalanxError, match="choose another"):
        server.Explorer(table, port)
    with pytest.raises(PhalanxError, match="choose another"):
        server.Explorer(table, 10**6)


def test_the_command(table):
    command = [sys.executable, "-c", "import sys, phalanx.cli; sys.exit(phalanx.cli.main())"]
    process = subprocess.Popen(
        [*command, "explore", table.uri, "--no-browser", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    try:
        address = json.loads(process.stdout.readline())["address"]
        assert Client(address).json("api/table")[1]["rows"] == 27
    finally:
        process.send_signal(2)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_a_table_that_is_not_there(tmp_path, capsys):
    assert main(["explore", str(tmp_path / "t"), "--no-browser"]) == 1
    assert "there is no table" in capsys.readouterr().err


def test_without_its_packages(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "phalanx.explore.server", None)
    with pytest.raises(PhalanxError, match=r"pip install 'phalanx\[explore\]'"):
        phalanx.explore.serve(table)
