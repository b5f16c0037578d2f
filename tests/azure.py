"""Azure Blob Storage on this machine: Azurite, where PHALANX_AZURITE names its program."""

import base64
import contextlib
import datetime as dt
import hmac
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

SECRET = base64.b64encode(b"hush-hush-do-not-tell").decode()


@contextlib.contextmanager
def running(folder, container):
    """The storage options of a server that has a container. Skips the test where there is none."""
    program = os.environ.get("PHALANX_AZURITE")
    if program is None:
        pytest.skip("PHALANX_AZURITE names no server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}/lake"
    command = [program, "--location", str(folder), "--blobPort", str(port), "--silent"]
    command += ["--skipApiVersionCheck", "--disableTelemetry"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    env = {**os.environ, "AZURITE_ACCOUNTS": f"lake:{SECRET}"}
    server = subprocess.Popen(command, env=env, **quiet)
    try:
        _wait_for(server, endpoint)
        _make_container(endpoint, container)
        yield {
            "account_name": "lake",
            "account_key": SECRET,
            "azure_storage_endpoint": endpoint,
            "allow_http": "true",
        }
    finally:
        server.kill()
        server.wait()


def _wait_for(server, url):
    """Wait until a server answers at a URL, whatever it says."""
    for _ in range(300):
        assert server.poll() is None, "the server has ended"
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)


def _make_container(endpoint, container):
    """What no store's client that we have can do: a signed request."""
    date = dt.datetime.now(dt.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    lines = ["PUT", *[""] * 11, *(f"{k}:{v}" for k, v in headers.items())]
    text = "\n".join([*lines, f"/lake/lake/{container}", "restype:container"])
    signature = hmac.digest(base64.b64decode(SECRET), text.encode(), "sha256")
    headers["Authorization"] = f"SharedKey lake:{base64.b64encode(signature).decode()}"
    headers["Content-Length"] = "0"
    request = urllib.request.Request(
        f"{endpoint}/{container}?restype=container", method="PUT", headers=headers
    )
    urllib.request.urlopen(request, timeout=10).close()
