"""Lance's errors: what each of them means, and what a user is told.

Lance raises `OSError` and `ValueError` for nearly everything, and only the text tells a lost race
from a missing file. Every text that Phalanx relies on is here, so that a new version of Lance is
checked in one place (`tests/storage/test_lance_errors.py` provokes each of them). So are the
sentences for users: `manifest_error`, `leaf_error`, `damaged_leaf` and `refused_filter`.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from typing import Any

from phalanx.errors import (
    CorruptTable,
    InvalidInput,
    PhalanxError,
    StorageError,
    TableNotFound,
)
from phalanx.storage.object_store import without_secrets

#: The errors that Lance raises. Any other class would be a bug, so it is not caught.
LANCE_ERRORS = (OSError, ValueError)

#: How messages begin if a file is missing, too short or corrupt. Messages about filters and about
#: network failures begin differently.
_DAMAGED = re.compile(
    r"(Generic [\w/]+ error: )?Not found: "
    r"|Generic \w+ error: (Invalid range |failed to fill whole buffer)"
    r"|Generic \w+ error: Error performing GET .* 416 Range Not Satisfiable"
    r"|Invalid user input: file does not appear to be a Lance file"
    r"|failed to decode Protobuf message"
    r"|Encountered corrupt file"
)
#: A decoder panicked on an unexpected file.
_PANICKED = re.compile(r"Wrapped error: task \d+ panicked")
#: The store cannot be reached, so nothing is known about its contents.
_UNREACHABLE = ("error performing", "http error", "credentials", "permission denied", "timed out")
_WRAPPERS = re.compile(r"^(External error: |LanceError\(\w+\): )+")
#: An exception of Python that came through an Arrow stream: its class, and its text.
_PYTHON_ERROR = re.compile(r"External error: ([A-Z]\w*)(?:: |$)(.*)", re.DOTALL)
_UNPRINTABLE = "External error: <unprintable "
_MISSING = ("not found", "does not exist", "no such file", "not a directory")
#: The address of a file in a store. Some escape the path in it.
_ADDRESS = re.compile(r"https?://\S+")
_LOST_RACES = ("too many concurrent writers", "conflict", "concurrent")
#: The store asks for a slower pace, and has not done what it was asked for this time.
_THROTTLED = re.compile(r"429 Too Many Requests|<Code>SlowDown</Code>")
#: How Rust ends the text of an error of the operating system.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
#: What only Lance's errors and those of its object stores say.
_OF_LANCE = re.compile(r"LanceError\(|Generic \w+ error|\(os error \d+\)|/rust/")
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_RIGHTS = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_STORE = "No object store provider"
_NO_BUCKET = re.compile(r"<Code>NoSuchBucket</Code>|ContainerNotFound")
#: What says that a store is not set up, or that the options do not fit it, and what to do then.
_SETUP = (
    (_NO_BUCKET, "the bucket does not exist: create it first, or correct its name"),
    (
        re.compile(r"Error performing \w+ http://.*HTTP error: builder error", re.DOTALL),
        "its endpoint is http and not https: allow that with the storage option allow_http='true'",
    ),
    (
        re.compile("Failed to get AWS credentials|CredentialsNotLoaded"),
        "there are no credentials: give the storage options access_key_id and secret_access_key, "
        "or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (
        re.compile(r"Error performing token request: .*/computeMetadata/", re.DOTALL),
        "there are no credentials: give the storage option service_account or service_account_key, "
        "or set GOOGLE_APPLICATION_CREDENTIALS",
    ),
    (
        re.compile(
            r"Unable to (open|decode) service account file|Generic \w*CryptoProvider error"
            "|workload identity credentials error: failed to parse"
        ),
        "the key of the service account cannot be read: correct it where the storage options give "
        "it, or GOOGLE_SERVICE_ACCOUNT, GOOGLE_SERVICE_ACCOUNT_KEY or "
        "GOOGLE_APPLICATION_CREDENTIALS",
    ),
    (
        re.compile("Generic Config error: failed to parse"),
        "a storage option has a value that it cannot have: 'true' and 'false' are for those that "
        "allow something, and times are written like '30s'",
    ),
    (
        re.compile("Generic HTTP client error: builder error"),
        "the storage option proxy_url, or another address among the options, is not a URL",
    ),
    (
        re.compile("401 Unauthorized"),
        "the store has refused the credentials (401 Unauthorized): correct those that the storage "
        "options or the environment give",
    ),
    (
        re.compile("One of service account path or service account key may be provided"),
        "a service account is given twice, by a file and by a key: keep one of the storage options "
        "service_account and service_account_key, and unset GOOGLE_SERVICE_ACCOUNT or "
        "GOOGLE_SERVICE_ACCOUNT_KEY",
    ),
)
_REFUSED_FILTERS = ("Invalid user input", "Query Execution")


def reason(error: BaseException, options: Mapping[str, str] | None = None) -> str:
    """An error in one line: what to do about it where that is known, else Lance's first line.

    It has no locations in Lance's source and no secrets.
    """
    text = str(error)
    for sign, sentence in _SETUP:
        if sign.search(text):
            return sentence
    return without_secrets(_first_line(error), options)


def _first_line(error: BaseException) -> str:
    return _WRAPPERS.sub("", str(error).split("\n")[0].split(", /")[0])


def is_without_bucket(error: BaseException) -> bool:
    """Whether the bucket of a store does not exist."""
    return _NO_BUCKET.search(str(error)) is not None


def is_misconfigured(error: BaseException) -> bool:
    """Whether the options do not fit a store, so that nothing is known about its contents."""
    text = str(error)
    return any(sign.search(text) for sign, _ in _SETUP if sign is not _NO_BUCKET)


def is_missing(error: BaseException) -> bool:
    """Whether a dataset, a version or a file of it does not exist."""
    text = str(error).lower()
    return any(sign in text for sign in _MISSING) and not is_misconfigured(error)


def is_damage(error: BaseException) -> bool:
    """Whether a file is missing or cannot be decoded. Network failures do not count."""
    text = _first_line(error)
    return bool(_DAMAGED.match(text) or (_PANICKED.match(text) and "lance-encoding/" in str(error)))


def is_unreachable(error: BaseException) -> bool:
    """Whether a store could not be reached, so that nothing is known about its contents."""
    if is_misconfigured(error):
        return True
    text = str(error).lower()
    if is_damage(error) or "not found" in text:
        return False
    return any(sign in text for sign in _UNREACHABLE)


def is_lost_race(error: BaseException, uri: str) -> bool:
    """Whether another commit came first. `uri` is ignored: it may contain the same words."""
    text, path = _ADDRESS.sub("", str(error)), uri.partition("://")[2] or uri
    # Stores leave the bucket out. What is left may be as short as `t`, so only paths are taken out.
    for part in filter(None, (uri, path, path.partition("/")[2])):
        text = re.sub(rf"(?<!\w){re.escape(part)}/\S*", "", text)
    if "/" in path:
        text = text.replace(path, "")
    return any(sign in text.lower() for sign in _LOST_RACES)


def is_throttled(error: BaseException) -> bool:
    """Whether a store asks for a slower pace: Google's takes one write a second to one file."""
    return _THROTTLED.search(str(error)) is not None


