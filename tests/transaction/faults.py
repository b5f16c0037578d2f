"""Faults at any moment: a store that fails, a disk that is full, an interrupt, a damaged cache."""

import contextlib
import http.client
import os
import random
import resource
import signal
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from phalanx import PhalanxError


class InterruptedByTest(BaseException):
    """What a signal handler raises in the middle of a change."""


class Interrupts:
    """Signals whose handler raises, after a time that is drawn anew for each change."""

    kinds = (InterruptedByTest, InterruptedError)

    def __init__(self, chance):
        self._chance, self._usual = chance, 0.05
        self.count = 0
        signal.signal(signal.SIGALRM, self._interrupt)

    def _interrupt(self, *_):
        self.count += 1
        raise InterruptedByTest

    @contextlib.contextmanager
    def during(self):
        began = time.monotonic()
        # A handler that raises can leave a lock of Python's thread pool behind (CPython 29988), and
        # then only another interrupt ends the wait for it.
        delay, again = self._chance.uniform(0.0005, self._usual), 20
        signal.setitimer(signal.ITIMER_REAL, delay, again)
        try:
            yield
            self._usual = 0.9 * self._usual + 0.1 * (time.monotonic() - began)
        except RuntimeError as error:
            # In the middle of a wait, the lock that Python then fails to release hides the cause.
            if isinstance(error.__context__, InterruptedByTest):
                raise InterruptedByTest from error
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


class FullDisk:
    """A process that may not write another byte, from some moment of a change to its end."""

    kinds = (PhalanxError,)

    def __init__(self, chance):
        self._chance, self._usual = chance, 0.05
        self.count = 0

    @contextlib.contextmanager
    def during(self):
        began = time.monotonic()
        full = threading.Timer(self._chance.uniform(0, self._usual), _limit_files, (0,))
        full.start()
        try:
            yield
            self._usual = 0.9 * self._usual + 0.1 * (time.monotonic() - began)
        except PhalanxError:
            self.count += 1
            raise
        finally:
            full.cancel()
            full.join()
            _limit_files(resource.RLIM_INFINITY)


def _limit_files(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


class DamagedCaches:
    """Files of the planning cache that are cut, filled with noise, mixed up, removed or locked."""

    kinds = ()

    def __init__(self, chance):
        self._chance = chance
        self.count = 0

    @contextlib.contextmanager
    def during(self):
        folder = os.environ["PHALANX_CACHE"]
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                self._damage(os.path.join(folder, name))
                self.count += 1
        yield

    def _damage(self, path):
        with open(path, "rb") as file:
            content = bytearray(file.read())
        match self._chance.randrange(5):
            case 0:
                content = content[: self._chance.randrange(len(content) + 1)]
            case 1:
                for _ in range(self._chance.randrange(1, 200)):
                    content[self._chance.randrange(len(content))] = self._chance.randrange(256)
            case 2:
                content = self._chance.randbytes(self._chance.randrange(5000))
            case 3:
                start = self._chance.randrange(len(content))
                content[start : start + 4096] = bytes(min(4096, len(content) - start))
            case 4:
                os.unlink(path)
                return
        # A reader may have the file in memory: like a disk that lies, not one that is cut short.
        os.unlink(path)
        with open(path, "wb") as file:
            file.write(content)


class FaultyStore:
    """A server in front of an object store that fails a share of the requests.

    An `error` refuses a request, a `lost` reply carries it out and closes the connection, a `slow`
    one waits, a `cut` one sends half of the reply.
    """

    def __init__(self, endpoint, share, seed=0):
        self._target = urlsplit(endpoint).netloc
        self.share, self._chance = share, random.Random(seed)
        self.faults = Counter()
        self._lock = threading.Lock()
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                store.forward(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # connections that were closed in the middle

        self._server = Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    @property
    def count(self):
        return sum(self.faults.values())

    def _draw(self):
        with self._lock:
            if self._chance.random() >= self.share:
                return None
            fault = self._chance.choice(("error", "error", "lost", "lost", "slow", "cut"))
            self.faults[fault] += 1
            return fault

    def forward(self, request):
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        fault = self._draw()
        if fault == "error":
            self._answer(request, 503, {}, b"<Error><Code>SlowDown</Code></Error>")
            return
        if fault == "slow":
            time.sleep(self._chance.uniform(0.1, 1.5))
        connection = http.client.HTTPConnection(self._target, timeout=60)
        try:
            headers = {k: v for k, v in request.headers.items() if k.lower() != "host"}
            connection.request(request.command, request.path, body, headers)
            reply = connection.getresponse()
            content = reply.read()
            kept = {
                k: v
                for k, v in reply.getheaders()
                if k.lower() not in ("connection", "transfer-encoding", "content-length")
            }
            length = reply.getheader("Content-Length")
        finally:
            connection.close()
        if fault == "lost":
            request.close_connection = True
            return
        self._answer(request, reply.status, kept, content, length, cut=fault == "cut")

    def _answer(self, request, status, headers, content, length=None, cut=False):
        request.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("server", "date"):
                request.send_header(name, value)
        head = request.command == "HEAD"
        request.send_header("Content-Length", length if head and length else str(len(content)))
        request.end_headers()
        if cut:
            content = content[: len(content) // 2]
            request.close_connection = True
        if not head:
            request.wfile.write(content)


class StrictStore(FaultyStore):
    """A server in front of an object store that refuses requests by a rule, or changes them.

    The rule gets the request, whose headers it may change, and returns the status to refuse it
    with, or None. `asked` counts the requests for each file name by their methods.
    """

    def __init__(self, endpoint, rule):
        super().__init__(endpoint, share=0)
        self._rule = rule
        self.asked = Counter()

    def forward(self, request):
        self.asked[request.command, request.path.rpartition("/")[2].partition("?")[0]] += 1
        status = self._rule(request)
        if status is None:
            super().forward(request)
            return
        request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self._answer(request, status, {}, b"<Error><Code>AccessDenied</Code></Error>")
