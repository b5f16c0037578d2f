"""The root of a table: a folder on a file system or in an object store, and how to reach it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import lance
from lance.lance import _Session as Session

from phalanx.errors import InvalidInput

MANIFEST = "__manifest"
#: Schemes of which the first part is a bucket.
_STORES = ("s3", "gs", "az")
#: Names of options whose values nobody may see.
SECRET = re.compile("secret|token|password|key|signature|credential", re.IGNORECASE)
#: How Lance begins to say that a file is not there, too short, or not what was written. Neither a
#: filter nor a network that fails for a while begins like that.
_DAMAGED = re.compile(
    r"(Generic [\w/]+ error: )?Not found: "
    r"|Generic \w+ error: (Invalid range |failed to fill whole buffer)"
    r"|Generic \w+ error: Error performing GET .* 416 Range Not Satisfiable"
    r"|Invalid user input: file does not appear to be a Lance file"
    r"|failed to decode Protobuf message"
    r"|Encountered corrupt file"
)
#: The same, where what decodes a file had not thought of it.
_PANICKED = re.compile(r"Wrapped error: task \d+ panicked")
#: How errors read that say nothing of what is there.
_UNREACHABLE = ("error performing", "http error", "credentials", "permission denied", "timed out")


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
        """What Lance says went wrong: its first line, without places in its code or secrets."""
        text = str(error).split("\n")[0].split(", /")[0].removeprefix("External error: ")
        text = text.removeprefix("LanceError(IO): ")
        for name, value in (self.options or {}).items():
            if SECRET.search(name) and value:
                text = text.replace(value, "***")
        return text

    def is_damage(self, error: BaseException) -> bool:
        """Whether Lance says that a file is not there or cannot be decoded.

        What may be better the next time, such as a network that fails, is no damage.
        """
        text = self.reason(error)
        return bool(
            _DAMAGED.match(text) or (_PANICKED.match(text) and "lance-encoding/" in str(error))
        )

    def is_unreachable(self, error: BaseException) -> bool:
        """Whether an error says that a store was not reached, and nothing of what is there."""
        text = str(error).lower()
        if self.is_damage(error) or "not found" in text:
            return False
        return any(sign in text for sign in _UNREACHABLE)

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
    return Session()
