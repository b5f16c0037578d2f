"""Defaults of columns: what rows hold that were written, or are given, without a column.

A column has two defaults. The *existing* one is a constant: rows of files that were written before
the column was added hold it, so it never changes. The *new* one is for rows that come without the
column. It is the existing one until another is set, and it may be SQL that has another value in
every statement, such as `current_timestamp()`.

Both are metadata of the field: `phalanx:default` holds the existing default as text, and
`phalanx:current_default` holds the new one as JSON:

    {"sql": "5 + 5", "value": "10"}     a constant, with its SQL; `"value": null` is NULL
    {"value": "10"}                     a constant that was not given as SQL
    {"sql": "current_timestamp()"}      no constant
    null                                none, although there is an existing one
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.domains import (
    TemporalDomain,
    TextDomain,
    domain_of,
    local_to_utc,
    utc_to_local,
)
from phalanx.model.spelling import constant_of, constant_text, read_constant

DEFAULT = b"phalanx:default"
NEW_DEFAULT = b"phalanx:current_default"
_DAY = 86_400 * 1_000_000_000


@dataclass(frozen=True)
class Default:
    """What new rows hold in a column that they come without.

    `value` is None if the SQL has another value in every statement. `sql` is None for a value that
    was not given as SQL.
    """

    value: pa.Scalar | None
    sql: str | None = None


def default_of(field: pa.Field) -> pa.Scalar | None:
    """What a column holds in rows that were written without it; None stands for NULL."""
    text = (field.metadata or {}).get(DEFAULT)
    return None if text is None else read_constant(text.decode(), field.type)


def new_default_of(field: pa.Field) -> Default | None:
    """What a column holds in new rows that come without it; None if it has no default."""
    text = (field.metadata or {}).get(NEW_DEFAULT)
    if text is None:
        value = default_of(field)
        return None if value is None else Default(value)
    stored = json.loads(text)
    if stored is None:
        return None
    return Default(_read(stored, field.type), stored.get("sql"))


def _read(stored: dict[str, Any], type: pa.DataType) -> pa.Scalar | None:
    if "value" not in stored:
        return None
    text = stored["value"]
    return pa.scalar(None, type) if text is None else read_constant(text, type)


def absent(field: pa.Field, rows: int) -> pa.Array:
    """What a column holds in rows that were written without it."""
    return repeated(default_of(field), field.type, rows)


def repeated(value: pa.Scalar | None, type: pa.DataType, rows: int) -> pa.Array:
    """A column that holds one value; None stands for NULL."""
    return pa.nulls(rows, type) if value is None else pa.repeat(value, rows)


def with_default(field: pa.Field, value: pa.Scalar | None) -> pa.Field:
    """The field with another default, for existing and for new rows.

    Raises InvalidInput where its type can have none.
    """
    field = without_defaults(field)
    if value is None or not value.is_valid:
        return field
    return _with(field, DEFAULT, _text(value, field.type))


def with_new_default(field: pa.Field, default: Default | None) -> pa.Field:
    """The field with another default for new rows. Raises InvalidInput where it can have none."""
    existing = (field.metadata or {}).get(DEFAULT)
    if default is None:
        return _with(field, NEW_DEFAULT, None if existing is None else "null")
    stored: dict[str, str | None] = {} if default.sql is None else {"sql": default.sql}
    if default.value is not None:
        valid = default.value.is_valid
        stored["value"] = _text(default.value, field.type) if valid else None
    if stored == {"value": None if existing is None else existing.decode()}:
        return _with(field, NEW_DEFAULT, None)
    return _with(field, NEW_DEFAULT, json.dumps(stored, ensure_ascii=False))


def without_defaults(field: pa.Field) -> pa.Field:
    """The field without its defaults."""
    return _with(_with(field, DEFAULT, None), NEW_DEFAULT, None)


def carried(old: pa.Field, new: pa.Field, convert: Callable[[pa.Array], pa.Array]) -> pa.Field:
    """A field that has become another type, with the defaults that it had before.

    `convert` returns values of the old type in the new one. Raises InvalidInput where SQL that is
    no constant would not fit.
    """
    existing, default = default_of(old), new_default_of(old)
    was_set = NEW_DEFAULT in (old.metadata or {})
    field = without_defaults(new)

    def converted(value: pa.Scalar) -> pa.Scalar:
        if not value.is_valid:
            return pa.scalar(None, new.type)
        return convert(pa.repeat(value, 1))[0]

    if existing is not None:
        field = with_default(field, converted(existing))
    if not was_set:
        return field
    if default is None:
        return with_new_default(field, None)
    if default.value is not None:
        # The SQL may mean another value in the new type: 0.1 is not the same float and double.
        return with_new_default(field, Default(converted(default.value)))
    if pa.types.is_nested(new.type):
        raise InvalidInput(
            f"column {old.name!r} has the default {default.sql}, which would not fit its new "
            f"type {new.type}: drop the default first"
        )
    return with_new_default(field, default)


#: SQL that means the same outside of Spark. Only some of these functions need no parentheses.
_FUNCTION = re.compile(
    r"\s*(?:(current_timestamp|localtimestamp|current_date|current_user|session_user|user)"
    r"(?:\s*\(\s*\))?|(now|curdate)\s*\(\s*\))\s*",
    re.IGNORECASE | re.ASCII,
)


def evaluated(
    sql: str, type: pa.DataType, nanoseconds: int, user: str | None, zone: str
) -> pa.Scalar | None:
    """The value of SQL in a statement, by its time since the epoch, its user and its time zone.

    None if only Spark can tell. Raises InvalidInput for an unknown zone.
    """
    match = _FUNCTION.fullmatch(sql)
    if match is None or isinstance(type, pa.BaseExtensionType):
        return None
    function, domain = (match[1] or match[2]).lower(), domain_of(type)
    if function.endswith("user"):
        known = isinstance(domain, TextDomain) and user is not None
        return constant_of(user, type) if known else None
    t, held = pa.types, domain.type
    if not isinstance(domain, TemporalDomain) or not (t.is_timestamp(held) or t.is_date(held)):
        return None
    local, is_zoned = utc_to_local(nanoseconds, zone), t.is_timestamp(held) and held.tz is not None
    if function in ("current_date", "curdate") or t.is_date(held):
        local -= local % _DAY
        time = local_to_utc(local, zone) if is_zoned else local
    else:
        time = nanoseconds if is_zoned else local
    return constant_of(math.floor(Fraction(time, 1_000_000_000) * domain.per_second), type)


def _with(field: pa.Field, key: bytes, text: str | None) -> pa.Field:
    metadata = {k: v for k, v in (field.metadata or {}).items() if k != key}
    if text is not None:
        metadata[key] = text.encode()
    return field.with_metadata(metadata or None)


def _text(value: pa.Scalar, type: pa.DataType) -> str:
    """A default as text. Raises InvalidInput where it could not be read back."""
    unable = InvalidInput(f"a column of type {type} can have no default but NULL")
    try:
        text = constant_text(value)
        read_constant(text, type)
    except (InvalidInput, pa.ArrowException):
        raise unable from None
    return text