def is_of_lance(error: BaseException) -> bool:
    """Whether an `OSError` comes from Lance, and not from a stream that Lance was reading."""
    return bool(_OF_LANCE.search(str(error)))


def is_full(error: BaseException) -> bool:
    """Whether a disk has no space left, or a quota is used up."""
    return _number(error) in _NO_SPACE


def _number(error: BaseException) -> int | None:
    """The operating system's number of an error, if it has one."""
    number: int | None = getattr(error, "errno", None)
    match = _OS_ERROR.search(str(error))
    return int(match[1]) if number is None and match else number


def is_unknown_store(error: BaseException) -> bool:
    """Whether Lance does not support the scheme of a URI."""
    return _NO_STORE in str(error)


def refuses_filter(error: BaseException) -> bool:
    """Whether Lance cannot evaluate a filter."""
    return _first_line(error).startswith(_REFUSED_FILTERS)


def raise_interrupt(error: BaseException) -> None:
    """Raise what a signal handler has raised while Lance was reading, if that is what failed.

    Arrow streams carry errors as text. So `KeyboardInterrupt` looks like an error of the file. If
    another signal came while that text was made, the class is unknown: it is InterruptedError then.
    """
    if _UNPRINTABLE in str(error):
        raise InterruptedError("a signal handler has interrupted a read") from None
    match = _PYTHON_ERROR.match(str(error))
    if match is None:
        return
    kinds = [k for k in _subclasses(BaseException) if k.__name__ == match[1]]
    kinds = [kind for kind in kinds if not issubclass(kind, LANCE_ERRORS)]
    if kinds:
        # Of several with the same name, the last was defined by the program, not by a library.
        raise kinds[-1](match[2]) from None


