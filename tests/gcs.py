"""A server that speaks Google Cloud Storage's XML protocol, as far as Lance and obstore use it.

No such server can be installed with Python. This one keeps objects in memory, and needs nothing but
`cryptography`, which moto brings. It is as strict as the documentation of the real one: requests
are signed by a service account, conditions on a write are decided in one step with it, what is
deleted twice is missing, all parts of an upload but the last have 5 MiB, and lists come in pages.
What it does not know it refuses.
"""

import base64
import contextlib
import hashlib
import itertools
import json
import re
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

#: How many names a page of a list has at most. The real store has 1000, and may send fewer.
PAGE = 20
#: The smallest part of an upload but for the last.
PART_BYTES = 5 * 1024**2

_EMAIL, _KEY_ID = "phalanx@test.iam.gserviceaccount.com", "test-key"
_ERRORS = {
    "AuthenticationRequired": 401,
    "EntityTooSmall": 400,
    "InvalidPart": 400,
    "InvalidRange": 416,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
    "NotImplemented": 501,
    "PreconditionFailed": 412,
    "SlowDown": 429,
}
_GENERATION_MATCH, _COPY_SOURCE = "x-goog-if-generation-match", "x-goog-copy-source"


@contextlib.contextmanager
def running(*buckets):
    """A server on this machine that has these buckets."""
    server = Server(buckets)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Refused(Exception):
    """A request that is answered with an error, named by its code."""


@dataclass(frozen=True)
class Object:
    data: bytes
    generation: int
    etag: str
    modified: float = field(default_factory=time.time)


