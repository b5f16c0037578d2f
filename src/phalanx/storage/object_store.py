"""The object stores that tables can be in, and which of their options are secret.

Lance reaches the stores. A new one needs an entry here, and in `phalanx.storage.lance_errors` the
texts that tell that it cannot be reached.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from phalanx.errors import InvalidInput

#: The stores by the scheme of their URIs, each with what a URI names first.
STORES = {"s3": "bucket", "gs": "bucket", "az": "container"}

#: Names of storage options whose values must not be shown.
SECRET = re.compile("secret|token|password|key|signature|credential", re.IGNORECASE)

#: A user with a password in an address.
_USER = re.compile(r"(?<=://)[^/\s@]*:[^/\s@]*@")

#: Of a secret with several lines, such as a private key, those that have so many characters must
#: not be shown on their own.
_SHORTEST_LINE = 8


def check_uri(uri: str) -> None:
    """Raise InvalidInput for the URI of a store that Lance would read as another, or not at all.

    Other schemes are Lance's.
    """
    scheme, _, rest = uri.partition("://")
    if scheme == "gcs":
        raise InvalidInput(f"{uri!r} is in Google Cloud Storage: write it as gs://{rest}")
    if not rest.strip("/") or (scheme in STORES and rest[0] == "/"):
        first = STORES.get(scheme, "bucket")
        raise InvalidInput(f"{uri!r} names no {first}: write it as {scheme}://{first}/table")
    if scheme in STORES and ("#" in uri or "?" in uri):
        raise InvalidInput(f"{uri!r} would end at its '#' or '?': write them as %23 and %3F")


def check_options(options: Mapping[str, str]) -> None:
    """Raise InvalidInput for storage options that are not strings, or that crash Lance."""
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidInput(
                f"storage_options map strings to strings: {name!r} has a {type(value).__name__}"
            )
        if "token" in name.lower() and value != value.strip():
            raise InvalidInput(
                f"the storage option {name!r} has a space or a line break at one of its ends: "
                "leave it out"
            )
        is_address = name.lower().endswith(("endpoint", "base_url")) and "use_" not in name.lower()
        if is_address and "://" not in value:
            raise InvalidInput(
                f"the storage option {name!r} is an address: begin it with http:// or https://"
            )


def without_secrets(text: str, options: Mapping[str, Any] | None) -> str:
    """A text in which no secret value of the options is left, and no password in an address.

    A value may be a mapping with secrets in it, or one in JSON, such as the key of a service
    account of Google.
    """
    for secret in sorted(_secrets(options or {}), key=len, reverse=True):
        # Quotes and line ends may be escaped, once or several times.
        lines = [line for line in secret.splitlines() if len(line) >= _SHORTEST_LINE]
        for part in (secret, json.dumps(secret)[1:-1], *lines):
            text = text.replace(part, "***")
    return _USER.sub("***@", text)


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and value and SECRET.search(name):
            yield value
            with contextlib.suppress(ValueError):
                inner = json.loads(value)
                yield from _secrets(inner if isinstance(inner, dict) else {})