def _subclasses(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


# What a user is told. `options` are the storage options, whose secrets stay out of the texts.


def manifest_error(uri: str, error: Exception, options: Mapping[str, str] | None) -> PhalanxError:
    """The error for a manifest that cannot be opened or read."""
    if is_without_bucket(error):
        return TableNotFound(f"there is no table at {uri}: {reason(error, options)}")
    if is_missing(error):
        return TableNotFound(f"there is no table at {uri}: make one with phalanx.create")
    if is_unknown_store(error):
        return InvalidInput(f"cannot reach {uri}: {reason(error, options)}")
    if is_unreachable(error):
        return StorageError(f"cannot reach {uri}: {reason(error, options)}")
    return CorruptTable(f"cannot read the manifest of {uri}: {reason(error, options)}")


def store_error(uri: str, error: OSError, options: Mapping[str, str] | None) -> StorageError:
    """The error for a read or write that the file system or the object store did not carry out."""
    text, number = reason(error, options), _number(error)
    if number in _NO_SPACE:
        text = f"there is no space left for {uri}: free some, for example with vacuum() ({text})"
    elif number in _NO_RIGHTS:
        text = f"this process has no right to read or write {uri}, or it is read-only: {text}"
    else:
        text = f"the storage of {uri} failed: {text}"
    failure = StorageError(text)
    failure.errno = number
    return failure


def lost_manifest(uri: str) -> TableNotFound:
    """The error for a folder that has leaves and no manifest.

    A table that is being created with its first rows looks like that, too.
    """
    return TableNotFound(
        f"there is no table at {uri}: the folder has leaves and no manifest; if a table was there, "
        "restore its folder __manifest from a backup"
    )


def dropped_table(uri: str) -> TableNotFound:
    """The error for a table whose folder is gone since it was opened."""
    return TableNotFound(
        f"the table {uri} was dropped since it was opened: its folder is not there any more"
    )


def replaced_manifest(uri: str) -> TableNotFound:
    """The error for a manifest whose version is gone since it was opened."""
    return TableNotFound(
        f"the table {uri} no longer exists as it was opened: it was dropped, or this version was "
        "removed by vacuum; if neither, run check()"
    )


def leaf_error(
    uri: str, version: int | None, error: Exception, options: Mapping[str, str] | None
) -> PhalanxError:
    """The error for a version of a leaf that cannot be opened."""
    if is_unreachable(error):
        return StorageError(f"cannot reach {uri}: {reason(error, options)}")
    if version is None:
        return CorruptTable(
            f"the leaf {uri} has no version on main: restore its folder, or delete it if a writer "
            f"that failed has left it there ({reason(error, options)})"
        )
    return CorruptTable(
        f"the leaf {uri} has no version {version}: if its snapshot has expired, or the table was "
        "dropped and made again, reopen the table; if not, run check() "
        f"({reason(error, options)})"
    )


def damaged_leaf(uri: str, error: Exception, options: Mapping[str, str] | None) -> CorruptTable:
    """The error for a file of a leaf that is missing or cannot be decoded."""
    return CorruptTable(
        f"a file of the leaf {uri} is gone or damaged ({reason(error, options)}): if the table was "
        "vacuumed or made again meanwhile, reopen it; if not, run check()"
    )


def refused_filter(text: str, error: Exception) -> InvalidInput:
    """The error for a filter that Lance cannot evaluate."""
    return InvalidInput(f"Lance cannot evaluate {text}: {_first_line(error).split(': ', 1)[-1]}")


def read_transaction(handle: Any, version: int) -> Any:
    """The Lance transaction that made a version of a dataset; None if Lance cannot tell.

    Lance has no Python value for some operations, such as a compaction of files with an index.
    """
    try:
        return handle.read_transaction(version)
    except (*LANCE_ERRORS, NotImplementedError, TypeError):
        return None
