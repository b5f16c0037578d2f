"""Names of partition namespaces and their folders.

A namespace is called by 16 characters of base36, as the specification asks. Ours come from a
keyed hash of the spec, the path so far and the value, so that two writers who create the same
partition at once arrive at the same name, and nobody without the table's salt can guess a value
from one.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from phalanx.model.calendar import PER_SECOND
from phalanx.model.domains import domain_of

SEPARATOR = "$"
LEAF = "dataset"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LENGTH = 16


def namespace_names(
    salt: bytes,
    spec_id: int,
    keys: Sequence[Any],
    types: Sequence[pa.DataType],
    known: Sequence[str] = (),
) -> list[str]:
    """The names of the namespaces from the spec down to the leaf with these values.

    `known` are the names of the outer ones that exist already, whatever they are called.
    """
    path = object_id(spec_id, known)
    names = list(known)
    for key, type in list(zip(keys, types, strict=True))[len(known) :]:
        name = _base36(_digest(salt, path.encode() + b"\0" + encode(key, type)))
        names.append(name)
        path += SEPARATOR + name
    return names


def object_id(spec_id: int, names: Sequence[str]) -> str:
    return SEPARATOR.join([f"v{spec_id}", *names])


def leaf_id(spec_id: int, names: Sequence[str]) -> str:
    return SEPARATOR.join([f"v{spec_id}", *names, LEAF])


def leaf_folder(salt: bytes, leaf: str) -> str:
    """The folder of a leaf: `<hash>_<object_id>`, as Appendix B shows."""
    return f"{_digest(salt, b'folder' + leaf.encode())[:4].hex()}_{leaf}"


def encode(key: Any, type: pa.DataType) -> bytes:
    """A value as bytes that a wider type of the same kind encodes in the same way.

    | type                  | bytes                                                     |
    |-----------------------|-----------------------------------------------------------|
    | NULL                  | `0`                                                       |
    | integers, bool, dates | `i` and the number in decimal                             |
    | time, timestamp       | `t` and nanoseconds in decimal                            |
    | floats                | `f` and the 8 bytes of the double, big-endian             |
    | decimals              | `d`, the unscaled number in decimal, `e`, the scale       |
    | strings               | `s` and UTF-8                                             |
    | binary                | `b` and the bytes                                         |
    """
    t = pa.types
    if key is None:
        return b"0"
    if t.is_floating(type):
        domain: Any = domain_of(type)
        return b"f" + struct.pack(">d", domain.value(key))
    if t.is_decimal(type):
        return f"d{key}e{type.scale}".encode()
    if t.is_timestamp(type) or t.is_time(type):
        return f"t{key * (PER_SECOND['ns'] // PER_SECOND[type.unit])}".encode()
    if isinstance(key, str):
        return b"s" + key.encode()
    if isinstance(key, bytes):
        return b"b" + key
    return f"i{int(key)}".encode()


def _digest(salt: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=salt, digest_size=16).digest()


def _base36(digest: bytes) -> str:
    number = int.from_bytes(digest, "big")
    name = ""
    for _ in range(_LENGTH):
        number, digit = divmod(number, 36)
        name += _DIGITS[digit]
    return name
