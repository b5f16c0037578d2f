"""Messages without their definitions."""

import pytest

from phalanx.storage.protobuf import MessageTemplate, member, numbers, parse, spell, varint

MESSAGE = [(1, 0, 5), (2, 2, b"text"), (2, 2, b""), (100, 0, 2**64 - 1), (3, 0, 0)]


def test_messages_survive():
    assert parse(spell(MESSAGE)) == MESSAGE
    assert spell([]) == b""


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**63, 2**64 - 1])
def test_numbers(number):
    assert parse(member(7, number)) == [(7, 0, number)]
    assert list(numbers(varint(number) * 3)) == [number] * 3


@pytest.mark.parametrize("raw", [b"\x08", b"\x08\x80", b"\x12\x05ab", b"\x0d\x00\x00\x00\x00"])
def test_other_bytes_are_refused(raw):
    with pytest.raises(ValueError, match="message"):
        parse(raw)


def test_a_template_keeps_the_rest():
    template = MessageTemplate(MESSAGE, (1, 3))
    assert template.fill({1: 5, 3: 0}) == spell(MESSAGE)
    assert parse(template.fill({1: 9, 3: 300})) == [(1, 0, 9), *MESSAGE[1:4], (3, 0, 300)]
