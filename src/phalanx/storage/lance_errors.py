"""What Lance's errors mean.

Lance raises `OSError` and `ValueError` for nearly everything, and only the text tells a lost race
from a missing file. Every text that Phalanx relies on is here, so that a new version of Lance is
checked in one place (`tests/storage/test_lance_errors.py` provokes each of them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: What Lance raises. A `LanceError` of any other class would be a bug worth seeing.
LANCE_ERRORS = (OSError, ValueError)

#: Names of options whose values must not be shown.
SECRET = re.compile("secret|token|password|key|signature|credential", re.IGNORECASE)

#: How Lance begins to say that a file is missing, too short, or not what was written. Neither a
#: filter nor a network that fails for a while begins like that.
_DAMAGED = re.compile(
    r"(Generic [\w/]+ error: )?Not found: "
    r"|Generic \w+ error: (Invalid range |failed to fill whole buffer)"
    r"|Generic \w+ error: Error performing GET .* 416 Range Not Satisfiable"
    r"|Invalid user input: file does not appear to be a Lance file"
    r"|failed to decode Protobuf message"
    r"|Encountered corrupt file"
)
#: A decoder that panicked on a file that it did not expect.
_PANICKED = re.compile(r"Wrapped error: task \d+ panicked")
#: A store that cannot be reached: nothing is known about what is there.
_UNREACHABLE = ("error performing", "http error", "credentials", "permission denied", "timed out")
_WRAPPERS = re.compile(r"^(External error: |LanceError\(\w+\): )+")
_MISSING = ("not found", "does not exist", "no such file", "not a directory")
_LOST_RACES = ("too many concurrent writers", "conflict", "concurrent")
_NO_STORE = "No object store provider"
_REFUSED_FILTERS = ("Invalid user input", "Query Execution")


def reason(error: BaseException, options: Mapping[str, str] | None = None) -> str:
    """The first line of an error, without places in Lance's code and without secrets."""
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
    """Whether a file is missing or cannot be decoded. A network that fails is no damage."""
    text = reason(error)
    return bool(_DAMAGED.match(text) or (_PANICKED.match(text) and "lance-encoding/" in str(error)))


def is_unreachable(error: BaseException) -> bool:
    """Whether a store was not reached, so that nothing is known about what is there."""
    text = str(error).lower()
    if is_damage(error) or "not found" in text:
        return False
    return any(sign in text for sign in _UNREACHABLE)


def is_lost_race(error: BaseException, uri: str) -> bool:
    """Whether another commit came first. `uri` is left out of the text: it may say anything."""
    text = str(error).replace(uri.strip("/"), "").lower()
    return any(sign in text for sign in _LOST_RACES)


def is_unknown_store(error: BaseException) -> bool:
    """Whether Lance does not know the scheme of a URI."""
    return _NO_STORE in str(error)


def refuses_filter(error: BaseException) -> bool:
    """Whether Lance cannot evaluate a filter."""
    return reason(error).startswith(_REFUSED_FILTERS)
