"""The root of a table: a folder on a file system or in an object store, and how to reach it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import lance

from phalanx.errors import InvalidInput
from phalanx.storage import lance_errors
from phalanx.storage.lance_private import new_session

MANIFEST = "__manifest"
#: Schemes of which the first part is a bucket.
_STORES = ("s3", "gs", "az")


class Location:
    """A root and the options that open it.

    The options hold keys and passwords: they are handed to Lance and to nobody else, and no
    text that this class makes shows them.
    """

    def __init__(self, uri: str | os.PathLike[str], options: Mapping[str, str] | None = None):
        text = os.fspath(uri) if isinstance(uri, str | os.PathLike) else None
        if not isinstance(text, str) or not text:
            raise InvalidInput("a table's place is a path or URI, such as 'lake/events'")
        if text.startswith("file://"):
            text = unquote(urlsplit(text).path)
        elif text.startswith("file:/"):
            # Hadoop's way to write a path: nothing in it is quoted.
            text = text.removeprefix("file:")
        self.is_local = "://" not in text
        scheme, _, rest = text.partition("://")
        if not self.is_local and (not rest.strip("/") or (scheme in _STORES and rest[0] == "/")):
            raise InvalidInput(f"{text!r} names no bucket: write it as {scheme}://bucket/table")
        self.uri = os.path.abspath(text) if self.is_local else text.rstrip("/")
        self.options: dict[str, str] | None = dict(options) if options else None
        for name, value in (self.options or {}).items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise InvalidInput(
                    f"storage_options map strings to strings: {name!r} has a {type(value).__name__}"
                )

    @property
    def path(self) -> Path | None:
        """The folder, where it is on a file system."""
        return Path(self.uri) if self.is_local else None

    @property
    def manifest(self) -> str:
        return self.child(MANIFEST)

    def child(self, name: str) -> str:
        """The URI of a folder inside the root. A name that would lead out of it is refused."""
        if not name or name in (".", "..") or "/" in name or "\\" in name:
            raise InvalidInput(f"{name!r} does not lie inside the table {self.uri}")
        return f"{self.uri}/{name}"

    def open(self, uri: str, version: int | None = None, session: Any = None) -> Any:
        """A Lance dataset at one version, or at the newest on main."""
        return lance.dataset(uri, version=version, storage_options=self.options, session=session)

    def reason(self, error: BaseException) -> str:
        """What Lance says went wrong, in one line and without secrets."""
        return lance_errors.reason(error, self.options)

    def __repr__(self) -> str:
        return f"Location({self.uri!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and (self.uri, self.options) == (
            other.uri,
            other.options,
        )

    __hash__ = None  # type: ignore[assignment]


@cache
def leaf_session() -> Any:
    """The process's cache of leaf metadata.

    It is safe to share between tables, and over a table that is dropped and made again: a
    leaf's folder is named with the table's own salt. `__manifest` has no such name and is
    opened without it.
    """
    return new_session()
