"""The explorer behind an address: who may ask, what they may ask, and how long.

The server listens on the loopback interface. Its address has a secret in it, and nothing is
answered without: not to other users of the machine, and not to pages of other sites, which cannot
know it. Requests for another host name are refused, so that no name can be made to point here.
Only GET and HEAD are answered, and nothing behind them writes.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import mimetypes
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from phalanx.errors import InvalidInput, PhalanxError
from phalanx.explore.views import Views
from phalanx.table.table import Table

HOST = "127.0.0.1"
STATIC = Path(__file__).with_name("static")
#: What a page may load: its own files, and nothing that is written into it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
#: How long a filter may be.
_LONGEST = 20_000

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


def application(views: Views, token: str) -> Guard:
    """The explorer as an ASGI application, under the path `/<token>/`."""
    routes = [
        Route("/", lambda request: _file("index.html")),
        Route("/static/{name}", lambda request: _file(request.path_params["name"])),
        *(Route(f"/api/{name}", _endpoint(views, name)) for name in _ARGUMENTS),
    ]
    return Guard(Starlette(routes=routes), token)


class Guard:
    """Lets through what may be asked, and adds the headers that keep the page to itself."""

    def __init__(self, app: Any, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(dict(scope), receive, send_with_headers)
            return
        path = scope["path"][len(self._token) + 1 :]
        inner = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        await self._app(inner, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """Why a request is not answered; None for one that is."""
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").partition(":")[0]
        if host not in (HOST, "localhost"):
            return PlainTextResponse("ask for 127.0.0.1", 421)
        first, separator, _ = scope["path"][1:].partition("/")
        if not separator or not hmac.compare_digest(first.encode(), self._token.encode()):
            return PlainTextResponse("not found", 404)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("the explorer only reads", 405)
        return None


def _file(name: str) -> Response:
    """A file of the page. Names are those of files that are there, never paths."""
    known = {path.name: path for path in STATIC.iterdir() if path.is_file()}
    if name not in known:
        return PlainTextResponse("not found", 404)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    if name.endswith(".js"):
        kind = "text/javascript"
    return Response(known[name].read_bytes(), media_type=kind)


#: The questions, and what each may be asked with: the name of an argument and its type.
_ARGUMENTS: dict[str, dict[str, type]] = {
    "table": {"version": int},
    "tree": {"version": int, "by": str, "leaf": int, "depth": int, "where": str, "step": int},
    "prune": {"where": str, "version": int},
    "leaf": {"leaf": int, "version": int, "where": str, "limit": int},
    "history": {},
    "diff": {"before": int, "after": int},
    "schema": {},
    "advise": {},
    "check": {},
}


def _endpoint(views: Views, name: str) -> Callable[[Request], Response]:
    """A question as an endpoint. Starlette runs it in a thread of its own."""
    answer, types = getattr(views, name), _ARGUMENTS[name]

    def respond(request: Request) -> Response:
        try:
            arguments = {
                key: _argument(key, request.query_params[key], type)
                for key, type in types.items()
                if key in request.query_params
            }
            return JSONResponse(answer(**arguments))
        except TypeError as error:
            return JSONResponse({"error": f"something is missing: {error}"}, 400)
        except PhalanxError as error:
            return JSONResponse({"error": str(error)}, 400)

    return respond


def _argument(name: str, text: str, type: type) -> Any:
    if len(text) > _LONGEST:
        raise InvalidInput(f"{name} is too long")
    try:
        return type(text)
    except ValueError:
        raise InvalidInput(f"{name} is a whole number") from None


class Explorer:
    """A running explorer: a server in a thread, and its address."""

    def __init__(self, table: Table, port: int = 0) -> None:
        """Raises PhalanxError where the port is taken."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((HOST, port))
        except (OSError, OverflowError) as error:
            self._socket.close()
            raise PhalanxError(f"port {port} cannot be used, choose another one: {error}") from None
        token = secrets.token_urlsafe(24)
        self.address = f"http://{HOST}:{self._socket.getsockname()[1]}/{token}/"
        config = uvicorn.Config(
            application(Views(table), token),
            log_level="warning",
            access_log=False,  # addresses hold the secret, and filters hold values
            lifespan="off",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def start(self) -> None:
        self._socket.listen(128)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the server ends."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


@contextlib.contextmanager
def running(table: Table, port: int = 0) -> Iterator[Explorer]:
    """An explorer that runs as long as the block."""
    explorer = Explorer(table, port)
    explorer.start()
    try:
        yield explorer
    finally:
        explorer.stop()


def run(table: Table, port: int, open_browser: bool, as_json: bool) -> None:
    """Serve a table until the user interrupts it."""
    with running(table, port) as explorer:
        if as_json:
            print(json.dumps({"address": explorer.address}), flush=True)
        else:
            print(f"The explorer of {table.uri} is at\n  {explorer.address}", flush=True)
            print("Ctrl+C ends it.", file=sys.stderr, flush=True)
        if open_browser:
            webbrowser.open(explorer.address)
        with contextlib.suppress(KeyboardInterrupt):
            explorer.wait()
