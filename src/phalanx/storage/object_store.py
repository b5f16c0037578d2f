"""The object stores that tables can be in, and which of their options are secret.

Lance reaches the stores. A new one needs an entry here, and in `phalanx.storage.lance_errors` the
texts that tell that it cannot be reached.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from phalanx.errors import InvalidInput

#: The stores by the scheme of their URIs, each with what a URI names first.
STORES = {"s3": "bucket", "gs": "bucket", "az": "container"}

#: Names of storage options whose values must not be shown.
SECRET = re.compile("secret|token|password|key|signature|credential", re.IGNORECASE)


def check_uri(uri: str) -> None:
    """Raise InvalidInput for the URI of a store that names no bucket. Other schemes are Lance's."""
    scheme, _, rest = uri.partition("://")
    if not rest.strip("/") or (scheme in STORES and rest[0] == "/"):
        first = STORES.get(scheme, "bucket")
        raise InvalidInput(f"{uri!r} names no {first}: write it as {scheme}://{first}/table")


def check_options(options: Mapping[str, str]) -> None:
    """Raise InvalidInput for storage options that are not strings."""
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidInput(
                f"storage_options map strings to strings: {name!r} has a {type(value).__name__}"
            )


def without_secrets(text: str, options: Mapping[str, str] | None) -> str:
    """A text in which no secret value of the options is left."""
    for name, value in (options or {}).items():
        if SECRET.search(name) and value:
            text = text.replace(value, "***")
    return text
