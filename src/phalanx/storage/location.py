"""The root of a table: a folder on a file system or in an object store, with its options."""

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
#: Schemes whose URIs begin with a bucket.
_STORES = ("s3", "gs", "az")


class Location:
    """The root of a table and the storage options that open it.

    The options contain keys and passwords: they are passed to Lance only, and no text that this
    class produces shows them. Raises InvalidInput for an invalid URI or invalid options.
    """

    def __init__(self, uri: str | os.PathLike[str], options: Mapping[str, str] | None = None):
        text = os.fspath(uri) if isinstance(uri, str | os.PathLike) else None
        if not isinstance(text, str) or not text:
            raise InvalidInput("a table's place is a path or URI, such as 'lake/events'")
        if text.startswith("file://"):
            text = unquote(urlsplit(text).path)
        elif text.startswith("file:/"):
            # Hadoop's form of a path, in which nothing is quoted.
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
        """The folder, if it is on a file system."""
        return Path(self.uri) if self.is_local else None

    @property
    def manifest(self) -> str:
        return self.child(MANIFEST)

    def child(self, name: str) -> str:
        """The URI of a folder in the root. Raises InvalidInput for a name that leads out of it."""
        if not name or name in (".", "..") or "/" in name or "\\" in name:
            raise InvalidInput(f"{name!r} does not lie inside the table {self.uri}")
        return f"{self.uri}/{name}"

    def open(self, uri: str, version: int | None = None, session: Any = None) -> Any:
        """Open a Lance dataset at a version, or at the newest on main."""
        return lance.dataset(uri, version=version, storage_options=self.options, session=session)

    def reason(self, error: BaseException) -> str:
        """Lance's reason for an error, in one line and without secrets."""
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
    """The cache of leaf metadata that this process shares between all tables.

    It stays valid even if a table is dropped and created again: the name of a leaf's folder
    depends on the table's salt. The name of `__manifest` does not, so it is opened without it.
    """
    return new_session()
