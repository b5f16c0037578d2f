"""Paths of columns as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.model.paths import join_path, split_path


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ("a",)),
        ("a.b c", ("a", "b c")),
        ("`a.b`", ("a.b",)),
        ("`a.b`.c.`x``y`", ("a.b", "c", "x`y")),
        ("a`b", ("a`b",)),
        ("`a`b", ("`a`b",)),
        ("`a", ("`a",)),
        ("``", ("``",)),
    ],
)
def test_split(text, parts):
    assert split_path(text) == parts


@given(st.lists(st.text("ab.` ", min_size=1), min_size=1))
def test_both_ways(parts):
    assert split_path(join_path(parts)) == tuple(parts)


def test_plain_names_are_not_quoted():
    assert join_path(["a b", "é", "x"]) == "a b.é.x"
