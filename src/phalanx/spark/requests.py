"""Requests from Spark's side: JSON on the way in, frozen dataclasses from here on.

A dataclass declares the keys of a request and their types. `build` checks both, once, so that no
operation looks into JSON by itself. Dataclasses may hold others, such as the handle of a table or
the job that a commit ends; bytes travel as base64. What Spark's users have written, such as
filters and schemas, stays the JSON that it is.
"""

from __future__ import annotations

import base64
import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


class BadRequest(Exception):
    """The two sides of the bridge do not understand each other, which is never the user's fault."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every request has."""

    #: The time zone of the session.
    zone: str


def build(kind: type[T], values: Any, name: str) -> T:
    """A dataclass from JSON. Raises BadRequest, which says which key of `name` is wrong."""
    if not isinstance(values, dict):
        raise BadRequest(f"{name} is not an object")
    fields = _fields(cast(Any, kind))
    for key in values:
        if key not in fields:
            raise BadRequest(f"{name} has the unknown key {key!r}")
    arguments = {}
    for key, (read, is_required) in fields.items():
        if key in values:
            arguments[key] = read(values[key], f"{name}.{key}")
        elif is_required:
            raise BadRequest(f"{name} lacks the key {key!r}")
    return kind(**arguments)


#: How a value is read. The name is for the error.
_Read = Callable[[Any, str], Any]


@cache
def _fields(kind: Any) -> dict[str, tuple[_Read, bool]]:
    """How each field of a dataclass is read, and whether it must be there."""
    hints = get_type_hints(kind)
    return {
        field.name: (
            _reader(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in dataclasses.fields(kind)
        if field.init
    }


def _reader(kind: Any) -> _Read:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value, name: value
    if kind is bytes:
        return _bytes
    if dataclasses.is_dataclass(kind):
        return lambda value, name: build(cast(type[Any], kind), value, name)
    if origin in (Union, types.UnionType):
        return _one_of(arguments)
    if origin is Mapping:
        return _mapping(arguments[1])
    if origin in (Sequence, tuple):
        return _sequence(arguments[0])
    return _plain(kind)


def _plain(kind: type) -> _Read:
    """A string, number or boolean. JSON has one kind of number, and a flag is none."""
    accepted = (int, float) if kind is float else kind

    def read(value: Any, name: str) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise BadRequest(f"{name} is {type(value).__name__}, not {kind.__name__}")
        return value

    return read


def _bytes(value: Any, name: str) -> bytes:
    if not isinstance(value, str):
        raise BadRequest(f"{name} is {type(value).__name__}, not bytes in base64")
    return base64.b64decode(value)


def _mapping(kind: Any) -> _Read:
    inner = None if kind is Any else _reader(kind)

    def read(value: Any, name: str) -> Any:
        if not isinstance(value, dict):
            raise BadRequest(f"{name} is {type(value).__name__}, not an object")
        if inner is None:
            return value
        return {key: inner(item, f"{name}.{key}") for key, item in value.items()}

    return read


def _sequence(kind: Any) -> _Read:
    inner = _reader(kind)

    def read(value: Any, name: str) -> Any:
        if not isinstance(value, list):
            raise BadRequest(f"{name} is {type(value).__name__}, not a list")
        return tuple(inner(item, f"{name}[{at}]") for at, item in enumerate(value))

    return read


def _one_of(kinds: Sequence[Any]) -> _Read:
    """A value that may be missing, or one of several dataclasses, which differ in their keys."""
    inner = [kind for kind in kinds if kind is not type(None)]
    optional = len(inner) < len(kinds)
    readers = [_reader(kind) for kind in inner]

    def read(value: Any, name: str) -> Any:
        if value is None and optional:
            return None
        for kind, reader in zip(inner[:-1], readers[:-1], strict=True):
            if not isinstance(value, dict) or value.keys() <= _fields(kind).keys():
                return reader(value, name)
        return readers[-1](value, name)

    return read
