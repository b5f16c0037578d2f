"""Protobuf messages without their definitions: members by number, which is what Lance's files hold.

A member is a number, a kind and a value: an int for kind 0 (varint), bytes for kind 2 (text, bytes
and inner messages). Lance's metadata has no others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

Message = list[tuple[int, int, Any]]


def parse(raw: bytes) -> Message:
    """The members of a message, in order. Raises ValueError for bytes that are no message."""
    message: Message = []
    position = 0
    while position < len(raw):
        key, position = _number(raw, position)
        value: Any
        value, position = _number(raw, position)
        if key & 7 == 2:
            end = position + value
            if end > len(raw):
                raise ValueError("a message ends inside of a member")
            value, position = raw[position:end], end
        elif key & 7 != 0:
            raise ValueError(f"a message has a value of kind {key & 7}")
        message.append((key >> 3, key & 7, value))
    return message


def spell(message: Message) -> bytes:
    """The inverse of `parse`."""
    return b"".join(member(number, value) for number, _, value in message)


def member(number: int, value: int | bytes) -> bytes:
    """One member of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    return bytes((value,)) if value < 128 else bytes(_digits(value))


def numbers(raw: bytes) -> Iterator[int]:
    """The numbers of a packed member."""
    position = 0
    while position < len(raw):
        value, position = _number(raw, position)
        yield value


class MessageTemplate:
    """A message with blanks: some of its members are filled in, the others stay as they are."""

    def __init__(self, message: Message, blanks: Collection[int]) -> None:
        #: Bytes that stay, and the numbers of members between them.
        self._parts: list[bytes | int] = []
        kept = b""
        for number, kind, value in message:
            if number in blanks:
                self._parts += [kept, number]
                kept = b""
            else:
                kept += spell([(number, kind, value)])
        self._parts.append(kept)

    def fill(self, values: Mapping[int, int | bytes | None]) -> bytes:
        """The message with these values of its blanks, by their numbers. None leaves one out."""
        filled = []
        for part in self._parts:
            if isinstance(part, bytes):
                filled.append(part)
            elif (value := values[part]) is not None:
                filled.append(member(part, value))
        return b"".join(filled)


def _number(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(raw):
        byte = raw[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position
    raise ValueError("a message ends inside of a number")


def _digits(value: int) -> Iterator[int]:
    while value > 127:
        yield value & 127 | 128
        value >>= 7
    yield value
