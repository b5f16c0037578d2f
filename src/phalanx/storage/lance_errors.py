"""What Lance's errors mean.

Lance raises `OSError` and `ValueError` for nearly everything, and only the message distinguishes a
lost race from a missing file. Every message that Phalanx relies on is listed here, so that a new
version of Lance is checked in one place (`tests/storage/test_lance_errors.py` provokes each one).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

#: The errors that Lance raises. Any other class would be a bug, so it is not caught.
LANCE_ERRORS = (OSError, ValueError)

#: Names of storage options whose values must not be shown.
SECRET = re.compile("secret|token|password|key|signature|credential", re.IGNORECASE)

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
_MISSING = ("not found", "does not exist", "no such file", "not a directory")
_LOST_RACES = ("too many concurrent writers", "conflict", "concurrent")
_NO_STORE = "No object store provider"
_REFUSED_FILTERS = ("Invalid user input", "Query Execution")


def reason(error: BaseException, options: Mapping[str, str] | None = None) -> str:
    """The first line of an error, without locations in Lance's source and without secrets."""
    text = str(error).split("\n")[0].split(", /")[0]
    text = _WRAPPERS.sub("", text)
    for name, value in (options or {}).items():
        if SECRET.search(name) and value:
            text = text.replace(value, "***")
    return text


def is_missing(error: BaseException) -> bool:
    """Whether a dataset, a version or a file does not exist."""
    text = str(error).lower()
    return any(sign in text for sign in _MISSING)


def is_damage(error: BaseException) -> bool:
    """Whether a file is missing or cannot be decoded. Network failures do not count."""
    text = reason(error)
    return bool(_DAMAGED.match(text) or (_PANICKED.match(text) and "lance-encoding/" in str(error)))


def is_unreachable(error: BaseException) -> bool:
    """Whether a store could not be reached, so that nothing is known about its contents."""
    text = str(error).lower()
    if is_damage(error) or "not found" in text:
        return False
    return any(sign in text for sign in _UNREACHABLE)


def is_lost_race(error: BaseException, uri: str) -> bool:
    """Whether another commit came first. `uri` is ignored: it may contain the same words."""
    text = str(error).replace(uri.strip("/"), "").lower()
    return any(sign in text for sign in _LOST_RACES)


def is_unknown_store(error: BaseException) -> bool:
    """Whether Lance does not support the scheme of a URI."""
    return _NO_STORE in str(error)


def refuses_filter(error: BaseException) -> bool:
    """Whether Lance cannot evaluate a filter."""
    return reason(error).startswith(_REFUSED_FILTERS)


def raise_interrupt(error: BaseException) -> None:
    """Raise what a signal handler has raised while Lance was reading, if that is what failed.

    Arrow streams carry errors as text. So `KeyboardInterrupt` looks like an error of the file.
    """
    match = _PYTHON_ERROR.match(str(error))
    if match is None:
        return
    for kind in _subclasses(BaseException):
        if kind.__name__ == match[1] and not issubclass(kind, LANCE_ERRORS):
            raise kind(match[2]) from None


def _subclasses(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
