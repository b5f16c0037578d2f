"""Ids of the manifest's rows, and names of partition namespaces and their folders.

| row           | id                                      |
|---------------|-----------------------------------------|
| spec          | `v<spec id>`                            |
| namespace     | `v<spec id>$<name>$…`, a name per field |
| leaf          | the id of its namespace, then `$dataset`|
| leaf version  | the id of the leaf, then `$<number>`    |
| transaction   | `__transaction$<transaction id>`        |
| tag           | `__tag$<name>`                          |
| stream        | `__stream$<query id>`                   |

Ids are built and parsed only in this module.

The name of a namespace is 16 characters of base36, as the specification requires. It is a keyed
hash of the spec, the path so far and the value, so that two writers that create the same partition
concurrently choose the same name, and nobody without the table's salt can guess a value from a
name.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phalanx.model.calendar import PER_SECOND
from phalanx.model.domains import domain_of

SEPARATOR = "$"
LEAF = "dataset"
_BRANCHES = "tree"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LENGTH = 16
_SPEC = re.compile(r"v\d+")
_LEAF_ID = re.compile(r"v\d+(\$[^$]+)*\$dataset")
_LEAF_FOLDER = re.compile(r"[0-9a-f]{8}_v\d+(\$[^$/\\]+)*\$dataset")


def namespace_names(
    salt: bytes,
    spec_id: int,
    keys: Sequence[Any],
    types: Sequence[pa.DataType],
    known: Sequence[str] = (),
) -> list[str]:
    """The names of the namespaces from the spec down to the leaf with these values.

    `known` are the names of the outer namespaces that exist already. Another client may have chosen
    them.
    """
    path = object_id(spec_id, known)
    names = list(known)
    for key, type in list(zip(keys, types, strict=True))[len(known) :]:
        name = _base36(_digest(salt, path.encode() + b"\0" + encode(key, type)))
        names.append(name)
        path += SEPARATOR + name
    return names


def object_id(spec_id: int, names: Sequence[str]) -> str:
    """The id of a namespace, or of the spec's own namespace if there are no names."""
    return SEPARATOR.join([f"v{spec_id}", *names])


def leaf_id(spec_id: int, names: Sequence[str]) -> str:
    return SEPARATOR.join([f"v{spec_id}", *names, LEAF])


def is_leaf_id(id: str) -> bool:
    """Whether a table of the manifest is a leaf, and not another client's table."""
    return _LEAF_ID.fullmatch(id) is not None


def is_leaf_folder(name: str) -> bool:
    """Whether a folder is named like the folder of a leaf; only such folders are removed whole."""
    return _LEAF_FOLDER.fullmatch(name) is not None


def leaf_in(folder: str) -> str:
    """The id of the leaf that a folder is named after."""
    return folder.partition("_")[2]


def spec_of(id: str) -> int | None:
    """The spec of a namespace or leaf; None for an id that is neither."""
    first = id.split(SEPARATOR, 1)[0]
    return int(first[1:]) if _SPEC.fullmatch(first) else None


def is_spec(id: str) -> bool:
    """Whether a namespace is the spec's own, which contains all others."""
    return SEPARATOR not in id


def names_in(id: str) -> list[str]:
    """The names in the id of a namespace or leaf, outermost first."""
    names = id.split(SEPARATOR)[1:]
    return names[:-1] if names and names[-1] == LEAF else names


def namespaces_above(leaf: str) -> list[str]:
    """The ids of the namespaces that a leaf is in, outermost first, without the spec's own."""
    spec, *names, _ = leaf.split(SEPARATOR)
    return [SEPARATOR.join([spec, *names[:depth]]) for depth in range(1, len(names) + 1)]


def outer_ids(ids: pa.ChunkedArray, parts: int) -> pa.ChunkedArray:
    """The first parts of each id, which are the id of something that it is in, or all of it."""
    return pc.binary_join(pc.list_slice(pc.split_pattern(ids, SEPARATOR), 0, parts), SEPARATOR)


def is_inside(id: str, namespace: str) -> bool:
    """Whether a leaf or namespace is somewhere inside a namespace."""
    return id.startswith(namespace + SEPARATOR)


def version_id(leaf: str, number: int) -> str:
    """The id of a row in a leaf's timeline."""
    return f"{leaf}{SEPARATOR}{number}"


def leaf_version(id: str) -> tuple[str, int] | None:
    """The leaf and number of a row in a timeline; None if the id has no number."""
    leaf, _, number = id.rpartition(SEPARATOR)
    return (leaf, int(number)) if number.isascii() and number.isdigit() else None


def transaction_row(transaction_id: str) -> str:
    return f"__transaction{SEPARATOR}{transaction_id}"


def tag_row(name: str) -> str:
    return f"__tag{SEPARATOR}{name}"


def stream_row(query: str) -> str:
    return f"__stream{SEPARATOR}{query}"


def leaf_folder(salt: bytes, leaf: str) -> str:
    """The folder of a leaf: `<hash>_<object_id>`, as Appendix B shows."""
    return f"{_digest(salt, b'folder' + leaf.encode())[:4].hex()}_{leaf}"


def branch_folder(folder: str, branch: str) -> str:
    """The folder of a branch of a leaf: Lance keeps it inside of the leaf's own, as a dataset."""
    return f"{folder}/{_BRANCHES}/{branch}"


def without_branch(folder: str) -> tuple[str, str | None]:
    """The folder of a leaf and its branch; None for main."""
    leaf, _, branch = folder.partition(f"/{_BRANCHES}/")
    return leaf, branch or None


def encode(key: Any, type: pa.DataType) -> bytes:
    """Encode a value as bytes, so that a wider type of the same kind gives the same bytes.

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
