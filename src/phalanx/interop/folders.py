"""Folders of `key=value` trees: how a partition value is spelled in a path, and read from one.

| value                                    | spelled as                       |
|------------------------------------------|----------------------------------|
| NULL                                     | `__HIVE_DEFAULT_PARTITION__`     |
| the string `__HIVE_DEFAULT_PARTITION__`  | `%5F_HIVE_DEFAULT_PARTITION__`   |
| the empty string                         | nothing: `country=`              |
| `/ \\ : * ? " < > |`, a space, `%`,       | `%` and two hexadecimal digits   |
| control characters                       | for each byte                    |
| everything else                          | itself                           |

So every string has one spelling of its own, and none of them leads out of the folder that it is in.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.domains import domain_of
from phalanx.model.literals import Literal
from phalanx.model.spelling import constant_of, shortened, value_text

NULL = "__HIVE_DEFAULT_PARTITION__"
#: How many bytes the name of a folder may have, in every common file system.
MAX_BYTES = 255

_ESCAPED_IN_VALUES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>| %]')
_ESCAPED_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>| %=]')
#: What the name of a Lance dataset ends with.
LEAF = ".lance"
_LEAF_END = re.compile(r"\.lance\Z")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)


def folder_of(columns: Sequence[str], texts: Sequence[str | None]) -> str:
    """The path of the folder for some partition values; empty if there are no columns.

    Raises InvalidInput for a value whose folder would have too long a name.
    """
    return "/".join(map(_folder_name, columns, texts))


def leaf_path(columns: Sequence[str], texts: Sequence[str | None]) -> str:
    """The path of the Lance dataset for some partition values: `a=1/b=2.lance`.

    Only the name of a dataset ends with `.lance`. Raises InvalidInput for a value whose folder
    would have too long a name.
    """
    *outer, last = zip(columns, texts, strict=True)
    folders = [_folder_name(*pair) for pair in outer]
    folders = [_LEAF_END.sub("%2Elance", name) for name in folders]
    return "/".join([*folders, _folder_name(*last, suffix=LEAF)])


def parse_leaf_path(path: str) -> list[tuple[str, str | None]] | None:
    """The columns and values that the path of a dataset spells; None if it spells none.

    Raises InvalidInput for bytes that are not UTF-8.
    """
    if not path.endswith(LEAF):
        return None
    pairs = [parse_folder(name) for name in path.removesuffix(LEAF).split("/")]
    spelled_pairs = [pair for pair in pairs if pair is not None]
    return spelled_pairs if len(spelled_pairs) == len(pairs) else None


def _folder_name(column: str, text: str | None, suffix: str = "") -> str:
    name = f"{column_name(column)}={spelled(text)}{suffix}"
    if len(name.encode()) > MAX_BYTES:
        raise InvalidInput(
            f"the value {shortened(text or '')!r} of column {column!r} is too long for the name "
            f"of a folder, which has at most {MAX_BYTES} bytes: leave the column out of "
            "partition_by"
        )
    return name


def column_name(column: str) -> str:
    """The name of a column as it is written in a path."""
    return _ESCAPED_IN_NAMES.sub(_escape, column)


def spelled(text: str | None) -> str:
    """A partition value as it is written in a path; None is NULL."""
    if text is None:
        return NULL
    if text == NULL:
        return f"%5F{NULL[1:]}"
    return _ESCAPED_IN_VALUES.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


def parse_folder(name: str) -> tuple[str, str | None] | None:
    """The column and value that the name of a folder spells; None if it spells none.

    Raises InvalidInput for bytes that are not UTF-8.
    """
    column, equals, value = name.partition("=")
    if not equals or not column:
        return None
    try:
        column = unquote(column, errors="strict")
        return column, None if value == NULL else unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput(f"the folder {name!r} is not UTF-8: rename it") from None


def text_of(key: Any, type: pa.DataType) -> str | None:
    """The text of a partition value, given as a key; None for NULL."""
    return None if key is None else value_text(key, type)


def value_of(text: str | None, column: pa.Field) -> pa.Scalar:
    """The value of a column that a text in a path stands for: `01` is 1 in a column of integers.

    Times without a zone are in UTC. Raises InvalidInput for a text that is not a value of the type.
    """
    type = column.type
    if text is None:
        return pa.scalar(None, type)
    wrong = InvalidInput(
        f"the folder {column.name}={shortened(text)} does not fit the column {column.name!r}, "
        f"which is {type}: give a schema in which it does"
    )
    plain = type.value_type if pa.types.is_dictionary(type) else type
    if pa.types.is_boolean(plain):
        truth = {"true": True, "false": False}.get(text.lower())
        if truth is None:
            raise wrong
        return pa.scalar(truth, type)
    domain = domain_of(type)
    if not domain.ordered:
        raise wrong
    try:
        key, exact = domain.locate(Literal("string", text))
        if pa.types.is_floating(plain):
            value = pa.scalar(float(text), pa.float64()).cast(plain)
            if math.isinf(value.as_py()) and not _INFINITE.fullmatch(text):
                raise wrong
            return value if plain == type else pa.array([value]).cast(type)[0]
        if not exact:
            raise wrong
        return constant_of(key, type)
    except (InvalidInput, ValueError, OverflowError, TypeError, pa.ArrowException):
        raise wrong from None


def inferred_type(texts: Sequence[str | None]) -> pa.DataType:
    """The type of the values of a column in a path: int64, date32 or string.

    It is a number or a date only if that is written in the same way, so that nothing is lost:
    `01` is a string, unless a schema says that it is a number.
    """
    given = {text for text in texts if text is not None}
    if given and all(map(_is_integer, given)):
        return pa.int64()
    return pa.date32() if given and all(map(_is_date, given)) else pa.string()


def _is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63


def _is_date(text: str) -> bool:
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
