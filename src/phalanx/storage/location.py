"""The root of a table: a folder on a file system or in an object store, with its options."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import lance
import pyarrow as pa

from phalanx.errors import CorruptTable, InvalidInput, PhalanxError
from phalanx.storage import lance_errors, object_store
from phalanx.storage.lance_private import new_session

MANIFEST = "__manifest"
#: How much memory open indexes may take in a process; `PHALANX_INDEX_CACHE_BYTES` changes it.
_INDEX_CACHE_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class Declaration:
    """What a caller says about a root that has no metadata of its own."""

    #: The columns.
    schema: pa.Schema | None = None
    #: The partition fields, as in `phalanx.create`.
    partition_by: Sequence[Any] | None = None


class Location:
    """The root of a table and the storage options that open it.

    The options contain keys and passwords: they are passed to Lance only, and no text that this
    class produces shows them. Raises InvalidInput for an invalid URI or invalid options.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        options: Mapping[str, str] | None = None,
        declaration: Declaration | None = None,
    ):
        text = os.fspath(uri) if isinstance(uri, str | os.PathLike) else None
        if not isinstance(text, str) or not text:
            raise InvalidInput("a table's place is a path or URI, such as 'lake/events'")
        if text.startswith("file://"):
            text = unquote(urlsplit(text).path)
        elif text.startswith("file:/"):
            # Hadoop's form of a path, in which nothing is quoted.
            text = text.removeprefix("file:")
        elif text == "~" or text.startswith("~/"):
            text = os.path.expanduser(text)
        elif text.startswith(("s3a://", "s3n://")):
            # Hadoop's names for the same store.
            text = f"s3://{text.partition('://')[2]}"
        self.is_local = "://" not in text
        if not self.is_local:
            object_store.check_uri(text)
        self.uri = os.path.abspath(text) if self.is_local else text.rstrip("/")
        if options is not None and not isinstance(options, Mapping):
            raise InvalidInput(
                f"storage_options are a dict of strings, not a {type(options).__name__}"
            )
        self.options: dict[str, str] | None = dict(options) if options else None
        object_store.check_options(self.options or {})
        self.declaration = declaration

    @cached_property
    def path(self) -> Path | None:
        """The folder, if it is on a file system."""
        return Path(self.uri) if self.is_local else None

    @property
    def manifest(self) -> str:
        return self.child(MANIFEST)

    def child(self, name: str) -> str:
        """The URI of a folder in the root, given by its path relative to it.

        Raises InvalidInput for a path that leads out of the root.
        """
        if not all(map(_is_plain, name.split("/"))):
            raise InvalidInput(f"{name!r} does not lie inside the table {self.uri}")
        # Lance decodes the URIs of object stores, and cuts them at `#` and `?`.
        return f"{self.uri}/{name if self.is_local else quote(name, safe=_UNQUOTED)}"

    def open(self, uri: str, version: int | None = None, session: Any = None) -> Any:
        """Open a Lance dataset at a version, or at the newest on main."""
        refuse_forked()
        return lance.dataset(uri, version=version, storage_options=self.options, session=session)

    @contextlib.contextmanager
    def naming_failures(self) -> Iterator[None]:
        """Raise StorageError, which names the table, where its storage fails.

        Errors of others pass, such as those of a stream whose rows are being written. Raises
        PhalanxError in a forked process, and TableNotFound where files are missing because the
        whole table is gone.
        """
        refuse_forked()
        try:
            yield
        except CorruptTable:
            if self.path is None or self.path.exists():
                raise
            raise lance_errors.dropped_table(self.uri) from None
        except OSError as error:
            if isinstance(error, PhalanxError) or not self._is_own(error):
                raise
            raise lance_errors.store_error(self.uri, error, self.options) from error

    def _is_own(self, error: OSError) -> bool:
        if error.filename is not None:
            inside = Path(os.fsdecode(error.filename)).is_relative_to(self.uri)
            return self.is_local and inside
        return lance_errors.is_of_lance(error) or lance_errors.is_full(error)

    def reason(self, error: BaseException) -> str:
        """Lance's reason for an error, in one line and without secrets."""
        return lance_errors.reason(error, self.options)

    def __repr__(self) -> str:
        return f"Location({self.uri!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and (self.uri, self.options, self.declaration) == (
            other.uri,
            other.options,
            other.declaration,
        )

    __hash__ = None  # type: ignore[assignment]


#: Characters besides letters and digits that a URI has as they are.
_UNQUOTED = "/$=!&'()*+,;:@-._~"


def _is_plain(part: str) -> bool:
    """Whether a part of a path is the name of a folder and nothing else."""
    return bool(part) and part not in (".", "..") and "\\" not in part and "\0" not in part


#: The process that was the first to use Lance; None if none has yet.
_process: int | None = None


def refuse_forked() -> None:
    """Raise PhalanxError if Lance was used before this process was forked.

    Lance's threads do not survive a fork: reads and writes would hang or crash.
    """
    global _process
    if _process is None:
        _process = os.getpid()
    elif _process != os.getpid():
        raise PhalanxError(
            "this process was forked from one that has used Lance, which does not work after a "
            'fork: start processes with multiprocessing.get_context("spawn")'
        )


@cache
def leaf_session() -> Any:
    """The cache of leaf metadata and open indexes that this process shares between all tables.

    It stays valid even if a table is dropped and created again: the name of a leaf's folder
    depends on the table's salt, and where it does not, Lance compares what the store says of the
    file. The name of `__manifest` does not depend on it either, so it is opened without a session.
    """
    return new_session(int(os.environ.get("PHALANX_INDEX_CACHE_BYTES", _INDEX_CACHE_BYTES)))