class Server(ThreadingHTTPServer):
    """Objects by bucket and name, and who may reach them."""

    daemon_threads = True
    # Clients open many connections at once.
    request_queue_size = 128

    def __init__(self, buckets):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.buckets = {name: {} for name in buckets}
        #: What was asked so far: method, name, condition and status of each request.
        self.log = []
        #: A token that opens the store besides those that the service account signs.
        self.token = f"ya29.{uuid.uuid4().hex}"
        #: How many seconds an object must rest before it is written or deleted again. The real
        #: store asks for one, and is generous most of the time.
        self.rest_seconds = 0.0
        self._lock = threading.Lock()
        self._changed = {}
        self._uploads = {}
        self._generations = itertools.count(time.time_ns() // 1000)
        self._signed = set()

    def handle_error(self, request, client_address):
        """Report a bug, but not a client that was killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self):
        return "http://{}:{}".format(*self.server_address)

    @cached_property
    def _private_key(self):
        return rsa.generate_private_key(65537, 2048)

    @cached_property
    def private_key(self):
        """The secret of the service account, as its JSON file has it."""
        return self._private_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()

    @cached_property
    def service_account(self):
        """The content of the service account's JSON file."""
        return json.dumps(
            {
                "type": "service_account",
                "private_key_id": _KEY_ID,
                "private_key": self.private_key,
                "client_email": _EMAIL,
            }
        )

    @property
    def options(self):
        """Storage options that reach this server."""
        return {
            "service_account_key": self.service_account,
            "base_url": self.url,
            "allow_http": "true",
        }

    def admit(self, authorization):
        """Refuse what was not signed with the key of the service account."""
        token = (authorization or "").removeprefix("Bearer ")
        if token == self.token or token in self._signed:
            return
        try:
            message, _, signature = token.rpartition(".")
            header, claims = (json.loads(_decoded(part)) for part in message.split("."))
            self._private_key.public_key().verify(
                _decoded(signature), message.encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except (InvalidSignature, ValueError):
            raise Refused("AuthenticationRequired") from None
        if header["kid"] != _KEY_ID or claims["iss"] != _EMAIL or claims["exp"] < time.time():
            raise Refused("AuthenticationRequired")
        self._signed.add(token)

    def bucket(self, name):
        if name not in self.buckets:
            raise Refused("NoSuchBucket")
        return self.buckets[name]

    def find(self, bucket, name):
        found = self.bucket(bucket).get(name)
        if found is None:
            raise Refused("NoSuchKey")
        return found

    def put(self, bucket, name, data, generation=None, etag=None):
        """Write an object, if its generation is the one that is given: 0 for one that is not there.

        Conditions are decided, and the object is written, in one step.
        """
        with self._lock:
            objects = self.bucket(bucket)
            self._change(bucket, name)
            found = objects.get(name)
            if generation is not None and generation != (found.generation if found else 0):
                raise Refused("PreconditionFailed")
            etag = etag or f'"{hashlib.md5(data).hexdigest()}"'
            objects[name] = Object(data, next(self._generations), etag)
            return objects[name]

    def delete(self, bucket, name):
        with self._lock:
            self._change(bucket, name)
            if self.bucket(bucket).pop(name, None) is None:
                raise Refused("NoSuchKey")

    def _change(self, *place):
        """Refuse a change to an object that was changed a moment ago."""
        now = time.monotonic()
        if now - self._changed.get(place, -self.rest_seconds) < self.rest_seconds:
            raise Refused("SlowDown")
        self._changed[place] = now

    def start_upload(self, bucket, name):
        self.bucket(bucket)
        number = uuid.uuid4().hex
        self._uploads[number] = (bucket, name), {}
        return number

    def parts(self, bucket, name, number):
        """The parts of an upload so far, by their numbers."""
        place, parts = self._uploads.get(number, (None, None))
        if place != (bucket, name):
            raise Refused("NoSuchUpload")
        return parts

    def complete_upload(self, bucket, name, number, chosen):
        """Make one object of the parts of an upload, which are given by number and tag."""
        parts = self.parts(bucket, name, number)
        if not chosen or any(parts.get(n, (None,))[0] != tag for n, tag in chosen):
            raise Refused("InvalidPart")
        pieces = [parts[n][1] for n, _ in sorted(chosen)]
        if any(len(piece) < PART_BYTES for piece in pieces[:-1]):
            raise Refused("EntityTooSmall")
        made = self.put(bucket, name, b"".join(pieces), etag=f'"{number}-{len(pieces)}"')
        self.end_upload(bucket, name, number)
        return made

    def end_upload(self, bucket, name, number):
        self.parts(bucket, name, number)
        del self._uploads[number]

    def page(self, bucket, prefix, delimiter, after, most):
        """A page of a list: objects by name, and folders as None; and where the next one begins.

        It begins behind a name, or behind everything in a folder.
        """
        with self._lock:
            objects = dict(self.bucket(bucket))
        page = {}
        for name in sorted(objects, key=str.encode):
            if not name.startswith(prefix) or name.encode() <= after.encode():
                continue
            if after.endswith(delimiter or "\0") and name.startswith(after):
                continue
            folder, found, _ = name[len(prefix) :].partition(delimiter or "\0")
            entry = prefix + folder + found
            if entry in page:
                continue
            if len(page) == most:
                return page, list(page)[-1]
            page[entry] = None if found else objects[name]
        return page, None


def _decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class _Handler(BaseHTTPRequestHandler):
    """One connection. Its methods are those of HTTP."""

    protocol_version = "HTTP/1.1"
    # An answer is sent in one piece, and at once.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self):
        self._answer(self._get)

    def do_HEAD(self):
        self._answer(self._get)

    def do_PUT(self):
        self._answer(self._put)

    def do_POST(self):
        self._answer(self._post)

    def do_DELETE(self):
        self._answer(self._delete)

    def _answer(self, method):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        bucket, _, name = unquote(url.path[1:]).partition("/")
        query = {k: v for k, (v,) in parse_qs(url.query, keep_blank_values=True).items()}
        try:
            self._refuse_unknown(query)
            self.server.admit(self.headers["Authorization"])
            status, headers, content = method(bucket, name, query, body)
        except Refused as refused:
            (code,) = refused.args
            status, headers = _ERRORS[code], {}
            content = _xml("Error", _xml("Code", code), _xml("Message", f"this is {code}"))
        condition = self.headers[_GENERATION_MATCH]
        self.server.log.append((self.command, name, condition, status))
        self.send_response(status)
        for key, value in {"Content-Length": len(content), **headers}.items():
            self.send_header(key, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refuse_unknown(self, query):
        names = map(str.lower, self.headers)
        special = {name for name in names if name.startswith(("x-goog-", "if-"))}
        queries = {"list-type", "prefix", "delimiter", "continuation-token", "start-after"}
        queries |= {"max-keys", "uploads", "uploadId", "partNumber"}
        # Uploads in parts have no conditions.
        known = {_GENERATION_MATCH, _COPY_SOURCE} if self.command == "PUT" and not query else set()
        if special - known or query.keys() - queries:
            raise Refused("NotImplemented")

    def _get(self, bucket, name, query, body):
        if not name:
            return self._list(bucket, query)
        found = self.server.find(bucket, name)
        headers = {
            "Content-Type": "application/octet-stream",
            "Last-Modified": formatdate(found.modified, usegmt=True),
            **_identity(found),
        }
        size = len(found.data)
        if "Range" not in self.headers:
            return 200, headers, found.data
        first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers["Range"]).groups()
        start = int(first) if first else max(size - int(last), 0)
        end = min(int(last) + 1, size) if first and last else size
        if start >= end:
            raise Refused("InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return 206, headers, found.data[start:end]

    def _list(self, bucket, query):
        if query.get("list-type") != "2":
            raise Refused("NotImplemented")
        token = query.get("continuation-token")
        after = _decoded(token).decode() if token else query.get("start-after", "")
        most = min(int(query.get("max-keys", PAGE)), PAGE)
        prefix = query.get("prefix", "")
        page, rest = self.server.page(bucket, prefix, query.get("delimiter"), after, most)
        parts = [_xml("IsTruncated", "false" if rest is None else "true")]
        if rest is not None:
            encoded = base64.urlsafe_b64encode(rest.encode()).decode()
            parts.append(_xml("NextContinuationToken", encoded))
        for entry, found in page.items():
            if found is None:
                parts.append(_xml("CommonPrefixes", _xml("Prefix", entry)))
                continue
            modified = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(found.modified))
            modified += f".{int(found.modified % 1 * 1000):03d}Z"
            parts.append(
                _xml(
                    "Contents",
                    _xml("Key", entry),
                    _xml("Generation", str(found.generation)),
                    _xml("LastModified", modified),
                    _xml("ETag", found.etag),
                    _xml("Size", str(len(found.data))),
                )
            )
        return 200, {"Content-Type": "application/xml"}, _xml("ListBucketResult", *parts)

    def _put(self, bucket, name, query, body):
        if "uploadId" in query:
            parts = self.server.parts(bucket, name, query["uploadId"])
            etag = f'"{hashlib.md5(body).hexdigest()}"'
            parts[int(query["partNumber"])] = etag, body
            return 200, {"ETag": etag}, b""
        condition = self.headers[_GENERATION_MATCH]
        source = self.headers[_COPY_SOURCE]
        if source is not None:
            body = self.server.find(*unquote(source).split("/", 1)).data
        generation = None if condition is None else int(condition)
        made = self.server.put(bucket, name, body, generation)
        content = b"" if source is None else _xml("CopyObjectResult", _xml("ETag", made.etag))
        return 200, _identity(made), content

    def _post(self, bucket, name, query, body):
        if "uploads" in query:
            number = self.server.start_upload(bucket, name)
            return 200, {}, _xml("InitiateMultipartUploadResult", _xml("UploadId", number))
        chosen = [
            (int(part.findtext("PartNumber")), part.findtext("ETag"))
            for part in ElementTree.fromstring(body).iter("Part")
        ]
        made = self.server.complete_upload(bucket, name, query["uploadId"], chosen)
        content = _xml("CompleteMultipartUploadResult", _xml("ETag", made.etag))
        return 200, _identity(made), content

    def _delete(self, bucket, name, query, body):
        if "uploadId" in query:
            self.server.end_upload(bucket, name, query["uploadId"])
        else:
            self.server.delete(bucket, name)
        return 204, {}, b""

    def log_message(self, *_):
        """Say nothing."""


def _identity(found):
    return {"ETag": found.etag, "x-goog-generation": found.generation}


def _xml(tag, *content):
    """An element: of a text, or of other elements."""
    inner = b"".join(c if isinstance(c, bytes) else escape(c).encode() for c in content)
    return b"<%s>%s</%s>" % (tag.encode(), inner, tag.encode())
